"""What draftgate's load generator costs and how wrong it is, beside two public tools.

`run` is the command, `cases` says what is measured, `ours` runs draftgate's
generator, `bare` the least that a client can do, `foreign` the other tools, each
against a null engine whose send log is the truth; `report` writes RESULTS.md. See
`python -m benchmarks.loadgen.run --help`.
"""
