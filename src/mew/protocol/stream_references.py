"""How an envelope names a stream, and how the gateway completes the name before it relays the envelope.

Pure (protocol §4). A stream is named by `payload.stream_id` or `payload.stream.stream_id`. The gateway adds the
namespace to the payload and to the context.
"""

import msgspec

from mew.protocol import raw_json
from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.ids import namespace
from mew.protocol.state import SpaceState


def reference(envelope: Envelope) -> str | None:
    """Return the id of the stream that an envelope names, or None. Raises `InvalidEnvelope` if two fields differ."""
    payload = envelope.payload
    nested = payload.get("stream")
    given = [payload.get("stream_id"), nested.get("stream_id") if isinstance(nested, dict) else None]
    named = [each for each in given if isinstance(each, str)]
    if len(named) == 2 and named[0] != named[1]:
        raise InvalidEnvelope(f"`payload.stream_id` is {named[0]!r}, `payload.stream.stream_id` {named[1]!r}")
    return named[0] if named else None


def checked_reference(state: SpaceState, envelope: Envelope) -> str:
    """Return the stream id that an envelope must name, and check its namespace, if given.

    Raises `InvalidEnvelope` if the id is missing or the namespace is wrong.
    """
    stream_id = reference(envelope)
    if stream_id is None:
        raise InvalidEnvelope(f"{envelope.kind}: `payload.stream_id` is missing or not a string")
    check_namespace(state, envelope, stream_id)
    return stream_id


def check_namespace(state: SpaceState, envelope: Envelope, stream_id: str) -> None:
    """Raise `InvalidEnvelope` if the given namespace is not the namespace of the stream."""
    nested = envelope.payload.get("stream")
    if nested is not None and not isinstance(nested, dict):
        raise InvalidEnvelope(f"{envelope.kind}: `payload.stream` must be an object")
    given = None if nested is None else nested.get("namespace")
    if given is not None and given != namespace(state.space_id, stream_id):
        raise InvalidEnvelope(f"`payload.stream.namespace` is {given!r}, not {namespace(state.space_id, stream_id)!r}")


def completed(state: SpaceState, envelope: Envelope, stream_id: str) -> Envelope:
    """Return the envelope with the stream's full name in `payload.stream`, and in `context` if the sender set none."""
    name = namespace(state.space_id, stream_id)
    nested = envelope.payload.get("stream") or {}
    if nested.get("stream_id") != stream_id or nested.get("namespace") != name:
        fields = envelope.payload_fields()
        given = raw_json.split(fields["stream"]) if nested else {}
        whole = {"stream_id": raw_json.encode(stream_id), "namespace": raw_json.encode(name)}
        fields["stream"] = raw_json.join({**given, **whole})
        envelope = msgspec.structs.replace(
            envelope,
            payload={**envelope.payload, "stream": {**nested, "stream_id": stream_id, "namespace": name}},
            fields={**envelope.fields, "payload": raw_json.join(fields)},
        )
    return envelope.with_context(name)
