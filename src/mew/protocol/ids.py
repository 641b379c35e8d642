"""The syntax of space, participant and stream ids, and which ids are reserved or easily confused. Pure."""

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
    """Whether a space may be called this (protocol §1)."""
    return _SPACE.fullmatch(name) is not None


def is_participant_id(name: str) -> bool:
    """Whether the characters and the length are those of a participant id (protocol §1)."""
    return _PARTICIPANT.fullmatch(name) is not None


def is_reserved_id(name: str) -> bool:
    """Whether the id belongs to the gateway, in any case: people would take `System:Gateway` for it (protocol §1)."""
    folded = name.casefold()
    return folded in {"gateway", "system"} or folded.startswith("system:")


def looks(name: str) -> str:
    """What an id looks like at a glance: two ids with the same look are easily confused.

    Ids are ASCII, so letters of other scripts need no care.
    """
    look = name.casefold().translate(_LOOKS)
    for pair, letter in _PAIRS:
        look = look.replace(pair, letter)
    return look


def is_desired_id(name: object) -> bool:
    """Whether a stream may be called this at its creator's wish; `stream-<n>` is the gateway's own (protocol §4)."""
    return isinstance(name, str) and _SLUG.fullmatch(name) is not None and _NUMBERED.fullmatch(name) is None


def namespace(space_id: str, stream_id: str) -> str:
    """The canonical name of a stream inside its space (ADR-STR)."""
    return f"{space_id}/{stream_id}"


class IdsIgnoringCase:
    """The ids in use, found whatever their case: `Alice` must not be free while `alice` is somebody."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        """With these ids."""
        self._ids: dict[str, set[str]] = {}
        for each in ids:
            self.add(each)

    def add(self, name: str) -> None:
        """An id is in use."""
        self._ids.setdefault(name.casefold(), set()).add(name)

    def discard(self, name: str) -> None:
        """An id is free again."""
        same = self._ids.get(name.casefold(), set())
        same.discard(name)
        if not same:
            self._ids.pop(name.casefold(), None)

    def other_than(self, name: str) -> str | None:
        """An id in use that differs from this one in case alone."""
        return min(self._ids.get(name.casefold(), set()) - {name}, default=None)
