"""Ctrl-C that arrives where Python can raise nothing, sent again.

Python runs a signal's handler between any two instructions of the main
thread. If that happens to be inside a weak reference's callback or a
finaliser, the `KeyboardInterrupt` goes to `sys.unraisablehook` and is gone
(documentation of `sys.unraisablehook`): the measurement goes on as if nobody
had asked it to end.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable

AGAIN_AFTER_S = 0.05
"""Wait before the signal is sent again: the callback that swallowed it has returned by then."""


def keep_interrupts() -> Callable[[], None]:
    """Send SIGINT again, until it is raised where it can be seen, whenever one was lost.

    Other unraisable errors go to the hook that was in place.

    Returns:
        A function that puts the hook that was in place back.
    """
    before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        again = threading.Timer(AGAIN_AFTER_S, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    def undo() -> None:
        sys.unraisablehook = before

    sys.unraisablehook = hook
    return undo
