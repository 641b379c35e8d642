"""A journal and the tables made of it, compacted again and again while others are at work on them."""

import threading
import time
from pathlib import Path
from typing import Self

from mew.journal.compaction import compact_hour, hours_to_compact
from mew.journal.layout import JournalFolder, spaces_in
from mew.pipeline.lake import Lake

EVERY_SECONDS = 0.2
JOIN_SECONDS = 150
FILE_BYTES = 300_000
"""Of a compacted segment: so small that several are left, and are compacted again."""


class Compacting:
    """Runs until the end of the `with`; then it reports if anything went wrong."""

    def __init__(self, journal: Path, lake: Path) -> None:
        self._journal = journal
        self._lake = lake
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._problem: BaseException | None = None
        self.journal = 0
        """How many hours of it were compacted."""
        self.tables = 0
        """How many of them, one time after the other."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_problem: object) -> None:
        self._over.set()
        self._thread.join(JOIN_SECONDS)
        assert not self._thread.is_alive()
        if self._problem is not None:
            raise self._problem

    def _work(self) -> None:
        try:
            while not self._over.wait(EVERY_SECONDS):
                for space in spaces_in(self._journal):
                    self._compact_an_hour(JournalFolder(self._journal, space))
                self.tables += len(Lake(self._lake).compact())
        except BaseException as problem:
            self._problem = problem

    def _compact_an_hour(self, folder: JournalFolder) -> None:
        """One at a time, so that there is something left to do while the others read."""
        for hour in hours_to_compact(folder, time.time_ns() // 1000)[:1]:
            compact_hour(folder, hour, file_bytes=FILE_BYTES)
            self.journal += 1
