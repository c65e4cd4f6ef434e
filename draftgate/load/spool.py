"""Ended exchanges on disk until they are parsed, so that memory does not grow with a run.

The receive path appends whole exchanges to segment files; `convert` turns a
segment into a Parquet file of records and removes it, in another process or
after the run. Segments are our own pickles, read by nobody else.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from draftgate.errors import MeasurementError
from draftgate.files import replacing
from draftgate.load.generator import HealthTally
from draftgate.load.state import SentWire
from draftgate.requestfile import RequestWriter

SEGMENT_BYTES = 32 << 20
"""Size from which a segment is closed: some 100,000 tokens of 300 bytes."""

_FRAME = 8


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a run that one of several processes does: every `of`-th number."""

    index: int
    of: int

    def number(self, local: int) -> int:
        """Return the number in the whole run of the share's `local`-th."""
        return local * self.of + self.index

    def size(self, total: int) -> int:
        """Return how many of `total` numbers are in the share."""
        return (total - self.index + self.of - 1) // self.of


WHOLE = Share(0, 1)
"""All of a run, done by one process."""


class SpoolSink:
    """Appends exchanges to segments `SHARE-00000.spool` in a folder.

    A segment has that name once it is complete; the one being written ends in
    `.part`.

    Args:
        folder: Where; must exist.
        share: Which part of the run this process does; numbers of requests and
            streams are made those of the whole run by it.

    Raises:
        MeasurementError: From `take` and `close`, if it cannot be written.
    """

    def __init__(self, folder: Path, share: Share = WHOLE) -> None:
        self._folder = folder
        self._share = share
        self._count = 0
        self._size = 0
        self._file: BinaryIO | None = None

    def take(self, sent: SentWire) -> None:
        """Append one exchange."""
        frame = pickle.dumps(self._whole(sent), protocol=5)
        try:
            if self._file is None:
                self._file = self._part().open("wb", buffering=1 << 20)
            self._file.write(len(frame).to_bytes(_FRAME, "little"))
            self._file.write(frame)
        except OSError as error:
            raise _full(self._folder, error) from error
        self._size += len(frame)
        if self._size >= SEGMENT_BYTES:
            self.close()

    def close(self) -> None:
        """Complete the segment that is open, if any."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            file.close()
            self._part().rename(self._folder / f"{self._name()}.spool")
        except OSError as error:
            raise _full(self._folder, error) from error
        self._count += 1
        self._size = 0

    def _whole(self, sent: SentWire) -> SentWire:
        """Return it with the numbers of the whole run, and without the prompt."""
        share = self._share
        return replace(
            sent,
            index=share.number(sent.index),
            stream=share.number(sent.stream),
            request=replace(sent.request, body=b""),
        )

    def _name(self) -> str:
        return f"{self._share.index:03d}-{self._count:05d}"

    def _part(self) -> Path:
        return self._folder / f"{self._name()}.part"


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """How exchanges become records.

    Attributes:
        secret: The API key, struck out of whatever the server said; not shown.
        keep_text: Whether records hold the output text.
    """

    secret: str | None
    keep_text: bool

    def __repr__(self) -> str:
        """Return it without the key."""
        return f"ParsePlan(keep_text={self.keep_text})"


def segments(folder: Path) -> tuple[Path, ...]:
    """Return the complete segments of a folder, by name."""
    return tuple(sorted(folder.glob("*.spool")))


def convert(segment: Path, into: Path, plan: ParsePlan, tally: HealthTally) -> Path:
    """Turn one segment into a Parquet file of records in `into`, and remove it.

    Holds one batch of records in memory. The Parquet file appears whole or not
    at all, and the segment goes only after it.

    Returns:
        The Parquet file, named after the segment.

    Raises:
        MeasurementError: If one cannot be read or the other not be written.
    """
    path = into / f"{segment.stem}.parquet"
    try:
        with replacing(path) as part, RequestWriter(part) as writer:
            for sent in read_segment(segment):
                writer.add(tally.record(sent, secret=plan.secret, keep_text=plan.keep_text))
        segment.unlink()
    except OSError as error:
        raise _full(into, error) from error
    return path


def read_segment(segment: Path) -> Iterator[SentWire]:
    """Yield the exchanges of a segment in order of their end.

    Raises:
        OSError: If it cannot be read.
        MeasurementError: If it was cut off.
    """
    with segment.open("rb") as file:
        while head := file.read(_FRAME):
            length = int.from_bytes(head, "little")
            frame = file.read(length)
            if len(head) < _FRAME or len(frame) < length:
                raise MeasurementError(
                    f"spool {segment}: ends inside an exchange; the process that wrote it was "
                    "killed or the disk filled up. Measure again."
                )
            sent = pickle.loads(frame)  # noqa: S301 - written by this program in this run
            assert isinstance(sent, SentWire), "segments hold nothing else"
            yield sent


def _full(folder: Path, error: OSError) -> MeasurementError:
    return MeasurementError(
        f"records in {folder}: cannot be written ({error.strerror or error}). Free some space "
        "there, or choose another folder."
    )
