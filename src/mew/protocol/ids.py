"""Syntax of space, participant and stream ids, and checks for reserved or easily confused ids. Pure."""

import re
from collections.abc import Iterable

_SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_PARTICIPANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}")
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_NUMBERED = re.compile(r"stream-[0-9]+")
_LOOKS = str.maketrans("01i5_.", "olls--")
_PAIRS = (("rn", "m"), ("vv", "w"))
SLUG_LENGTH = 64


def is_space_id(name: str) -> bool:
    """Return whether this is a valid space id (protocol §1)."""
    return _SPACE.fullmatch(name) is not None


def is_participant_id(name: str) -> bool:
    """Return whether characters and length are valid for a participant id (protocol §1)."""
    return _PARTICIPANT.fullmatch(name) is not None


def is_reserved_id(name: str) -> bool:
    """Return whether the id is reserved for the gateway (protocol §1).

    Case is ignored, because users would mistake `System:Gateway` for the gateway.
    """
    folded = name.casefold()
    return folded in {"gateway", "system"} or folded.startswith("system:")


def confusable_form(name: str) -> str:
    """Return a normalized form of an id. Two ids with the same form are easily confused.

    Ids are ASCII, so letters of other scripts need no handling.
    """
    look = name.casefold().translate(_LOOKS)
    for pair, letter in _PAIRS:
        look = look.replace(pair, letter)
    return look


def is_desired_id(name: object) -> bool:
    """Return whether a creator may choose this stream id. `stream-<n>` is reserved for the gateway (protocol §4)."""
    return isinstance(name, str) and _SLUG.fullmatch(name) is not None and _NUMBERED.fullmatch(name) is None


def stream_namespace(space_id: str, stream_id: str) -> str:
    """Return the canonical name of a stream: space id and stream id (ADR-STR)."""
    return f"{space_id}/{stream_id}"


class IdsIgnoringCase:
    """The ids in use, with case-insensitive search: `Alice` must not be available while `alice` is in use."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        """Start with these ids in use."""
        self._ids: dict[str, set[str]] = {}
        for name in ids:
            self.add(name)

    def add(self, name: str) -> None:
        """Mark an id as in use."""
        self._ids.setdefault(name.casefold(), set()).add(name)

    def discard(self, name: str) -> None:
        """Mark an id as available again."""
        same = self._ids.get(name.casefold(), set())
        same.discard(name)
        if not same:
            self._ids.pop(name.casefold(), None)

    def other_than(self, name: str) -> str | None:
        """Return an id in use that differs from this one only in case, or None."""
        return min(self._ids.get(name.casefold(), set()) - {name}, default=None)
