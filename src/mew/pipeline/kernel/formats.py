"""Formats by their content: what sort of bytes they mean, and the fingerprint that makes equal ones one.

Pure. `control` and the kernel both ask here, so that both mean the same.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from mew.pipeline.kernel.catalogue import CatalogFormat, StreamFormats
from mew.pipeline.kernel.columns import TEXT_COLUMNS, Column, columns_of, layout_columns
from mew.pipeline.kernel.layouts import Layout, layout_of

FINGERPRINT_DIGITS: Final = 16
SLUG_LETTERS: Final = 40
JSON: Final = "json"
TEXT: Final = "text"
VECTORS: Final = "vectors"
OPAQUE: Final = "opaque"
_OTHERS: Final = re.compile(r"[^a-z0-9]+")
_BINARY: Final = re.compile(r"(?:image|audio|video|font)/|application/octet-stream")


class PayloadKind(msgspec.Struct, frozen=True):
    """What a format's raw frames are. `stream/data` is JSON whatever its format."""

    sort: str
    """`json`, `text`, `vectors` or `opaque`."""
    layout: Layout | None = None
    """Of vectors."""


def nature_of(format_id: str | None, mime_type: str | None, schema: Any) -> PayloadKind:
    """What frames of a format are: vectors where it says so, else what its MIME type says, else JSON by its schema."""
    layout = layout_of(format_id, mime_type, schema)
    if layout is not None:
        return PayloadKind(VECTORS, layout)
    mime = (mime_type or "").partition(";")[0].strip().lower()
    if mime == "application/json" or mime.endswith("+json"):
        return PayloadKind(JSON)
    if mime.startswith("text/"):
        return PayloadKind(TEXT)
    return PayloadKind(OPAQUE if schema is None or _BINARY.match(mime) else JSON)


def canonical(value: Any) -> bytes:
    """JSON with its keys in order and no spaces: equal values are equal bytes."""
    return msgspec.json.encode(value, order="deterministic")


def fingerprint(descriptor: Mapping[str, Any]) -> str:
    """What tells a format from every other one, whatever it is called and wherever it is announced.

    Its schema alone, where its frames are JSON; else its layout or its MIME type, with the schema if there is one: as a
    list, which no schema is, so that none can pass for another format.
    """
    schema, mime_type = descriptor.get("schema"), descriptor.get("mime_type")
    nature = nature_of(descriptor.get("id"), mime_type, schema)
    if nature.sort == JSON and schema is not None:
        told = schema
    else:
        told = ["mime_type", mime_type] if nature.layout is None else ["layout", nature.layout.name]
        if schema is not None:
            told.append(schema)
    return hashlib.sha256(canonical(told)).hexdigest()[:FINGERPRINT_DIGITS]


def slug(format_id: str) -> str:
    """A format's id as part of a table's name: small letters, digits and single underscores."""
    return _OTHERS.sub("_", format_id.lower()).strip("_")[:SLUG_LETTERS].rstrip("_") or "format"


def format_of(descriptor: Mapping[str, Any]) -> CatalogFormat:
    """The catalogue's format for a descriptor, as a stream announced it."""
    format_id, schema = str(descriptor.get("id")), descriptor.get("schema")
    text = None if schema is None else msgspec.json.encode(schema)
    return CatalogFormat(format_id, fingerprint(descriptor), slug(format_id), descriptor.get("mime_type"), text)


def implied(stream: StreamFormats) -> CatalogFormat | None:
    """The format that a v0.4 stream's `format` or `content_type` means; None where they mean nothing we know."""
    for format_id, mime_type in ((stream.format, None), (None, stream.format), (None, stream.content_type)):
        if (format_id or mime_type) and nature_of(format_id, mime_type, None).sort != OPAQUE:
            named = format_id or mime_type or ""
            descriptor = {"id": named, "mime_type": mime_type}
            return CatalogFormat(named, fingerprint(descriptor), slug(named), mime_type)
    return None


def schema_of(format_: CatalogFormat) -> Any:
    """Its schema as a value."""
    return None if format_.schema is None else msgspec.json.decode(format_.schema)


@lru_cache(maxsize=1024)
def typed_columns(format_: CatalogFormat) -> tuple[Column, ...]:
    """The typed columns of a format, none where its frames are opaque; equal fingerprints have equal columns."""
    schema = schema_of(format_)
    nature = nature_of(format_.format_id, format_.mime_type, schema)
    if nature.layout is not None:
        return layout_columns(nature.layout)
    if nature.sort == TEXT:
        return TEXT_COLUMNS
    if nature.sort == OPAQUE:
        return ()
    # In one order, whichever the announcer wrote its properties in.
    return columns_of(True if schema is None else msgspec.json.decode(canonical(schema)))


def table_name(format_: CatalogFormat) -> str:
    """What the frames of a format with their typed columns are called."""
    return f"frames_{format_.slug}_{format_.fingerprint}"


def column_mapping(format_: CatalogFormat) -> str | None:
    """Property to column and type, as JSON: what the table `formats` says; None where there are no columns."""
    columns = typed_columns(format_)
    if not columns:
        return None
    told = [
        {"property": list(each.path), "column": each.name, "type": str(each.type), "note": each.note}
        for each in columns
    ]
    return msgspec.json.encode(
        [{key: value for key, value in each.items() if value is not None} for each in told]
    ).decode()
