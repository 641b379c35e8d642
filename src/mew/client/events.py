"""Events of a space: streams start and end, participants join and leave, the connection breaks and returns.

No I/O. Events are computed from the difference between two views.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mew.client.errors import ProtocolError
from mew.client.frames import Gap, is_same
from mew.view import ParticipantView, SpaceView

if TYPE_CHECKING:
    from mew.client.streams import Stream


class StreamDiscovered(msgspec.Struct, frozen=True):
    """A stream exists: it was there at the start of the subscription, or it is new."""

    stream: "Stream"
    """A handle for the stream."""


class StreamStarted(msgspec.Struct, frozen=True):
    """An announced stream is now live."""

    stream: "Stream"
    """A handle for the stream."""


class StreamEnded(msgspec.Struct, frozen=True):
    """A stream has ended."""

    stream_id: str
    """The id of the stream."""
    reason: str | None = None
    """The reason, if one was given."""


class ParticipantJoined(msgspec.Struct, frozen=True):
    """A participant has joined."""

    participant: ParticipantView
    """The participant and its capabilities."""


class ParticipantLeft(msgspec.Struct, frozen=True):
    """A participant has left."""

    id: str
    """The id of the participant."""
    reason: str | None = None
    """The reason, if one was given."""


class CapabilitiesChanged(msgspec.Struct, frozen=True):
    """The capabilities of a participant have changed; it may be this participant."""

    participant: ParticipantView
    """The participant and its new capabilities."""


class MessageRefused(msgspec.Struct, frozen=True):
    """The gateway rejected a message for which no call waits, such as a frame."""

    error: ProtocolError
    """The error that the gateway returned."""


class Disconnected(msgspec.Struct, frozen=True):
    """The connection is lost, and the client is reconnecting."""

    reason: str
    """Why the connection was lost."""


class Reconnected(msgspec.Struct, frozen=True):
    """The client has reconnected."""

    gap: Gap
    """What the client missed while disconnected."""


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
"""Any event that `Space.events` returns."""


def events_between(
    before: SpaceView, after: SpaceView, reason: str | None, handle: Callable[[str], "Stream"]
) -> Iterator[Event]:
    """Yield the events between two views. `reason` is the reason for participants that left and streams that ended."""
    if before.participants is not after.participants:
        yield from _participant_events(before, after, reason)
    if before.you.capabilities != after.you.capabilities:
        yield CapabilitiesChanged(after.you)
    if before.streams is not after.streams:
        yield from _stream_events(before, after, reason, handle)


def _participant_events(before: SpaceView, after: SpaceView, reason: str | None) -> Iterator[Event]:
    for name in before.participants:
        if name not in after.participants:
            yield ParticipantLeft(name, reason)
    for name, participant in after.participants.items():
        previous = before.participants.get(name)
        if previous is None:
            yield ParticipantJoined(participant)
        elif previous is not participant and previous.capabilities != participant.capabilities:
            yield CapabilitiesChanged(participant)


def _stream_events(
    before: SpaceView, after: SpaceView, reason: str | None, handle: Callable[[str], "Stream"]
) -> Iterator[Event]:
    for name, stream in before.streams.items():
        if name not in after.streams or not is_same(stream, after.streams[name]):
            yield StreamEnded(name, reason)
    for name, stream in after.streams.items():
        previous = before.streams.get(name)
        if previous is None or not is_same(previous, stream):
            yield StreamDiscovered(handle(name))
        elif previous is not stream and previous.status != stream.status:
            yield StreamStarted(handle(name))


def reason_in(payload: dict[str, Any]) -> str | None:
    """Return the reason in a payload, if it has one."""
    reason = payload.get("reason")
    return reason if isinstance(reason, str) else None
