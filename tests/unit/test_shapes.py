"""Shape twins: their configs, their tokenizer, and what the cache holds of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftgate import targets
from draftgate.datasets import load_prompts
from draftgate.datasets.twin import LENGTHS, PROMPTS
from draftgate.drafts.specforge.targets import FAMILIES, read_target
from draftgate.errors import SpecError
from draftgate.shapes import load_shape, shape_names, write_shape
from draftgate.shapes.count import count_parameters
from draftgate.shapes.tokenizer import special_tokens, vocabulary
from draftgate.targets import make_shape, resolve_target

TARGETS = tuple(name for name in shape_names() if not load_shape(name).is_head)
HEADS = tuple(name for name in shape_names() if load_shape(name).is_head)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("shape-llama-3.3-70b", 70_553_706_496),
        ("shape-qwen3-coder-30b", 30_532_122_624),
        ("shape-gpt-oss-120b", 116_829_156_672),
    ],
)
def test_shapes_count_to_the_published_number_of_weights(name: str, published: int) -> None:
    """Summed over all tensors, each config describes exactly the model's published count."""
    assert count_parameters(load_shape(name).config) == published


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "shape-tiny"])
def test_sizes_are_those_that_heads_are_trained_for(name: str) -> None:
    """A twin and the recipes of heads for its target state the same sizes."""
    shape = load_shape(name)
    known = read_target(shape.source)
    scaling = {k: v for k, v in shape.config.get("rope_scaling", {}).items() if k != "truncate"}

    assert {key: shape.config[key] for key in known.sizes} == dict(known.sizes)
    assert shape.config["num_hidden_layers"] == known.num_hidden_layers
    assert shape.config["rope_theta"] == known.rope.theta
    assert scaling.items() <= known.rope.scaling.items()
    assert shape.config["model_type"] in FAMILIES


@pytest.mark.parametrize("name", HEADS)
def test_heads_fit_their_target(name: str) -> None:
    """A head has its target's width and vocabulary; a P-EAGLE head names a token as its mask."""
    target, _, method = name.rpartition("-")
    head, whole = load_shape(name).config, load_shape(target).config

    assert head["target_hidden_size"] == head["hidden_size"] == whole["hidden_size"]
    assert head["vocab_size"] == whole["vocab_size"]
    assert head["draft_vocab_size"] <= whole["vocab_size"]
    for key in ("mask_token_id", "ptd_token_id"):
        assert head.get(key) == (whole["vocab_size"] - 1 if method == "peagle" else None)
    assert "quantization_config" not in head


def test_layers_of_gpt_oss_take_turns() -> None:
    """Every second layer slides, as many as there are layers."""
    kinds = load_shape("shape-gpt-oss-120b").config["layer_types"]

    assert (len(kinds), kinds[0], kinds[1], kinds[35]) == (
        36,
        "sliding_attention",
        "full_attention",
        "full_attention",
    )


def test_one_twin_is_another_without_its_quantization() -> None:
    """The BF16 twin of Llama differs from the FP8 one in that alone."""
    fp8, bf16 = (dict(load_shape(f"shape-llama-3.3-70b{tail}").config) for tail in ("-fp8", ""))

    assert fp8.pop("quantization_config") == {"quant_method": "fp8", "activation_scheme": "dynamic"}
    assert fp8 == bf16


@pytest.mark.parametrize("name", TARGETS)
def test_every_id_has_one_text(name: str) -> None:
    """The vocabulary has the config's size, no gap and no text twice; special ids are inside."""
    config = load_shape(name).config
    special = special_tokens(config)
    texts = vocabulary(config["vocab_size"], special)

    assert sorted(texts.values()) == list(range(config["vocab_size"]))
    assert all(texts[text] == token for token, text in special.items())
    assert min(special) >= 256


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny twin's tokenizer, as Transformers loads it."""
    transformers = pytest.importorskip("transformers", reason="needs the extra 'cpu'")
    folder = tmp_path_factory.mktemp("tiny")
    write_shape(load_shape("shape-tiny"), folder)
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def test_tokenizer_makes_one_token_of_each_byte(tiny: Any) -> None:
    """Any text has as many tokens as bytes in UTF-8 and comes back as it was."""
    text = "Zürich  naïve 漢字\n\ttab 0.5"
    tokens = tiny.encode(text, add_special_tokens=False)

    assert tokens == list(text.encode())
    assert tiny.decode(tokens) == text
    assert len(tiny) == 1024
    assert (tiny.bos_token_id, tiny.eos_token_id) == (1000, 1001)


def test_every_sampled_id_has_a_text(tiny: Any) -> None:
    """Ids beyond the bytes decode to words of their own; special ones are left out if asked."""
    words = tiny.decode([256, 300, 1023]).split()

    assert len(set(words)) == 3
    assert all(len(word) >= 4 and word.isalpha() for word in words)
    assert tiny.decode([1001], skip_special_tokens=True) == ""


@pytest.mark.parametrize("length", LENGTHS)
def test_prompts_have_the_stated_length_in_tokens(tiny: Any, length: int) -> None:
    """With the template and tokenizer of a twin every prompt is that many tokens."""
    prompts = load_prompts(f"twin-{length}", 3)
    chats = [[{"role": role, "content": text} for role, text in p.messages] for p in prompts[:5]]
    texts = [
        tiny.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats
    ]

    assert {len(tiny.encode(text, add_special_tokens=False)) for text in texts} == {length}
    assert len({prompt.messages for prompt in prompts}) == PROMPTS
    assert load_prompts(f"twin-{length}", 4) != prompts


def test_twins_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name a twin is made in the cache, and taken from there the second time."""
    monkeypatch.setenv(targets.CACHE_VARIABLE, str(tmp_path))
    told: list[str] = []
    folder = resolve_target("shape-tiny", log=told.append)
    head = resolve_target("shape-tiny-eagle3", log=told.append)
    made = len(told)

    assert isinstance(folder, Path)
    assert isinstance(head, Path)
    assert make_shape("shape-tiny", log=told.append) == folder
    assert len(told) == made
    assert json.loads((folder / "config.json").read_text())["vocab_size"] == 1024
    assert (folder / "tokenizer.json").is_file()
    assert not (head / "tokenizer.json").exists()


def test_an_unknown_shape_is_told_with_the_known_ones() -> None:
    """A wrong name lists the right ones."""
    with pytest.raises(SpecError, match=r"shape 'shape-x': got no known name.*shape-tiny"):
        load_shape("shape-x")
