"""`SpaceView`: what a participant or observer knows about a space, updated from each received envelope.

Pure. Values are frozen. `apply_envelope` returns the next view, or the same view if nothing changed. Only envelopes
from the gateway add or remove participants, or add a stream.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from mew.protocol import frames, kinds, raw_json
from mew.protocol.envelope import Envelope


class ParticipantView(msgspec.Struct, frozen=True):
    """A participant that is present."""

    id: str
    """The participant id in the space."""
    capabilities: list[dict[str, Any]]
    """Its capabilities, in the format of the protocol."""


class StreamView(msgspec.Struct, frozen=True):
    """An open stream. It holds the entry that a welcome would contain for it."""

    entry: dict[str, Any]
    """The fields of the entry."""

    @property
    def stream_id(self) -> str:
        """Id of the stream within the space."""
        return str(self.entry["stream_id"])

    @property
    def namespace(self) -> str:
        """Id of the stream across all spaces: space id and stream id."""
        return str(self.entry["stream"]["namespace"])

    @property
    def owner(self) -> str:
        """The participant that owns the stream."""
        return str(self.entry["owner"])

    @property
    def writers(self) -> tuple[str, ...]:
        """Participants that may write to the stream. The owner comes first."""
        return tuple(self.entry["authorized_writers"])

    @property
    def status(self) -> str:
        """Status of the stream: `ready` or `live`."""
        return str(self.entry["stream"]["status"])

    @property
    def owner_connected(self) -> bool:
        """Whether the owner of the stream is present."""
        return bool(self.entry["stream"]["owner_connected"])

    @property
    def frames(self) -> int:
        """Number of frames and `stream/data` sent on the stream, as far as this observer could count them."""
        return int(self.entry["stream"]["frames"])

    @property
    def formats(self) -> list[dict[str, Any]]:
        """Format descriptors of the stream's data."""
        return list(self.entry["stream"]["formats"])

    def with_entry(self, **changes: Any) -> "StreamView":
        """Return a copy of the stream with changed top-level fields."""
        return StreamView({**self.entry, **changes})

    def with_stream(self, **changes: Any) -> "StreamView":
        """Return a copy of the stream with changed fields in its `stream` object."""
        return self.with_entry(stream={**self.entry["stream"], **changes})


class ProposalView(msgspec.Struct, frozen=True):
    """An open proposal. It holds the entry that a welcome would contain for it."""

    entry: dict[str, Any]
    """The fields of the entry."""

    @property
    def position(self) -> int:
        """Journal position of the proposal's record. It identifies the proposal."""
        return int(self.entry["position"])

    @property
    def proposal_id(self) -> str:
        """Id of the proposal's envelope. A fulfillment names it in `correlation_id`."""
        return str(self.entry["id"])

    @property
    def proposer(self) -> str:
        """The participant that sent the proposal."""
        return str(self.entry["from"])

    @property
    def digest(self) -> str:
        """Digest of method, params and recipients."""
        return str(self.entry["digest"])

    @property
    def expires_at(self) -> str:
        """Time at which the proposal is closed at the latest."""
        return str(self.entry["expires_at"])

    @property
    def votes(self) -> tuple[str, ...]:
        """Participants that have approved the proposal."""
        return tuple(self.entry["votes"])


class SpaceView(msgspec.Struct, frozen=True):
    """What one participant or observer knows about a space."""

    you: ParticipantView
    """The participant or observer that has this view."""
    participants: dict[str, ParticipantView]
    """The other participants by id, in order of joining."""
    streams: dict[str, StreamView]
    """Open streams by id, in order of creation."""
    position: int
    """Journal position at the last welcome."""
    proposals: dict[int, ProposalView] | None = None
    """Open proposals by position, in order of opening. None if you may not send `mcp/request`."""

    def may_write(self, stream_id: str) -> bool:
        """Return whether the stream is live and you are an authorized writer."""
        stream = self.streams.get(stream_id)
        return stream is not None and stream.status == "live" and self.you.id in stream.writers


def view_from_welcome(envelope: Envelope) -> SpaceView:
    """Return the view that a welcome describes."""
    payload = envelope.payload
    streams = [StreamView(entry) for entry in payload["active_streams"]]
    return SpaceView(
        you=_participant(payload["you"]),
        participants={entry["id"]: _participant(entry) for entry in payload["participants"]},
        streams={stream.stream_id: stream for stream in streams},
        position=payload["position"],
        proposals=_proposals(payload.get("open_proposals")),
    )


def _proposals(listed: list[dict[str, Any]] | None) -> dict[int, ProposalView] | None:
    return None if listed is None else {entry["position"]: ProposalView(entry) for entry in listed}


def apply_envelope(view: SpaceView, envelope: Envelope) -> SpaceView:
    """Return the view after an envelope. Gateway-only kinds are ignored from other senders (protocol §1)."""
    table = _BY_GATEWAY if envelope.sender == kinds.GATEWAY else _BY_PARTICIPANT
    change = table.get(envelope.kind)
    return view if change is None else change(view, envelope)


def apply_frame(view: SpaceView, message: bytes) -> SpaceView:
    """Return the view after a raw frame."""
    stream_id, _ = frames.split_frame(message)
    return _counted(view, stream_id, 1)


def _participant(value: dict[str, Any]) -> ParticipantView:
    return ParticipantView(value["id"], value["capabilities"])


def _welcome(_view: SpaceView, envelope: Envelope) -> SpaceView:
    return view_from_welcome(envelope)


def _presence(view: SpaceView, envelope: Envelope) -> SpaceView:
    about = _participant(envelope.payload["participant"])
    event = envelope.payload["event"]
    others = dict(view.participants)
    if event == "leave":
        others.pop(about.id, None)
        if envelope.payload.get("reason") == "kicked":
            view = _without_votes(view, about.id)
    elif event == "join" or about.id in others:
        others[about.id] = about
    return _owner_seen(msgspec.structs.replace(view, participants=others), about.id)


def _owner_seen(view: SpaceView, participant: str) -> SpaceView:
    """Update `owner_connected` on the streams that the participant owns."""
    connected = participant in view.participants
    streams = {
        name: stream.with_stream(owner_connected=connected) if stream.owner == participant else stream
        for name, stream in view.streams.items()
    }
    return msgspec.structs.replace(view, streams=streams)


def _opened(view: SpaceView, envelope: Envelope) -> SpaceView:
    return _put(view, StreamView(envelope.payload))


def _readied(view: SpaceView, envelope: Envelope) -> SpaceView:
    payload = envelope.payload
    details = payload["stream"]
    entry = {
        **payload,
        "stream_id": details["stream_id"],
        "owner": details["owner"],
        "authorized_writers": details["authorized_writers"],
        "created": envelope.ts,
        "direction": _value_or(payload, "direction", "upload"),
        "encoding": _value_or(payload, "encoding", "utf-8"),
        "stream": {
            "stream_id": details["stream_id"],
            "namespace": details["namespace"],
            "status": details["status"],
            "creator": details["creator"],
            "formats": details["formats"],
            "owner_connected": True,
            "frames": 0,
        },
    }
    return _put(view, StreamView(entry))


def _value_or(payload: dict[str, Any], name: str, default: str) -> Any:
    value = payload.get(name)
    return default if value is None else value


def _started(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _find_stream(view, envelope)
    return view if stream is None else _put(view, stream.with_stream(status="live"))


def _ended(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _find_stream(view, envelope)
    if stream is None:
        return view
    streams = {name: other for name, other in view.streams.items() if name != stream.stream_id}
    return msgspec.structs.replace(view, streams=streams)


def _writers_changed(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _find_stream(view, envelope)
    if stream is None:
        return view
    return _put(view, stream.with_entry(authorized_writers=envelope.payload["authorized_writers"]))


def _ownership_transferred(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _find_stream(view, envelope)
    if stream is None:
        return view
    payload = envelope.payload
    changed = stream.with_entry(
        owner=payload["new_owner"], authorized_writers=payload["authorized_writers"]
    ).with_stream(owner_connected=True)
    return _put(view, changed)


def _data(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _find_stream(view, envelope)
    return view if stream is None else _counted(view, stream.stream_id, 1)


def _gap(view: SpaceView, envelope: Envelope) -> SpaceView:
    return _counted(view, envelope.payload["stream_id"], envelope.payload["dropped"])


def _counted(view: SpaceView, stream_id: str, count: int) -> SpaceView:
    stream = view.streams.get(stream_id)
    return view if stream is None else _put(view, stream.with_stream(frames=stream.frames + count))


def _find_stream(view: SpaceView, envelope: Envelope) -> StreamView | None:
    """Return the stream that an envelope names, if known. The gateway completes the reference before it relays it."""
    reference = envelope.payload.get("stream")
    stream_id = reference.get("stream_id") if isinstance(reference, dict) else None
    return view.streams.get(stream_id) if isinstance(stream_id, str) else None


def _proposed(view: SpaceView, envelope: Envelope) -> SpaceView:
    stamp = _stamp(envelope)
    if view.proposals is None or stamp is None:
        return view
    entry = {
        "position": stamp["position"],
        "id": envelope.id,
        "from": envelope.sender,
        "to": list(envelope.to),
        "method": envelope.payload["method"],
        "digest": stamp["digest"],
        "expires_at": stamp["expires_at"],
        "bytes": len(envelope.fields["payload"]),
        "votes": [],
    }
    return msgspec.structs.replace(view, proposals={**view.proposals, stamp["position"]: ProposalView(entry)})


def _approved(view: SpaceView, envelope: Envelope) -> SpaceView:
    stamp = _stamp(envelope)
    proposal = None if view.proposals is None or stamp is None else view.proposals.get(stamp["position"])
    if proposal is None or envelope.sender in proposal.votes:
        return view
    return _with_votes(view, proposal, [*proposal.votes, envelope.sender])


def _without_votes(view: SpaceView, participant: str) -> SpaceView:
    """Remove the votes of a participant that was kicked."""
    for proposal in (view.proposals or {}).values():
        if participant in proposal.votes:
            view = _with_votes(view, proposal, [voter for voter in proposal.votes if voter != participant])
    return view


def _with_votes(view: SpaceView, proposal: ProposalView, votes: list[str]) -> SpaceView:
    changed = ProposalView({**proposal.entry, "votes": votes})
    return msgspec.structs.replace(view, proposals={**(view.proposals or {}), proposal.position: changed})


def _proposal_ended(view: SpaceView, envelope: Envelope) -> SpaceView:
    """Remove a proposal after a stamped envelope of a participant or the gateway's `mcp/proposal-closed`."""
    stamp = envelope.payload if envelope.sender == kinds.GATEWAY else _stamp(envelope)
    if view.proposals is None or stamp is None or stamp["position"] not in view.proposals:
        return view
    left = {position: proposal for position, proposal in view.proposals.items() if position != stamp["position"]}
    return msgspec.structs.replace(view, proposals=left)


def _stamp(envelope: Envelope) -> dict[str, Any] | None:
    """Return the `proposal` field. The gateway sets or removes it on every proposal envelope (protocol §3)."""
    text = envelope.fields.get(kinds.PROPOSAL_FIELD)
    return None if text is None else raw_json.decode_json(text)


def _put(view: SpaceView, stream: StreamView) -> SpaceView:
    return msgspec.structs.replace(view, streams={**view.streams, stream.stream_id: stream})


_Change = Callable[[SpaceView, Envelope], SpaceView]
_BY_GATEWAY: Final[dict[str, _Change]] = {
    kinds.WELCOME: _welcome,
    kinds.PRESENCE: _presence,
    kinds.STREAM_OPEN: _opened,
    kinds.STREAM_READY: _readied,
    kinds.STREAM_CLOSE: _ended,
    kinds.STREAM_GAP: _gap,
    kinds.WRITE_GRANTED: _writers_changed,
    kinds.WRITE_REVOKED: _writers_changed,
    kinds.OWNERSHIP_TRANSFERRED: _ownership_transferred,
    kinds.PROPOSAL_CLOSED: _proposal_ended,
}
_BY_PARTICIPANT: Final[dict[str, _Change]] = {
    kinds.STREAM_START: _started,
    kinds.STREAM_DATA: _data,
    kinds.STREAM_CLOSE: _ended,
    kinds.STREAM_COMPLETE: _ended,
    kinds.STREAM_ERROR: _ended,
    kinds.MCP_PROPOSAL: _proposed,
    kinds.MCP_APPROVE: _approved,
    kinds.MCP_REQUEST: _proposal_ended,
    kinds.MCP_RESPONSE: _proposal_ended,
    kinds.MCP_REJECT: _proposal_ended,
    kinds.MCP_WITHDRAW: _proposal_ended,
}
"""The gateway relays a participant's envelopes about a stream only if the participant may send them (protocol §4)."""

__all__ = [
    "ParticipantView",
    "ProposalView",
    "SpaceView",
    "StreamView",
    "apply_envelope",
    "apply_frame",
    "view_from_welcome",
]
