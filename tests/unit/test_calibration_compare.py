"""What a client saw against a send log: planted errors come back, nothing is dropped."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from draftgate.calibration.compare import ClientErrors, ErrorStats, compare
from draftgate.errors import MeasurementError
from draftgate.records import Failure, FailureKind
from tests.support.sent import Exchange


def _compare(*exchanges: Exchange) -> ClientErrors:
    return compare([e.record() for e in exchanges], [e.stream() for e in exchanges])


def _us(stats: ErrorStats | None) -> tuple[int, float, float, float, float, float]:
    """Return count, p50, p99, maximum, lowest and highest, microseconds."""
    assert stats is not None
    times = (stats.p50_s, stats.p99_s, stats.max_s, stats.lowest_s, stats.highest_s)
    return (stats.count, *(round(t * 1e6, 6) for t in times))


def test_what_is_seen_as_it_was_sent_has_no_error() -> None:
    """All errors are 0 and both sides say the same."""
    errors = _compare(Exchange("a"), Exchange("b", sent=1_000, arrived=1_000))

    assert (errors.requests, errors.chunks, errors.tokens, errors.wrong_tokens) == (2, 6, 6, 0)
    assert _us(errors.ttft) == (2, 0, 0, 0, 0, 0)
    assert _us(errors.arrival) == (6, 0, 0, 0, 0, 0)
    assert _us(errors.step_gap) == (4, 0, 0, 0, 0, 0)
    assert _us(errors.per_token) == (2, 0, 0, 0, 0, 0)
    assert errors.seen == errors.true
    assert errors.true.step_gap_p50_s == 0.01
    assert errors.true.tokens_per_step == 1.0


def test_late_chunks_are_late_by_what_was_planted() -> None:
    """Of 200 chunks late by 1, 2, ... 200 us the p50 is 100, the p99 198, the maximum 200."""
    steps = [10_000 * (i + 1) for i in range(200)]
    errors = _compare(Exchange(steps=steps, chunks=[t + i + 1 for i, t in enumerate(steps)]))

    assert _us(errors.arrival) == (200, 100, 198, 200, 1, 200)
    assert _us(errors.step_gap) == (199, 1, 1, 1, 1, 1)


def test_chunks_stamped_too_early_count_by_their_size() -> None:
    """An error of -30 us is larger than one of +20, and keeps its sign as the lowest."""
    errors = _compare(
        Exchange("a", steps=(50_000,), chunks=(49_970,)),
        Exchange("b", steps=(50_000,), chunks=(50_020,)),
    )

    assert _us(errors.arrival) == (2, 20, 30, 30, -30, 20)


def test_first_token_error_is_the_way_there_and_the_way_back() -> None:
    """A request read 70 us after it was sent, and a chunk seen 30 us late, are 100 us."""
    errors = _compare(Exchange(sent=0, arrived=70, chunks=(50_030, 60_000, 70_000)))

    assert _us(errors.ttft) == (1, 100, 100, 100, 100, 100)
    assert _us(errors.request_delay)[:2] == (1, 70)
    assert _us(errors.first_arrival)[:2] == (1, 30)
    assert errors.seen.ttft_p50_s == pytest.approx(0.050_03)
    assert errors.true.ttft_p50_s == pytest.approx(0.049_93)


def test_coalesced_chunks_err_by_the_gap_they_hide() -> None:
    """Two chunks in one read: one late by the gap, one gap too short and one too long by it."""
    errors = _compare(
        Exchange(steps=(0, 10_000, 20_000, 30_000), chunks=(0, 20_000, 20_000, 30_000))
    )

    assert _us(errors.arrival) == (4, 0, 10_000, 10_000, 0, 10_000)
    assert _us(errors.step_gap) == (3, 10_000, 10_000, 10_000, -10_000, 10_000)


def test_gaps_end_at_the_end_of_a_request() -> None:
    """From the last chunk of one request to the first of the next there is no gap."""
    errors = _compare(Exchange("a", steps=(1, 2)), Exchange("b", steps=(900, 902, 904)))

    assert errors.true.step_gap_p99_s == pytest.approx(2e-6)
    assert _us(errors.step_gap)[0] == 3


def test_per_token_time_divides_by_tokens() -> None:
    """A last chunk 60 us late over 2 + 4 tokens is an error of 10 us per token."""
    errors = _compare(Exchange(tokens=(1, 2, 4), chunks=(50_000, 60_000, 70_060)))

    assert _us(errors.per_token) == (1, 10, 10, 10, 10, 10)
    assert errors.seen.tokens_per_step == 3.0


def test_per_token_time_needs_one_token_after_the_first() -> None:
    """Two chunks of one token each are enough; the gap and the per-token time are the same."""
    errors = _compare(Exchange(steps=(0, 10_000), chunks=(0, 10_030)))

    assert _us(errors.per_token) == _us(errors.step_gap) == (1, 30, 30, 30, 30, 30)


def test_short_answers_have_no_gap() -> None:
    """Answers of one chunk and of none have an arrival or not, and neither gap nor rate."""
    errors = _compare(Exchange("a", steps=(5_000,)), Exchange("b", steps=()))

    assert (errors.requests, errors.chunks) == (2, 1)
    assert _us(errors.ttft)[0] == 1
    assert errors.step_gap is None
    assert errors.per_token is None
    assert errors.seen.step_gap_p50_s is None
    assert errors.seen.tokens_per_step is None


def test_answers_without_tokens_have_no_error_of_arrival() -> None:
    """Where nothing arrived and nothing was sent, only the way there is known."""
    errors = _compare(Exchange(steps=(), arrived=40))

    assert errors.arrival is None
    assert errors.ttft is None
    assert _us(errors.request_delay)[1] == 40


def test_records_and_streams_are_matched_by_prompt() -> None:
    """Their order says nothing; words after the id say nothing either."""
    early, late = Exchange("a"), Exchange("b", steps=(90_000, 99_000))
    log = [late.stream(), replace(early.stream(), prompt="a tell me more\nand more")]
    errors = compare([early.record(), late.record()], log)

    assert _us(errors.arrival) == (5, 0, 0, 0, 0, 0)


def test_wrong_token_counts_are_counted() -> None:
    """A chunk with another number of tokens than was sent is one wrong chunk."""
    seen = Exchange(tokens=(1, 2, 2)).record()
    errors = compare([seen], [Exchange(tokens=(1, 2, 3)).stream()])

    assert errors.wrong_tokens == 1
    assert errors.seen.tokens_per_step == 2.0
    assert errors.true.tokens_per_step == 2.5


def test_a_lost_chunk_is_an_error() -> None:
    """The message names the request, both numbers, and why the request failed."""
    whole, torn = Exchange("a"), Exchange("b", chunks=(50_000, 60_000))
    record = replace(torn.record(), failure=Failure(FailureKind.STALLED, "silence for 10 s"))

    with pytest.raises(MeasurementError, match=r"1 of 2 .*'b' has 2 of 3 .*stalled: silence"):
        compare([whole.record(), record], [whole.stream(), torn.stream()])


@pytest.mark.parametrize(
    ("records", "streams", "words"),
    [
        ("ab", "a", "1 requests have no answer in the send log: 'b'"),
        ("a", "abcde", "4 answers in the send log have no request: 'b', 'c', 'd', ..."),
        ("aa", "a", "2 requests with the id 'a', expected one"),
        ("a", "aa", "2 answers to a prompt that begins with 'a', expected one"),
        ("", "", "no request to compare"),
        ("a", "", "1 requests have no answer"),
    ],
)
def test_what_cannot_be_matched_is_an_error(records: str, streams: str, words: str) -> None:
    """No request and no answer is left out silently."""
    with pytest.raises(MeasurementError) as caught:
        compare([Exchange(n).record() for n in records], [Exchange(n).stream() for n in streams])

    assert words in str(caught.value)


def _slow_quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of `values` do not exceed."""
    return min(v for v in values if sum(w <= v for w in values) >= share * len(values) - 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_errors_agree_with_a_slow_version(seed: int) -> None:
    """Random requests: each statistic is that of a loop over requests and chunks."""
    draw = random.Random(seed)
    exchanges = []
    for number in range(draw.randint(1, 40)):
        steps = [draw.randint(1, 10**6) for _ in range(draw.randint(1, 12))]
        exchanges.append(
            Exchange(
                f"r{number}",
                sent=draw.randint(0, 100),
                arrived=draw.randint(0, 100),
                steps=sorted(steps),
                chunks=[t + draw.randint(-500, 500) for t in sorted(steps)],
            )
        )
    errors = _compare(*exchanges)

    gaps, arrivals, firsts = [], [], []
    for e in exchanges:
        late = [seen - true for seen, true in zip(e.chunks or (), e.steps, strict=True)]
        arrivals += [abs(v) for v in late]
        gaps += [abs(b - a) for a, b in pairwise(late)]
        firsts.append(abs(late[0] + e.arrived - e.sent))
    for values, stats in (
        (arrivals, errors.arrival),
        (gaps, errors.step_gap),
        (firsts, errors.ttft),
    ):
        wanted = (len(values), _slow_quantile(values, 0.5), _slow_quantile(values, 0.99))
        assert _us(stats)[:3] == wanted
        assert math.isclose(_us(stats)[3], max(values))
