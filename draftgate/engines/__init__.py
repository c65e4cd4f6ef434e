"""Servers: how each engine is started, asked and stopped. One engine a file.

`ENGINES` finds an adapter by name; `draftgate.engines.running` turns a spec
into a live server. Knows nothing of load, metrics or verdicts.
"""

from draftgate.engines.adapter import ENGINES, EngineAdapter

__all__ = ["ENGINES", "EngineAdapter"]
