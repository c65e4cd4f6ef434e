"""Kernel stamps moved to the monotonic clock, and when they are not believed."""

import socket
import struct
import time

import pytest

from draftgate.clock import RECEIVE_STAMP_BYTES, realtime_offset_ns, stamp_receives
from draftgate.load.wire import WireExchange, settle
from draftgate.records import Failure, FailureKind

S = 1_000_000_000
OFFSET = 1_700_000_000 * S


def _stamp(t_ns: int) -> bytes:
    return struct.pack("@qq", *divmod(t_ns + OFFSET, S))


def _wire(
    *reads: tuple[int, bytes | None], offsets: tuple[int, int] = (OFFSET, OFFSET)
) -> WireExchange:
    raw = tuple((read_ns, stamp, b"x") for read_ns, stamp in reads)
    return WireExchange(1000, reads[-1][0], 200, raw, None, offsets)


def test_kernel_stamp_takes_the_place_of_the_read() -> None:
    """Stamps move by the clocks' offset; the end is that of the last read; delays are told."""
    exchange, delays = settle(_wire((9_000, _stamp(5_000)), (20_000, _stamp(19_000))))

    assert [t_ns for t_ns, _ in exchange.reads] == [5_000, 19_000]
    assert exchange.ended_ns == 19_000
    assert delays == (4_000, 1_000)


def test_read_without_a_stamp_keeps_its_own() -> None:
    """Where the kernel gave none, the read's time counts and no delay is claimed."""
    exchange, delays = settle(_wire((9_000, None), (20_000, _stamp(19_000))))

    assert [t_ns for t_ns, _ in exchange.reads] == [9_000, 19_000]
    assert delays == (1_000,)


@pytest.mark.parametrize("stamp_ns", [9_000 + 5_000, 1000 - 5_000])
def test_impossible_stamp_is_not_believed(stamp_ns: int) -> None:
    """A stamp after its own read, or before the request was sent, is left out."""
    exchange, delays = settle(_wire((9_000, _stamp(stamp_ns))))

    assert [t_ns for t_ns, _ in exchange.reads] == [9_000]
    assert delays == ()


def test_stamp_within_the_clocks_error_is_no_later_than_its_read() -> None:
    """A stamp up to a microsecond after the read, which the offset's error allows, is cut."""
    exchange, delays = settle(_wire((9_000, _stamp(9_700))))

    assert [t_ns for t_ns, _ in exchange.reads] == [9_000]
    assert delays == (0,)


def test_setting_the_time_of_day_puts_kernel_stamps_aside() -> None:
    """An offset that changed within the exchange makes the reads' own times count."""
    changed = (OFFSET, OFFSET + S)

    exchange, delays = settle(_wire((9_000, _stamp(5_000)), offsets=changed))

    assert [t_ns for t_ns, _ in exchange.reads] == [9_000]
    assert delays == ()


def test_failed_exchange_ends_when_that_was_noticed() -> None:
    """A failure's time is not moved back to the last read before it."""
    failed = Failure(FailureKind.STALLED, "silence")
    wire = WireExchange(1000, 50_000, 200, ((9_000, _stamp(5_000), b"x"),), failed, (OFFSET,) * 2)

    assert settle(wire)[0].ended_ns == 50_000


def test_offset_is_the_midpoint_of_the_tightest_bracket() -> None:
    """Of three readings the one between the two nearest clock values counts."""
    monotonic = iter([0, 100, 1_000, 1_010, 2_000, 2_200])
    real = iter([7_050, 9_005, 7_100])

    assert realtime_offset_ns(lambda: next(monotonic), lambda: next(real)) == 9_005 - 1_005


def test_socket_stamps_lie_between_sending_and_reading() -> None:
    """On a real connection the kernel's stamp is that of the arrival, not of the late read."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        listener.accept()[0] as server,
    ):
        if not stamp_receives(client):
            pytest.skip("this platform does not stamp receives")
        time.sleep(0.05)  # the first socket that asks turns stamping on in the background
        before_ns = time.monotonic_ns()
        server.send(b"x")
        time.sleep(0.02)
        data, ancillary, _, _ = client.recvmsg(100, RECEIVE_STAMP_BYTES)
        read_ns = time.monotonic_ns()
    offset = realtime_offset_ns()
    wire = WireExchange(
        before_ns, read_ns, 200, ((read_ns, ancillary[0][2], data),), None, (offset, offset)
    )

    exchange, delays = settle(wire)

    assert 0 <= exchange.reads[0][0] - before_ns < 5_000_000
    assert delays[0] > 10_000_000
