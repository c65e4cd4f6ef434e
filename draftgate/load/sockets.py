"""How many sockets this process may open.

Knows limits of the system, no connection.
"""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OTHER_FILES = 64
"""Open files of a process besides its streams: the event loop's, the spool, libraries."""


def most_streams() -> int:
    """Return how many streams this process could open, by its hard limit of open files."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else max(1, hard - OTHER_FILES)


@contextmanager
def many_open_files() -> Iterator[None]:
    """Allow as many open files as the system lets a process have; its children inherit that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
