"""What a request may ask for that changes the law of its next token.

One record for all engines; which of it an engine applies, refuses or ignores stands in
`draftgate.laws.orders`. Knows no logits and no servers.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from draftgate.errors import SpecError

StructureKind = Literal["choice", "regex", "json", "json_object"]

_KINDS: tuple[str, ...] = get_args(StructureKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A form that the whole output must have.

    Attributes:
        kind: `choice` one of the texts, `regex` a full match of the one text, `json` a
            document that fits the schema in the one text, `json_object` any JSON object.
        texts: The choices, the pattern or the schema; () for `json_object`.

    Raises:
        SpecError: If the kind is unknown or has the wrong number of texts.
    """

    kind: StructureKind
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise SpecError(
                f"structure: unknown kind {self.kind!r}, expected one of {', '.join(_KINDS)}."
            )
        least, most = {"choice": (1, math.inf), "json_object": (0, 0)}.get(self.kind, (1, 1))
        if not least <= len(self.texts) <= most:
            raise SpecError(
                f"structure {self.kind!r}: got {len(self.texts)} texts, "
                f"expected {least if least == most else 'at least 1'}. "
                "Give the choices, the pattern or the schema as `texts`."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LawParameters:
    """Everything in a request that changes the law of the next token; the defaults change nothing.

    Attributes:
        temperature: Divisor of the logits; 0 is greedy.
        top_k: Number of most likely tokens that stay; 0 is off.
        top_p: Probability that the most likely tokens that stay reach; 1 is off.
        min_p: Smallest share of the top probability that stays; 0 is off.
        presence_penalty: Taken off the logit of each token that the output holds.
        frequency_penalty: The same, times the token's count in the output.
        repetition_penalty: Divisor of positive and factor of negative logits of tokens that the
            prompt or the output holds; 1 is off.
        logit_bias: Pairs of token and what is added to its logit.
        bad_words: Token sequences that the output must not hold.
        allowed_token_ids: The only tokens allowed; () is all.
        min_tokens: Output length below which no stop token may come.
        stop_token_ids: Tokens that end the output, EOS among them; forbidden below `min_tokens`.
        ignore_eos: Whether the output runs on past EOS. The law does not depend on it: below
            `min_tokens` the engines forbid EOS all the same.
        structure: Form that the output must have.

    Raises:
        SpecError: If a number lies outside its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    structure: Structure | None = None

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            _check_range(name, getattr(self, name), least, most)
        if self.top_p == 0 or self.repetition_penalty == 0:
            name = "top_p" if self.top_p == 0 else "repetition_penalty"
            raise SpecError(f"{name}: must be above 0, got 0. Leave it out to switch it off.")
        if any(not word for word in self.bad_words):
            raise SpecError("bad_words: got a word without tokens, expected at least one token id.")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken and nothing is drawn."""
        return self.temperature == 0

    @property
    def filtered(self) -> bool:
        """Whether top-k, top-p or min-p cut the law, so that some tokens cannot be drawn."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def depends_on_output(self) -> bool:
        """Whether the law depends on the output in other ways than through the model."""
        penalties = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1
        return bool(penalties or self.bad_words or self.min_tokens or self.structure)


# The widest ranges that any of the engines accepts (vllm/sampling_params.py, `_verify_args`).
_RANGES = (
    ("temperature", 0, math.inf),
    ("top_k", 0, math.inf),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("presence_penalty", -2, 2),
    ("frequency_penalty", -2, 2),
    ("repetition_penalty", 0, math.inf),
    ("min_tokens", 0, math.inf),
)


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not (least <= value <= most and math.isfinite(value)):
        upper = "" if math.isinf(most) else f" and at most {most}"
        raise SpecError(
            f"{name}: must be at least {least}{upper}, got {value}. "
            "Leave it out to switch it off, or give a number in the range."
        )
