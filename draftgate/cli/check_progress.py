"""How far a distribution check is, on standard error while it runs.

One line a round, written over the last one in a terminal and a line of its own
elsewhere.
"""

import math
import sys
from typing import TextIO

from draftgate.checks.distribution import Progress

_ERASE_TO_END = "\x1b[K"


class CheckProgress:
    """Shows progress; used for one check.

    Args:
        stream: Where; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._is_open = False

    def show(self, at: Progress) -> None:
        """Show how far the check is."""
        if self._is_terminal:
            self._stream.write(f"\r{text(at)}{_ERASE_TO_END}")
            self._is_open = True
        else:
            self._stream.write(f"{text(at)}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the line as it is and begin a new one."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False


def text(at: Progress) -> str:
    """Return the line."""
    kl = at.detectable_kl
    found = "not every condition yet" if math.isinf(kl) else f"detectable {kl:.2g} nats a token"
    return (
        f"{at.elapsed_s:6.0f} s  {at.tokens:,} tokens  log e-value {at.log_e:.1f} of "
        f"{at.bound:.1f}  {found}"
    )
