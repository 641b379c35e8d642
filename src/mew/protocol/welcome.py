"""The welcome: all that a joiner has to know of a space, as its state says it.

Pure functions of the state, so that any welcome ever sent can be made again from the journal.
"""

from collections.abc import Iterable, Mapping

from mew.protocol import jsontext
from mew.protocol.capability import CapabilitySet
from mew.protocol.state import SpaceState
from mew.protocol.streams import Stream, entry


def roster_entry(participant: str, capabilities: CapabilitySet) -> bytes:
    """`{id, capabilities}` of one participant."""
    return jsontext.join({"id": jsontext.encode(participant), "capabilities": capabilities.text})


def stream_entry(state: SpaceState, stream: Stream) -> bytes:
    """One entry of `active_streams`."""
    return entry(stream, owner_connected=stream.owner in state.present, frames=state.frames[stream.stream_id])


def roster(state: SpaceState) -> dict[str, bytes]:
    """An entry for each participant present, in order of joining."""
    return {name: roster_entry(name, state.capabilities(name)) for name in state.present}


def welcome_payload(state: SpaceState, you: str, capabilities: CapabilitySet, others: Mapping[str, bytes]) -> bytes:
    """The payload of `system/welcome` (protocol §2); `others` is the roster."""
    own = _own_capabilities(state, you, capabilities)
    return _payload(state, you, own, [text for name, text in others.items() if name != you])


def observer_payload(state: SpaceState, observer: str, others: Mapping[str, bytes]) -> bytes:
    """The payload of an observer's welcome: it has nothing and leaves out nobody, whatever it is called."""
    return _payload(state, observer, b"[]", others.values())


def _payload(state: SpaceState, you: str, own: bytes, others: Iterable[bytes]) -> bytes:
    return jsontext.join(
        {
            "you": jsontext.join({"id": jsontext.encode(you), "capabilities": own}),
            "participants": jsontext.array(others),
            "active_streams": jsontext.array(stream_entry(state, each) for each in state.streams.values()),
            "position": jsontext.encode(state.position),
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
        jsontext.encode({"kind": f"stream/write:{stream.stream_id}"})
        for stream in state.streams.values()
        if you in stream.writers
    ]
    held = [capability.text for _, capability in capabilities.sourced]
    return jsontext.array([*held, *writable])
