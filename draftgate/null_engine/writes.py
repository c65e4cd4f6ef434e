"""Vocabulary inside a null engine: one request as understood, and one write of its answer.

An answer is an iterator of writes; `answers` makes it, `faults` changes it and
`engine` sends it. The send log keeps a write's note as it is. No I/O here.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

from draftgate.null_engine.script import FaultKind

Write = tuple[int, bytes, int]
"""Due time (monotonic ns), bytes, note. A write without bytes is a command if its kind is one;
otherwise its bytes went out with the write before it, whose time it shares."""

TOKENS_MASK = (1 << 20) - 1
"""Bits of a note that hold the number of tokens; also the most tokens of one answer."""
KIND_SHIFT = 20
KIND_MASK = 0xFF
BLOCKED = 1 << 28
"""Bit of a note: the socket took only a part at first, for the client read too slowly."""


class EventKind(IntEnum):
    """What a write carries."""

    TOKENS = 0
    """A step's event."""
    HEAD = 1
    """The response's head, or the rest of it."""
    ROLE = 2
    """A chat's first event, which holds no token."""
    USAGE = 3
    DONE = 4
    """`[DONE]`."""
    END = 5
    """The last chunk, which has length 0."""
    WHOLE = 6
    """A whole answer to a request that asked for no stream."""
    ERROR = 7
    """An error event, or an answer with an error status."""
    MALFORMED = 8
    PIECE = 9
    """A part of what the next write of another kind completes."""
    STALL = 10
    """Command: send nothing further, keep the connection."""
    CLOSE = 11
    """Command: close the connection."""
    RESET = 12
    """Command: reset the connection."""


class Route(Enum):
    """Where generation is asked for."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    GENERATE = "/generate"


class Ending(Enum):
    """How an answer came to its end."""

    COMPLETE = "complete"
    """All that was scripted went out, an error event included."""
    STALLED = "stalled"
    CLOSED = "closed"
    """The engine closed or reset the connection, as scripted."""
    LEFT = "left"
    """The client went away first."""
    OPEN = "open"
    """Not ended when the log was taken."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request's body asks for.

    Attributes:
        route: Where it came to.
        model: Model it names, which the answer repeats.
        prompt: First 64 characters of the prompt; of a chat's last message.
        prompt_tokens: Its words, or as many as ids were sent.
        max_tokens: Tokens to give, >= 1.
        stream: Whether as a stream.
        include_usage: Whether a stream is to end with usage.
        give_ids: Whether choices are to hold token ids.
    """

    route: Route
    model: str
    prompt: str
    prompt_tokens: int
    max_tokens: int
    stream: bool
    include_usage: bool
    give_ids: bool


@dataclass(frozen=True, slots=True)
class Work:
    """One request that is being answered.

    Attributes:
        ask: What it asked for.
        number: Running number of generation requests, from 1.
        key: `X-Request-Id` of the client, or the number as text.
        arrived_ns: When its last byte arrived, monotonic clock; by the kernel where it
            stamps receives.
        created_s: Time of day, seconds since 1970, for documents.
        faults: What happens to it.
    """

    ask: Ask
    number: int
    key: str
    arrived_ns: int
    created_s: int
    faults: tuple[FaultKind, ...]

    @property
    def id(self) -> str:
        """Return the id that every event of the answer carries."""
        return f"null-{self.number}"

    @property
    def num_tokens(self) -> int:
        """Return how many tokens the answer really holds."""
        asked = self.ask.max_tokens
        if FaultKind.WRONG_LENGTH not in self.faults:
            return asked
        return asked - 1 if asked > 1 else 2


def note(kind: EventKind, tokens: int = 0) -> int:
    """Return the note of a write; of `TOKENS` it is the number of tokens itself."""
    return kind << KIND_SHIFT | tokens
