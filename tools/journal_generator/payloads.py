"""What streams carry in a generated journal: formats with their schemas, and frames that fit them or do not.

Pure but for the chance it is given. What is made is made once and used many times: a frame must cost nothing.
"""

import struct
from collections.abc import Callable
from itertools import accumulate
from random import Random
from typing import Any, Final

import msgspec

POOL: Final = 4_096
"""Ready-made frames of one sort. In a long story all differ: too many for a compressor's page to hold one twice."""
_FEWEST: Final = 256
_SHORT: Final = 16
"""As many records as there are for each ready-made frame of a sort, at least: making more would take the time."""
NOT_JSON: Final = "not_json"
SCHEMA: Final = "schema"
NOT_UTF8: Final = "not_utf8"
LENGTH: Final = "length"

Make = Callable[[Random], bytes]
"""The bytes of one frame."""
Spoil = Callable[[Random, bytes, int], tuple[bytes, str]]
"""A frame of which something is wrong, and what; the number of such frames before decides which of the ways."""


class Matter(msgspec.Struct, frozen=True):
    """What one format's frames are made of."""

    make: Make
    spoil: Spoil | None = None
    """None where nothing can be wrong."""
    formats: tuple[dict[str, Any], ...] = ()
    """As announced, the one of the raw frames first."""


class Pool:
    """Ready-made frames without their headers, and their lengths added up."""

    def __init__(self, matter: Matter, rng: Random, different: int = POOL) -> None:
        """They come twice, so that any slice of up to `POOL` can be taken from any place."""
        self._different = [matter.make(rng) for _ in range(different)]
        self.payloads = self._different * (2 * POOL // different)
        self._sizes = list(accumulate(map(len, self.payloads), initial=0))

    def size(self, start: int, count: int) -> int:
        """How many bytes so many frames have."""
        return self._sizes[start + count] - self._sizes[start]

    def messages(self, header: bytes) -> list[bytes]:
        """The frames as one stream's writers send them."""
        return [header + payload for payload in self._different] * (2 * POOL // len(self._different))


def different(records: int) -> int:
    """How many frames of one sort a story of so many records needs: a power of two, so that they fill a pool."""
    return min(POOL, max(_FEWEST, 1 << (records // _SHORT).bit_length()))


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def _number(rng: Random, most: float) -> float:
    return round(rng.uniform(-most, most), 3)


def _entity(rng: Random) -> str:
    return f"rover-{rng.randrange(1, 9)}"


# Free JSON, as v0.4 streams have it


def _position(rng: Random) -> bytes:
    return _encode(
        {
            "entity": _entity(rng),
            "position": [_number(rng, 500), _number(rng, 500), _number(rng, 20)],
            "rotation": [_number(rng, 1), _number(rng, 1), _number(rng, 1), _number(rng, 1)],
            "battery": rng.randrange(100),
        }
    )


# Movement: one id, and in each space and each version another schema


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


def _spoil_object(rng: Random, good: bytes, before: int) -> tuple[bytes, str]:
    """Cut off, no text at all, or without what is required or with something else in its place."""
    way = before % 4
    if way == 0:
        return good[: -rng.randrange(2, 12)], NOT_JSON
    if way == 1:
        return b"\xff\xfe" + good, NOT_JSON
    return spoil_content(rng, good), SCHEMA


def spoil_content(rng: Random, good: bytes) -> bytes:
    """JSON that does not fit: the first required member is gone, or is something else."""
    value = msgspec.json.decode(good)
    first = next(iter(value))
    if rng.random() < 0.5:
        del value[first]
    else:
        value[first] = {"was": value[first]}
    return _encode(value)


def _spoil_text(_rng: Random, good: bytes, _before: int) -> tuple[bytes, str]:
    return good[:20] + b"\xc3\x28" + good[20:], NOT_UTF8


def _spoil_vectors(rng: Random, good: bytes, _before: int) -> tuple[bytes, str]:
    return good[: -rng.randrange(1, 12)], LENGTH


MOVEMENT: Final = "movement/2d"
_MOVEMENTS: Final[tuple[tuple[Matter, ...], ...]] = (
    (
        Matter(_moved, _spoil_object, (_descriptor(MOVEMENT, entity=_TEXT, x=_REAL, y=_REAL, moving=_FLAG),)),
        Matter(_posed, _spoil_object, (_descriptor(MOVEMENT, entity=_TEXT, pose={"type": "object"}, velocity=_PAIR),)),
    ),
    (
        Matter(_stepped, _spoil_object, (_descriptor(MOVEMENT, entity=_WHOLE, x=_WHOLE, y=_WHOLE, unit=_TEXT),)),
        Matter(_stepped_back, _spoil_object, (_descriptor(MOVEMENT, entity=_WHOLE, steps={"type": "array"}),)),
    ),
)


def movement(space: int, version: int) -> Matter:
    """What `movement/2d` means in this space by now: never what it means next door, nor what it meant before."""
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


POSITIONS: Final = Matter(_position)
BARE_VECTORS: Final = Matter(_vectors)
SOUND: Final = Matter(_sound)
VECTORS: Final = Matter(
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
CONSOLE: Final = Matter(_line, _spoil_text, ({"id": "console/line", "mime_type": "text/plain"},))
TELEMETRY: Final = Matter(
    _telemetry,
    None,
    (
        _descriptor("telemetry/json", sensor=_TEXT, values={"type": "array", "items": _REAL}, ok=_FLAG),
        {"id": "telemetry/packed", "mime_type": "application/octet-stream"},
    ),
)
"""Of several formats: a raw frame does not say which it is of, so none is wrong."""
READING: Final = Matter(_reading, None, (_descriptor("reading", sensor=_TEXT, celsius=_REAL),))
