"""What is measured: the cells of the benchmark with their loads.

The pace is that of the issue that asked for it: 50 ms to the first token, then a
step every 10 ms, 128 tokens an answer, unless a cell is about something else.
Starts nothing.
"""

from dataclasses import dataclass, replace

from benchmarks.loadgen.job import Job

TTFT_S, GAP_S, TOKENS = 0.05, 0.01, 128
_ANSWER_S = TTFT_S + GAP_S * TOKENS
_PACE = ("--ttft", str(TTFT_S), "--gap", str(GAP_S))
ONE_GRID, OWN_CLOCKS = "one grid", "own clocks"
_ALIGN = {ONE_GRID: ("--align", "steps"), OWN_CLOCKS: ("--align", "independent")}
STREAMS = (1, 8, 32, 256)

BAD_ENDS = ("--fault", "in_band_error=1-16/64", "--fault", "early_close=17-24/64")
STALLS = ("--fault", "stall=25-28/64")
EXPECTED_FAILURES = {"in_band_error": 16, "early_end": 8, "stalled": 4}

CELLS = {
    "cpu": "CPU per token and errors at 1 to 256 streams",
    "rate": "100,000 tokens/s on one core",
    "stall": "the process stalled for 8 ms on purpose",
    "steps": "several tokens per step, and slow steps",
    "failures": "answers that break off",
    "arrivals": "Poisson arrivals at 200/s",
    "streams": "2,000 streams at once",
    "memory": "memory over a long run",
    "import": "time to import",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One load in one cell.

    Attributes:
        cell: Name of the cell, a key of `CELLS`.
        title: What tells it from the cell's others.
        job: The load.
        rounds: How often it is run.
        foreign: Whether the other tools run it too.
        bare: Whether the bare loop runs it too.
    """

    cell: str
    title: str
    job: Job
    rounds: int
    foreign: bool = False
    bare: bool = False


def cases(*, quick: bool) -> tuple[Case, ...]:
    """Return all cases, in order.

    Args:
        quick: Whether to leave out repeats and most of the side by side, and to
            shorten what is long; enough to see that all works.
    """
    every = (
        *_cpu(),
        *_rate(quick=quick),
        Case("stall", "32 streams", _stalled(2.0 if quick else 10.0), 2),
        *_steps(),
        *_failures(),
        Case("arrivals", "200/s", _poisson(5.0 if quick else 20.0), 1),
        Case("streams", "2,000 streams", _crowd(), 1),
        Case("memory", "100,000 tokens/s", _long(15.0 if quick else 60.0), 1),
    )
    return tuple(_shortened(case) for case in every) if quick else every


def _shortened(case: Case) -> Case:
    beside = case.title in {_cpu_title(32, ONE_GRID), _BAD_ENDS_TITLE}
    return replace(case, rounds=1, foreign=case.foreign and beside)


def _cpu_title(streams: int, align: str) -> str:
    return f"{streams} stream{'s' if streams > 1 else ''}, {align}"


def _cpu() -> tuple[Case, ...]:
    """Three answers per stream, four of the only one; the others run one grid, and 32 streams."""
    return tuple(
        Case(
            "cpu",
            _cpu_title(streams, align),
            Job(
                streams,
                TOKENS,
                (*_PACE, *_ALIGN[align]),
                _ANSWER_S,
                requests=max(4, 3 * streams),
            ),
            rounds=3,
            foreign=align == ONE_GRID or streams == 32,
            bare=streams >= 32,
        )
        for align in (ONE_GRID, OWN_CLOCKS)
        for streams in STREAMS
    )


def _rate(*, quick: bool) -> tuple[Case, ...]:
    """Streams by number times tokens per answer / time of an answer, for a little over 100,000."""
    seconds, tokens = 5.0 if quick else 20.0, 256
    one_s = TTFT_S + GAP_S * tokens
    several_s = TTFT_S + GAP_S * tokens / 2.5
    return (
        _full("2.5 tokens per step", 430, tokens, several_s, seconds, ("--tokens-per-step", "1-4")),
        _full("1 token per step", 1030, tokens, one_s, seconds, ()),
    )


def _full(
    title: str, streams: int, tokens: int, answer_s: float, seconds: float, more: tuple[str, ...]
) -> Case:
    engine = (*_PACE, *_ALIGN[OWN_CLOCKS], *more)
    job = Job(streams, tokens, engine, answer_s, seconds=seconds, stagger_s=answer_s)
    return Case("rate", f"{streams} streams, {title}", job, rounds=2)


def _stalled(seconds: float) -> Job:
    engine = (*_PACE, *_ALIGN[OWN_CLOCKS])
    return Job(32, TOKENS, engine, _ANSWER_S, seconds=seconds, blocked_s=0.008)


def _steps() -> tuple[Case, ...]:
    pace = (*_PACE, *_ALIGN[OWN_CLOCKS])
    several = Job(32, 320, (*pace, "--tokens-per-step", "1-4"), 1.33, requests=96)
    slow = Job(32, TOKENS, (*pace, "--slow-gaps", "0.04:0.1"), 1.8, requests=96)
    return (
        Case("steps", "1 to 4 tokens per step", several, 2, foreign=True),
        Case("steps", "4 % of gaps at 100 ms", slow, 2, foreign=True),
    )


_BAD_ENDS_TITLE = "64 streams, 16 errors in band, 8 early closes"


def _failures() -> tuple[Case, ...]:
    pace = (*_PACE, *_ALIGN[OWN_CLOCKS], *BAD_ENDS)
    bad = Job(64, TOKENS, pace, _ANSWER_S, requests=64, stall_timeout_s=5.0)
    return (
        Case("failures", _BAD_ENDS_TITLE, bad, 1, foreign=True),
        Case(
            "failures",
            f"{_BAD_ENDS_TITLE}, 4 stalls",
            replace(bad, engine=(*pace, *STALLS)),
            1,
            foreign=True,
        ),
    )


def _poisson(seconds: float) -> Job:
    engine = (*_PACE, *_ALIGN[OWN_CLOCKS])
    return Job(0, 16, engine, TTFT_S + GAP_S * 16, seconds=seconds, rate_per_s=200.0)


def _crowd() -> Job:
    """Steps of 50 ms, so that 2,000 streams are 40,000 tokens/s: the number is the load."""
    engine = ("--ttft", "0.5", "--gap", "0.05", *_ALIGN[OWN_CLOCKS])
    return Job(2000, 64, engine, 3.7, requests=6000, stagger_s=1.0)


def _long(seconds: float) -> Job:
    engine = (*_PACE, *_ALIGN[OWN_CLOCKS], "--tokens-per-step", "1-4")
    return Job(430, 256, engine, 1.1, seconds=seconds, stagger_s=1.1, spooled=True)
