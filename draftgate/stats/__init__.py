"""Statistics over plain arrays and numbers.

Knows nothing of runs, specs, servers or verdicts: arrays in, small frozen
results out.
"""
