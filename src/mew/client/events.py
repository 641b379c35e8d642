"""What happens in a space, as values: streams that appear and end, participants that come and go, our own connection.

Pure. An event says what a difference between two views means.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mew.client.errors import Refused
from mew.client.frames import Gap, is_same
from mew.view import ParticipantView, SpaceView

if TYPE_CHECKING:
    from mew.client.streams import Stream


class StreamDiscovered(msgspec.Struct, frozen=True):
    """There is a stream: one that was there before us, or a new one."""

    stream: "Stream"
    """The stream itself."""


class StreamStarted(msgspec.Struct, frozen=True):
    """An announced stream is live."""

    stream: "Stream"
    """The stream itself."""


class StreamEnded(msgspec.Struct, frozen=True):
    """A stream is over."""

    stream_id: str
    """Which."""
    reason: str | None = None
    """Why, where somebody said so."""


class ParticipantJoined(msgspec.Struct, frozen=True):
    """Somebody is present."""

    participant: ParticipantView
    """Who, and what it may send."""


class ParticipantLeft(msgspec.Struct, frozen=True):
    """Somebody is gone."""

    id: str
    """Who."""
    reason: str | None = None
    """Why, where somebody said so."""


class CapabilitiesChanged(msgspec.Struct, frozen=True):
    """Somebody may send other things than before; perhaps you."""

    participant: ParticipantView
    """Who, and what it may send from now on."""


class MessageRefused(msgspec.Struct, frozen=True):
    """The gateway refused something nobody waits for, such as a frame."""

    error: Refused
    """Why."""


class Disconnected(msgspec.Struct, frozen=True):
    """The connection is lost, and another is being made."""

    reason: str
    """What broke it."""


class Reconnected(msgspec.Struct, frozen=True):
    """We are back; this is what was missed."""

    gap: Gap
    """What went by meanwhile."""


Event: TypeAlias = (
    StreamDiscovered
    | StreamStarted
    | StreamEnded
    | ParticipantJoined
    | ParticipantLeft
    | CapabilitiesChanged
    | MessageRefused
    | Disconnected
    | Reconnected
)
"""Any of them: what `Space.events` gives."""


def events_between(
    before: SpaceView, after: SpaceView, reason: str | None, handle: Callable[[str], "Stream"]
) -> Iterator[Event]:
    """What has happened, if it was like that before; `reason` is why somebody left or a stream ended."""
    if before.participants is not after.participants:
        yield from _people(before, after, reason)
    if before.you.capabilities != after.you.capabilities:
        yield CapabilitiesChanged(after.you)
    if before.streams is not after.streams:
        yield from _streams(before, after, reason, handle)


def _people(before: SpaceView, after: SpaceView, reason: str | None) -> Iterator[Event]:
    for name in before.participants:
        if name not in after.participants:
            yield ParticipantLeft(name, reason)
    for name, participant in after.participants.items():
        known = before.participants.get(name)
        if known is None:
            yield ParticipantJoined(participant)
        elif known is not participant and known.capabilities != participant.capabilities:
            yield CapabilitiesChanged(participant)


def _streams(
    before: SpaceView, after: SpaceView, reason: str | None, handle: Callable[[str], "Stream"]
) -> Iterator[Event]:
    for name, stream in before.streams.items():
        if name not in after.streams or not is_same(stream, after.streams[name]):
            yield StreamEnded(name, reason)
    for name, stream in after.streams.items():
        known = before.streams.get(name)
        if known is None or not is_same(known, stream):
            yield StreamDiscovered(handle(name))
        elif known is not stream and known.status != stream.status:
            yield StreamStarted(handle(name))


def reason_in(payload: dict[str, Any]) -> str | None:
    """Why, where an envelope says it."""
    reason = payload.get("reason")
    return reason if isinstance(reason, str) else None
