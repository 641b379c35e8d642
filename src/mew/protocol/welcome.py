"""The welcome: all that a joiner has to know of a space, as its state says it.

Pure functions of the state, so that any welcome ever sent can be made again from the journal.
"""

from collections.abc import Iterable

from mew.protocol import kinds, raw_json
from mew.protocol.capabilities import CapabilitySet
from mew.protocol.state import SpaceState
from mew.protocol.streams import Stream, entry


def roster_entry(participant: str, capabilities: CapabilitySet) -> bytes:
    """`{id, capabilities}` of one participant."""
    return raw_json.join({"id": raw_json.encode(participant), "capabilities": capabilities.text})


def stream_entry(state: SpaceState, stream: Stream) -> bytes:
    """One entry of `active_streams`."""
    return entry(stream, owner_connected=stream.owner in state.present, frames=state.frames[stream.stream_id])


class Roster:
    """An entry for each participant present, in order of joining, and the text of all of them.

    Where two thousand join at once each is told of all before it: the text grows with them instead of being made anew.
    """

    def __init__(self, entries: Iterable[tuple[str, bytes]] = ()) -> None:
        """With these entries."""
        self.entries = dict(entries)
        self._text: bytes | None = None
        self._before: tuple[str, bytes] | None = None
        """Who came last, and the text before that: what that one is to be told."""

    def put(self, participant: str, entry: bytes) -> None:
        """Somebody has come, or is described differently."""
        known = self.entries.get(participant)
        if known == entry:
            return
        text = self.text() if known is None else b""
        self.entries[participant] = entry
        self._text, self._before = None, None
        if text:
            self._text, self._before = b",".join((text, entry)), (participant, text)

    def drop(self, participant: str) -> None:
        """Somebody is gone."""
        self.entries.pop(participant, None)
        self._text = self._before = None

    def clear(self) -> None:
        """Nobody is here."""
        self.entries.clear()
        self._text = self._before = None

    def text(self) -> bytes:
        """All entries, with commas between them."""
        if self._text is None:
            self._text = b",".join(self.entries.values())
        return self._text

    def text_without(self, participant: str) -> bytes:
        """All entries but one."""
        if self._before is not None and self._before[0] == participant:
            return self._before[1]
        return b",".join([entry for name, entry in self.entries.items() if name != participant])


def roster(state: SpaceState) -> Roster:
    """The roster that a state stands for."""
    return Roster((name, roster_entry(name, state.capabilities(name))) for name in state.present)


def welcome_payload(state: SpaceState, you: str, capabilities: CapabilitySet, others: Roster) -> bytes:
    """The payload of `system/welcome` (protocol §2); `others` is the roster."""
    may_fulfil = any(capability.kind.matches(kinds.MCP_REQUEST) for _, capability in capabilities.sourced)
    proposals = open_proposals(state) if may_fulfil else None
    return _payload(state, you, _own_capabilities(state, you, capabilities), others.text_without(you), proposals)


def observer_payload(state: SpaceState, observer: str, others: Roster) -> bytes:
    """The payload of an observer's welcome: it has nothing and leaves out nobody, whatever it is called."""
    return _payload(state, observer, b"[]", others.text())


def open_proposals(state: SpaceState) -> bytes:
    """`open_proposals`: every open proposal without its payload, in order of opening."""
    return raw_json.encode([each.entry() for each in state.proposals.values()])


def _payload(state: SpaceState, you: str, own: bytes, others: bytes, proposals: bytes | None = None) -> bytes:
    listed = {} if proposals is None else {"open_proposals": proposals}
    return raw_json.join(
        {
            "you": raw_json.join({"id": raw_json.encode(you), "capabilities": own}),
            "participants": b"".join((b"[", others, b"]")),
            "active_streams": raw_json.array(stream_entry(state, each) for each in state.streams.values()),
            **listed,
            "position": raw_json.encode(state.position),
        }
    )


def welcome_at(state: SpaceState, participant: str) -> bytes:
    """The payload of the welcome that this participant would get in this state."""
    return welcome_payload(state, participant, state.capabilities(participant), roster(state))


def observer_welcome_at(state: SpaceState, observer: str) -> bytes:
    """The payload of the welcome that an observer would get in this state."""
    return observer_payload(state, observer, roster(state))


def _own_capabilities(state: SpaceState, you: str, capabilities: CapabilitySet) -> bytes:
    """The effective capabilities, and a mirror of the writers' lists that name you (protocol §4)."""
    writable = [
        raw_json.encode({"kind": f"stream/write:{stream.stream_id}"})
        for stream in state.streams.values()
        if you in stream.writers
    ]
    held = [capability.text for _, capability in capabilities.sourced]
    return raw_json.array([*held, *writable])
