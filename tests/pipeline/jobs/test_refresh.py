"""A full refresh: the tables of one run, rebuilt; until its end readers see the old ones."""

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mew.journal.layout import JournalFolder
from mew.journal.retention import delete_expired, registered_positions
from mew.pipeline.control.tally import MINUTE
from mew.pipeline.jobs import running
from mew.pipeline.jobs.holding import reader_name
from mew.pipeline.jobs.running import VERSIONS, run_batch
from mew.pipeline.jobs.soundness import time_at
from mew.pipeline.lake import BatchOutOfOrder, Lake, ParquetPart, Progress, Versions
from mew.pipeline.lake.values import ABANDONED
from mew.pipeline.lookup.moments import SNAPSHOT
from mew.pipeline.schemas import TABLES, Table
from mew.pipeline.silver.frame_state import decode_frame_state
from mew.pipeline.silver.partials import STREAM, with_tag
from tests.pipeline.jobs.growing import Growing
from tests.pipeline.jobs.killing import kill_some
from tests.pipeline.jobs.lakes import CONTENT, contents, dicts, run_all
from tests.pipeline.sessions import ENGINE
from tools.journal_generator import Truth, generate

OLD = Versions(1, 1, 1)
REFRESHER = (sys.executable, "-m", "tests.pipeline.jobs.refresher")
POINTS = ("envelopes", "frames", "quarantine", "reader_gaps")
"""Tables whose rows are of one record each, and made of it alone."""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    root = tmp_path_factory.mktemp("journal") / "journal"
    return root, generate(root, records=20_000, spaces=2, seed=7, segment_bytes=20_000)


@pytest.fixture(scope="module")
def whole(journal: tuple[Path, Truth], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it in one batch."""
    path = tmp_path_factory.mktemp("lake") / "lake"
    assert run_all(journal[0], path) == 1
    return path


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "lake"))


@pytest.fixture
def copied(journal: tuple[Path, Truth], tmp_path: Path) -> Path:
    """A journal to be cut."""
    return Path(shutil.copytree(journal[0], tmp_path / "copied" / "journal"))


def refresh(journal: Path, lake: Path | Lake) -> Progress:
    there = lake if isinstance(lake, Lake) else Lake(lake)
    progress = run_batch(journal, there, ENGINE, refresh=True)
    assert progress is not None
    return progress


def same(found: Path, expected: Path) -> None:
    """All tables that hang on the journal alone."""
    one, other = contents(found), expected_contents(expected)
    for name in CONTENT:
        assert one[name] == other[name], name


@cache
def expected_contents(lake: Path) -> dict[str, pa.Table]:
    """Of a lake that is not changed."""
    return contents(lake)


def state(lake: Path) -> dict[str, bytes]:
    """The state of the next batch; snapshots in between depend on the batches."""
    progress = Lake(lake).progress()
    assert progress is not None
    return {name: part for name, part in Lake(lake).read_state(progress.state).items() if SNAPSHOT not in name}


# ------------------------------------------------------------------------------------------------ the same rows


def test_a_refresh_of_many_batches_gives_the_tables_of_one(
    journal: tuple[Path, Truth], whole: Path, tmp_path: Path
) -> None:
    batches = run_all(journal[0], tmp_path / "lake", most=3_000)
    done = refresh(journal[0], tmp_path / "lake")
    assert done.batch == batches + 1
    same(tmp_path / "lake", whole)
    assert state(tmp_path / "lake") == state(whole)
    audited = [(row["space"], row["check"], row["to_position"]) for row in dicts(tmp_path / "lake", "audit")]
    assert len(audited) == len(set(audited)) == len(dicts(whole, "audit"))
    assert run_all(journal[0], tmp_path / "lake") == 0


def test_batches_go_on_behind_a_refresh(journal: tuple[Path, Truth], whole: Path, tmp_path: Path) -> None:
    growing = Growing(journal[0], tmp_path / "journal")
    growing.grow(4)
    run_all(growing.path, tmp_path / "lake")
    growing.grow(2)
    refresh(growing.path, tmp_path / "lake")
    growing.grow(1000)
    run_all(growing.path, tmp_path / "lake", most=2_500)
    same(tmp_path / "lake", whole)


def test_however_it_was_cut_the_next_batch_goes_on_from_the_same(
    journal: tuple[Path, Truth], whole: Path, tmp_path: Path
) -> None:
    assert run_all(journal[0], tmp_path / "lake", most=1_500) >= 7
    assert state(tmp_path / "lake") == state(whole)
    for name, space in journal[1].spaces.items():
        rows = decode_frame_state(state(whole)[f"{name}{running.FRAMES}"]).rows
        remembered = set(with_tag(rows, STREAM)["stream_id"].to_pylist())
        assert remembered == {each.stream_id for each in space.open_streams if each.frames + each.data}
        assert len(remembered) < len(space.streams)


def test_a_refresh_of_nothing_is_a_first_run(journal: tuple[Path, Truth], whole: Path, tmp_path: Path) -> None:
    assert refresh(journal[0], tmp_path / "lake").batch == 1
    same(tmp_path / "lake", whole)


class Watched(Lake):
    """A lake that is read before each step of a commit."""

    def __init__(self, path: Path, look: Callable[[], None], steps: int | None = None) -> None:
        super().__init__(path)
        self.look = look
        self.steps = steps
        """So many commits are let through."""

    def replace(self, table: Table, batch: int, parts: Iterable[ParquetPart], keep: Collection[str] = ()) -> int:
        self._step()
        return super().replace(table, batch, parts, keep)

    def commit(self, table: Table, batch: int, parts: Iterable[ParquetPart]) -> int:
        self._step()
        return super().commit(table, batch, parts)

    def skip(self, table: Table, batch: int) -> int:
        self._step()
        return super().skip(table, batch)

    def finish(self, progress: Progress) -> None:
        self._step()
        super().finish(progress)

    def _step(self) -> None:
        self.look()
        if self.steps is not None:
            if not self.steps:
                raise InterruptedError("that was enough")
            self.steps -= 1


def test_until_its_end_readers_see_the_old_tables(journal: tuple[Path, Truth], tmp_path: Path) -> None:
    growing = Growing(journal[0], tmp_path / "journal")
    growing.grow(4)
    run_all(growing.path, tmp_path / "lake")
    growing.grow(1)
    before, seen = contents(tmp_path / "lake"), []

    def look() -> None:
        seen.append(contents(tmp_path / "lake") == before)

    refresh(growing.path, Watched(tmp_path / "lake", look))
    assert seen == [True] * (len(TABLES) + 1)
    assert len(contents(tmp_path / "lake")["frames"]) > len(before["frames"])


def test_a_space_with_nothing_new_keeps_its_unfinished_rows(
    journal: tuple[Path, Truth], whole: Path, copied: Path, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    JournalFolder(copied, "orchard").sealed.rename(away)
    run_all(copied, tmp_path / "lake")
    away.rename(JournalFolder(copied, "orchard").sealed)
    assert run_all(copied, tmp_path / "lake", most=7_000) == 2
    same(tmp_path / "lake", whole)


# ------------------------------------------------------------------------------------------------- disturbed


@pytest.mark.timeout(240)
def test_a_killed_refresh_is_taken_up_as_one(journal: tuple[Path, Truth], whole: Path, tmp_path: Path) -> None:
    growing, chance = Growing(journal[0], tmp_path / "journal"), random.Random(3)
    growing.grow(6)
    run_all(growing.path, tmp_path / "lake")
    command = [*REFRESHER, str(growing.path), str(tmp_path / "lake")]
    assert kill_some(command, 6, chance, before=lambda: growing.grow(1)) > 0
    growing.grow(1000)
    run_all(growing.path, tmp_path / "lake")
    same(tmp_path / "lake", whole)


@pytest.mark.parametrize("steps", [0, 3, len(TABLES)])
def test_a_refresh_that_ended_between_two_tables_is_ended_by_an_ordinary_run(
    journal: tuple[Path, Truth], whole: Path, lake: Path, steps: int
) -> None:
    with pytest.raises(InterruptedError):
        refresh(journal[0], Watched(lake, lambda: None, steps))
    progress = run_batch(journal[0], Lake(lake), ENGINE)
    assert progress is not None
    assert (progress.batch, progress.rows["frames"]) == (2, len(expected_contents(whole)["frames"]))
    assert run_all(journal[0], lake) == 0
    same(lake, whole)


def test_a_batch_that_was_begun_is_given_up_for_a_refresh(
    journal: tuple[Path, Truth], whole: Path, tmp_path: Path
) -> None:
    run_batch(journal[0], Lake(tmp_path / "lake"), ENGINE, most=3_000)
    before = dicts(tmp_path / "lake", "streams")
    with pytest.raises(InterruptedError):
        run_batch(journal[0], Watched(tmp_path / "lake", lambda: None, 5), ENGINE, most=3_000)
    with pytest.raises(InterruptedError):
        refresh(journal[0], Watched(tmp_path / "lake", lambda: None, len(TABLES) + 1))
    given_up = Lake(tmp_path / "lake").progress()
    assert given_up is not None
    assert (given_up.batch, given_up.versions) == (2, ABANDONED)
    assert Lake(tmp_path / "lake").compact() == {}
    assert dicts(tmp_path / "lake", "streams") == before
    assert run_all(journal[0], tmp_path / "lake") == 1
    same(tmp_path / "lake", whole)


@pytest.mark.parametrize("steps", [0, 1, len(TABLES) // 2, len(TABLES)])
def test_giving_a_batch_up_is_gone_on_with_by_whoever_comes_next(
    journal: tuple[Path, Truth], whole: Path, tmp_path: Path, steps: int
) -> None:
    run_batch(journal[0], Lake(tmp_path / "lake"), ENGINE, most=3_000)
    with pytest.raises(InterruptedError):
        run_batch(journal[0], Watched(tmp_path / "lake", lambda: None, 2), ENGINE, most=3_000)
    with pytest.raises(InterruptedError):
        refresh(journal[0], Watched(tmp_path / "lake", lambda: None, steps))
    assert run_all(journal[0], tmp_path / "lake", most=3_000) > 0
    same(tmp_path / "lake", whole)


def test_a_batch_that_is_given_up_while_it_is_done_is_not_finished(copied: Path, tmp_path: Path) -> None:
    path = tmp_path / "lake"

    def give_up() -> None:
        Lake(path).give_up(1)

    with pytest.raises(BatchOutOfOrder, match="batch 1 was abandoned while it ran"):
        run_batch(copied, Watched(path, give_up), ENGINE, most=3_000)
    assert Lake(path).progress() is None


# ------------------------------------------------------------------------------------------------ other versions


def test_rows_of_another_version_are_made_anew_and_that_is_said(
    journal: tuple[Path, Truth], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "VERSIONS", OLD)
    run_all(journal[0], tmp_path / "lake", most=3_000)
    monkeypatch.undo()
    said: list[str] = []
    progress = run_batch(journal[0], Lake(tmp_path / "lake"), ENGINE, say=said.append)
    assert progress is not None
    assert progress.versions == VERSIONS
    assert said == ["all tables are rebuilt: another version made them (fold, kernel)"]
    assert run_all(journal[0], tmp_path / "lake") == 0
    same(tmp_path / "lake", whole)


@pytest.mark.parametrize("batches", [0, 1])
def test_a_batch_that_another_version_began_is_given_up(
    journal: tuple[Path, Truth], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    monkeypatch.setattr(running, "VERSIONS", OLD)
    for _ in range(batches):
        run_batch(journal[0], Lake(tmp_path / "lake"), ENGINE, most=3_000)
    with pytest.raises(InterruptedError):
        run_batch(journal[0], Watched(tmp_path / "lake", lambda: None, 4), ENGINE, most=3_000)
    monkeypatch.undo()
    said: list[str] = []
    progress = run_batch(journal[0], Lake(tmp_path / "lake"), ENGINE, say=said.append)
    assert progress is not None
    assert progress.batch == batches + 2
    assert said == [f"all tables are rebuilt: batch {batches + 1} was begun, and could not be ended"]
    same(tmp_path / "lake", whole)


# ---------------------------------------------------------------------------------------- what the journal has lost


def cut(journal: Path, space: str, position: int) -> int:
    """Let retention take what is before a checkpoint, as far as readers let it; the first position that is left."""
    folder = JournalFolder(journal, space)
    delete_expired(folder, keep_seconds=1, now=time_at(folder, position) + 1_000_001)
    return folder.segments()[0].first


def test_rows_below_the_floor_stay(journal: tuple[Path, Truth], copied: Path, lake: Path, whole: Path) -> None:
    truth = journal[1].spaces["harbour"]
    minute = truth.last_time // MINUTE * MINUTE
    before = [each for each in truth.checkpoints if time_at(JournalFolder(copied, "harbour"), each) < minute]
    floor = before[-1]
    assert 0 < cut(copied, "harbour", floor) <= floor
    refresh(copied, lake)
    found, expected = contents(lake), expected_contents(whole)
    for name in POINTS:
        assert found[name] == expected[name], name
    for name in CONTENT:
        assert _of_others(found[name], truth.space) == _of_others(expected[name], truth.space), name
    _adds_up(lake, journal[1])
    streams = _of(dicts(lake, "streams"), truth.space)
    ended = [row for row in streams if row["ended_position"] is not None and row["ended_position"] < floor]
    assert ended
    before_the_cut = dicts(whole, "streams")
    assert all(row in before_the_cut for row in ended)
    assert {row["stream_id"] for row in streams} == truth.streams.keys()
    _is_whole(dicts(lake, "stream_access"), dicts(whole, "stream_access"), ("stream_id", "participant", "role"))
    _is_whole(dicts(lake, "capabilities"), dicts(whole, "capabilities"), ("participant", "source", "capability"))
    assert run_all(copied, lake) == 0
    again = contents(lake)
    refresh(copied, lake)
    assert contents(lake) == again


def _of(rows: list[dict[str, Any]], space: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["space"] == space]


def _of_others(found: pa.Table, space: str) -> pa.Table:
    return found.filter(pc.field("space") != space)


def _adds_up(lake: Path, truth: Truth) -> None:
    """What flowed on each stream, by row and by window, is what the story says."""
    carried: Counter[tuple[str, str]] = Counter()
    for row in dicts(lake, "streams"):
        carried[row["space"], row["stream_id"]] += row["frames"] + row["data"]
    story = {
        (space.space, stream_id): stream.frames + stream.data
        for space in truth.spaces.values()
        for stream_id, stream in space.streams.items()
    }
    assert carried == story
    for seconds in (1, 60):
        windows = [row for row in dicts(lake, "stream_activity") if row["seconds"] == seconds]
        keys = [(row["space"], row["stream_id"], row["start"]) for row in windows]
        assert len(keys) == len(set(keys))
        assert sum(row["frames"] for row in windows) == sum(story.values())
    assert sum(row["frames"] for row in dicts(lake, "participant_activity")) == sum(story.values())


def _is_whole(found: list[dict[str, Any]], expected: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    """The ranges of each participant are the same, if rows that meet are taken together."""
    assert _stretches(found, names) == _stretches(expected, names)


def _stretches(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[Any]:
    found: list[Any] = []
    for row in sorted(rows, key=lambda row: (row["space"], *(row[name] for name in names), row["from_position"])):
        key = (row["space"], *(row[name] for name in names))
        if found and found[-1][0] == key and found[-1][2] == row["from_position"]:
            found[-1][2] = row["to_position"]
        else:
            found.append([key, row["from_position"], row["to_position"]])
    return found


def test_behind_lost_records_a_space_is_begun_anew_and_the_others_stay(
    journal: tuple[Path, Truth], copied: Path, whole: Path, tmp_path: Path
) -> None:
    run_batch(copied, Lake(tmp_path / "lake"), ENGINE, most=3_000)
    run_batch(copied, Lake(tmp_path / "lake"), ENGINE, most=3_000)
    done = Lake(tmp_path / "lake").progress()
    assert done is not None
    folder = JournalFolder(copied, "harbour")
    gone = [each for each in folder.segments() if each.first > done.positions["harbour"]][:3]
    for segment in [*folder.segments(done.positions["harbour"])[:1], *gone]:
        segment.control.unlink()
    said: list[str] = []
    while run_batch(copied, Lake(tmp_path / "lake"), ENGINE, say=said.append) is not None:
        pass
    assert said == [
        f"'harbour' is rebuilt: the journal of 'harbour' has lost the records "
        f"{done.positions['harbour'] + 1} to {gone[-1].last} before the pipeline had them"
    ]
    found, expected = contents(tmp_path / "lake"), expected_contents(whole)
    frames = expected["frames"].filter(pc.field("space") == "harbour").column("position").to_pylist()
    left = [each for each in frames if not done.positions["harbour"] < each <= gone[-1].last]
    here = found["frames"].filter(pc.field("space") == "harbour").column("position").to_pylist()
    assert sorted(here) == sorted(left)
    for name in CONTENT:
        assert _of_others(found[name], "harbour") == _of_others(expected[name], "harbour"), name


def test_what_is_late_is_waited_for(journal: tuple[Path, Truth], copied: Path, whole: Path, tmp_path: Path) -> None:
    folder = JournalFolder(copied, "harbour")
    late = folder.segments()[5]
    control, log = late.control.read_bytes(), folder.log_file(late.first)
    late.control.unlink()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    said: list[str] = []
    while run_batch(copied, Lake(tmp_path / "lake"), ENGINE, say=said.append) is not None:
        pass
    progress = Lake(tmp_path / "lake").progress()
    assert progress is not None
    assert progress.positions["harbour"] == late.first - 1
    late.control.write_bytes(control)
    log.unlink()
    while run_batch(copied, Lake(tmp_path / "lake"), ENGINE, say=said.append) is not None:
        pass
    assert said == []
    same(tmp_path / "lake", whole)


# ------------------------------------------------------------------------------------------------ as a reader


def test_retention_removes_nothing_that_no_batch_has_had(
    journal: tuple[Path, Truth], copied: Path, whole: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    truth = journal[1].spaces["harbour"]
    run_batch(copied, Lake(lake), ENGINE, most=3_000)
    progress = Lake(lake).progress()
    assert progress is not None
    for space, position in progress.positions.items():
        assert registered_positions(JournalFolder(copied, space))[reader_name(lake)] == position + 1
    floor = cut(copied, "harbour", truth.checkpoints[-1])
    assert floor <= progress.positions["harbour"] + 1
    run_all(copied, lake)
    same(lake, whole)
    assert registered_positions(JournalFolder(copied, "harbour"))[reader_name(lake)] == truth.last + 1
    assert cut(copied, "harbour", truth.checkpoints[-1]) > floor


def test_while_tables_are_made_anew_the_journal_keeps_its_floor(
    journal: tuple[Path, Truth], copied: Path, lake: Path, whole: Path
) -> None:
    run_all(copied, lake)
    last = journal[1].spaces["harbour"].checkpoints[-1]
    with pytest.raises(InterruptedError):
        refresh(copied, Watched(lake, lambda: None, 3))
    assert cut(copied, "harbour", last) == 0
    run_all(copied, lake)
    same(lake, whole)
    assert cut(copied, "harbour", last) > 0


def test_two_lakes_are_two_readers(tmp_path: Path) -> None:
    assert reader_name(tmp_path / "one") != reader_name(tmp_path / "other")
    assert reader_name(tmp_path / "a b") != reader_name(tmp_path / "a-b")
