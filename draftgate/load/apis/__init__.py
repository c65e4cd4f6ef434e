"""Dialects: how each streaming API is asked and how its events are read.

One dialect a file, registered by the name that `--api` takes. Knows JSON
documents and tokens; knows nothing of HTTP, sockets, clocks or when anything is
sent. `draftgate.load.requests` asks through it, `draftgate.load.parse` reads.
"""

from draftgate.load.apis.dialect import Dialect, LoadPrompt
from draftgate.registry import Registry

__all__ = ["APIS", "Dialect", "LoadPrompt"]

APIS: Registry[Dialect] = Registry("API", "draftgate.load.apis")
"""Dialects by the name a user gives."""
