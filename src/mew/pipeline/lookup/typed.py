"""Frames with typed columns: what `frames_<slug>_<fingerprint>` means, a table where the format has one, else a view.

Reads no frame before it is requested. The view is the kernel's own function over the rows of `frames`: whether a
format has a table or not, the answers are the same, to the last digit.
"""

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import duckdb
import msgspec
from duckdb.func import FunctionNullHandling, PythonUDFType

from mew.pipeline.lake.lake import Lake
from mew.pipeline.lake.reading import LakeReader
from mew.pipeline.lookup.asking import query
from mew.pipeline.lookup.views import quoted, table_view

if TYPE_CHECKING:
    from mew.pipeline.kernel.catalogue import CatalogFormat


_NAME: Final = re.compile(r"frames_([a-z0-9_]+)_([0-9a-f]{16})")
_KEYS: Final = {
    "space": "varchar",
    "stream_id": "varchar",
    "position": "bigint",
    "time": "timestamp with time zone",
    "writer": "varchar",
    "frame_number": "bigint",
    "sequence": "bigint",
}
_TYPES: Final = {
    "integer": "bigint",
    "number": "double",
    "single": "float",
    "text": "varchar",
    "boolean": "boolean",
    "json": "varchar",
    "exact": "varchar",
}
_numbers: Final = count()
"""No function has the name of another, whichever connection it is for."""
_ANNOUNCED: Final = "select format_id, fingerprint, slug, mime_type, encode(schema) from"


class FormatView(msgspec.Struct, frozen=True):
    """The frames of a format that has typed columns."""

    name: str
    rows: int
    """Frames that are what it says."""
    columns: dict[str, str]
    """Their types, as DuckDB calls them."""


def format_view(name: str, reader: LakeReader, connection: duckdb.DuckDBPyConnection) -> str | None:
    """What `frames_<slug>_<fingerprint>` means; None where no such format was announced, or it has no columns.

    A view calls a function that the connection gets here.
    """
    with connection.cursor() as asking:
        format_ = _format(name, reader, asking)
    if format_ is None:
        return None
    table = table_with(format_.fingerprint, reader)
    return f"select * from {quoted(table)}" if table is not None else _view(format_, connection)


def format_named(name: str, reader: LakeReader) -> "CatalogFormat | None":
    """The format that a name of this kind means; None where there is none, or it has no columns."""
    if _NAME.fullmatch(name) is None:
        return None
    with duckdb.connect() as connection:
        return _format(name, reader, connection)


def _format(name: str, reader: LakeReader, connection: duckdb.DuckDBPyConnection) -> "CatalogFormat | None":
    named = _NAME.fullmatch(name)
    if named is None:
        return None
    from mew.pipeline.kernel.catalogue import CatalogFormat  # noqa: PLC0415 - pyarrow, where it is needed
    from mew.pipeline.kernel.formats import typed_columns  # noqa: PLC0415

    announced = f"{_ANNOUNCED} ({table_view(reader, 'formats')})"
    row = connection.execute(f"{announced} where slug = ? and fingerprint = ? limit 1", list(named.groups())).fetchone()
    format_ = None if row is None else CatalogFormat(*row)
    return None if format_ is None or not typed_columns(format_) else format_


def table_with(fingerprint: str, reader: LakeReader) -> str | None:
    """The table of a format, whichever of its ids it is called by; None where it has none."""
    named = (name for name in reader.names if (found := _NAME.fullmatch(name)) and found[2] == fingerprint)
    return next(named, None)


def format_names(lake: Lake) -> list[str]:
    """The names there are, in order; a format that was announced under several ids has several."""
    name = "'frames_' || slug || '_' || fingerprint"
    with query(lake, f"select distinct {name} from formats where columns is not null order by all") as answer:
        return [each for (each,) in answer]


def format_views(lake: Lake) -> Iterator[FormatView]:
    """Those there are, by name, tables too; each is of all frames of its format."""
    from mew.pipeline.kernel.catalogue import CatalogFormat  # noqa: PLC0415 - see above
    from mew.pipeline.kernel.formats import table_name  # noqa: PLC0415

    with query(lake, "select format, count(*) from frames where valid group by format") as answer:
        counts = dict(iter(answer))
    with query(lake, f"{_ANNOUNCED} formats where columns is not null") as answer:
        known = {table_name(each): each for each in (CatalogFormat(*row) for row in answer)}
    for name, format_ in sorted(known.items()):
        columns = {column: of.upper() for column, of in (_KEYS | _values(format_)).items()}
        yield FormatView(name, counts.get(format_.fingerprint, 0), columns)


# ------------------------------------------------------------------------------------------------------- in parts


def _view(format_: "CatalogFormat", connection: duckdb.DuckDBPyConnection) -> str:
    """The select of a format's frames, and the function it needs."""
    columns, keys = _values(format_), ", ".join(_KEYS)
    made = ", ".join(f"{quoted(name)} {of}" for name, of in columns.items())
    function = f"typed_{next(_numbers)}"
    connection.create_function(
        function,
        _typing(format_),
        [duckdb.sqltype(each) for each in ("varchar", "varchar", "blob")],
        duckdb.sqltype(f"struct({made})"),
        type=PythonUDFType.ARROW,
        null_handling=FunctionNullHandling.SPECIAL,
    )
    shown = ", ".join(f"made.{quoted(name)} as {quoted(name)}" for name in columns)
    rows = f"select {keys}, {function}(kind, value, raw) as made from frames"
    return f"select {keys}, {shown} from ({rows} where format = '{format_.fingerprint}' and valid)"


def _values(format_: "CatalogFormat") -> dict[str, str]:
    """The typed columns, and their types in DuckDB's words."""
    from mew.pipeline.kernel.formats import typed_columns  # noqa: PLC0415 - see above
    from mew.pipeline.kernel.typed import NOTES  # noqa: PLC0415

    columns = {each.name: _TYPES[each.kind] + "[]" * each.lists for each in typed_columns(format_)}
    return {**columns, NOTES: "varchar"}


def _typing(format_: "CatalogFormat") -> Callable[..., Any]:
    """The kernel's function, as DuckDB calls it: for some rows at a time."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    from mew.pipeline.kernel.retyping import typed_values  # noqa: PLC0415
    from mew.pipeline.kernel.typed import KEYS, typed_schema  # noqa: PLC0415

    fields = list(typed_schema(format_))[len(KEYS) :]

    def typing(kind: Any, value: Any, raw: Any) -> Any:  # DuckDB reads what stands here
        made = typed_values(format_, *(each.combine_chunks() for each in (kind, value, raw)))
        return pa.StructArray.from_arrays(made, fields=fields)

    return typing
