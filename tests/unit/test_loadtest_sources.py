"""Requests of one share: numbered, or turns of conversations that wait for answers."""

import json
from dataclasses import replace
from typing import Any

import pytest

from draftgate.load.closed import Listening
from draftgate.load.lengths import Fixed
from draftgate.load.prompts import Synthetic, Words
from draftgate.load.requests import PreparedRequest
from draftgate.load.spool import Share
from draftgate.load.wire import WireExchange
from draftgate.load.workload import RequestPlan
from draftgate.loadtest.sources import Conversations, Numbered
from draftgate.records import Failure, FailureKind
from tests.support.exchanges import CHUNKED_HEAD, DONE, event, usage
from tests.support.load_tests import make_test

SESSIONS = RequestPlan(Synthetic(Fixed(3), Words()), Fixed(2), seed=5, turns=2)


def source(index: int = 0, of: int = 1) -> Conversations:
    """Return the conversations of one share."""
    got = make_test(workload=SESSIONS).requests(Share(index, of))
    assert isinstance(got, Conversations)
    return got


def messages(request: PreparedRequest) -> list[tuple[str, str]]:
    """Return (role, content) of what a request sends."""
    return [(m["role"], m["content"]) for m in json.loads(request.body)["messages"]]


def answer(text: str, failure: Failure | None = None) -> WireExchange:
    """Return an exchange in which the server said `text`, in two tokens."""
    document: dict[str, Any] = {"choices": [{"delta": {"content": text}, "token_ids": [1, 2]}]}
    body = event(document) + event(usage(2)) + DONE
    head = CHUNKED_HEAD.replace(b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(body))
    return WireExchange(1, 9, 200, ((9, None, head + body),), failure)


def test_turn_holds_the_answer_before_it() -> None:
    """The second turn is the first one, what the server said, and something new."""
    requests = source()
    first = requests(0)
    requests.answered(0, first, answer("I see."))

    second = messages(requests(0))

    assert second[:2] == [*messages(first), ("assistant", "I see.")]
    assert [role for role, _ in second] == ["user", "assistant", "user"]


def test_stream_begins_another_session_after_the_last_turn() -> None:
    """After two turns the stream sends a first turn again, of a session nobody had."""
    requests = source()
    sent = []
    for _ in range(4):
        request = requests(0)
        requests.answered(0, request, answer("Yes."))
        sent.append(messages(request))

    assert [len(turn) for turn in sent] == [1, 3, 1, 3]
    assert sent[0] != sent[2]


def test_turn_without_a_whole_answer_ends_its_session() -> None:
    """What would follow a failed turn is not known, so the stream begins anew."""
    requests = source()
    first = requests(0)
    requests.answered(0, first, answer("I s", Failure(FailureKind.EARLY_END, "gone")))

    second = messages(requests(0))

    assert len(second) == 1
    assert second != messages(first)


def test_streams_do_not_mix() -> None:
    """Each stream follows a session of its own, whatever order answers come in."""
    requests = source()
    first = [requests(stream) for stream in range(2)]
    requests.answered(1, first[1], answer("one"))
    requests.answered(0, first[0], answer("zero"))

    second = [messages(requests(stream)) for stream in range(2)]

    assert [turn[1][1] for turn in second] == ["zero", "one"]
    assert [turn[:1] for turn in second] == [messages(request) for request in first]


@pytest.mark.parametrize("of", [1, 2])
def test_sessions_of_shares_are_disjoint(of: int) -> None:
    """No two shares hold the same session, and together they hold them all."""
    shares = [source(index, of) for index in range(of)]
    begun = [requests(stream).prompt_id for requests in shares for stream in range(4 // of)]

    assert sorted(begun) == [f"synthetic-{2 * number}" for number in (0, 1, 2, 3)]


def test_only_conversations_are_told_of_answers() -> None:
    """Plain requests cost nothing between two requests; sessions listen."""
    plain = make_test(workload=replace(SESSIONS, turns=1)).requests(Share(0, 1))

    assert isinstance(plain, Numbered)
    assert not isinstance(plain, Listening)
    assert isinstance(source(), Listening)
