"""Envelopes, the format of every message except frames: parsing, checks, stamping and encoding.

Pure. This module knows the format of an envelope, not who may send it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.timestamps import is_rfc3339, rfc3339

ID_LENGTH: Final = 256
MAX_LIST_LENGTHS: Final = {"to": 10_000, "correlation_id": 1_024}
"""Most elements of each list in an incoming message. Recorded messages may have more."""
PAYLOAD_FIELDS: Final = 1_024
"""Most fields of a payload that the gateway splits into fields and rebuilds."""
_NULL: Final = b"null"
_STAMPED: Final = frozenset({"protocol", "id", "ts", "from"})
_PROTOCOL: Final = raw_json.encode_json(kinds.PROTOCOL)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One message of one sender: the fields that the gateway reads, and the JSON text of all fields in their order."""

    id: str
    ts: str
    sender: str
    kind: str
    to: tuple[str, ...] = ()
    correlation_id: tuple[str, ...] = ()
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    fields: dict[str, bytes]

    def encode(self) -> bytes:
        """Return the envelope as compact JSON, as it is sent out."""
        return raw_json.join_json(self.fields)

    def with_payload(self, fields: dict[str, bytes]) -> "Envelope":
        """Return a copy of the envelope with these payload fields."""
        text = raw_json.join_json(fields)
        return msgspec.structs.replace(
            self, payload=raw_json.decode_json(text), fields={**self.fields, "payload": text}
        )

    def with_context(self, context: str) -> "Envelope":
        """Return a copy of the envelope with this context, unless its sender gave one."""
        if self.fields.get("context", _NULL) != _NULL:
            return self
        return msgspec.structs.replace(self, fields={**self.fields, "context": raw_json.encode_json(context)})

    def payload_fields(self) -> dict[str, bytes]:
        """Return the JSON text of each payload field. Raises `InvalidEnvelope` if there are too many."""
        if len(self.payload) > PAYLOAD_FIELDS:
            raise InvalidEnvelope(f"the payload of {self.kind!r} may have {PAYLOAD_FIELDS} fields")
        return raw_json.split_json(self.fields["payload"]) if "payload" in self.fields else {}


def read_object(
    message: bytes,
    max_nesting: int = raw_json.MAX_NESTING,
    most_fields: int | None = None,
    containers: int | None = None,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the values and the JSON texts of a message's fields. `containers` is as for `raw_json.decode`.

    Raises `InvalidEnvelope` if the message is not a valid JSON object.
    """
    try:
        values = raw_json.decode_json(message, max_nesting, containers)
    except raw_json.NotJSON as error:
        raise InvalidEnvelope(f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InvalidEnvelope("a message is a JSON object, or a frame that begins with '#'")
    if most_fields is not None and len(values) > most_fields:
        raise InvalidEnvelope(f"a message may have {most_fields} fields; this one has {len(values)}")
    return values, raw_json.split_json(message)


class Stamp(msgspec.Struct, frozen=True):
    """Values that the gateway adds to an envelope that lacks them (protocol §1)."""

    sender: str
    new_id: str
    now: int


def stamp_envelope(values: dict[str, Any], fields: dict[str, bytes], stamp: Stamp) -> Envelope:
    """Return the stamped envelope of a participant's message.

    Raises `InvalidEnvelope`, which names the field (protocol §1).
    """
    kind = _text(values, "kind")
    if kind is None:
        raise InvalidEnvelope("`kind` is missing")
    protocol = values.get("protocol")
    if protocol is not None and (not isinstance(protocol, str) or protocol not in kinds.PROTOCOLS):
        raise InvalidEnvelope(f"`protocol` must be {kinds.PROTOCOL!r}")
    envelope_id = ("id" in values and _text(values, "id")) or stamp.new_id
    to = _texts(values, "to") if "to" in values else ()
    correlation_id = _texts(values, "correlation_id") if "correlation_id" in values else ()
    payload = values.get("payload", {})
    if not isinstance(payload, dict):
        raise InvalidEnvelope("`payload` must be an object")
    ts = values["ts"] if "ts" in values and is_rfc3339(values["ts"]) else rfc3339(stamp.now)
    return Envelope(
        id=envelope_id,
        ts=ts,
        sender=stamp.sender,
        kind=kind,
        to=to,
        correlation_id=correlation_id,
        payload=payload,
        fields=_stamped(values, fields, envelope_id, ts, stamp.sender),
    )


def check_lists(values: Mapping[str, Any]) -> None:
    """Raise `InvalidEnvelope` if a message has too many recipients or correlation ids."""
    for name, most in MAX_LIST_LENGTHS.items():
        value = values.get(name)
        if isinstance(value, list) and len(value) > most:
            raise InvalidEnvelope(f"`{name}` may have {most} elements; this one has {len(value)}")


def given_id(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the valid id of a message, if any, as the `correlation_id` of an answer to it."""
    value = values.get("id")
    return (value,) if isinstance(value, str) and 0 < len(value) <= ID_LENGTH else ()


def check_content(envelope: Envelope) -> None:
    """Check the payload fields that the gateway requires of a chat and an `mcp/request` (protocol §1).

    The check does not depend on the handler of the kind. Raises `InvalidEnvelope`.
    """
    if envelope.kind == kinds.CHAT:
        text = envelope.payload.get("text")
        if not isinstance(text, str) or not text:
            raise InvalidEnvelope("`payload.text` of a chat must be a non-empty string")
    elif envelope.kind == kinds.MCP_REQUEST:
        method = envelope.payload.get("method")
        if not isinstance(method, str) or not method:
            raise InvalidEnvelope("`payload.method` of an mcp/request must be a non-empty string")


def _stamped(
    values: dict[str, Any], fields: dict[str, bytes], envelope_id: str, ts: str, sender: str
) -> dict[str, bytes]:
    """Return the fields with missing stamps added at the front and wrong values replaced in place."""
    if isinstance(values.get("correlation_id"), str):
        fields["correlation_id"] = b"[" + fields["correlation_id"] + b"]"
    if _STAMPED.isdisjoint(fields):
        all_stamps = {"protocol": _PROTOCOL, "id": raw_json.encode_json(envelope_id), "ts": raw_json.encode_json(ts)}
        return {**all_stamps, "from": raw_json.encode_json(sender), **fields}
    stamps: dict[str, bytes] = {}
    if values.get("protocol") is None:
        stamps["protocol"] = _PROTOCOL
    if values.get("id") != envelope_id:
        stamps["id"] = raw_json.encode_json(envelope_id)
    if values.get("ts") != ts:
        stamps["ts"] = raw_json.encode_json(ts)
    if values.get("from") != sender:
        stamps["from"] = raw_json.encode_json(sender)
    if not stamps:
        return fields
    missing = {key: text for key, text in stamps.items() if key not in fields}
    return {**missing, **fields, **stamps}


def _text(values: dict[str, Any], name: str) -> str | None:
    """Return a string field, or None if it is not given; null and "" count as not given."""
    value = values.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > ID_LENGTH:
        raise InvalidEnvelope(f"`{name}` must be a string of at most {ID_LENGTH} characters")
    return value


def _texts(values: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return a field that is an array of strings, if given. `correlation_id` may be one string (protocol §1)."""
    value = values.get(name)
    if value is None:
        return ()
    if isinstance(value, str) and name == "correlation_id":
        return (value,)
    if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
        raise InvalidEnvelope(f"`{name}` must be an array of strings")
    return tuple(value)


def compose(kind: str, payload: bytes, stamp: Stamp, **optional: Any) -> bytes:
    """Return the JSON of an envelope from the gateway itself; `optional` are `to`, `correlation_id` and `context`."""
    fields = {
        "protocol": _PROTOCOL,
        "id": raw_json.encode_json(stamp.new_id),
        "ts": raw_json.encode_json(rfc3339(stamp.now)),
        "from": raw_json.encode_json(stamp.sender),
    }
    if optional.get("to"):
        fields["to"] = raw_json.encode_json(optional["to"])
    fields["kind"] = raw_json.encode_json(kind)
    for name in ("correlation_id", "context"):
        if optional.get(name):
            fields[name] = raw_json.encode_json(optional[name])
    fields["payload"] = payload
    return raw_json.join_json(fields)


def parse(message: bytes) -> Envelope:
    """Parse an envelope that a gateway sent or recorded."""
    values, fields = read_object(message, raw_json.MAX_NESTING_SENT)
    return stamp_envelope(values, fields, Stamp(sender=str(values.get("from", "")), new_id="", now=0))
