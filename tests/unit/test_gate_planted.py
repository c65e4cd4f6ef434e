"""Trouble that is no fault of the build: one bad start, a client that stands still."""

from pathlib import Path

import pytest

from benchmarks.gate import planted
from benchmarks.gate.faults import KINDS
from draftgate.compare.records import Pair, Stage
from draftgate.compare.take import Bench, Place
from draftgate.specfile import load_profile
from tests.planted.site import draftgate_planted as site

PROFILE = load_profile("cpu-smollm2")


@pytest.fixture
def job(tmp_path: Path) -> planted.Job:
    """A job whose folder is empty."""
    return planted.Job(PROFILE, 4, tmp_path, print)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the pairs that were taken; none is."""
    names: list[str] = []

    def take(_bench: Bench, place: Place) -> Pair:
        names.append(place.name)
        return None  # type: ignore[return-value]

    monkeypatch.setattr(planted, "take_pair", take)
    return names


def place(slot: int, attempt: int = 0) -> Place:
    """Return a place in stage one."""
    return Place("none", Stage.SEARCH, slot, attempt, candidate_first=False)


BENCH: Bench = None  # type: ignore[assignment]


def test_sides_of_bad_starts_differ_by_the_file_alone(job: planted.Job) -> None:
    """Every pair starts both servers anew; only the candidate looks for the bad start."""
    with planted.started_anew(job, KINDS["bad"]) as (base, candidate):
        unlike = set(candidate.arms[0].engine.env) - set(base.arms[0].engine.env)

    assert unlike == {("DRAFTGATE_PLANTED_BAD_START", str(job.root / "bad-start"))}
    assert set(base.arms[0].engine.env) < set(candidate.arms[0].engine.env)
    assert base.restarts
    assert candidate.restarts


def test_bad_start_is_laid_out_for_the_troubled_pairs_alone(
    job: planted.Job, taken: list[str]
) -> None:
    """The file is there for pairs 3 and 10 and holds the share; a repeated pair gets none."""
    take = planted.with_trouble(job, KINDS["bad"])
    found = {}
    for slot in range(12):
        take(BENCH, place(slot))
        found[slot] = site.claim(planted.bad_start(job))
    take(BENCH, place(2, attempt=1))

    assert {slot for slot, share in found.items() if share == 0.3} == {2, 9}
    assert sum(found.values()) == pytest.approx(0.6)
    assert not planted.bad_start(job).exists()
    assert len(taken) == 13


def test_client_stands_still_in_the_troubled_pairs_alone(
    job: planted.Job, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in a stage for half a second, and never for other kinds."""
    waits: list[float] = []

    class Now:
        """A timer that is up at once."""

        def __init__(self, _after_s: float, call: object, args: tuple[float, ...]) -> None:
            assert call is planted.stand_still
            waits.extend(args)

        def start(self) -> None:
            """Do nothing more."""

    monkeypatch.setattr(planted.threading, "Timer", Now)
    for kind in ("hiccup", "step5"):
        for slot in range(12):
            planted.with_trouble(job, KINDS[kind])(BENCH, place(slot))

    assert waits == [0.5, 0.5]
    assert len(taken) == 24
    assert list(job.root.iterdir()) == []
