"""What a head takes from its target: sizes, rotary embedding, and how SpecForge calls its chat.

A target is a folder with a config.json, or one of three known by name, whose
facts lie in `targets.toml`. Knows no recipe.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from draftgate.errors import SpecError
from draftgate.specfile.table import Place, number, show, suggestion
from draftgate.speculation.method import Rule, boolean, integer, text

FACTS = Path(__file__).parent / "targets.toml"


@dataclass(frozen=True, slots=True)
class Family:
    """Targets of one architecture.

    Attributes:
        templates: SpecForge's name of the chat template, by size of the vocabulary.
        mixture: Whether its layers are mixtures of experts, whose width is no head's.
    """

    templates: Mapping[int, str]
    mixture: bool


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "gpt_oss": Family({201_088: "gpt-oss"}, mixture=True),
        "llama": Family({128_256: "llama3"}, mixture=False),
        "qwen3": Family({151_936: "qwen"}, mixture=False),
        "qwen3_moe": Family({151_936: "qwen"}, mixture=True),
    }
)
"""By `model_type`, those for whose targets SpecForge's repository holds EAGLE-3 runs.

Source: examples/configs/{llama3.3-70b,gpt-oss-120b}-eagle3-online.yaml at commits 2a17d42 and
1d62d19; qwen3-8b-eagle3-disaggregated in docs/basic_usage/training.md; its older run script of
Qwen3-Coder-30B-A3B, which takes the template `qwen`.
"""

MIXTURE_WIDTH = 6
"""A dense head's MLP over a mixture of experts, in hidden sizes.

Source: SpecForge's configs: 12288 at 2048 (qwen3-coder-30B-A3B-instruct-eagle3.json), 17280 at
2880 (gpt-oss-20B-eagle3-dense.json).
"""


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding.

    Attributes:
        theta: Its base.
        scaling: Keys of `rope_scaling` with `rope_type`; empty without scaling.
    """

    theta: float
    scaling: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TargetModel:
    """One target.

    Attributes:
        path: Its folder, absolute, or its hub name.
        chat_template: SpecForge's name for it; None if the vocabulary tells none.
        num_hidden_layers: Its layers.
        sizes: What a head has in common with it, under the names of config.json.
        mlp_size: Width of a dense head's MLP.
        rope: Its rotary embedding.
        tied: Whether its output matrix is its embedding.
    """

    path: str
    chat_template: str | None
    num_hidden_layers: int
    sizes: Mapping[str, Any]
    mlp_size: int
    rope: Rope
    tied: bool


def target_names() -> tuple[str, ...]:
    """Return the hub names of the targets whose sizes are known, sorted."""
    return tuple(sorted(_facts()))


def read_target(name_or_folder: str) -> TargetModel:
    """Return a target, by folder or by hub name.

    Raises:
        SpecError: If it is neither a folder nor known, has no config.json, or that states no
            head's sizes or a family that SpecForge has no run for.
    """
    folder = Path(name_or_folder).expanduser()
    if folder.is_dir():
        raw, place = _config(folder), Place(str(folder / "config.json"))
        return _target(raw, str(folder.absolute()), place)
    facts = _facts()
    if name_or_folder not in facts:
        raise SpecError(
            f"target {name_or_folder!r}: got neither a folder nor a known name, expected a folder "
            f"with config.json or one of {', '.join(sorted(facts))}."
            f"{suggestion(name_or_folder, facts)} Download the model and give its folder with "
            "--target."
        )
    return _target(facts[name_or_folder], name_or_folder, Place(f"target {name_or_folder}"))


def _facts() -> dict[str, Any]:
    return tomllib.loads(FACTS.read_text(encoding="utf-8"))


def _config(folder: Path) -> dict[str, Any]:
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(
            f"target {folder}: got no config.json that can be read ({error}). Give the folder of "
            "a language model in Hugging Face's format."
        ) from error
    if not isinstance(raw, dict):
        Place(str(folder / "config.json")).fail(show(raw), "an object", "Copy the model's own.")
    return raw


def _target(raw: Mapping[str, Any], path: str, place: Place) -> TargetModel:
    model_type = raw.get("model_type")
    family = FAMILIES.get(str(model_type))
    if family is None:
        place.at("model_type").fail(
            show(model_type),
            f"one of {', '.join(FAMILIES)}",
            "SpecForge has no run for other families; take draftgate drafts train there.",
        )
    filled = {**raw, "head_dim": raw.get("head_dim") or _head_dim(raw)}
    values = {key: _read(filled, key, rule, place) for key, rule in _SIZES.items()}
    if values["num_attention_heads"] % values["num_key_value_heads"]:
        place.at("num_key_value_heads").fail(
            show(values["num_key_value_heads"]),
            f"a divisor of num_attention_heads = {values['num_attention_heads']}",
            "Copy the model's own config.json.",
        )
    layers, width = values.pop("num_hidden_layers"), values.pop("intermediate_size")
    return TargetModel(
        path=path,
        chat_template=family.templates.get(values["vocab_size"]),
        num_hidden_layers=layers,
        sizes=values,
        mlp_size=MIXTURE_WIDTH * values["hidden_size"] if family.mixture else width,
        rope=_rope(raw, place),
        tied=_read({"tie_word_embeddings": False, **raw}, "tie_word_embeddings", boolean(), place),
    )


def _head_dim(raw: Mapping[str, Any]) -> Any:
    """Return what Transformers takes where config.json names none."""
    try:
        return raw["hidden_size"] // raw["num_attention_heads"]
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def _read(raw: Mapping[str, Any], key: str, rule: Rule, place: Place) -> Any:
    if key not in raw or not rule.accepts(raw[key]):
        got = show(raw[key]) if key in raw else "nothing"
        place.at(key).fail(got, rule.expected, "Copy the model's own config.json.")
    return rule.convert(raw[key])


def _rope(raw: Mapping[str, Any], place: Place) -> Rope:
    """Read the embedding from `rope_theta` and `rope_scaling`, or Transformers 5's one table."""
    one = raw.get("rope_parameters")
    scaling = one if isinstance(one, dict) else raw.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        place.at("rope_scaling").fail(show(scaling), "a table", "Copy the model's own config.json.")
    theta = _read({**raw, **scaling}, "rope_theta", number(0, above=True), place)
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    if kind not in _SCALINGS:
        place.at("rope_scaling.rope_type").fail(
            show(kind),
            f"one of {', '.join(_SCALINGS)}",
            "SpecForge 0.2.0 has no other in its EAGLE-3 head.",
        )
    inner = place.at("rope_scaling")
    given = {**_DEFAULTS.get(kind, {}), **scaling}
    rules = {key: integer(1) if key.startswith("original") else number(0) for key in given}
    values = {key: _read(given, key, rules.get(key, number(0)), inner) for key in _SCALINGS[kind]}
    return Rope(theta, {"rope_type": kind, **values} if values else {})


_SIZES: Mapping[str, Rule] = {
    "vocab_size": integer(2),
    "hidden_size": integer(1),
    "intermediate_size": integer(1),
    "num_hidden_layers": integer(1),
    "num_attention_heads": integer(1),
    "num_key_value_heads": integer(1),
    "head_dim": integer(1),
    "hidden_act": text(),
    "rms_norm_eps": number(0, above=True),
    "max_position_embeddings": integer(1),
}

_SCALINGS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
    ),
}
"""What SpecForge 0.2.0 reads of each kind (`LlamaAttention._init_rope` in llama3_eagle.py).

It rounds yarn's range as engines do by default, so gpt-oss's `truncate = false` is left out.
"""

_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "yarn": {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
}
"""SpecForge passes on what is missing as None and fails; these give YaRN's usual
0.1 ln(factor) + 1 (Peng et al., arXiv:2309.00071, equation 22)."""
