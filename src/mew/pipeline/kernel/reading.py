"""JSON of frames: what counts as a JSON text, wherever and however deep in a program that is asked.

Pure. A text is JSON if it is UTF-8, well-formed, nested in at most 128 levels as envelopes are, and has no integer that
is too long to be read. A number beyond every float is JSON, and infinite.
"""

from typing import Any, Final

import msgspec

from mew.protocol.raw_json import MAX_NESTING, NotJSON

LONGEST: Final = 4_096
"""Bytes of a text in which no integer can be too long."""
SHALLOW: Final = 2 * MAX_NESTING
"""Bytes of a text that cannot be nested too deeply."""


class Literally(str):
    """A number with a point or an exponent, as it was written."""

    __slots__ = ()


_plain: Final = msgspec.json.Decoder()
_patient: Final = msgspec.json.Decoder(float_hook=float)
_literal: Final = msgspec.json.Decoder(float_hook=Literally)


def read_json(text: bytes) -> Any:
    """The value of a JSON text, else `NotJSON`."""
    try:
        value = _decoded(text)
    except RecursionError:
        raise NotJSON("nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise NotJSON(str(problem)) from None
    if text.count(b"{") + text.count(b"[") > MAX_NESTING and is_deep(value):
        raise NotJSON(f"nested deeper than {MAX_NESTING} levels")
    return value


def _decoded(text: bytes) -> Any:
    try:
        return _plain.decode(text)
    except msgspec.ValidationError:
        return _patient.decode(text)


def read_literally(text: bytes) -> Any:
    """The value of a text that is JSON, each number that is no integer as it was written."""
    return _literal.decode(text)


def is_deep(value: Any) -> bool:
    """Whether objects and arrays are in more levels than a message may have; without recursion, which it guards."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return True
