"""Frames and their formats: decoding and encoding of values, and the gaps in what a reader received.

A type becomes a format descriptor with a JSON Schema. Any type that msgspec describes will do: a `msgspec.Struct`, a
dataclass, a `TypedDict`, a plain `dict[str, int]`. Gaps are counted by the gateway and never guessed. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from mew.client.errors import DoesNotFit
from mew.protocol.envelope import Envelope
from mew.view import SpaceView, StreamView

T = TypeVar("T")
Decode = Callable[[bytes], Any]


class Frame(msgspec.Struct, Generic[T], frozen=True):
    """One piece of a stream's data."""

    stream_id: str
    """Which stream."""
    data: bytes
    """As it was sent; of a `stream/data`, the JSON text of its content."""
    text: bool = True
    """Whether it came as text."""
    sender: str | None = None
    """Who sent it; a raw frame does not say."""
    sequence: int | None = None
    """Its sender's number, of a `stream/data`."""
    format_id: str | None = None
    """The format that a `stream/data` names."""
    decode: Decode | None = None
    """How to read it, where its format says so."""

    def __repr__(self) -> str:
        by = "" if self.sender is None else f" by {self.sender!r}"
        return f"<Frame of {self.stream_id!r}{by}: {self.data[:80]!r}>"

    @property
    def value(self) -> T | None:
        """The data in the form of their format, decoded when asked for; None where no format says how."""
        if self.decode is None:
            return None
        try:
            found: T = self.decode(self.data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DoesNotFit(f"a frame of {self.stream_id!r} is not what its format says: {error}") from error
        return found


def raw_frame(stream_id: str, data: bytes, *, text: bool, decode: Decode | None) -> Frame[Any]:
    """A frame that came without an envelope."""
    return Frame(stream_id, data, text, None, None, None, decode)


def data_frame(stream_id: str, envelope: Envelope, decode: Decode | None) -> Frame[Any]:
    """The frame that a `stream/data` stands for."""
    content, payload = envelope.payload_fields()["content"], envelope.payload
    return Frame(stream_id, content, True, envelope.sender, payload["sequence"], payload.get("format_id"), decode)


Cause = Literal["queue", "gateway", "connection"]
"""Who let them go: our own queue, because they were not read; the gateway's; or the time without a connection."""


class StreamGap(msgspec.Struct, frozen=True):
    """Frames of one stream that are missing at this place."""

    stream_id: str
    """Which stream."""
    frames: int
    """How many are missing."""
    cause: Cause
    """Who dropped them: our `queue`, which was full; the `gateway`, which says so; or a `connection` that broke."""


class Gap(msgspec.Struct, frozen=True):
    """What happened between two connections, as far as the gateway counts it."""

    position_before: int
    """The journal's, at the last welcome before."""
    position_after: int
    """The journal's, at the new welcome."""
    streams: Mapping[str, int]
    """Of each stream there is, the frames that went by meanwhile; those of streams that are new to us included."""
    ended: tuple[str, ...] = ()
    """Streams that are gone; what went by on them is not known."""


def gap_between(before: SpaceView, after: SpaceView) -> Gap:
    """What was missed, from the last thing known to the new welcome."""
    kept = {name for name, stream in after.streams.items() if is_same(before.streams.get(name), stream)}
    missed = {
        name: max(0, stream.frames - (before.streams[name].frames if name in kept else 0))
        for name, stream in after.streams.items()
        if receives(after, stream)
    }
    return Gap(
        position_before=before.position,
        position_after=after.position,
        streams=missed,
        ended=tuple(name for name in before.streams if name not in kept),
    )


def is_same(before: StreamView | None, after: StreamView) -> bool:
    """Whether it is the same stream; without a journal, a restarted gateway gives ids a second time."""
    return before is not None and before.entry["created"] == after.entry["created"]


def receives(view: SpaceView, stream: StreamView) -> bool:
    """Whether the data of a stream reach us: all of them, unless it has targets (protocol §4)."""
    targets = stream.entry.get("target")
    return not isinstance(targets, list) or (view.you.id in targets and not is_observer(view))


def is_observer(view: SpaceView) -> bool:
    """Whether we only look: every participant has some capability, an observer none (protocol §2)."""
    return not view.you.capabilities


JSON: Final = "application/json"


class Format(msgspec.Struct, frozen=True):
    """A type under a name of your choice, where its own will not do."""

    type: Any
    """What its frames are: a type that msgspec can read and write, `bytes` or `str`."""
    id: str
    """What it is called in its stream."""
    description: str | None = None
    """For people."""


def format_id(form: Any) -> str:
    """What a format is called: a type by its own name, unless `Format` says otherwise."""
    if isinstance(form, str):
        return form
    if isinstance(form, Format):
        return form.id
    if isinstance(form, Mapping):
        return str(form["id"])
    return str(getattr(form, "__name__", form))


def descriptor(form: Any) -> dict[str, Any]:
    """What a stream's `formats` say of it; one that is written out already is left alone (protocol §4)."""
    if isinstance(form, Mapping):
        return dict(form)
    if isinstance(form, str):
        return {"id": form}
    found = {"id": format_id(form), "mime_type": JSON, "schema": msgspec.json.schema(_type(form))}
    if isinstance(form, Format) and form.description is not None:
        found["description"] = form.description
    return found


def descriptors(forms: Iterable[Any]) -> list[dict[str, Any]]:
    """Of all formats of a stream."""
    return [descriptor(each) for each in forms]


def decoder(form: Any) -> Decode:
    """How to read data of this format."""
    if isinstance(form, str | Mapping):
        return _any_json
    try:
        return _decoder(_type(form))
    except TypeError:  # a type that cannot be hashed
        return msgspec.json.Decoder(_type(form)).decode


def declared_decoder(stream: StreamView) -> Decode | None:
    """How to read what a stream carries, where it declares one format and that is JSON."""
    formats = stream.formats
    if len(formats) != 1:
        return None
    only = formats[0]
    return _any_json if only.get("mime_type") == JSON or only.get("schema") is not None else None


def _type(form: Any) -> Any:
    return form.type if isinstance(form, Format) else form


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> Decode:
    return msgspec.json.Decoder(kind).decode


_any_json: Final[Decode] = msgspec.json.Decoder().decode
