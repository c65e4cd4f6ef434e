"""Each direction is a law: its ratio to the stated one has mean one, whatever came before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftgate.stats.directions import (
    FAMILIES,
    OF_DRAFTS,
    OF_OTHERS,
    SCOPES,
    Direction,
    directions,
)
from draftgate.stats.eprocess import log_ratios
from draftgate.stats.ratios import by_rank, mixed, point, powered, repeated_surprise
from draftgate.stats.ratios_draft import (
    accepted_with_odds,
    favoured,
    refused,
    rest_from_draft,
    rest_to_top,
    tilted_cells,
    tilted_to_draft,
)
from draftgate.stats.ratios_quantile import same_quantile
from draftgate.stats.scores import POWERS, Scores, draft_columns, joined, score_many

VOCABULARY = 5
FAMILY = directions(VOCABULARY, 2)

Law = NDArray[np.float64]


def random_law(rng: np.random.Generator, *, gaps: bool = True) -> Law:
    """Return log-probabilities of a random law, in which tokens may tie or be excluded."""
    weights = np.round(rng.dirichlet(np.full(VOCABULARY, 0.7)), 2) + 0.01
    if gaps:
        weights[1:] *= rng.random(VOCABULARY - 1) > 0.2
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights / weights.sum()))


def rows(rng: np.random.Generator, position: int, request: int) -> Scores:
    """Return the scores of all tokens at one place with random laws, excluded ones left out."""
    law, draft = random_law(rng), random_law(rng)
    if rng.random() < 0.5:
        draft = np.where(np.arange(VOCABULARY) == rng.integers(VOCABULARY), 0.0, -np.inf)
    tokens = np.arange(VOCABULARY)
    every: Callable[[Law], Law] = lambda row: np.tile(row, (VOCABULARY, 1))  # noqa: E731 - short
    scores = score_many(
        every(law),
        tokens,
        before=random_law(rng),
        recent=random_law(rng),
        unfiltered=random_law(rng, gaps=False),
        draft=np.full(VOCABULARY, draft.argmax()),
        confidence=np.full(VOCABULARY, -rng.exponential()),
        sibling=np.full(VOCABULARY, rng.integers(-1, VOCABULARY)),
        special=tokens < 2,
        position=np.full(VOCABULARY, position),
        bonus=np.full(VOCABULARY, position == 2),
        request=np.full(VOCABULARY, request),
        **draft_columns(every(law), every(draft), tokens),
    )
    return scores.take(np.isfinite(law))


def history(rng: np.random.Generator) -> list[Scores]:
    """Return up to eight tokens drawn from their laws, in chunks of up to three."""
    drawn, position = [], 0
    for number in range(int(rng.integers(0, 9))):
        some = rows(rng, position, request=number // 6)
        drawn.append(some.take(rng.choice(len(some), 1, p=np.exp(some.logp))))
        position = position + 1 if position < 2 and rng.random() < 0.6 else 0
    return drawn


def worst_mean(seed: int, family: tuple[Direction, ...]) -> tuple[float, str]:
    """Return the largest mean ratio of a direction for the next token, and the direction."""
    rng = np.random.default_rng(seed)
    past = history(rng)
    last = past[-1] if past else None
    position = 0 if last is None or rng.random() < 0.5 else min(int(last.position[0]) + 1, 2)
    following = rows(rng, position, request=int(last.request[0]) if last is not None else 0)
    means = np.zeros(len(family))
    for row in range(len(following)):
        one = following.take(np.array([row]))
        ratio = log_ratios(joined([*past, one]), family)[:, -1]
        means += np.exp(one.logp[0] + ratio)
    return float(means.max()), family[int(means.argmax())].label


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_directions_have_mean_at_most_one(seed: int) -> None:
    """Given any past, each direction's ratio has mean at most 1 under the law, by enumeration."""
    mean, label = worst_mean(seed, FAMILY)

    assert mean <= 1 + 1e-9, label


def test_directions_that_are_no_laws_are_caught() -> None:
    """The same enumeration finds a direction that was not normalised."""
    wrong = Direction("temperature", "wrong", lambda s: -0.3 * s.logp)

    assert max(worst_mean(seed, (wrong,))[0] for seed in range(20)) > 1.01


def three(token: int, **known: Any) -> Scores:
    """Return a token drawn from (.5, .3, .2), with a draft drawn from (.2, .7, .1)."""
    laws, drafts = np.log([[0.5, 0.3, 0.2]]), np.log([[0.2, 0.7, 0.1]])
    found = score_many(laws, [token], draft=[1], **draft_columns(laws, drafts, [token]))
    return replace(found, **known)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        # The powers 1.5 add up to .607312.
        (powered(POWERS.index(1.5)), tuple(np.array([0.5, 0.3, 0.2]) ** 1.5 / 0.607312)),
        # The draft is token 1: its weight .3 becomes .6, of 1.3 in all.
        (tilted_to_draft(np.log(2)), (0.5 / 1.3, 0.6 / 1.3, 0.2 / 1.3)),
        # min(p, q) = (.2, .3, .1), A = .6; odds 1.5 -> 3, A' = .75; the rest is (.3, 0, .1).
        (
            accepted_with_odds(1.0, np.log(2)),
            (
                0.75 * 0.2 / 0.6 + 0.25 * 0.75,
                0.75 * 0.3 / 0.6,
                0.75 * 0.1 / 0.6 + 0.25 * 0.25,
            ),
        ),
        # Half of the rest .4 goes to its likeliest token, 0.
        (rest_to_top(0.5), (0.2 + 0.15 + 0.2, 0.3, 0.1 + 0.05)),
        # Of the rest (.3, 0, .1) the shares 1 - c are (.6, 0, .5), with mean .575.
        (
            rest_from_draft(0.5),
            (0.2 + 0.15 + 0.2 * 0.18 / 0.23, 0.3, 0.1 + 0.05 + 0.2 * 0.05 / 0.23),
        ),
        # Only token 1 is proposed too often, .7 against .3: more than twice, not the likeliest.
        (tilted_cells((0.0, 0.0), (0.0, np.log(3))), (0.5 / 1.6, 0.9 / 1.6, 0.2 / 1.6)),
        # Its weight .3 is multiplied by g = .05 + .95 / 2; A' = .4575, the rest grows to 1.35625.
        (
            refused(0.0, 0.0),
            (
                0.5 * (0.95 * (0.4 + 0.6 * 1.35625) + 0.05),
                0.3 * (0.95 * 0.525 + 0.05),
                0.2 * (0.95 * (0.5 + 0.5 * 1.35625) + 0.05),
            ),
        ),
        (point(0.1, lambda s: (s.is_top, s.token >= 0)), (0.55, 0.27, 0.18)),
    ],
    ids=[
        "power",
        "odds of the draft",
        "acceptance",
        "rest",
        "rest from draft",
        "cells",
        "refused",
        "greedy",
    ],
)
def test_directions_are_the_laws_they_say(
    ratio: Callable[[Scores], Law], expected: tuple[float, ...]
) -> None:
    """Law times ratio is the law that was worked out by hand."""
    law = [float(np.exp(three(t).logp + ratio(three(t)))[0]) for t in range(3)]

    assert law == pytest.approx(expected, rel=1e-4)


def test_lucky_drafts_favour_what_is_proposed_too_often() -> None:
    """Behind token 1, with q / p = 7 / 3, its weight .3 is multiplied by the root of that."""
    chains = [joined([three(1), three(t, position=np.array([1]))]) for t in range(3)]
    gain = (7 / 3) ** 0.5
    left = (1 - 0.6 - 0.3 * (gain - 1)) / 0.4

    ratios = [np.exp(favoured(0.5)(chain)) for chain in chains]
    assert [ratio[0] for ratio in ratios] == pytest.approx([1, 1, 1])
    assert [(ratio[1] - 0.05) / 0.95 for ratio in ratios] == pytest.approx(
        [0.4 + 0.6 * left, gain, 0.5 + 0.5 * left]
    )


def test_ranks_follow_zipf() -> None:
    """With all weight on ranks, token of rank r gets 1 / (1 + r) over at least the harmonic sum."""
    law = [float(np.exp(three(t).logp + by_rank(1 - 1e-12, 3)(three(t)))[0]) for t in range(3)]

    assert law[1] / law[0] == pytest.approx(0.5)
    assert 0.9 < sum(law) <= 1


def test_surprises_are_counted_as_a_loop_counts_them() -> None:
    """The ratio of repeated surprises agrees with a literal loop over the tokens."""
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, 4, 200)
    logp = np.where(rng.random(200) < 0.4, np.log(5e-4), np.log(0.2))
    known = replace(joined([three(0)] * 200), token=tokens, logp=logp)

    seen: list[int] = []
    expected = []
    for token, own in zip(tokens.tolist(), logp.tolist(), strict=True):
        with np.errstate(divide="ignore"):
            law = np.log(np.array(seen.count(token) / len(seen))) if seen else np.nan
        expected.append(float(mixed(0.05, law, np.array(own))) if seen else 0.0)
        seen += [token] if own < np.log(1e-3) else []
    assert repeated_surprise(0.05)(known) == pytest.approx(expected)


def test_a_repeated_quantile_is_looked_up_in_its_interval() -> None:
    """After token 0 of (.5, .3, .2) as bonus token, the quantile lies in [0, .5)."""
    first = three(0, bonus=np.array([True]))
    again = [joined([first, three(t, bonus=np.array([True]))]) for t in range(3)]

    ratios = [float(np.exp(same_quantile(0.5, ends=True)(pair)[1])) for pair in again]
    assert ratios == pytest.approx([0.5 + 0.5 / 0.5, 0.5, 0.5])


def test_what_is_not_known_says_nothing() -> None:
    """Without draft, rank, filters and neighbours every direction that needs them is at 0."""
    bare = score_many(np.log([[0.5, 0.3, 0.2]]), [1], position=[-1])

    found = dict(zip((d.family for d in FAMILY), log_ratios(bare, FAMILY)[:, 0], strict=True))
    silent = (*OF_DRAFTS, "neighbour row", "copy", "repeat", "quantile")
    assert all(found[name] == 0 for name in silent)
    assert found["temperature"] != 0


def test_a_token_that_a_law_excludes_is_infinite_evidence() -> None:
    """Directions that allow it go to infinity, and none is NaN."""
    scores = three(0, logp=np.array([-np.inf]), unfiltered=np.log([0.1]))

    ratios = log_ratios(scores, FAMILY)
    assert not np.isnan(ratios).any()
    assert (ratios == np.inf).any()


def test_scopes_and_families_share_all_weight() -> None:
    """Weights add up to one, and every direction belongs to a family."""
    assert sum(FAMILIES.values()) == pytest.approx(1)
    assert sum(scope.weight for scope in SCOPES) == pytest.approx(1)
    assert sum(scope.draft_weight for scope in SCOPES) == pytest.approx(1)
    assert sum(scope.other_weight for scope in SCOPES) == pytest.approx(1)
    assert {d.family for d in FAMILY} == set(FAMILIES)
    assert set(OF_DRAFTS) < set(FAMILIES)
    assert set(OF_OTHERS) < set(FAMILIES) - set(OF_DRAFTS)


@pytest.mark.parametrize(("vocabulary", "special"), [(1, 0), (5, 6), (5, -1)])
def test_family_refuses_impossible_numbers(vocabulary: int, special: int) -> None:
    """A vocabulary needs two tokens, and holds its special ones."""
    with pytest.raises(ValueError, match="expected at least 2 tokens"):
        directions(vocabulary, special)
