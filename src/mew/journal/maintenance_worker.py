"""The journal's maintenance worker: a process that seals, compacts and deletes segments, one request at a time.

`python -m mew.journal.maintenance_worker` reads requests as lines of JSON and writes one line per request. It exits at
the end of its input, after all requests are done. A failed request changes nothing.

    {"seal": {"root": "…/journal", "space": "lab", "log": "…/00000000000000000000.log"}}
    {"sealed": {"log": "…", "first": 0, "last": 999, "records": 1000, "bytes": 12345, "seconds": 0.01}}
    {"compact": {"root": "…", "space": "lab", "before": 1767225600000000}}
    {"compacted": {"root": "…", "space": "lab", "hours": 1, "segments": 1, "seconds": 0.5}}
    {"retain": {"root": "…", "space": "lab", "now": 1767225600000000, "keep_seconds": 86400}}
    {"retained": {"root": "…", "space": "lab", "segments": 3, "seconds": 0.01}}
    {"failed": {"request": …, "problem": "…"}}
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from mew.errors import MewError
from mew.journal import JournalError
from mew.journal.layout import HOUR, JournalFolder, Segment, first_position
from mew.journal.maintenance import MaintenanceMessage
from mew.journal.sealing import seal_log

NICENESS: Final = 10


class SealRequest(msgspec.Struct, frozen=True):
    """Turn a complete log file into a segment."""

    root: str
    space: str
    log: str


class CompactRequest(msgspec.Struct, frozen=True):
    """Compact the hours that were finished at a time, in microseconds since 1970."""

    root: str
    space: str
    before: int


class RetainRequest(msgspec.Struct, frozen=True):
    """Delete segments older than `keep_seconds`. `now` is in microseconds since 1970."""

    root: str
    space: str
    now: int
    keep_seconds: float


class MaintenanceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input line: exactly one of these fields is set."""

    seal: SealRequest | None = None
    compact: CompactRequest | None = None
    retain: RetainRequest | None = None


class InvalidRequestLine(JournalError):
    """A line that is not a valid request."""


def run_worker() -> int:
    """Process requests until the input ends."""
    # An interrupt at the terminal reaches child processes too. Only the gateway may end this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for line in sys.stdin.buffer:
        answered = msgspec.json.encode(answer_request(line)) + b"\n"
        # The request is done even if the gateway no longer reads the answer.
        with suppress(BrokenPipeError):
            _write(answered)
        pa.default_memory_pool().release_unused()
    return 0


def _write(line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


def answer_request(line: bytes) -> MaintenanceMessage:
    """Process one request and return the answer. Errors are returned as `failed`, not raised."""
    started = time.perf_counter()
    try:
        name, done = _done(msgspec.json.decode(line, type=MaintenanceRequest))
    except Exception as problem:  # One failed request must not affect the next.
        expected = isinstance(problem, MewError | OSError)
        text = str(problem) if expected else f"{type(problem).__name__}: {problem}"
        return {"failed": {"request": _shown(line), "problem": text}}
    return {name: {**done, "seconds": round(time.perf_counter() - started, 6)}}


def _done(request: MaintenanceRequest) -> tuple[str, dict[str, Any]]:
    match [part for part in (request.seal, request.compact, request.retain) if part is not None]:
        case [SealRequest() as order]:
            return "sealed", _seal(order)
        case [CompactRequest() as order]:
            return "compacted", _compact(order)
        case [RetainRequest() as order]:
            return "retained", _retain(order)
    raise InvalidRequestLine("a request is one of seal, compact and retain")


def _seal(request: SealRequest) -> dict[str, Any]:
    folder, log = JournalFolder(Path(request.root), request.space), Path(request.log)
    for earlier in folder.logs():
        # An earlier log may not have been sealed, for example because the disk was full. Seal in order.
        if first_position(earlier) < first_position(log):
            seal_log(folder, earlier)
    segment = seal_log(folder, log)
    if segment is None:
        return {"log": request.log, "first": None, "last": None, "records": 0, "bytes": 0}
    first, last = segment.first, segment.last
    return {"log": request.log, "first": first, "last": last, "records": last - first + 1, "bytes": _bytes(segment)}


def _bytes(segment: Segment) -> int:
    return sum(path.stat().st_size for path in (segment.control, segment.frames) if path.exists())


def _compact(request: CompactRequest) -> dict[str, Any]:
    from mew.journal.compaction import TRASH_HOURS, compact_hour, empty_trash, hours_to_compact  # noqa: PLC0415 - most never compact

    folder = JournalFolder(Path(request.root), request.space)
    empty_trash(folder, request.before - TRASH_HOURS * HOUR)
    hours = segments = 0
    problems = []
    for hour in hours_to_compact(folder, request.before):
        try:
            segments += len(compact_hour(folder, hour))
            hours += 1
        except (MewError, OSError) as problem:
            problems.append(str(problem))
    if problems:
        raise MewError("; ".join(problems))
    return {"root": request.root, "space": request.space, "hours": hours, "segments": segments}


def _retain(request: RetainRequest) -> dict[str, Any]:
    from mew.journal.retention import delete_expired  # noqa: PLC0415 - most keep all

    folder = JournalFolder(Path(request.root), request.space)
    removed = delete_expired(folder, keep_seconds=request.keep_seconds, now=request.now)
    return {"root": request.root, "space": request.space, "segments": len(removed)}


def _shown(line: bytes) -> Any:
    """Return a request in a form that can be included in an answer: decoded JSON, or its text if it is invalid."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return line.decode(errors="replace").rstrip("\n")


if __name__ == "__main__":
    sys.exit(run_worker())
