"""How a view follows what its observer receives.

Pure. `apply` gives the next view for any envelope, and the same one where nothing changed.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from mew.protocol import frames, kinds
from mew.protocol.envelope import Envelope
from mew.view.space import ParticipantView, SpaceView, StreamView


def welcomed(envelope: Envelope) -> SpaceView:
    """The view that a welcome gives."""
    payload = envelope.payload
    streams = [StreamView(entry) for entry in payload["active_streams"]]
    return SpaceView(
        you=_participant(payload["you"]),
        participants={each["id"]: _participant(each) for each in payload["participants"]},
        streams={stream.stream_id: stream for stream in streams},
        position=payload["position"],
    )


def apply(view: SpaceView, envelope: Envelope) -> SpaceView:
    """The view after an envelope; kinds that only the gateway sends count only from the gateway (protocol §1)."""
    table = _BY_GATEWAY if envelope.sender == kinds.GATEWAY else _BY_PARTICIPANT
    change = table.get(envelope.kind)
    return view if change is None else change(view, envelope)


def apply_frame(view: SpaceView, message: bytes) -> SpaceView:
    """The view after a raw frame."""
    stream_id, _ = frames.split(message)
    return _counted(view, stream_id, 1)


def _participant(value: dict[str, Any]) -> ParticipantView:
    return ParticipantView(value["id"], value["capabilities"])


def _welcome(_view: SpaceView, envelope: Envelope) -> SpaceView:
    return welcomed(envelope)


def _presence(view: SpaceView, envelope: Envelope) -> SpaceView:
    about = _participant(envelope.payload["participant"])
    event = envelope.payload["event"]
    others = dict(view.participants)
    if event == "leave":
        others.pop(about.id, None)
    elif event == "join" or about.id in others:
        others[about.id] = about
    return _owner_seen(msgspec.structs.replace(view, participants=others), about.id)


def _owner_seen(view: SpaceView, participant: str) -> SpaceView:
    """Its streams show whether their owner is here."""
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
    known = payload["stream"]
    entry = {
        **payload,
        "stream_id": known["stream_id"],
        "owner": known["owner"],
        "authorized_writers": known["authorized_writers"],
        "created": envelope.ts,
        "direction": _given(payload, "direction", "upload"),
        "encoding": _given(payload, "encoding", "utf-8"),
        "stream": {
            "stream_id": known["stream_id"],
            "namespace": known["namespace"],
            "status": known["status"],
            "creator": known["creator"],
            "formats": known["formats"],
            "owner_connected": True,
            "frames": 0,
        },
    }
    return _put(view, StreamView(entry))


def _given(payload: dict[str, Any], name: str, default: str) -> Any:
    value = payload.get(name)
    return default if value is None else value


def _started(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _named(view, envelope)
    return view if stream is None else _put(view, stream.with_stream(status="live"))


def _ended(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _named(view, envelope)
    if stream is None:
        return view
    streams = {name: each for name, each in view.streams.items() if name != stream.stream_id}
    return msgspec.structs.replace(view, streams=streams)


def _writers_changed(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _named(view, envelope)
    if stream is None:
        return view
    return _put(view, stream.with_entry(authorized_writers=envelope.payload["authorized_writers"]))


def _ownership_transferred(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _named(view, envelope)
    if stream is None:
        return view
    payload = envelope.payload
    changed = stream.with_entry(
        owner=payload["new_owner"], authorized_writers=payload["authorized_writers"]
    ).with_stream(owner_connected=True)
    return _put(view, changed)


def _data(view: SpaceView, envelope: Envelope) -> SpaceView:
    stream = _named(view, envelope)
    return view if stream is None else _counted(view, stream.stream_id, 1)


def _gap(view: SpaceView, envelope: Envelope) -> SpaceView:
    return _counted(view, envelope.payload["stream_id"], envelope.payload["dropped"])


def _counted(view: SpaceView, stream_id: str, count: int) -> SpaceView:
    stream = view.streams.get(stream_id)
    return view if stream is None else _put(view, stream.with_stream(frames=stream.frames + count))


def _named(view: SpaceView, envelope: Envelope) -> StreamView | None:
    """The stream an envelope is about; the gateway has completed the reference before it sent it."""
    reference = envelope.payload.get("stream")
    named = reference.get("stream_id") if isinstance(reference, dict) else None
    return view.streams.get(named) if isinstance(named, str) else None


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
}
_BY_PARTICIPANT: Final[dict[str, _Change]] = {
    kinds.STREAM_START: _started,
    kinds.STREAM_DATA: _data,
    kinds.STREAM_CLOSE: _ended,
    kinds.STREAM_COMPLETE: _ended,
    kinds.STREAM_ERROR: _ended,
}
"""What participants say about a stream is relayed only where they may (protocol §4)."""
