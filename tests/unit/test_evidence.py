"""The e-value against sampled tokens: oracle, negative control, planted faults, error rate."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from draftgate.checks.sampling import ScoredToken, check_sampled
from draftgate.stats.evidence import SHARES, log_evidence

VOCABULARY = 200
LIMIT = math.log(1e4)


def laws(rng: np.random.Generator, tokens: int) -> NDArray[np.floating[Any]]:
    """Return one peaked law a token, like a language model's; shape (tokens, vocabulary)."""
    logits = rng.normal(0, 2.5, (tokens, VOCABULARY))
    powers = np.exp(logits)
    law: NDArray[np.floating[Any]] = powers / powers.sum(axis=1, keepdims=True)
    return law


def draw(rng: np.random.Generator, law: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    """Draw one token from each row."""
    return (law.cumsum(axis=1) > rng.random((len(law), 1))).argmax(axis=1)


def evidence(law: NDArray[np.floating[Any]], tokens: Any) -> NDArray[np.floating[Any]]:
    """Return the path of log e-values of tokens against the laws."""
    picked = np.log(law[np.arange(len(law)), tokens])
    return log_evidence(picked, np.log(law.max(axis=1)), law.argmax(axis=1) == tokens, VOCABULARY)


def test_path_equals_the_product_written_out() -> None:
    """Every point of the path equals the average of products computed term by term."""
    rng = np.random.default_rng(1)
    law = laws(rng, 12)
    tokens = draw(rng, law)

    path = evidence(law, tokens)

    products = [1.0] * (2 * len(SHARES))
    for t, token in enumerate(tokens):
        p, top = law[t, token], law[t].argmax()
        for i, share in enumerate(SHARES):
            products[i] *= (1 - share) + share / VOCABULARY / p
            hit = share / p if token == top else 0.0
            products[len(SHARES) + i] *= (1 - share) + hit
        assert path[t] == pytest.approx(math.log(sum(products) / len(products)))


def test_expectation_of_each_ratio_is_one() -> None:
    """Under the law the e-value after one token has mean one, summed over all tokens."""
    law = laws(np.random.default_rng(2), 1)

    values = [math.exp(evidence(law, np.array([token]))[0]) for token in range(VOCABULARY)]

    assert float(np.dot(law[0], values)) == pytest.approx(1.0)


def test_tokens_from_the_law_raise_no_alarm() -> None:
    """Of 2,000 honest streams of 200 tokens, none ever reaches 1e4 (bound: 1e-4 a stream)."""
    rng = np.random.default_rng(3)
    highest = -math.inf
    for _ in range(2000):
        law = laws(rng, 200)
        highest = max(highest, float(evidence(law, draw(rng, law)).max()))

    assert highest < LIMIT


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_garbage_is_found(share: float) -> None:
    """Tokens drawn uniformly in a share of places are found in 50 of 50 streams of 300 tokens."""
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(50):
        law = laws(rng, 300)
        garbage = rng.integers(0, VOCABULARY, 300)
        tokens = np.where(rng.random(300) < share, garbage, draw(rng, law))
        found += evidence(law, tokens).max() >= LIMIT

    assert found == 50


def test_greedy_instead_of_sampled_is_found() -> None:
    """Text that is always the most likely token is found within 100 tokens."""
    law = laws(np.random.default_rng(5), 100)

    assert evidence(law, law.argmax(axis=1)).max() >= LIMIT


def test_larger_vocabulary_only_weakens() -> None:
    """A vocabulary stated too large never adds evidence of garbage."""
    rng = np.random.default_rng(6)
    law = laws(rng, 50)
    tokens = rng.integers(0, VOCABULARY, 50)
    picked, top = np.log(law[np.arange(50), tokens]), np.log(law.max(axis=1))
    hit = law.argmax(axis=1) == tokens

    exact = log_evidence(picked, top, hit, VOCABULARY)

    assert (log_evidence(picked, top, hit, 10 * VOCABULARY) <= exact + 1e-9).all()


@pytest.mark.parametrize(
    ("token", "leading", "hit", "vocabulary", "said"),
    [
        ([-1.0], [-1.0, -1.0], [True], 10, "shapes differ"),
        ([math.nan], [-1.0], [False], 10, "numbers of at most 0"),
        ([-1.0], [0.5], [False], 10, "numbers of at most 0"),
        ([-0.5], [-1.0], [False], 10, "more likely than the most likely"),
        ([-1.0], [-1.0], [True], 0, "vocabulary must be"),
    ],
)
def test_senseless_input_is_refused(
    token: list[float], leading: list[float], hit: list[bool], vocabulary: int, said: str
) -> None:
    """Shapes, signs and order are checked; nothing turns into a green result."""
    with pytest.raises(ValueError, match=said):
        log_evidence(np.array(token), np.array(leading), np.array(hit), vocabulary)


def test_check_names_the_token_of_the_alarm() -> None:
    """An alarm says at which token it came; no tokens at all is an error."""
    garbage = [ScoredToken(-20.0, -0.1, is_leading=False)] * 5

    result = check_sampled([garbage], vocabulary=1000)

    assert (result.passed, result.alarm_at, result.tokens) == (False, 1, 5)
    assert "ALARM after 1 of 5 tokens" in str(result)
    with pytest.raises(ValueError, match="no sampled tokens"):
        check_sampled([])
