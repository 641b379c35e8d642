"""Exports records for other programs: selects records, and encodes each one as a line of JSON.

It reads the journal through `Journal` and changes nothing. An exported file gets its name once it is complete.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final, Literal

import msgspec

from mew._internal.files import replacing
from mew.journal import JournalError
from mew.journal.reader import Journal, is_data_record
from mew.protocol import raw_json
from mew.protocol.records import ENVELOPE, FRAME, FRAME_REJECTED, Record
from mew.protocol.timestamps import rfc3339

_Count = Annotated[int, msgspec.Meta(ge=0)]
_NO_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")


class RecordFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects records. A field with its default value does not restrict the selection."""

    first: int = 0
    last: int | None = None
    since: int | None = None
    """Only records of this time or later, in microseconds since 1970."""
    until: int | None = None
    """Only records before this time."""
    control: bool = False
    """Leave out frames and stream data."""
    streams: frozenset[str] = frozenset()
    participants: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()

    @property
    def only_control(self) -> bool:
        """Whether no frames file needs to be opened."""
        return self.control or (bool(self.events) and not self.events & {FRAME, ENVELOPE})

    def start_position(self, journal: Journal) -> int:
        """Return the position from which to read; no earlier record is selected."""
        return self.first if self.since is None else max(self.first, journal.position_at(self.since))

    def selects(self, record: Record) -> bool:
        """Whether a record is selected."""
        return (
            record.position >= self.first
            and (self.since is None or record.time >= self.since)
            and not self.is_after_end(record)
            and not (self.control and is_data_record(record))
            and (not self.streams or record.stream_id in self.streams)
            and (not self.participants or record.participant in self.participants)
            and (not self.events or record.event in self.events)
        )

    def is_after_end(self, record: Record) -> bool:
        """Whether neither this record nor any later one is selected."""
        if self.last is not None and record.position > self.last:
            return True
        return self.until is not None and record.time >= self.until

    def candidates(self, journal: Journal) -> Iterator[Record]:
        """Yield all records of a journal in the range that can contain selected ones, in order."""
        for record in journal.records(self.start_position(journal), last=self.last, control=self.only_control):
            if self.is_after_end(record):
                return
            yield record

    def select(self, journal: Journal) -> Iterator[Record]:
        """Yield the selected records of a journal, in order."""
        return filter(self.selects, self.candidates(journal))


_WIDER: Final = 8
"""Factor by which the search range grows with each attempt."""


def last_records(journal: Journal, record_filter: RecordFilter, count: int) -> tuple[list[Record], int]:
    """Return up to `count` selected records from the end, and the position after the last record of the journal."""
    end, first = journal.last, journal.first
    if end is None or first is None:
        return [], 0
    begin, span = max(first, record_filter.start_position(journal)), count
    last = end if record_filter.last is None else min(end, record_filter.last)
    while True:
        start = max(begin, last + 1 - span)
        nearest = msgspec.structs.replace(record_filter, first=start, last=last, since=None)
        selected = deque((record for record in nearest.candidates(journal) if record_filter.selects(record)), count)
        if len(selected) == count or start == begin:
            return list(selected), end + 1
        span *= _WIDER


class RecordBody(msgspec.Struct):
    """A record as JSON, with the columns of the journal in order."""

    position: _Count
    time: Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
    event: str
    participant: str | None = None
    kind: str | None = None
    envelope_id: str | None = None
    stream_id: str | None = None
    frame_number: _Count | None = None
    sequence: _Count | None = None
    reason: str | None = None
    size: _Count | None = None
    payload: msgspec.Raw | msgspec.UnsetType | None = msgspec.UNSET
    payload_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    """Replaces `payload` if that is not JSON."""
    capability: str | None = None
    withheld: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    """The caller of the HTTP API may not see the content.

    Only position, time and event are set; frames also have stream and number, rejections also have a reason.
    """


def record_body(record: Record) -> RecordBody:
    """Return a record without its payload."""
    return RecordBody(
        record.position,
        rfc3339(record.time),
        record.event,
        record.participant,
        record.kind,
        record.envelope_id,
        record.stream_id,
        record.frame_number,
        record.sequence,
        record.reason,
        record.size,
        capability=record.capability,
    )


def record_to_json(record: Record) -> bytes:
    """Encode a record as one line. Envelopes keep their JSON with all digits; other bytes are base64."""
    body = record_body(record)
    if record.event in (FRAME, FRAME_REJECTED):
        body.payload_base64 = record.payload
    elif not record.payload:
        body.payload = None
    elif is_json(record.payload):
        body.payload = msgspec.Raw(without_line_breaks(record.payload))
    else:
        body.payload_base64 = record.payload
    return raw_json.encode_json(body)


def without_line_breaks(json: bytes) -> bytes:
    """Replace line breaks by spaces. JSON may have them between tokens, but not within them."""
    return json.translate(_NO_BREAKS)


def is_json(payload: bytes) -> bool:
    """Whether bytes are valid JSON text."""
    try:
        raw_json.decode_json(payload, raw_json.MAX_NESTING_SENT)
    except raw_json.NotJSON:
        return False
    return True


def write_jsonl(records: Iterable[Record], file: IO[bytes]) -> int:
    """Write one line per record; return the number of records."""
    count = 0
    for record in records:
        file.write(record_to_json(record) + b"\n")
        count += 1
    return count


class JournalExportError(JournalError):
    """The export cannot be written; the message gives the reason."""


@contextmanager
def complete_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file with a temporary name. It is renamed to `path` on success, and deleted on failure."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise JournalExportError(f"{path}: {error.strerror or error}") from None
