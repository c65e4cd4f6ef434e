"""What one exchange left on the wire: raw reads with up to two stamps each.

The receive path only builds these; `settle` turns them into a `RawExchange`
after the run, putting the kernel's receive stamps in place of the reader's.
Knows neither HTTP nor JSON; opens nothing.
"""

from dataclasses import dataclass

from draftgate.clock import receive_stamp_ns
from draftgate.load.exchange import RawExchange
from draftgate.records import Failure

MAX_OFFSET_CHANGE_NS = 20_000
"""Change of the offset between the clocks within one exchange from which the
time of day counts as having been set. A reading is good to 1 us; a tenth of the
0.2 ms by which a median may be wrong lies well above that."""

_OFFSET_ERROR_NS = 1_000
"""What a stamp may be off by through the clocks' offset alone."""

WireRead = tuple[int, bytes | None, bytes]
"""Monotonic stamp of the read, the kernel's stamp as it came, the bytes."""


@dataclass(frozen=True, slots=True)
class WireExchange:
    """What one request brought back, with nothing worked out yet.

    Attributes:
        sent_ns: When the request's last byte was handed to the socket; when
            it was never sent, the time at which the attempt began.
        ended_ns: When the last byte arrived, or the failure was noticed.
        status: HTTP status; None if none arrived.
        reads: What each read returned, in order.
        error: What ended it early; None if the response arrived in full.
        offsets_ns: `realtime_offset_ns` at sending and at the end.
    """

    sent_ns: int
    ended_ns: int
    status: int | None
    reads: tuple[WireRead, ...]
    error: Failure | None
    offsets_ns: tuple[int, int] = (0, 0)

    @property
    def answered(self) -> bool:
        """Return whether a whole response with status 200 arrived."""
        return self.error is None and self.status == 200


def settle(wire: WireExchange) -> tuple[RawExchange, tuple[int, ...]]:
    """Return the exchange on one clock, and by how much each read was late.

    A kernel stamp is moved to the monotonic clock by the exchange's offset. It
    is not used where the time of day was set meanwhile, nor where it would
    lie after its own read. A read that found several segments carries the stamp
    of the last one.

    Args:
        wire: The exchange as received.

    Returns:
        The exchange, stamped by the kernel where that was possible, and the
        delays from kernel to reader, nanoseconds; one per kernel stamp used.
    """
    before_ns, after_ns = wire.offsets_ns
    if abs(after_ns - before_ns) > MAX_OFFSET_CHANGE_NS:
        return _by_reader(wire), ()
    reads: list[tuple[int, bytes]] = []
    delays: list[int] = []
    for read in wire.reads:
        t_ns = arrival_ns(read, wire.sent_ns, before_ns)
        if t_ns is None:
            reads.append((read[0], read[2]))
        else:
            reads.append((t_ns, read[2]))
            delays.append(read[0] - t_ns)
    ended_ns = reads[-1][0] if reads and wire.error is None else wire.ended_ns
    return RawExchange(wire.sent_ns, ended_ns, wire.status, tuple(reads), wire.error), tuple(delays)


def arrival_ns(read: WireRead, sent_ns: int, offset_ns: int) -> int | None:
    """Return a read's kernel stamp on the monotonic clock, never after the read itself.

    Args:
        read: What the read returned.
        sent_ns: When the request was sent.
        offset_ns: `realtime_offset_ns` at about that time.

    Returns:
        Nanoseconds; None if the kernel gave no stamp, or one before the
        request or after the read, which no arrival can have.
    """
    read_ns, stamp, _ = read
    if stamp is None:
        return None
    t_ns = receive_stamp_ns(stamp) - offset_ns
    if not sent_ns - _OFFSET_ERROR_NS <= t_ns <= read_ns + _OFFSET_ERROR_NS:
        return None
    return min(t_ns, read_ns)


def _by_reader(wire: WireExchange) -> RawExchange:
    reads = tuple((read_ns, data) for read_ns, _, data in wire.reads)
    ended_ns = reads[-1][0] if reads and wire.error is None else wire.ended_ns
    return RawExchange(wire.sent_ns, ended_ns, wire.status, reads, wire.error)
