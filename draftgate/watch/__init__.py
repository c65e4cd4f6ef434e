"""The live monitor: an engine's counters, window by window, against a learned level.

`page` reads what an engine exports, `totals` turns two readings into growth whatever
restarts lie between, `windows` gathers growth, `judge` asks the detectors, `monitor` puts
these together without any I/O, and `run` polls, stores, exports and waits.
"""
