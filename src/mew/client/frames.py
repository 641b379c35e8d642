"""Frames and their formats: decoding and encoding of values, and the gaps in what a reader received.

A type becomes a format descriptor with a JSON Schema. Every type that msgspec supports works: a `msgspec.Struct`, a
dataclass, a `TypedDict`, a plain `dict[str, int]`. The gateway counts gaps; they are never estimated. No I/O.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from mew.client.errors import DecodeError
from mew.protocol.envelope import Envelope
from mew.view import SpaceView, StreamView

T = TypeVar("T")
Decode = Callable[[bytes], Any]


class Frame(msgspec.Struct, Generic[T], frozen=True):
    """One frame of a stream."""

    stream_id: str
    """The id of the stream."""
    data: bytes
    """The data as sent; for `stream/data`, the JSON text of its content."""
    text: bool = True
    """Whether the frame was sent as text."""
    sender: str | None = None
    """The id of the sender; None for a raw frame."""
    sequence: int | None = None
    """The sender's sequence number; None for a raw frame."""
    format_id: str | None = None
    """The format id in a `stream/data`, if it has one."""
    decode: Decode | None = None
    """The decoder of its format, if there is one."""

    def __repr__(self) -> str:
        by = "" if self.sender is None else f" by {self.sender!r}"
        return f"<Frame of {self.stream_id!r}{by}: {self.data[:80]!r}>"

    @property
    def value(self) -> T | None:
        """The decoded data; None if there is no decoder. Decoded on each access.

        Raises `DecodeError` if the data do not match the format.
        """
        if self.decode is None:
            return None
        try:
            value: T = self.decode(self.data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DecodeError(f"a frame of {self.stream_id!r} is not what its format says: {error}") from error
        return value


def raw_frame(stream_id: str, data: bytes, *, text: bool, decode: Decode | None) -> Frame[Any]:
    """Create the `Frame` of a raw frame, which has no envelope."""
    return Frame(stream_id, data, text, None, None, None, decode)


def data_frame(stream_id: str, envelope: Envelope, decode: Decode | None) -> Frame[Any]:
    """Create the `Frame` of a `stream/data` envelope."""
    content, payload = envelope.payload_fields()["content"], envelope.payload
    return Frame(stream_id, content, True, envelope.sender, payload["sequence"], payload.get("format_id"), decode)


Cause = Literal["queue", "gateway", "connection"]
"""Where frames were dropped: in the client's queue (slow reader), in the gateway, or while disconnected."""


class StreamGap(msgspec.Struct, frozen=True):
    """A gap in one stream: frames that are missing at this position."""

    stream_id: str
    """The id of the stream."""
    frames: int
    """The number of missing frames."""
    cause: Cause
    """`queue`: the client's queue was full. `gateway`: the gateway reported it. `connection`: the connection broke."""


class Gap(msgspec.Struct, frozen=True):
    """What the client missed between two connections, as counted by the gateway."""

    position_before: int
    """The journal position at the previous welcome."""
    position_after: int
    """The journal position at the new welcome."""
    streams: Mapping[str, int]
    """The number of missed frames of each open stream, by stream id. Streams opened in the meantime are included.

    A stream with targets is left out if this participant is not one of them: it receives no data of such a stream.
    """
    ended: tuple[str, ...] = ()
    """Ids of the streams that ended in the meantime; how many of their frames were missed is unknown."""


def gap_between(before: SpaceView, after: SpaceView) -> Gap:
    """Compute what was missed between the last known view and the view of the new welcome."""
    same = {name for name, stream in after.streams.items() if is_same(before.streams.get(name), stream)}
    missed = {
        name: max(0, stream.frames - (before.streams[name].frames if name in same else 0))
        for name, stream in after.streams.items()
        if receives(after, stream)
    }
    return Gap(
        position_before=before.position,
        position_after=after.position,
        streams=missed,
        ended=tuple(name for name in before.streams if name not in same),
    )


def is_same(before: StreamView | None, after: StreamView) -> bool:
    """Whether both are the same stream. Without a journal, a restarted gateway reuses stream ids."""
    return before is not None and before.entry["created"] == after.entry["created"]


def receives(view: SpaceView, stream: StreamView) -> bool:
    """Whether this participant receives the data of a stream: always, unless the stream has targets (protocol §4)."""
    targets = stream.entry.get("target")
    return not isinstance(targets, list) or (view.you.id in targets and not is_observer(view))


def is_observer(view: SpaceView) -> bool:
    """Whether the client is an observer. A participant has at least one capability, an observer none (protocol §2)."""
    return not view.you.capabilities


JSON_TYPE: Final = "application/json"


class Format(msgspec.Struct, frozen=True):
    """A type with a format id of your choice, instead of the name of the type."""

    type: Any
    """The type of the frames: any type that msgspec can decode and encode, `bytes` or `str`."""
    id: str
    """The id of the format in its stream."""
    description: str | None = None
    """A description for human readers."""


def format_id(form: Any) -> str:
    """Return the id of a format: for a type, its name; for a `Format` or a descriptor, its `id`."""
    if isinstance(form, str):
        return form
    if isinstance(form, Format):
        return form.id
    if isinstance(form, Mapping):
        return str(form["id"])
    return str(getattr(form, "__name__", form))


def descriptor(form: Any) -> dict[str, Any]:
    """Return the descriptor of a format for a stream's `formats`; a mapping is copied unchanged (protocol §4)."""
    if isinstance(form, Mapping):
        return dict(form)
    if isinstance(form, str):
        return {"id": form}
    fields = {"id": format_id(form), "mime_type": JSON_TYPE, "schema": msgspec.json.schema(_type(form))}
    if isinstance(form, Format) and form.description is not None:
        fields["description"] = form.description
    return fields


def descriptors(forms: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the descriptors of all formats of a stream."""
    return [descriptor(form) for form in forms]


def decoder(form: Any) -> Decode:
    """Return the decoder of a format; for a format id or a descriptor, a decoder of any JSON."""
    if isinstance(form, str | Mapping):
        return _any_json
    try:
        return _decoder(_type(form))
    except TypeError:  # the type is not hashable, so the decoder cannot be cached
        return msgspec.json.Decoder(_type(form)).decode


def declared_decoder(stream: StreamView) -> Decode | None:
    """Return a JSON decoder if the stream declares exactly one format and it is JSON; otherwise None."""
    formats = stream.formats
    if len(formats) != 1:
        return None
    only = formats[0]
    return _any_json if only.get("mime_type") == JSON_TYPE or only.get("schema") is not None else None


def _type(form: Any) -> Any:
    return form.type if isinstance(form, Format) else form


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> Decode:
    return msgspec.json.Decoder(kind).decode


_any_json: Final[Decode] = msgspec.json.Decoder().decode
