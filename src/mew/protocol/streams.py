"""A stream: its registry entry, its public form, and how an envelope names it.

Pure values (protocol §4). The handlers of streams and ownership decide who may change a stream. An envelope names a
stream by `payload.stream_id` or `payload.stream.stream_id`. The gateway completes the name before it relays it.
"""

from typing import Any, Final, Literal

import msgspec

from mew.protocol import raw_json
from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.ids import stream_namespace

READY: Final = "ready"
LIVE: Final = "live"
Status = Literal["ready", "live"]

OVERLAID: Final = frozenset({"stream_id", "owner", "authorized_writers", "created", "direction", "encoding", "stream"})
"""Entry fields that the gateway writes itself; `StreamEntry.fields` omits them (protocol §2, Welcome)."""

_UNFORGEABLE: Final = OVERLAID - {"direction", "encoding"}


class StreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One open stream."""

    stream_id: str
    namespace: str
    creator: str
    owner: str
    writers: tuple[str, ...]
    """The owner first, then the others in order of their grants."""
    status: Status
    created: str
    direction: bytes
    encoding: bytes
    fields: dict[str, bytes]
    """All other fields of the request or announce, each as its original JSON text."""

    def value(self, name: str) -> Any:
        """Return the decoded value of a request field, or None if it was not given."""
        text = self.fields.get(name)
        return None if text is None else raw_json.decode_json(text)

    @property
    def targets(self) -> tuple[str, ...] | None:
        """The only participants that receive the stream's data. None means everyone."""
        target = self.value("target")
        return None if target is None else tuple(dict.fromkeys(target))


def new_stream(
    space_id: str, stream_id: str, creator: str, status: Status, created: str, request: raw_json.Fields
) -> StreamEntry:
    """Create the stream that a request or an announce describes."""
    return StreamEntry(
        stream_id=stream_id,
        namespace=stream_namespace(space_id, stream_id),
        creator=creator,
        owner=creator,
        writers=(creator,),
        status=status,
        created=created,
        direction=_text_or(request, "direction", b'"upload"'),
        encoding=_text_or(request, "encoding", b'"utf-8"'),
        fields={name: text for name, text in request.items() if name not in OVERLAID},
    )


def _text_or(request: raw_json.Fields, name: str, default: bytes) -> bytes:
    text = request.get(name, b"null")
    return default if text == b"null" else text


def encode_stream_entry(stream: StreamEntry, *, owner_connected: bool, frames: int) -> bytes:
    """Return the entry of a stream for a welcome and `stream/open`: the request's fields, overlaid by the gateway's."""
    details = raw_json.encode_json(
        {
            "stream_id": stream.stream_id,
            "namespace": stream.namespace,
            "status": stream.status,
            "creator": stream.creator,
            "formats": msgspec.Raw(_text_or(stream.fields, "formats", b"[]")),
            "owner_connected": owner_connected,
            "frames": frames,
        }
    )
    return raw_json.join_json(
        {
            "stream_id": raw_json.encode_json(stream.stream_id),
            "owner": raw_json.encode_json(stream.owner),
            "authorized_writers": raw_json.encode_json(stream.writers),
            "created": raw_json.encode_json(stream.created),
            "direction": stream.direction,
            "encoding": stream.encoding,
            **stream.fields,
            "stream": details,
        }
    )


def stream_ready_payload(stream: StreamEntry, announce: raw_json.Fields) -> bytes:
    """Return the payload of `stream/ready`: all announced fields, and the canonical name (ADR-STR).

    It is sent in the gateway's name. So it omits announced fields that could pass for fields of the gateway.
    """
    canonical = {
        "stream_id": stream.stream_id,
        "namespace": stream.namespace,
        "creator": stream.creator,
        "owner": stream.owner,
        "authorized_writers": stream.writers,
        "status": stream.status,
        "formats": msgspec.Raw(_text_or(stream.fields, "formats", b"[]")),
        "capabilities": {
            "write": [f"stream/write:{stream.stream_id}"],
            "read": [f"stream/read:{stream.stream_id}"],
        },
    }
    echoed = {name: text for name, text in announce.items() if name not in _UNFORGEABLE}
    return raw_json.join_json({**echoed, "stream": raw_json.encode_json(canonical)})


def read_stream_entry(space_id: str, payload: raw_json.Fields) -> StreamEntry:
    """Return the stream described by the payload of a `stream/open`, which is the stream's entry."""
    creator = str(raw_json.decode_json(payload["owner"]))
    stream_id = str(raw_json.decode_json(payload["stream_id"]))
    created = str(raw_json.decode_json(payload["created"]))
    return new_stream(space_id, stream_id, creator, LIVE, created, payload)


def read_stream_ready(space_id: str, payload: raw_json.Fields, created: str) -> StreamEntry:
    """Return the stream described by the payload of a `stream/ready` that was sent at this time."""
    canonical = raw_json.decode_json(payload["stream"])
    return new_stream(space_id, canonical["stream_id"], canonical["creator"], READY, created, payload)


# References in envelopes


def referenced_stream_id(envelope: Envelope) -> str | None:
    """Return the id of the stream that an envelope names, or None. Raises `InvalidEnvelope` if two fields differ."""
    payload = envelope.payload
    nested = payload.get("stream")
    values = [payload.get("stream_id"), nested.get("stream_id") if isinstance(nested, dict) else None]
    stream_ids = [value for value in values if isinstance(value, str)]
    if len(stream_ids) == 2 and stream_ids[0] != stream_ids[1]:
        raise InvalidEnvelope(f"`payload.stream_id` is {stream_ids[0]!r}, `payload.stream.stream_id` {stream_ids[1]!r}")
    return stream_ids[0] if stream_ids else None


def require_stream_id(space_id: str, envelope: Envelope) -> str:
    """Return the stream id that an envelope must name, and check its namespace, if given.

    Raises `InvalidEnvelope` if the id is missing or the namespace is wrong.
    """
    stream_id = referenced_stream_id(envelope)
    if stream_id is None:
        raise InvalidEnvelope(f"{envelope.kind}: `payload.stream_id` is missing or not a string")
    check_stream_namespace(space_id, envelope, stream_id)
    return stream_id


def check_stream_namespace(space_id: str, envelope: Envelope, stream_id: str) -> None:
    """Raise `InvalidEnvelope` if the given namespace is not the namespace of the stream."""
    nested = envelope.payload.get("stream")
    if nested is not None and not isinstance(nested, dict):
        raise InvalidEnvelope(f"{envelope.kind}: `payload.stream` must be an object")
    sent_namespace = None if nested is None else nested.get("namespace")
    if sent_namespace is not None and sent_namespace != stream_namespace(space_id, stream_id):
        raise InvalidEnvelope(
            f"`payload.stream.namespace` is {sent_namespace!r}, not {stream_namespace(space_id, stream_id)!r}"
        )


def complete_reference(space_id: str, envelope: Envelope, stream_id: str) -> Envelope:
    """Return the envelope with the stream's full name in `payload.stream`, and in `context` if the sender set none."""
    name = stream_namespace(space_id, stream_id)
    nested = envelope.payload.get("stream") or {}
    if nested.get("stream_id") != stream_id or nested.get("namespace") != name:
        fields = envelope.payload_fields()
        sent_fields = raw_json.split_json(fields["stream"]) if nested else {}
        whole = {"stream_id": raw_json.encode_json(stream_id), "namespace": raw_json.encode_json(name)}
        fields["stream"] = raw_json.join_json({**sent_fields, **whole})
        envelope = msgspec.structs.replace(
            envelope,
            payload={**envelope.payload, "stream": {**nested, "stream_id": stream_id, "namespace": name}},
            fields={**envelope.fields, "payload": raw_json.join_json(fields)},
        )
    return envelope.with_context(name)
