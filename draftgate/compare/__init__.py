"""Two builds side by side: pairs of server starts until every gate is decided.

`records` is the vocabulary. Knows engines through `draftgate.engines`, numbers
through `draftgate.stats`; prints nothing.
"""
