"""Formats of streams: a type becomes a descriptor with its JSON Schema, and data become values of the type again.

Pure. What a type may be is msgspec's to say: a `msgspec.Struct`, a dataclass, a `TypedDict`, a plain `dict[str, int]`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from mew.client.frames import Decode
from mew.view import StreamView

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
