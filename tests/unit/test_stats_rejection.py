"""The rejection rule: exact laws against the target's, and drawing against the exact laws."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftgate.stats.rejection import (
    Chunk,
    NextLaw,
    Scheme,
    acceptance_chances,
    chunk_law,
    continued,
    emitted_law,
    greedy_law,
    one_hot,
    sequence_law,
    verify,
    verify_block,
)

DRAW = {Scheme.STANDARD: verify, Scheme.BLOCK: verify_block}


def laws_of(seed: int, vocabulary: int, sharpness: float) -> NextLaw:
    """Return laws that depend on the whole prefix; some tokens are impossible after some."""

    def law(prefix: Chunk) -> np.ndarray:
        rng = np.random.default_rng([seed, *(token + 1 for token in prefix)])
        weights = rng.dirichlet(np.full(vocabulary, 1 / sharpness))
        weights[rng.integers(vocabulary)] = 0.0
        return weights / weights.sum()

    return law


def far(left: dict[Chunk, float], right: dict[Chunk, float]) -> float:
    """Return the largest difference of two laws."""
    return max(abs(left.get(key, 0.0) - right.get(key, 0.0)) for key in left | right)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(3, 4),
    drafts=st.integers(1, 3),
    sharpness=st.sampled_from([0.5, 3.0]),
    scheme=st.sampled_from(Scheme),
)
def test_emitted_text_has_the_target_s_law(
    seed: int, vocabulary: int, drafts: int, sharpness: float, scheme: Scheme
) -> None:
    """What a step emits, continued by the target, has the target's law to 1e-12."""
    if vocabulary == 4:
        drafts = min(drafts, 2)
    target = laws_of(seed, vocabulary, sharpness)
    draft = laws_of(seed + 1, vocabulary, sharpness)
    emitted = emitted_law(target, draft, drafts=drafts, scheme=scheme)

    assert sum(emitted.values()) == pytest.approx(1.0, abs=1e-12)
    assert far(continued(emitted, target, drafts + 1), sequence_law(target, drafts + 1)) < 1e-12


@pytest.mark.parametrize("scheme", Scheme)
def test_drafts_without_probabilities_keep_the_target_s_law(scheme: Scheme) -> None:
    """One certain chain of proposals leaves the target's law as it is."""
    target = laws_of(5, 4, 1.0)
    certain = lambda prefix: one_hot(np.array((1, 3, 0)[len(prefix)]), 4)  # noqa: E731 - one line
    p, q = target, lambda prefix: certain(prefix[:2])
    emitted = emitted_law(p, q, drafts=3, scheme=scheme)

    assert far(continued(emitted, p, 4), sequence_law(p, 4)) < 1e-12


def test_block_equals_standard_for_drafts_without_probabilities() -> None:
    """With one-hot drafts both schemes have the same law of the chunk, to 1e-12."""
    rng = np.random.default_rng(3)
    target, chain = rng.dirichlet(np.ones(6), 4), (2, 5, 0)
    draft = one_hot(np.array(chain), 6)

    assert far(*(chunk_law(target, draft, chain, scheme) for scheme in Scheme)) < 1e-12


def test_block_accepts_more_than_standard() -> None:
    """Over 40 pairs of laws block verification never emits fewer tokens, and often more."""
    gained = []
    for seed in range(40):
        target, draft = laws_of(seed, 3, 1.0), laws_of(seed + 99, 3, 1.0)
        length = {
            scheme: sum(
                len(c) * p for c, p in emitted_law(target, draft, drafts=3, scheme=scheme).items()
            )
            for scheme in Scheme
        }
        gained.append(length[Scheme.BLOCK] - length[Scheme.STANDARD])

    assert min(gained) > -1e-12
    assert np.mean(np.array(gained) > 1e-3) > 0.5


@pytest.mark.parametrize("scheme", Scheme)
def test_drawing_follows_the_exact_law(scheme: Scheme) -> None:
    """20,000 draws of the literal rule fit the exact law of the chunk (G-test, p > 1e-4)."""
    rng = np.random.default_rng(7)
    target, draft = rng.dirichlet(np.ones(4), 4), rng.dirichlet(np.ones(4), 3)
    chain = (0, 2, 1)
    law = chunk_law(target, draft, chain, scheme)
    seen = Counter(DRAW[scheme](target, draft, chain, rng) for _ in range(20_000))

    assert set(seen) <= set(law)
    counts = np.array([[seen[chunk], 20_000 * law[chunk]] for chunk in law])
    common = counts[counts[:, 1] >= 5]
    assert (
        stats.power_divergence(*(common / common.sum(0) * common[:, 0].sum()).T, 0, 0, 0).pvalue
        > 1e-4
    )


def test_greedy_accepts_the_most_likely_token_only() -> None:
    """At temperature 0 a step emits the argmax of each place and stops at the first difference."""
    logits = np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    law = greedy_law(logits)
    draft = one_hot(np.array((1, 2)), 3)

    assert chunk_law(law, draft, (1, 2)) == {(1, 0): 1.0}
    assert chunk_law(law, one_hot(np.array((1, 0)), 3), (1, 0)) == {(1, 0, 2): 1.0}


def test_steps_with_fewer_proposals_stand_beside_longer_ones() -> None:
    """A chain padded with -1 has the chances of the short chain, in both schemes."""
    rng = np.random.default_rng(11)
    target, draft = rng.dirichlet(np.ones(4), (1, 4)), rng.dirichlet(np.ones(4), (1, 3))
    for scheme in Scheme:
        short = acceptance_chances(target[:, :3], draft[:, :2], np.array([[1, 2]]), scheme)
        padded = acceptance_chances(target, draft, np.array([[1, 2, -1]]), scheme)
        assert padded[0, :2] == pytest.approx(short[0], abs=1e-15)


def test_equal_laws_are_always_accepted() -> None:
    """A draft with the target's own law has chance 1 at every place, in both schemes."""
    law = np.random.default_rng(2).dirichlet(np.ones(5), (1, 4))
    for scheme in Scheme:
        chances = acceptance_chances(law, law[:, :3], np.array([[4, 0, 2]]), scheme)
        assert chances == pytest.approx(1.0, abs=1e-12)
