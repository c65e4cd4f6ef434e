"""The law of a token by an engine's order of sampling rules, from the model's own logits.

The orders are tables (`draftgate.laws.tables`), the rules single functions
(`draftgate.laws.processors`); here one is applied to the other. Knows no models and no
servers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from draftgate.errors import SpecError
from draftgate.laws import edges, processors
from draftgate.laws.parameters import LawParameters
from draftgate.laws.processors import Mask, Row
from draftgate.laws.tables import FILTERS, ORDERS, VERIFYING, Order, StepName, order_of
from draftgate.stats.scores import Scores, score

__all__ = ["NOISE", "ORDERS", "SOFTENED", "VERIFYING", "Law", "Order", "law", "row", "stated"]

SOFTENED = {"float32": 1e-4, "bfloat16": 1e-3}
"""Weight of the unfiltered law in the stated one, by the engine's numerics; see `stated`."""

NOISE = {"float32": 0.0, "bfloat16": 0.08}
"""Standard deviation of a logit's error over which filters are averaged, by numerics.

Measured on the default target, 702 contexts: within a context bfloat16 logits differ from those
of float32 by .076 on average over the 200 most likely tokens. A larger value is not safer: with
.1, greedy text looked too sharp. In float32, passes of 5 rows differ from whole ones by 8e-6,
which moved no token in or out.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The law of one token.

    Attributes:
        log_probs: After all steps, nats, normalised; shape (V,).
        unfiltered: The same without top-k, top-p, min-p and the choice of the most likely
            token, so after penalties, bias, masks and temperature; shape (V,).
        averaged: The law over errors of the logits with the given standard deviation above
            0, nats before the temperature; None where nothing is filtered.
    """

    log_probs: Row
    unfiltered: Row
    averaged: Callable[[float], Row] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """All that the steps look at besides the logits."""

    order: Order
    parameters: LawParameters
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    mask: Mask | None

    def counted(self, size: int, *, with_prompt: bool) -> Any:
        """Return the count of each token in the output, with the prompt if that counts."""
        prompt = self.prompt_ids if with_prompt else ()
        return processors.counts([*prompt, *self.output_ids], size)


def law(
    logits: ArrayLike,
    parameters: LawParameters,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    engine: str | Order,
    *,
    mask: Mask | None = None,
) -> Law:
    """Return the law of the next token from the model's own logits.

    Args:
        logits: Of the model, before anything; shape (V,), any float dtype.
        parameters: What the request asked for.
        prompt_ids: The prompt.
        output_ids: The output so far.
        engine: A name in `ORDERS` for the promised law, or an order, for example
            `VERIFYING["sglang"]`.
        mask: Tokens that structured output allows here (`draftgate.laws.structure`); needed
            if and only if the parameters have a structure; shape (V,).

    Raises:
        SpecError: If the engine is not known, or mask and structure do not go together.
    """
    order = order_of(engine)
    if (mask is None) != (parameters.structure is None):
        given = "a mask without a structure" if mask is not None else "a structure without a mask"
        raise SpecError(f"law: got {given}, expected both or none. See draftgate.laws.structure.")
    place = _Place(
        order=order,
        parameters=parameters,
        prompt_ids=prompt_ids,
        output_ids=output_ids,
        mask=mask,
    )
    values: Row = np.array(logits, dtype=np.float64)
    for step in order.steps:
        if step not in FILTERS and not (step == "temperature" and parameters.greedy):
            values = _STEPS[step](values, place)
    unfiltered = processors.log_softmax(values)
    if not parameters.greedy and not parameters.filtered:
        return Law(log_probs=unfiltered, unfiltered=unfiltered)
    averaged = partial(_averaged, values, place)
    if parameters.greedy:
        best = processors.log_softmax(processors.greedy(values))
        return Law(log_probs=best, unfiltered=unfiltered, averaged=averaged)
    for step in order.steps:
        if step in FILTERS:
            values = _STEPS[step](values, place)
    return Law(log_probs=processors.log_softmax(values), unfiltered=unfiltered, averaged=averaged)


def stated(given: Law, numerics: str) -> Row:
    """Return the law that evidence is held against: the filtered one with soft edges.

    The engine rounds its logits, so a token at the edge of top-k, top-p or min-p may be in
    where the reference has it out. With probability 0 there, one such token would be proof.
    In bfloat16 that happened to 1 to 7 tokens in 1,000, so there filters are averaged over the
    error of the logits (`draftgate.laws.edges`). And in all numerics the stated law is
    (1 - e) filtered + e unfiltered. With U(S) the unfiltered probability of the kept tokens this is
    (1 - e + e U(S)) times the filtered law on all of them, so a faithful engine loses
    exactly -log(1 - e + e U(S)), less than e nats a token, while a token from outside costs
    at most -log(e) nats more than under the unfiltered law.
    What penalties, bans and structured output forbid stays forbidden.

    Args:
        given: Filtered and unfiltered.
        numerics: `float32` (e = 1e-4) or `bfloat16` (e = 1e-3), of the engine.

    Raises:
        SpecError: If the numerics are neither.

    Source:
        Own derivation. The weights are chosen so that 10,000 tokens lose less than ln(1e4)
        nats in bfloat16 at top-p = .1 or above, and a tenth of that in float32.
    """
    if numerics not in SOFTENED:
        raise SpecError(
            f"numerics: got {numerics!r}, expected one of {', '.join(SOFTENED)}. "
            "Give the dtype that the engine computes its logits in."
        )
    if given.averaged is None:
        return given.log_probs
    weight, noise = SOFTENED[numerics], NOISE[numerics]
    filtered = given.averaged(noise) if noise else given.log_probs
    mixed = np.logaddexp(filtered + np.log1p(-weight), given.unfiltered + np.log(weight))
    return np.asarray(mixed, dtype=np.float64)


def row(given: Law, token: int, numerics: str, **known: Any) -> Scores:
    """Return the evidence row of one token under the stated law.

    Args:
        given: Law of the token.
        token: Its id.
        numerics: See `stated`.
        known: Further columns of `Scores`.
    """
    unfiltered = float(given.unfiltered[token])
    return score(stated(given, numerics), token, **({"unfiltered": unfiltered} | known))


def _averaged(values: Row, place: _Place, noise: float) -> Row:
    """Return the law averaged over errors of logits that are before their filters."""
    asked = place.parameters
    if asked.greedy:
        return processors.log_softmax(edges.top_k(values, 1, noise) - values)
    # An error of a logit is divided by the temperature together with it.
    noise /= max(asked.temperature, place.order.least_temperature)
    for step in place.order.steps:
        if step in FILTERS:
            values = _soft(step, values, asked, noise)
    return processors.log_softmax(values)


def _soft(step: StepName, values: Row, asked: LawParameters, noise: float) -> Row:
    match step:
        case "min_p":
            return edges.min_p(values, asked.min_p, noise)
        case "top_k":
            return edges.top_k(values, asked.top_k, noise)
        case "top_p":
            return edges.top_p(values, asked.top_p, noise)
        case _:
            first = edges.top_k(values, asked.top_k, noise)
            if asked.min_p:
                return edges.min_p(edges.top_p(first, asked.top_p, noise), asked.min_p, noise)
            # Minus infinity less itself is no weight: what cannot be drawn stays so.
            with np.errstate(invalid="ignore"):
                other = edges.top_p(values, asked.top_p, noise) - values
            return np.where(np.isfinite(values), first + other, values)


def _allowed(row: Row, place: _Place) -> Row:
    ids = place.parameters.allowed_token_ids
    return processors.allowed_ids(row, ids) if ids else row


def _bad_words(row: Row, place: _Place) -> Row:
    prompt = place.prompt_ids if place.order.bad_words_see_prompt else ()
    before = [*prompt, *place.output_ids] if place.parameters.bad_words else ()
    return processors.bad_words(row, place.parameters.bad_words, before)


def _min_tokens(row: Row, place: _Place) -> Row:
    parameters = place.parameters
    if len(place.output_ids) >= parameters.min_tokens:
        return row
    kept = processors.forbid(row, parameters.stop_token_ids)
    # A form that is complete allows nothing but an end; vLLM then lets it come early.
    ended = parameters.structure is not None and not np.isfinite(kept).any()
    return row if ended else kept


def _repetition(row: Row, place: _Place) -> Row:
    penalty = place.parameters.repetition_penalty
    if penalty == 1:
        return row
    counted = place.counted(len(row), with_prompt=place.order.repetition_counts_prompt)
    return processors.repetition(row, counted > 0, penalty)


def _occurrence(row: Row, place: _Place) -> Row:
    presence, frequency = place.parameters.presence_penalty, place.parameters.frequency_penalty
    if not presence and not frequency:
        return row
    counted = place.counted(len(row), with_prompt=place.order.occurrence_counts_prompt)
    return processors.occurrence(row, counted, presence=presence, frequency=frequency)


def _temperature(row: Row, place: _Place) -> Row:
    value = max(place.parameters.temperature, place.order.least_temperature)
    return processors.temperature(row, value)


def _top_p(row: Row, place: _Place) -> Row:
    return processors.top_p(row, place.parameters.top_p, ties_together=place.order.ties_together)


def _top_k_and_top_p(row: Row, place: _Place) -> Row:
    """Apply SGLang's joint filters, which come one after the other as soon as there is a min-p."""
    parameters = place.parameters
    if not parameters.min_p:
        return processors.top_k_and_top_p(row, parameters.top_k, parameters.top_p)
    first = _top_p(processors.top_k(row, parameters.top_k), place)
    return processors.min_p(first, parameters.min_p)


_STEPS: Mapping[StepName, Callable[[Row, _Place], Row]] = {
    "structure": lambda row, at: row if at.mask is None else processors.only(row, at.mask),
    "allowed_token_ids": _allowed,
    "bad_words": _bad_words,
    "min_tokens": _min_tokens,
    "logit_bias": lambda row, at: processors.bias(row, at.parameters.logit_bias),
    "repetition_penalty": _repetition,
    "occurrence_penalties": _occurrence,
    "temperature": _temperature,
    "min_p": lambda row, at: processors.min_p(row, at.parameters.min_p),
    "top_k": lambda row, at: processors.top_k(row, at.parameters.top_k),
    "top_p": _top_p,
    "top_k_and_top_p": _top_k_and_top_p,
}
