"""An engine in one function that honours every probed field, for tests of probes."""

from collections.abc import Mapping
from typing import Any

FILTERS = frozenset({"top_k", "top_p", "min_p"})
PENALTIES = frozenset({"presence_penalty", "frequency_penalty"})


def obeyed(
    fields: Mapping[str, Any], greedy: tuple[int, ...], free: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the output of a request by its fields.

    Args:
        fields: In vLLM's spelling.
        greedy: The greedy answer.
        free: What a hot draw gives, and what penalties make of the greedy answer.
    """
    length = fields["max_tokens"]
    if "logit_bias" in fields:
        return tuple(int(token) for token in fields["logit_bias"]) * length
    if "allowed_token_ids" in fields:
        return (fields["allowed_token_ids"][0],) * length
    if PENALTIES & fields.keys():
        return free[:length]
    if "bad_words" in fields:
        return tuple(token for token in greedy if token != greedy[0])[:length]
    ids = greedy if fields["temperature"] == 0 or FILTERS & fields.keys() else free
    least, stops = fields.get("min_tokens", 0), fields.get("stop_token_ids", ())
    ends = (i + 1 for i, t in enumerate(ids) if t in stops and i >= least)
    return ids[: min(next(ends, len(ids)), length)]


def without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a request as a server sees it that drops one field in silence."""
    return {key: value for key, value in fields.items() if key != name}
