"""What a hub asks of whoever keeps its journal, and what it says while nothing can be recorded.

A hub without a journal has `NoJournal`.
"""

from contextlib import suppress
from typing import Protocol

import msgspec

from mew.journal.blocks import Frames
from mew.protocol import GATEWAY, Record, Space, jsontext
from mew.protocol.envelope import Stamp, compose
from mew.protocol.errors import JournalUnavailable
from mew.protocol.frames import is_frame
from mew.protocol.kinds import ERROR


class Recorder(Protocol):
    """Takes what happened, in order, and says when others may see it."""

    @property
    def problem(self) -> str | None:
        """Why nothing can be recorded just now."""
        ...

    @property
    def wants_checkpoint(self) -> bool:
        """Whether it is time to put the state on record."""
        ...

    def add(self, record: Record) -> None:
        """Have a record kept."""
        ...

    def add_frames(self, frames: Frames) -> None:
        """Have frames kept that came in a row."""
        ...

    def commit(self) -> bool:
        """Whether the effects of what was added may leave."""
        ...


class NoJournal:
    """Keeps nothing."""

    problem: str | None = None
    wants_checkpoint = False

    def add(self, record: Record) -> None:
        """It is not kept."""

    def add_frames(self, frames: Frames) -> None:
        """They are not kept."""

    def commit(self) -> bool:
        """There is nothing to wait for."""
        return True


class _Named(msgspec.Struct):
    """What of an envelope an answer to it names."""

    id: str


def refusal_to(space: Space, participant: str, message: bytes, problem: str, now: int) -> bytes | None:
    """What to tell the sender of a message that cannot be recorded; of frames, not too often (protocol §4, §6)."""
    cause: tuple[str, ...] = ()
    parts = {}
    if is_frame(message):
        suppressed = space.throttle(participant).admit("", JournalUnavailable.code, now)
        if suppressed is None:
            return None
        parts = {"suppressed": suppressed} if suppressed else {}
    else:
        with suppress(msgspec.MsgspecError):
            cause = (msgspec.json.decode(message, type=_Named).id,)
    payload = jsontext.encode(JournalUnavailable(problem, **parts).payload())
    stamp = Stamp(GATEWAY, space.new_id(), now)
    return compose(ERROR, payload, stamp, to=(participant,), correlation_id=cause)
