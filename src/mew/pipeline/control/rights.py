"""Capabilities as rows, and as the welcomes list them: who had which, from where, granted by whom.

Watches what `SpaceState.capabilities` gives whenever a record may have changed it. Each capability counts once a
participant, by the first source that gives it, as the gateway decides and as welcomes say. A known participant has
some, present or not; a kicked participant has none.
"""

from typing import Any, Final

import msgspec

from mew.pipeline.control.rows import Holding
from mew.protocol import kinds
from mew.protocol.capabilities import CapabilitySet
from mew.protocol.records import Record
from mew.protocol.state import SpaceState
from mew.protocol.welcome import Roster, roster_entry

GRANT: Final = "grant:"
_NAMING: Final = {
    kinds.CAPABILITY_GRANT: "recipient",
    kinds.CAPABILITY_REVOKE: "recipient",
    kinds.INVITE: "participant_id",
    kinds.KICK: "participant_id",
}
"""Kinds that can change the capabilities of a participant, and the field with its id."""
ABOUT_RIGHTS: Final = frozenset(_NAMING)
_fields = msgspec.json.Decoder(dict[str, Any])


class CapabilityTracker:
    """The table `capabilities`, and the roster of those present."""

    def __init__(self, state: SpaceState, holdings: list[Holding]) -> None:
        """Start with the capabilities of the present participants."""
        self._rows: dict[str, dict[tuple[str, str], Holding]] = {}
        for row in holdings:
            self._rows.setdefault(row.participant, {})[row.source, row.capability] = row
        self.over: list[Holding] = []
        self._held: dict[str, CapabilitySet] = {}
        self.roster = Roster()
        self._fill_roster(state)

    def of(self, state: SpaceState, participant: str) -> CapabilitySet:
        """What a participant can do, compiled once."""
        held = self._held.get(participant)
        if held is None:
            held = self._held[participant] = state.capabilities(participant)
        return held

    @property
    def holdings(self) -> list[Holding]:
        """All capabilities of a participant now."""
        return sorted((row for rows in self._rows.values() for row in rows.values()), key=_order)

    def joined(self, state: SpaceState, record: Record) -> None:
        """A participant is present now: an unknown one has capabilities only from now on."""
        participant = record.participant
        if participant in self._rows:
            self.roster.put(participant, roster_entry(participant, self.of(state, participant)))
        else:
            self._look(state, record, participant)

    def left(self, state: SpaceState, record: Record, *, anonymous: bool) -> None:
        """A participant has left; one without a token leaves no rows open."""
        self.roster.drop(record.participant)
        if anonymous:
            self._look(state, record, record.participant)

    def changed(self, state: SpaceState, record: Record, payload: msgspec.Raw) -> None:
        """Something was granted, revoked or configured for the one that this names."""
        self._look(state, record, _fields.decode(payload)[_NAMING[str(record.kind)]])

    def all_changed(self, state: SpaceState, record: Record) -> None:
        """The gateway has started with its configuration, or a checkpoint is a new beginning."""
        for participant in sorted({*self._rows, *state.configured, *state.invited, *state.present}):
            self._look(state, record, participant)
        self.roster.clear()
        self._fill_roster(state)

    def _fill_roster(self, state: SpaceState) -> None:
        for participant in state.present:
            self.roster.put(participant, roster_entry(participant, self.of(state, participant)))

    def _look(self, state: SpaceState, record: Record, participant: str) -> None:
        """Compare what a participant has with its rows."""
        self._held.pop(participant, None)
        if participant in state.present:
            self.roster.put(participant, roster_entry(participant, self.of(state, participant)))
        has_any = state.knows(participant) and participant not in state.kicked
        sourced = self.of(state, participant).sourced if has_any else ()
        now = {(source, capability.text.decode()): None for source, capability in sourced}
        rows = self._rows.setdefault(participant, {})
        for key in sorted(rows.keys() - now.keys()):
            row = rows.pop(key)
            row.to_position, row.to_time = record.position, record.time
            self.over.append(row)
        granters = {f"{GRANT}{grant.grant_id}": grant.granter for grant in state.grants.get(participant, ())}
        for source, text in [each for each in now if each not in rows]:
            rows[source, text] = Holding(
                participant=participant,
                capability=text,
                source=source,
                granted_by=granters.get(source, record.participant if record.kind == kinds.INVITE else None),
                from_position=record.position,
                from_time=record.time,
            )
        if not rows:
            del self._rows[participant]
        if not has_any:
            self._held.pop(participant, None)


def _order(row: Holding) -> tuple[int, str, str, str]:
    return row.from_position, row.participant, row.source, row.capability
