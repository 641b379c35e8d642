"""Holds every welcome that was sent against the state that was folded.

The counts of frames aside: frames do not pass through here. What a welcome says of them is put in where the core would
put its own count, so that the rest can be compared to the byte, and is handed on as claims, to be compared with the
counted frames.
"""

import msgspec

from mew.pipeline.control.checks import Welcomes
from mew.pipeline.control.rights import CapabilityTracker
from mew.protocol import raw_json
from mew.protocol.records import Record
from mew.protocol.state import SpaceState
from mew.protocol.streams import StreamEntry, encode_stream_entry
from mew.protocol.welcome import observer_payload, welcome_payload

OBSERVER = "observer"
"""The reason of an observer's welcome."""


class _Counted(msgspec.Struct, gc=False):
    frames: int


class _Claim(msgspec.Struct, gc=False):
    stream_id: str
    stream: _Counted


class _Claims(msgspec.Struct):
    active_streams: list[_Claim]


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """What a welcome says of a stream, around the count of its frames."""

    stream: StreamEntry
    owner_connected: bool
    before: bytes
    behind: bytes


_claims = msgspec.json.Decoder(_Claims)


class Rebuilt:
    """Makes welcomes of a state as it changes; of each stream the text is made once as long as it stays the same."""

    def __init__(self, welcomes: Welcomes) -> None:
        """No stream is known."""
        self._welcomes = welcomes
        self._entries: dict[str, _Entry] = {}

    def check(
        self, state: SpaceState, rights: CapabilityTracker, record: Record, payload: bytes
    ) -> tuple[str | None, list[tuple[str, int]]]:
        """One welcome, before the record of it is folded: what differs, and its streams with their frame counts."""
        welcomes, position = self._welcomes, record.position
        welcomes.checked += 1
        try:
            claims = _claims.decode(payload).active_streams
        except (msgspec.MsgspecError, RecursionError) as problem:
            welcomes.violated(position, f"it is no welcome: {problem}", participant=record.participant)
            return f"it is no welcome: {problem}", []
        claimed = {claim.stream_id: claim.stream.frames for claim in claims}
        welcomes.claims += [(position, stream_id, frames) for stream_id, frames in claimed.items()]
        made = self._made(state, rights, record, claimed)
        counts = list(claimed.items())
        if raw_json.join_json(made) == payload:
            return None, counts
        difference = ", ".join(_differences(made, raw_json.split_json(payload)))
        welcomes.violated(position, f"not what was folded: {difference}", participant=record.participant)
        return difference, counts

    def _made(
        self, state: SpaceState, rights: CapabilityTracker, record: Record, claimed: dict[str, int]
    ) -> dict[str, bytes]:
        """The welcome as the core makes it of this state, with these counts.

        Besides their entries, which are put in ready-made, it mentions only streams that you may write to.
        """
        you = record.participant
        entries = [self._entry(state, stream) for stream in state.streams.values()]
        self._entries = {each.stream.stream_id: each for each in entries}
        own = {stream_id: each for stream_id, each in state.streams.items() if you in each.writers}
        seen = msgspec.structs.replace(state, position=record.position - 1, streams=own, frames=dict.fromkeys(own, 0))
        if record.reason == OBSERVER:
            made = observer_payload(seen, you, rights.roster)
        else:
            made = welcome_payload(seen, you, rights.of(state, you), rights.roster)
        texts = (b"%s%d%s" % (each.before, claimed.get(each.stream.stream_id, 0), each.behind) for each in entries)
        return {**raw_json.split_json(made), "active_streams": raw_json.array(texts)}

    def _entry(self, state: SpaceState, stream: StreamEntry) -> _Entry:
        known, connected = self._entries.get(stream.stream_id), stream.owner in state.present
        if known is not None and known.stream is stream and known.owner_connected == connected:
            return known
        none, one = (encode_stream_entry(stream, owner_connected=connected, frames=count) for count in (0, 1))
        at = next(index for index in range(len(none) - 1, -1, -1) if none[index] != one[index])
        return _Entry(stream, connected, none[:at], none[at + 1 :])


def _differences(made: dict[str, bytes], sent: dict[str, bytes]) -> list[str]:
    """The fields that are not the same."""
    return [name for name in {**made, **sent} if made.get(name) != sent.get(name)] or ["the order of its fields"]
