"""Spark asked instead of DuckDB: the same answers, in the same words; and no query changes anything."""

import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mew.pipeline.lake import Lake, LakeError
from mew.pipeline.lookup import FORMS, BadQuery, on_spark, query, views, write
from mew.pipeline.lookup.moments import moment
from mew.pipeline.lookup.typed import format_names, format_view
from tools.journal_generator import Truth

VALUES = (
    "select 1 as a, 'x,\"y\"' as b, true as d, cast(1.5 as decimal(9,2)) as h, cast('nan' as double) as j, "
    "date '2026-01-01' as l, cast(0.1 as float) as m, cast(null as bigint) as n, 1 as a, "
    "cast('2026-01-01 01:02:03.5' as timestamp) as o, cast(7 as smallint) as p, cast('zwölf' as varchar(9)) as q"
)
QUESTIONS = {
    "every sort of value": VALUES,
    "lists and structures": "select space, stream_id, time, owners, writers, formats, targets, open, refused "
    "from streams order by space, position",
    "rows that are text and bytes": "select position, kind, value, raw, valid, sequence from frames "
    "where space = 'harbour' and position < 3000 order by position",
    "sums and means of two tables": "select s.space, s.stream_id, count(g.missing) as gaps, sum(g.missing) as missing, "
    "avg(g.last) as mean, min(g.time) as since, max(s.bytes) / 7 as part from streams s "
    "left join sequence_gaps g on s.space = g.space and s.stream_id = g.stream_id group by s.space, s.stream_id "
    "order by s.space, s.stream_id",
    "the journal itself": "select space, position, time, event, participant, kind, size, payload from events "
    "where position between 100 and 160 order by space, position",
    "the batches": "select batch, positions, tables, state from PROGRESS order by batch",
}


def by_duckdb(folder: Path, sql: str) -> dict[str, str]:
    """What is printed, by form."""
    said = {}
    for form in FORMS:
        with query(Lake(folder / "lake"), sql, journal=folder / "journal", views=format_view) as answer:
            out = io.StringIO()
            write(answer, out, form=form)
            said[form] = out.getvalue()
    return said


def by_spark(folder: Path, sql: str, session: SparkSession) -> dict[str, str]:
    """The same; one query is enough for all forms."""
    with on_spark.query(session, folder / "lake", sql, journal=folder / "journal") as answer:
        rows = _Heard(answer.columns, answer.types, list(answer))
    said = {}
    for form in FORMS:
        out = io.StringIO()
        write(rows, out, form=form)
        said[form] = out.getvalue()
    return said


class _Heard(list[tuple[object, ...]]):
    """An answer to be written more than once."""

    def __init__(self, columns: tuple[str, ...], types: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
        super().__init__(rows)
        self.columns = columns
        self.types = types


@pytest.mark.parametrize("name", QUESTIONS)
def test_both_engines_give_the_same_answer_in_every_form(
    made: tuple[Path, Truth], spark: SparkSession, name: str
) -> None:
    expected = by_duckdb(made[0], QUESTIONS[name])
    found = by_spark(made[0], QUESTIONS[name], spark)
    for form in FORMS:
        assert found[form] == expected[form], form
    assert len(expected["csv"].splitlines()) > 1


def test_the_types_are_those_of_duckdb_also_without_rows(made: tuple[Path, Truth], spark: SparkSession) -> None:
    sql = "select s.*, f.*, 1 as a, cast(1 as double) as b, date '2026-01-01' as c from streams s, frames f where 1 = 0"
    with query(Lake(made[0] / "lake"), sql) as answer:
        expected = answer.columns, answer.types
    with on_spark.query(spark, made[0] / "lake", sql) as found:
        assert (found.columns, found.types) == expected
        assert list(found) == []


def test_a_format_is_a_view_for_both(made: tuple[Path, Truth], spark: SparkSession) -> None:
    name = format_names(Lake(made[0] / "lake"))[0]
    sql = f"select * from {name} order by space, position"
    assert by_spark(made[0], sql, spark) == by_duckdb(made[0], sql)


def test_a_map_is_written_as_duckdb_would(made: tuple[Path, Truth], spark: SparkSession) -> None:
    sql = "select map(1, 'one') as m, named_struct('k', array(map('a', timestamp_ltz '2026-01-01 00:00:00'))) as s"
    expected = "select map {1: 'one'} as m, {'k': [map {'a': timestamptz '2026-01-01 00:00:00+00'}]} as s"
    assert by_spark(made[0], sql, spark) == by_duckdb(made[0], expected)


@pytest.mark.parametrize("by_time", [False, True])
def test_the_state_at_a_time_is_the_same(made: tuple[Path, Truth], spark: SparkSession, by_time: bool) -> None:
    folder, truth = made
    lake, journal = Lake(folder / "lake"), folder / "journal"
    at: int | float = 3_333
    if by_time:
        with query(lake, "select epoch_us(time) from events where position = 3333", journal=journal) as answer:
            at = next(iter(answer))[0] / 1_000_000
    engine = on_spark.engine(spark, folder / "lake", journal)
    for space in truth.spaces:
        found = moment(lake, journal, space, at, None, engine)
        assert found == moment(lake, journal, space, at)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", r"Syntax error at or near 'selec'"),
        ("select nope from streams", r"`nope` cannot be resolved"),
        ("select * from nonsense", r"^no table is called 'nonsense'; there are .*events, .*streams"),
        (
            "create table x as select 1",
            r"^only questions .* and this is none: create table x as",
        ),
        ("insert into streams select * from streams", r"^only questions are put to Spark"),
        ("drop view streams", r"^only questions are put to Spark"),
        ("set spark.sql.session.timeZone=Asia/Tokyo", r"^only questions are put to Spark"),
        ("select raise_error('too bad')", r"too bad"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    made: tuple[Path, Truth], spark: SparkSession, sql: str, message: str
) -> None:
    with pytest.raises(BadQuery, match=message) as problem, on_spark.query(spark, made[0] / "lake", sql) as answer:
        list(answer)
    assert "\n" not in str(problem.value)


def test_events_are_asked_for_with_their_journal(made: tuple[Path, Truth], spark: SparkSession) -> None:
    with pytest.raises(BadQuery, match=r"^'events' is the journal itself, and it was not said where that is$"):
        on_spark.query(spark, made[0] / "lake", "select * from events")


def test_tables_can_be_described(made: tuple[Path, Truth], spark: SparkSession) -> None:
    with on_spark.query(spark, made[0] / "lake", "describe streams") as answer:
        assert [row[0] for row in answer][:2] == ["space", "stream_id"]


def test_where_there_is_no_lake_it_is_said(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(LakeError, match="there is no lake here"):
        on_spark.query(spark, tmp_path / "lake", "select 1")


def test_a_journal_that_is_compacted_meanwhile_is_looked_at_again(
    made: tuple[Path, Truth], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql, real, looks = "select count(*) from events", views.event_files, list[Path]()

    def listed(journal: Path, positions: dict[str, int]) -> dict[str, list[str]]:
        looks.append(journal)
        found = real(journal, positions)
        if len(looks) == 1:
            return {space: [path.replace(".control.", ".gone.") for path in paths] for space, paths in found.items()}
        return found

    monkeypatch.setattr(on_spark, "event_files", listed)
    assert by_spark(made[0], sql, spark)["csv"].splitlines()[1:] == ["8000"]
    assert len(looks) == 2
