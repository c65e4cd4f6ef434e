"""The send log while it is written: true send times, one entry per write.

Costs 24 bytes per write in memory. With a file, each answer goes there when it
ends, so that memory is bound by the open ones. `sendlog` reads what is written
here and says what it means. Reads no clock: stamps are the engine's.
"""

import json
import struct
import sys
from array import array
from pathlib import Path
from typing import Any, BinaryIO

from draftgate.null_engine.writes import Ending, Work

MAGIC = f"draftgate send log 1 {sys.byteorder}\n".encode()
"""First line of a file; the number is raised when the format changes."""
SIZES = struct.Struct("<II")
"""Before each answer: bytes of its JSON header, number of its writes."""
COLUMNS = 3
"""Numbers per write: due time, send time, note."""


class StreamRecord:
    """What was sent for one request; the engine's loop appends to it.

    Attributes:
        work: The request.
        rows: Three numbers per write: when it was due, the clock right before
            its send call (both monotonic, ns), and its note. One array, for
            with thousands of streams the cache is what a write costs most.
        ending: How it ended.
    """

    __slots__ = ("ending", "rows", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.rows = array("q")
        self.ending = Ending.OPEN

    def header(self) -> dict[str, Any]:
        """Return all but the writes, as JSON values."""
        work, ask = self.work, self.work.ask
        return {
            "number": work.number,
            "key": work.key,
            "route": ask.route.value,
            "prompt": ask.prompt,
            "prompt_tokens": ask.prompt_tokens,
            "max_tokens": ask.max_tokens,
            "arrived_ns": work.arrived_ns,
            "faults": [fault.value for fault in work.faults],
            "ending": self.ending.value,
        }

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON values, for `GET /log`."""
        return {**self.header(), "rows": list(self.rows)}

    def to_bytes(self) -> bytes:
        """Return it as it stands in a file."""
        header = json.dumps(self.header()).encode()
        sizes = SIZES.pack(len(header), len(self.rows) // COLUMNS)
        return b"".join((sizes, header, self.rows.tobytes()))


class SendLog:
    """The answers that have ended, in memory or in a file.

    Args:
        path: File to write, replaced if it exists; None keeps all in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._ended: list[StreamRecord] = []
        self._file: BinaryIO | None = None
        self._clean = True
        if path is not None:
            self._file = path.open("wb")
            self._file.write(MAGIC)

    def add(self, record: StreamRecord) -> None:
        """Take an answer that has ended."""
        if self._file is None:
            self._ended.append(record)
        else:
            self._file.write(record.to_bytes())
            self._clean = False

    def ended(self) -> tuple[StreamRecord, ...]:
        """Return the answers that are held in memory; none if there is a file."""
        return tuple(self._ended)

    def flush(self) -> None:
        """Hand what is buffered to the system; costs nothing if nothing is."""
        if self._file is not None and not self._clean:
            self._file.flush()
            self._clean = True

    def clear(self) -> None:
        """Forget all answers that have ended."""
        self._ended.clear()
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(MAGIC)
            self._clean = False

    def close(self) -> None:
        """Write what is left and close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
