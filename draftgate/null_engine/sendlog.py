"""Reading a null engine's send log: the truth that a load generator is held against.

Stamps are of CLOCK_MONOTONIC, which all processes of one machine share, taken
right before the send call. Knows nothing of the run that the log belongs to;
requests are matched by key.
"""

import http.client
import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from draftgate.errors import EngineError, MeasurementError
from draftgate.null_engine.record import COLUMNS, MAGIC, SIZES
from draftgate.null_engine.writes import (
    BLOCKED,
    KIND_MASK,
    KIND_SHIFT,
    TOKENS_MASK,
    Ending,
    EventKind,
)

_FETCH_TIMEOUT_S = 60.0
"""Long enough for some hundred megabytes of JSON, which the engine builds in one go."""


@dataclass(frozen=True, slots=True, eq=False)
class SentStream:
    """What was sent for one request. Arrays have one entry per write, in order of sending.

    Attributes:
        number: Running number of the request, from 1.
        key: `X-Request-Id` of the client, or the number as text.
        route: Path it came to.
        prompt: First 64 characters of the prompt; of a chat's last message.
        prompt_tokens: Length that usage names.
        max_tokens: Length asked for.
        arrived_ns: When its last byte arrived, by the kernel where it stamps receives.
        faults: Names of the faults that hit it, as in `FaultKind`.
        ending: How it ended.
        due_ns: When each write was due, ns; shape (n_writes,).
        sent_ns: When each was sent, ns; shape (n_writes,). Of an event cut
            into pieces it is the last piece's, which completes it.
        tokens: Tokens in each; shape (n_writes,).
        kinds: `EventKind` of each; shape (n_writes,).
        blocked: Whether the socket took only a part at first; shape (n_writes,).
    """

    number: int
    key: str
    route: str
    prompt: str
    prompt_tokens: int
    max_tokens: int
    arrived_ns: int
    faults: tuple[str, ...]
    ending: Ending
    due_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    tokens: NDArray[np.int64]
    kinds: NDArray[np.int64]
    blocked: NDArray[np.bool_]

    @property
    def step_ns(self) -> NDArray[np.int64]:
        """Return when each step's event was sent, ns; shape (n_steps,)."""
        return np.compress(self.kinds == EventKind.TOKENS, self.sent_ns)

    @property
    def step_tokens(self) -> NDArray[np.int64]:
        """Return the tokens of each step; shape (n_steps,)."""
        return np.compress(self.kinds == EventKind.TOKENS, self.tokens)


def read_log(path: Path) -> tuple[SentStream, ...]:
    """Return the streams in a log file, in the order in which they ended.

    Raises:
        MeasurementError: If the file is absent, no send log, of another
            version or byte order, or breaks off.
    """
    try:
        with path.open("rb") as file:
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise MeasurementError(
            f"send log {path}: cannot be read: {error}. Start the null engine with --log {path}."
        ) from error
    if whole[: len(MAGIC)] != MAGIC:
        raise MeasurementError(
            f"send log {path}: begins with {whole[: len(MAGIC)]!r}, expected {MAGIC!r}. Read it "
            "with the version and on the kind of machine that wrote it."
        )
    return tuple(_read_streams(memoryview(whole), path))


def fetch_log(url: str) -> tuple[SentStream, ...]:
    """Return the streams that a running null engine has in memory, the open ones last.

    The engine is busy while it answers: ask when nothing is being measured.

    Args:
        url: Its base address, for example `http://127.0.0.1:8000`.

    Raises:
        EngineError: If it does not answer with a log.
    """
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port, timeout=_FETCH_TIMEOUT_S
    )
    try:
        connection.request("GET", "/log")
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise EngineError(
            f"null engine {url}: GET /log failed: {error!r}. Check that it runs there."
        ) from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise EngineError(
            f"null engine {url}: GET /log gave status {answer.status}, expected 200: "
            f"{body[:200]!r}. Where it writes a file, read that with `read_log`."
        )
    return tuple(_stream_of(header) for header in json.loads(body)["streams"])


def _read_streams(data: memoryview, path: Path) -> Iterator[SentStream]:
    at = len(MAGIC)
    while at < len(data):
        if at + SIZES.size > len(data):
            raise _broken(path, at)
        header_bytes, writes = SIZES.unpack_from(data, at)
        begin = at + SIZES.size
        rows_begin = begin + header_bytes
        at = rows_begin + writes * COLUMNS * np.dtype(np.int64).itemsize
        if at > len(data):
            raise _broken(path, begin)
        header = json.loads(bytes(data[begin:rows_begin]))
        header["rows"] = np.frombuffer(data[rows_begin:at], np.int64)
        yield _stream_of(header)


def _broken(path: Path, at: int) -> MeasurementError:
    return MeasurementError(
        f"send log {path}: breaks off in the answer at byte {at}. Stop the null engine with "
        "SIGTERM, which writes the log to its end."
    )


def _stream_of(header: dict[str, Any]) -> SentStream:
    # A copy, so that columns are contiguous and nothing keeps the file mapped.
    due_ns, sent_ns, notes = np.asarray(header.pop("rows"), np.int64).reshape(-1, COLUMNS).T.copy()
    values = {
        **header,
        "faults": tuple(header["faults"]),
        "ending": Ending(header["ending"]),
        "due_ns": due_ns,
        "sent_ns": sent_ns,
        "tokens": notes & TOKENS_MASK,
        "kinds": notes >> KIND_SHIFT & KIND_MASK,
        "blocked": notes & BLOCKED != 0,
    }
    return SentStream(**values)
