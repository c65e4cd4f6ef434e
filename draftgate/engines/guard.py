"""Run a program that must not outlive its parent: `guard.py PARENT_PID PROGRAM ARGS...`.

Asks Linux for SIGTERM on the parent's death (prctl(2), PR_SET_PDEATHSIG) and
then becomes the program. Stands alone, since the program's interpreter may not
have draftgate; asking in a `preexec_fn` would be unsafe in a threaded parent.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main() -> None:
    """Bind this process to its parent's life and replace it by the program."""
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit("the parent ended before the program was started")
    try:
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the program is the caller's
    except OSError as error:
        sys.exit(f"cannot run {sys.argv[2]}: {error.strerror}")


if __name__ == "__main__":
    main()
