"""What may be called what: ids of spaces, participants and streams.

Pure predicates; they neither allocate nor remember.
"""

import re

_SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_PARTICIPANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}")
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_NUMBERED = re.compile(r"stream-[0-9]+")
SLUG_LENGTH = 64


def is_space_id(name: str) -> bool:
    """Whether a space may be called this (protocol §1)."""
    return _SPACE.fullmatch(name) is not None


def is_participant_id(name: str) -> bool:
    """Whether the characters and the length are those of a participant id (protocol §1)."""
    return _PARTICIPANT.fullmatch(name) is not None


def is_reserved_id(name: str) -> bool:
    """Whether the id belongs to the gateway (protocol §1)."""
    return name in {"gateway", "system"} or name.startswith("system:")


def is_desired_id(name: object) -> bool:
    """Whether a stream may be called this at its creator's wish; `stream-<n>` is the gateway's own (protocol §4)."""
    return isinstance(name, str) and _SLUG.fullmatch(name) is not None and _NUMBERED.fullmatch(name) is None


def namespace(space_id: str, stream_id: str) -> str:
    """The canonical name of a stream inside its space (ADR-STR)."""
    return f"{space_id}/{stream_id}"
