"""Compaction and tidying: fewer files, the same rows, and nothing goes that anybody can need."""

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mew.pipeline.lake import Lake, compaction, tidying
from mew.pipeline.lake.parts import write
from mew.pipeline.lake.plans import KEPT
from mew.pipeline.lake.states import RECORDS
from mew.pipeline.schemas import READER_GAPS, STREAM_ACCESS
from tests.pipeline.lake import batches
from tests.pipeline.lake.batches import TABLES, by_deltalake, by_polars, by_reader, commit, expected, same

DAY = 24 * 3600


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def assert_same_rows(lake: Lake, last: int) -> None:
    for table in TABLES:
        assert same(by_reader(lake, table.name)) == same(expected(table, last))


def test_small_files_become_one_and_the_rows_stay(lake: Lake) -> None:
    batches.run(lake.path, 6)
    done = lake.compact()
    assert (done["reader_gaps"].before, done["reader_gaps"].after) == (6, 1)
    assert (done["stream_access"].before, done["stream_access"].after) == (7, 2)
    assert (done["progress"].before, done["progress"].after) == (6, 1)
    assert_same_rows(lake, 6)
    assert [row.batch for row in lake.history()] == [1, 2, 3, 4, 5, 6]
    assert lake.compact() == {}


def test_readers_profit_at_once(lake: Lake) -> None:
    batches.run(lake.path, 4)
    before = lake.reader()
    old = before.files("reader_gaps")
    lake.compact()
    assert len(lake.reader().files("reader_gaps")) == 1
    assert len(lake.reader().files("stream_access")) == 2
    # A reader that has begun continues.
    assert all(Path(file).exists() for file in old)


def test_few_small_files_are_left_alone(lake: Lake) -> None:
    batches.run(lake.path, 4)
    assert lake.compact(at_least=5) == {}
    assert lake.compact(at_least=4) != {}


def test_batches_go_on_behind_a_compaction(lake: Lake) -> None:
    batches.run(lake.path, 3)
    lake.compact()
    batches.run(lake.path, 5)
    assert_same_rows(lake, 5)
    lake.compact()
    batches.run(lake.path, 6)
    assert_same_rows(lake, 6)
    for table in TABLES:
        assert DeltaTable(str(lake.table_folder(table.name))).protocol() == (1, 2, None, None)
        assert DeltaTable(str(lake.table_folder(table.name))).transaction_version("mew") == 6


def test_a_compaction_between_two_commits_of_a_batch_shows_nothing_of_it(lake: Lake) -> None:
    batches.run(lake.path, 3)
    first = commit(lake, READER_GAPS, 4)
    lake.compact()
    assert_same_rows(lake, 3)
    versions = {READER_GAPS.name: first, **{table.name: commit(lake, table, 4) for table in TABLES[1:]}}
    lake.finish(batches.progress(lake, 4, versions))
    assert_same_rows(lake, 4)
    assert same(by_deltalake(lake, "reader_gaps")) == same(expected(READER_GAPS, 4))


def test_a_compaction_between_opening_and_committing_is_noticed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    batches.run(lake.path, 3)
    real = DeltaTable.create_write_transaction

    def disturbed(handle: DeltaTable, *actions: Any, **named: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        DeltaTable(str(lake.table_folder("stream_access"))).optimize.compact()
        real(handle, *actions, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", disturbed)
    assert commit(lake, STREAM_ACCESS, 4) == 5
    assert same(by_deltalake(lake, "stream_access")) == same(expected(STREAM_ACCESS, 4))


def test_a_batch_that_comes_between_leaves_the_compaction_for_another_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches.run(lake.path, 3)
    real = compaction._merge

    def late(folder: Path, handle: DeltaTable) -> None:
        if folder.name == "stream_access":
            commit(lake, STREAM_ACCESS, 4)
        real(folder, handle)

    monkeypatch.setattr(compaction, "_merge", late)
    lake.compact()
    assert_same_rows(lake, 3)
    assert same(by_deltalake(lake, "stream_access")) == same(expected(STREAM_ACCESS, 4))


def test_compacted_files_have_the_same_types_for_every_engine(lake: Lake) -> None:
    batches.run(lake.path, 3)
    lake.compact()
    for table in TABLES:
        version = lake.reader().version(table.name)
        assert version is not None
        assert same(by_polars(lake, table.name, version)) == same(expected(table, 3))


def age(folder: Path, days: float) -> None:
    """Let everything below a folder be older."""
    then = time.time() - days * DAY
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


def test_removed_files_stay_a_week_and_then_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    batches.run(lake.path, 5)
    lake.compact()
    files = {path for path in lake.folder.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert compaction.KEPT_HOURS == 7 * 24
    assert all(each.deleted == 0 for each in lake.compact().values())
    assert {path for path in files if not path.exists()} == set()
    # A week later: what was removed is old enough.
    monkeypatch.setattr(compaction, "KEPT_HOURS", 0)
    monkeypatch.setattr(DeltaTable, "vacuum", _without_enforcing(DeltaTable.vacuum))
    done = lake.compact()
    assert done["reader_gaps"].deleted == 5
    assert_same_rows(lake, 5)
    batches.run(lake.path, 6)
    assert_same_rows(lake, 6)


def _without_enforcing(real: Any) -> Any:
    def vacuum(handle: DeltaTable, hours: int, **named: Any) -> Any:
        return real(handle, hours, enforce_retention_duration=False, **named)

    return vacuum


def test_the_files_that_readers_see_stay_however_old_they_are(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress row still names the version before the compaction: the process was killed before changing it."""
    batches.run(lake.path, 5)
    monkeypatch.setattr(compaction, "_move", lambda tables, progress: None)
    lake.compact()
    monkeypatch.setattr(compaction, "KEPT_HOURS", 0)
    monkeypatch.setattr(DeltaTable, "vacuum", _without_enforcing(DeltaTable.vacuum))
    lake.compact()
    assert len(lake.reader().files("reader_gaps")) == 5
    assert_same_rows(lake, 5)


def test_old_entries_of_the_log_go_and_what_readers_see_stays(lake: Lake) -> None:
    batches.run(lake.path, 4)
    DeltaTable(str(lake.table_folder("reader_gaps"))).create_checkpoint()
    batches.run(lake.path, 5)
    # Behind what readers see, where no batch is finished yet, everything may be old too.
    commit(lake, READER_GAPS, 6)
    DeltaTable(str(lake.table_folder("reader_gaps"))).create_checkpoint()
    log = lake.table_folder("reader_gaps") / "_delta_log"
    age(log, 3)
    lake.compact(at_least=100)
    assert sorted(path.name for path in log.glob("*.json")) == [f"{version:020}.json" for version in (4, 5, 6)]
    assert_same_rows(lake, 5)


# ------------------------------------------------------------------------------------------------ tidying


def test_parts_of_killed_runs_go_after_a_day(lake: Lake) -> None:
    batches.run(lake.path, 2)
    orphan = write(READER_GAPS, batches.reader_gaps(2), lake.table_folder("reader_gaps"), name="2-0")[0]
    hidden = write(STREAM_ACCESS, batches.stream_access(1), lake.table_folder("stream_access"), name="1-0")
    assert lake.tidy().parts == ()
    age(lake.path, 1.1)
    left = {f"reader_gaps/{orphan.path}", *(f"stream_access/{part.path}" for part in hidden)}
    assert set(lake.tidy().parts) == left
    assert not (lake.table_folder("reader_gaps") / orphan.path).exists()
    assert_same_rows(lake, 2)
    assert lake.tidy() == tidying.Tidied((), (), ())


def test_parts_that_can_still_be_committed_stay_however_old_they_are(lake: Lake) -> None:
    batches.run(lake.path, 2)
    parts = write(READER_GAPS, batches.reader_gaps(3), lake.table_folder("reader_gaps"), name="3-0")
    age(lake.path, 100)
    assert lake.tidy().parts == ()
    lake.commit(READER_GAPS, 3, parts)
    age(lake.path, 100)
    assert lake.tidy().parts == ()
    assert same(by_deltalake(lake, "reader_gaps")) == same(expected(READER_GAPS, 3))


def test_files_that_were_removed_are_the_affair_of_compaction(lake: Lake) -> None:
    batches.run(lake.path, 3)
    before = lake.reader()
    lake.compact()
    age(lake.path, 2)
    assert lake.tidy().parts == ()
    assert all(Path(file).exists() for name in before.names for file in before.files(name))


def test_state_files_that_no_batch_names_go_after_a_day(lake: Lake) -> None:
    batches.run(lake.path, 2)
    kept = lake.states()
    useless, next_one = lake.save_state(2, {}), lake.save_state(3, {})
    draft = lake.path / "_state" / ".4-x.tmp"
    draft.write_bytes(b"")
    assert lake.tidy() == tidying.Tidied((), (), ())
    age(lake.path, 1.1)
    assert lake.tidy() == tidying.Tidied((), (useless,), (draft.name,))
    assert lake.states() == [*kept, next_one]


def test_of_old_state_files_one_an_hour_stays_and_the_last_always(lake: Lake) -> None:
    batches.run(lake.path, 6)
    names = lake.states()
    hour = 1_700_000_000 // 3600 * 3600
    for name, at in zip(names, (0, 10, 3600, 3700, 3800, 3900), strict=True):
        os.utime(lake.path / "_state" / name, (hour + at, hour + at))
    assert set(lake.tidy().states) == {names[0], names[2], names[3], names[4]}
    assert lake.states() == [names[1], names[5]]


def test_state_files_of_a_week_are_thinned_out_until_so_many_records_are_between_them(lake: Lake) -> None:
    """As a watch leaves them that has a batch a second for hours."""
    now, records = 1_800_000_000.0 // 3600 * 3600, 0
    for batch in range(1, 31):
        records += 3_000
        batches.run_one(lake, batch, {"lab/control": b"{}", f"lab{RECORDS}": b"%d" % records})
    names = lake.states()
    for index, name in enumerate(names):
        at = now - 50 * 3600 + index
        os.utime(lake.path / "_state" / name, (at, at))
    gone = set(lake.tidy(now).states)
    left = [name for name in names if name not in gone]
    assert lake.states() == left
    assert left[-1] == names[-1]
    assert 4 <= len(left) <= 8
    counts = [int(lake.read_state(name)[f"lab{RECORDS}"]) for name in left]
    assert all(after - before <= tidying.APART for before, after in pairwise([0, *counts]))
    assert lake.tidy(now).states == ()
    assert len(lake.tidy(now + tidying.WEEK).states) == len(left) - 1  # then one an hour


def test_fresh_state_files_stay_however_many_there_are(lake: Lake) -> None:
    for batch in range(1, 8):
        batches.run_one(lake, batch, {f"lab{RECORDS}": b"1"})
    newest = max(path.stat().st_mtime for path in (lake.path / "_state").iterdir())
    assert lake.tidy(newest + 5).states == ()
    assert len(lake.tidy(newest + tidying.FRESH + 3600).states) >= 2


def test_state_files_that_do_not_say_how_many_records_they_have_stay_for_a_week(lake: Lake) -> None:
    batches.run(lake.path, 6)
    now = max(path.stat().st_mtime for path in (lake.path / "_state").iterdir())
    assert lake.tidy(now + tidying.WEEK - 3600).states == ()


def test_what_killed_runs_shared_with_their_tasks_goes_after_a_day(lake: Lake) -> None:
    batches.run(lake.path, 1)
    left = lake.path / "_stage" / "1-abc"
    left.mkdir(parents=True)
    (left / "lab.catalogue").write_bytes(b"x")
    now = left.stat().st_mtime
    lake.tidy(now + 60)
    assert left.exists()
    lake.tidy(now + tidying.DAY + 60)
    assert not left.exists()


def test_what_a_jvm_says_by_itself_is_cut_short(lake: Lake) -> None:
    batches.run(lake.path, 1)
    lake.logs.mkdir()
    log = lake.logs / "jvm.log"
    with log.open("ab") as jvm:
        jvm.write(b"?" * (tidying.LOG_BYTES + 1))
        jvm.flush()
        lake.tidy()
        assert log.stat().st_size == 0
        jvm.write(b"again")
    assert log.read_bytes() == b"again"


def test_plans_of_finished_batches_are_few(lake: Lake) -> None:
    batches.run(lake.path, 15)
    assert len(list((lake.path / "_plan").iterdir())) <= KEPT
