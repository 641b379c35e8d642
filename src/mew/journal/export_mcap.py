"""Exports records as an MCAP file: a channel for each stream and writer, with the schemas that the streams announced.

Needs the library `mcap`; no other module imports this one. The tests read the files back with the same library.
Foxglove Studio was not available, and has not been tried.

- Topic `<space>/<stream_id>/<writer>`. A message is a frame's bytes, or the `content` of stream data. `log_time` and
  `publish_time` are the gateway's, `sequence` is the frame's number (its last 32 bits).
- If a format of the stream has a JSON Schema, its encoding is `json` with that schema. A channel has one schema: if a
  writer uses several formats of a stream, each format has a channel under the same topic. A `json` channel contains
  only JSON.
- Without a schema the encoding follows the stream's `content_type` or `format`; else it is `application/octet-stream`.
- Topic `<space>/control`: all other envelopes as they were sent. Topic `<space>/events`: records that are not envelopes
  (joins, gaps, rejections), each as a line of the JSON export.
- A metadata record `mew.journal` contains the space, the positions and the number of records.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any, Final

import msgspec
from mcap.writer import Writer

from mew import __version__
from mew.errors import MewError
from mew.journal.export import JournalExportError, RecordFilter, is_json, record_to_json
from mew.journal.reader import Journal, is_data_record
from mew.protocol import kinds, raw_json
from mew.protocol.records import CHECKPOINT, CONSUMED, ENVELOPE, FRAME, WELCOMED, Record
from mew.protocol.state import restore

_JSON: Final = "json"
BYTES: Final = "application/octet-stream"
JSON_SCHEMA: Final = "jsonschema"
NO_SCHEMA: Final = 0
METADATA: Final = "mew.journal"
MOST_CHANNELS: Final = 2**16 - 1
_KNOWN: Final = {
    "application/json": _JSON,
    "application/cbor": "cbor",
    "application/msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
}
"""Media types with an MCAP name; other media types are used unchanged."""
_ENVELOPES: Final = (ENVELOPE, CONSUMED, WELCOMED)
_OPENINGS: Final = (kinds.STREAM_OPEN, kinds.STREAM_READY)
_SEQUENCES: Final = 2**32
_NANOSECONDS: Final = 1000
"""Nanoseconds in a microsecond."""


def write_mcap(journal: Journal, record_filter: RecordFilter, records: Iterable[Record], file: IO[bytes]) -> int:
    """Write the selected records; return their number.

    `records` are all records from the beginning of the selection. Streams opened earlier are looked up in the journal.
    """
    streams, begin = _Streams(), record_filter.start_position(journal)
    for record in journal.records(last=begin - 1, control=True) if begin else ():
        streams.learn(record)
    export = _Export(journal.folder.space, streams, file)
    for record in records:
        streams.learn(record)
        if record_filter.selects(record):
            export.add(record)
    return export.finish()


class _Format(msgspec.Struct, frozen=True):
    """Format of a stream's data."""

    id: str = ""
    encoding: str = BYTES
    schema: bytes = b""


class _Streams:
    """Data formats of streams, as far as the journal has been read."""

    def __init__(self) -> None:
        self._formats: dict[str, dict[str, _Format]] = {}
        self._usual: dict[str, _Format] = {}

    def learn(self, record: Record) -> None:
        """Store the formats if the record opens a stream, or is a checkpoint with the open streams."""
        if record.event == CHECKPOINT:
            # A checkpoint from another version of the fold cannot be used here.
            with suppress(MewError, msgspec.DecodeError):
                for stream in restore(record.payload).streams.values():
                    self._opened(stream.stream_id, {name: stream.value(name) for name in stream.fields})
        elif record.kind in _OPENINGS and record.event == ENVELOPE and record.participant == kinds.GATEWAY:
            self._opened(
                str(record.stream_id), raw_json.decode_json(record.payload, raw_json.MAX_NESTING_SENT)["payload"]
            )

    def _opened(self, stream_id: str, payload: dict[str, Any]) -> None:
        usual = _encoding(payload.get("content_type") or payload.get("format"))
        formats = [
            _Format(descriptor["id"], *_described(descriptor, usual)) for descriptor in payload.get("formats") or ()
        ]
        self._formats[stream_id] = {descriptor.id: descriptor for descriptor in formats}
        self._usual[stream_id] = formats[0] if len(formats) == 1 else _Format("", usual)

    def format_of(self, stream_id: str, format_id: str | None = None) -> _Format:
        """Return the format with this id. Without an id, return the only format, or the default of the stream."""
        usual = self._usual.get(stream_id, _Format())
        return usual if format_id is None else self._formats.get(stream_id, {}).get(format_id, usual)


def _described(descriptor: dict[str, Any], usual: str) -> tuple[str, bytes]:
    """Return the encoding and the schema of a format descriptor."""
    if isinstance(descriptor.get("schema"), dict):
        return _JSON, raw_json.encode_json(descriptor["schema"])
    return _encoding(descriptor.get("mime_type"), usual), b""


def _encoding(media_type: object, usual: str = BYTES) -> str:
    """Return the MCAP name of a media type; `usual` if there is none."""
    if not isinstance(media_type, str) or not media_type.strip():
        return usual
    name = media_type.partition(";")[0].strip().lower()
    return _JSON if name.endswith("+json") else _KNOWN.get(name, name)


class _Export:
    """One MCAP file that is being written."""

    def __init__(self, space: str, streams: _Streams, file: IO[bytes]) -> None:
        self._space = space
        self._streams = streams
        self._channels: dict[tuple[str, _Format], int] = {}
        self._schemas: dict[_Format, int] = {}
        self._written: list[int] = [0, 0, 0]
        """Number of records, the first position, and the last position."""
        self._writer = Writer(file)
        self._writer.start(library=f"mew {__version__}")

    def add(self, record: Record) -> None:
        """Write one record."""
        if is_data_record(record):
            self._add_data(record)
        elif record.event in _ENVELOPES:
            self._put(record, self._channel(f"{self._space}/control", _ENVELOPE), record.payload, record.position)
        else:
            self._put(
                record, self._channel(f"{self._space}/events", _ENVELOPE), record_to_json(record), record.position
            )

    def _add_data(self, record: Record) -> None:
        stream_id = str(record.stream_id)
        if record.event == FRAME:
            data, format_ = record.payload, self._streams.format_of(stream_id)
            if format_.encoding == _JSON and not is_json(data):
                format_ = _Format()
        else:
            payload = raw_json.split_json(raw_json.split_json(record.payload)["payload"])
            data = payload.get("content", b"null")
            format_ = self._streams.format_of(stream_id, raw_json.decode_json(payload.get("format_id", b"null")))
            if format_.encoding != _JSON:
                format_ = _Format(format_.id, _JSON)
        about = {"stream_id": stream_id, "writer": record.participant, "format_id": format_.id}
        topic = f"{self._space}/{stream_id}/{record.participant}"
        self._put(record, self._channel(topic, format_, about), data, record.frame_number or 0)

    def _put(self, record: Record, channel: int, data: bytes, number: int) -> None:
        at = record.time * _NANOSECONDS
        self._writer.add_message(channel, at, data, at, number % _SEQUENCES)
        count, first, _ = self._written
        self._written = [count + 1, first if count else record.position, record.position]

    def _channel(self, topic: str, format_: _Format, about: dict[str, str] | None = None) -> int:
        channel_id = self._channels.get((topic, format_))
        if channel_id is None:
            if len(self._channels) == MOST_CHANNELS:
                raise JournalExportError(
                    f"an MCAP file has at most {MOST_CHANNELS} channels: export fewer streams at a time"
                )
            metadata = {"space": self._space, **(about or {})}
            channel_id = self._writer.register_channel(topic, format_.encoding, self._schema(format_), metadata)
            self._channels[topic, format_] = channel_id
        return channel_id

    def _schema(self, format_: _Format) -> int:
        if not format_.schema:
            return NO_SCHEMA
        if format_ not in self._schemas:
            self._schemas[format_] = self._writer.register_schema(format_.id, JSON_SCHEMA, format_.schema)
        return self._schemas[format_]

    def finish(self) -> int:
        """Write the metadata and the end of the file; return the number of records."""
        count, first, last = self._written
        metadata = {"space": self._space, "records": str(count)}
        self._writer.add_metadata(METADATA, {**metadata, **({"first": str(first), "last": str(last)} if count else {})})
        self._writer.finish()  # type: ignore[no-untyped-call]
        return count


_ENVELOPE: Final = _Format("", _JSON)
