"""Slots and the bounded queue before them: order, bound, waits, and waiters that give up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.clock import ManualClock
from draftgate.errors import SpecError
from draftgate.serve.admission import Admission, QueueClosedError, QueueFullError

Body = Callable[["Scene"], Coroutine[Any, Any, None]]


class Scene:
    """Requests by number that hold their slot until told to leave.

    Attributes:
        admission: Under test.
        clock: Its clock.
        order: Numbers in the order of admission.
        waited_ns: Wait of each that was admitted.
        most: Largest number in flight that was seen.
    """

    def __init__(self, max_in_flight: int, max_queue: int) -> None:
        self.clock = ManualClock()
        self.admission = Admission(max_in_flight, max_queue, self.clock)
        self.order: list[int] = []
        self.waited_ns: dict[int, int] = {}
        self.most = 0
        self._leave: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def come(self, number: int) -> asyncio.Task[None]:
        """Let a request come, and see what becomes of it."""
        self._leave[number] = asyncio.Event()
        self._tasks[number] = asyncio.create_task(self._request(number))
        await settle()
        return self._tasks[number]

    async def leave(self, number: int) -> None:
        """Let a request give its slot back."""
        self._leave[number].set()
        await settle()

    async def give_up(self, number: int) -> None:
        """Cancel a request wherever it is."""
        self._tasks[number].cancel()
        await settle()

    async def _request(self, number: int) -> None:
        async with self.admission.slot() as waited_ns:
            self.order.append(number)
            self.waited_ns[number] = waited_ns
            self.most = max(self.most, self.admission.in_flight)
            await self._leave[number].wait()


async def settle() -> None:
    """Let every task go on as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


def play(max_in_flight: int, max_queue: int, body: Body) -> Scene:
    """Run `body` on a scene of its own and return that."""

    async def run() -> Scene:
        scene = Scene(max_in_flight, max_queue)
        await body(scene)
        return scene

    return asyncio.run(run())


def test_waiters_are_admitted_in_the_order_in_which_they_came() -> None:
    """First in, first out, however the slots become free."""

    async def body(scene: Scene) -> None:
        for number in range(5):
            await scene.come(number)
        for number in (1, 0, 2, 3, 4):
            await scene.leave(number)

    scene = play(2, 3, body)

    assert scene.order == [0, 1, 2, 3, 4]
    assert scene.most == 2
    assert (scene.admission.in_flight, scene.admission.queued) == (0, 0)


def test_wait_is_measured_by_the_clock() -> None:
    """Nothing for who finds a slot; the time in the queue for who waits."""

    async def body(scene: Scene) -> None:
        await scene.come(1)
        scene.clock.advance(1.0)
        await scene.come(2)
        scene.clock.advance(0.25)
        await scene.leave(1)

        assert scene.waited_ns == {1: 0, 2: 250_000_000}
        await scene.leave(2)

    play(1, 1, body)


def test_one_more_than_may_wait_is_turned_away() -> None:
    """The bound holds, and a place that becomes free is taken again."""

    async def body(scene: Scene) -> None:
        await scene.come(1)
        await scene.come(2)
        turned_away = await scene.come(3)
        await scene.leave(1)
        later = await scene.come(4)

        with pytest.raises(QueueFullError):
            await turned_away
        assert not later.done()
        assert (scene.admission.in_flight, scene.admission.queued) == (1, 1)
        await scene.leave(2)
        await scene.leave(4)

    play(1, 1, body)


def test_no_queue_at_all_is_allowed() -> None:
    """With --max-queue 0 there is a slot now or nothing."""

    async def body(scene: Scene) -> None:
        await scene.come(1)
        with pytest.raises(QueueFullError):
            await (await scene.come(2))
        await scene.leave(1)

    assert play(1, 0, body).order == [1]


def test_waiter_that_gives_up_leaves_the_queue() -> None:
    """Its place is free at once, and its turn goes to the next."""

    async def body(scene: Scene) -> None:
        await scene.come(1)
        await scene.come(2)
        await scene.give_up(2)
        assert scene.admission.queued == 0
        await scene.come(3)
        await scene.leave(1)
        await scene.leave(3)

    scene = play(1, 1, body)

    assert scene.order == [1, 3]
    assert scene.admission.in_flight == 0


def test_slot_that_comes_with_the_cancellation_is_passed_on() -> None:
    """Freed and cancelled in the same turn of the loop: the slot is not lost."""

    async def body(scene: Scene) -> None:
        await scene.come(1)
        waiter = await scene.come(2)
        await scene.come(3)
        scene._leave[1].set()
        await asyncio.sleep(0)  # the slot is handed to 2, which has not run yet
        waiter.cancel()
        await settle()

        assert scene.order == [1, 3]
        await scene.leave(3)

    scene = play(1, 2, body)

    assert scene.admission.in_flight == 0


def test_closed_queue_turns_away_and_lets_run() -> None:
    """Who waits and who comes is turned away; who has a slot keeps it, and then it is drained."""

    async def body(scene: Scene) -> None:
        await scene.come(1)
        waiting = await scene.come(2)
        scene.admission.close()
        late = await scene.come(3)
        drained = asyncio.create_task(scene.admission.drained())
        await settle()

        for turned_away in (waiting, late):
            with pytest.raises(QueueClosedError):
                await turned_away
        assert not drained.done()
        await scene.leave(1)
        assert drained.done()

    assert play(1, 1, body).order == [1]


def test_busy_time_is_summed_over_requests() -> None:
    """Two for one second and one for another is three seconds."""

    async def body(scene: Scene) -> None:
        await scene.come(1)
        await scene.come(2)
        scene.clock.advance(1.0)
        await scene.leave(1)
        scene.clock.advance(1.0)

        assert scene.admission.busy_s() == pytest.approx(3.0)
        await scene.leave(2)
        scene.clock.advance(5.0)
        assert scene.admission.busy_s() == pytest.approx(3.0)

    play(2, 0, body)


@pytest.mark.parametrize(
    ("in_flight", "queue", "about"), [(0, 1, "--max-in-flight"), (1, -1, "--max-queue")]
)
def test_number_out_of_range_is_one_error(in_flight: int, queue: int, about: str) -> None:
    """It names the option and what was got."""
    with pytest.raises(SpecError, match=f"{about} must be . or more requests, got"):
        Admission(in_flight, queue, ManualClock())


class Literal:
    """The same with two lists.

    Attributes:
        running: Numbers that have a slot.
        waiting: Numbers that wait, first come first.
        admitted: All that ever had a slot, in order.
    """

    def __init__(self, in_flight: int, queue: int) -> None:
        self._in_flight, self._queue = in_flight, queue
        self.running: list[int] = []
        self.waiting: list[int] = []
        self.admitted: list[int] = []

    def come(self, number: int) -> bool:
        """Take a request in; return whether there is a place for it."""
        if len(self.running) == self._in_flight and len(self.waiting) == self._queue:
            return False
        self.waiting.append(number)
        self._move_up()
        return True

    def one_of(self, pick: int) -> int | None:
        """Return one of those that are there."""
        known = self.running + self.waiting
        return known[pick % len(known)] if known else None

    def go(self, number: int) -> None:
        """Take a request out."""
        (self.running if number in self.running else self.waiting).remove(number)
        self._move_up()

    def _move_up(self) -> None:
        while self.waiting and len(self.running) < self._in_flight:
            self.running.append(self.waiting.pop(0))
            self.admitted.append(self.running[-1])


EVENTS = st.lists(
    st.tuples(st.sampled_from(["come", "leave", "give_up"]), st.integers(0, 7)), max_size=40
)


@settings(deadline=None)
@given(in_flight=st.integers(1, 3), queue=st.integers(0, 3), events=EVENTS)
def test_any_history_agrees_with_two_lists(
    in_flight: int, queue: int, events: list[tuple[str, int]]
) -> None:
    """Who runs, who waits and who is turned away, after each event."""
    literal = Literal(in_flight, queue)

    async def body(scene: Scene) -> None:
        for number, (kind, pick) in enumerate(events):
            if kind == "come":
                task = await scene.come(number)
                if not literal.come(number):
                    with pytest.raises(QueueFullError):
                        await task
            elif (known := literal.one_of(pick)) is not None:
                leaves = kind == "leave" and known in literal.running
                await (scene.leave(known) if leaves else scene.give_up(known))
                literal.go(known)
            counts = (scene.admission.in_flight, scene.admission.queued)
            assert counts == (len(literal.running), len(literal.waiting))
            assert scene.order == literal.admitted
        while (known := literal.one_of(0)) is not None:
            await scene.give_up(known)
            literal.go(known)
        assert scene.admission.in_flight == 0

    play(in_flight, queue, body)
