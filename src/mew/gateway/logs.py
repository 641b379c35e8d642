"""The logs that people and scripts read: envelope history and capability decisions, a line of JSON each (protocol §7).

Lines are made and written by a thread of their own; the loop only hands over what they are made of. A log that falls
too far behind says how many lines it left out. No token is written: joins and invitations come here without theirs.
"""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mew.protocol import Checked, Record, jsontext, records
from mew.protocol.times import rfc3339

QUEUED_BYTES: Final = 64 * 2**20
ROTATED_BYTES: Final = 64 * 2**20
KEPT_FILES: Final = 5
WRITE_SECONDS: Final = 0.05

Line = Callable[[], bytes]


class LineLog:
    """A file of lines, appended to by a thread, rotated by size, never truncated."""

    def __init__(self, path: Path, *, rotated_bytes: int = ROTATED_BYTES, queued_bytes: int = QUEUED_BYTES) -> None:
        """Folders are made; the file is opened with the first line."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._rotated_bytes = rotated_bytes
        self._queued_bytes = queued_bytes
        self._queue: deque[tuple[Line, int]] = deque()
        self._queued = 0
        self._dropped = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name=f"log {path.name}", daemon=True)
        self._thread.start()

    def put(self, line: Line, size: int) -> None:
        """Have a line written that will be about this long."""
        if self._queued + size > self._queued_bytes:
            self._dropped += 1
            return
        self._queued += size
        self._queue.append((line, size))

    def close(self) -> None:
        """Write what is left; no line is lost by an orderly stop."""
        self._stopping.set()
        self._thread.join()

    def _write_on(self) -> None:
        while not self._stopping.wait(WRITE_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        lines = []
        while self._queue:
            line, size = self._queue.popleft()
            self._queued -= size
            lines.append(line())
        if self._dropped:
            lines.append(jsontext.encode({"event": "dropped", "count": self._dropped}))
            self._dropped = 0
        if not lines:
            return
        with self._path.open("ab", buffering=0) as file:
            file.write(b"\n".join(lines) + b"\n")
            size = file.tell()
        if size > self._rotated_bytes:
            self._rotate()

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
        self._space_id = space_id

    def received(self, record: Record, transport: str) -> None:
        """An envelope of a participant, refused ones too."""

        def line() -> bytes:
            first = self._line("received", record, record.participant, transport, {})
            if record.event != records.REJECTED:
                return first
            reason = {"reason": record.reason}
            return first + b"\n" + self._line("rejected", record, record.participant, transport, reason)

        self._log.put(line, 2 * len(record.payload))

    def delivered(self, record: Record, recipients: list[tuple[str, str]]) -> None:
        """An envelope to each of its recipients, given with how they are connected."""

        def line() -> bytes:
            return b"\n".join(self._line("delivered", record, name, transport, {}) for name, transport in recipients)

        if recipients:
            self._log.put(line, len(record.payload) * len(recipients))

    def _line(self, event: str, record: Record, participant: str, transport: str, metadata: dict[str, Any]) -> bytes:
        return jsontext.join(
            {
                "timestamp": jsontext.encode(rfc3339(record.time)),
                "event": jsontext.encode(event),
                "id": jsontext.encode(record.envelope_id),
                "envelope": record.payload,
                "participant": jsontext.encode(participant),
                "space_id": jsontext.encode(self._space_id),
                "direction": b'"outbound"' if event == "delivered" else b'"inbound"',
                "transport": jsontext.encode(transport),
                "metadata": jsontext.encode(metadata),
            }
        )

    def close(self) -> None:
        """Write what is left."""
        self._log.close()


class CapabilityDecisions:
    """Each question whether somebody may send something, and its answer."""

    def __init__(self, log: LineLog, space_id: str) -> None:
        """Write to this log."""
        self._log = log
        self._space_id = space_id

    def decided(self, checked: Checked, now: int, held: bytes) -> None:
        """A decision; `held` is what the sender may send, as JSON."""
        decision = checked.decision

        def line() -> bytes:
            return jsontext.join(
                {
                    "timestamp": jsontext.encode(rfc3339(now)),
                    "event": b'"capability_check"',
                    "envelope_id": jsontext.encode(checked.envelope_id),
                    "participant": jsontext.encode(checked.participant),
                    "space_id": jsontext.encode(self._space_id),
                    "result": b'"allowed"' if decision.allowed else b'"denied"',
                    "required_capability": jsontext.encode(checked.kind),
                    "matched_capability": b"null" if decision.capability is None else decision.capability.text,
                    "matched_source": jsontext.encode(decision.source),
                    "granted_capabilities": held,
                    "metadata": b"{}" if decision.allowed else jsontext.encode({"reason": decision.reason}),
                }
            )

        self._log.put(line, len(held) + 512)

    def close(self) -> None:
        """Write what is left."""
        self._log.close()
