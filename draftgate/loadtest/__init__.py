"""Load tests: one load on one server, from what is asked for to what came of it.

`spec` says what is sent and when, `run` sends it, `summarise` reads the records
back and works out the numbers in `summary`. Knows no profile, baseline or verdict.
"""

from draftgate.loadtest.run import run_load_test
from draftgate.loadtest.spec import LoadTest, with_fresh_salts
from draftgate.loadtest.summary import LoadSummary

__all__ = ["LoadSummary", "LoadTest", "run_load_test", "with_fresh_salts"]
