"""Arrival processes: exact, reproducible, and of the law that they claim."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from draftgate.errors import SpecError
from draftgate.load.arrival_text import KINDS, parse_arrivals
from draftgate.load.arrivals import (
    Arrivals,
    ClosedLoop,
    Constant,
    Gamma,
    Poisson,
    Ramp,
    Replay,
    Steps,
    ThinkTime,
    shared,
)
from draftgate.load.trace import Trace, read_trace

PROCESSES: dict[str, Arrivals] = {
    "constant": Constant(300.0),
    "poisson": Poisson(200.0),
    "gamma": Gamma(200.0, 0.25),
    "smooth gamma": Gamma(200.0, 9.0),
    "replay": Replay(tuple(i * 0.001 for i in range(9000)), 2.0),
    "ramp": Ramp(0.0, 500.0, 3.0, poisson=True),
    "even ramp": Ramp(500.0, 20.0, 3.0, poisson=False),
    "ramp to rest": Ramp(5000.0, 0.0, 3.0, poisson=True),
    "steps": Steps(((1000.0, 4.0), (0.0, 2.0), (3000.0, 1.0)), poisson=True),
    "even steps": Steps(((1000.0, 4.0), (0.0, 2.0), (3000.0, 1.0)), poisson=False),
}


def first(process: Arrivals, count: int, seed: int = 1) -> list[int]:
    """Return the first `count` times of a process."""
    return list(itertools.islice(process.offsets_ns(seed), count))


def gaps_s(process: Arrivals, count: int, seed: int = 1) -> NDArray[np.float64]:
    """Return the first gaps of a process, from the start of the run, in seconds."""
    return np.diff([0, *first(process, count, seed)]) / 1e9


@pytest.mark.parametrize("name", PROCESSES)
def test_times_do_not_depend_on_the_block(name: str) -> None:
    """Drawn one by one, by seven or by thousands, the times are the same integers."""
    process = PROCESSES[name]
    drawn = [
        list(itertools.islice(process.offsets_ns(3, block=block), 5000)) for block in (1, 7, 4096)
    ]

    assert drawn[0] == drawn[1] == drawn[2] == first(process, 5000, seed=3)
    assert len(drawn[0]) == 5000


@pytest.mark.parametrize("name", PROCESSES)
def test_times_start_at_the_run_and_never_fall(name: str) -> None:
    """Times are whole nanoseconds from 0 on, in order."""
    times = first(PROCESSES[name], 5000)

    assert all(type(t_ns) is int for t_ns in times)
    assert times[0] >= 0
    assert times == sorted(times)


@pytest.mark.parametrize("name", ["poisson", "gamma", "ramp", "steps"])
def test_seed_decides_the_times(name: str) -> None:
    """Equal seeds give equal times, other seeds others; negative ones do as well."""
    process = PROCESSES[name]

    assert first(process, 50, seed=4) == first(process, 50, seed=4)
    assert len({tuple(first(process, 50, seed=seed)) for seed in (-1, 0, 1, 2**63)}) == 4


def test_times_are_pinned() -> None:
    """Seed 1 gives the times it gave when released; a numpy that draws otherwise is noticed."""
    assert first(Poisson(200.0), 4) == [2834513, 6165950, 15224212, 17394807]
    assert first(Gamma(200.0, 0.25), 4) == [242613, 1570705, 1571398, 38837908]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("name", PROCESSES)
def test_workers_together_send_the_single_sequence(name: str, workers: int) -> None:
    """Merged in turn, the workers' shares are the one sequence, without loss or repeat."""
    process = PROCESSES[name]
    shares = [
        list(itertools.islice(shared(process.offsets_ns(2), index, workers), 100))
        for index in range(workers)
    ]

    merged = [t_ns for turn in zip(*shares, strict=True) for t_ns in turn]
    assert merged == first(process, 100 * workers, seed=2)


@pytest.mark.parametrize(("index", "of"), [(-1, 2), (2, 2), (0, 0)])
def test_share_outside_the_workers_is_refused(index: int, of: int) -> None:
    """A worker that does not exist has no share."""
    with pytest.raises(ValueError, match="0 <= index < of"):
        shared(iter([1]), index, of)


def test_constant_does_not_drift() -> None:
    """The millionth arrival at 300/s is where a fraction puts it, to the nanosecond."""
    times = itertools.islice(Constant(300.0).offsets_ns(0), 0, 1_000_001, 999_999)

    assert list(times) == [0, round(999_999 * 10**9 / 300)]


def test_poisson_is_the_literal_sum_of_single_draws() -> None:
    """Added up gap by gap from scalar draws, the times come out the same."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((1, 1, 0))))
    reached, literal = 0.0, []
    for _ in range(5000):
        reached += rng.standard_exponential()
        literal.append(round(reached / 200.0 * 1e9))

    assert first(Poisson(200.0), 5000) == literal


@pytest.mark.parametrize(("process", "shape"), [(Poisson(50.0), 1.0), (Gamma(50.0, 0.25), 0.25)])
def test_gaps_follow_their_law(process: Arrivals, shape: float) -> None:
    """Of 400 seeds, 500 gaps each, KS against the law has p < 0.01 in at most 11.

    Expected are 4; 11 or fewer has probability 0.999 where the law is right.
    """
    law = stats.gamma(shape, scale=1.0 / (50.0 * shape))
    alarms = sum(
        stats.kstest(gaps_s(process, 500, seed), law.cdf).pvalue < 0.01 for seed in range(400)
    )

    assert alarms <= 11


def test_law_of_another_shape_is_noticed() -> None:
    """The same KS test finds gaps of shape 0.5 not exponential in over 90 % of 100 seeds."""
    law = stats.expon(scale=1.0 / 50.0)
    alarms = sum(
        stats.kstest(gaps_s(Gamma(50.0, 0.5), 500, seed), law.cdf).pvalue < 0.01
        for seed in range(100)
    )

    assert alarms > 90


@pytest.mark.parametrize("shape", [0.1, 0.25, 1.0, 4.0])
def test_gamma_varies_as_stated(shape: float) -> None:
    """Mean gap and coefficient of variation, 1 / sqrt(shape), hold over 200,000 gaps to 3 %."""
    gaps = gaps_s(Gamma(100.0, shape), 200_000)

    assert gaps.mean() == pytest.approx(0.01, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0 / math.sqrt(shape), rel=0.03)


def literal_inverse(rate: Callable[[float], float], expected: float, *, until_s: float) -> float:
    """Return when the integral of `rate` reaches `expected`, by small steps."""
    step_s, reached, t_s = 1e-5, 0.0, 0.0
    while reached < expected and t_s < until_s:
        reached += rate(t_s + step_s / 2) * step_s
        t_s += step_s
    return t_s


@pytest.mark.parametrize(
    ("start", "end"), [(0.0, 20.0), (20.0, 2.0), (10.0, 10.0), (10.0, 10.000001), (4.0, 40.0)]
)
@pytest.mark.parametrize("number", [1, 7, 19, 30])
def test_even_ramp_inverts_the_integral(start: float, end: float, number: int) -> None:
    """The k-th arrival is where the rate, added up in small steps, reaches k; after the ramp too.

    Checked to 0.1 ms, ten of the literal version's steps.
    """
    process = Ramp(start, end, 2.0, poisson=False)

    def rate(t_s: float) -> float:
        return start + (end - start) * min(t_s / 2.0, 1.0)

    found_s = first(process, number + 1)[number] / 1e9
    assert found_s == pytest.approx(literal_inverse(rate, number, until_s=20.0), abs=1e-4)


def test_even_ramp_down_to_rest_ends() -> None:
    """A ramp from 10/s to 0 over 4 s holds 20 arrivals, the last before its end."""
    times = list(Ramp(10.0, 0.0, 4.0, poisson=False).offsets_ns(1))

    assert len(times) == 20
    assert times[0] == 0
    assert times[-1] < 4_000_000_000


@pytest.mark.parametrize(
    ("process", "means"),
    [
        (Ramp(10.0, 90.0, 4.0, poisson=True), (20, 40, 60, 80, 90)),
        (Steps(((30.0, 2.0), (0.0, 1.0), (80.0, 1.0)), poisson=True), (30, 30, 0, 80)),
    ],
)
def test_changing_rate_gives_poisson_counts(process: Arrivals, means: tuple[int, ...]) -> None:
    """Over 2,000 seeds the count in each second has the mean and variance of a Poisson number.

    Bounds are four standard errors.
    """
    edges_ns = np.arange(len(means) + 1) * 1e9
    counts = np.array(
        [np.histogram(first(process, 600, seed), bins=edges_ns)[0] for seed in range(2000)]
    )

    for mean, found in zip(means, counts.T, strict=True):
        assert abs(found.mean() - mean) <= 4 * math.sqrt(mean / 2000)
        assert abs(found.var(ddof=1) - mean) <= 4 * math.sqrt((mean + 2 * mean**2) / 2000)


def test_even_steps_are_spaced_within_each() -> None:
    """Two a second, a pause, four a second: spelt out."""
    process = Steps(((2.0, 2.0), (0.0, 3.0), (4.0, 1.0)), poisson=False)

    assert [t_ns / 1e9 for t_ns in process.offsets_ns(1)] == [
        0.0, 0.5, 1.0, 1.5, 5.0, 5.25, 5.5, 5.75,
    ]  # fmt: skip


@settings(deadline=None, max_examples=100)  # a busy machine is no failure
@given(tenths=st.integers(1, 500), seconds=st.integers(1, 30))
@example(tenths=22, seconds=25)  # 2.2 * 25 is 55.00000000000001 in floating point
def test_even_step_holds_rate_times_length(tenths: int, seconds: int) -> None:
    """r/s for n s are ceil(r n) arrivals, whatever binary fractions make of r."""
    process = Steps(((tenths / 10, float(seconds)), (0.0, 1.0), (1.0, 1.0)), poisson=False)
    times = list(process.offsets_ns(1))

    inside = [t_ns for t_ns in times if t_ns < seconds * 10**9]
    assert len(inside) == -(-tenths * seconds // 10)
    assert all(t_ns >= (seconds + 1) * 10**9 for t_ns in times[len(inside) :])


def test_replay_keeps_and_stretches_the_times() -> None:
    """Times are the trace's, multiplied by the scale; then it ends."""
    assert list(Replay((0.0, 0.25, 0.25, 3.0), 2.0).offsets_ns(1)) == [
        0, 500_000_000, 500_000_000, 6_000_000_000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "args", "said"),
    [
        (Constant, (0.0,), "rate_per_s must be a finite number above 0, got 0.0"),
        (Poisson, (-1.0,), "rate_per_s must be"),
        (Poisson, (math.nan,), "rate_per_s must be"),
        (Poisson, (math.inf,), "rate_per_s must be"),
        (
            Gamma,
            (
                1.0,
                0.0,
            ),
            "shape must be",
        ),
        (
            Gamma,
            (
                math.nan,
                1.0,
            ),
            "rate_per_s must be",
        ),
        (Replay, ((),), "got no arrivals"),
        (Replay, ((0.0, math.nan),), "must be finite"),
        (Replay, ((1.0, 0.5),), "never fall"),
        (Replay, ((-1.0, 0.5),), "never fall"),
        (
            Replay,
            (
                (0.0,),
                0.0,
            ),
            "scale must be",
        ),
        (
            Ramp,
            (
                -1.0,
                1.0,
                1.0,
                True,
            ),
            "from_per_s must be",
        ),
        (
            Ramp,
            (
                1.0,
                math.nan,
                1.0,
                True,
            ),
            "to_per_s must be",
        ),
        (
            Ramp,
            (
                1.0,
                1.0,
                0.0,
                True,
            ),
            "over_s must be",
        ),
        (
            Ramp,
            (
                0.0,
                0.0,
                1.0,
                True,
            ),
            "both rates are 0",
        ),
        (
            Steps,
            (
                (),
                True,
            ),
            "no step with a rate above 0",
        ),
        (
            Steps,
            (
                ((0.0, 1.0),),
                True,
            ),
            "no step with a rate above 0",
        ),
        (
            Steps,
            (
                ((-1.0, 1.0),),
                True,
            ),
            "rate of a step",
        ),
        (
            Steps,
            (
                ((1.0, 0.0),),
                True,
            ),
            "seconds of a step",
        ),
        (ThinkTime, (-0.1,), "think time"),
        (ClosedLoop, (0,), "concurrency must be >= 1"),
        (
            ClosedLoop,
            (
                1,
                math.inf,
            ),
            "stagger_s must be",
        ),
    ],
)
def test_senseless_process_is_refused(
    kind: Callable[..., object], args: tuple[object, ...], said: str
) -> None:
    """A number out of range is the user's error, and named."""
    with pytest.raises(SpecError, match=said):
        kind(*args)


@pytest.mark.parametrize(
    ("text", "rate", "expected", "described"),
    [
        ("constant", 5.0, Constant(5.0), "constant arrivals at 5/s"),
        ("poisson", 200.0, Poisson(200.0), "Poisson arrivals at 200/s"),
        (
            "gamma:shape=0.25", 10.0, Gamma(10.0, 0.25),
            "gamma arrivals at 10/s, shape 0.25 (gaps vary by 2 times their mean)",
        ),
        (
            "ramp:to=100,over=30", 0.0, Ramp(0.0, 100.0, 30.0, poisson=True),
            "Poisson arrivals from 0/s to 100/s over 30 s",
        ),
        (
            "ramp:over=30,spacing=even,to=100", 5.0, Ramp(5.0, 100.0, 30.0, poisson=False),
            "evenly spaced arrivals from 5/s to 100/s over 30 s",
        ),
        (
            "steps:10x30,0.5x60,spacing=even", None,
            Steps(((10.0, 30.0), (0.5, 60.0)), poisson=False),
            "evenly spaced arrivals at 10/s for 30 s, 0.5/s for 60 s",
        ),
    ],
)  # fmt: skip
def test_text_becomes_a_process(
    text: str, rate: float | None, expected: Arrivals, described: str
) -> None:
    """Every kind can be asked for in text, and says what it does."""
    found = parse_arrivals(text, rate)

    assert found == expected
    assert found.describe() == described


def test_trace_becomes_a_replay() -> None:
    """A trace is replayed at its own pace, or at another."""
    assert parse_arrivals("replay", None, (0.0, 2.0)) == Replay((0.0, 2.0), 1.0)
    assert parse_arrivals("replay:scale=0.5", None, (0.0, 2.0)).describe() == (
        "replay of 2 arrivals over 1 s (recorded times x 0.5)"
    )


@pytest.mark.parametrize(
    ("text", "rate", "trace", "said"),
    [
        ("uniform", 1.0, None, f"unknown arrivals 'uniform'. Known: {', '.join(KINDS)}"),
        ("poisson", None, None, "arrivals 'poisson': got no rate"),
        ("poisson", math.nan, None, "finite number above 0, got nan"),
        ("poisson", -3.0, None, "finite number above 0, got -3"),
        ("poisson:shape=2", 1.0, None, "unknown setting 'shape'. Known: none"),
        ("gamma", 1.0, None, "got no shape, expected a number. Write gamma:shape=NUMBER"),
        ("gamma:shape=wide", 1.0, None, "shape must be a number, got 'wide'"),
        ("gamma:shape=1,shape=2", 1.0, None, "given twice"),
        ("gamma:shape=1,extra", 1.0, None, "unknown setting 'extra'. Known: shape"),
        ("ramp:to=5", 1.0, None, "got no over"),
        ("ramp:to=5,over=1,spacing=odd", 1.0, None, "spacing must be 'poisson' or 'even'"),
        ("steps:5x1", 1.0, None, "got rate 1, but has rates of its own"),
        ("steps:5", None, None, "expected steps as RATExSECONDS"),
        ("steps:5xlong", None, None, "seconds must be a number, got 'long'"),
        ("steps", None, None, "no step with a rate above 0"),
        ("replay", None, None, "arrivals 'replay': got no trace file"),
        ("replay", 2.0, (0.0,), "got rate 2, but has rates of its own"),
        ("poisson", 2.0, (0.0,), "arrivals 'poisson': got a trace file"),
    ],
)
def test_wrong_text_is_named(
    text: str, rate: float | None, trace: tuple[float, ...] | None, said: str
) -> None:
    """What the user got wrong is said, with what would be right."""
    with pytest.raises(SpecError) as caught:
        parse_arrivals(text, rate, trace)

    assert said in str(caught.value)


def test_streams_start_evenly_over_the_stagger() -> None:
    """Four streams over one second start a quarter apart; without stagger at once."""
    assert ClosedLoop(4, 1.0).start_offsets_ns() == (0, 250_000_000, 500_000_000, 750_000_000)
    assert ClosedLoop(3).start_offsets_ns() == (0, 0, 0)


def test_closed_loop_describes_itself() -> None:
    """The line for reports names what is set and nothing else."""
    assert ClosedLoop(8).describe() == "closed loop of 8 streams"
    assert ClosedLoop(8, 2.0, ThinkTime(0.5, exponential=True)).describe() == (
        "closed loop of 8 streams, started over 2 s, think time 0.5 s (exponential)"
    )


def test_constant_think_time_is_constant() -> None:
    """All pauses alike, whatever stream and seed."""
    assert list(itertools.islice(ThinkTime(0.25).think_times_s(3, 1), 3)) == [0.25] * 3


def test_exponential_think_time_has_its_law_and_streams_differ() -> None:
    """Of 200 streams, 500 pauses each, KS has p < 0.01 in at most 8 (expected 2, p 0.9998)."""
    law = stats.expon(scale=0.25)
    think = ThinkTime(0.25, exponential=True)
    drawn = [list(itertools.islice(think.think_times_s(i, 1), 500)) for i in range(200)]

    assert sum(stats.kstest(times, law.cdf).pvalue < 0.01 for times in drawn) <= 8
    assert len({times[0] for times in drawn}) == 200
    assert drawn[7] == list(itertools.islice(think.think_times_s(7, 1), 500))


AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951697,396,109
2023-11-16 18:16:46,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01.009931+00:00,2399,6
"""
MOONCAKE = """{"timestamp": 1000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}

{"timestamp": 4052, "input_length": 7322, "output_length": 490, "hash_ids": [0, 14]}
"""
ISO_LINES = """{"timestamp": "2024-01-01T00:00:00Z"}
{"timestamp": "2024-01-01T01:00:01+01:00"}
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
45,ChatGPT,1087,230,1317,Conversation log
5,ChatGPT,472,18,490,Conversation log
"""


@pytest.mark.parametrize(
    ("name", "text", "unit", "expected"),
    [
        ("a.csv", AZURE_2023, None,
         Trace((0.0, 4.3145797, 59.31941), (374, 396, 879), (44, 109, 55))),
        ("a.csv", AZURE_2024, None, Trace((0.0, 1.000001), (2162, 2399), (5, 6))),
        ("m.jsonl", MOONCAKE, None, Trace((0.0, 3.052), (6758, 7322), (500, 490))),
        ("m.jsonl", MOONCAKE, "s", Trace((0.0, 3052.0), (6758, 7322), (500, 490))),
        ("b.csv", BURSTGPT, None, Trace((0.0, 40.0), (472, 1087), (18, 230))),
        ("b.csv", "\ufefftimestamp_ms\r\n1.5\r\n2\r\n", None, Trace((0.0, 0.0005), (), ())),
        ("b.csv", "timestamp\n1700000000.000000001\n1700000000.000000003\n", None,
         Trace((0.0, 2e-9), (), ())),
        ("j.jsonl", ISO_LINES, None, Trace((0.0, 1.0), (), ())),
        ("j.jsonl", '{"timestamp": 2.5}\n{"timestamp": 1}', None, Trace((0.0, 1.5), (), ())),
    ],
)  # fmt: skip
def test_trace_formats_are_read(
    tmp_path: Path, name: str, text: str, unit: str | None, expected: Trace
) -> None:
    """Published traces and plain columns give offsets from the first, sorted, to the digit."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")

    assert read_trace(path, unit=unit) == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "", "got no arrivals"),
        ("a.csv", "timestamp\n", "got no arrivals"),
        ("a.csv", "when\n5\n", "a.csv:2: got columns when, expected one of timestamp"),
        ("a.csv", "timestamp\n5\nsoon\n", "a.csv:3: timestamp must be a finite number or an ISO"),
        ("a.csv", "timestamp\nnan\n", "must be a finite number or an ISO"),
        ("a.csv", "timestamp\n2024-01-01 00:00:00.\n", "must be a finite number or an ISO"),
        ("a.csv", "timestamp,output_tokens\n5\n", "a.csv:2: got 1 cells, the header has 2"),
        ("a.csv", "timestamp,output_tokens\n5,-3\n", "output_tokens must be a whole number"),
        ("a.jsonl", "{", "a.jsonl:1: not valid JSON"),
        ("a.jsonl", "[5]", "a.jsonl:1: expected a JSON object"),
        ("a.jsonl", '{"timestamp": null}', "must be a finite number or an ISO"),
        (
            "a.jsonl",
            '{"timestamp": 1, "output_length": 5}\n{"timestamp": 2}',
            "only 1 of 2 rows have a length",
        ),
    ],
)
def test_wrong_trace_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    """A trace that cannot be replayed is an error with file and line."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SpecError) as caught:
        read_trace(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_unreadable_trace_and_unknown_unit_are_named(tmp_path: Path) -> None:
    """A missing file and a unit that does not exist are the user's errors."""
    with pytest.raises(SpecError, match=r"absent\.csv.*cannot be read"):
        read_trace(tmp_path / "absent.csv")
    with pytest.raises(SpecError, match=r"unknown unit 'min'. Known: s, ms, us, ns"):
        read_trace(tmp_path / "absent.csv", unit="min")
