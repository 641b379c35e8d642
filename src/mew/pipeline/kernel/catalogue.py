"""The catalogue of a space: what the kernel has to know of its streams, as the fold of the control records found it.

Plain values that cross processes. Made by `control`; nothing is read or decided here.
"""

import msgspec


class CatalogFormat(msgspec.Struct, frozen=True):
    """One format of a stream, as announced."""

    format_id: str
    fingerprint: str
    """`formats.fingerprint` of its descriptor: equal schemas are one format, in whatever stream and space."""
    slug: str
    """`formats.slug` of its id: what its table's name has of it."""
    mime_type: str | None = None
    schema: bytes | None = None
    """Its JSON Schema's text."""


class StreamFormats(msgspec.Struct, frozen=True):
    """What is known of the content of one stream."""

    formats: tuple[CatalogFormat, ...] = ()
    """In the order of the announcement."""
    content_type: str | None = None
    """As a v0.4 stream was asked for with; it says what frames are where no format does."""
    format: str | None = None
    """The same."""
    validate: bool = False
    """Whether the gateway refused data that did not fit."""


class Access(msgspec.Struct, frozen=True):
    """A participant could write to a stream from one record on, up to but not including another."""

    participant: str
    from_position: int
    to_position: int | None = None


class Catalogue(msgspec.Struct, frozen=True):
    """All streams of a space that there ever were, up to a position."""

    space: str
    streams: dict[str, StreamFormats] = {}
    access: dict[str, tuple[Access, ...]] = {}
    """By stream; a stream that is missing here had no writer."""
    probes: tuple[int, ...] = ()
    """The positions of welcomes and gaps, in order: what the frame numbers were there, the audit wants to know."""
    known_from: int = 0
    """From this record on it is known who could write; before it, if records are missing, it is unknown."""
