"""A frame as a reader gets it, raw or from a `stream/data`, and what it says in the words of its format.

Values only.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from mew.client.errors import DoesNotFit
from mew.protocol.envelope import Envelope

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
