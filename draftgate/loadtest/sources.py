"""Where a share's requests come from, in the order in which they are asked for.

Numbers requests and follows conversations. Knows neither APIs nor sockets: what a
planned request becomes is handed in. The answer of a turn is read between two
requests of its stream, never in the receive path.
"""

from collections.abc import Callable

from draftgate.load.parse import SentRequest, parse_exchange
from draftgate.load.requests import PreparedRequest
from draftgate.load.wire import WireExchange, settle
from draftgate.load.workload import PlannedRequest, RequestPlan, Session

Prepare = Callable[[PlannedRequest], PreparedRequest]
"""Puts a planned request into an API's form."""

NumberOf = Callable[[int], int]
"""From the share's own count to the number in the whole run."""


class Numbered:
    """Requests that need no answer to an earlier one, whichever stream asks.

    Args:
        workload: What they are.
        prepare: Puts them into an API's form.
        number_of: From the share's count to the number of a request.
    """

    def __init__(self, workload: RequestPlan, prepare: Prepare, number_of: NumberOf) -> None:
        self._workload = workload
        self._prepare = prepare
        self._number_of = number_of
        self._count = 0

    def __call__(self, stream: int, /) -> PreparedRequest:
        """Return the next request."""
        del stream
        number = self._number_of(self._count)
        self._count += 1
        return self._prepare(self._workload.request(number))


class Conversations:
    """Sessions of several turns: each stream follows one to its end, then begins another.

    A turn without a whole answer ends its session.

    Args:
        workload: What the sessions are.
        prepare: Puts a turn into an API's form.
        number_of: From the share's count to the number of a session.
    """

    def __init__(self, workload: RequestPlan, prepare: Prepare, number_of: NumberOf) -> None:
        self._workload = workload
        self._prepare = prepare
        self._number_of = number_of
        self._begun = 0
        self._open: dict[int, Session] = {}
        self._answers: dict[int, str | None] = {}

    def __call__(self, stream: int, /) -> PreparedRequest:
        """Return the next turn of the stream's session, or the first of a new one."""
        session = self._open.get(stream)
        planned = None
        if session is not None:
            planned = session.next_turn(self._answers.pop(stream, None))
        if planned is None:
            session = self._workload.session(self._number_of(self._begun))
            self._begun += 1
            self._open[stream] = session
            planned = session.next_turn(None)
        assert planned is not None, "a new session has a first turn"
        return self._prepare(planned)

    def answered(self, stream: int, request: PreparedRequest, wire: WireExchange) -> None:
        """Keep the answer's text for the stream's next turn; none if it failed."""
        sent = SentRequest(0, stream, wire.sent_ns, request, settle(wire)[0])
        record = parse_exchange(sent, keep_text=True)
        self._answers[stream] = None if record.failure is not None else record.text
