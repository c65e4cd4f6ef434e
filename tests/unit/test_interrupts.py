"""A Ctrl-C that Python swallowed is raised again."""

import os
import signal
import sys
import time
import weakref
from collections.abc import Iterator

import pytest

from draftgate.interrupts import keep_interrupts


class Thing:
    """Something with a weak reference."""


@pytest.fixture(autouse=True)
def python_handler() -> Iterator[None]:
    """Python's own handler of SIGINT, also where the shell had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[type[BaseException] | None]:
    """What reaches the hook that was in place before."""
    seen: list[type[BaseException] | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: seen.append(lost.exc_type))
    return seen


def drop(error: type[BaseException] | None) -> None:
    """Drop an object whose weak reference's callback gets Ctrl-C, or raises an error."""

    def callback(_reference: object) -> None:
        if error is not None:
            raise error
        os.kill(os.getpid(), signal.SIGINT)

    thing = Thing()
    reference = weakref.ref(thing, callback)
    del thing
    assert reference() is None


def wait_s(seconds: float) -> None:
    """Pass the time in short sleeps."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.005)


def test_without_it_python_swallows_the_interrupt(
    others: list[type[BaseException] | None],
) -> None:
    """What the module is there for: nothing is raised."""
    drop(None)
    wait_s(0.1)

    assert others == [KeyboardInterrupt]


def test_a_lost_interrupt_is_raised_again(others: list[type[BaseException] | None]) -> None:
    """The callback returns, and the caller gets its KeyboardInterrupt within the second."""
    undo = keep_interrupts()
    try:
        drop(None)
        with pytest.raises(KeyboardInterrupt):
            wait_s(5.0)
    finally:
        undo()

    assert others == []


def test_other_errors_go_where_they_went(others: list[type[BaseException] | None]) -> None:
    """An unraisable error of another kind is the former hook's; no signal follows."""
    undo = keep_interrupts()
    drop(ZeroDivisionError)
    undo()
    drop(ValueError)
    wait_s(0.1)

    assert others == [ZeroDivisionError, ValueError]
