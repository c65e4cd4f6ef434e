"""Engine + load -> `RunSamples` or `TrafficAcceptance`: one measurement of one arm.

Binds the load generator to the engine's counters and the machine's meters.
Decides only whether a measurement can be used, never what it means.
"""

from draftgate.measure.load import request_source
from draftgate.measure.run import Cell, check_client, measure_run, prime
from draftgate.measure.traffic import Traffic, measure_traffic

__all__ = [
    "Cell",
    "Traffic",
    "check_client",
    "measure_run",
    "measure_traffic",
    "prime",
    "request_source",
]
