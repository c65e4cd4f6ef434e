"""Records and send logs made by hand, with errors planted where a test wants them.

Times are microseconds here. By default a client sees everything the very moment
it is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from draftgate.null_engine.sendlog import SentStream
from draftgate.null_engine.writes import Ending, EventKind
from draftgate.records import RequestRecord, StreamChunk

US = 1_000


@dataclass(frozen=True)
class Exchange:
    """One request as both sides have it, microseconds.

    Attributes:
        name: Prompt id, and the prompt.
        sent: When the client sent it.
        arrived: When the engine read it.
        steps: When each step was sent.
        chunks: When each chunk was seen; None for `steps`.
        tokens: Tokens of each step; None for one each.
    """

    name: str = "a"
    sent: int = 0
    arrived: int = 0
    steps: Sequence[int] = field(default_factory=lambda: (50_000, 60_000, 70_000))
    chunks: Sequence[int] | None = None
    tokens: Sequence[int] | None = None

    def record(self) -> RequestRecord:
        """Return what the client has."""
        seen = self.steps if self.chunks is None else self.chunks
        tokens = [1] * len(seen) if self.tokens is None else self.tokens
        chunks = tuple(
            StreamChunk(t * US, tuple(range(n))) for t, n in zip(seen, tokens, strict=False)
        )
        ended = max(seen, default=self.sent) * US
        return RequestRecord(0, 0, self.name, self.sent * US, self.sent * US, ended, chunks)

    def stream(self) -> SentStream:
        """Return what the engine logged: a head, the steps, the end."""
        tokens = [1] * len(self.steps) if self.tokens is None else list(self.tokens)
        first, last = (self.steps[0], self.steps[-1]) if self.steps else (self.arrived,) * 2
        sent_ns = np.array([first, *self.steps, last], np.int64) * US
        kinds = [EventKind.HEAD, *[EventKind.TOKENS] * len(self.steps), EventKind.END]
        return SentStream(
            number=1,
            key="1",
            route="/v1/chat/completions",
            prompt=self.name,
            prompt_tokens=1,
            max_tokens=sum(tokens),
            arrived_ns=self.arrived * US,
            faults=(),
            ending=Ending.COMPLETE,
            due_ns=sent_ns,
            sent_ns=sent_ns,
            tokens=np.array([0, *tokens, 0], np.int64),
            kinds=np.array(kinds, np.int64),
            blocked=np.zeros(len(kinds), np.bool_),
        )
