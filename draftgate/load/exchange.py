"""What one request brought back, as it came off the socket.

The record between the receive path, which fills it, and `draftgate.load.parse`,
which reads it after the run. Knows nothing of HTTP, events or tokens.
"""

from dataclasses import dataclass

from draftgate.records import Failure

Reads = tuple[tuple[int, bytes], ...]
"""(stamp in nanoseconds, bytes) of each read, in order."""


@dataclass(frozen=True, slots=True)
class RawExchange:
    """What one request brought back, unparsed.

    Attributes:
        sent_ns: When the request's last byte was handed to the socket; when
            it was never sent, the time at which the attempt began.
        ended_ns: When the last byte arrived, or the failure was noticed.
        status: HTTP status; None if none arrived.
        reads: The response's bytes in order, HTTP head and chunk framing
            included, each with the stamp of its read.
        error: What ended it early; None if the response arrived in full,
            whatever its status says.
    """

    sent_ns: int
    ended_ns: int
    status: int | None
    reads: Reads
    error: Failure | None

    @property
    def answered(self) -> bool:
        """Return whether a whole response with status 200 arrived."""
        return self.error is None and self.status == 200
