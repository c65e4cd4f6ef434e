"""How far a load test is, on standard error while it runs.

One line a second, written over the last one in a terminal; elsewhere a line of its
own every 5 seconds, so that a log stays short.
"""

import sys
from typing import TextIO

from draftgate.load.state import LoadProgress

_LOG_PERIOD_S = 5.0
_ERASE_TO_END = "\x1b[K"


class ProgressLine:
    """Shows progress; used for one run.

    Args:
        stream: Where; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._told_s = 0.0
        self._last: LoadProgress | None = None
        self._is_open = False

    def show(self, at: LoadProgress) -> None:
        """Show how far the run is."""
        if self._is_terminal:
            self._stream.write(f"\r{self.text(at)}{_ERASE_TO_END}")
            self._is_open = True
        elif at.elapsed_s - self._told_s < _LOG_PERIOD_S - 0.5:  # ticks are a second apart
            return
        else:
            self._stream.write(f"{self.text(at)}\n")
        self._stream.flush()
        self._told_s, self._last = at.elapsed_s, at

    def end(self) -> None:
        """Leave the line as it is and begin a new one."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False

    def text(self, at: LoadProgress) -> str:
        """Return the line; its tokens/s are those since the line before, estimated from bytes."""
        return (
            f"{at.elapsed_s:6.0f} s  {self._speed(at)}  {at.running} running  {at.ended} ended  "
            f"{at.failed} failed"
        )

    def _speed(self, at: LoadProgress) -> str:
        before = self._last
        if at.output_tokens is None:
            return "no answer yet"
        tokens, since_s = at.output_tokens, at.elapsed_s
        if before is not None and before.output_tokens is not None:
            tokens, since_s = tokens - before.output_tokens, since_s - before.elapsed_s
        return f"about {max(tokens, 0) / max(since_s, 1e-3):,.0f} tokens/s"
