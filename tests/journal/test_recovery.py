"""What a space was is what its journal says: whatever was sealed, cut off, lost beside it or left by a crash."""

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.journal import sealing, wal
from mew.journal.block_format import CorruptData
from mew.journal.layout import JournalFolder, first_position
from mew.journal.reader import Journal
from mew.journal.recovery import JournalDamaged, recover, truncate_torn_tail
from mew.journal.sealing import seal_log
from mew.journal.segment_reader import read_footer
from mew.journal.wal import LogWriter, read_blocks, synced_bytes
from mew.journal.writer import ReplayBudget
from mew.protocol import Record, SnapshotVersionError, SpaceState, snapshot
from mew.testing import Client
from tests.journal.live_journal import Files, LivingSpace, lived_and_recovered
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples

ALL = [{"kind": "*"}]
WORLDS = 8
STEPS = 80


@pytest.fixture
def lab(tmp_path: Path) -> LivingSpace:
    return LivingSpace(Files(tmp_path, "lab", Random(1)), participants={"alice": ALL, "bob": None, "carol": None})


def busy(lab: LivingSpace) -> tuple[Client, Client]:
    """A stream with two writers and some frames, data and chat, in a few blocks of a few logs."""
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="stream/request", payload={"description": "moves"})
    alice.send(kind="stream/start", payload={"stream": {"stream_id": "stream-1"}})
    alice.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "bob"})
    lab.files.turn()
    for number in range(5):
        for client in (alice, bob):
            client.frame("stream-1", f"{number}")
            client.frame("stream-1", f"{number}, again")
        payload = {"stream_id": "stream-1", "sequence": number, "content": number}
        bob.send(kind="stream/data", payload=payload)
        bob.send(kind="chat", payload={"text": f"{number}"})
        lab.files.turn()
        if number in (1, 3):
            lab.files.end()
    return alice, bob


# ------------------------------------------------------------------------------------------ state == fold(journal)


@pytest.mark.parametrize("seed", range(1, WORLDS + 1))
def test_after_any_history_what_is_recovered_is_what_lived(tmp_path: Path, seed: int) -> None:
    lived, recovered, folded = lived_and_recovered(tmp_path, seed, STEPS)
    assert lived == recovered == folded


@examples(12)
@given(steps=histories(size=30), seed=st.integers(min_value=0, max_value=2**16))
def test_whatever_participants_do_between_restarts_what_is_recovered_is_what_lived(
    steps: list[Step], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as path:
        chance = Random(seed)
        lab = LivingSpace(Files(Path(path), "lab", chance), **CONFIGURATION)
        played = History(lab)
        for step in steps:
            played.play(step)
            lab.files.something_happens()
            if chance.random() < 0.08:
                lab.checkpoint()
        assert snapshot(lab.files.recovered().state) == snapshot(lab.state) == snapshot(lab.folded())


def test_nothing_but_logs(lab: LivingSpace) -> None:
    busy(lab)
    recovered = lab.files.recovered()
    assert snapshot(recovered.state) == snapshot(lab.state)
    assert recovered.torn is None
    assert len(lab.files.folder.logs()) == 3


def test_nothing_but_segments(lab: LivingSpace) -> None:
    busy(lab)
    lab.files.end()
    lab.files.seal_some(every=True)
    assert lab.files.folder.logs() == []
    assert snapshot(recover(lab.files.folder).state) == snapshot(lab.state)


@pytest.mark.parametrize("sealed", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1)])
def test_any_of_the_logs_may_be_sealed_and_any_may_still_be_there(lab: LivingSpace, sealed: tuple[int, ...]) -> None:
    """Sealing one may have failed for want of room; and a crash may come between the seal and the log's deletion."""
    busy(lab)
    lab.files.end()
    logs = lab.files.folder.logs()
    for number in sealed:
        whole = logs[number].read_bytes()
        seal_log(lab.files.folder, logs[number])
        if number != 1:
            logs[number].write_bytes(whole)
    assert snapshot(recover(lab.files.folder).state) == snapshot(lab.state)


def test_no_journal_is_an_empty_space(tmp_path: Path) -> None:
    recovered = recover(JournalFolder(tmp_path, "lab"))
    assert (recovered.entries, recovered.torn) == (0, None)
    assert snapshot(recovered.state) == snapshot(SpaceState(space_id="lab"))


# -------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("harm", ["none", "missing", "torn", "flipped"])
def test_the_copy_of_the_checkpoint_is_only_a_short_cut(lab: LivingSpace, harm: str, *, sealed: bool) -> None:
    busy(lab)
    lab.checkpoint()
    lab.files.end()
    copy = lab.files.folder.checkpoint
    whole = copy.read_bytes()
    if harm == "missing":
        copy.unlink()
    elif harm != "none":
        copy.write_bytes(whole[:-1] if harm == "torn" else whole[:-1] + bytes([whole[-1] ^ 1]))
    lab.join("carol")
    lab.files.end()
    if sealed:
        lab.files.seal_some(every=True)
    recovered = recover(lab.files.folder)
    assert snapshot(recovered.state) == snapshot(lab.state)
    behind = lab.state.position - next(record.position for record in lab.records if record.event == "checkpoint")
    if harm == "none" or sealed:
        assert recovered.entries == behind
    else:
        assert recovered.entries > behind


def test_an_older_copy_of_the_checkpoint_serves_as_well(lab: LivingSpace) -> None:
    busy(lab)
    lab.checkpoint()
    lab.files.end()
    older = lab.files.folder.checkpoint.read_bytes()
    lab.join("carol")
    lab.checkpoint()
    lab.files.end()
    assert lab.files.folder.checkpoint.read_bytes() != older
    lab.files.folder.checkpoint.write_bytes(older)
    assert snapshot(recover(lab.files.folder).state) == snapshot(lab.state)


def test_a_copy_of_the_checkpoint_from_before_retention_s_cut_is_passed_over(lab: LivingSpace) -> None:
    """It could not be renewed, for want of room; then the space was quiet for long."""
    lab.checkpoint()
    lab.files.end()
    older = lab.files.folder.checkpoint.read_bytes()
    busy(lab)
    lab.checkpoint()
    lab.files.end()
    lab.join("carol")
    lab.files.end()
    lab.files.seal_some(every=True)
    *earlier, last = [segment for segment in lab.files.folder.segments() if read_footer(segment).checkpoint is not None]
    assert earlier
    for segment in lab.files.folder.segments():
        if segment.last < last.first:
            segment.control.unlink()
    lab.files.folder.checkpoint.write_bytes(older)
    assert snapshot(recover(lab.files.folder).state) == snapshot(lab.state)


def of_another_fold(record: Record) -> Record:
    payload = record.payload.replace(b'"fold_version":2', b'"fold_version":0')
    assert payload != record.payload
    return msgspec.structs.replace(record, payload=payload)


def rewritten(lab: LivingSpace, change: Callable[[list[Record]], list[Record]]) -> JournalFolder:
    """The journal of a space, but with other records; a hole begins a new log, as a writer does."""
    lab.files.end()
    folder = JournalFolder(lab.files.folder.root.with_name("changed"), "lab")
    folder.log.mkdir(parents=True)
    writer, following = None, -1
    for record in change(lab.records):
        if writer is None or record.position != following:
            writer = LogWriter(folder.log_file(record.position))
        writer.append([record])
        following = record.position + 1
    return folder


@pytest.mark.parametrize("sealed", [False, True])
def test_a_checkpoint_of_another_fold_is_ignored_and_every_record_is_folded_again(
    lab: LivingSpace, *, sealed: bool
) -> None:
    busy(lab)
    lab.checkpoint()
    lab.join("carol")
    folder = rewritten(
        lab, lambda records: [of_another_fold(record) if record.event == "checkpoint" else record for record in records]
    )
    copy = next(record for record in Journal(folder.root, "lab").records() if record.event == "checkpoint")
    wal.save_checkpoint(folder, copy)
    if sealed:
        for log in folder.logs():
            seal_log(folder, log)
    recovered = recover(folder)
    assert snapshot(recovered.state) == snapshot(lab.state)
    assert recovered.entries > lab.state.position - copy.position


def test_where_all_before_a_checkpoint_is_gone_it_is_begun_with(lab: LivingSpace) -> None:
    """Retention cuts at a checkpoint."""
    busy(lab)
    lab.checkpoint()
    at = lab.state.position
    lab.join("carol")
    folder = rewritten(lab, lambda records: records[at:])
    assert snapshot(recover(folder).state) == snapshot(lab.state)
    for log in folder.logs():
        seal_log(folder, log)
    assert snapshot(recover(folder).state) == snapshot(lab.state)


def test_a_hole_that_a_checkpoint_ends_is_no_damage(lab: LivingSpace) -> None:
    """A gateway that continued unrecorded has left it."""
    busy(lab)
    before = lab.state.position
    lab.join("carol")
    lab.checkpoint()
    at = lab.state.position
    lab.join("alice")
    folder = rewritten(lab, lambda records: [*records[: before + 1], *records[at:]])
    assert at > before + 1
    assert snapshot(recover(folder).state) == snapshot(lab.state)


def test_a_hole_that_only_a_checkpoint_of_another_fold_ends_cannot_be_gone_on_behind(lab: LivingSpace) -> None:
    busy(lab)
    before = lab.state.position
    lab.join("carol")
    lab.checkpoint()
    at = lab.state.position
    folder = rewritten(lab, lambda records: [*records[: before + 1], of_another_fold(records[at])])
    with pytest.raises(SnapshotVersionError):
        recover(folder)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_hole_without_a_checkpoint_is_damage_and_named(lab: LivingSpace, *, sealed: bool) -> None:
    busy(lab)
    folder = rewritten(lab, lambda records: [*records[:10], *records[12:]])
    if sealed:
        for log in folder.logs():
            seal_log(folder, log)
    with pytest.raises(JournalDamaged) as raised:
        recover(folder)
    assert re.findall(r"\b\d+\b", str(raised.value).removeprefix(str(folder.root))) == ["10", "12"]


def test_recovery_reads_no_more_than_what_is_behind_the_checkpoint(tmp_path: Path) -> None:
    """That is what bounds its time, however much is before."""
    lab = LivingSpace(Files(tmp_path, "lab", Random(1)), participants={"alice": ALL})
    alice = lab.join("alice")
    alice.send(kind="stream/request", payload={})
    alice.send(kind="stream/start", payload={"stream": {"stream_id": "stream-1"}})
    for turn in range(40):
        for _ in range(200):
            alice.frame("stream-1", "x" * 20)
        alice.send(kind="chat", payload={"text": "."})
        lab.files.turn()
        if turn % 10 == 9:
            lab.checkpoint()
            lab.files.end()
            lab.files.seal_some(every=turn == 19)
    alice.frame("stream-1", "1")
    alice.frame("stream-1", "2")
    alice.send(kind="chat", payload={"text": "."})
    recovered = lab.files.recovered()
    assert lab.state.position > 8000
    assert recovered.entries == 2
    assert snapshot(recovered.state) == snapshot(lab.state)
    assert ReplayBudget.ENTRIES <= 50_000


# --------------------------------------------------------------------------------------------- what a crash leaves


def cuts(folder: JournalFolder) -> Iterator[tuple[int, int]]:
    """Every place at which a crash may cut the last block off, and where the block begins."""
    last = folder.logs()[-1]
    *_, block = read_blocks(last)
    for size in range(block.offset, block.offset + len(block.data)):
        yield size, block.offset


@pytest.mark.parametrize("alone", [False, True], ids=["behind others", "alone in its file"])
def test_whatever_is_left_of_the_last_block_the_rest_is_recovered(
    lab: LivingSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    _, bob = busy(lab)
    if alone:
        lab.files.end()
    before = snapshot(lab.state)
    position = lab.state.position
    bob.send(kind="chat", payload={"text": "lost"})
    bob.frame("stream-1", "lost")
    lab.files.end()
    folder = lab.files.folder
    folder.synced.unlink()
    copy = tmp_path / "copy"
    shutil.copytree(folder.root, copy)
    sizes = list(cuts(folder))
    assert len(sizes) > 200
    monkeypatch.setattr(os, "fsync", lambda _file: None)  # no power failure here, and a sync would be slow
    for size, start in sizes:
        last = folder.logs()[-1]
        os.truncate(last, size)
        recovered = recover(folder)
        assert snapshot(recovered.state) == before
        torn = f"{last}: damaged at byte {start}"
        assert recovered.torn is None if size == start else str(recovered.torn).startswith(torn)
        # The rest can be continued: the next block begins where this one did, in a file of its own.
        assert not folder.log_file(position + 1).exists()
        shutil.copyfile(copy / last.relative_to(folder.root), last)
    assert snapshot(recover(folder).state) == snapshot(lab.state)


def test_files_that_a_crash_left_empty_go_away(lab: LivingSpace) -> None:
    busy(lab)
    lab.files.end()
    folder = lab.files.folder
    logs = folder.logs()
    for first in (lab.state.position + 1, lab.state.position + 5):
        folder.log_file(first).touch()
    assert truncate_torn_tail(folder) is None
    assert folder.logs() == logs


def test_what_was_synced_is_not_cut_off_but_damage(lab: LivingSpace) -> None:
    busy(lab)
    lab.files.end()
    folder = lab.files.folder
    last = folder.logs()[-1]
    size = last.stat().st_size
    assert synced_bytes(folder, last) == size
    os.truncate(last, size - 1)
    with pytest.raises(JournalDamaged, match=last.name):
        recover(folder)
    assert last.stat().st_size == size - 1


def test_damage_in_an_earlier_log_is_an_error_and_left_unchanged(lab: LivingSpace) -> None:
    busy(lab)
    lab.files.end()
    first = lab.files.folder.logs()[0]
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    with pytest.raises(JournalDamaged, match=first.name):
        recover(lab.files.folder)
    assert first.read_bytes() == data


def test_damage_in_a_log_before_the_checkpoint_does_not_prevent_recovery(lab: LivingSpace) -> None:
    busy(lab)
    lab.files.end()
    first = lab.files.folder.logs()[0]
    lab.checkpoint()
    lab.join("carol")
    lab.files.end()
    assert len(lab.files.folder.logs()) > 2
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    assert snapshot(recover(lab.files.folder).state) == snapshot(lab.state)


def test_a_damaged_segment_after_the_checkpoint_is_an_error(lab: LivingSpace) -> None:
    busy(lab)
    lab.files.end()
    lab.files.seal_some(every=True)
    segment = lab.files.folder.segments()[0]
    os.truncate(segment.control, segment.control.stat().st_size - 20)
    with pytest.raises(CorruptData, match=segment.control.name):
        recover(lab.files.folder)


@pytest.mark.parametrize("mark", ["", "nonsense", "1", "x y", "00000000000000000000"])
def test_a_mark_that_cannot_be_read_says_nothing(tmp_path: Path, mark: str) -> None:
    folder = JournalFolder(tmp_path, "lab")
    folder.log.mkdir(parents=True)
    folder.synced.write_text(mark, encoding="ascii")
    assert synced_bytes(folder, folder.log_file(0)) == 0


def test_the_mark_speaks_for_all_files_before_its_own(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path, "lab")
    folder.log.mkdir(parents=True)
    for first in (0, 10, 20):
        folder.log_file(first).write_bytes(b"x" * 100)
    folder.synced.write_text(f"{10:020} {40:020}\n", encoding="ascii")
    assert [synced_bytes(folder, path) for path in folder.logs()] == [100, 40, 0]


# --------------------------------------------------------------------------- while another process is still at work


def test_logs_may_be_sealed_while_they_are_recovered(
    lab: LivingSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sealer of a killed gateway finishes its last request, whatever its successor does meanwhile."""
    busy(lab)
    lab.files.end()
    for look in range(20):
        folder = JournalFolder(tmp_path / f"{look}" / "journal", "lab")
        shutil.copytree(lab.files.folder.root, folder.root)
        with monkeypatch.context() as patch:
            looks = Looks(patch, folder, look)
            assert snapshot(recover(folder).state) == snapshot(lab.state)
        if looks.count < look:
            return
        assert len(folder.segments()) == 2
    pytest.fail("recovery looks without end")


class Looks:
    """Counts how often a folder is listed; just after one of these looks, two logs are sealed."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: JournalFolder, which: int) -> None:
        self.count = -1
        self._folder = folder
        self._which = which
        self._logs = folder.logs()[:2]
        for name in ("logs", "segments", "hours"):
            patch.setattr(JournalFolder, name, self._counting(getattr(JournalFolder, name)))

    def _counting(self, look: Callable[..., object]) -> Callable[..., object]:
        def looked(*arguments: object) -> object:
            result = look(*arguments)
            self.count += 1
            if self.count == self._which:
                for log in self._logs:
                    seal_log(self._folder, log)
            return result

        return looked


def test_a_sealer_that_works_all_the_while_does_no_harm(lab: LivingSpace) -> None:
    busy(lab)
    for _ in range(12):
        lab.join("carol")
        lab.files.end()
    folder = lab.files.folder

    def seal_all() -> None:
        for log in folder.logs():
            seal_log(folder, log)

    sealer = threading.Thread(target=seal_all)
    sealer.start()
    states: list[bytes] = []
    while sealer.is_alive() or not states:
        states.append(snapshot(recover(folder).state))
    sealer.join()
    assert set(states) == {snapshot(lab.state)}


def test_two_sealers_of_one_log_make_one_segment(lab: LivingSpace) -> None:
    busy(lab)
    lab.files.end()
    folder = lab.files.folder
    logs = folder.logs()
    failed: list[BaseException] = []

    def seal_all() -> None:
        try:
            for log in logs:
                sealing.seal_log(folder, log)
        except BaseException as error:
            failed.append(error)

    sealers = [threading.Thread(target=seal_all) for _ in range(2)]
    for record in sealers:
        record.start()
    for record in sealers:
        record.join()
    assert failed == []
    assert folder.logs() == []
    assert [(record.first, record.last) for record in folder.segments()] == [
        (first_position(log), following - 1)
        for log, following in zip(logs, [*map(first_position, logs[1:]), lab.state.position + 1], strict=True)
    ]
    assert snapshot(recover(folder).state) == snapshot(lab.state)
