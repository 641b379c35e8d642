"""The writer under random sequences of writes, disk errors, recoveries and rotations."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.journal import ErrorPolicy, JournalSettings, SyncMode
from mew.journal import writer as writer_module
from mew.journal.block_format import JournalEntry
from mew.journal.layout import HOUR, first_position
from mew.journal.wal import synced_bytes
from mew.protocol.records import CHECKPOINT
from tests.journal.writer_harness import NOON, FailingCall, WriterHarness, control, frames
from tests.support.hypothesis_settings import examples

Action = Literal[
    "control", "frames", "checkpoint", "commit", "next hour", "write error", "partial write", "no file", "sync error",
    "recover", "move away",
]  # fmt: skip
WRITES: tuple[Action, ...] = ("control", "frames", "checkpoint", "commit", "next hour")
ERRORS: tuple[Action, ...] = ("write error", "partial write", "no file", "recover", "recover")
LOSSES: tuple[Action, ...] = ("sync error", "move away")


def sequences(*actions: Action) -> st.SearchStrategy[list[Action]]:
    return st.lists(st.sampled_from([*WRITES, "control", "frames", *actions]), min_size=1, max_size=30)


class Disk:
    """System calls that fail on demand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._write = os.write
        self.writes = FailingCall(patch, "write", None)
        self.opens = FailingCall(patch, "open", None)
        self.syncs = FailingCall(patch, "fdatasync", None)
        self.partial = False
        patch.setattr(os, "write", self.write)

    def write(self, file: int, data: Any) -> int:
        """Write to a file. With `partial`, write half of the data, then fail."""
        if self.partial and self.writes.number is None:
            self.writes.number = errno.ENOSPC
            return self._write(file, data[: len(data) // 2])
        written: int = self.writes(file, data)
        return written

    def recover(self) -> None:
        """Let every call succeed again, except that a failed sync stays failed."""
        self.writes.number = self.opens.number = None
        self.partial = False


class Sequence:
    """A writer, its disk, and every entry that was added."""

    def __init__(self, harness: WriterHarness, disk: Disk) -> None:
        self.harness = harness
        self.disk = disk
        self.pending: list[JournalEntry] = []
        self.next = 0
        """Position of the next entry."""
        self.time = NOON
        self.acknowledged = -1
        """Last position whose commit reported success and contained a control record."""
        self.has_control = False
        self.lost = False
        """Whether a sync may have failed, or the folder was moved."""

    def run(self, action: Action) -> bool | None:
        """Run one action. Returns the result of the commit, if the action is one."""
        match action:
            case "control" | "checkpoint":
                event = CHECKPOINT if action == "checkpoint" else "envelope"
                self._add(control(self.next, self.time, event=event), 1)
                self.has_control = True
            case "frames":
                self._add(frames(self.next, 3, self.time), 3)
            case "next hour":
                self.time += HOUR
            case "commit":
                return self._commit()
            case "write error":
                self.disk.writes.number = errno.ENOSPC
            case "partial write":
                self.disk.partial = True
            case "no file":
                self.disk.opens.number = errno.EMFILE
            case "sync error":
                self.disk.syncs.number = errno.EIO
                self.lost = True
            case "move away":
                self.harness.folder.root.rename(self.harness.folder.root.with_name("moved"))
                self.lost = True
            case "recover":
                self.disk.recover()
        return None

    def _add(self, entry: JournalEntry, records: int) -> None:
        self.pending.append(entry)
        self.next += records

    def _commit(self) -> bool:
        result = self.harness.turn(*self.pending)
        if result and self.has_control:
            self.acknowledged = self.next - 1
        self.has_control = self.has_control and not result
        self.pending = []
        return result


@contextmanager
def running(settings: JournalSettings) -> Iterator[Sequence]:
    """A writer whose thread does nothing without an error, and whose gaps request a checkpoint immediately."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "GAP_SECONDS", 0.0)
        sequence = Sequence(WriterHarness(Path(folder), settings), Disk(patch))
        try:
            yield sequence
        finally:
            sequence.disk.recover()
            sequence.harness.close()


def settings_of(sync: SyncMode, on_error: ErrorPolicy = "stop") -> JournalSettings:
    return JournalSettings(sync=sync, interval_ms=60_000, segment_seconds=3600, on_error=on_error)


syncs = st.sampled_from(["always", "interval", "os"])


@given(syncs, sequences(*ERRORS))
@examples(120)
def test_nothing_acknowledged_is_lost_and_positions_continue_after_errors(
    sync: SyncMode, actions: list[Action]
) -> None:
    with running(settings_of(sync)) as sequence:
        harness = sequence.harness
        for action in actions:
            result = sequence.run(action)
            if result is None:
                continue
            positions = harness.positions()
            assert positions == list(range(len(positions)))
            assert len(positions) > sequence.acknowledged
            if result:
                assert harness.problem() is None
            if sync == "always":
                assert harness.writer.synced >= sequence.acknowledged
        sequence.disk.recover()
        sequence.run("control")
        sequence.run("commit")
        harness.close()
        assert harness.positions() == list(range(sequence.next))
        assert harness.writer.written == harness.writer.synced == sequence.next - 1
        assert_reports_alternate(harness.errors)
        assert harness.problem() is None
        assert_files_are_complete(harness)


@given(syncs, sequences(*ERRORS, *LOSSES), st.sampled_from(["stop", "continue"]))
@examples(120)
def test_after_an_unknown_state_of_the_disk_nothing_is_acknowledged_and_nothing_is_written(
    sync: SyncMode, actions: list[Action], on_error: ErrorPolicy
) -> None:
    with running(settings_of(sync, on_error)) as sequence:
        harness = sequence.harness
        moved = harness.folder.root.with_name("moved")
        error = None
        for action in actions:
            if action == "move away" and moved.exists():
                continue
            written, result = harness.writer.written, sequence.run(action)
            if error is not None:
                assert (harness.problem(), harness.writer.written) == (error, written)
                assert result in ((None, False) if on_error == "stop" else (None, True))
            elif is_final(harness.problem()):
                error = harness.problem()
        sequence.disk.recover()
        harness.close()
        if error is not None:
            assert is_final(harness.errors[-1])


@given(syncs, sequences(*ERRORS))
@examples(120)
def test_with_continue_every_gap_ends_with_a_checkpoint_and_every_dropped_record_is_counted(
    sync: SyncMode, actions: list[Action]
) -> None:
    with running(settings_of(sync, "continue")) as sequence:
        harness = sequence.harness
        for action in actions:
            assert sequence.run(action) in (None, True)
            if action == "commit" and harness.wants_checkpoint():
                sequence.run("checkpoint")
                assert sequence.run("commit")
        sequence.disk.recover()
        sequence.run("checkpoint")
        sequence.run("commit")
        assert harness.problem() is None
        assert not harness.wants_checkpoint()
        last = sequence.next - 1
        harness.close()
        records = harness.records()
        before = [-1, *(record.position for record in records)]
        for (earlier, later), record in zip(pairwise(before), records, strict=True):
            assert later == earlier + 1 or (later > earlier and record.event == CHECKPOINT)
        assert records[-1].position == last
        assert harness.writer.stats.unrecorded == sequence.next - len(records)
        assert harness.writer.stats.records == len(records)
        assert_reports_alternate(harness.errors)
        assert_files_are_complete(harness)


@given(syncs, st.lists(st.sampled_from(["control", "frames", "commit"]), min_size=10, max_size=40))
@examples(20)
def test_files_that_the_thread_ends_continue_the_positions(sync: SyncMode, actions: list[Action]) -> None:
    small = JournalSettings(sync=sync, interval_ms=1, segment_seconds=3600, segment_bytes=100)
    with running(small) as sequence:
        for action in actions:
            sequence.run(action)
        sequence.run("commit")
        sequence.harness.close()
        assert sequence.harness.positions() == list(range(sequence.next))
        assert_files_are_complete(sequence.harness)


def is_final(problem: str | None) -> bool:
    """Whether only a restart resolves an error."""
    return problem is not None and ("deleted or moved" in problem or "after a restart" in problem)


def assert_reports_alternate(errors: list[str | None]) -> None:
    """Check that no error is reported twice in a row, and that the last one is resolved."""
    assert all(earlier != later for earlier, later in pairwise([None, *errors]))
    assert errors[-1:] in ([], [None])


def assert_files_are_complete(harness: WriterHarness) -> None:
    """Check that `on_closed` received each file once and in order, and that the last one is synced to its end."""
    assert harness.closed == harness.folder.logs()
    assert [first_position(path) for path in harness.closed] == sorted(
        {first_position(path) for path in harness.closed}
    )
    if harness.closed:
        assert synced_bytes(harness.folder, harness.closed[-1]) == harness.closed[-1].stat().st_size
