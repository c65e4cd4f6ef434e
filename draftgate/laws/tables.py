"""Which sampling rule each engine applies when, refuses or ignores, as tables.

`ORDERS` holds the law that an engine promises, which is the one without speculation;
`VERIFYING` what its verify step applies to speculated positions. Where the two differ,
speculation changes the text, and `differences` says how. What was read where stands in
docs/sampling-order.md. Knows no logits; `draftgate.laws.orders` applies the tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from draftgate.errors import SpecError
from draftgate.laws.parameters import LawParameters

StepName = Literal[
    "structure",
    "allowed_token_ids",
    "bad_words",
    "min_tokens",
    "logit_bias",
    "repetition_penalty",
    "occurrence_penalties",
    "temperature",
    "min_p",
    "top_k",
    "top_p",
    "top_k_and_top_p",
]

FILTERS = ("min_p", "top_k", "top_p", "top_k_and_top_p")
"""Steps that cut a law's tail: what they forbid depends on rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one engine does to a row of logits, from first to last.

    Attributes:
        engine: Name.
        version: What was read.
        steps: In order. Filters come last.
        least_temperature: Lower ones above 0 are raised to it.
        repetition_counts_prompt: Whether tokens of the prompt count as seen.
        occurrence_counts_prompt: Whether they count for presence and frequency.
        bad_words_see_prompt: Whether a bad word may begin in the prompt.
        ties_together: Whether tokens tied at the edge of top-p stay together.
        refused: Parameters that are answered with an error.
        ignored: Parameters without effect and without an error.
        absent: Parameters that its requests do not have.
        differences: How the result differs from the law without speculation.
    """

    engine: str
    version: str
    steps: tuple[StepName, ...]
    least_temperature: float = 0.0
    repetition_counts_prompt: bool = True
    occurrence_counts_prompt: bool = False
    bad_words_see_prompt: bool = False
    ties_together: bool = True
    refused: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


_VLLM = Order(
    engine="vllm",
    version="0.32.0, both model runners",
    steps=(
        "structure",
        "allowed_token_ids",
        "bad_words",
        "min_tokens",
        "logit_bias",
        "repetition_penalty",
        "occurrence_penalties",
        "temperature",
        "min_p",
        "top_k",
        "top_p",
    ),
    least_temperature=0.01,
    ties_together=False,
)

_SGLANG = Order(
    engine="sglang",
    version="main branch, autumn 2026",
    steps=(
        "min_tokens",
        "occurrence_penalties",
        "repetition_penalty",
        "structure",
        "logit_bias",
        "temperature",
        "top_k_and_top_p",
    ),
    repetition_counts_prompt=False,
    absent=("bad_words", "allowed_token_ids"),
)

_TENSORRT_LLM = Order(
    engine="tensorrt_llm",
    version="main branch, autumn 2026, PyTorch backend",
    steps=(
        "structure",
        "logit_bias",
        "repetition_penalty",
        "occurrence_penalties",
        "bad_words",
        "min_tokens",
        "temperature",
        "min_p",
        "top_k",
        "top_p",
    ),
    least_temperature=1e-5,
    occurrence_counts_prompt=True,
    bad_words_see_prompt=True,
    refused=("allowed_token_ids",),
)

ORDERS: Mapping[str, Order] = {o.engine: o for o in (_VLLM, _SGLANG, _TENSORRT_LLM)}
"""The law that each engine promises: what it does without speculation."""

VERIFYING: Mapping[str, Order] = {
    "vllm": replace(
        _VLLM,
        refused=("min_p", "logit_bias"),
        differences=(
            "min_tokens: the bonus token of the verify step that reaches it cannot be a stop token",
        ),
    ),
    "sglang": replace(
        _SGLANG,
        steps=(*_SGLANG.steps[:3], "logit_bias", "structure", "temperature", "top_k", "top_p"),
        ignored=("min_p",),
        differences=(
            "top_k with top_p: the mass of top-p is measured on what top-k left",
            "min_p: has no effect",
            "penalties: drafts do not count in their own step, and only its last token later on",
            "min_tokens: verify steps count in place of tokens",
        ),
    ),
    "tensorrt_llm": replace(
        _TENSORRT_LLM,
        steps=tuple(
            step
            for step in _TENSORRT_LLM.steps
            if step not in ("logit_bias", "bad_words", "min_tokens", "min_p")
        ),
        refused=("allowed_token_ids", "logit_bias", "bad_words", "min_tokens", "min_p"),
        differences=(
            "penalties: refused unless the server has `enable_penalty`",
            "older versions: ignore all that is refused here without an error",
        ),
    ),
}
"""What the verify step does to the logits of speculated positions and of the bonus token."""


def refused(parameters: LawParameters, order: Order) -> tuple[str, ...]:
    """Return which parameters of a request the engine must answer with an error."""
    return _asked(parameters, order.refused)


def ignored(parameters: LawParameters, order: Order) -> tuple[str, ...]:
    """Return which parameters of a request the engine leaves out without an error."""
    return _asked(parameters, order.ignored)


def order_of(engine: str | Order) -> Order:
    """Return the order that an engine promises, or the given one.

    Raises:
        SpecError: If no order of an engine of this name is known.
    """
    if isinstance(engine, Order):
        return engine
    if engine not in ORDERS:
        raise SpecError(
            f"engine: got {engine!r}, expected one of {', '.join(ORDERS)}. "
            "An engine without a known order of sampling rules needs an Order of its own."
        )
    return ORDERS[engine]


def _asked(parameters: LawParameters, names: Sequence[str]) -> tuple[str, ...]:
    plain = LawParameters()
    return tuple(name for name in names if getattr(parameters, name) != getattr(plain, name))
