"""A lake's tables and the journal's records as views, in DuckDB's words.

Makes text, and reads no row. Names of folders mean nothing here: DuckDB would make columns of every `a=b` in a path.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mew.journal.layout import JournalFolder, Segment
from mew.pipeline.lake.delta import OPEN
from mew.pipeline.lake.reading import LakeReader

EVENTS: Final = "events"
_TYPES: Final = {
    "string": "varchar",
    "long": "bigint",
    "integer": "integer",
    "short": "smallint",
    "byte": "tinyint",
    "double": "double",
    "float": "float",
    "boolean": "boolean",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
EVENT_COLUMNS: Final = {
    "space": "string",
    "position": "long",
    "time": "timestamp",
    "event": "string",
    "participant": "string",
    "kind": "string",
    "envelope_id": "string",
    "stream_id": "string",
    "frame_number": "long",
    "sequence": "long",
    "reason": "string",
    "size": "long",
    "payload": "binary",
    "capability": "string",
}
"""The journal's columns (docs/journal.md), and whose journal it is."""


def table_view(reader: LakeReader, name: str) -> str:
    """The select of a table, with all its columns, those too that no file has."""
    kinds: dict[bool | None, list[str]] = {}
    for file in reader.parts(name):
        kinds.setdefault(file.is_open, []).append(file.path)
    selects = [
        f"select *{'' if is_open is None else f', {is_open} as {quoted(OPEN)}'} from {_files(paths, is_mixed=True)}"
        for is_open, paths in kinds.items()
    ]
    return _union(reader.columns(name), selects)


def events_view(journal: Path, positions: Mapping[str, int]) -> str:
    """The select of the journal's sealed records, in each space up to a position."""
    selects = []
    for space, paths in event_files(journal, positions).items():
        which = f"select {_text(space)} as space, * from {_files(paths, is_mixed=False)}"
        selects.append(f"{which} where position <= {positions[space]}")
    return _union(EVENT_COLUMNS, selects)


def event_files(journal: Path, positions: Mapping[str, int]) -> dict[str, list[str]]:
    """By space, the sealed files that have records up to a position; no space that has none."""
    found = {}
    for space, last in sorted(positions.items()):
        segments = JournalFolder(journal, space).segments()
        found[space] = [str(path.absolute()) for segment in segments for path in _paths(segment, last)]
    return {space: paths for space, paths in found.items() if paths}


def quoted(name: str) -> str:
    """A name as SQL has it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def _paths(segment: Segment, last: int) -> Iterator[Path]:
    if segment.first <= last:
        yield segment.control
        if segment.frames.exists():
            yield segment.frames


def _files(paths: Iterable[str], *, is_mixed: bool) -> str:
    """`is_mixed`: some may lack a column that others have."""
    listed = ", ".join(_text(path) for path in paths)
    return f"read_parquet([{listed}], union_by_name = {is_mixed}, hive_partitioning = false)"


def _union(columns: Mapping[str, Any], selects: list[str]) -> str:
    """Of a table without a row, which has the columns' names, order and types, and of the selects."""
    typed = ", ".join(f"null::{_type(of)} as {quoted(name)}" for name, of in columns.items())
    return " union all by name ".join([f"(select {typed} where false)", *(f"({each})" for each in selects)])


def _type(of: Any) -> str:
    """Delta's description of a type, in DuckDB's words."""
    if isinstance(of, str):
        return _TYPES.get(of, of)  # `decimal(p,s)` is the same in both.
    if of["type"] == "array":
        return f"{_type(of['elementType'])}[]"
    if of["type"] == "map":
        return f"map({_type(of['keyType'])}, {_type(of['valueType'])})"
    members = (f"{quoted(field['name'])} {_type(field['type'])}" for field in of["fields"])
    return f"struct({', '.join(members)})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
