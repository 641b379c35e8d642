"""The formats of a stream as it announced them: their fingerprints, their columns, and what the kernel needs of them.

Pure. What a fingerprint or a column is, `kernel` says, and so what a v0.4 stream means by its `format` or
`content_type`: such a stream announces no formats, and has that one.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec

from mew.pipeline.control.rows import Announced
from mew.pipeline.kernel.catalogue import CatalogFormat, StreamFormats
from mew.pipeline.kernel.formats import column_mapping, fingerprint, implied, slug
from mew.protocol import raw_json
from mew.protocol.records import Record
from mew.protocol.streams import StreamEntry

_NULL: Final = b"null"
_texts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class _Described(msgspec.Struct, frozen=True):
    """One descriptor, worked out."""

    format: CatalogFormat
    description: str | None
    columns: str | None


def formats_of(stream: StreamEntry) -> tuple[CatalogFormat, ...]:
    """Its formats, in the order of the announcement."""
    return tuple(each.format for each in _descriptors(stream.fields.get("formats", _NULL)))


def rows(stream: StreamEntry, record: Record) -> list[Announced]:
    """The rows of a stream that came to be with this record."""
    return [
        Announced(
            stream_id=stream.stream_id,
            format_id=each.format.format_id,
            position=record.position,
            time=record.time,
            participant=stream.creator,
            fingerprint=each.format.fingerprint,
            slug=each.format.slug,
            mime_type=each.format.mime_type,
            description=each.description,
            schema=None if each.format.schema is None else each.format.schema.decode(),
            columns=each.columns,
        )
        for each in _descriptors(stream.fields.get("formats", _NULL)) or _meant(stream)
    ]


def content_of(stream: StreamEntry, *, validates: bool) -> StreamFormats:
    """What the kernel has to know; `validates` where the stream does not say whether its data is checked."""
    asked = stream.value("validate")
    return StreamFormats(
        formats_of(stream),
        _word(stream.value("content_type")),
        _word(stream.value("format")),
        validates if asked is None else bool(asked),
    )


def _meant(stream: StreamEntry) -> tuple[_Described, ...]:
    """The format of a stream that announced none, where it is one we know."""
    format_ = implied(StreamFormats((), _word(stream.value("content_type")), _word(stream.value("format"))))
    return () if format_ is None else (_Described(format_, None, column_mapping(format_)),)


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


@lru_cache(maxsize=256)
def _descriptors(text: bytes) -> tuple[_Described, ...]:
    """Streams come and go with the same formats: each text is worked out once."""
    if text == _NULL:
        return ()
    values, texts = raw_json.decode_json(text), _texts.decode(text)
    return tuple(_described(value, fields) for value, fields in zip(values, texts, strict=True))


def _described(value: dict[str, Any], texts: dict[str, msgspec.Raw]) -> _Described:
    schema = bytes(texts.get("schema", msgspec.Raw(_NULL)))
    format_ = CatalogFormat(
        format_id=value["id"],
        fingerprint=fingerprint(value),
        slug=slug(value["id"]),
        mime_type=value.get("mime_type"),
        schema=None if schema == _NULL else schema,
    )
    return _Described(format_, value.get("description"), column_mapping(format_))
