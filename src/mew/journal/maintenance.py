"""Starts the maintenance worker of a journal and sends it requests one at a time: seal, compact, delete.

The worker is started with the first request, and restarted if it ended unexpectedly. A failed request changes nothing
and is repeated at the next start.
"""

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from mew._internal.backoff import Backoff
from mew.journal.layout import JournalFolder

WORKER_COMMAND: Final = (sys.executable, "-m", "mew.journal.maintenance_worker")
WORKER_ATTEMPTS: Final = 3
WORKER_RESTART_SECONDS: Final = 0.5
"""Pause before a dead process is restarted, in seconds. It doubles with each attempt."""

MaintenanceMessage: TypeAlias = dict[str, Any]
"""A request to the worker, or its answer: one key that says what it is, and its values."""


class MaintenanceClient:
    """Runs maintenance for the journals of one gateway."""

    def __init__(
        self,
        on_answer: Callable[[MaintenanceMessage], None],
        command: Sequence[str] = WORKER_COMMAND,
        restart_seconds: float = WORKER_RESTART_SECONDS,
    ) -> None:
        """`on_answer` receives the result of each request, success or failure, from the maintenance thread.

        `restart_seconds` is the delay before a failed worker is started again.
        """
        self._on_answer = on_answer
        self._command = command
        self._restart_seconds = restart_seconds
        self._requests: queue.SimpleQueue[MaintenanceMessage | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """Number of requests that have not been started."""
        return self._requests.qsize()

    def seal(self, folder: JournalFolder, log: Path) -> None:
        """Request that a complete log file is turned into a segment."""
        self._enqueue({"seal": {"root": str(folder.root), "space": folder.space, "log": str(log)}})

    def clean_up(self, folder: JournalFolder, *, now: int, retention_seconds: float | None) -> None:
        """Request retention, which frees disk space, and then compaction of finished hours, which needs some.

        `now` is in microseconds since 1970. Without `retention_seconds`, nothing is deleted.
        """
        target = {"root": str(folder.root), "space": folder.space}
        if retention_seconds is not None:
            self._enqueue({"retain": {**target, "now": now, "keep_seconds": retention_seconds}})
        self._enqueue({"compact": {**target, "before": now}})

    def _enqueue(self, request: MaintenanceMessage) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="journal maintenance", daemon=True)
            self._thread.start()
        self._requests.put(request)

    def close(self, seconds: float) -> bool:
        """Finish pending requests; kill the worker after about `seconds`. Returns whether all were finished."""
        self._requests.put(None)
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._stopping.set()
                if self._process is not None:
                    self._process.kill()
                self._thread.join()
                return False
        return True

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            self._on_answer(self._answer(request))
        if self._process is not None:
            self._end(self._process)

    def _answer(self, request: MaintenanceMessage) -> MaintenanceMessage:
        problem = "the sealer was stopped"
        backoff = Backoff(self._restart_seconds, self._restart_seconds * WORKER_ATTEMPTS)
        for _ in range(WORKER_ATTEMPTS):
            if self._stopping.is_set():
                break
            try:
                return msgspec.json.decode(
                    self._exchange(msgspec.json.encode(request) + b"\n"), type=MaintenanceMessage
                )
            except OSError as error:
                path = "" if error.filename is None else f"{error.filename}: "
                problem = f"the sealer cannot be asked: {path}{error.strerror}"
            except EOFError:
                problem = "the sealer ends before it answers"
            except msgspec.DecodeError:
                problem = "the sealer answers what cannot be read"
            self._discard()
            self._stopping.wait(backoff.next_delay())
        return {"failed": {"request": request, "problem": problem}}

    def _exchange(self, line: bytes) -> bytes:
        if self._process is None:
            # In a separate process group: the gateway handles an interrupt at the terminal.
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, process_group=0)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line)
        stdin.flush()
        answer = stdout.readline()
        if not answer.endswith(b"\n"):
            raise EOFError
        return answer

    def _discard(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._end(self._process)
            self._process = None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Close the pipes, and wait for the process: it exits at the end of its input."""
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        process.wait()
