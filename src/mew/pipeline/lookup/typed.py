"""Frames with typed columns: a view for each announced format, in DuckDB's words.

Makes text out of the table `formats`, and reads no frame. The columns, their names and types are those that the kernel
gives a format; the values are what DuckDB makes of them: a number keeps the digits that a float has, JSON within JSON
is rendered anew. As the sender wrote it, a frame is in `frames`.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import duckdb
import msgspec

from mew.pipeline.lake.lake import Lake
from mew.pipeline.lake.reading import Reader
from mew.pipeline.lookup.asking import query
from mew.pipeline.lookup.views import quoted, table_view

if TYPE_CHECKING:
    from mew.pipeline.kernel.columns import Column
    from mew.pipeline.kernel.layouts import Layout

_NAME: Final = re.compile(r"frames_([a-z0-9_]+)_([0-9a-f]{16})")
_KEYS: Final = "space, stream_id, position, time, writer, frame_number, sequence"
_TYPES: Final = {
    "integer": "bigint",
    "number": "double",
    "single": "float",
    "text": "varchar",
    "boolean": "boolean",
    "json": "varchar",
    "exact": "varchar",
}


class FormatView(msgspec.Struct, frozen=True):
    """The view of a format that has typed columns."""

    name: str
    rows: int
    """Frames that are what it says."""
    columns: dict[str, str]
    """Their types, as DuckDB calls them."""


def format_view(name: str, reader: Reader) -> str | None:
    """What `frames_<slug>_<fingerprint>` means; None where no such format was announced, or it has no columns."""
    named = _NAME.fullmatch(name)
    if named is None:
        return None
    announced = f"select format_id, mime_type, schema from ({table_view(reader, 'formats')})"
    with duckdb.connect() as connection:
        found = connection.execute(f"{announced} where slug = ? and fingerprint = ? limit 1", list(named.groups()))
        row = found.fetchone()
    return None if row is None else _select(named[2], *row)


def format_views(lake: Lake) -> Iterator[FormatView]:
    """Those there are, by name; of a format that was announced under several ids each has its view, of all frames."""
    sql = (
        "select distinct 'frames_' || slug || '_' || fingerprint, fingerprint from formats "
        "where columns is not null order by all"
    )
    with query(lake, sql) as answer:
        known = list(answer)
    with query(lake, "select format, count(*) from frames where valid group by format") as answer:
        counts = dict(iter(answer))
    reader = lake.reader()
    with duckdb.connect() as connection:
        connection.execute(f"create view frames as {table_view(reader, 'frames')}")
        for name, fingerprint in known:
            told = connection.execute(f"describe {format_view(name, reader)}").fetchall()
            yield FormatView(name, counts.get(fingerprint, 0), {column: of for column, of, *_ in told})


# ------------------------------------------------------------------------------------------------------- in parts


def _select(fingerprint: str, format_id: str, mime_type: str | None, schema: str | None) -> str | None:
    from mew.pipeline.kernel import formats  # noqa: PLC0415 - pyarrow, where it is needed
    from mew.pipeline.kernel.catalogue import Format  # noqa: PLC0415

    text = None if schema is None else schema.encode()
    format_ = Format(format_id, fingerprint, formats.slug(format_id), mime_type, text)
    columns = formats.typed_columns(format_)
    if not columns:
        return None
    nature = formats.nature_of(format_id, mime_type, formats.schema_of(format_))
    if nature.layout is not None:
        values = [_vector(nature.layout, place, column) for place, column in enumerate(columns)]
    elif nature.sort == formats.TEXT:
        said = "case when kind = 'data' and json_type(content) = 'VARCHAR' then content ->> '$' else value end"
        values = [(column, said) for column in columns]
    else:
        values = [(column, _json(column)) for column in columns]
    shown = ", ".join(f"{said} as {quoted(column.name)}" for column, said in values)
    content = "case when json_valid(value) then value::json end as content"
    rows = f"select {_KEYS}, kind, value, raw, {content} from frames where format = '{fingerprint}' and valid"
    return f"select {_KEYS}, {shown} from ({rows})"


def _json(column: "Column") -> str:
    """A property of the content, as its column has it; null where it does not fit there."""
    pointer = "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in column.path).replace("'", "''")
    path = f"'{pointer}'" if pointer else "'$'"
    of = _TYPES[column.kind] + "[]" * column.lists
    if column.kind == "json":
        return f"nullif((content -> {path})::varchar, 'null')"
    if column.lists:
        return f"try_cast(content -> {path} as {of})"
    if column.kind == "text":
        return f"case when json_type(content, {path}) = 'VARCHAR' then content ->> {path} end"
    if column.kind == "number":
        number = f"try_cast(content ->> {path} as double)"
        return f"case when isfinite({number}) then {number} end"
    return f"try_cast(content ->> {path} as {of})"


def _vector(layout: "Layout", place: int, column: "Column") -> tuple["Column", str]:
    """One part of all vectors of a frame. DuckDB reads no binary number: its bits are put together."""
    size, width = layout.number_bytes, layout.width
    starts = [place * size + byte for byte in reversed(range(size))]
    digits = " || ".join(f"substr(hex(raw), (2 * ({width} * i + {start}) + 1)::bigint, 2)" for start in starts)
    bits, exponent, bias = f"('0x' || {digits})::ubigint", 8 if size == 4 else 11, 127 if size == 4 else 1023
    fraction = 8 * size - 1 - exponent
    number = _number(bits, exponent, fraction, bias)
    of = _TYPES[column.kind]
    listed = f"list_transform(range(octet_length(raw) // {width}), lambda i: ({number})::{of})"
    return column, f"case when kind = 'frame' then {listed} end"


def _number(bits: str, exponent: int, fraction: int, bias: int) -> str:
    """A binary floating-point number out of its bits (IEEE 754); every step of it is exact."""
    sign = f"(case when ({bits} >> {exponent + fraction}) = 1 then -1.0::double else 1.0::double end)"
    power = f"(({bits} >> {fraction}) & {2**exponent - 1})::integer"
    rest = f"({bits} & {2**fraction - 1})::double"
    return (
        f"case {power} when {2**exponent - 1} then "
        f"(case when {rest} = 0 then {sign} * 'inf'::double else 'nan'::double end) "
        f"when 0 then {sign} * {rest} * pow(2.0, {1 - bias - fraction}) "
        f"else {sign} * (1.0::double + {rest} / {2.0**fraction!r}::double) * pow(2.0, {power} - {bias}) end"
    )
