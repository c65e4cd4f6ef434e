"""Child processes: their log, their end, and that none is ever left behind."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from draftgate.clock import SYSTEM_CLOCK
from draftgate.engines.process import ChildProcess
from draftgate.errors import EngineError

SLEEP = "import time; time.sleep(60)"
Start = Callable[..., ChildProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a Python program as a child; all are killed after the test."""
    children: list[ChildProcess] = []

    def run(code: str, *, grace_s: float = 5.0, **env: str) -> ChildProcess:
        child = ChildProcess(
            "server",
            [sys.executable, "-c", code],
            env,
            tmp_path / "logs" / "server.log",
            SYSTEM_CLOCK,
            term_grace_s=grace_s,
        )
        children.append(child)
        return child

    yield run
    for child in children:
        child.stop()


def await_log(child: ChildProcess, text: str) -> list[str]:
    """Return the log's words once it holds `text`."""
    for _ in range(200):
        if text in child.log_path.read_text():
            return child.log_path.read_text().split()
        child.wait(0.05)
        if child.exit_code() is not None:
            break
    raise AssertionError(f"no {text!r} in {child.log_path.read_text()!r}")


def test_both_streams_and_variables_reach_the_log(start: Start) -> None:
    """Output and errors are in the log file; variables come on top of the environment."""
    child = start(
        "import os, sys; print(os.environ['ON_TOP'], 'PATH' in os.environ, flush=True);"
        "print('err', file=sys.stderr)",
        ON_TOP="yes",
    )

    assert child.wait(10) == 0
    assert child.log_path.read_text().split() == ["yes", "True", "err"]


def test_living_child_has_no_exit_code(start: Start) -> None:
    """While it runs there is no exit code and nothing is raised."""
    child = start(SLEEP)

    child.raise_if_dead()
    assert child.exit_code() is None
    assert child.wait(0.01) is None


def test_death_tells_exit_code_and_last_log_lines(start: Start) -> None:
    """The error has the code, the log's path and its last lines, no more."""
    child = start("import sys; [print('line', i) for i in range(40)]; sys.exit(7)")
    child.wait(10)

    with pytest.raises(EngineError) as caught:
        child.raise_if_dead()

    first, second, *lines = str(caught.value).splitlines()
    assert first == "server: the server process ended with exit code 7."
    assert second == f"Last lines of {child.log_path}:"
    assert lines == [f"    line {i}" for i in range(25, 40)]


def test_death_without_a_word_says_so(start: Start) -> None:
    """An empty log is told as empty."""
    child = start("import os; os._exit(3)")
    child.wait(10)

    with pytest.raises(EngineError, match=r"exit code 3(.|\n)*the log is empty"):
        child.raise_if_dead()


def test_death_by_a_signal_has_a_negative_code(start: Start) -> None:
    """A killed child shows the signal's number."""
    child = start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")

    assert child.wait(10) == -signal.SIGKILL


def test_stop_lets_it_end_by_itself(start: Start) -> None:
    """SIGTERM comes first, so that a server can put things in order."""
    child = start(
        "import signal, sys, time\n"
        "def end(*_):\n    print('in order', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    await_log(child, "ready")

    child.stop()
    child.stop()

    assert child.exit_code() == 0
    assert "in order" in child.log_path.read_text()


STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
FAMILY = """
import os, subprocess, sys, time
own = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
away = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
print(own.pid, away.pid, "ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("grandchild", [SLEEP, STUBBORN + SLEEP], ids=["plain", "stubborn"])
def test_stop_ends_grandchildren(start: Start, grandchild: str) -> None:
    """Descendants end with it, also one that ignores SIGTERM or left the group."""
    child = start(f"import sys; sys.argv.append({grandchild!r})\n{FAMILY}")
    own, away, _ = await_log(child, "ready")

    child.stop()

    for pid in (child.pid, int(own), int(away)):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_stop_kills_what_ignores_the_request(start: Start) -> None:
    """After the grace period a child that ignores SIGTERM is killed."""
    child = start(f"{STUBBORN}print('ready', flush=True); {SLEEP}", grace_s=0.1)
    await_log(child, "ready")

    child.stop()

    assert child.exit_code() == -signal.SIGKILL


def test_stop_after_death_ends_what_it_left(start: Start) -> None:
    """A child that died leaves its children to be ended by `stop`."""
    child = start(
        "import os, subprocess, sys\n"
        f"print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid, 'ready', flush=True)\n"
        "os._exit(1)"
    )
    child.wait(10)
    left = psutil.Process(int(child.log_path.read_text().split()[0]))

    child.stop()

    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


def test_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A missing program ends the child with its name in the log."""
    child = ChildProcess("server", ["/nowhere/python"], {}, tmp_path / "a.log", SYSTEM_CLOCK)

    assert child.wait(10) != 0
    with pytest.raises(EngineError, match="/nowhere/python"):
        child.raise_if_dead()
    assert "Traceback" not in child.log_tail()


def test_log_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """Where the log cannot be written nothing is started."""
    (tmp_path / "file").touch()

    with pytest.raises(EngineError, match="server: cannot start"):
        ChildProcess("server", [sys.executable], {}, tmp_path / "file" / "a.log", SYSTEM_CLOCK)


PARENT = """
import sys
from pathlib import Path
from draftgate.clock import SYSTEM_CLOCK
from draftgate.engines.process import ChildProcess
code = "import time; time.sleep(60)"
child = ChildProcess("server", [sys.executable, "-c", code], {}, Path(sys.argv[1]), SYSTEM_CLOCK)
print(child.pid, flush=True)
child.wait(60)
"""


def test_killed_parent_leaves_no_child(tmp_path: Path) -> None:
    """A parent that dies by SIGKILL, so without any clean-up, takes its child along."""
    argv = [sys.executable, "-c", PARENT, str(tmp_path / "a.log")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    _, alive = psutil.wait_procs([child], timeout=10)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_death_shows_the_first_exception_above_the_tail(tmp_path: Path) -> None:
    """What went wrong first is shown although later tracebacks fill the end of the log."""
    noise = "; ".join(f"print('later {i}')" for i in range(40))
    program = f"print('ValueError: the true cause'); {noise}; raise SystemExit(1)"
    child = ChildProcess(
        "server", (sys.executable, "-c", program), {}, tmp_path / "s.log", SYSTEM_CLOCK
    )
    assert child.wait(20) == 1

    with pytest.raises(EngineError) as caught:
        child.raise_if_dead()

    told = str(caught.value)
    assert "ValueError: the true cause" in told
    assert "later 39" in told
    assert "later 3\n" not in told
