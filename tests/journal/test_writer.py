"""The writer of a journal: what is on record when others may see it, in which order, and what happens when it fails."""

import errno
import os
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from mew.journal import JournalSettings, wal
from mew.journal import writer as writing_it
from mew.journal.block_format import JournalEntry
from mew.journal.layout import HOUR, JournalFolder, first_position
from mew.journal.wal import LogWriter, read_blocks, synced_bytes
from mew.journal.writer import DIRECT_WRITE_ENTRIES, MAX_BLOCK_BYTES, FileSync, JournalWriter, ReplayBudget, blocks_of
from tests.journal.writer_harness import NOON, FailingCall, WriterHarness, control, frames, writing
from tests.support.polling import PATIENCE, until

LONG = JournalSettings(interval_ms=60_000, segment_seconds=3600)
"""Nothing happens by itself for as long as a test lasts."""
ALWAYS = JournalSettings(sync="always", segment_seconds=3600)
QUICK = JournalSettings(interval_ms=1, segment_seconds=3600)


# ------------------------------------------------------------------------------------- when the kernel has what


@pytest.mark.parametrize("sync", ["interval", "os"])
def test_a_control_record_and_all_before_it_is_with_the_kernel_when_commit_returns(tmp_path: Path, sync: Any) -> None:
    with writing(tmp_path, JournalSettings(sync=sync, interval_ms=60_000, segment_seconds=3600)) as harness:
        assert harness.turn(frames(0, 3))
        assert harness.positions() == []
        assert harness.turn(frames(3, 2), control(5), frames(6))
        assert harness.positions() == list(range(7))


def test_frames_alone_are_written_within_the_interval(tmp_path: Path) -> None:
    """At best of ten: a thread that is harness from working is not the writer's fault."""
    waited = []
    with writing(tmp_path, QUICK) as harness:
        for first in range(0, 50, 5):
            since = monotonic()
            harness.turn(frames(first, 5))
            harness.until_written(first + 4)
            waited.append(monotonic() - since)
        assert harness.positions() == list(range(50))
    assert min(waited) < QUICK.interval_ms / 1000 + 0.1


def test_many_frames_do_not_pile_up_for_the_thread(tmp_path: Path) -> None:
    with writing(tmp_path, LONG) as harness:
        for position in range(DIRECT_WRITE_ENTRIES - 1):
            harness.turn(frames(position))
        assert harness.positions() == []
        harness.turn(frames(DIRECT_WRITE_ENTRIES - 1))
        assert harness.positions() == list(range(DIRECT_WRITE_ENTRIES))


def test_with_always_everything_is_on_the_disk_when_commit_returns(tmp_path: Path) -> None:
    with writing(tmp_path, ALWAYS) as harness:
        for position in range(0, 40, 4):
            assert harness.turn(frames(position, 3), control(position + 3))
            (log,) = harness.folder.logs()
            assert harness.writer.synced == harness.writer.written == position + 3
            assert synced_bytes(harness.folder, log) == log.stat().st_size
        assert harness.turn(frames(40, 2))
        assert harness.writer.synced == 41
        assert harness.writer.stats.syncs == 11


def test_with_an_interval_everything_is_on_the_disk_soon(tmp_path: Path) -> None:
    with writing(tmp_path, QUICK) as harness:
        harness.turn(frames(0, 3), control(3))
        (log,) = harness.folder.logs()
        until(lambda: harness.writer.synced == 3 and synced_bytes(harness.folder, log) == log.stat().st_size)


def test_where_it_is_left_to_the_system_nothing_is_synced_until_a_file_ends(tmp_path: Path) -> None:
    with writing(tmp_path, JournalSettings(sync="os", interval_ms=1, segment_seconds=3600)) as harness:
        harness.turn(control(0))
        harness.turn(frames(1, 3))
        until(lambda: harness.writer.written == 3)
        (log,) = harness.folder.logs()
        assert (harness.writer.synced, harness.writer.stats.syncs, synced_bytes(harness.folder, log)) == (-1, 0, 0)
        harness.writer.close()
        assert (harness.writer.synced, harness.writer.stats.syncs) == (3, 1)
        assert synced_bytes(harness.folder, log) == log.stat().st_size
        harness.writer = WriterHarness(tmp_path / "other", LONG).writer


def test_frames_do_not_wait_for_a_disk_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread waits for the disk, and might for long: then the loop writes what has waited for the interval."""
    syncing, disk = threading.Event(), threading.Event()

    def slow(_file: int) -> None:
        syncing.set()
        assert disk.wait(PATIENCE)

    with writing(tmp_path, QUICK) as harness:
        monkeypatch.setattr(os, "fdatasync", slow)
        harness.turn(control(0))
        assert syncing.wait(PATIENCE)
        position = iter(range(1, 100_000))
        until(lambda: harness.turn(frames(next(position))) and len(harness.positions()) > 10)
        assert harness.writer.synced == -1
        disk.set()


# ----------------------------------------------------------------------------------------------------- the order


@pytest.mark.parametrize("settings", [ALWAYS, QUICK], ids=["always", "interval"])
def test_whatever_the_thread_does_meanwhile_the_order_is_that_of_adding(
    tmp_path: Path, settings: JournalSettings
) -> None:
    turns = 60 if settings is ALWAYS else 1500
    with writing(tmp_path, settings) as harness:
        position = 0
        for turn in range(turns):
            position += 3
            # Now control, which the loop writes, now frames, which the thread writes.
            harness.turn(frames(position - 3, 3) if turn % 7 else control(position - 3), *_two_more(turn, position))
    assert harness.positions() == list(range(position))
    assert harness.writer.stats.records == position


def _two_more(turn: int, position: int) -> list[JournalEntry]:
    return [] if turn % 7 else [frames(position - 2), frames(position - 1)]


def test_the_writer_counts_what_it_does(tmp_path: Path) -> None:
    with writing(tmp_path, LONG) as harness:
        harness.turn(control(0), frames(1, 9))
        harness.turn(control(10))
    stats = harness.writer.stats
    assert (stats.records, stats.blocks, stats.bytes) == (11, 2, harness.folder.logs()[0].stat().st_size)
    assert (stats.failures, stats.unrecorded) == (0, 0)


# ----------------------------------------------------------------------------------------------------- the files


@pytest.mark.parametrize("settings", [ALWAYS, QUICK], ids=["always", "interval"])
def test_a_file_that_is_old_enough_ends_and_so_does_the_next(tmp_path: Path, settings: JournalSettings) -> None:
    timed = JournalSettings(sync=settings.sync, interval_ms=1, segment_seconds=0.05)
    with writing(tmp_path, timed) as harness:
        for number in range(4):
            harness.turn(control(number))
            harness.until_closed(number + 1)
    assert [first_position(path) for path in harness.closed] == [0, 1, 2, 3]


@pytest.mark.parametrize("settings", [ALWAYS, QUICK], ids=["always", "interval"])
def test_a_file_that_is_full_ends_and_so_does_the_next(tmp_path: Path, settings: JournalSettings) -> None:
    small = JournalSettings(sync=settings.sync, interval_ms=1, segment_seconds=3600, segment_bytes=1000)
    with writing(tmp_path, small) as harness:
        for number in range(3):
            harness.turn(frames(number * 2, size=1200), control(number * 2 + 1))
            harness.until_closed(number + 1)
        harness.turn(control(6))
        assert len(harness.folder.logs()) == 4
    assert [first_position(path) for path in harness.closed] == [0, 2, 4, 6]


def test_while_nothing_comes_no_file_is_made(tmp_path: Path) -> None:
    with writing(tmp_path, JournalSettings(interval_ms=1, segment_seconds=0.01)) as harness:
        harness.turn(control(0))
        until(lambda: harness.closed)
        assert harness.turn()
    assert harness.folder.logs() == harness.closed


def test_an_hour_ends_its_file_and_no_block_has_two_hours(tmp_path: Path) -> None:
    last = NOON // HOUR * HOUR + HOUR - 1
    with writing(tmp_path, LONG) as harness:
        harness.turn(control(0, last), frames(1, 2, last))
        harness.turn(frames(3, 2, last), frames(5, 1, last + 1), control(6, last + 1))
        harness.turn(control(7, last + 1), control(8, last + 1 + HOUR))
    assert [first_position(path) for path in harness.closed] == [0, 5, 8]
    hours = [
        {record.time // HOUR for block in read_blocks(path) for record in block.records()} for path in harness.closed
    ]
    assert [len(blocks_of_hour) for blocks_of_hour in hours] == [1, 1, 1]
    assert harness.positions() == list(range(9))


def test_a_file_is_synced_before_it_is_reported_as_complete(tmp_path: Path) -> None:
    harness = WriterHarness(tmp_path, JournalSettings(sync="os", interval_ms=60_000, segment_seconds=3600))
    syncs_at_close: list[tuple[int, int]] = []
    harness.writer._on_closed = lambda _: syncs_at_close.append((harness.writer.synced, harness.writer.stats.syncs))
    harness.turn(control(0), frames(1, 4))
    harness.writer.close()
    assert syncs_at_close == [(4, 1)]


def test_closing_writes_and_syncs_all_that_was_added(tmp_path: Path) -> None:
    harness = WriterHarness(tmp_path, LONG)
    harness.turn(frames(0, 3))
    harness.writer.add_frames(frames(3, 2))
    harness.writer.close()
    assert harness.positions() == list(range(5))
    assert harness.writer.synced == 4
    assert harness.closed == harness.folder.logs()


def test_a_block_has_no_more_bytes_than_it_should(tmp_path: Path) -> None:
    large = MAX_BLOCK_BYTES // 3
    entries: list[JournalEntry] = [control(n, payload=b"x" * large) for n in range(7)]
    assert [[entry.position for entry in block] for block in blocks_of(entries)] == [[0, 1, 2], [3, 4, 5], [6]]
    huge: list[JournalEntry] = [frames(0, 2, size=MAX_BLOCK_BYTES), frames(2), control(3)]
    assert [[entry.position for entry in block] for block in blocks_of(huge)] == [[0], [2, 3]]
    with writing(tmp_path, LONG) as harness:
        harness.turn(*entries)
        (log,) = harness.folder.logs()
        assert [block.head.records for block in read_blocks(log)] == [3, 3, 1]


# ------------------------------------------------------------------------------------------ checkpoints


def test_a_checkpoint_is_kept_beside_the_log_once_the_log_is_on_the_disk(tmp_path: Path) -> None:
    with writing(tmp_path, JournalSettings(sync="os", interval_ms=1, segment_seconds=3600)) as harness:
        record = control(1, event="checkpoint", payload=b'{"state": 1}')
        harness.turn(control(0), record)
        assert until(lambda: wal.load_checkpoint(harness.folder)) == record
        assert harness.writer.stats.syncs == 1


def test_a_checkpoint_copy_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    with writing(tmp_path, QUICK) as harness:
        harness.folder.checkpoint.with_suffix(".tmp").mkdir()
        harness.turn(control(0, event="checkpoint"))
        until(lambda: harness.writer.synced == 0)
        assert harness.turn(control(1))
    assert harness.errors == []
    assert wal.load_checkpoint(harness.folder) is None
    assert harness.positions() == [0, 1]


def test_a_checkpoint_is_wanted_after_many_entries_many_bytes_or_many_files(tmp_path: Path) -> None:
    with writing(tmp_path, LONG) as harness:
        assert not harness.wants_checkpoint()
    few, many, large = ReplayBudget(ReplayBudget.ENTRIES - 1), ReplayBudget(ReplayBudget.ENTRIES), ReplayBudget()
    assert (few.is_exceeded(), many.is_exceeded()) == (False, True)
    large.bytes = ReplayBudget.BYTES
    assert large.is_exceeded()
    files = ReplayBudget()
    files.files = ReplayBudget.FILES
    assert files.is_exceeded()


def test_a_checkpoint_that_is_large_is_not_made_of_every_few_entries() -> None:
    behind = ReplayBudget(ReplayBudget.ENTRIES, snapshot=1000)
    behind.bytes = 3999
    assert not behind.is_exceeded()
    behind.bytes = 4000
    assert behind.is_exceeded()


def test_a_checkpoint_resets_the_replay_budget(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    folder.log.mkdir(parents=True)
    writer = JournalWriter(
        folder, LONG, on_closed=lambda _: None, on_problem=lambda _: None, behind=ReplayBudget.ENTRIES
    )
    requests = [writer.wants_checkpoint]
    writer.add(control(0, event="checkpoint"))
    assert writer.commit()
    requests.append(writer.wants_checkpoint)
    writer.close()
    assert requests == [True, False]


# ------------------------------------------------------------------------------------- what cannot be written


@pytest.mark.parametrize("settings", [ALWAYS, LONG], ids=["always", "interval"])
def test_what_cannot_be_written_is_kept_and_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: JournalSettings
) -> None:
    with writing(tmp_path, settings) as harness:
        assert harness.turn(control(0))
        disk = FailingCall(monkeypatch, "write", errno.ENOSPC)
        assert not harness.turn(control(1), frames(2, 3))
        assert harness.problem() == "No space left on device"
        assert harness.errors == [f"{harness.folder.log}: No space left on device"]
        assert not harness.turn(frames(5, 2))
        assert not harness.turn()
        assert harness.positions() == [0]
        disk.number = None
        until(lambda: harness.problem() is None)
        assert harness.errors == [f"{harness.folder.log}: No space left on device", None]
        assert harness.turn(control(7))
        assert harness.positions() == list(range(8))


def test_with_sync_always_held_records_are_synced_before_writing_is_reported_as_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, syncing, disk_is_back = os.fdatasync, threading.Event(), threading.Event()

    def slow(file: int) -> None:
        syncing.set()
        assert disk_is_back.wait(PATIENCE)
        sync(file)

    with writing(tmp_path, ALWAYS) as harness:
        disk = FailingCall(monkeypatch, "write", errno.ENOSPC)
        assert not harness.turn(control(0))
        monkeypatch.setattr(os, "fdatasync", slow)
        disk.number = None
        assert syncing.wait(PATIENCE)
        assert harness.positions() == [0]
        assert not harness.writer.commit()
        assert None not in harness.errors
        disk_is_back.set()
        until(lambda: harness.problem() is None)
        assert harness.writer.synced == 0


def test_frames_that_the_thread_cannot_write_are_a_problem_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(tmp_path, QUICK) as harness:
        disk = FailingCall(monkeypatch, "write", errno.EDQUOT)
        assert harness.turn(frames(0, 3))
        until(harness.problem)
        assert not harness.turn()
        disk.number = None
        until(lambda: harness.errors[-1] is None)
        assert harness.turn(frames(3))
        until(lambda: harness.positions() == [0, 1, 2, 3])


def test_a_writer_that_fails_does_not_try_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(tmp_path, ALWAYS) as harness:
        disk = FailingCall(monkeypatch, "write", errno.ENOSPC)
        assert not harness.turn(control(0))
        until(lambda: disk.calls >= 4)
        assert harness.writer.stats.failures <= 8
        disk.number = None


def test_writing_resumes_when_files_can_be_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(tmp_path, ALWAYS) as harness:
        disk = FailingCall(monkeypatch, "open", errno.EMFILE)
        assert not harness.turn(control(0))
        assert harness.problem() == "Too many open files"
        disk.number = None
        until(lambda: harness.problem() is None)
        disk.number = errno.EMFILE
        assert harness.turn(control(1), frames(2))  # a sync opens nothing
        disk.number = None
    assert harness.positions() == [0, 1, 2]


def test_there_is_no_room_for_the_mark_and_nothing_else_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(tmp_path, ALWAYS) as harness:
        disk = FailingCall(monkeypatch, "pwrite", errno.ENOSPC)
        assert harness.turn(control(0))
        (log,) = harness.folder.logs()
        assert (harness.writer.synced, synced_bytes(harness.folder, log)) == (0, 0)
        disk.number = None
        assert harness.turn(control(1))
        assert synced_bytes(harness.folder, log) == log.stat().st_size


def test_a_file_that_nothing_could_be_written_to_is_deleted_and_not_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is that of the next file: who was asked to seal the one must never find the other."""
    with writing(tmp_path, JournalSettings(interval_ms=1, segment_seconds=0.05)) as harness:
        disk = FailingCall(monkeypatch, "write", errno.ENOSPC)
        assert not harness.turn(control(0))
        (log,) = harness.folder.logs()
        until(lambda: not log.exists())
        disk.number = None
        until(lambda: harness.problem() is None)
        harness.until_closed(1)
    assert harness.closed == [log]
    assert harness.positions() == [0]
    assert len([problem for problem in harness.errors if problem is not None]) == 1


def test_half_a_block_is_taken_back_before_the_next_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    left = [1]

    def half(file: int, data: Any) -> int:
        if not left:
            raise OSError(errno.ENOSPC, "full")
        return write(file, data[: len(data) // 2]) if left.pop() else 0

    with writing(tmp_path, LONG) as harness:
        monkeypatch.setattr(os, "write", half)
        assert not harness.turn(control(0), frames(1, 5))
        (log,) = harness.folder.logs()
        assert log.stat().st_size == 0
        monkeypatch.setattr(os, "write", write)
        until(lambda: harness.problem() is None)
        assert harness.positions() == list(range(6))


def test_with_on_error_continue_records_are_dropped_until_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_it, "GAP_SECONDS", 0.3)
    with writing(tmp_path, JournalSettings(interval_ms=1, segment_seconds=3600, on_error="continue")) as harness:
        assert harness.turn(control(0))
        disk = FailingCall(monkeypatch, "write", errno.ENOSPC)
        assert harness.turn(control(1), frames(2, 3))
        assert harness.problem() is not None
        assert not harness.wants_checkpoint()
        assert harness.turn(control(5))
        disk.number = None
        # There is room again: but what came before a checkpoint would make no sense behind the hole.
        assert harness.turn(control(6), frames(7))
        assert harness.problem() is not None
        until(harness.wants_checkpoint)
        assert harness.turn(frames(8), control(9, event="checkpoint"), control(10))
        assert harness.problem() is None
        assert not harness.wants_checkpoint()
        assert harness.positions() == [0, 9, 10]
    assert [first_position(path) for path in harness.closed] == [0, 9]
    assert harness.writer.stats.unrecorded == 8
    assert harness.errors[-1] is None


def test_a_checkpoint_that_cannot_be_written_either_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_it, "GAP_SECONDS", 0.3)
    with writing(tmp_path, JournalSettings(interval_ms=1, segment_seconds=3600, on_error="continue")) as harness:
        disk = FailingCall(monkeypatch, "write", errno.ENOSPC)
        assert harness.turn(control(0))
        until(harness.wants_checkpoint)
        assert harness.turn(control(1, event="checkpoint"))
        assert not harness.wants_checkpoint()
        until(harness.wants_checkpoint)
        disk.number = None
        assert harness.turn(control(2, event="checkpoint"))
        assert harness.positions() == [2]
    assert len([problem for problem in harness.errors if problem is not None]) == 1


# ------------------------------------------------------------------------------------------ what was not synced


@pytest.mark.parametrize("settings", [ALWAYS, QUICK], ids=["always", "interval"])
def test_a_failed_sync_ends_writing_permanently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: JournalSettings
) -> None:
    with writing(tmp_path, settings) as harness:
        disk = FailingCall(monkeypatch, "fdatasync", errno.EIO)
        harness.turn(control(0))
        until(harness.problem)
        disk.number = None
        (log,) = harness.folder.logs()
        assert harness.problem() == "Input/output error: what the disk has will be known after a restart"
        assert not harness.turn(control(1), frames(2))
        assert not harness.turn()
    assert harness.positions() == [0]
    assert harness.errors == [f"{log}: {harness.problem()}"]


@pytest.mark.parametrize("settings", [LONG, ALWAYS], ids=["interval", "always"])
@pytest.mark.parametrize("last", [control(1), frames(1)], ids=["control", "frames"])
def test_what_is_written_to_a_journal_that_was_moved_is_not_acknowledged(
    tmp_path: Path, settings: JournalSettings, last: JournalEntry
) -> None:
    with writing(tmp_path, settings) as harness:
        assert harness.turn(control(0))
        harness.folder.root.rename(tmp_path / "elsewhere")  # right behind a write that found it in its place
        assert not harness.turn(last, control(2))
        assert harness.problem() == "the journal was deleted or moved; records are lost, and none is accepted"
        assert not harness.turn()


def test_a_sync_that_failed_while_the_loop_was_writing_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread syncs beside the loop: its failure may come in the middle of the loop's own write, which succeeds."""
    syncing, failing, failed = threading.Event(), threading.Event(), threading.Event()
    write, run = os.write, FileSync.run

    def fail(_file: int) -> None:
        syncing.set()
        assert failing.wait(PATIENCE)
        raise OSError(errno.EIO, "Input/output error")

    def run_to_its_end(sync: FileSync) -> FileSync:
        run(sync)
        failed.set()
        return sync

    with writing(tmp_path, QUICK) as harness:

        def slow(file: int, data: Any) -> int:
            if harness.writer.written == 0:
                failing.set()
                assert failed.wait(PATIENCE)
            return write(file, data)

        monkeypatch.setattr(FileSync, "run", run_to_its_end)
        monkeypatch.setattr(os, "fdatasync", fail)
        monkeypatch.setattr(os, "write", slow)
        harness.turn(control(0))
        assert syncing.wait(PATIENCE)
        harness.turn(control(1))
        assert harness.problem() is not None
        assert not harness.turn(control(2))
        assert not harness.turn()
    assert None not in harness.errors


def test_a_file_whose_last_sync_failed_is_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not sealed: what was sealed would be what the kernel remembers, not what the disk has."""
    with writing(tmp_path, LONG) as harness:
        assert harness.turn(control(0))
        FailingCall(monkeypatch, "fdatasync", errno.EIO)
        assert not harness.turn(control(1, NOON + HOUR))
        assert not harness.turn(control(2, NOON + HOUR))
    assert harness.closed == []
    assert harness.positions() == [0]


def test_a_file_whose_closing_is_complained_of_ends_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = LogWriter.close

    def complain(file: LogWriter) -> None:
        close(file)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(LogWriter, "close", complain)
    small = JournalSettings(interval_ms=1, segment_seconds=3600, segment_bytes=1000)
    with writing(tmp_path, small) as harness:
        for number in range(3):
            harness.turn(frames(number * 2, size=1200), control(number * 2 + 1))
            harness.until_closed(number + 1)
        assert harness.problem() is None
    assert [first_position(path) for path in harness.closed] == [0, 2, 4]


# ---------------------------------------------------------------------------------------------- checkpoints' copy


def test_the_copy_of_a_checkpoint_is_the_checkpoint(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path, "lab")
    folder.log.mkdir(parents=True)
    assert wal.load_checkpoint(folder) is None
    for position in (3, 9):
        record = control(position, event="checkpoint", payload=b'{"a": 1}')
        wal.save_checkpoint(folder, record)
        assert wal.load_checkpoint(folder) == record
    assert [path.name for path in folder.log.iterdir()] == ["checkpoint"]


def test_a_torn_or_damaged_copy_of_a_checkpoint_is_none(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path, "lab")
    folder.log.mkdir(parents=True)
    wal.save_checkpoint(folder, control(3, event="checkpoint"))
    whole = folder.checkpoint.read_bytes()
    for end in range(len(whole)):
        folder.checkpoint.write_bytes(whole[:end])
        assert wal.load_checkpoint(folder) is None
    for place in range(len(whole)):
        folder.checkpoint.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert wal.load_checkpoint(folder) is None
    folder.checkpoint.write_bytes(whole)
    assert wal.load_checkpoint(folder) is not None


def test_what_is_no_checkpoint_is_no_copy_of_one(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path, "lab")
    folder.log.mkdir(parents=True)
    wal.save_checkpoint(folder, control(3))
    assert wal.load_checkpoint(folder) is None


def test_a_crash_while_a_checkpoint_is_copied_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = JournalFolder(tmp_path, "lab")
    folder.log.mkdir(parents=True)
    before = control(3, event="checkpoint")
    wal.save_checkpoint(folder, before)
    FailingCall(monkeypatch, "fsync", errno.EIO)
    with pytest.raises(OSError) as raised:
        wal.save_checkpoint(folder, control(9, event="checkpoint"))
    assert raised.value.errno == errno.EIO
    assert wal.load_checkpoint(folder) == before
