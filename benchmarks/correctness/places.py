"""One place of a stored chain: the laws that meet there, ready for rules and references.

Normalises the stored laws and applies what a condition asks for (a filter, a
penalty). Knows no faults and no evidence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.contexts import K, Setting, Stored, load

Floats = NDArray[np.floating[Any]]

TOP_P = 0.95
PENALTY = 1.0
"""Presence penalty of the condition "penalised", in logits."""

SOFTENED = 1e-4
"""Share of the unfiltered law in a filtered one; see `draftgate.laws.orders.stated`."""

CONDITIONS = ("plain", "filtered", "penalised")


@dataclass(frozen=True, slots=True)
class Place:
    """Laws over the vocabulary, shape (V,), all normalised.

    Attributes:
        number: Place in the chain, 0 to K; K is the bonus token's.
        target: The law that the request asks for.
        before: The target's law one place earlier.
        recent: Mean of the target's laws at the places before, up to the one before the chain.
        older: The target's law one place before the chain: the row that the step before left.
        stale: The target's law when one slot of its cache is wrong.
        bare: The target's law without the condition's filter or penalty.
        hot: The target's law at temperature 1.
        draft: The law that the proposal is drawn from; one-hot for greedy drafts.
        model: The drafter's own law, also where its most likely token is taken.
        cool: The drafter's law before it is sharpened.
        proposal: The stored chain's token; -1 at the bonus place.
    """

    number: int
    target: Floats
    before: Floats
    recent: Floats
    older: Floats
    stale: Floats
    bare: Floats
    hot: Floats
    draft: Floats
    model: Floats
    cool: Floats
    proposal: int


class World:
    """All places of some contexts of one kind of drafts under one condition."""

    def __init__(self, setting: Setting, kind: str, condition: str, picked: slice) -> None:
        """Read the stored laws of the contexts that a slice picks."""
        stored = load(setting, kind)
        self.setting, self.kind, self.condition = setting, kind, condition
        self.stored: Stored = Stored(
            target=stored.target[picked],
            stale=stored.stale[picked],
            draft=stored.draft[picked],
            chain=stored.chain[picked],
            prefix=stored.prefix[picked],
        )

    def __len__(self) -> int:
        """Return the number of contexts."""
        return len(self.stored.chain)

    @property
    def vocabulary(self) -> int:
        """Number of tokens that a law is over."""
        return int(self.stored.target.shape[2])

    def chain(self, context: int) -> Iterator[Place]:
        """Yield the places 0 to K of one context."""
        s, cold = self.stored, self.setting.temperature
        laws = [_law(row) for row in s.target[context]]
        bent = [self._conditioned(law, context, index - 1) for index, law in enumerate(laws)]
        for number in range(K + 1):
            model = _law(s.draft[context, number])
            proposal = int(s.chain[context, number]) if number < K else -1
            greedy = self.kind == "greedy"
            picked = proposal if number < K else int(model.argmax())
            yield Place(
                number=number,
                target=bent[number + 1],
                before=bent[number],
                recent=np.mean(bent[: number + 1], axis=0),
                older=bent[0],
                stale=self._conditioned(_law(s.stale[context, number]), context, number),
                bare=laws[number + 1],
                hot=_powered(laws[number + 1], cold),
                draft=_one_hot(picked, len(model)) if greedy else model,
                model=model,
                cool=_powered(model, 1 / self.setting.sharpness),
                proposal=proposal,
            )

    def _conditioned(self, law: Floats, context: int, number: int) -> Floats:
        if self.condition == "filtered":
            return (1 - SOFTENED) * nucleus(law, TOP_P) + SOFTENED * law
        if self.condition == "penalised":
            seen = [*self.stored.prefix[context], *self.stored.chain[context, : max(number, 0)]]
            bent = law.copy()
            bent[np.unique(seen)] *= np.exp(-PENALTY / self.setting.temperature)
            return bent / bent.sum()
        return law


def nucleus(law: Floats, top_p: float) -> Floats:
    """Return the law on the fewest most likely tokens that reach `top_p` together."""
    order = np.argsort(-law, kind="stable")
    kept = order[: int(np.searchsorted(np.cumsum(law[order]), top_p)) + 1]
    cut = np.zeros_like(law)
    cut[kept] = law[kept]
    return cut / cut.sum()


def _law(log_probabilities: NDArray[np.float16]) -> Floats:
    law = np.exp(log_probabilities.astype(float))
    return law / law.sum()


def _powered(law: Floats, power: float) -> Floats:
    bent = law**power
    return bent / bent.sum()


def _one_hot(token: int, vocabulary: int) -> Floats:
    law = np.zeros(vocabulary)
    law[token] = 1.0
    return law
