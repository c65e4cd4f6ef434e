"""The pool: one server an arm, kept, replaced, and all stopped whatever happens."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.errors import EngineError
from tests.flow.test_engine_running import own_arm

A, B, C = (own_arm({}, name=name) for name in "abc")
BROKEN = own_arm({"colour": "red"}, name="broken")


class Commands(dict[str, str]):
    """Start commands by arm, in the order of starting."""


@pytest.fixture
def said() -> list[str]:
    """Lines of progress."""
    return []


@pytest.fixture
def commands() -> Commands:
    """Commands that were told."""
    return Commands()


@pytest.fixture
def pool(tmp_path: Path, said: list[str], commands: Commands) -> Iterator[EnginePool]:
    """A pool of at most two servers."""
    with EnginePool(
        tmp_path / "logs", said.append, max_alive=2, on_command=commands.__setitem__
    ) as pool:
        yield pool


def alive(engine: RunningEngine) -> bool:
    """Return whether the server's process still runs."""
    return engine.child is not None and engine.child.exit_code() is None


def test_servers_are_reused_then_the_longest_unused_goes(
    pool: EnginePool, said: list[str], commands: Commands
) -> None:
    """Asked for again a server is the same; a third stops the one not asked for the longest."""
    first, second = pool.require((A, B))
    assert pool.require((A,)) == (first,)

    (third,) = pool.require((C,))

    assert (alive(first), alive(second), alive(third)) == (True, False, True)
    assert "b: stopping to make room" in said
    assert list(commands) == ["a", "b", "c"]
    assert f"--port {first.base_url.rpartition(':')[2]}" in commands["a"]


def test_more_than_may_live_is_refused_before_any_starts(
    pool: EnginePool, commands: Commands
) -> None:
    """Three at once in a pool of two is an error that says what to do."""
    with pytest.raises(EngineError, match="3 servers are asked for at once, at most 2"):
        pool.require((A, B, C))

    assert commands == {}


def test_failed_start_stops_what_was_started_with_it(pool: EnginePool, tmp_path: Path) -> None:
    """`require` is all or nothing: the others of the call are stopped, older ones live on."""
    (older,) = pool.require((A,))

    with pytest.raises(EngineError, match="broken: the server process ended with exit code 2"):
        pool.require((BROKEN,))

    assert alive(older)
    pool.discard(A)
    with pytest.raises(EngineError, match="broken: "):
        pool.require((B, BROKEN))
    assert not [p for p in psutil.Process().children() if "fake_server" in " ".join(p.cmdline())]
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {
        "a.log",
        "b.log",
        "broken.log",
        "broken-2.log",
    }


def test_start_all_returns_what_failed_and_keeps_the_rest(pool: EnginePool) -> None:
    """`start_all` says which failed and why; the others are ready."""
    failures = pool.start_all((B, BROKEN))

    assert list(failures) == [BROKEN]
    assert "unknown key 'colour'" in str(failures[BROKEN])
    (engine,) = pool.require((B,))
    assert engine.model == "fake"


def test_only_those_wanted_are_kept(pool: EnginePool, said: list[str]) -> None:
    """`keep_only` stops every other server, says so, and leaves those named alone."""
    kept, other = pool.require((A, B))

    pool.keep_only((A, C))

    assert (alive(kept), alive(other)) == (True, False)
    assert "b: stopping, its memory is for others" in said
    assert pool.require((A,)) == (kept,)


def test_dead_server_is_told_when_asked_for_again(pool: EnginePool) -> None:
    """A server that died in between is an error, never silently another one."""
    (engine,) = pool.require((A,))
    assert engine.pid is not None
    psutil.Process(engine.pid).kill()
    assert engine.child is not None
    engine.child.wait(10)

    with pytest.raises(EngineError, match="a: the server process ended with exit code -9"):
        pool.require((A,))


def test_same_arm_twice_is_one_server(pool: EnginePool, commands: Commands) -> None:
    """Two tests that ask for one arm in one call share its server."""
    first, second = pool.require((A, A))

    assert first is second
    assert list(commands) == ["a"]


class Stuck:
    """A server whose stop fails."""

    def __init__(self, error: BaseException, stopped: list[str]) -> None:
        self.error, self.stopped = error, stopped

    def stop(self) -> None:
        """Note the call, then fail."""
        self.stopped.append(str(self.error))
        raise self.error


@pytest.mark.parametrize("interruption", [EngineError("second"), KeyboardInterrupt("second")])
def test_stop_all_goes_on_after_an_error(
    tmp_path: Path, said: list[str], interruption: BaseException
) -> None:
    """Every server is stopped although a stop fails; then the first error is raised."""
    stopped: list[str] = []
    pool = EnginePool(tmp_path, said.append)
    for arm, error in ((A, EngineError("first")), (B, interruption)):
        pool._engines[arm] = Stuck(error, stopped)  # type: ignore[assignment]

    with pytest.raises(type(interruption), match="second"):
        pool.stop_all()

    assert stopped == ["second", "first"]
    assert pool._engines == {}
