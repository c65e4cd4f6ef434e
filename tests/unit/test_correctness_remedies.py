"""Other ways of mixing: with Bayes' rule they are the mixture, and each stays an e-process."""

import numpy as np
import pytest

from benchmarks.correctness.remedies import Blend, Fixed, Times
from benchmarks.correctness.streams import NEVER

STREAMS, DIRECTIONS, SCOPES = 3, 4, 2


def weights() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return prior weights of all parts."""
    return np.random.default_rng(1).dirichlet(np.ones(DIRECTIONS * SCOPES)).reshape(DIRECTIONS, -1)


def test_a_blend_at_full_rate_is_the_mixture() -> None:
    """With rate 1 and nothing that goes back, both give the same log e-values."""
    rng = np.random.default_rng(2)
    blend, fixed = (
        Blend(weights(), STREAMS, rate=1, share=0),
        Fixed(STREAMS, (DIRECTIONS, SCOPES)),
    )
    for _ in range(20):
        ratio = np.exp(rng.normal(0, 0.5, (STREAMS, DIRECTIONS)))
        holds = rng.random((STREAMS, SCOPES)) < 0.7
        values = blend.grow(ratio, holds)
        fixed.grow(ratio, holds)

    assert values == pytest.approx(fixed.value(weights()))


@pytest.mark.parametrize(("rate", "share"), [(1, 0.1), (0.3, 0), (0.5, 0.05)])
def test_a_blend_is_a_law(rate: float, share: float) -> None:
    """The mean factor of the next token is one if each direction's is, whatever came before."""
    rng = np.random.default_rng(3)
    law = np.array([0.5, 0.3, 0.2])
    others = rng.dirichlet(np.ones(3), DIRECTIONS)
    past = others[:, rng.integers(3, size=10)] / law[0]
    everywhere = np.ones((1, SCOPES), dtype=bool)
    means = 0.0
    for token in range(3):
        blend = Blend(weights(), 1, rate=rate, share=share)
        for ratio in past.T:
            before = blend.grow(ratio[None], everywhere)
        after = blend.grow((others[:, token] / law[token])[None], everywhere)
        means += law[token] * float(np.exp(after - before)[0])

    assert means == pytest.approx(1)


def test_times_are_those_of_the_first_crossing() -> None:
    """A stream that falls back keeps its time, one that never reaches the bound has none."""
    times = Times()
    for token, values in enumerate([[0.0, 0.0], [9.3, 0.0], [1.0, 9.0]]):
        times.see("a", np.array(values), token)

    assert times.first["a"].tolist() == [2, NEVER]
