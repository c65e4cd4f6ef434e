"""From one request to the writes of its answer, each with its due time.

Pure: the engine's loop asks for one write after another and sends it when it
is due. The plain answer is made here; `faults` changes it where a rule of the
script says so.
"""

from collections.abc import Iterator

from draftgate.null_engine import documents, faults
from draftgate.null_engine.pace import Pace
from draftgate.null_engine.script import FaultKind, IdStyle, Script
from draftgate.null_engine.writes import EventKind, Route, Work, Write, note


def answer(work: Work, script: Script, pace: Pace) -> Iterator[Write]:
    """Return the writes of one answer, due times never falling.

    Args:
        work: The request, with the faults that hit it.
        script: What the engine does.
        pace: The schedule made from the same script.
    """
    if FaultKind.HTTP_ERROR in work.faults:
        return _refusal(work, script)
    plain = _stream(work, script, pace) if work.ask.stream else _whole(work, pace)
    return faults.apply(plain, work, script)


def _refusal(work: Work, script: Script) -> Iterator[Write]:
    body = documents.error_document(f"scripted error on request {work.number}", script.http_status)
    yield work.arrived_ns, documents.response(script.http_status, body), note(EventKind.ERROR)


def _whole(work: Work, pace: Pace) -> Iterator[Write]:
    *_, last = pace.steps(work.number, work.arrived_ns, work.num_tokens)
    body = documents.whole_document(work)
    yield last[0], documents.response(200, body), note(EventKind.WHOLE, work.num_tokens)


def _stream(work: Work, script: Script, pace: Pace) -> Iterator[Write]:
    total = work.num_tokens
    steps = pace.steps(work.number, work.arrived_ns, total)
    due_ns, given, count = next(steps)
    head_s = script.head_s
    head_ns = due_ns if head_s is None else work.arrived_ns + round(head_s * 1e9)
    yield head_ns, documents.STREAM_HEAD, note(EventKind.HEAD)
    events = _events(work, script)
    if work.ask.route is Route.CHAT:
        yield due_ns, documents.role_event(work), note(EventKind.ROLE)
    make = events.step
    while given + count < total:
        yield due_ns, make(given, count), count  # a note of tokens is their number
        due_ns, given, count = next(steps)
    yield due_ns, events.last_step(given, count), count
    if work.ask.include_usage and work.ask.route is not Route.GENERATE:
        yield due_ns, documents.usage_event(work), note(EventKind.USAGE)
    yield due_ns, documents.DONE, note(EventKind.DONE)
    yield due_ns, documents.END, note(EventKind.END)


def _events(work: Work, script: Script) -> documents.StepEvents:
    if work.ask.route is Route.GENERATE:
        return documents.SglangEvents(work, cumulative=script.sglang_ids is IdStyle.CUMULATIVE)
    return documents.OpenAIEvents(work)
