"""The welcome: everything that a joining participant needs to know about a space.

Pure functions of the state, so any welcome that was ever sent can be rebuilt from the journal.
"""

from collections.abc import Iterable

from mew.protocol import kinds, raw_json
from mew.protocol.capabilities import CapabilitySet
from mew.protocol.state import SpaceState
from mew.protocol.streams import StreamEntry, encode_stream_entry


def roster_entry(participant: str, capabilities: CapabilitySet) -> bytes:
    """Return `{id, capabilities}` of one participant as JSON."""
    return raw_json.join_json({"id": raw_json.encode_json(participant), "capabilities": capabilities.text})


def stream_entry(state: SpaceState, stream: StreamEntry) -> bytes:
    """Return one entry of `active_streams` as JSON."""
    return encode_stream_entry(
        stream, owner_connected=stream.owner in state.present, frames=state.frames[stream.stream_id]
    )


class Roster:
    """Entries of all present participants in order of joining, and their joined JSON text.

    When 2,000 participants join concurrently, each receives all earlier entries. So a join extends the text instead of
    rebuilding it.
    """

    def __init__(self, entries: Iterable[tuple[str, bytes]] = ()) -> None:
        """Start with these entries."""
        self.entries = dict(entries)
        self._text: bytes | None = None
        self._before: tuple[str, bytes] | None = None
        """The participant that joined last, and the text before it joined. That text goes into its welcome."""

    def put(self, participant: str, entry: bytes) -> None:
        """Add a participant, or replace its entry."""
        current = self.entries.get(participant)
        if current == entry:
            return
        text = self.text() if current is None else b""
        self.entries[participant] = entry
        self._text, self._before = None, None
        if text:
            self._text, self._before = b",".join((text, entry)), (participant, text)

    def drop(self, participant: str) -> None:
        """Remove a participant."""
        self.entries.pop(participant, None)
        self._text = self._before = None

    def clear(self) -> None:
        """Remove all participants."""
        self.entries.clear()
        self._text = self._before = None

    def text(self) -> bytes:
        """Return all entries as text, separated by commas."""
        if self._text is None:
            self._text = b",".join(self.entries.values())
        return self._text

    def text_without(self, participant: str) -> bytes:
        """Return the text of all entries except the one of this participant."""
        if self._before is not None and self._before[0] == participant:
            return self._before[1]
        return b",".join([entry for name, entry in self.entries.items() if name != participant])


def roster(state: SpaceState) -> Roster:
    """Build the roster of a state."""
    return Roster((name, roster_entry(name, state.capabilities(name))) for name in state.present)


def welcome_payload(state: SpaceState, you: str, capabilities: CapabilitySet, others: Roster) -> bytes:
    """Return the payload of `system/welcome` (protocol §2); `others` is the roster."""
    may_fulfil = any(capability.kind.matches(kinds.MCP_REQUEST) for _, capability in capabilities.sourced)
    proposals = open_proposals(state) if may_fulfil else None
    return _payload(state, you, _own_capabilities(state, you, capabilities), others.text_without(you), proposals)


def observer_payload(state: SpaceState, observer: str, others: Roster) -> bytes:
    """Return the payload of an observer's welcome.

    An observer has no capabilities. All participants are listed, even one with the observer's name.
    """
    return _payload(state, observer, b"[]", others.text())


def open_proposals(state: SpaceState) -> bytes:
    """Return `open_proposals`: every open proposal without its payload, in order of opening."""
    return raw_json.encode_json([proposal.entry() for proposal in state.proposals.values()])


def _payload(state: SpaceState, you: str, own: bytes, others: bytes, proposals: bytes | None = None) -> bytes:
    listed = {} if proposals is None else {"open_proposals": proposals}
    return raw_json.join_json(
        {
            "you": raw_json.join_json({"id": raw_json.encode_json(you), "capabilities": own}),
            "participants": b"".join((b"[", others, b"]")),
            "active_streams": raw_json.array(stream_entry(state, stream) for stream in state.streams.values()),
            **listed,
            "position": raw_json.encode_json(state.position),
        }
    )


def welcome_at(state: SpaceState, participant: str) -> bytes:
    """Return the payload of the welcome that this participant would receive in this state."""
    return welcome_payload(state, participant, state.capabilities(participant), roster(state))


def observer_welcome_at(state: SpaceState, observer: str) -> bytes:
    """Return the payload of the welcome that an observer would receive in this state."""
    return observer_payload(state, observer, roster(state))


def _own_capabilities(state: SpaceState, you: str, capabilities: CapabilitySet) -> bytes:
    """Return the effective capabilities, plus one entry per stream that lists you as a writer (protocol §4)."""
    writable = [
        raw_json.encode_json({"kind": f"stream/write:{stream.stream_id}"})
        for stream in state.streams.values()
        if you in stream.writers
    ]
    texts = [capability.text for _, capability in capabilities.sourced]
    return raw_json.array([*texts, *writable])
