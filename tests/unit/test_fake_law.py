"""The scripted server's known model: its laws, its rule of acceptance, its planted faults."""

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from draftgate.engines.fake_law import FAULTS, Model, Sampling, Step, law, log_law, token_of
from draftgate.engines.fake_reader import prompt_logprobs

V = 20
PROMPT = (3, 7)
DRAWS = 4_000


def second_tokens(model: Model, sampling: Sampling) -> Counter[int]:
    """Count the second tokens of many answers whose first token is 5."""
    rng = random.Random(11)
    return Counter(model._step((*PROMPT, 5), sampling, rng).tokens[0] for _ in range(DRAWS))


def g_statistic(counts: Counter[int], expected: tuple[float, ...]) -> float:
    """Return twice the sum of n log(n / expected); chi-square with at most V - 1 degrees."""
    return 2 * sum(n * math.log(n / (DRAWS * expected[t])) for t, n in counts.items())


LIMIT = 55.0
"""Chi-square with 19 degrees of freedom exceeds it once in 40,000."""


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=0.8, top_p=0.9), Sampling(temperature=1.5, top_k=6)],
)
def test_rule_leaves_the_law_alone(sampling: Sampling) -> None:
    """With drafts and without, the next token has the stated law."""
    expected = law((*PROMPT, 5), V, sampling)

    for k in (0, 3):
        counts = second_tokens(Model(vocab_size=V, k=k), sampling)
        assert set(counts) <= {token for token, p in enumerate(expected) if p > 0}
        assert g_statistic(counts, expected) < LIMIT


@pytest.mark.parametrize(
    "fault", [name for name in FAULTS if name not in {"early_end", "shared_seed"}]
)
def test_fault_changes_the_law(fault: str) -> None:
    """Each fault of the tokens' law moves their frequencies far from it."""
    counts = second_tokens(Model(vocab_size=V, k=3, fault=fault), Sampling())

    assert g_statistic(counts, law((*PROMPT, 5), V, Sampling())) > 2 * LIMIT


def test_early_end_breaks_the_rule_alone() -> None:
    """Tokens keep their law though steps end after an accepted draft."""
    model = Model(vocab_size=V, k=3, fault="early_end", fault_share=0.5)
    expected = law((*PROMPT, 5), V, Sampling())

    assert g_statistic(second_tokens(model, Sampling()), expected) < LIMIT
    steps = model.steps(PROMPT, 400, Sampling(), random.Random(1))
    assert any(0 < step.accepted == len(step.tokens) < 3 for step in steps)


def test_steps_hold_the_output_and_its_first_token_alone() -> None:
    """Chunks add up to the length asked for and none holds more than k + 1 tokens."""
    steps = Model(vocab_size=V, k=3).steps(PROMPT, 50, Sampling(), random.Random(2))

    assert len(steps[0].tokens) == 1
    assert sum(len(step.tokens) for step in steps) == 50
    assert max(len(step.tokens) for step in steps) == 4
    assert isinstance(steps[0], Step)


def test_filters_keep_the_likeliest() -> None:
    """Top-k keeps k tokens, top-p the fewest that reach its mass; greedy keeps one."""
    whole = sorted(law(PROMPT, V, Sampling()), reverse=True)

    def kept(**filters: float) -> list[float]:
        return [p for p in law(PROMPT, V, Sampling(**filters)) if p > 0]  # type: ignore[arg-type] # top_k is an int

    assert len(kept(top_k=4)) == 4
    assert sum(whole[: len(kept(top_p=0.7))]) >= 0.7 > sum(whole[: len(kept(top_p=0.7)) - 1])
    assert kept(temperature=0) == [1.0]


def test_teacher_forcing_gives_the_law_at_each_place() -> None:
    """Each token's entry holds its log-probability given the ones before, and the likeliest."""
    ids = (3, 7, 5, 0)
    rows = prompt_logprobs(ids, 2, V)

    assert rows[0] is None
    for index in range(1, 4):
        row, expected = rows[index], log_law(ids[:index], V)
        assert row is not None
        assert row[str(ids[index])]["logprob"] == expected[ids[index]]
        assert {1, 2} <= {entry["rank"] for entry in row.values()}
        assert len(row) in {2, 3}


@pytest.mark.parametrize(
    ("word", "fits"), [("w7", lambda t: t == 7), ("w99", lambda t: t < V), ("hi", lambda t: t < V)]
)
def test_words_have_tokens(word: str, fits: Callable[[int], bool]) -> None:
    """The text of a token is that token; any other word is some token, always the same."""
    assert fits(token_of(word, V))
    assert token_of(word, V) == token_of(word, V)
