"""One pair on live scripted servers: order of load, what is kept, and trouble by name."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from draftgate.clock import SYSTEM_CLOCK
from draftgate.compare.records import Pair, SideSpec, Stage
from draftgate.compare.take import Bench, Place, take_pair
from draftgate.datasets import load_prompts
from draftgate.engines.fake_server import FakeConfig
from draftgate.records import RunSamples
from draftgate.specs import (
    SLO,
    Arm,
    EngineSpec,
    Profile,
    SamplingParams,
    UrlLaunch,
    WorkloadSpec,
)
from tests.support.fake import fake_server

NOWHERE = "http://127.0.0.1:1"


def side(url: str) -> SideSpec:
    """Return a side of one live server."""
    return SideSpec(
        url, "url", (Arm("none", EngineSpec("fake", "fake", UrlLaunch(url))),), restarts=False
    )


@dataclass
class Kept:
    """Keeps the names of raw runs in the order in which they came."""

    names: list[str] = field(default_factory=list)

    def __call__(self, name: str, _run: RunSamples) -> str:
        """Take a run."""
        self.names.append(name)
        return f"samples/{name}"


def bench(base: SideSpec, candidate: SideSpec, logs: Path, kept: Kept) -> Bench:
    """Return a bench of two sides at one and two streams."""
    workload = WorkloadSpec(
        "mixed",
        (2, 1),
        SamplingParams(max_tokens=6),
        window_s=0.05,
        min_requests=2,
        stagger_s=0.0,
        stall_timeout_s=5.0,
        run_timeout_s=20.0,
    )
    profile = Profile(
        name="example",
        description="Live.",
        arms=base.arms,
        keep_alive=True,
        workload=workload,
        slo=SLO(),
        gates=(),
        source=Path("example.toml"),
        text="",
    )
    return Bench(
        profile, base, candidate, (), load_prompts("mixed", 1), logs, kept, lambda _line: None
    )


@pytest.fixture
def urls() -> Iterator[tuple[str, str]]:
    """Addresses of two scripted servers."""
    config = FakeConfig(step_s=0.002, ttft_s=0.002)
    with fake_server(config) as one, fake_server(config) as other:
        yield one.url, other.url


def taken(made: Bench, *, candidate_first: bool = False) -> Pair:
    """Take the first pair of stage one."""
    return take_pair(made, Place("none", Stage.SEARCH, 0, 0, candidate_first))


@pytest.mark.parametrize("candidate_first", [False, True])
def test_load_alternates_between_both_sides(
    urls: tuple[str, str],
    tmp_path: Path,
    candidate_first: bool,  # noqa: FBT001 - parametrised
) -> None:
    """At each number of streams, in rising order, the side that is drawn goes first."""
    kept = Kept()

    pair = taken(
        bench(side(urls[0]), side(urls[1]), tmp_path, kept), candidate_first=candidate_first
    )

    assert pair.invalid == ()
    roles = ["candidate", "base"] if candidate_first else ["base", "candidate"]
    expected = [f"none-search-01-{role}-c{c}" for c in (1, 2) for role in roles]
    assert kept.names == expected
    for start in (pair.base, pair.candidate):
        assert [cell.concurrency for cell in start.cells] == [1, 2]
        assert all(cell.requests >= 2 for cell in start.cells)
        assert all(dict(cell.values)["output_tokens_per_s"] > 0 for cell in start.cells)
        assert all(len(cell.prompts) >= 2 for cell in start.cells)
        assert start.engine == "fake fake-1"


def test_server_that_is_not_there_is_named_and_nothing_is_loaded(
    urls: tuple[str, str], tmp_path: Path
) -> None:
    """A side without a server makes the pair unusable, with its address in the reason."""
    kept = Kept()

    pair = taken(bench(side(urls[0]), side(NOWHERE), tmp_path, kept))

    (reason,) = pair.invalid
    assert reason.startswith("candidate: did not start")
    assert NOWHERE in reason
    assert kept.names == []


class Jumping:
    """The machine's clock, whose time of day is set forward by 5 s after the first look."""

    def __init__(self) -> None:
        self._looks = 0

    def now_ns(self) -> int:
        """Return monotonic nanoseconds, which never jump."""
        return SYSTEM_CLOCK.now_ns()

    def wall(self) -> datetime:
        """Return the time of day."""
        self._looks += 1
        return SYSTEM_CLOCK.wall() + timedelta(seconds=5 * (self._looks > 2))


def test_clock_that_jumps_makes_the_pair_unusable(urls: tuple[str, str], tmp_path: Path) -> None:
    """A time of day that was set in the middle is told for both starts."""
    made = replace(bench(side(urls[0]), side(urls[1]), tmp_path, Kept()), clock=Jumping())

    pair = taken(made)

    assert [reason.split(":")[0] for reason in pair.invalid] == ["base", "candidate"]
    assert all("the clock jumped by +5.0" in reason for reason in pair.invalid)


def test_sides_that_cannot_live_together_are_started_one_after_the_other(
    urls: tuple[str, str], tmp_path: Path
) -> None:
    """Without keep_alive one side is loaded at every number of streams before the other."""
    kept = Kept()
    made = bench(side(urls[0]), side(urls[1]), tmp_path, kept)
    made = replace(made, profile=replace(made.profile, keep_alive=False))

    taken(made, candidate_first=True)

    assert kept.names == [
        f"none-search-01-{role}-c{c}" for role in ("candidate", "base") for c in (1, 2)
    ]
