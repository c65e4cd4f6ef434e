"""Exit codes of the `draftgate` command, and how each part of it speaks.

The table in README.md is made from `Exit`. Knows no subcommand.
"""

import enum
import sys
from typing import TYPE_CHECKING, Self

from draftgate.errors import (
    BaselineError,
    DraftgateError,
    EngineError,
    MeasurementError,
    SpecError,
)

if TYPE_CHECKING:  # quick start
    from draftgate.checks.outcome import CheckOutcome
    from draftgate.verdict import Outcome


class Exit(enum.IntEnum):
    """Exit codes of the command, with what each means."""

    OK = 0, "done; every verdict is green"
    REGRESSION = 1, "a gate found a loss beyond its margin, or a check a fault of the text"
    BAD_SPEC = 2, "a profile, option or input file is wrong"
    UNUSABLE_RUN = 3, "a run was taken but can't be used or stored"
    NO_BASELINE = 4, "no baseline fits, or one is damaged"
    ENGINE = 5, "the server did not start, died or did not answer"
    INCONCLUSIVE = 6, "no loss or fault was shown, but the evidence doesn't suffice to pass"
    ALARM = 7, "`watch --fail-on-alarm` ended after an alarm"
    INTERRUPTED = 130, "stopped by Ctrl-C"

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make a member of a code and its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


_EXIT_OF: tuple[tuple[type[DraftgateError], Exit], ...] = (
    (SpecError, Exit.BAD_SPEC),
    (EngineError, Exit.ENGINE),
    (MeasurementError, Exit.UNUSABLE_RUN),
    (BaselineError, Exit.NO_BASELINE),
)


def exit_of(error: DraftgateError) -> Exit:
    """Return the code that says whose fault `error` is."""
    return next(code for kind, code in _EXIT_OF if isinstance(error, kind))


_EXIT_FOR = {
    "pass": Exit.OK,
    "improvement": Exit.OK,
    "regression": Exit.REGRESSION,
    "inconclusive": Exit.INCONCLUSIVE,
    "no_baseline": Exit.NO_BASELINE,
    "invalid_run": Exit.UNUSABLE_RUN,
}
"""By the values of `Outcome`, whose module is slow to import."""


def exit_for(outcome: "Outcome") -> Exit:
    """Return the code that says what was decided."""
    return _EXIT_FOR[outcome.value]


_EXIT_FOR_CHECK = {
    "pass": Exit.OK,
    "lossy": Exit.REGRESSION,
    "nonconforming": Exit.REGRESSION,
    "mismatch": Exit.REGRESSION,
    "inconclusive": Exit.INCONCLUSIVE,
}
"""By the values of `CheckOutcome`."""


def exit_for_check(outcome: "CheckOutcome") -> Exit:
    """Return the code that says what a distribution check found."""
    return _EXIT_FOR_CHECK[outcome.value]


def say(line: str) -> None:
    """Print a line for the person, not for a program that reads the output."""
    print(line, file=sys.stderr, flush=True)
