"""What a null engine answers besides generation: health, models, metrics and its log.

From the engine's numbers to bytes; opens nothing and keeps nothing.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from draftgate.null_engine import documents
from draftgate.null_engine.record import SendLog, StreamRecord


@dataclass(slots=True)
class Totals:
    """What an engine has counted since it started.

    Attributes:
        requests: Generation requests taken.
        prompt_tokens: Tokens of their prompts.
        generation_tokens: Tokens sent.
    """

    requests: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """What pages may show of an engine.

    Attributes:
        model: The model that it lists.
        totals: What it has counted.
        log: Its send log.
        running: Records of the answers on their way.
    """

    model: str
    totals: Totals
    log: SendLog
    running: tuple[StreamRecord, ...]


def page(where: str, state: State) -> bytes:
    """Return the whole response to a request that asks for no generation.

    Args:
        where: Method and path, for example "GET /health".
        state: The engine as it is now; `DELETE /log` clears its log.
    """
    make = _PAGES.get(where)
    return error_page(404, f"no route {where}") if make is None else make(state)


def error_page(status: int, message: str) -> bytes:
    """Return an error in OpenAI's form."""
    return documents.response(status, documents.error_document(message, status))


def _health(_: State) -> bytes:
    return documents.response(200, b"")


def _models(state: State) -> bytes:
    card = {"id": state.model, "object": "model", "owned_by": "draftgate"}
    return documents.response(200, json.dumps({"object": "list", "data": [card]}).encode())


def _metrics(state: State) -> bytes:
    """The names of vLLM that a null engine can serve."""
    totals = state.totals
    label = f'{{engine="0",model_name={json.dumps(state.model)}}}'
    values = (
        ("counter", "vllm:prompt_tokens_total", totals.prompt_tokens),
        ("counter", "vllm:generation_tokens_total", totals.generation_tokens),
        ("gauge", "vllm:num_requests_running", len(state.running)),
        ("gauge", "vllm:num_requests_waiting", 0),
        ("counter", "vllm:request_queue_time_seconds_sum", 0),
        ("counter", "vllm:request_queue_time_seconds_count", totals.requests),
    )
    lines = [f"# TYPE {name} {kind}\n{name}{label} {value}\n" for kind, name, value in values]
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return documents.response(200, "".join(lines).encode(), kind)


def _log(state: State) -> bytes:
    """All answers, those still running last.

    Where the log is a file it is brought up to date, and the answer is status
    409 with its path: what may be gigabytes is not sent.
    """
    log = state.log
    if log.path is not None:
        log.flush()
        said = f"the log is in {log.path}, up to the latest answer that ended; read it there"
        return error_page(409, said)
    streams = [record.document() for record in (*log.ended(), *state.running)]
    return documents.response(200, json.dumps({"streams": streams}).encode())


def _clear_log(state: State) -> bytes:
    state.log.clear()
    return documents.response(200, b"")


_PAGES: dict[str, Callable[[State], bytes]] = {
    "GET /health": _health,
    "GET /v1/models": _models,
    "GET /metrics": _metrics,
    "GET /log": _log,
    "DELETE /log": _clear_log,
}
