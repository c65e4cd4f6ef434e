"""The mixture of directions: its weights, its paths, its alarms, and what it could have found."""

import numpy as np
import pytest
from numpy.typing import NDArray

from draftgate.stats.directions import FAMILIES, SCOPES, directions
from draftgate.stats.eprocess import (
    Evidence,
    check,
    detectable_kl,
    evidence,
    gather,
    log_ratios,
    log_weights,
    scopes_of,
)
from draftgate.stats.scores import Scores, score_many

VOCABULARY = 50
FAMILY = directions(VOCABULARY, 3)
BARE = directions(VOCABULARY, 3, drafts=False)

Law = NDArray[np.float64]


def drawn(laws: Law, sampled: Law, rng: np.random.Generator) -> Scores:
    """Return tokens drawn from `sampled` and scored under `laws`; shape (n, V) both."""
    steps = np.cumsum(sampled, axis=1)
    tokens = (steps < rng.random((len(laws), 1))).sum(axis=1)
    position = np.arange(len(laws)) % 3
    return score_many(
        np.log(laws), tokens, position=position, bonus=position == 2, special=tokens < 3
    )


def random_laws(n: int, rng: np.random.Generator) -> Law:
    """Return n peaked laws."""
    return np.asarray(rng.dirichlet(np.full(VOCABULARY, 0.1), n) * 0.99 + 0.01 / VOCABULARY)


def test_weights_add_up_to_one() -> None:
    """Whatever directions there are, the prior is a law over the parts."""
    for family in (FAMILY, BARE, FAMILY[:1], FAMILY[3:20]):
        assert np.exp(log_weights(family)).sum() == pytest.approx(1)


def test_a_family_weighs_scopes_by_what_it_speaks_of() -> None:
    """The law's, the drafts' and other tokens' families share their weight by their own numbers."""
    weights = np.exp(log_weights(FAMILY))
    own = {
        direction.family: row / row.sum() for direction, row in zip(FAMILY, weights, strict=True)
    }

    assert own["temperature"] == pytest.approx([scope.weight for scope in SCOPES])
    assert own["acceptance"] == pytest.approx([scope.draft_weight for scope in SCOPES])
    assert own["quantile"] == pytest.approx([scope.other_weight for scope in SCOPES])


def test_no_direction_costs_two_nats_more_than_an_equal_share() -> None:
    """What faults were seen to take has more weight, what they may take is not shut out."""
    for name in FAMILIES:
        own = np.array([direction.weight for direction in FAMILY if direction.family == name])

        assert np.log(own.mean() / own.min()) < 2


def test_path_is_the_literal_mixture() -> None:
    """The e-value after each token is the weighted sum of products of ratios."""
    rng = np.random.default_rng(1)
    ratios, weights = rng.normal(0, 0.4, (2, 6)), np.log([[0.1, 0.4], [0.2, 0.3]])
    scopes = np.array([[True] * 6, [True, False, True, False, False, True]])

    found = gather(ratios, scopes, weights)
    for n in range(1, 7):
        literal = 0.0
        for direction in range(2):
            for scope in range(2):
                product = np.exp(weights[direction, scope])
                for token in range(n):
                    product *= np.exp(ratios[direction, token]) if scopes[scope, token] else 1.0
                literal += product
        assert np.exp(found.path[n - 1]) == pytest.approx(literal)
    assert found.parts[1, 1] == pytest.approx(ratios[1, [0, 2, 5]].sum())


def test_alarm_comes_with_the_first_token_that_reaches_the_bound() -> None:
    """An alarm stays, even if the e-value falls again; without one there is none."""
    path = np.log([1.0, 99.0, 101.0, 2.0])
    found = Evidence(path, np.zeros((1, 1)), (0, 0))

    assert found.alarm_at(0.01) == 3
    assert found.alarm_at(0.001) is None


def test_a_token_that_its_law_excludes_alarms_at_once() -> None:
    """Where another direction allows the token, one is enough."""
    law = np.log(np.full((1, 4), 1 / 3) * [[1, 1, 1, 0]] + 1e-300)
    law[0, 3] = -np.inf
    scores = score_many(law, [3])

    assert evidence(scores, directions(4, 0)).alarm_at(1e-9) == 1


def test_false_alarms_keep_the_bound() -> None:
    """Of 150 streams of 40 tokens from their laws at most .05 x 150 + 3 sd alarm at alpha .05."""
    rng = np.random.default_rng(2)
    laws = random_laws(6000, rng)
    scores = drawn(laws, laws, rng)
    streams = (scores.take(slice(40 * i, 40 * i + 40)) for i in range(150))

    assert sum(evidence(one, BARE).alarm_at(0.05) is not None for one in streams) <= 15


def test_a_wrong_temperature_is_found_and_named() -> None:
    """Tokens at 1.4 times the temperature alarm within 500 tokens, by a hotter direction."""
    rng = np.random.default_rng(3)
    laws = random_laws(500, rng)
    hot = laws ** (1 / 1.4)

    found = evidence(drawn(laws, hot / hot.sum(axis=1, keepdims=True), rng), BARE)
    assert found.alarm_at(1e-4) is not None
    assert BARE[found.best[0]].family == "temperature"


def test_a_fault_of_the_bonus_token_is_placed_there() -> None:
    """Greedy bonus tokens alarm, in the scope of the bonus token."""
    rng = np.random.default_rng(4)
    laws = random_laws(150, rng)
    wrong = laws.copy()
    wrong[2::3] = np.eye(VOCABULARY)[laws[2::3].argmax(axis=1)]

    found = evidence(drawn(laws, wrong, rng), BARE)
    assert found.alarm_at(1e-4) is not None
    assert SCOPES[found.best[1]].label == "bonus token"


def test_scopes_are_where_they_say() -> None:
    """Each token is in "everywhere", and in its place of the chain."""
    law = np.log(np.full((4, 2), 0.5))
    scores = score_many(
        law, [0, 0, 0, 0], position=[0, 1, 2, -1], bonus=[False, False, True, False]
    )

    found = {
        scope.label: row.tolist() for scope, row in zip(SCOPES, scopes_of(scores), strict=True)
    }
    assert found["everywhere"] == [True] * 4
    assert found["all but the bonus token"] == [True, True, False, True]
    assert found["first place of the chain"] == [True, False, False, False]
    assert found["later places of the chain"] == [False, True, False, False]
    assert found["bonus token"] == [False, False, True, False]


def test_detectable_kl_is_found_as_often_as_it_says() -> None:
    """Random walks of that drift, with variance twice it, reach the bound in 90 % of 4,000 cases.

    They are looked at after every token, so a little more than nine in ten is expected.
    """
    rng = np.random.default_rng(5)
    tokens, alpha, weight = 1000, 1e-4, np.log(0.01)
    kl = detectable_kl(tokens, alpha, weight)
    walks = np.cumsum(rng.normal(kl, np.sqrt(2 * kl), (4000, tokens)), axis=1)

    found = (walks.max(axis=1) >= -np.log(alpha) - weight).mean()
    assert 0.89 <= found <= 0.94


def test_detectable_kl_falls_with_tokens() -> None:
    """Ten times the tokens, a tenth of the divergence."""
    assert detectable_kl(1000, 1e-4, -3.0) == pytest.approx(10 * detectable_kl(10_000, 1e-4, -3.0))


@pytest.mark.parametrize(
    ("tokens", "alpha", "weight"), [(0, 0.01, 0.0), (10, 0.0, 0.0), (10, 1.0, 0.0), (10, 0.1, 1.0)]
)
def test_detectable_kl_refuses_what_makes_no_sense(
    tokens: int, alpha: float, weight: float
) -> None:
    """Tokens, alpha and weight have their ranges, and the message names them."""
    with pytest.raises(ValueError, match="expected at least"):
        detectable_kl(tokens, alpha, weight)


def test_evidence_refuses_rows_that_make_no_sense() -> None:
    """No rows, positive logs and tokens above the most likely one are errors."""
    laws = np.log(np.full((2, 2), 0.5))
    fine = score_many(laws, [0, 1])

    with pytest.raises(ValueError, match="no tokens"):
        check(fine.take(np.array([], dtype=int)))
    object.__setattr__(fine, "top", np.log([0.4, 0.4]))
    with pytest.raises(ValueError, match="more likely than the most likely"):
        check(fine)
    object.__setattr__(fine, "logp", np.array([0.5, np.nan]))
    with pytest.raises(ValueError, match="missing"):
        check(fine)


def test_ratios_are_numbers() -> None:
    """What is not known is 0 in every direction."""
    scores = score_many(np.log(np.full((3, 4), 0.25)), [0, 1, 2])

    assert not np.isnan(log_ratios(scores, FAMILY)).any()
