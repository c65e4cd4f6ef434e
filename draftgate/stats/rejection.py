"""The rule by which drafts are accepted or rejected, as an oracle for what engines do.

Numbers in, numbers out. Two valid schemes: standard rejection sampling (each place
by itself) and block verification (the chain as a whole). Both come as a literal
function that draws, and as exact laws: the chance of each place to be accepted, the
law of the token that ends the step, and the law of all that one step emits. Knows no
models, no engines and no temperature: laws come in as they are to be sampled.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Chunk = tuple[int, ...]
NextLaw = Callable[[Chunk], Floats]
"""The law of the next token after a prefix; shape (V,)."""


class Scheme(Enum):
    """A way to verify drafts that leaves the target's law alone."""

    STANDARD = "standard"
    BLOCK = "block"


def greedy_law(logits: Floats) -> Floats:
    """Return the law of temperature 0: all weight on the largest logit, the first of equals."""
    law: Floats = np.zeros_like(logits, dtype=float)
    np.put_along_axis(law, np.argmax(logits, axis=-1, keepdims=True), 1.0, axis=-1)
    return law


def one_hot(proposals: Ints, vocabulary: int) -> Floats:
    """Return the laws of drafts without probabilities: all weight on the proposal."""
    law: Floats = np.zeros((*proposals.shape, vocabulary))
    np.put_along_axis(law, np.maximum(proposals, 0)[..., None], 1.0, axis=-1)
    return law


def verify(target: Floats, draft: Floats, proposals: Chunk, rng: np.random.Generator) -> Chunk:
    """Draw what one verify step emits by standard rejection sampling.

    Args:
        target: Laws of the places along the proposals, the bonus place last; shape (K + 1, V).
        draft: Laws that the proposals were drawn from; shape (K, V).
        proposals: K draft tokens.
        rng: Source of all randomness.

    Returns:
        1 to K + 1 tokens: accepted ones, then a recovered one or the bonus token.

    Source:
        Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.
    """
    for place, token in enumerate(proposals):
        # p / q >= u without the division, so that a draft of probability 0 is no error.
        if rng.random() * draft[place, token] >= target[place, token]:
            recovered = np.maximum(target[place] - draft[place], 0.0)
            return (*proposals[:place], draw(recovered, rng))
    return (*proposals, draw(target[len(proposals)], rng))


def verify_block(
    target: Floats, draft: Floats, proposals: Chunk, rng: np.random.Generator
) -> Chunk:
    """Draw what one verify step emits by block verification; arguments as for `verify`.

    Source:
        Sun et al. 2024, "Block Verification Accelerates Speculative Decoding", algorithm 2.
    """
    weight, kept, kept_weight = 1.0, 0, 1.0
    for place, token in enumerate(proposals):
        weight = min(weight * target[place, token] / draft[place, token], 1.0)
        chance = weight
        if place + 1 < len(proposals):
            left = float(np.maximum(weight * target[place + 1] - draft[place + 1], 0.0).sum())
            chance = 1.0 if weight >= 1.0 else left / (left + 1.0 - weight)
        if rng.random() < chance:
            kept, kept_weight = place + 1, weight
    if kept == len(proposals):
        return (*proposals, draw(target[kept], rng))
    residual = np.maximum(kept_weight * target[kept] - draft[kept], 0.0)
    return (*proposals[:kept], draw(residual, rng))


def draw(weights: Floats, rng: np.random.Generator) -> int:
    """Return a token drawn with probability proportional to its weight; shape (V,)."""
    steps = np.cumsum(weights)
    return int(np.searchsorted(steps, rng.random() * steps[-1], side="right"))


def chain_weights(target: Floats, draft: Floats | None, proposals: Ints, scheme: Scheme) -> Floats:
    """Return by how much the target's law is weighed at each place before the draft's is taken off.

    1 everywhere for the standard rule. For block verification w_0 = 1 and
    w_i = min(1, w_{i-1} p_i(x_i) / q_i(x_i)).

    Args:
        target: Shape (S, K + 1, V), one row of places a step.
        draft: Shape (S, K, V); None for drafts without probabilities.
        proposals: Shape (S, K); -1 where a step had fewer.
        scheme: How drafts are verified.

    Returns:
        Shape (S, K + 1).
    """
    weights: Floats = np.ones((proposals.shape[0], proposals.shape[1] + 1))
    if scheme is Scheme.BLOCK:
        ratio = draft_ratios(target, draft, proposals)
        for place in range(proposals.shape[1]):
            weights[:, place + 1] = np.minimum(weights[:, place] * ratio[:, place], 1.0)
    return weights


def draft_ratios(target: Floats, draft: Floats | None, proposals: Ints) -> Floats:
    """Return p(d) / q(d) of the proposals; 0 where there is none or q(d) is 0; shape (S, K)."""
    known = np.maximum(proposals, 0)[..., None]
    p = np.take_along_axis(target[:, : proposals.shape[1]], known, axis=2)[..., 0]
    q = np.ones_like(p) if draft is None else np.take_along_axis(draft, known, axis=2)[..., 0]
    fine = (proposals >= 0) & (q > 0)
    return np.asarray(np.where(fine, p, 0.0) / np.where(fine, q, 1.0))


def acceptance_chances(
    target: Floats, draft: Floats | None, proposals: Ints, scheme: Scheme = Scheme.STANDARD
) -> Floats:
    """Return P(place is accepted | all before it were, and the proposals); shape (S, K).

    Standard: min(1, p(d) / q(d)). Block: place i is kept if any of the independent
    events of places i, i + 1, ... holds, so with S_i = 1 - prod_{j >= i} (1 - h_j) the
    chance is S_i / S_{i-1}, S_0 = 1.

    Args:
        target: Shape (S, K + 1, V).
        draft: Shape (S, K, V); None for drafts without probabilities.
        proposals: Shape (S, K); -1 at the end where a step had fewer.
        scheme: How drafts are verified.

    Source:
        Leviathan et al. 2023; Sun et al. 2024, equation (4); the ratio of the S is our own.
    """
    if scheme is Scheme.STANDARD:
        return np.asarray(np.minimum(draft_ratios(target, draft, proposals), 1.0))
    missed = np.cumprod(1.0 - _block_events(target, draft, proposals)[:, ::-1], axis=1)[:, ::-1]
    survival = np.concatenate([np.ones((len(missed), 1)), 1.0 - missed], axis=1)
    reached = survival[:, :-1] > 0
    chance = np.where(reached, survival[:, 1:], 0.0) / np.where(reached, survival[:, :-1], 1.0)
    return np.asarray(np.minimum(chance, 1.0))


def _block_events(target: Floats, draft: Floats | None, proposals: Ints) -> Floats:
    """Return h_i of block verification for i = 1 ... K; shape (S, K)."""
    weights = chain_weights(target, draft, proposals, Scheme.BLOCK)
    lengths = (proposals >= 0).sum(axis=1)
    events: Floats = np.zeros(proposals.shape)
    for place in range(proposals.shape[1]):
        weight = weights[:, place + 1]
        events[:, place] = np.where(lengths == place + 1, weight, 0.0)
        inner = lengths > place + 1
        if inner.any():
            left = residuals(target, draft, proposals, weights, np.full(len(lengths), place + 1))
            mass = left.sum(axis=1)
            lost = mass + 1.0 - weight
            some = np.where(weight >= 1.0, 1.0, mass / np.where(lost > 0, lost, 1.0))
            events[:, place] = np.where(inner, some, events[:, place])
    return events


def residuals(
    target: Floats, draft: Floats | None, proposals: Ints, weights: Floats, place: Ints
) -> Floats:
    """Return (w p - q)+ at one place of each step, not normalised; w p at the bonus place.

    Args:
        target: Shape (S, K + 1, V).
        draft: Shape (S, K, V); None for drafts without probabilities.
        proposals: Shape (S, K); -1 at the end where a step had fewer.
        weights: From `chain_weights`; shape (S, K + 1).
        place: Which place of each step; shape (S,), at most K.
    """
    rows = np.arange(len(place))
    left = np.asarray(target[rows, place] * weights[rows, place, None], dtype=float)
    drafted = place < (proposals >= 0).sum(axis=1)
    at, row = place[drafted], rows[drafted]
    if draft is None:
        left[row, proposals[row, at]] = 0.0
    else:
        left[row] = np.maximum(left[row] - draft[row, at], 0.0)
    return left


def chunk_law(
    target: Floats, draft: Floats, proposals: Chunk, scheme: Scheme = Scheme.STANDARD
) -> dict[Chunk, float]:
    """Return the exact law of what one verify step emits, given its proposals.

    Args:
        target: Shape (K + 1, V).
        draft: Shape (K, V).
        proposals: K draft tokens.
        scheme: How drafts are verified.
    """
    drafts = np.array([proposals], dtype=int).reshape(1, len(proposals))
    chances = acceptance_chances(target[None], draft[None], drafts, scheme)[0]
    weights = chain_weights(target[None], draft[None], drafts, scheme)
    law: dict[Chunk, float] = {}
    reached = 1.0
    for place in range(len(proposals) + 1):
        ends = reached * (1.0 - chances[place]) if place < len(proposals) else reached
        left = residuals(target[None], draft[None], drafts, weights, np.array([place]))[0]
        if ends > 0 and left.sum() > 0:
            for token in np.flatnonzero(left).tolist():
                law[(*proposals[:place], token)] = float(ends * left[token] / left.sum())
        reached *= chances[place] if place < len(proposals) else 0.0
    return law


def emitted_law(
    target: NextLaw, draft: NextLaw, *, drafts: int, scheme: Scheme = Scheme.STANDARD
) -> dict[Chunk, float]:
    """Return the exact law of what one verify step emits, over all chains of `drafts` proposals.

    Enumerates V ** drafts chains: for small vocabularies.
    """
    found: dict[Chunk, float] = {}
    for chain, weight in sequence_law(draft, drafts).items():
        prefixes = [chain[:place] for place in range(drafts + 1)]
        p = np.stack([target(prefix) for prefix in prefixes])
        q = np.stack([draft(prefix) for prefix in prefixes])[:drafts]
        for chunk, chance in chunk_law(p, q, chain, scheme).items():
            found[chunk] = found.get(chunk, 0.0) + weight * chance
    return found


def sequence_law(law: NextLaw, length: int) -> dict[Chunk, float]:
    """Return the probabilities of all possible sequences of `length` tokens."""
    return continued({(): 1.0}, law, length)


def continued(chunks: Mapping[Chunk, float], law: NextLaw, length: int) -> dict[Chunk, float]:
    """Return the law of the first `length` tokens if each chunk goes on by `law`."""
    found: dict[Chunk, float] = {}
    waiting = list(chunks.items())
    while waiting:
        chunk, weight = waiting.pop()
        if len(chunk) >= length:
            found[chunk[:length]] = found.get(chunk[:length], 0.0) + weight
        else:
            after = law(chunk)
            waiting += [
                ((*chunk, token), weight * float(after[token]))
                for token in np.flatnonzero(after).tolist()
            ]
    return found
