"""What is known of one request: when it came, what became of it. Never its text."""

import re
from dataclasses import dataclass, field

_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,15})')
_ACCEPTED = re.compile(rb'"num_accepted_draft_tokens"\s*:\s*(\d{1,15})')
"""In a JSON document; inside a text of it the quotes would be escaped. The second one is vLLM's
(`--per-request-spec-decode-metrics`)."""


@dataclass(slots=True)
class Exchange:
    """One request and its answer, filled in as they pass.

    Attributes:
        number: Running number, from 1.
        route: Path of the route.
        client: Address that it came from.
        arrived_ns: When its head was read, monotonic clock.
        stream: Whether it asks for a stream.
        waited_ns: Time in the queue; None if it was not admitted.
        status: Status of the answer; None while there is none.
        first_ns: When the first byte of the answer's body passed; None before.
        ended_ns: When all was over; None before.
        chunks: Pieces in which the body passed.
        size_bytes: Length of the body so far.
        refused: Why the front answered itself, by `Refusal.code`; None if it did not.
        cut: Why the answer is not whole: "client", "engine", "drain"; None if it is.
        tokens: Output tokens by the answer's usage; None where it tells none, and before the end.
        accepted: Accepted draft tokens by the answer; None likewise.
        kind: Class of traffic, as the client labels it; "" for none.
        arm: Arm that it went to; None where there is one alone, and before.
        probe: Whether it went there to measure that arm.
        tried: Arms whose engine gave no answer to it.
    """

    number: int
    route: str
    client: str
    arrived_ns: int
    stream: bool = False
    waited_ns: int | None = None
    status: int | None = None
    first_ns: int | None = None
    ended_ns: int | None = None
    chunks: int = 0
    size_bytes: int = 0
    refused: str | None = None
    cut: str | None = None
    tokens: int | None = None
    accepted: int | None = None
    kind: str = ""
    arm: str | None = None
    probe: bool = False
    tried: set[str] = field(default_factory=set)
    _tail: tuple[bytes, bytes] = field(default=(b"", b""), repr=False)

    def passed(self, chunk: bytes, now_ns: int) -> None:
        """Note a piece of the body; called for each, so it does little."""
        if self.first_ns is None:
            self.first_ns = now_ns
        self.chunks += 1
        self.size_bytes += len(chunk)
        self._tail = (self._tail[1], chunk)

    def end(self, now_ns: int) -> None:
        """Note that all is over, read the answer's usage, and let go of its bytes."""
        self.ended_ns = now_ns
        tail = b"".join(self._tail)
        found, accepted = _TOKENS.findall(tail), _ACCEPTED.findall(tail)
        self.tokens = int(found[-1]) if found else None
        self.accepted = int(accepted[-1]) if accepted else None
        self._tail = (b"", b"")

    @property
    def whole(self) -> bool:
        """Whether it was admitted, and a good answer of the engine passed to its end."""
        admitted = self.waited_ns is not None
        return admitted and self.status == 200 and self.cut is None and self.refused is None

    @property
    def first_s(self) -> float | None:
        """Return the time from arrival to the first byte, seconds; None without one."""
        return None if self.first_ns is None else (self.first_ns - self.arrived_ns) / 1e9

    @property
    def total_s(self) -> float:
        """Return the time from arrival to the end, seconds."""
        assert self.ended_ns is not None, "the length of a request that still runs"
        return (self.ended_ns - self.arrived_ns) / 1e9

    @property
    def waited_ms(self) -> float | None:
        """Return the time in the queue, milliseconds; None if it was not admitted."""
        return None if self.waited_ns is None else self.waited_ns / 1e6

    @property
    def failed(self) -> bool:
        """Whether the engine answered with an error."""
        return self.refused is None and self.status is not None and self.status >= 400
