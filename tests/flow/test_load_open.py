"""The open loop: requests go out when due, whatever became of earlier ones."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from draftgate.clock import SYSTEM_CLOCK
from draftgate.engines.fake_server import FakeConfig
from draftgate.errors import SpecError
from draftgate.load.generator import LoadResult, run
from draftgate.load.open import OpenLoopPlan
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.timer import PreciseTimer
from draftgate.records import FailureKind
from tests.support.fake import chat, endpoint, fake_server

MS = 1_000_000
PLAN = OpenLoopPlan(offsets_ns=iter(()), stall_timeout_s=5.0, run_timeout_s=10.0)


def _every(gap_ms: int, count: int | None = None) -> Iterator[int]:
    number = 0
    while count is None or number < count:
        yield number * gap_ms * MS
        number += 1


def _run(offsets: Iterator[int], *, tokens: int = 4, **script: float) -> LoadResult:
    request = chat(max_tokens=tokens)
    config = {"step_s": 0.002, "ttft_s": 0.004, **script}
    with fake_server(FakeConfig(**config)) as server:  # type: ignore[arg-type]
        return run(endpoint(server), lambda _n: request, replace(PLAN, offsets_ns=offsets))


def test_requests_keep_their_times_while_the_server_is_slow() -> None:
    """Twenty requests 5 ms apart all go out before the first of 400 ms has ended."""
    result = _run(_every(5, 20), ttft_s=0.4)

    records = sorted(result.records, key=lambda record: record.stream)
    due = [record.scheduled_ns - records[0].scheduled_ns for record in records]
    assert due == [5 * MS * number for number in range(20)]
    assert all(record.failure is None for record in records)
    assert max(record.sent_ns for record in records) < records[0].ended_ns


def test_requests_are_sent_soon_after_they_are_due() -> None:
    """Half of the requests leave within 5 ms of their time, none before it."""
    result = _run(_every(7, 40))

    late = sorted(record.sent_ns - record.scheduled_ns for record in result.records)
    assert late[0] >= 0
    assert late[20] < 5 * MS
    assert result.client.send_delay_p50_s == pytest.approx(late[19] / 1e9, rel=0.05)


def test_latency_from_the_schedule_holds_the_wait_for_the_client() -> None:
    """A source that blocks for 30 ms makes the next request late, and its record says so."""
    request = chat(max_tokens=1)

    def source(number: int) -> PreparedRequest:
        if number == 1:
            until = SYSTEM_CLOCK.now_ns() + 30 * MS
            while SYSTEM_CLOCK.now_ns() < until:
                pass
        return request

    with fake_server(FakeConfig(step_s=0.002, ttft_s=0.004)) as server:
        plan = replace(PLAN, offsets_ns=_every(5, 3))
        records = run(endpoint(server), source, plan).records

    late = {r.stream: r.sent_ns - r.scheduled_ns for r in records}
    assert late[1] >= 20 * MS
    assert late[2] >= 15 * MS


@pytest.mark.parametrize("limit", [{"max_requests": 6}, {"duration_s": 0.03}])
def test_limits_end_the_run(limit: dict[str, float]) -> None:
    """A number of requests, or the time until which they are due, ends an endless schedule."""
    request = chat(max_tokens=2)
    with fake_server(FakeConfig(step_s=0.002, ttft_s=0.004)) as server:
        plan = replace(PLAN, offsets_ns=_every(5), **limit)  # type: ignore[arg-type]
        result = run(endpoint(server), lambda _n: request, plan)

    assert len(result.records) == 6
    assert result.notes == ()


def test_connections_are_used_again() -> None:
    """Requests that hardly overlap need only the few connections kept to spare."""
    request = chat(max_tokens=1)
    with fake_server(FakeConfig(step_s=0.001, ttft_s=0.001)) as server:
        run(endpoint(server), lambda _n: request, replace(PLAN, offsets_ns=_every(20, 25)))

    assert server.connections <= 12


def test_dead_server_ends_the_run() -> None:
    """Nobody listening: the run gives up after so many failures and says why."""
    plan = replace(PLAN, offsets_ns=_every(10), failures_in_a_row=5)

    result = run(Endpoint("http://127.0.0.1:9", "fake"), lambda _n: chat(), plan)

    kinds = {record.failure.kind for record in result.records if record.failure}
    assert kinds == {FailureKind.CONNECT}
    assert "gave up after 5 failures in a row" in result.notes[0]
    assert len(result.records) < 50


def test_run_timeout_fails_what_is_open() -> None:
    """At the time limit an open request fails by deadline and the run ends by itself."""
    request = chat(max_tokens=2)
    with fake_server(FakeConfig(step_s=0.002, ttft_s=30.0)) as server:
        plan = replace(PLAN, offsets_ns=_every(5, 2), run_timeout_s=0.3)
        result = run(endpoint(server), lambda _n: request, plan)

    kinds = [record.failure.kind for record in result.records if record.failure]
    assert kinds == [FailureKind.DEADLINE] * 2


def test_error_of_the_source_reaches_the_caller() -> None:
    """A source that raises ends the run with its own error."""

    def source(_number: int) -> PreparedRequest:
        raise SpecError("no more prompts")

    with (
        fake_server(FakeConfig(step_s=0.002, ttft_s=0.004)) as server,
        pytest.raises(SpecError, match="no more prompts"),
    ):
        run(endpoint(server), source, replace(PLAN, offsets_ns=_every(5)))


@pytest.mark.parametrize("field", ["stall_timeout_s", "run_timeout_s", "max_requests"])
def test_plan_refuses_what_cannot_be(field: str) -> None:
    """Limits must be above 0; NaN is not."""
    with pytest.raises(SpecError, match=f"{field} must be > 0"):
        replace(PLAN, **{field: float("nan")})  # type: ignore[arg-type]


def test_timer_is_finer_than_the_loop() -> None:
    """Most of thirty timers fire within half a millisecond of their time, never before it."""

    async def body() -> list[int]:
        fired = asyncio.Event()
        timer = PreciseTimer(fired.set)
        late = []
        for _ in range(30):
            now_ns = SYSTEM_CLOCK.now_ns()
            timer.arm(now_ns + 1_700_000, now_ns)
            await fired.wait()
            late.append(SYSTEM_CLOCK.now_ns() - now_ns - 1_700_000)
            fired.clear()
        assert timer.is_precise
        timer.close()
        return sorted(late)

    late = asyncio.run(body())

    assert late[0] >= 0
    assert late[15] < 500_000
