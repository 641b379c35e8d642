"""A journal writer under test: the records it writes, the files it ends, its errors, and system calls that fail."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mew.journal import JournalSettings
from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.layout import JournalFolder
from mew.journal.wal import read_blocks
from mew.journal.writer import JournalWriter
from mew.protocol.records import Record
from tests.support.polling import until

NOON = 1_763_208_000_000_000


def control(position: int, time: int = NOON, payload: bytes = b"{}", event: str = "envelope") -> Record:
    """A control record."""
    return Record(position, time, event, "alice", "chat", f"a-{position}", size=len(payload), payload=payload)


def frames(position: int, count: int = 1, time: int = NOON, size: int = 10) -> FrameBatch:
    """Consecutive frames of one stream."""
    return FrameBatch(position, time, "bob", "moves", position + 1, 7, [b"#moves#" + b"x" * size] * count)


class WriterHarness:
    """A writer, and everything it reports."""

    def __init__(self, path: Path, settings: JournalSettings) -> None:
        self.folder = JournalFolder(path / "journal", "lab")
        self.folder.log.mkdir(parents=True, exist_ok=True)
        self.closed: list[Path] = []
        self.errors: list[str | None] = []
        """Every reported error, and None for each report that it is resolved."""
        self.writer = JournalWriter(self.folder, settings, on_closed=self.closed.append, on_problem=self.errors.append)
        self._is_closed = False

    def turn(self, *entries: JournalEntry) -> bool:
        """Do what one iteration of the event loop does: add the entries, then commit."""
        for entry in entries:
            if isinstance(entry, FrameBatch):
                self.writer.add_frames(entry)
            else:
                self.writer.add(entry)
        return self.writer.commit()

    def records(self) -> list[Record]:
        """The written records, in the order of the files."""
        blocks = (block for path in self.folder.logs() for block in read_blocks(path))
        return [record for block in blocks for record in block.records()]

    def positions(self) -> list[int]:
        """The positions of the written records."""
        return [record.position for record in self.records()]

    def problem(self) -> str | None:
        """Why writing fails at the moment."""
        return self.writer.problem

    def wants_checkpoint(self) -> bool:
        """Whether the writer requests a checkpoint."""
        return self.writer.wants_checkpoint

    def close(self) -> None:
        """Close the writer, unless it is closed."""
        if not self._is_closed:
            self._is_closed = True
            self.writer.close()

    def until_written(self, last: int) -> None:
        """Wait until the record at position `last` is written."""
        until(lambda: self.writer.written == last, f"position {last}")

    def until_closed(self, count: int) -> None:
        """Wait until `count` files are complete."""
        until(lambda: len(self.closed) == count, f"the end of {count} files")


@contextmanager
def writing(path: Path, settings: JournalSettings) -> Iterator[WriterHarness]:
    """Start a writer and close it at the end."""
    harness = WriterHarness(path, settings)
    try:
        yield harness
    finally:
        harness.close()


class FailingCall:
    """A function of `os` that fails with an error number, until `number` is set to None."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, number: int | None) -> None:
        self.number = number
        self.calls = 0
        self._call: Callable[..., Any] = getattr(os, name)
        patch.setattr(os, name, self)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self.number is not None:
            self.calls += 1
            raise OSError(self.number, os.strerror(self.number))
        return self._call(*arguments, **keywords)
