"""The view of a format has the rows and the columns that the kernel would give a table of it."""

import struct
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from mew.journal.generator import Truth, generate
from mew.journal.reading import Journal
from mew.pipeline.control.folding import fold_control
from mew.pipeline.kernel.columns import columns_of
from mew.pipeline.kernel.decoding import Options
from mew.pipeline.kernel.processing import process
from mew.pipeline.kernel.typed import NOTES
from mew.pipeline.kernel.units import cut, read
from mew.pipeline.lake import Lake
from mew.pipeline.lookup import BadQuery, query
from mew.pipeline.lookup import typed as views
from mew.pipeline.lookup.typed import format_view, format_views
from tests.pipeline.jobs.lakes import run_all


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    folder = tmp_path_factory.mktemp("made")
    truth = generate(folder / "journal", records=30_000, spaces=1, seed=4)
    run_all(folder / "journal", folder / "lake")
    return folder, truth


def kernel_tables(journal: Path, space: str, last: int) -> dict[str, pa.Table]:
    """By fingerprint, what the kernel makes of all formats."""
    control = Journal(journal, space).batches(0, control=True)
    catalogue = fold_control(space, None, control, last).catalogue
    known = frozenset(each.fingerprint for stream in catalogue.streams.values() for each in stream.formats)
    (unit,) = cut(space, str(journal), 0, last)
    return process(unit, pa.concat_tables(read(unit)), catalogue, Options(typed=known)).typed


def asked(lake: Path, sql: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    with query(Lake(lake), sql, views=format_view) as answer:
        return answer.columns, list(answer)


def test_views_are_what_the_kernel_makes_of_the_same_frames(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    (space,) = truth.spaces.values()
    expected = kernel_tables(folder / "journal", space.space, space.last)
    listed = {each.name[-16:]: each for each in format_views(Lake(folder / "lake"))}
    assert expected.keys() <= listed.keys()
    assert len(expected) >= 5
    compared = 0
    for fingerprint, table in expected.items():
        assert not any(table[NOTES].to_pylist()), "this journal has no number that a column cannot hold"
        exact = table.drop_columns([NOTES])
        columns, rows = asked(folder / "lake", f"select * from {listed[fingerprint].name} order by position")
        assert list(columns) == exact.column_names
        assert listed[fingerprint].rows == len(rows) == exact.num_rows
        names = [name for name in exact.column_names if name != "time"]
        found = [{name: row[columns.index(name)] for name in names} for row in rows]
        assert found == exact.select(names).to_pylist(), listed[fingerprint].name
        compared += len(rows)
    assert compared > 1_000


def test_a_format_that_nobody_announced_has_no_view(made: tuple[Path, Truth]) -> None:
    with pytest.raises(BadQuery, match="no table is called 'frames_nothing_0123456789abcdef'"):
        asked(made[0] / "lake", "from frames_nothing_0123456789abcdef")


NAMES = {
    "select": {"type": "integer"},
    "it's": {"type": "string"},
    'a"b': {"type": "number"},
    "a/b~c": {"type": "boolean"},
    "A B": {"type": ["integer", "null"]},
    "a.b": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
    "deep": {"type": "object", "properties": {"": {"type": "integer"}, "any": {}}},
}
CONTENT = """{"select": 3, "it's": "it''s", "a\\"b": 1e999, "a/b~c": true, "A B": 99999999999999999999,
"a.b": [["x"], []], "deep": {"": 7, "any": "text"}}"""


def test_whatever_properties_are_called_they_are_found() -> None:
    columns = columns_of({"type": "object", "properties": NAMES})
    shown = ", ".join(views._json(column) for column in columns)
    row = duckdb.execute(f"select {shown} from (select ?::json as content)", [CONTENT]).fetchone()
    assert row == (3, "it''s", None, True, None, [["x"], []], 7, '"text"')


@pytest.mark.parametrize(("letter", "bits"), [("f", (8, 23, 127)), ("d", (11, 52, 1023))])
def test_binary_numbers_are_read_to_the_bit(letter: str, bits: tuple[int, int, int]) -> None:
    wide = letter == "d"
    smallest, largest = (5e-324, 1.7976931348623157e308) if wide else (2.0**-149, 3.4028234663852886e38)
    values = [0.0, -0.0, 1.0, -1.5, 0.1, smallest, -smallest, largest, -largest, float("inf"), float("-inf")]
    whole = [int.from_bytes(struct.pack(f"<{letter}", value), "little") for value in values]
    told = views._number("bits", *bits)
    rows = duckdb.execute(f"select {told} from (select unnest(?::ubigint[]) as bits)", [whole]).fetchall()
    assert [struct.pack(f"<{letter}", row[0]) for row in rows] == [struct.pack(f"<{letter}", each) for each in values]
