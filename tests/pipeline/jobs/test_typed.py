"""Formats with a table: which have one, that it has every row once, and that queries do not show the difference."""

import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mew.journal.layout import JournalFolder
from mew.journal.retention import delete_expired
from mew.pipeline import open_lake
from mew.pipeline.jobs import typed
from mew.pipeline.jobs.planning import spaces_of
from mew.pipeline.jobs.running import Batches
from mew.pipeline.jobs.soundness import time_at
from mew.pipeline.jobs.watching import Watch, WatchOptions
from mew.pipeline.lake import Lake, ParquetPart, Progress
from mew.pipeline.lookup import query
from mew.pipeline.lookup.output import plain
from mew.pipeline.lookup.typed import format_names, format_view, format_views
from mew.pipeline.schemas import TABLES, Table
from mew.testing import MemorySpace
from tests.pipeline.jobs.lakes import contents, run_all
from tests.pipeline.jobs.test_nasty import CONFIGURATION, announce, data, formatted
from tests.pipeline.sessions import ENGINE
from tools.journal_generator.forged_files import write_forged_journal

SLUGS = ("movement_2d", "binary_vector3", "console_line", "reading", "telemetry_json", "application_json")
HOT = 300
Answers = dict[str, list[str]]


class Idle:
    """Says stop as soon as there is nothing to do."""

    is_set = False

    def wait(self, _seconds: float) -> bool:
        self.is_set = True
        return True


@pytest.fixture(scope="module")
def expected(plainly: Path) -> Answers:
    """Its answers."""
    return answers(plainly)


@pytest.fixture
def some_are_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a thousand times as many frames."""
    monkeypatch.setattr(typed, "HOT_FRAMES", HOT)


def tables(lake: Path) -> set[str]:
    """The formats that have a table."""
    return set(Lake(lake).reader().names) - {*TABLES, "progress"}


def ask(lake: Path, sql: str) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    with query(Lake(lake), sql, views=format_view) as answer:
        return answer.columns, answer.types, sorted(json.dumps([plain(value) for value in row]) for row in answer)


def answers(lake: Path, some: Sequence[str] = ()) -> Answers:
    """The result of a query for all of every format: each row as JSON, its columns in their order."""
    names = some or format_names(Lake(lake))
    found: Answers = {name: [] for name in names}
    asked = " union all ".join(f"select '{name}', to_json(t)::varchar from {name} t" for name in names)
    with query(Lake(lake), asked, views=format_view) as answer:
        for name, row in answer:
            found[name].append(row)
    return {name: sorted(rows) for name, rows in found.items()}


def listed(lake: Path) -> dict[str, tuple[int, dict[str, str]]]:
    """What `tables` says."""
    return {each.name: (each.rows, each.columns) for each in format_views(Lake(lake))}


# ----------------------------------------------------------------------------------------------------- same answers


def test_a_format_that_is_named_has_a_table_and_the_answers_are_the_same(
    journal: Path, plainly: Path, expected: Answers, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    run_all(journal, lake, typed=SLUGS)
    found = answers(lake)
    assert len(tables(lake)) >= 8
    assert tables(lake) <= found.keys() == expected.keys()
    assert sum(map(len, found.values())) > 1_000
    here, there = listed(lake), listed(plainly)
    for name in expected:
        assert found[name] == expected[name], name
        columns, types, rows = ask(lake, f"from {name}")
        assert (columns, types, rows) == ask(plainly, f"from {name}")
        assert here[name] == there[name] == (len(rows), dict(zip(columns, types, strict=True)))
    assert open_lake(lake).tables == open_lake(plainly).tables
    assert contents(lake) == contents(plainly)


# ------------------------------------------------------------------------------------------------- which have a table


@pytest.mark.usefixtures("some_are_hot")
def test_five_ways_give_the_same_tables_to_the_formats_with_many_frames(
    journal: Path, plainly: Path, expected: Answers, tmp_path: Path
) -> None:
    ways = {way: tmp_path / way for way in ("once", "twice", "refreshed", "sliced", "watched")}
    run_all(journal, ways["once"])
    for way in ("twice", "refreshed"):
        shutil.copytree(ways["once"], ways[way])
    assert run_all(journal, ways["twice"]) == 0
    assert Batches(journal, Lake(ways["refreshed"]), ENGINE).next(refresh=True) is not None
    assert run_all(journal, ways["sliced"], most=400) >= 10
    told = list(Watch(journal, Lake(ways["watched"]), ENGINE, Idle(), WatchOptions(every=0, most=1_500)).run())
    assert len(told) > 1
    hot = {name for name, rows in expected.items() if len(rows) > HOT}
    assert 2 <= len(hot) < len(expected)
    for way, lake in ways.items():
        assert tables(lake) >= hot, way
        assert tables(lake) == tables(ways["once"]), way
        assert answers(lake) == expected, way


def test_no_format_gets_a_table_by_frames_that_are_too_few(plainly: Path) -> None:
    (most,) = json.loads(ask(plainly, "select count(*) from frames group by format order by all desc limit 1")[2][0])
    assert HOT < most <= typed.HOT_FRAMES
    assert tables(plainly) == set()


@pytest.mark.usefixtures("some_are_hot")
def test_a_table_that_begins_late_has_the_rows_of_all_batches_once(
    journal: Path, expected: Answers, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    begun: dict[str, int] = {}
    batches = Batches(journal, Lake(lake), ENGINE)
    while (progress := batches.next(most=700)) is not None:
        for name in tables(lake) - begun.keys():
            begun[name] = progress.batch
            assert progress.rows[name] == len(ask(lake, f"from {name}")[2]), "its first batch has all it lacked"
        for name in begun:
            assert f"{name}" in progress.tables
    assert len(set(begun.values())) > 1, "some were busy before others"
    assert max(begun.values()) > 1
    assert answers(lake) == expected


def test_a_format_that_is_named_later_is_filled_with_what_was_before(
    journal: Path, expected: Answers, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    assert Batches(journal, Lake(lake), ENGINE).next(most=2_000) is not None
    assert tables(lake) == set()
    assert run_all(journal, lake, most=1_000, typed=["movement/2d", "no such format"]) > 1
    assert {name.rpartition("_")[0] for name in tables(lake)} == {"frames_movement_2d"}
    assert answers(lake) == expected


def test_a_full_refresh_forgets_who_was_named(journal: Path, expected: Answers, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run_all(journal, lake, typed=["reading"])
    before = tables(lake)
    assert before
    assert Batches(journal, Lake(lake), ENGINE).next(refresh=True) is not None
    assert tables(lake) == set()
    assert answers(lake) == expected
    assert Batches(journal, Lake(lake), ENGINE, typed=["reading"]).next(refresh=True) is not None
    assert tables(lake) == before
    assert answers(lake) == expected


def test_rows_of_what_the_journal_has_lost_stay(journal: Path, expected: Answers, tmp_path: Path) -> None:
    copied, lake = Path(shutil.copytree(journal, tmp_path / "journal")), tmp_path / "lake"
    run_all(copied, lake, typed=["movement/2d"])
    before = tables(lake)
    for space in spaces_of(copied):
        folder = JournalFolder(copied, space)
        middle = folder.segments()[-1].last
        delete_expired(folder, keep_seconds=1, now=time_at(folder, middle) + 1_000_001)
    firsts = [JournalFolder(copied, space).segments()[0].first for space in spaces_of(copied)]
    assert max(firsts) > 0
    assert Batches(copied, Lake(lake), ENGINE, typed=["reading"]).next(refresh=True) is not None
    assert tables(lake) > before
    found = answers(lake)
    for name in sorted(tables(lake)):
        assert found[name] == expected[name], name


def test_there_are_never_more_than_sixty_four(tmp_path: Path) -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    for stream in range(10):
        formats = [formatted(f"f{number}", **{f"p{stream}_{number}": {"type": "integer"}}) for number in range(30)]
        announce(alice, f"many-{stream}", *formats)
        for number in range(30):
            data(alice, f"many-{stream}", number, {f"p{stream}_{number}": number}, format_id=f"f{number}")
    write_forged_journal(tmp_path / "journal", "lab", lab.records)
    run_all(tmp_path / "journal", tmp_path / "lake", typed=[f"f{number}" for number in range(30)])
    run_all(tmp_path / "journal", tmp_path / "views")
    assert len(tables(tmp_path / "lake")) == typed.MOST_TABLES == 64
    names = format_names(Lake(tmp_path / "lake"))
    assert len(names) == 300
    assert listed(tmp_path / "lake") == listed(tmp_path / "views")
    assert {rows for rows, _ in listed(tmp_path / "lake").values()} == {1}
    some = names[:: len(names) // 10]
    assert 0 < len(tables(tmp_path / "lake").intersection(some)) < len(some)
    assert answers(tmp_path / "lake", some) == answers(tmp_path / "views", some)


# ---------------------------------------------------------------------------------------------------- exactly once


class Interrupted(Lake):
    """A lake at which a process stops before a commit."""

    def __init__(self, path: Path, steps: int) -> None:
        super().__init__(path)
        self.steps = steps
        """So many are let through."""

    def commit(self, table: Table, batch: int, parts: Iterable[ParquetPart]) -> int:
        self._step()
        return super().commit(table, batch, parts)

    def begin(self, table: Table, batch: int, parts: Iterable[ParquetPart]) -> int:
        self._step()
        return super().begin(table, batch, parts)

    def replace(self, table: Table, batch: int, parts: Iterable[ParquetPart], keep: Collection[str] = ()) -> int:
        self._step()
        return super().replace(table, batch, parts, keep)

    def finish(self, progress: Progress) -> None:
        self._step()
        super().finish(progress)

    def _step(self) -> None:
        if not self.steps:
            raise InterruptedError("that was enough")
        self.steps -= 1


def stopped(journal: Path, lake: Path, steps: int, named: Sequence[str] = SLUGS, **how: Any) -> None:
    """A run that was ended after so many commits."""
    with pytest.raises(InterruptedError):
        Batches(journal, Interrupted(lake, steps), ENGINE, typed=named).next(**how)


@pytest.mark.parametrize("steps", [len(TABLES) + 1, len(TABLES) + 6])
def test_a_batch_that_ended_between_two_tables_is_ended_by_the_next_run(
    journal: Path, expected: Answers, tmp_path: Path, steps: int
) -> None:
    lake = tmp_path / "lake"
    stopped(journal, lake, steps, most=2_000)
    stopped(journal, lake, steps, ["other names count from the next plan on"], most=2_000)
    run_all(journal, lake, most=2_000, typed=SLUGS)
    stopped(journal, lake, steps, refresh=True)
    assert answers(lake) == expected, "readers still see what was finished"
    assert run_all(journal, lake, typed=SLUGS) == 1
    assert len(tables(lake)) >= 8
    assert answers(lake) == expected


def test_what_a_batch_that_was_given_up_left_is_not_seen_again(
    journal: Path, expected: Answers, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    assert Batches(journal, Lake(lake), ENGINE).next(most=1_000) is not None
    stopped(journal, lake, len(TABLES) + 3, most=1_000)
    assert Batches(journal, Lake(lake), ENGINE).next(refresh=True) is not None
    assert tables(lake) == set()
    assert len(Lake(lake).tables()) > len(TABLES), "the folders are there"
    assert answers(lake) == expected
    assert Batches(journal, Lake(lake), ENGINE, typed=SLUGS).next(refresh=True) is not None
    assert len(tables(lake)) >= 8
    assert answers(lake) == expected


def test_compaction_and_tidying_take_them_like_the_others(journal: Path, expected: Answers, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run_all(journal, lake, most=700, typed=SLUGS)
    changed = Lake(lake).compact()
    assert set(changed) & tables(lake)
    Lake(lake).tidy()
    for name in tables(lake):
        assert len(Lake(lake).reader().files(name)) <= 1
    assert answers(lake) == expected
    folder = Lake(lake).table_folder(sorted(tables(lake))[0])
    notes = [json.loads(line) for each in sorted(folder.rglob("*.json")) for line in each.read_text().splitlines()]
    protocols = [each["protocol"] for each in notes if "protocol" in each]
    assert [(each["minReaderVersion"], each["minWriterVersion"]) for each in protocols] == [(1, 2)]
