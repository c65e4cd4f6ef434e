"""Bounds from the most likely tokens never make evidence larger than the whole law does.

Everything is enumerated: each token of a small vocabulary is drawn in turn, and its rows
by the bounds are held against those by the whole law.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from draftgate.errors import MeasurementError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.bounds import rest_sum
from draftgate.laws.entries import EntryScorer, refuse_unbounded
from draftgate.laws.orders import law, stated
from draftgate.laws.parameters import LawParameters
from draftgate.laws.partial import LogprobEntry, Setting
from draftgate.stats.directions import directions
from draftgate.stats.eprocess import log_ratios
from draftgate.stats.scores import POWERS, Scores, draft_columns, score_many

VOCABULARY = 12
# "repeat" looks at other rows, which here are other draws of the same token.
FAMILY = [d for d in directions(VOCABULARY, 2) if d.family != "repeat"]
SPECIAL = frozenset({0, 1})

seeds = st.integers(0, 2**32 - 1)
parameter_sets = st.builds(
    LawParameters,
    temperature=st.sampled_from([0.3, 0.8, 1.0, 1.0, 1.5, 3.0]),
    top_k=st.sampled_from([0, 0, 1, 3, 6, 20]),
    top_p=st.sampled_from([1.0, 1.0, 0.5, 0.9, 0.99]),
)


def raw_laws(seed: int, n: int = 2, *, ties: bool = False) -> np.ndarray:
    """Return log-probabilities of n random laws, from flat to peaked; shape (n, VOCABULARY)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, VOCABULARY)) * rng.uniform(0.1, 4)
    logits = np.round(logits) if ties else logits
    return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def entry(raw: np.ndarray, token: int, n: int) -> LogprobEntry:
    """Return what a server that lists the n most likely tokens reports."""
    order = np.argsort(-raw, kind="stable")[:n]
    return LogprobEntry(token, float(raw[token]), tuple((int(i), float(raw[i])) for i in order))


def answer(tokens: tuple[int, ...], parameters: LawParameters, number: int = 3) -> Answer:
    """Return an answer to a prompt of its own."""
    return Answer(
        request=number,
        prompt_id=str(number),
        prompt_token_ids=(number,),
        token_ids=tokens,
        chunks=(1,) * len(tokens),
        finish_reason="length",
        parameters=parameters,
    )


def bounded(raw: np.ndarray, parameters: LawParameters, n: int, draft: int) -> Scores:
    """Return the row of each token drawn from raw[1] after token 5, by the n likeliest ones."""
    scorer = EntryScorer(
        setting=Setting(vocabulary=VOCABULARY), special_ids=SPECIAL, drafter=lambda _: (draft,)
    )
    tokens = range(VOCABULARY)
    return scorer.score(
        [answer((5, token), parameters, token) for token in tokens],
        [[entry(raw[0], 5, n), entry(raw[1], token, n)] for token in tokens],
        1,
    )


def mean_ratios(scores: Scores, log_law: np.ndarray) -> np.ndarray:
    """Return the mean likelihood ratio of each direction under a law."""
    return np.asarray(np.exp(log_ratios(scores, FAMILY)) @ np.exp(log_law))


def whole(raw: np.ndarray, parameters: LawParameters, draft: int) -> tuple[np.ndarray, Scores]:
    """Return the stated law of the second token, and the exact rows of each draw from it."""
    laws = [law(row, parameters, (1, 2), (5,), "vllm") for row in raw]
    before, stated_law = (stated(given, "float32") for given in laws)
    tokens = np.arange(VOCABULARY)
    scores = score_many(
        np.tile(stated_law, (VOCABULARY, 1)),
        tokens,
        unfiltered=laws[1].unfiltered,
        before=before,
        recent=before,
        draft=np.full(VOCABULARY, draft),
        **draft_columns(
            np.tile(stated_law, (VOCABULARY, 1)),
            np.tile(np.where(tokens == draft, 0.0, -np.inf), (VOCABULARY, 1)),
            tokens,
        ),
        special=np.isin(tokens, list(SPECIAL)),
        request=tokens,
    )
    return stated_law, scores


@settings(max_examples=50, deadline=None)
@given(seed=seeds, parameters=parameter_sets, n=st.integers(1, 8), ties=st.booleans())
def test_no_direction_gains_by_the_bounds(
    seed: int, parameters: LawParameters, n: int, *, ties: bool
) -> None:
    """Under the stated law the mean ratio of every direction is at most one, by enumeration."""
    raw = raw_laws(seed, ties=ties)
    stated_law, _ = whole(raw, parameters, 3)

    assert mean_ratios(bounded(raw, parameters, n, 3), stated_law).max() <= 1 + 1e-9


@settings(max_examples=50, deadline=None)
@given(seed=seeds, parameters=parameter_sets, n=st.integers(1, 8), draft=st.integers(0, 11))
def test_known_columns_lie_on_the_safe_side(
    seed: int, parameters: LawParameters, n: int, draft: int
) -> None:
    """Each number given is no better for the evidence than the whole law's, token by token."""
    raw = raw_laws(seed)
    _, exact = whole(raw, parameters, draft)
    rows = bounded(raw, parameters, n, draft)

    assert (rows.logp >= exact.logp - 1e-9).all()
    assert (rows.top >= exact.top - 1e-9).all()
    assert (rows.before <= exact.before + 1e-9).all()
    assert (rows.recent <= exact.recent + 1e-9).all()
    assert not (rows.unfiltered > exact.unfiltered + 1e-9).any()
    assert not (rows.is_top & ~exact.is_top).any()
    assert (rows.rank >= exact.rank).all()
    # Lower powers of the law are coarse ones: only their mean is bounded.
    powers = np.array(POWERS)[3:] - 1
    ratio = powers * rows.logp[:, None] - rows.log_norm[:, 3:]
    assert not (ratio > powers * exact.logp[:, None] - exact.log_norm[:, 3:] + 1e-9).any()
    known = ~np.isnan(rows.draft_logp)
    for name in ("draft_logp", "overlap", "over", "far_over", "top_level"):
        assert_allclose(getattr(rows, name)[known], getattr(exact, name)[known], atol=1e-9)


def test_whole_vocabulary_gives_the_exact_rows() -> None:
    """When every token is listed the bounds meet and the rows are those of the whole law."""
    raw, parameters = raw_laws(4), LawParameters(temperature=0.7)
    _, exact = whole(raw, parameters, 3)
    rows = bounded(raw, parameters, VOCABULARY, 3)

    for name in ("logp", "top", "log_norm", "before", "is_top"):
        assert_allclose(getattr(rows, name), getattr(exact, name), atol=1e-9, err_msg=name)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.4])
def test_bounds_are_close_where_the_list_holds_most(temperature: float) -> None:
    """With all but 1e-6 of the probability listed the powers of the law are known to 1 %."""
    raw = np.array([[0.6, 0.3, 0.1 - 1e-6, *[1e-6 / 9] * 9]])
    raw = np.log(np.vstack([raw, raw]))
    parameters = LawParameters(temperature=temperature)
    _, exact = whole(raw, parameters, 3)
    rows = bounded(raw, parameters, 3, 3)

    assert_allclose(rows.log_norm[:3, 2:], exact.log_norm[:3, 2:], atol=0.01)


@pytest.mark.parametrize("power", [0.4, 0.99, 1.01, 2.5])
def test_rest_sum_holds_the_true_sum(power: float) -> None:
    """The sum of powers of tokens that are not listed lies between its bounds."""
    raw = raw_laws(8, 1)[0]
    order = np.sort(raw)[::-1]

    bounds = rest_sum(order[:4], order[3], VOCABULARY - 4, power)

    true = np.logaddexp.reduce(power * order[4:])
    assert bounds.low <= true <= bounds.high


def test_own_log_probabilities_alone_are_bounded_too() -> None:
    """Without any list of likely tokens the mean ratios are at most one at any temperature."""
    raw, parameters = raw_laws(5), LawParameters(temperature=0.8)
    stated_law, _ = whole(raw, parameters, 3)

    means = mean_ratios(bounded(raw, parameters, 0, 3), stated_law)

    assert means.max() <= 1 + 1e-9
    assert means.min() > 0


def test_a_law_that_is_not_bounded_would_fail_here() -> None:
    """The enumeration finds a wrong stated temperature, so it can fail."""
    raw = raw_laws(6)
    true_law, _ = whole(raw, LawParameters(temperature=1.3), 3)

    assert mean_ratios(bounded(raw, LawParameters(), 6, 3), true_law).max() > 1.001


@pytest.mark.parametrize(
    "parameters",
    [
        LawParameters(presence_penalty=0.5),
        LawParameters(min_p=0.1),
        LawParameters(logit_bias=((3, 1.0),)),
        LawParameters(temperature=0),
    ],
)
def test_parameters_that_need_the_whole_law_are_refused(parameters: LawParameters) -> None:
    """Penalties, bias, min-p and temperature 0 are refused and named."""
    with pytest.raises(SpecError, match="request 3: got"):
        refuse_unbounded([answer((5, 6), parameters)])


def test_entries_of_other_tokens_are_refused() -> None:
    """Log-probabilities that do not belong to the answer's tokens are an error."""
    raw = raw_laws(1)
    scorer = EntryScorer(setting=Setting(vocabulary=VOCABULARY))

    with pytest.raises(MeasurementError, match="expected"):
        scorer.score(
            [answer((5, 6), LawParameters())], [[entry(raw[0], 5, 3), entry(raw[1], 7, 3)]], None
        )


def test_filters_without_a_list_are_refused() -> None:
    """Top-p cannot be placed without the most likely tokens, and that is said."""
    raw = raw_laws(1)
    scorer = EntryScorer(setting=Setting(vocabulary=VOCABULARY))

    with pytest.raises(MeasurementError, match="most likely"):
        scorer.score(
            [answer((5, 6), LawParameters(top_p=0.9))],
            [[entry(raw[0], 5, 0), entry(raw[1], 6, 0)]],
            None,
        )
