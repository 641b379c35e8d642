"""Presence as rows: from a join, over take-overs, to a leave or to a start without participants.

Watches `SpaceState.present`; the core decides when a participant is present.
"""

from mew.pipeline.control.rows import PresenceRow
from mew.protocol.records import Record
from mew.protocol.state import SpaceState

RESTART = "restart"
"""The reason for a participant that never left."""
CHECKPOINT = "checkpoint"
"""Why a row ends where a checkpoint stands behind a hole."""


class PresenceTracker:
    """The table `participants`."""

    def __init__(self, stays: list[PresenceRow]) -> None:
        """With those who are here."""
        self.here = {stay.participant: stay for stay in stays}
        self.over: list[PresenceRow] = []

    def joined(self, state: SpaceState, record: Record, capabilities: bytes) -> None:
        """A participant has joined, or has replaced its own connection."""
        stay = self.here.get(record.participant)
        if stay is not None:
            stay.takeovers.append(record.position)
            return
        presence = state.present[record.participant]
        self.here[record.participant] = PresenceRow(
            participant=record.participant,
            transport=presence.transport,
            anonymous=presence.anonymous,
            joined_position=record.position,
            joined_time=record.time,
            capabilities=capabilities.decode(),
        )

    def left(self, participant: str, record: Record, reason: str | None) -> None:
        """A participant has left."""
        stay = self.here.pop(participant, None)
        if stay is not None:
            stay.left_position, stay.left_time, stay.reason = record.position, record.time, reason
            self.over.append(stay)

    def all_left(self, record: Record) -> None:
        """The gateway has started: no participant is present."""
        for participant in list(self.here):
            self.left(participant, record, RESTART)
