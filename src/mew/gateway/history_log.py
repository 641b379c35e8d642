"""The logs of envelopes and of capability decisions, one line of JSON each (protocol §7).

A thread formats and writes the lines. A log that falls behind reports how many lines it left out. Joins and invitations
are logged without their tokens.
"""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mew._internal.files import ensure_folder
from mew._internal.logging import log
from mew.protocol import Checked, Record, kinds, raw_json, records
from mew.protocol.rate_limit import Bucket
from mew.protocol.timestamps import rfc3339

QUEUED_BYTES: Final = 64 * 2**20
ROTATED_BYTES: Final = 64 * 2**20
KEPT_FILES: Final = 5
WRITE_SECONDS: Final = 0.002
"""How long lines are gathered: scripts look for a line as soon as they have the answer to a post."""
WRITE_BYTES: Final = 2**18
"""What is made before it is written: while a file takes bytes, the loop goes on."""
KEPT_ENDS: Final = 20_000
LINE_BYTES: Final = 256
"""About what a line has besides the envelope."""
CROWD_BYTES: Final = 64 * 2**20
CROWD_BYTES_PER_SECOND: Final = 16 * 2**20
"""Of lines about who came and went, at once and in the long run. Where thousands come at once there are millions of
such lines: to write them takes longer than all the rest, and most of them would be rotated away within a second."""
_CROWDED: Final = frozenset({kinds.PRESENCE, kinds.WELCOME})

Made = Callable[..., bytes]
"""Makes lines of what it is given, or none; without the last line's end."""


class LineLog:
    """A file of lines, appended to by a thread, rotated by size, never truncated."""

    def __init__(self, path: Path, *, rotated_bytes: int = ROTATED_BYTES, queued_bytes: int = QUEUED_BYTES) -> None:
        """Folders are made; the file is opened with the first line."""
        ensure_folder(path.parent)
        self._path = path
        self._rotated_bytes = rotated_bytes
        self._queued_bytes = queued_bytes
        self._queue: deque[tuple[int, Made, tuple[Any, ...]]] = deque()
        # Each of these is written by one thread only: the loop's, and the log's own.
        self._put_bytes = 0
        self._written_bytes = 0
        self._left_out = 0
        self._told_left_out = 0
        self._something = threading.Event()
        """There is something to write, or the end has come."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        """Begins with the first line."""

    def put(self, made: Made, *given: Any, size: int, lines: int = 1) -> None:
        """Have so many lines made of this and written, about so many bytes."""
        if self._put_bytes - self._written_bytes + size > self._queued_bytes:
            self.leave_out(lines)
            return
        self._put_bytes += size
        self._queue.append((size, made, given))
        self._write_soon()

    def leave_out(self, lines: int) -> None:
        """Have it written that so many lines are missing."""
        self._left_out += lines
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._something.is_set():
            self._something.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_on, name=f"log {self._path.name}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write what is left; no line is lost by an orderly stop."""
        self._stopping.set()
        self._something.set()
        if self._thread is not None:
            self._thread.join()

    def _write_on(self) -> None:
        """Wait for something, gather for a moment, write."""
        while not self._stopping.is_set():
            self._something.wait()
            self._stopping.wait(WRITE_SECONDS)
            self._something.clear()
            self._write()
        self._write()

    def _write(self) -> None:
        left_out = self._left_out
        while self._queue or left_out > self._told_left_out:
            lines, taken = [], 0
            while self._queue and taken < WRITE_BYTES:
                size, made, given = self._queue.popleft()
                taken += size
                made_of_it = made(*given)
                if made_of_it:
                    lines.append(made_of_it)
            if not self._queue and left_out > self._told_left_out:
                lines.append(raw_json.encode({"event": "dropped", "count": left_out - self._told_left_out}))
                self._told_left_out = left_out
            if lines:
                self._append(b"\n".join([*lines, b""]))
            self._written_bytes += taken

    def _append(self, text: bytes) -> None:
        """Write lines; where that cannot be done they are lost, and the log goes on when there is room again."""
        try:
            with self._path.open("ab", buffering=0) as file:
                left = memoryview(text)
                while left:
                    left = left[file.write(left) :]
                size = file.tell()
            if size > self._rotated_bytes:
                self._rotate()
        except OSError as error:
            log.warning("lines of a log are lost", file=str(self._path), problem=error.strerror)

    def _rotate(self) -> None:
        """`history.jsonl` becomes `history.jsonl.1`, and so on; the oldest goes."""
        for number in range(KEPT_FILES, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            if newer.exists():
                newer.replace(older)


class EnvelopeHistory:
    """What came in and what went out, envelope by envelope."""

    def __init__(self, log: LineLog, space_id: str) -> None:
        """Write to this log."""
        self._log = log
        self._space_id = raw_json.encode(space_id)
        self._crowd: Bucket | None = None
        self._ends: dict[tuple[str, str], bytes] = {}
        """How the lines of a recipient end: the same for one envelope after another."""

    def received(self, record: Record, transport: str) -> None:
        """An envelope of a participant, refused ones too."""
        self._log.put(self._received, record, transport, size=2 * len(record.payload) + LINE_BYTES)

    def _received(self, record: Record, transport: str) -> bytes:
        first = _beginning("received", record) + self._end(record.participant, "inbound", transport)
        if record.event != records.REJECTED:
            return first
        metadata = raw_json.encode({"reason": record.reason})
        end = self._end(record.participant, "inbound", transport, metadata)
        return first + b"\n" + _beginning("rejected", record) + end

    def delivered(self, record: Record, recipients: list[tuple[str, str]], without: str | None = None) -> None:
        """An envelope to each of its recipients but one, given with how they are connected."""
        count = len(recipients)
        size = (len(record.payload) + LINE_BYTES) * count
        if record.kind in _CROWDED and not self._has_room(size, record.time):
            self._log.leave_out(count)
        elif recipients:
            self._log.put(self._delivered, record, recipients, without, size=size, lines=count)

    def _has_room(self, size: int, now: int) -> bool:
        """Whether lines about who came and went may have more bytes; these are counted."""
        bucket = self._crowd
        if bucket is None:
            bucket = self._crowd = Bucket(CROWD_BYTES_PER_SECOND, CROWD_BYTES, now)
        if bucket.wait(now):
            return False
        bucket.charge(now, size)
        return True

    def _delivered(self, record: Record, recipients: list[tuple[str, str]], without: str | None) -> bytes:
        beginning = _beginning("delivered", record)
        if len(self._ends) > KEPT_ENDS:
            self._ends.clear()
        ends = [self._ends.get(each) or self._new_end(each) for each in recipients if each[0] != without]
        return beginning + (b"\n" + beginning).join(ends) if ends else b""

    def _new_end(self, recipient: tuple[str, str]) -> bytes:
        end = self._ends[recipient] = self._end(recipient[0], "outbound", recipient[1])
        return end

    def _end(self, participant: str, direction: str, transport: str, metadata: bytes = b"{}") -> bytes:
        return b'%b,"space_id":%b,"direction":"%b","transport":"%b","metadata":%b}' % (
            raw_json.encode(participant),
            self._space_id,
            direction.encode(),
            transport.encode(),
            metadata,
        )

    def close(self) -> None:
        """Write what is left."""
        self._log.close()


def _beginning(event: str, record: Record) -> bytes:
    """A line of the history up to whose it is."""
    return b'{"timestamp":"%b","event":"%b","id":%b,"envelope":%b,"participant":' % (
        rfc3339(record.time).encode(),
        event.encode(),
        raw_json.encode(record.envelope_id),
        record.payload,
    )


class CapabilityDecisions:
    """Each question whether somebody may send something, and its answer."""

    def __init__(self, log: LineLog, space_id: str) -> None:
        """Write to this log."""
        self._log = log
        self._space_id = raw_json.encode(space_id)

    def decided(self, checked: Checked, now: int, held: bytes) -> None:
        """A decision; `held` is what the sender may send, as JSON."""
        self._log.put(self._line, checked, now, held, size=len(held) + LINE_BYTES)

    def _line(self, checked: Checked, now: int, held: bytes) -> bytes:
        decision, encode = checked.decision, raw_json.encode
        asked = b'{"timestamp":"%b","event":"capability_check","envelope_id":%b,"participant":%b,"space_id":%b' % (
            rfc3339(now).encode(),
            encode(checked.envelope_id),
            encode(checked.participant),
            self._space_id,
        )
        answer = b',"result":"%b","required_capability":%b,"matched_capability":%b,"matched_source":%b' % (
            b"allowed" if decision.allowed else b"denied",
            encode(checked.kind),
            b"null" if decision.capability is None else decision.capability.text,
            encode(decision.source),
        )
        metadata = b"{}" if decision.allowed else encode({"reason": decision.reason})
        return asked + answer + b',"granted_capabilities":%b,"metadata":%b}' % (held, metadata)

    def close(self) -> None:
        """Write what is left."""
        self._log.close()
