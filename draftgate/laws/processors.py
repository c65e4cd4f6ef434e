"""Sampling rules one by one, each a pure function of one row of logits.

Rows are float64 of shape (V,), rules return a new row, and a token that cannot be drawn
has logit -inf. In which order an engine applies which rule stands in
`draftgate.laws.orders`. Knows no engines, no models and no servers.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
Mask = NDArray[np.bool_]

# So many largest values are tried before a whole row is sorted for top-p. Of a 49,152-token row
# they take 0.4 ms to find, all take 1.7 ms to sort (numpy 2, one core of the reference machine).
_CANDIDATES = 512


def log_softmax(logits: Row) -> Row:
    """Return the normalised log-probabilities of a row, nats.

    Raises:
        ValueError: If no token is left that can be drawn.
    """
    largest = logits.max()
    if not np.isfinite(largest):
        raise ValueError(f"no token can be drawn: the largest logit is {largest}")
    shifted = logits - largest
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def counts(tokens: Sequence[int], size: int) -> NDArray[np.int64]:
    """Return how often each of `size` token ids is among the tokens; ids beyond are left out."""
    ids = np.asarray(tokens, dtype=np.int64)
    return np.bincount(ids[(ids >= 0) & (ids < size)], minlength=size)


def repetition(logits: Row, seen: Mask, penalty: float) -> Row:
    """Divide positive and multiply negative logits of seen tokens by the penalty.

    Args:
        logits: Row; shape (V,).
        seen: Tokens that occurred; shape (V,).
        penalty: Above 0; 1 changes nothing.

    Source:
        Keskar et al. 2019, section 4.1, with the sign rule that all engines add.
    """
    scaled = np.where(logits > 0, logits / penalty, logits * penalty)
    return np.where(seen, scaled, logits)


def occurrence(
    logits: Row, counted: NDArray[np.int64], *, presence: float, frequency: float
) -> Row:
    """Take frequency times the count, and presence once, off the logits of counted tokens.

    Source:
        The formula of OpenAI's API reference for both penalties.
    """
    return np.asarray(logits - frequency * counted - presence * (counted > 0))


def bias(logits: Row, pairs: Sequence[tuple[int, float]]) -> Row:
    """Add to the logits of the named tokens; a token that is named twice gets both."""
    changed = logits.copy()
    for token, value in pairs:
        changed[token] += value
    return changed


def bad_words(logits: Row, words: Sequence[Sequence[int]], before: Sequence[int]) -> Row:
    """Forbid each token that would complete a bad word.

    Args:
        logits: Row; shape (V,).
        words: Token ids of each word; at least one id a word.
        before: The tokens that a word's beginning may lie in, in order.
    """
    changed = logits.copy()
    for *beginning, last in words:
        size = len(beginning)
        if size <= len(before) and list(before[len(before) - size :]) == beginning:
            changed[last] = -np.inf
    return changed


def bad_word_ids(
    words: Sequence[str], encode: Callable[[str], Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences that vLLM forbids for words given as text.

    Each word is forbidden as it is, and with a space before it if that gives as many tokens with
    another first one.

    Args:
        words: As sent in the request.
        encode: Tokenizer without special tokens.

    Source:
        `SamplingParams.update_from_tokenizer` in `vllm/sampling_params.py`, 0.32.0.
    """
    forbidden: list[tuple[int, ...]] = []
    for word in words:
        bare, spaced = tuple(encode(word.lstrip())), tuple(encode(" " + word.lstrip()))
        forbidden.append(bare)
        if spaced and len(spaced) == len(bare) and spaced[0] != bare[0]:
            forbidden.append(spaced)
    return tuple(forbidden)


def only(logits: Row, allowed: Mask) -> Row:
    """Forbid all tokens but the allowed ones."""
    return np.where(allowed, logits, -np.inf)


def allowed_ids(logits: Row, ids: Sequence[int]) -> Row:
    """Forbid all tokens but those with the given ids."""
    allowed = np.zeros(len(logits), dtype=bool)
    allowed[list(ids)] = True
    return only(logits, allowed)


def forbid(logits: Row, ids: Sequence[int]) -> Row:
    """Forbid the tokens with the given ids."""
    changed = logits.copy()
    changed[list(ids)] = -np.inf
    return changed


def temperature(logits: Row, value: float) -> Row:
    """Divide the logits by a temperature above 0."""
    return np.asarray(logits / value)


def greedy(logits: Row) -> Row:
    """Forbid all tokens but the most likely one; of tied ones the smallest id stays."""
    changed = np.full_like(logits, -np.inf)
    best = int(logits.argmax())
    changed[best] = logits[best]
    return changed


def min_p(logits: Row, share: float) -> Row:
    """Forbid tokens less likely than a share of the most likely one; equality stays.

    Source:
        Nguyen et al. 2024, "Turning up the heat", equation 2.
    """
    if share <= 0:
        return logits
    return np.where(logits < logits.max() + np.log(share), -np.inf, logits)


def top_k(logits: Row, k: int) -> Row:
    """Forbid all but the k most likely tokens; tokens tied with the k-th all stay.

    Args:
        logits: Row; shape (V,).
        k: Number of tokens; 0 and V or more switch it off.
    """
    if not 0 < k < len(logits):
        return logits
    least = np.partition(logits, -k)[-k]
    return np.where(logits < least, -np.inf, logits)


def top_p(logits: Row, p: float, *, ties_together: bool = False) -> Row:
    """Forbid each token whose more likely tokens hold a probability of p or more.

    So the token that carries the sum across p stays, and one token always does.

    Args:
        logits: Row; shape (V,).
        p: Probability in (0, 1]; 1 switches it off.
        ties_together: Whether tied tokens stay or go together. Else the larger id counts as more
            likely, which is what a stable ascending sort makes of them.

    Source:
        Holtzman et al. 2020, equation 2, with the rule for the last token stated.
    """
    if p >= 1:
        return logits
    probs = np.exp(log_softmax(logits))
    values = _largest(probs[probs > 0], p)
    above = np.concatenate(([0.0], np.cumsum(values)[:-1]))
    size = int((above < p).sum())
    edge = values[size - 1]
    kept, tied = probs > edge, np.flatnonzero(probs == edge)
    kept[tied if ties_together else tied[len(tied) - (size - int(kept.sum())) :]] = True
    return only(logits, kept)


def top_k_and_top_p(logits: Row, k: int, p: float) -> Row:
    """Apply top-k and top-p to the same row and keep what both keep.

    Unlike top-p after top-k, the mass is not measured on what top-k left.

    Source:
        `filter_apply_order="joint"` of FlashInfer's `top_k_top_p_sampling_from_probs`.
    """
    both = np.isfinite(top_k(logits, k)) & np.isfinite(top_p(logits, p, ties_together=True))
    return only(logits, both)


def _largest(probs: NDArray[np.float64], p: float) -> NDArray[np.float64]:
    """Return the largest values, descending, at least so many that they add up to over p."""
    if len(probs) > _CANDIDATES:
        some = np.partition(probs, -_CANDIDATES)[-_CANDIDATES:]
        if some.sum() > p:
            return np.sort(some)[::-1]
    return np.sort(probs)[::-1]
