"""`draftgate drafts specforge`: its files hold SpecForge's schema, mistakes are one line."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from draftgate.cli import Exit, main
from draftgate.drafts.recipe import Recipe, load_recipe
from draftgate.drafts.specforge.folder import Order, to_yaml, write_run
from draftgate.drafts.specforge.run import Gpus, draft_config, run_config
from draftgate.drafts.specforge.schema import check_config, load_schema
from draftgate.drafts.specforge.targets import read_target, target_names
from draftgate.errors import SpecError
from tests.support.drafts import complaint_of

NAMES = ("gpt-oss-120b-eagle3", "llama-3.3-70b-eagle3", "qwen3-coder-30b-eagle3")
LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
GPUS = Gpus(trainer=4, capture=4)
VALIDATOR = jsonschema.Draft202012Validator(load_schema())


def few_prompts(name: str) -> Recipe:
    """Return a recipe that comes along with few prompts, so that a test is quick."""
    recipe = load_recipe(name)
    prompts = replace(recipe.prompts, written_per_kind=20, held_out_ratio=0.2)
    return replace(recipe, prompts=prompts)


def written(name: str, folder: Path, **changed: Any) -> dict[str, Any]:
    """Return the run config that was written, read by a YAML reader."""
    order = replace(Order(few_prompts(name), None, (), GPUS), **changed)
    document: dict[str, Any] = yaml.safe_load(write_run(order, folder).read_text(encoding="utf-8"))
    return document


def variant(kind: str) -> dict[str, Any]:
    """Return a good run of each kind: states captured, states stored, P-EAGLE."""
    recipe = load_recipe("llama-3.3-70b-eagle3")
    if kind == "stored":
        recipe = replace(recipe, training=replace(recipe.training, store_states=True))
    if kind == "peagle":
        recipe = replace(recipe, algorithm="peagle", head=replace(recipe.head, layers=4))
    return run_config(recipe, read_target(LLAMA), GPUS, 1000)


def put(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return a copy with a dotted key set."""
    config = copy.deepcopy(config)
    table = config
    *tables, last = key.split(".")
    for name in tables:
        table = table.setdefault(name, {})
    table[last] = value
    return config


def model_folder(folder: Path, **changed: Any) -> Path:
    """Return a folder with the config.json of a small Llama, keys set to None left out."""
    config = {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "rope_theta": 10000.0,
    } | changed
    kept = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_run_of_a_large_target_holds_the_schema(name: str, tmp_path: Path) -> None:
    """What is written for each of the three passes SpecForge's JSON Schema in jsonschema's eyes."""
    config = written(name, tmp_path)

    VALIDATOR.validate(config)
    assert config["model"]["target_model_path"] == load_recipe(name).target
    assert config["training"]["max_steps"] == load_recipe(name).training.steps


def test_recipes_name_the_known_targets() -> None:
    """There is a recipe for each target whose sizes are known."""
    assert tuple(sorted(load_recipe(name).target for name in NAMES)) == target_names()


@pytest.mark.parametrize("kind", ["captured", "stored", "peagle"])
def test_kinds_of_run_hold_the_schema(kind: str) -> None:
    """States captured or stored, EAGLE-3 or P-EAGLE: each run passes both checks."""
    config = variant(kind)

    VALIDATOR.validate(config)
    check_config(config, "run.yaml")


def test_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    """A second writing repeats every file to the last byte."""
    for name in ("first", "second"):
        written("gpt-oss-120b-eagle3", tmp_path / name)

    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("first", "second")
    )
    assert first == second
    assert sorted(first) == ["draft.json", "held-out.jsonl", "prompts.jsonl", "run.yaml"]


def test_prompts_are_conversations_and_held_out_ones_apart(tmp_path: Path) -> None:
    """Lines have id and conversations as SpecForge reads them, and no prompt is in both files."""
    written("gpt-oss-120b-eagle3", tmp_path)

    rows = {}
    for name in ("prompts", "held-out"):
        lines = (tmp_path / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        rows[name] = [json.loads(line) for line in lines]
    for row in (*rows["prompts"], *rows["held-out"]):
        assert list(row) == ["id", "conversations"]
        assert all(list(one) == ["role", "content"] for one in row["conversations"])
        assert row["conversations"][-1]["role"] == "user"
    ids = [{row["id"] for row in part} for part in rows.values()]
    assert all(ids)
    assert ids[0].isdisjoint(ids[1])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("training.ttt_lenght", 3, "training.ttt_lenght: got an unknown key"),
        ("training.ttt_length", 0, "got 0, expected a whole number > 0"),
        ("training.ttt_length", "3", "got '3', expected a whole number > 0"),
        ("training.batch_size", True, "got true, expected a whole number > 0"),
        ("training.lr_scheduler", "linear", "got 'linear', expected one of cosine, constant"),
        ("training.warmup_ratio", 1.5, "got 1.5, expected a number >= 0 and <= 1"),
        ("model.target_backend", "hf", "got 'hf', expected 'sglang'"),
        ("model.target_model_path", None, "got None, expected a text"),
        (
            "deployment.disaggregated.managed_local.capture_servers",
            [{"port": 0, "cuda_visible_devices": ["4"]}],
            "capture_servers.0.port: got 0, expected a whole number > 0 and <= 65535",
        ),
        ("deployment.disaggregated.managed_local.capture_servers", [], "capture_servers: got []"),
    ],
)
def test_planted_fault_is_named(key: str, value: Any, message: str) -> None:
    """A wrong key or value is one line with key, value and rule, and jsonschema agrees."""
    config = put(variant("captured"), key, value)

    with pytest.raises(SpecError, match=r"^run\.yaml: ") as raised:
        check_config(config, "run.yaml")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not VALIDATOR.is_valid(config)


@pytest.mark.parametrize("kind", ["captured", "stored", "peagle"])
def test_our_reader_of_the_schema_refuses_what_jsonschema_refuses(kind: str) -> None:
    """Every key set to each of many values: what jsonschema refuses, we refuse."""
    config = variant(kind)
    values = [None, True, -1, 0, 1, 2.5, "", "x", [], ["0"], [1, 2, 3], {}]
    keys = [
        f"{table}.{key}"
        for table, held in config.items()
        if isinstance(held, dict)
        for key in (*held, "unknown")
    ]
    let_through = []
    for changed in (put(config, key, value) for key in keys for value in values):
        if not VALIDATOR.is_valid(changed):
            try:
                check_config(changed, "run.yaml")
            except SpecError:
                continue
            let_through.append(changed)

    assert let_through == []


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("captured", "data.prompts_path", "p.jsonl", "data: got train_data_path and prompts_path"),
        ("captured", "training.strategy", "dflash", "expected one of eagle3, peagle"),
        ("captured", "training.attention_backend", "eager", "for eagle3"),
        ("peagle", "training.attention_backend", "sdpa", "expected one of flex_attention"),
        ("peagle", "training.batch_size", 2, "expected 1 for peagle"),
        ("stored", "training.strategy", "peagle", "data.hidden_states_path: got stored states"),
        ("captured", "model.vocab_mapping_path", "", "expected a file that both sides read"),
        ("captured", "model.aux_hidden_state_layer_ids", [1, 1, 2], "three different numbers"),
        ("captured", "model.sglang_context_length", 4096, "expected 4103 or more"),
        ("captured", "deployment.mode", "local_colocated", "deployment.mode: got 'local_colo"),
        ("captured", "deployment.trainer.nproc_per_node", 2, "got 4 devices, expected 2"),
        ("captured", "deployment.disaggregated.backend", "shared_dir", "expected mooncake"),
        ("captured", "deployment.disaggregated.server_urls", ["http://a"], "beside managed_local"),
        ("captured", "training.tp_size", 2, "training.tp_size: got 2, expected 1"),
        ("captured", "training.role", "all", "training.role: got 'all'"),
        ("stored", "training.eval_interval", 0, "training.eval_interval: got 0"),
    ],
)
def test_keys_that_do_not_go_together_are_named(
    kind: str, key: str, value: Any, message: str
) -> None:
    """What SpecForge's validators refuse beyond its schema is refused here."""
    config = put(variant(kind), key, value)

    assert VALIDATOR.is_valid(config)
    with pytest.raises(SpecError) as raised:
        check_config(config, "run.yaml")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"head": {"layers": 2}}, "head.layers"),
        ({"head": {"layer_ids": (2, 40)}}, "head.layer_ids"),
        ({"head": {"layer_ids": (2, 40, 80)}}, "head.layer_ids"),
        ({"training": {"losses": (("ce", 1.0),)}}, "training.losses"),
        ({"training": {"step_decay": 1.0}}, "training.step_decay"),
        ({"training": {"train_lm_head": False}}, "training.train_lm_head"),
    ],
)
def test_recipe_beyond_specforge_is_refused(changed: dict[str, Any], key: str) -> None:
    """What SpecForge cannot do as the recipe says is an error, not something else."""
    recipe = load_recipe("llama-3.3-70b-eagle3")
    for table, values in changed.items():
        recipe = replace(recipe, **{table: replace(getattr(recipe, table), **values)})

    with pytest.raises(SpecError, match=f"recipe llama-3.3-70b-eagle3: {key}: got"):
        run_config(recipe, read_target(LLAMA), GPUS, 1000)


def test_layers_are_specforges_defaults() -> None:
    """Our default layers are SpecForge's [1, n // 2 - 1, n - 4], one less for the same states."""
    assert variant("captured")["model"]["aux_hidden_state_layer_ids"] == [1, 39, 76]


def test_hybrid_loss_is_specforges_lambda() -> None:
    """`lk_hybrid` becomes the loss with the same weight, exp(-3 alpha)."""
    recipe = load_recipe("llama-3.3-70b-eagle3")
    recipe = replace(recipe, training=replace(recipe.training, losses=(("lk_hybrid", 1.0),)))
    training = run_config(recipe, read_target(LLAMA), GPUS, 1000)["training"]

    assert (training["lk_loss_type"], training["kl_scale"], training["kl_decay"]) == (
        "lambda",
        1.0,
        3.0,
    )


def test_run_lasts_all_steps() -> None:
    """Epochs give at least the samples that the recipe's steps take: 20,000 of 8."""
    training = variant("captured")["training"]

    assert training["accumulation_steps"] * GPUS.trainer == 8
    assert training["num_epochs"] * 1000 >= 20_000 * 8


def test_mixture_of_experts_gets_a_dense_head() -> None:
    """Over a mixture the MLP is six hidden sizes wide, over a dense target as wide as its own."""
    widths = [
        draft_config(load_recipe(name), read_target(load_recipe(name).target))["intermediate_size"]
        for name in NAMES
    ]

    assert widths == [17280, 28672, 12288]


def test_peagle_head_has_no_scaled_rope() -> None:
    """SpecForge's P-EAGLE reads rope_theta alone, so its config names no scaling."""
    recipe = load_recipe("llama-3.3-70b-eagle3")
    heads = [
        draft_config(replace(recipe, algorithm=name), read_target(LLAMA))
        for name in ("eagle3", "peagle")
    ]

    assert [head["rope_scaling"] is None for head in heads] == [False, True]
    assert heads[0]["rope_theta"] == heads[1]["rope_theta"] == 500_000.0


def test_sizes_come_from_the_folder(tmp_path: Path) -> None:
    """A folder's config.json decides, with Transformers 5's table of the rotary embedding too."""
    rope = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0}
    rope["original_max_position_embeddings"] = 4096
    model_folder(tmp_path, rope_theta=None, rope_parameters=rope)
    recipe = load_recipe("llama-3.3-70b-eagle3")
    head = draft_config(recipe, read_target(str(tmp_path)))

    assert (head["hidden_size"], head["head_dim"], head["rope_theta"]) == (1024, 64, 5e5)
    assert head["rope_scaling"]["mscale"] == 1.0
    assert "rope_theta" not in head["rope_scaling"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "mamba"}, "model_type: got 'mamba', expected one of gpt_oss, llama"),
        ({"model_type": None}, "model_type: got None, expected one of gpt_oss, llama"),
        ({"hidden_size": None}, "hidden_size: got nothing, expected a whole number >= 1"),
        ({"hidden_size": "1024"}, "hidden_size: got '1024', expected a whole number >= 1"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: got 3, expected a divisor"),
        ({"rope_theta": None}, "rope_theta: got nothing, expected a number > 0"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope_type: got 'longrope', expected one of"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor: got nothing"),
        ({"rope_scaling": "linear"}, "rope_scaling: got 'linear', expected a table"),
        ({"vocab_size": 49152}, "data.chat_template: got nothing, expected SpecForge's name"),
        ({"vocab_size": 16000}, "head.draft_vocab_size: got 32000, expected at most 16000"),
    ],
)
def test_wrong_target_is_one_error(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A target that no head fits is named with key, value and rule, and nothing is written."""
    model_folder(tmp_path, **changed)

    with pytest.raises(SpecError) as raised:
        written("llama-3.3-70b-eagle3", tmp_path / "run", target=str(tmp_path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["llama-3.3-70b-eagle3", "--target", "gpt-oss-120b"],
            "Did you mean 'openai/gpt-oss-120b'",
        ),
        (["llama-3.3-70b-eagle3", "--target", "."], "got no config.json that can be read"),
        (["smollm2-eagle3", "--target", LLAMA], "training.losses: got {'ce': 0.5"),
        (["llama-3.3-70b-eagle3", "--trainer-gpus", "0"], "--trainer-gpus got 0, expected 1"),
        (
            ["llama-3.3-70b-eagle3", "--set", "training.steps=3"],
            "training.steps: got an unknown key",
        ),
        (["llama-3.3-70b-eagle3", "--prompts", "none.jsonl"], "none.jsonl"),
    ],
)
def test_mistake_is_one_line(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistake ends with the code of a wrong file and one line, and writes nothing."""
    assert complaint in complaint_of(["specforge", *arguments], tmp_path, monkeypatch, capsys)


def test_options_reach_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option shows in the run, and the path of the config is printed."""
    model_folder(tmp_path)
    folder = tmp_path / "run"
    options = f"--target {tmp_path} --folder {folder} --trainer-gpus 2 --capture-gpus 1"
    more = "--set training.save_interval=7 --set training.learning_rate=1e-05"
    code = main(["drafts", "specforge", "llama-3.3-70b-eagle3", *options.split(), *more.split()])

    config = yaml.safe_load((folder / "run.yaml").read_text(encoding="utf-8"))
    managed = config["deployment"]["disaggregated"]["managed_local"]
    assert code == Exit.OK
    assert capsys.readouterr().out == f"{folder / 'run.yaml'}\n"
    assert config["model"]["target_model_path"] == str(tmp_path)
    assert managed["trainer_cuda_visible_devices"] == ["0", "1"]
    assert managed["capture_servers"][0]["cuda_visible_devices"] == ["2"]
    assert (config["training"]["save_interval"], config["training"]["learning_rate"]) == (7, 1e-5)


def test_yaml_is_read_back_alike() -> None:
    """PyYAML, which SpecForge reads with, gives back every kind of value."""
    document = {
        "texts": {"plain": "a", "odd": 'é: "#\n\t😀', "empty": "", "word": "no", "digits": "1e-05"},
        "numbers": {"small": 1e-05, "large": 1e22, "whole": 7, "half": 0.5},
        "others": {"none": None, "truth": True, "list": ["0", 1, 1e-07], "empty": [], "table": {}},
        "tables": [{"a": 1, "b": ["x"]}, {"a": 2.5, "b": []}],
    }

    assert yaml.safe_load(to_yaml(document)) == document
