"""Greedy output under teacher forcing: rounding passes, swapped tokens are found."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from draftgate.checks.regret import (
    ALPHA,
    Flip,
    Regrets,
    judge_greedy,
    most_flips,
    rate_bound,
    regrets,
    regrets_from_top,
)
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters

V = 50


def an_answer(token_ids: tuple[int, ...], request: int = 1) -> Answer:
    """Return a greedy answer."""
    return Answer(
        request=request,
        prompt_id="code-003",
        prompt_token_ids=(1, 2),
        token_ids=token_ids,
        chunks=(),
        finish_reason="length",
        parameters=LawParameters(temperature=0),
    )


def logits_of(n: int, seed: int) -> np.ndarray:
    """Return logits whose two best are apart as a language model's: often far, at times near."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, V))
    gaps = rng.exponential(3.0, size=n)
    order = np.argsort(rows, axis=1)
    rows[np.arange(n), order[:, -1]] = rows[np.arange(n), order[:, -2]] + gaps
    return rows


def flips(n: int, regret: float = 0.1) -> tuple[Flip, ...]:
    """Return n flips of one regret."""
    return tuple(
        Flip(
            request=1,
            prompt_id="p",
            index=i + 1,
            token=5,
            best=6,
            token_logit=1.0,
            best_logit=1.0 + regret,
        )
        for i in range(n)
    )


def served(logits: np.ndarray, noise: float, seed: int) -> tuple[int, ...]:
    """Return the greedy tokens of a server whose logits are rounded otherwise."""
    rng = np.random.default_rng(seed)
    return tuple((logits + rng.normal(scale=noise, size=logits.shape)).argmax(axis=1).tolist())


def swapped(logits: np.ndarray, tokens: tuple[int, ...], rows: list[int]) -> tuple[int, ...]:
    """Return the tokens with the second best in the given rows."""
    second = np.argsort(logits, axis=1)[:, -2]
    return tuple(int(second[i]) if i in rows else t for i, t in enumerate(tokens))


def test_greedy_tokens_have_no_regret() -> None:
    """The target's own argmax is no flip, and neither is the other of two equal logits."""
    logits = logits_of(30, 1)
    tokens = served(logits, 0.0, 1)
    tie = logits.copy()
    tie[4, 7] = tie[4].max()

    assert regrets(an_answer(tokens), logits) == Regrets(29)
    assert regrets(an_answer((*tokens[:4], 7, *tokens[5:])), tie) == Regrets(29)


def test_first_token_is_left_out() -> None:
    """The token that prefill gives was not speculated and is no evidence."""
    logits = logits_of(3, 2)
    tokens = swapped(logits, served(logits, 0.0, 1), [0])

    assert regrets(an_answer(tokens), logits) == Regrets(2)


def test_flip_has_both_candidates_and_their_logits() -> None:
    """A swapped token is reported with id, text and logit of both."""
    logits = np.zeros((3, V))
    logits[:, 6] = 2.0
    logits[1, 9] = 1.0

    (flip,) = regrets(an_answer((6, 9, 6)), logits).flips

    assert (flip.index, flip.token, flip.best, flip.regret) == (1, 9, 6, 1.0)
    assert flip.describe(lambda token: f"<{token}>") == (
        "request 1 (code-003), token 1: got 9 '<9>' (1.0000), the target prefers 6 '<6>' "
        "(2.0000); regret 1.0000"
    )


def test_log_probabilities_give_the_same_regrets_as_logits() -> None:
    """A row of log-probabilities is a row of logits less a constant."""
    logits = logits_of(40, 3)
    tokens = swapped(logits, served(logits, 0.0, 1), [5, 11])
    log_probs = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
    rows = [
        {int(t): float(row[t]) for t in {*np.argsort(row)[-2:].tolist(), token}}
        for row, token in zip(log_probs, tokens, strict=True)
    ]

    by_logits = regrets(an_answer(tokens), logits)
    by_top = regrets_from_top(an_answer(tokens), rows)

    assert [(f.index, f.token, f.best) for f in by_top.flips] == [
        (f.index, f.token, f.best) for f in by_logits.flips
    ]
    assert by_top.largest == pytest.approx(by_logits.largest)


def test_rows_that_do_not_fit_are_errors() -> None:
    """Missing rows, a missing candidate and NaN are refused, never read as no flip."""
    answer = an_answer((1, 2))
    with pytest.raises(ValueError, match="3 rows of the target for 2 tokens"):
        regrets(answer, np.zeros((3, V)))
    with pytest.raises(ValueError, match="hold NaN"):
        regrets(answer, np.full((2, V), np.nan))
    with pytest.raises(ValueError, match=r"no log-probability of token 2 at index 1; got .*\[3\]"):
        regrets_from_top(answer, [{1: 0.0}, {3: -0.1}])


def test_swap_with_a_gap_of_one_logit_is_found() -> None:
    """One token swapped for a second best that is 1 logit worse is a fault (planted)."""
    logits = logits_of(400, 4)
    tokens = served(logits, 0.0, 1)
    row = 200
    order = np.argsort(logits[row])
    logits[row, order[-1]] = logits[row, order[-2]] + 1.0
    same = Regrets(400, flips(6))

    result = judge_greedy(
        regrets(an_answer(swapped(logits, tokens, [row])), logits), same, "bfloat16"
    )

    assert not result.passed
    assert result.faults == ("1 of 399 tokens have a regret over 0.5 logits",)
    assert result.worst is not None
    assert result.worst.index == row
    assert f"first divergence: request 1 (code-003), token {row}" in result.describe()


def test_many_small_swaps_are_found_by_their_number() -> None:
    """5 % of tokens swapped for runners-up within .2 logits are a fault (planted)."""
    rng = np.random.default_rng(5)
    logits = logits_of(1200, 5)
    rows = rng.choice(np.arange(1, 1200), size=60, replace=False).tolist()
    for row in rows:
        order = np.argsort(logits[row])
        logits[row, order[-1]] = logits[row, order[-2]] + rng.uniform(0.01, 0.2)
    tokens = served(logits, 0.02, 6)
    same = regrets(an_answer(served(logits, 0.02, 7)), logits)

    honest = judge_greedy(regrets(an_answer(tokens), logits), same, "bfloat16")
    found = judge_greedy(
        regrets(an_answer(swapped(logits, tokens, rows)), logits), same, "bfloat16"
    )

    assert honest.passed
    assert found.found.largest < 0.5
    assert [reason.split(" tokens ")[1] for reason in found.faults] == [
        f"are flips, at most {found.most} are rounding's at level 0.0001"
    ]


def test_cap_is_the_exact_binomial_at_the_bounded_rate() -> None:
    """Both halves of the level are spent: on the A/A's rate and on the number of flips."""
    same = Regrets(1000, flips(14))
    upper = rate_bound(14, 1000, ALPHA / 2)

    assert stats.binom.cdf(14, 1000, upper) == pytest.approx(ALPHA / 2)
    most = most_flips(1000, same)
    assert stats.binom.sf(most, 1000, upper) <= ALPHA / 2 < stats.binom.sf(most - 1, 1000, upper)
    assert rate_bound(3, 3, 0.01) == 1.0
    with pytest.raises(ValueError, match="no tokens after the first"):
        most_flips(10, Regrets(0))


def test_false_alarms_stay_below_the_level() -> None:
    """Same-versus-same: of 20,000 pairs of one flip rate no more than alpha exceed the cap."""
    rng = np.random.default_rng(8)
    alpha, trials, n = 0.01, 20_000, 600
    pairs = rng.binomial(n, 0.014, size=(trials, 2))
    caps = {k: most_flips(n, Regrets(n, flips(k)), alpha) for k in set(pairs[:, 0].tolist())}

    alarms = sum(int(found) > caps[int(same)] for same, found in pairs)

    assert alarms <= stats.binom.isf(1e-6, trials, alpha)


def test_cap_finds_what_it_should() -> None:
    """Against 1.4 % of flips, 5 % more are found in 1,500 tokens nine times in ten."""
    rng = np.random.default_rng(9)
    n = 1500
    caught = [
        rng.binomial(n, 0.064) > most_flips(n, Regrets(n, flips(int(same))))
        for same in rng.binomial(n, 0.014, size=300)
    ]

    assert np.mean(caught) > 0.9


def test_float32_lets_through_ties_alone() -> None:
    """In float32 a regret of .02 is a fault, one of .005 a tie."""
    same = Regrets(300)

    assert judge_greedy(Regrets(300, flips(1, 0.005)), same, "float32").passed
    assert not judge_greedy(Regrets(300, flips(1, 0.02)), same, "float32").passed


def test_reference_that_does_not_fit_is_a_doubt_not_a_pass() -> None:
    """If the server without speculation has large regrets too, nothing is concluded."""
    result = judge_greedy(Regrets(300), Regrets(300, flips(1, 3.0)), "bfloat16")

    assert not result.passed
    assert result.faults == ()
    assert "the reference is not this target" in result.doubts[0]


def test_without_an_aa_the_number_is_not_judged_and_said_to_be_so() -> None:
    """The limit of regret holds still; the text says what was left out."""
    result = judge_greedy(Regrets(100, flips(40)), None, "bfloat16")

    assert result.passed
    assert "no A/A ran, so their number is not judged" in result.describe()
    assert not judge_greedy(Regrets(100, flips(1, 0.6)), None, "bfloat16").passed


def test_nothing_to_judge_is_an_error() -> None:
    """No tokens, or a dtype without a limit, never pass."""
    with pytest.raises(ValueError, match="no greedy tokens"):
        judge_greedy(Regrets(0), None, "float32")
    with pytest.raises(ValueError, match="'fp8', expected one of float32"):
        judge_greedy(Regrets(1), None, "fp8")


def test_first_divergence_is_the_earliest_request_and_token() -> None:
    """Results of several requests are added up in any order."""
    early, late = replace(flips(1)[0], request=1, index=9), replace(flips(1)[0], request=2, index=1)

    result = judge_greedy(Regrets(50, (late,)) + Regrets(50, (early,)), None, "bfloat16")

    assert (result.found.tokens, result.first) == (100, early)
