"""The lines of `draftgate serve`, as text."""

from dataclasses import replace

import pytest

from draftgate.clock import ManualClock
from draftgate.records import EngineCounters, SpeculationCounters
from draftgate.serve.admission import Admission
from draftgate.serve.exchange import Exchange
from draftgate.serve.fallback.controller import Reason, Switch
from draftgate.serve.fallback.evidence import reading
from draftgate.serve.intervals import Interval, Spread, Tally, spread
from draftgate.serve.lines import (
    interval_lines,
    request_line,
    switch_line,
    usd_per_million_output,
)

COUNTED = EngineCounters(
    generation_tokens=8_000,
    prompt_tokens=100,
    queue_time_sum_s=0.0,
    queue_time_count=5,
    kv_use_max_ratio=None,
    speculation=SpeculationCounters(3_000, 9_000, 4_200, ()),
)
INTERVAL = Interval(
    seconds=10.0,
    mean_in_flight=7.64,
    in_flight=8,
    queued=2,
    whole=41,
    refused=3,
    failed=0,
    cut=1,
    waits_ms=Spread(0.0, 40.12),
    first_s=Spread(0.05, 0.1204),
    full_s=Spread(1.1, 2.3),
    counted=COUNTED,
)


def ended(**fields: object) -> Exchange:
    """Return a request that is over."""
    found = Exchange(17, "/v1/chat/completions", "10.0.0.7", 1_000_000_000)
    for name, value in fields.items():
        setattr(found, name, value)
    if found.status == 200:
        found.passed(b"data: planted-text\n\n", 1_118_000_000)
        found.passed(b'{"completion_tokens": 64}', 1_200_000_000)
    found.end(2_204_000_000)
    return found


def test_line_of_a_stream() -> None:
    """What it was, how long it waited and took, how much it was; no text."""
    assert request_line(ended(status=200, stream=True, waited_ns=3_240_000)) == (
        "[serve] request 17 /v1/chat/completions stream 200 in 1.204 s, queue_wait_ms 3.2, "
        "first token 0.118 s, 64 tokens, 2 chunks of 45 bytes, from 10.0.0.7"
    )


def test_line_of_a_refused_request() -> None:
    """Its status and reason; it had no wait and no answer."""
    assert request_line(ended(status=429, refused="queue_full")) == (
        "[serve] request 17 /v1/chat/completions 429 queue_full in 1.204 s, from 10.0.0.7"
    )


@pytest.mark.parametrize(("status", "shown"), [(None, "-"), (200, "200")])
def test_line_of_a_cut_request(status: int | None, shown: str) -> None:
    """Who cut it, with the status if an answer had begun."""
    line = request_line(ended(status=status, cut="client", waited_ns=0))

    assert f" {shown} cut by client in 1.204 s, queue_wait_ms 0.0" in line


FALL = Switch(
    "eagle3", "none", Reason.BELOW, "eagle3", reading(583.2, 0, 43.2, 1.51, 2.0), 2, 312.0
)
RETURN = Switch(
    "none", "eagle3", Reason.RETURN, "eagle3", reading(264.62, 0, 133.62, 1.51, 2.0), 3, 393.0
)
GONE = Switch("eagle3", "none", Reason.GONE, "eagle3", None, 0, 12.0)


def test_line_of_a_fall_and_of_a_return() -> None:
    """Which arm gave how much, against what, at which load, from how many windows."""
    assert switch_line("", FALL) == (
        "[fallback] eagle3 -> none: eagle3 gave 1.08 tokens per step, below the 1.51 from which it "
        "pays at 2.0 running; 2 windows, the last of 540 steps; eagle3 was in force for 312 s"
    )
    assert switch_line("chat", RETURN) == (
        "[fallback] none -> eagle3: probes of eagle3 gave 2.02 tokens per step, above the 1.51 "
        "from which it pays at 2.0 running; 3 windows, the last of 131 steps; none was in force "
        "for 393 s; class chat"
    )


def test_line_of_an_engine_that_is_gone() -> None:
    """And of one that is there again, without numbers that there are not."""
    back = replace(GONE, before="none", after="eagle3", reason=Reason.BACK)

    assert "eagle3 -> none: the engine of eagle3 is gone; eagle3" in switch_line("", GONE)
    assert "none -> eagle3: the engine of eagle3 is ready again; none" in switch_line("", back)


def test_line_of_a_probe() -> None:
    """The arm stands there where there are several, and the class where the client named one."""
    line = request_line(ended(status=200, waited_ns=0, arm="eagle3", probe=True, kind="chat"))

    assert line.endswith(", arm eagle3 (probe), class chat, from 10.0.0.7")


def test_lines_of_a_busy_interval() -> None:
    """Front, decoding, latency and cost: 8,000 tokens in 10 s at $2.88 an hour are $1 a million."""
    assert interval_lines(INTERVAL, 2.88) == (
        (
            "[serve] last 10 s: 41 whole, 3 refused, 0 failed, 1 cut; now 8 in flight, 2 queued; "
            "queue_wait_ms p50 0.0, p95 40.1"
        ),
        "[decode] bs 7.6, accepted tokens per step 1.40, acceptance rate 0.467, 800 tokens/s",
        "[latency] first token p50 0.050 s, p95 0.120 s; full response p50 1.100 s, p95 2.300 s",
        "[cost] $1.00 per 1M output tokens at 800 tokens/s and $2.88 an hour",
    )


def test_cost_by_hand() -> None:
    """$3.60 an hour is $0.001 a second; at 1,000 tokens/s that is $1 a million."""
    assert usd_per_million_output(3.60, 1_000.0) == pytest.approx(1.0)
    assert usd_per_million_output(3.60, 500.0) == pytest.approx(2.0)


def test_no_price_no_cost() -> None:
    """Without --usd-per-hour nothing is said of it."""
    assert not any("[cost]" in line for line in interval_lines(INTERVAL, None))


def test_interval_without_tokens_has_no_cost_per_token() -> None:
    """The machine is paid for all the same, and the line says so instead of dividing by 0."""
    idle = replace(
        INTERVAL,
        counted=replace(COUNTED, generation_tokens=0),
        waits_ms=None,
        first_s=None,
        full_s=None,
    )

    lines = interval_lines(idle, 2.0)
    assert len(lines) == 2
    assert lines[1] == "[cost] no output tokens in this interval, at $2.00 an hour"


@pytest.mark.parametrize(
    ("speculation", "said"),
    [
        (None, "[decode] bs 7.6, no speculation, 800 tokens/s"),
        (SpeculationCounters(0, 0, 0, ()), "[decode] bs 7.6, no verify step, 800 tokens/s"),
    ],
)
def test_acceptance_that_is_not_known_is_not_a_number(
    speculation: SpeculationCounters | None, said: str
) -> None:
    """No speculation and no verify step are said in words."""
    interval = replace(INTERVAL, counted=replace(COUNTED, speculation=speculation))

    assert interval_lines(interval, None)[1] == said


def test_engine_without_counters_leaves_decoding_out() -> None:
    """The front's own numbers stay."""
    heads = [line.split()[0] for line in interval_lines(replace(INTERVAL, counted=None), 2.0)]

    assert heads == ["[serve]", "[latency]"]


def test_tally_sums_up_and_begins_anew() -> None:
    """Whole, refused, failed and cut requests, the mean in flight, and then nothing."""
    clock = ManualClock()
    tally = Tally(Admission(1, 0, clock), clock)
    whole = ended(status=200, stream=True, waited_ns=2_000_000)
    tally.take(whole)
    tally.take(ended(status=429, refused="queue_full"))
    tally.take(ended(status=400, waited_ns=0))
    tally.take(ended(status=200, stream=True, waited_ns=0, cut="client"))
    clock.advance(10.0)

    first = tally.close(None)
    assert (first.whole, first.refused, first.failed, first.cut) == (1, 1, 1, 1)
    assert first.first_s == Spread(pytest.approx(0.118), pytest.approx(0.118))
    assert first.full_s == Spread(pytest.approx(1.204), pytest.approx(1.204))
    assert (first.seconds, first.mean_in_flight, first.tokens_per_s) == (10.0, 0.0, None)
    clock.advance(5.0)
    second = tally.close(COUNTED)
    assert (second.whole, second.waits_ms, second.full_s) == (0, None, None)
    assert second.tokens_per_s == 1_600.0


def test_spread_is_of_known_values() -> None:
    """Order statistics, nothing interpolated; None among them is left out."""
    assert spread([3.0, None, 1.0, 2.0]) == Spread(2.0, 3.0)
    assert spread([None]) is None
