"""What is sent to a null engine, and rates of what both sides saw.

Shared by `draftgate calibrate` and benchmarks/loadgen. Starts nothing.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from draftgate.load.apis import LoadPrompt
from draftgate.load.requests import PreparedRequest, prepare
from draftgate.null_engine.sendlog import SentStream
from draftgate.null_engine.writes import EventKind
from draftgate.records import RequestRecord
from draftgate.specs import SamplingParams


def own_prompts(number: int, max_tokens: int, model: str) -> Iterator[PreparedRequest]:
    """Return chat requests made beforehand, each with a prompt of its own to be told by.

    Args:
        number: How many.
        max_tokens: Length of every answer.
        model: Name of the null engine's model.
    """
    sampling = SamplingParams(max_tokens=max_tokens)
    return iter(
        [
            prepare("chat", LoadPrompt(name, messages=(("user", name),)), model, sampling)
            for name in (f"request-{i}" for i in range(number))
        ]
    )


def tokens_per_s(records: Sequence[RequestRecord], since_ns: int, until_ns: int) -> float:
    """Return the tokens that arrived in [since, until), per second."""
    tokens = sum(
        chunk.num_tokens
        for record in records
        for chunk in record.chunks
        if since_ns <= chunk.t_ns < until_ns
    )
    return tokens / (until_ns - since_ns) * 1e9


def engine_late_p99_s(sent: Sequence[SentStream]) -> float:
    """Return the 99th percentile of how late an engine sent its steps, seconds."""
    late_ns = [
        np.compress(stream.kinds == EventKind.TOKENS, stream.sent_ns - stream.due_ns)
        for stream in sent
    ]
    return float(np.quantile(np.concatenate(late_ns), 0.99, method="inverted_cdf")) / 1e9
