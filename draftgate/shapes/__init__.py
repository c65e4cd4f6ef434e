"""Shape twins: folders that load as a large model does, without its weights.

A twin holds a config.json of the model's true shapes, written from public facts
in `shapes.toml`, and a tokenizer of the right vocabulary size that is made here.
Weights are drawn by the engine (`--load-format dummy`), so its text means
nothing; speed and memory are those of the shapes. Knows no engine and no profile.
"""

import functools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError
from draftgate.shapes.tokenizer import TOKENIZER_VERSION, write_tokenizer

__all__ = ["PREFIX", "Shape", "load_shape", "shape_names", "write_shape"]

PREFIX = "shape-"
"""What a twin's name begins with."""

_FACTS = Path(__file__).parent / "shapes.toml"

_SHARED = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "max_position_embeddings",
    "rope_theta",
    "torch_dtype",
)
"""What a head has in common with its target."""

_MASK_KEYS = ("mask_token_id", "ptd_token_id")
"""vLLM 0.26 knows the second name alone; the first is that of published heads."""

_ARCHITECTURE = "LlamaForCausalLMEagle3"
"""Of a plain head of either method: vLLM puts `Eagle3` before any other name and knows none so."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One folder that can be made.

    Attributes:
        name: Its name in profiles, `shape-...`.
        source: Public model whose shapes these are.
        config: What config.json will hold.
        is_head: Whether it is a draft head, which needs no tokenizer.
    """

    name: str
    source: str
    config: Mapping[str, Any]
    is_head: bool

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What the folder is made from."""
        return {"config": dict(self.config), "tokenizer": TOKENIZER_VERSION}


def shape_names() -> tuple[str, ...]:
    """Return the names of all twins and heads, sorted."""
    return tuple(sorted(_shapes()))


def load_shape(name: str) -> Shape:
    """Return one shape.

    Raises:
        SpecError: If there is none of this name; the known ones are listed.
    """
    found = _shapes().get(name)
    if found is None:
        raise SpecError(
            f"shape {name!r}: got no known name, expected one of {', '.join(shape_names())}. "
            "Correct it."
        )
    return found


def write_shape(shape: Shape, folder: Path) -> None:
    """Write config.json, and for a target the tokenizer, into `folder`.

    Raises:
        OSError: As raised by the file system.
    """
    text = json.dumps(dict(shape.config), indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    if not shape.is_head:
        write_tokenizer(folder, shape.config)


@functools.cache
def _shapes() -> Mapping[str, Shape]:
    facts = tomllib.loads(_FACTS.read_text(encoding="utf-8"))
    shapes: dict[str, Shape] = {}
    for key in facts:
        fact = _resolved(facts, key)
        target = f"{PREFIX}{key}"
        shapes[target] = Shape(target, fact["source"], fact["config"], is_head=False)
        for method, own in fact["heads"].items():
            name = f"{target}-{method}"
            config = _head(method, own, fact["config"])
            shapes[name] = Shape(name, fact["source"], config, is_head=True)
    return shapes


def _resolved(facts: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a target's facts, those of another with something left out where it says so."""
    fact = facts[key]
    if "like" in fact:
        base = _resolved(facts, fact["like"])
        config = {name: v for name, v in base["config"].items() if name not in fact["without"]}
        return {**base, "config": config}
    config = dict(fact["config"])
    if isinstance(config.get("layer_types"), str):  # "a, b": in turn, over all layers
        turn = [kind.strip() for kind in config["layer_types"].split(",")]
        config["layer_types"] = [turn[i % len(turn)] for i in range(config["num_hidden_layers"])]
    return {**fact, "config": config}


def _head(method: str, own: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a head: a plain Llama block of the target's width.

    A P-EAGLE head names a token that stands for those not yet drafted; the
    last of the vocabulary is taken.
    """
    head: dict[str, Any] = {key: target[key] for key in _SHARED}
    head |= {
        "architectures": [_ARCHITECTURE],
        "model_type": "llama",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": target.get("bos_token_id"),
        "eos_token_id": target["eos_token_id"],
        "target_hidden_size": target["hidden_size"],
        **own,
    }
    if method == "peagle":
        head |= dict.fromkeys(_MASK_KEYS, target["vocab_size"] - 1)
    return head
