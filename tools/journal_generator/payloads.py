"""Payloads of the generated streams: formats with their schemas, and frames that match a format or violate it.

Payloads depend only on the given random generator. They are generated once and reused, so that a frame costs little.
"""

import struct
from collections.abc import Callable
from itertools import accumulate
from random import Random
from typing import Any, Final

import msgspec

POOL: Final = 4_096
"""Payloads in a pool. In a long journal all of them differ, so that no page of a compressed file contains one twice."""
_MIN_POOL: Final = 256
_RECORDS_PER_PAYLOAD: Final = 16
"""A short journal has one distinct payload per this number of records: generating more would be slow."""
NOT_JSON: Final = "not_json"
SCHEMA: Final = "schema"
NOT_UTF8: Final = "not_utf8"
LENGTH: Final = "length"

MakePayload = Callable[[Random], bytes]
"""Returns the payload of one frame."""
SpoilPayload = Callable[[Random, bytes, int], tuple[bytes, str]]
"""Returns an invalid payload and the reason; the number of invalid payloads so far selects the kind of damage."""


class PayloadType(msgspec.Struct, frozen=True):
    """How to generate the payloads of one kind of stream."""

    make: MakePayload
    spoil: SpoilPayload | None = None
    """None if no payload can be invalid."""
    formats: tuple[dict[str, Any], ...] = ()
    """Descriptors as announced; the first one is the format of the raw frames."""


class PayloadPool:
    """Pregenerated payloads, with the running total of their sizes."""

    def __init__(self, payload_type: PayloadType, rng: Random, pool_size: int = POOL) -> None:
        """Repeat the payloads twice, so that a slice of up to `POOL` can start at any index."""
        self._pool_size = [payload_type.make(rng) for _ in range(pool_size)]
        self.payloads = self._pool_size * (2 * POOL // pool_size)
        self._sizes = list(accumulate(map(len, self.payloads), initial=0))

    def size(self, start: int, count: int) -> int:
        """Return the total size of `count` payloads."""
        return self._sizes[start + count] - self._sizes[start]

    def messages(self, header: bytes) -> list[bytes]:
        """Return the payloads with the header of a stream."""
        return [header + payload for payload in self._pool_size] * (2 * POOL // len(self._pool_size))


def pool_size(records: int) -> int:
    """Return the number of distinct payloads for a journal of this size: a power of two, so that it divides `POOL`."""
    return min(POOL, max(_MIN_POOL, 1 << (records // _RECORDS_PER_PAYLOAD).bit_length()))


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def _number(rng: Random, most: float) -> float:
    return round(rng.uniform(-most, most), 3)


def _entity(rng: Random) -> str:
    return f"rover-{rng.randrange(1, 9)}"


# JSON without a schema, as streams of protocol v0.4 carry it


def _position(rng: Random) -> bytes:
    return _encode(
        {
            "entity": _entity(rng),
            "position": [_number(rng, 500), _number(rng, 500), _number(rng, 20)],
            "rotation": [_number(rng, 1), _number(rng, 1), _number(rng, 1), _number(rng, 1)],
            "battery": rng.randrange(100),
        }
    )


# Movement: one format id, with another schema in each space and each version


def _descriptor(format_id: str, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "required": list(properties), "properties": properties}
    return {"id": format_id, "mime_type": "application/json", "schema": schema}


_TEXT: Final = {"type": "string"}
_REAL: Final = {"type": "number"}
_WHOLE: Final = {"type": "integer"}
_FLAG: Final = {"type": "boolean"}
_PAIR: Final = {"type": "array", "items": _REAL, "minItems": 2, "maxItems": 2}


def _moved(rng: Random) -> bytes:
    place = {"entity": _entity(rng), "x": _number(rng, 900), "y": _number(rng, 900), "heading": _number(rng, 3.14)}
    return _encode({**place, "moving": rng.random() < 0.7, "note": f"leg {rng.randrange(10**6)} of the round"})


def _posed(rng: Random) -> bytes:
    pose = {"x": _number(rng, 900), "y": _number(rng, 900), "theta": _number(rng, 3.14)}
    velocity = [_number(rng, 4), _number(rng, 4)]
    return _encode({"entity": _entity(rng), "pose": pose, "velocity": velocity, "frame": "map", "confidence": 0.9})


def _stepped(rng: Random) -> bytes:
    place = {"x": rng.randrange(10**6), "y": rng.randrange(10**6), "z": rng.randrange(10**4)}
    return _encode({"entity": rng.randrange(10**9), **place, "unit": "mm", "carrier": f"belt-{rng.randrange(40)}"})


def _stepped_back(rng: Random) -> bytes:
    steps = [rng.randrange(1_000) for _ in range(8)]
    return _encode({"entity": rng.randrange(10**9), "steps": steps, "reversed": rng.random() < 0.5, "unit": "mm"})


def _spoil_object(rng: Random, valid: bytes, count: int) -> tuple[bytes, str]:
    """Truncate the payload, make it invalid UTF-8, or violate its schema."""
    way = count % 4
    if way == 0:
        return valid[: -rng.randrange(2, 12)], NOT_JSON
    if way == 1:
        return b"\xff\xfe" + valid, NOT_JSON
    return spoil_content(rng, valid), SCHEMA


def spoil_content(rng: Random, valid: bytes) -> bytes:
    """Violate the schema: remove the first required member or replace its value by an object."""
    value = msgspec.json.decode(valid)
    first = next(iter(value))
    if rng.random() < 0.5:
        del value[first]
    else:
        value[first] = {"was": value[first]}
    return _encode(value)


def _spoil_text(_rng: Random, valid: bytes, _count: int) -> tuple[bytes, str]:
    return valid[:20] + b"\xc3\x28" + valid[20:], NOT_UTF8


def _spoil_vectors(rng: Random, valid: bytes, _count: int) -> tuple[bytes, str]:
    return valid[: -rng.randrange(1, 12)], LENGTH


MOVEMENT: Final = "movement/2d"
_MOVEMENTS: Final[tuple[tuple[PayloadType, ...], ...]] = (
    (
        PayloadType(_moved, _spoil_object, (_descriptor(MOVEMENT, entity=_TEXT, x=_REAL, y=_REAL, moving=_FLAG),)),
        PayloadType(
            _posed, _spoil_object, (_descriptor(MOVEMENT, entity=_TEXT, pose={"type": "object"}, velocity=_PAIR),)
        ),
    ),
    (
        PayloadType(_stepped, _spoil_object, (_descriptor(MOVEMENT, entity=_WHOLE, x=_WHOLE, y=_WHOLE, unit=_TEXT),)),
        PayloadType(_stepped_back, _spoil_object, (_descriptor(MOVEMENT, entity=_WHOLE, steps={"type": "array"}),)),
    ),
)


def movement(space: int, version: int) -> PayloadType:
    """Return the payload type of `movement/2d`, which differs between spaces and between versions in one space."""
    versions = _MOVEMENTS[space % len(_MOVEMENTS)]
    return versions[version % len(versions)]


# Text, numbers, bytes


def _line(rng: Random) -> bytes:
    what = rng.choice(("motor", "lidar", "battery", "planner", "uplink"))
    level = rng.choice(("DEBUG", "INFO", "INFO", "INFO", "WARNING"))
    return (
        f"{level:<7} {what}: cycle {rng.randrange(10**7)} took {rng.uniform(0.2, 90):.2f} ms, "
        f"queue {rng.randrange(64)}, größte Abweichung {rng.uniform(0, 3):.4f}\n"
    ).encode()


def _telemetry(rng: Random) -> bytes:
    values = [_number(rng, 10) for _ in range(9)]
    return _encode({"sensor": f"imu-{rng.randrange(4)}", "values": values, "ok": rng.random() < 0.98})


def _reading(rng: Random) -> bytes:
    return _encode({"sensor": f"probe-{rng.randrange(20)}", "celsius": _number(rng, 80), "humidity": rng.random()})


def _vectors(rng: Random) -> bytes:
    count = 3 * rng.randrange(8, 16)
    return struct.pack(f"<{count}f", *(rng.uniform(-50, 50) for _ in range(count)))


def _sound(rng: Random) -> bytes:
    return rng.randbytes(160)


POSITIONS: Final = PayloadType(_position)
BARE_VECTORS: Final = PayloadType(_vectors)
SOUND: Final = PayloadType(_sound)
VECTORS: Final = PayloadType(
    _vectors,
    _spoil_vectors,
    (
        {
            "id": "binary-vector3",
            "mime_type": "application/octet-stream",
            "description": "x, y and z as little-endian 32-bit floats, one vector behind the other",
        },
    ),
)
CONSOLE: Final = PayloadType(_line, _spoil_text, ({"id": "console/line", "mime_type": "text/plain"},))
TELEMETRY: Final = PayloadType(
    _telemetry,
    None,
    (
        _descriptor("telemetry/json", sensor=_TEXT, values={"type": "array", "items": _REAL}, ok=_FLAG),
        {"id": "telemetry/packed", "mime_type": "application/octet-stream"},
    ),
)
"""Has two formats. A raw frame does not name its format, so no frame is invalid."""
READING: Final = PayloadType(_reading, None, (_descriptor("reading", sensor=_TEXT, celsius=_REAL),))
