"""Answers as text: for people without surprises, for programs without loss."""

import csv
import io
import json
from pathlib import Path

import pytest

from mew.pipeline.lake import Lake
from mew.pipeline.lookup import FORMS, output, query, write

ROW = (
    "select 1 as a, 'x,\"y\"' as b, null as c, true as d, [1, 2] as e,"
    " {'k': timestamptz '2026-01-01 00:00:00+00'} as f,"
    " '\\xFF'::blob as g, 1.5::decimal(9,2) as h, 170141183460469231731687303715884105727::hugeint as i,"
    " 'nan'::double as j, timestamp '2026-01-01 01:02:03' as k, date '2026-01-01' as l, interval 90 seconds as m,"
    " map {1: 'one'} as n"
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def text(lake: Lake, sql: str, form: str) -> str:
    out = io.StringIO()
    with query(lake, sql) as answer:
        write(answer, out, form=form)
    return out.getvalue()


def test_json_is_a_line_a_row_and_loses_nothing(lake: Lake) -> None:
    (line,) = text(lake, ROW, "json").splitlines()
    assert json.loads(line) == {
        "a": 1,
        "b": 'x,"y"',
        "c": None,
        "d": True,
        "e": [1, 2],
        "f": {"k": "2026-01-01T00:00:00Z"},
        "g": "/w==",
        "h": "1.50",
        "i": 2**127 - 1,
        "j": None,
        "k": "2026-01-01T01:02:03",
        "l": "2026-01-01",
        "m": 90.0,
        "n": {"1": "one"},
    }


def test_columns_of_the_same_name_are_told_apart_in_json(lake: Lake) -> None:
    assert text(lake, "select 1 as x, 2 as x, 3 as x_2", "json") == '{"x": 1, "x_2": 2, "x_2_2": 3}\n'


def test_csv_is_what_programs_read(lake: Lake) -> None:
    names, values = csv.reader(io.StringIO(text(lake, ROW, "csv")))
    assert names == list("abcdefghijklmn")
    assert values[:7] == ["1", 'x,"y"', "", "true", "[1, 2]", '{"k": "2026-01-01T00:00:00Z"}', "/w=="]
    assert values[7:10] == ["1.50", str(2**127 - 1), "nan"]


def test_a_table_shows_what_there_is(lake: Lake) -> None:
    shown = text(lake, "select 12 as number, 'lab' as space union all select 3, null order by 1", "table")
    lines = [line.strip("│┃ ") for line in shown.splitlines() if "│" in line or "┃" in line]
    assert [line.split() for line in lines] == [["number", "┃", "space"], ["3"], ["12", "│", "lab"]]


def test_a_table_is_not_folded_where_nobody_looks(lake: Lake) -> None:
    assert "x" * 300 in text(lake, f"select '{'x' * 300}' as a", "table")


def test_nothing_in_a_table_moves_the_cursor_or_is_markup(lake: Lake) -> None:
    shown = text(lake, "select chr(27) || '[2J[red]x[/red]' || chr(10) as a, '\\x1B'::blob as b", "table")
    assert "\x1b" not in shown
    assert "\\x1b[2J[red]x[/red]\\n" in shown


def test_a_table_ends_where_nobody_would_read_on_and_says_so(lake: Lake) -> None:
    shown = text(lake, "select range as a from range(1001)", "table")
    assert " 999 " in shown
    assert " 1000 " not in shown.replace("the first 1000 rows", "")
    assert "the first 1000 rows; JSON and CSV give all" in shown
    assert "the first" not in text(lake, "select range as a from range(1000)", "table")
    assert len(text(lake, "select range as a from range(25000)", "json").splitlines()) == 25_000


def test_how_many_rows_were_written_is_told(lake: Lake) -> None:
    for form in FORMS:
        with query(lake, "from range(7)") as answer:
            assert write(answer, io.StringIO(), form=form) == 7


def test_no_other_form_is_known(lake: Lake) -> None:
    with query(lake, "select 1") as answer, pytest.raises(ValueError, match="'xml' is no form of output: table, json"):
        write(answer, io.StringIO(), form="xml")


def test_long_values_are_cut_in_tables_alone(lake: Lake) -> None:
    sql = f"select repeat('y', {output.SHOWN_LETTERS + 1}) as a"
    assert "…" in text(lake, sql, "table")
    assert "…" not in text(lake, sql, "csv")
