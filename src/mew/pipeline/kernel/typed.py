"""Typed columns out of frames: each property in a column of its type, without losing a digit unnoticed.

Pure. Most values come from the quick decoder; rows it did not take, and rows with numbers of so many digits that a
float or 64 bits might not hold them, are read again as they were written. What a column cannot hold exactly stands, as
it was written, in `notes`.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from math import isfinite
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline import schemas
from mew.pipeline.kernel import formats
from mew.pipeline.kernel.catalogue import CatalogFormat
from mew.pipeline.kernel.columns import BOOLEAN, EXACT, INTEGER, JSON, NUMBER, TEXT, Column
from mew.pipeline.kernel.digits import needs_every_digit
from mew.pipeline.kernel.judging import FrameValidator, ValidationResult
from mew.pipeline.kernel.layouts import Layout
from mew.pipeline.kernel.reading import Literally, read_json, read_literally

NOTES: Final = "notes"
COMMENT: Final = "A frame that is what its format says, in columns."
"""Of each format's table."""
KEYS: Final = ("space", "stream_id", "position", "time", "writer", "frame_number", "sequence")
"""What a typed row has of its frame."""
_LONG: Final = 2**63
_EXACT: Final = 2**53
_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def typed_schema(format_: CatalogFormat) -> pa.Schema:
    """The columns of a format's typed table."""
    keys = [schemas.FRAMES.schema.field(name) for name in KEYS]
    values = [
        pa.field(each.name, each.type, metadata={schemas.COMMENT: _comment(each).encode()})
        for each in formats.typed_columns(format_)
    ]
    told = "values that their columns do not hold exactly, as they were written: column to text, as JSON"
    return pa.schema([*keys, *values, pa.field(NOTES, pa.string(), metadata={schemas.COMMENT: told.encode()})])


def typed_table(name: str, schema: pa.Schema) -> schemas.Table:
    """The table that holds the frames of a format with these columns."""
    return schemas.Table(name, COMMENT, schema)


def _comment(column: Column) -> str:
    where = ".".join(column.path) or "the content"
    return where if column.note is None else f"{where}: {column.note}"


def values_of(judge: FrameValidator, contents: pa.Array, verdict: ValidationResult, *, data: bool) -> list[pa.Array]:
    """The typed columns of contents, all of which are valid by this verdict, and the notes."""
    nature = judge.nature
    nothing = pa.nulls(len(contents), pa.string())
    if nature.layout is not None:
        if data:
            return [*(pa.nulls(len(contents), each.type) for each in judge.columns), nothing]
        return [*_vectors(nature.layout, judge.columns, contents), nothing]
    if nature.sort == formats.TEXT:
        texts = pa.array([_as_text(text) for text in contents.to_pylist()], pa.string()) if data else contents
        return [texts.cast(pa.string()), nothing]
    return _Reading(judge, contents, verdict).arrays()


def _as_text(content: bytes) -> str:
    value = read_json(content)
    return value if isinstance(value, str) else content.decode()


def _vectors(layout: Layout, columns: tuple[Column, ...], contents: pa.Array) -> list[pa.Array]:
    """Each part of all vectors of a frame as one list; split in one step."""
    sizes = pc.binary_length(contents).to_numpy(zero_copy_only=False)
    counts = sizes // layout.width
    joined = b"".join(contents.to_pylist())
    numbers = np.frombuffer(joined, np.dtype("<f4" if layout.element == "f32" else "<f8")).reshape(-1, len(columns))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return [
        pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(numbers[:, place])), type=column.type)
        for place, column in enumerate(columns)
    ]


class _Reading:
    """Puts JSON contents into columns."""

    def __init__(self, judge: FrameValidator, contents: pa.Array, verdict: ValidationResult) -> None:
        self._columns = judge.columns
        self._contents = contents
        self._decoded: list[Any] = verdict.decoded or []
        self._untaken = verdict.untaken
        self._fields = None if judge.quick is None else judge.quick.fields
        self._hard = self._hard_rows()

    def arrays(self) -> list[pa.Array]:
        easy, hard = np.flatnonzero(~self._hard), np.flatnonzero(self._hard)
        values = [read_literally(self._contents[index].as_py()) for index in hard.tolist()]
        notes: list[dict[str, str]] = [{} for _ in values]
        place = pa.array(np.argsort(np.concatenate([easy, hard]))) if len(hard) else None
        arrays = []
        for column in self._columns:
            if column.kind == JSON:
                arrays.append(
                    pa.array([_raw_at(text, column.path) for text in self._contents.to_pylist()], pa.string())
                )
                continue
            quickly = pa.array(self._quick_values(column, easy), column.type)
            if place is None:
                arrays.append(quickly)
                continue
            slowly = [_fitted(_at(value, column.path), column, note) for value, note in zip(values, notes, strict=True)]
            arrays.append(pa.concat_arrays([quickly, pa.array(slowly, column.type)]).take(place))
        told = pa.array([msgspec.json.encode(note).decode() if note else None for note in notes], pa.string())
        nothing = pa.nulls(len(easy), pa.string())
        return [*arrays, nothing if place is None else pa.concat_arrays([nothing, told]).take(place)]

    def _hard_rows(self) -> Any:
        """Those that the quick decoder did not take or that need every digit."""
        kinds = {column.kind for column in self._columns}
        if kinds == {JSON}:
            return np.zeros(len(self._contents), bool)
        if EXACT in kinds or (self._fields is None and any(each.path for each in self._columns)):
            return np.ones(len(self._contents), bool)
        if kinds.isdisjoint({INTEGER, NUMBER}):
            return self._untaken
        return self._untaken | needs_every_digit(self._contents)

    def _quick_values(self, column: Column, rows: Any) -> list[Any]:
        values = self._decoded
        if not len(rows):
            return []
        if len(rows) < len(values):
            values = [values[row] for row in rows.tolist()]
        fields = self._fields
        for name in column.path:
            assert fields is not None
            get = attrgetter(fields.names[name])
            try:
                values = list(map(get, values))
            except AttributeError:
                # What is above it is null or not there.
                values = [None if value is None else get(value) for value in values]
            if name in fields.optional:
                values = [None if value is msgspec.UNSET else value for value in values]
            fields = fields.below.get(name)
        return values


def _at(value: Any, path: Sequence[str]) -> Any:
    """What is there, None where nothing is."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _raw_at(text: bytes, path: Sequence[str]) -> str | None:
    """The JSON of what is there, as it was written; None where nothing or null is."""
    for name in path:
        if not text.lstrip().startswith(b"{"):
            return None
        found = _raw_object(text).get(name)
        if found is None:
            return None
        text = bytes(found)
    told = text.strip().decode()
    return None if told == "null" else told


def _fitted(value: Any, column: Column, notes: dict[str, str]) -> Any:
    """The value as its column has it; what is lost thereby goes to the notes, whole."""
    lost: list[bool] = []
    found = _as_kind(value, column.kind, column.lists, lost)
    if lost:
        notes[column.name] = _written(value)
    return found


def _as_kind(value: Any, kind: str, lists: int, lost: list[bool]) -> Any:
    if value is None:
        return None
    if lists and isinstance(value, list):
        return [_as_kind(each, kind, lists - 1, lost) for each in value]
    number = isinstance(value, int | Literally) and not isinstance(value, bool)
    if not lists:
        if kind == NUMBER and number:
            return _as_float(value, lost)
        if kind == INTEGER and number:
            return _as_integer(value, lost)
        if kind == EXACT and number:
            return str(value)
        if (kind == TEXT and type(value) is str) or (kind == BOOLEAN and isinstance(value, bool)):
            return value
    lost.append(True)
    return None


def _as_float(value: Any, lost: list[bool]) -> float | None:
    try:
        found = float(value)
        exact = int(found) == value if isinstance(value, int) else Decimal(repr(found)) == Decimal(value)
    except (OverflowError, InvalidOperation):
        found, exact = float("inf"), False
    if not exact:
        lost.append(True)
    return found if isfinite(found) else None


def _as_integer(value: Any, lost: list[bool]) -> int | None:
    if isinstance(value, Literally):
        number = float(value)
        value = int(number) if abs(number) < _EXACT and Decimal(value) == int(number) else None
    if value is None or not -_LONG <= value < _LONG:
        lost.append(True)
        return None
    return int(value)


def _written(value: Any) -> str:
    """As JSON, numbers as they were written."""
    if isinstance(value, Literally | int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(_written(each) for each in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{msgspec.json.encode(key).decode()}:{_written(each)}" for key, each in value.items())
        return "{" + ",".join(pairs) + "}"
    return msgspec.json.encode(value).decode()
