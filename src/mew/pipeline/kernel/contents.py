"""What rows of a journal carry, and in which format: frames as they are, `stream/data` out of its envelope.

Pure. Decides which format a row is of (protocol §4): the one that a `stream/data` names, the only one there is, else
none, because a raw frame does not say which. On v0.4 streams `format` and `content_type` speak for raw frames.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline.kernel import formats
from mew.pipeline.kernel.catalogue import CatalogFormat, Catalogue, StreamFormats
from mew.pipeline.kernel.judging import BAD_RECORD, UNKNOWN_FORMAT
from mew.protocol.records import FRAME

NO_FORMAT: Final = -1
_UNHEARD_OF: Final = StreamFormats()


class _Payload(msgspec.Struct):
    content: msgspec.Raw
    format_id: Any = None


class _Envelope(msgspec.Struct):
    payload: _Payload


_read_envelope: Final = msgspec.json.Decoder(_Envelope).decode


class Group(msgspec.Struct, frozen=True):
    """Rows that are judged alike."""

    format: CatalogFormat
    data: bool
    """Whether they are `stream/data`."""
    announced: bool = True
    """Whether the stream announced the format by its id."""


@dataclass
class Contents:
    """What the rows of a slice carry."""

    content: pa.Array
    """The bytes of each, without what is around them."""
    data: Any
    """Whether each is `stream/data`."""
    group: Any
    """Each row's place among the groups, or `NO_FORMAT`."""
    groups: list[Group] = field(default_factory=list)
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    """Index, reason and detail of rows that cannot be validated."""


def contents_of(rows: pa.Table, catalogue: Catalogue) -> Contents:
    """What rows carry; they are in one chunk."""
    return _Finding(rows, catalogue).found()


class _Finding:
    """Goes through one slice."""

    def __init__(self, rows: pa.Table, catalogue: Catalogue) -> None:
        self._payload = rows.column("payload").chunk(0)
        streams = rows.column("stream_id").chunk(0).dictionary_encode()
        self._codes = streams.indices.to_numpy(zero_copy_only=False)
        self._streams = [catalogue.streams.get(name, _UNHEARD_OF) for name in streams.dictionary.to_pylist()]
        self._data = pc.not_equal(rows.column("event").chunk(0), FRAME).to_numpy(zero_copy_only=False)
        self._groups: dict[Group, int] = {}
        self._faults: list[tuple[int, str, str]] = []

    def found(self) -> Contents:
        of_frames = np.array([self._number(_of_frames(stream)) for stream in self._streams], np.int32)
        group = of_frames[self._codes] if len(of_frames) else np.empty(0, np.int32)
        content = self._payload
        if self._data.any():
            content, of_data = self._unwrapped(np.flatnonzero(self._data))
            group[self._data] = of_data
        return Contents(content, self._data, group, list(self._groups), self._faults)

    def _number(self, group: Group | None) -> int:
        return NO_FORMAT if group is None else self._groups.setdefault(group, len(self._groups))

    def _unwrapped(self, rows: Any) -> tuple[pa.Array, list[int]]:
        """All contents, those of `stream/data` out of their envelopes, and the groups of these."""
        inner: list[bytes] = []
        groups: list[int] = []
        envelopes: list[bytes] = self._payload.take(pa.array(rows)).to_pylist()
        for row, envelope in zip(rows.tolist(), envelopes, strict=True):
            try:
                payload = _read_envelope(envelope).payload
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
                self._faults.append((row, BAD_RECORD, f"it is no stream/data: {problem}"))
                inner.append(envelope)
                groups.append(NO_FORMAT)
            else:
                inner.append(bytes(payload.content))
                groups.append(self._number(self._of_data(row, payload.format_id)))
        if len(rows) == len(self._payload):
            return pa.array(inner, pa.binary()), groups
        place = np.arange(len(self._payload))
        place[rows] = len(place) + np.arange(len(rows))
        both = pa.concat_arrays([self._payload, pa.array(inner, pa.binary())])
        return both.take(pa.array(place)), groups

    def _of_data(self, row: int, format_id: Any) -> Group | None:
        known = self._streams[self._codes[row]].formats
        if not known:
            return None
        if format_id is None and len(known) == 1:
            return Group(known[0], data=True)
        for each in known:
            if each.format_id == format_id:
                return Group(each, data=True)
        self._faults.append((row, UNKNOWN_FORMAT, f"{format_id!r} is none of {[each.format_id for each in known]}"))
        return None


def _of_frames(stream: StreamFormats) -> Group | None:
    if not stream.formats:
        meant = formats.implied(stream)
        return None if meant is None else Group(meant, data=False, announced=False)
    return Group(stream.formats[0], data=False) if len(stream.formats) == 1 else None
