"""Rows of a journal for tests of the kernel: made by hand, or the catalogue of a generated journal out of its truth."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from mew.journal.arrow import SCHEMA
from mew.pipeline.kernel.catalogue import Access, Catalogue, StreamFormats
from mew.pipeline.kernel.decoding import DecodeOptions
from mew.pipeline.kernel.formats import format_of
from mew.pipeline.kernel.processing import UnitResult, process
from mew.pipeline.kernel.units import Unit
from tools.journal_generator import SpaceTruth

SPACE = "lab"
START = 1_772_441_940_000_000


def row(position: int, payload: bytes = b"{}", **changes: Any) -> dict[str, Any]:
    """A frame of `ann` on `s`, a tenth of a second after the one before."""
    made = {
        "position": position,
        "time": START + position * 100_000,
        "event": "frame",
        "participant": "ann",
        "stream_id": "s",
        "frame_number": position + 1,
        "size": len(payload),
        "payload": payload,
    }
    return {**made, **changes}


def data_row(position: int, content: Any, *, sequence: int = 0, format_id: str | None = None, **changes: Any) -> Any:
    """A `stream/data` of `ann` on `s`; bytes are content as it is written."""
    raw = msgspec.Raw(content if isinstance(content, bytes) else msgspec.json.encode(content))
    payload: dict[str, Any] = {"stream": {"stream_id": "s"}, "sequence": sequence, "content": raw}
    if format_id is not None:
        payload["format_id"] = format_id
    envelope = msgspec.json.encode({"id": f"e-{position}", "kind": "stream/data", "payload": payload})
    return row(position, envelope, event="envelope", kind="stream/data", sequence=sequence, **changes)


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """As the journal has it."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


def descriptor(schema: Any = None, mime_type: str | None = "application/json", format_id: str = "f") -> dict[str, Any]:
    """A format as announced."""
    made = {"id": format_id, "mime_type": mime_type, "schema": schema}
    return {key: value for key, value in made.items() if value is not None}


def catalogue(*descriptors: dict[str, Any], **more: Any) -> Catalogue:
    """Of a space with the one stream `s`, which has these formats and one writer."""
    streams = {"s": StreamFormats(tuple(format_of(each) for each in descriptors), **more)}
    return Catalogue(SPACE, streams, {"s": (Access("ann", -1),)})


def run(rows: Sequence[dict[str, Any]], of: Catalogue, *, typed: bool = False) -> UnitResult:
    """All rows as one unit; with `typed` each format has a table."""
    last = rows[-1]["position"] if rows else 0
    fingerprints = {each.fingerprint for stream in of.streams.values() for each in stream.formats}
    options = DecodeOptions(frozenset(fingerprints)) if typed else DecodeOptions()
    return process(Unit(of.space, "", 0, last), table(rows), of, options)


def true_catalogue(truth: SpaceTruth) -> Catalogue:
    """The catalogue of a generated space, out of what its story knows."""
    streams, access = {}, {}
    for stream in truth.streams.values():
        streams[stream.stream_id] = StreamFormats(tuple(format_of(each) for each in stream.formats))
        ends = [*(each.position for each in stream.writers[1:]), None]
        access[stream.stream_id] = tuple(
            Access(writer, each.position, end)
            for each, end in zip(stream.writers, ends, strict=True)
            for writer in each.writers
        )
    return Catalogue(truth.space, streams, access, tuple(each.position for each in truth.welcomes))
