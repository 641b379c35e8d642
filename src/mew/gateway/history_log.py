"""The logs of envelopes and of capability decisions, one line of JSON each (protocol §7).

A thread formats and writes the lines. A log that falls behind drops lines and reports how many. Joins and invitations
are logged without their tokens.
"""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mew._internal.files import ensure_folder
from mew._internal.logging import log
from mew.protocol import CapabilityChecked, Record, kinds, raw_json, records
from mew.protocol.limits import Bucket
from mew.protocol.timestamps import rfc3339

QUEUED_BYTES: Final = 64 * 2**20
ROTATED_BYTES: Final = 64 * 2**20
KEPT_FILES: Final = 5
WRITE_SECONDS: Final = 0.002
"""How long lines are batched. Short, because scripts look for a line right after the response to a post."""
WRITE_BYTES: Final = 2**18
"""Size of one batch. The event loop continues while the thread writes it to the file."""
KEPT_ENDS: Final = 20_000
LINE_BYTES: Final = 256
"""Approximate size of a line without its envelope."""
CROWD_BYTES: Final = 64 * 2**20
CROWD_BYTES_PER_SECOND: Final = 16 * 2**20
"""Limits for lines about joins and leaves: burst size, and long-term rate.

When thousands of participants join together, there are millions of such lines. Writing them takes longer than
everything else, and most of them would be rotated away within a second.
"""
_CROWDED: Final = frozenset({kinds.PRESENCE, kinds.WELCOME})

Formatter = Callable[..., bytes]
"""Formats its arguments as lines, without the last line end; returns empty bytes if there are none."""


class LineLog:
    """A file of lines: appended to by a thread, rotated by size, never truncated."""

    def __init__(self, path: Path, *, rotated_bytes: int = ROTATED_BYTES, queued_bytes: int = QUEUED_BYTES) -> None:
        """Create missing folders. The file is opened when the first line is written."""
        ensure_folder(path.parent)
        self._path = path
        self._rotated_bytes = rotated_bytes
        self._queued_bytes = queued_bytes
        self._queue: deque[tuple[int, Formatter, tuple[Any, ...]]] = deque()
        # Each of these is written by one thread only: the event loop's or the log's own.
        self._put_bytes = 0
        self._written_bytes = 0
        self._left_out = 0
        self._told_left_out = 0
        self._something = threading.Event()
        """Set when there are lines to write or the log is closing."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        """Started with the first line."""

    def put(self, format_lines: Formatter, *arguments: Any, size: int, lines: int = 1) -> None:
        """Queue `lines` lines, formatted later by `format_lines(*arguments)`, or drop them if the queue is full.

        `size` is their approximate total size in bytes.
        """
        if self._put_bytes - self._written_bytes + size > self._queued_bytes:
            self.leave_out(lines)
            return
        self._put_bytes += size
        self._queue.append((size, format_lines, arguments))
        self._write_soon()

    def leave_out(self, lines: int) -> None:
        """Record that `lines` lines are missing."""
        self._left_out += lines
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._something.is_set():
            self._something.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_on, name=f"log {self._path.name}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write the remaining lines and stop the thread. An orderly stop loses no lines."""
        self._stopping.set()
        self._something.set()
        if self._thread is not None:
            self._thread.join()

    def _write_on(self) -> None:
        """Wait for lines, batch for a short time, then write, until the log is closed."""
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
                size, format_lines, arguments = self._queue.popleft()
                taken += size
                formatted = format_lines(*arguments)
                if formatted:
                    lines.append(formatted)
            if not self._queue and left_out > self._told_left_out:
                lines.append(raw_json.encode_json({"event": "dropped", "count": left_out - self._told_left_out}))
                self._told_left_out = left_out
            if lines:
                self._append(b"\n".join([*lines, b""]))
            self._written_bytes += taken

    def _append(self, text: bytes) -> None:
        """Append lines. If that fails they are lost; later lines are written when there is space again."""
        try:
            with self._path.open("ab", buffering=0) as file:
                left = memoryview(text)
                while left:
                    left = left[file.write(left) :]
                size = file.tell()
            if size > self._rotated_bytes:
                self._rotate()
        except OSError as error:
            log.warning("lines of a log are lost", file=str(self._path), error=error.strerror)

    def _rotate(self) -> None:
        """Rename `history.jsonl` to `history.jsonl.1` and so on; the oldest file is overwritten."""
        for number in range(KEPT_FILES, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            if newer.exists():
                newer.replace(older)


class EnvelopeHistory:
    """Logs received, rejected and delivered envelopes."""

    def __init__(
        self,
        log: LineLog,
        space_id: str,
        *,
        crowd_bytes: int = CROWD_BYTES,
        crowd_bytes_per_second: int = CROWD_BYTES_PER_SECOND,
    ) -> None:
        """Write to this log."""
        self._log = log
        self._space_id = raw_json.encode_json(space_id)
        self._crowd_limits = (crowd_bytes_per_second, crowd_bytes)
        self._crowd: Bucket | None = None
        self._ends: dict[tuple[str, str], bytes] = {}
        """Cached line ends per recipient; they are the same for every envelope."""

    def received(self, record: Record, transport: str) -> None:
        """Log an envelope from a participant, accepted or rejected."""
        self._log.put(self._received, record, transport, size=2 * len(record.payload) + LINE_BYTES)

    def _received(self, record: Record, transport: str) -> bytes:
        first = _beginning("received", record) + self._end(record.participant, "inbound", transport)
        if record.event != records.REJECTED:
            return first
        metadata = raw_json.encode_json({"reason": record.reason})
        end = self._end(record.participant, "inbound", transport, metadata)
        return first + b"\n" + _beginning("rejected", record) + end

    def delivered(self, record: Record, recipients: list[tuple[str, str]], without: str | None = None) -> None:
        """Log an envelope once per recipient, given as (name, transport), except for the participant `without`."""
        count = len(recipients)
        size = (len(record.payload) + LINE_BYTES) * count
        if record.kind in _CROWDED and not self._has_room(size, record.time):
            self._log.leave_out(count)
        elif recipients:
            self._log.put(self._delivered, record, recipients, without, size=size, lines=count)

    def _has_room(self, size: int, now: int) -> bool:
        """Return whether the limits allow `size` more bytes of join and leave lines; counts them if so."""
        bucket = self._crowd
        if bucket is None:
            bucket = self._crowd = Bucket(*self._crowd_limits, now)
        if bucket.wait(now):
            return False
        bucket.charge(now, size)
        return True

    def _delivered(self, record: Record, recipients: list[tuple[str, str]], without: str | None) -> bytes:
        beginning = _beginning("delivered", record)
        if len(self._ends) > KEPT_ENDS:
            self._ends.clear()
        ends = [
            self._ends.get(recipient) or self._new_end(recipient) for recipient in recipients if recipient[0] != without
        ]
        return beginning + (b"\n" + beginning).join(ends) if ends else b""

    def _new_end(self, recipient: tuple[str, str]) -> bytes:
        end = self._ends[recipient] = self._end(recipient[0], "outbound", recipient[1])
        return end

    def _end(self, participant: str, direction: str, transport: str, metadata: bytes = b"{}") -> bytes:
        return b'%b,"space_id":%b,"direction":"%b","transport":"%b","metadata":%b}' % (
            raw_json.encode_json(participant),
            self._space_id,
            direction.encode(),
            transport.encode(),
            metadata,
        )

    def close(self) -> None:
        """Write the remaining lines."""
        self._log.close()


def _beginning(event: str, record: Record) -> bytes:
    """Return the start of a history line, up to the participant."""
    return b'{"timestamp":"%b","event":"%b","id":%b,"envelope":%b,"participant":' % (
        rfc3339(record.time).encode(),
        event.encode(),
        raw_json.encode_json(record.envelope_id),
        record.payload,
    )


class CapabilityDecisions:
    """Logs each permission check and its result."""

    def __init__(self, log: LineLog, space_id: str) -> None:
        """Write to this log."""
        self._log = log
        self._space_id = raw_json.encode_json(space_id)

    def decided(self, checked: CapabilityChecked, now: int, capabilities: bytes) -> None:
        """Log a decision. `capabilities` is the sender's capabilities as JSON."""
        self._log.put(self._line, checked, now, capabilities, size=len(capabilities) + LINE_BYTES)

    def _line(self, checked: CapabilityChecked, now: int, capabilities: bytes) -> bytes:
        decision, encode = checked.decision, raw_json.encode_json
        beginning = b'{"timestamp":"%b","event":"capability_check","envelope_id":%b,"participant":%b,"space_id":%b' % (
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
        return beginning + answer + b',"granted_capabilities":%b,"metadata":%b}' % (capabilities, metadata)

    def close(self) -> None:
        """Write the remaining lines."""
        self._log.close()
