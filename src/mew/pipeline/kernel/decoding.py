"""Rows of the journal become rows of `frames`, of `quarantine` and of typed tables; a slice at a time.

Pure. Bad data stops nothing and does not disappear: it is in `frames` as not valid, and in `quarantine` with the reason
and its own bytes.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline import schemas
from mew.pipeline.kernel.catalogue import Catalogue
from mew.pipeline.kernel.contents import NO_FORMAT, Contents, Group, contents_of
from mew.pipeline.kernel.judging import BAD_RECORD, ValidationResult, is_utf8, judge_of
from mew.pipeline.kernel.typed import KEYS, typed_schema, values_of

FRAME_KIND: Final = "frame"
DATA_KIND: Final = "data"
UNJUDGED: Final = -1
_KEYS: Final = ["participant" if name == "writer" else name for name in KEYS if name != "space"]


class DecodeOptions(msgspec.Struct, frozen=True):
    """What the kernel is to do besides."""

    typed: frozenset[str] = frozenset()
    """Fingerprints of the formats that have a table of their own."""


@dataclass
class Decoded:
    """What came of a slice."""

    frames: pa.Table
    quarantine: pa.Table
    typed: dict[str, list[pa.Table]]
    """By fingerprint; each table is in order, together they may not be."""
    invalid: Any
    """Whether each row is in quarantine."""


def decode(rows: pa.Table, catalogue: Catalogue, options: DecodeOptions) -> Decoded:
    """Rows in the journal's columns, each column in one chunk."""
    return _Decoding(rows, catalogue, options).done()


class _Decoding:
    """Goes through one slice."""

    def __init__(self, rows: pa.Table, catalogue: Catalogue, options: DecodeOptions) -> None:
        self._space = catalogue.space
        self._options = options
        self._rows, self._faults = _whole(rows)
        self._contents: Contents = contents_of(self._rows, catalogue)
        self._faults += self._contents.faults
        self._valid = np.full(rows.num_rows, UNJUDGED, np.int8)
        self._text = np.zeros(rows.num_rows, bool)
        self._typed: dict[str, list[pa.Table]] = {}

    def done(self) -> Decoded:
        found = self._contents
        for number, group in enumerate(found.groups):
            places = np.flatnonzero(found.group == number)
            if len(places):
                self._judge(group, places)
        loose = np.flatnonzero((found.group == NO_FORMAT) & found.data)
        if len(loose):
            self._text[loose] = is_utf8(found.content.take(pa.array(loose)))
        faults = _one_each(self._faults)
        invalid = np.zeros(self._rows.num_rows, bool)
        for place, reason, _ in faults:
            invalid[place] = True
            self._text[place] &= reason != BAD_RECORD
        self._valid[invalid] = 0
        return Decoded(self._frames(), self._quarantine(faults), self._typed, invalid)

    def _judge(self, group: Group, places: Any) -> None:
        contents = self._contents.content
        if len(places) < len(contents):
            contents = contents.take(pa.array(places))
        judge, keep = judge_of(group.format), group.format.fingerprint in self._options.typed
        verdict = judge.data(contents, keep=keep) if group.data else judge.frames(contents, keep=keep)
        self._valid[places] = verdict.valid
        self._text[places] = verdict.text
        self._faults += [(int(places[index]), reason, detail) for index, reason, detail in verdict.faults]
        if keep and judge.columns:
            self._type(group, places, contents, verdict)

    def _type(self, group: Group, places: Any, contents: pa.Array, verdict: ValidationResult) -> None:
        if not verdict.valid.all():
            fit = np.flatnonzero(verdict.valid)
            places, contents, verdict = places[fit], contents.take(pa.array(fit)), verdict.of(fit)
        values = values_of(judge_of(group.format), contents, verdict, data=group.data)
        rows = self._rows.select(_KEYS).take(pa.array(places))
        keys = [self._key(rows, name) for name in KEYS]
        table = pa.Table.from_arrays([*keys, *values], schema=typed_schema(group.format))
        self._typed.setdefault(group.format.fingerprint, []).append(table)

    def _key(self, rows: pa.Table, name: str) -> Any:
        if name == "space":
            return pa.repeat(pa.scalar(self._space), rows.num_rows)
        return rows.column("participant" if name == "writer" else name)

    def _frames(self) -> pa.Table:
        rows, found = self._rows, self._contents
        value, raw = _shown(found.content, self._text)
        kinds = pa.array([FRAME_KIND, DATA_KIND])
        columns = {
            "kind": kinds.take(pa.array(found.data.astype(np.int8))),
            "size": rows.column("size"),
            "format_id": self._by_group([each.format.format_id if each.announced else None for each in found.groups]),
            "format": self._by_group([each.format.fingerprint for each in found.groups]),
            "value": value,
            "raw": raw,
            "valid": pa.array(self._valid == 1, mask=self._valid == UNJUDGED),
            "bytes": pc.binary_length(rows.column("payload")).cast(pa.int64()),
        }
        schema = schemas.FRAMES.schema
        arrays = [columns[name] if name in columns else self._key(rows, name) for name in schema.names]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _by_group(self, texts: list[str | None]) -> pa.Array:
        group = self._contents.group
        return pa.array(texts, pa.string()).take(pa.array(group, mask=group == NO_FORMAT))

    def _quarantine(self, faults: list[tuple[int, str, str]]) -> pa.Table:
        places = pa.array([place for place, _, _ in faults], pa.int64())
        rows = self._rows.take(places)
        groups = [
            self._contents.groups[each] if each >= 0 else None for each in self._contents.group[places.to_numpy()]
        ]
        columns = {
            "format_id": pa.array(
                [each.format.format_id if each and each.announced else None for each in groups], pa.string()
            ),
            "format": pa.array([None if each is None else each.format.fingerprint for each in groups], pa.string()),
            "reason": pa.array([reason for _, reason, _ in faults], pa.string()),
            "detail": pa.array([detail for _, _, detail in faults], pa.string()),
            "payload": rows.column("payload"),
        }
        schema = schemas.QUARANTINE.schema
        arrays = [columns[name] if name in columns else self._key(rows, name) for name in schema.names]
        return pa.Table.from_arrays(arrays, schema=schema)


def _whole(rows: pa.Table) -> tuple[pa.Table, list[tuple[int, str, str]]]:
    """The rows with something in every column that must have it, and which of them had not."""
    faults = []
    for name, instead in (("stream_id", ""), ("frame_number", 0)):
        column = rows.column(name)
        if column.null_count:
            missing = np.flatnonzero(column.is_null().to_numpy())
            faults += [(place, BAD_RECORD, f"it has no {name}") for place in missing.tolist()]
            rows = rows.set_column(
                rows.schema.get_field_index(name), rows.schema.field(name), pc.fill_null(column, instead)
            )
    return rows, faults


def _one_each(faults: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    """In order, the first of each row."""
    first: dict[int, tuple[int, str, str]] = {}
    for fault in faults:
        first.setdefault(fault[0], fault)
    return [first[place] for place in sorted(first)]


def _shown(content: pa.Array, text: Any) -> tuple[pa.Array, pa.Array]:
    """Contents that are text, and those that are not, each in its column."""
    if text.all():
        return content.cast(pa.string()), pa.nulls(len(content), pa.binary())
    if not text.any():
        return pa.nulls(len(content), pa.string()), content
    nothing, shown = pa.scalar(None, pa.binary()), pa.array(text)
    value, raw = pc.if_else(shown, content, nothing), pc.if_else(shown, nothing, content)
    return value.cast(pa.string()), raw
