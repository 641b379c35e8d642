"""A watch as a process, and what it says; how one in this process is stopped; and a journal sealed every second."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.pipeline.sessions import FOR_CHILDREN

ROOT = Path(__file__).parents[3]
WATCH_PROCESS = (sys.executable, "-m", "tests.pipeline.jobs.watcher")
SECONDS = 40
FAST = "{segment_seconds: 1}"


class Enough:
    """Reported by the test that runs the watch."""

    def __init__(self) -> None:
        self._said = threading.Event()

    @property
    def is_set(self) -> bool:
        return self._said.is_set()

    def set(self) -> None:
        self._said.set()

    def wait(self, seconds: float) -> bool:
        return self._said.wait(seconds)


class Watching:
    """A watch that runs."""

    def __init__(self, command: Sequence[str], **environment: str) -> None:
        self._process = subprocess.Popen(
            [*command],
            cwd=ROOT,
            env={**os.environ, **FOR_CHILDREN, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        self.told: list[dict[str, Any]] = []

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next thing it says that is what is waited for."""
        while True:
            line = self._lines.get(timeout=SECONDS)
            if line is None:
                assert self._process.stderr is not None
                raise AssertionError(f"it has ended: {self._process.stderr.read()}")
            told = json.loads(line)
            self.told.append(told)
            if is_it(told):
                return dict(told)

    def until_at(self, space: str, position: int) -> dict[str, Any]:
        """The batch that has this record."""
        told = self.until(
            lambda told: "finished" in told and told["finished"]["progress"]["positions"].get(space, -1) >= position
        )
        return dict(told["finished"])

    def end(self, number: signal.Signals, *more: signal.Signals) -> tuple[int, str]:
        """Send signals; its exit code, and what it said on standard error."""
        for each in (number, *more):
            self._process.send_signal(each)
        try:
            self._process.wait(timeout=SECONDS)
        finally:
            self._process.kill()
        self._thread.join(SECONDS)
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            said = stream.read()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self._process.returncode, said
