"""Questions: which tables a statement needs, what they look like, and what is said when it is wrong."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.pipeline.lake import Lake, LakeError, LakeReader
from mew.pipeline.lake.parts import write
from mew.pipeline.lookup import BadQuery, query, views
from mew.pipeline.lookup.naming import named_in
from mew.pipeline.schemas import READER_GAPS, STREAM_ACCESS, TABLES
from tests.pipeline.lake import batches
from tests.pipeline.lake.batches import expected, same
from tools.journal_generator import generate


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Where folders' names look like columns, and like patterns."""
    lake = Lake(tmp_path_factory.mktemp("lakes") / "space=wrong" / "open=maybe" / "it's [a] lake*")
    batches.run(lake.path, 4)
    return lake


def ask(lake: Lake, sql: str, **more: Any) -> list[tuple[Any, ...]]:
    with query(lake, sql, **more) as answer:
        return list(answer)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select * from frames f join Streams using (stream_id)", {"frames", "streams"}),
        ("select frames from stream_activity", {"stream_activity"}),
        ("from a, (select 1 from b where x in (select y from c)) union select * from d", {"a", "b", "c", "d"}),
        ("select (select max(position) from audit)", {"audit"}),
        ("with a as (from b) select * from a", {"b"}),
        ("with known as (from known) select * from known", {"known"}),
        ("select 1; select * from streams", {"streams"}),
        ('select * from "odd name"', {"odd name"}),
        ("describe frames", {"frames"}),
        ("summarize frames", {"frames"}),
        ("select 1", set()),
    ],
)
def test_the_tables_that_a_statement_names_are_found(sql: str, names: set[str]) -> None:
    assert named_in(duckdb.connect(), sql, {"known"}) == names


@pytest.mark.parametrize("sql", ["pivot frames on kind", "copy (from frames) to 'x'", "create table x as from frames"])
def test_of_what_cannot_be_taken_apart_no_table_is_missed(sql: str) -> None:
    assert "frames" in named_in(duckdb.connect(), sql)


def test_every_row_is_there_once_and_unfinished_ones_say_so(lake: Lake) -> None:
    assert same(ask(lake, "from reader_gaps")) == same(expected(READER_GAPS, 4))
    assert same(ask(lake, "from stream_access")) == same(expected(STREAM_ACCESS, 4))
    assert ask(lake, "select count(*) from stream_access where open") == [(1,)]


def test_the_columns_are_those_of_the_table_in_their_order(lake: Lake) -> None:
    with query(lake, "from stream_access limit 0") as answer:
        assert list(answer.columns) == STREAM_ACCESS.schema.names
        assert answer.types[-1] == "BOOLEAN"
        assert list(answer) == []


def test_names_of_folders_are_no_columns(lake: Lake) -> None:
    assert ask(lake, "select distinct space from reader_gaps") == [("lab",)]
    assert ask(lake, "select distinct space from sequence_gaps") == [("007",)]


@pytest.mark.parametrize("name", [*TABLES, "progress"])
def test_a_table_without_rows_has_its_types(tmp_path: Path, name: str) -> None:
    (tmp_path / "lake").mkdir()
    with query(Lake(tmp_path / "lake"), f"from {name}") as answer:
        assert list(answer) == []
        types = dict(zip(answer.columns, answer.types, strict=True))
    if name in TABLES:
        assert list(types) == TABLES[name].schema.names
        known = {"string": "VARCHAR", "int64": "BIGINT", "bool": "BOOLEAN", "binary": "BLOB"}
        for field in TABLES[name].schema:
            assert types[field.name] == known.get(str(field.type), types[field.name])
    assert types.get("time", "TIMESTAMP WITH TIME ZONE") == "TIMESTAMP WITH TIME ZONE"


def test_a_column_that_no_file_has_yet_can_be_asked_for(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    batches.run(lake.path, 1)
    new = READER_GAPS.schema.field("reason").with_name("later")
    wider = type(READER_GAPS)("reader_gaps", "", READER_GAPS.schema.append(new))
    version = lake.commit(wider, 2, [])
    tables = {table.name: batches.commit(lake, table, 2) for table in batches.TABLES[1:]}
    lake.finish(batches.progress(lake, 2, {"reader_gaps": version, **tables}))
    assert ask(lake, "select count(*), count(later) from reader_gaps") == [(5, 0)]


def test_only_what_is_finished_is_seen(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    batches.run(lake.path, 2)
    batches.commit(lake, READER_GAPS, 3)
    write(READER_GAPS, batches.reader_gaps(4), lake.table_folder("reader_gaps"), name="4-0")
    assert ask(lake, "select count(*), max(position) from reader_gaps") == [(10, 204)]
    assert ask(lake, "select batch, tables[1].version from progress order by 1") == [(1, 1), (2, 2)]


def test_times_are_in_utc_wherever_the_machine_is(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert ask(lake, "select min(time)::varchar from reader_gaps") == [("2026-11-15 14:01:40.0001+00",)]


def test_statements_of_other_sorts_work(lake: Lake, tmp_path: Path) -> None:
    assert ask(lake, "pivot reader_gaps on space using count(*) group by reader") == [("ann", 20)]
    ask(lake, f"copy (from reader_gaps) to '{tmp_path / 'x.csv'}'")
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 21
    assert ask(lake, "create table x as from reader_gaps; select count(*) from x") == [(20,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", r'Parser Error: syntax error at or near "selec"'),
        ("select nope from reader_gaps", r'Binder Error: Referenced column "nope" not found'),
        ("from nonsense", "no table is called 'nonsense'; there are events, progress, reader_gaps"),
        ("from events", "'events' is the journal itself, and it was not said where that is"),
        ("select 'x'::int from reader_gaps", "Conversion Error"),
        ("", None),
    ],
)
def test_what_is_wrong_is_said_in_one_line(lake: Lake, sql: str, message: str | None) -> None:
    if message is None:
        assert ask(lake, sql) == []
        return
    with pytest.raises(BadQuery, match=message) as problem:
        ask(lake, sql)
    assert "\n" not in str(problem.value)


def test_where_there_is_no_lake_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="lake: there is no lake here"):
        query(Lake(tmp_path / "lake"), "select 1")
    assert not (tmp_path / "lake").exists()


def test_a_statement_sees_no_variable_of_ours(lake: Lake) -> None:
    for name in ("reader", "sql", "names"):
        with pytest.raises(BadQuery, match=f"no table is called '{name}'"):
            ask(lake, f"from {name}")


def test_other_names_can_be_views(lake: Lake) -> None:
    def late(name: str, _reader: LakeReader, _connection: duckdb.DuckDBPyConnection) -> str | None:
        return "select position from reader_gaps where position > 400" if name == "late" else None

    assert ask(lake, "select count(*) from late", views=late) == [(4,)]
    with pytest.raises(BadQuery, match="'later'"):
        ask(lake, "from later", views=late)


# ------------------------------------------------------------------------------------------------- events


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("space=other") / "journal"
    generate(root, records=3_000, spaces=2, seed=5)
    return root


def lake_at(path: Path, positions: dict[str, int]) -> Lake:
    lake = Lake(path)
    progress = batches.progress(lake, 1, {})
    lake.finish(type(progress)(1, positions, {}, {}, progress.state, {}, batches.VERSIONS, {}))
    return lake


def test_events_are_the_journal_up_to_where_the_lake_is(tmp_path: Path, journal: Path) -> None:
    spaces = sorted(path.name.removeprefix("space=") for path in journal.glob("space=*"))
    last = {space: JournalFolder(journal, space).segments()[-1].last for space in spaces}
    positions = {spaces[0]: last[spaces[0]], spaces[1]: 100}
    lake = lake_at(tmp_path / "lake", positions)
    found = ask(lake, "select space, count(*), max(position) from events group by 1 order by 1", journal=journal)
    assert found == [(spaces[0], last[spaces[0]] + 1, last[spaces[0]]), (spaces[1], 101, 100)]
    wanted = [(each.position, each.event, each.payload) for each in Journal(journal, spaces[1]).records(0, last=100)]
    sql = f"select position, event, payload from events where space = '{spaces[1]}' order by position"
    assert ask(lake, sql, journal=journal) == wanted


def test_events_of_a_journal_that_is_not_there_are_none(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "lake", {"lab": 5})
    with query(lake, "from events", journal=tmp_path / "nothing") as answer:
        assert list(answer) == []
        assert answer.columns[:3] == ("space", "position", "time")


def test_a_journal_that_is_compacted_meanwhile_is_looked_at_again(
    tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "journal"
    shutil.copytree(journal, moved)
    space = sorted(path.name.removeprefix("space=") for path in journal.glob("space=*"))[0]
    lake = lake_at(tmp_path / "lake", {space: 50})
    real = views.events_view
    calls = []

    def listed(where: Path, positions: Any) -> str:
        calls.append(where)
        view = real(where, positions)
        if len(calls) == 1:
            view = view.replace(".control.parquet", ".gone.parquet")
        return view

    monkeypatch.setattr("mew.pipeline.lookup.asking.events_view", listed)
    assert ask(lake, "select count(*) from events", journal=moved) == [(51,)]
    assert len(calls) == 2
