"""Scenarios of membership and streams: joins, grants, kicks, pauses, stream lifecycle, data loss and rejections.

A scenario is a generator. It performs actions, yields the seconds until it continues, and then checks again which
participants are present and which streams are open.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tools.journal_generator import actions
from tools.journal_generator.conversations import Scenario, chat_payload, jitter, pick_active
from tools.journal_generator.observation import OpenStream
from tools.journal_generator.participants import (
    GRACE_SECONDS,
    GUESTS,
    HOST,
    MOVES,
    PILOTS,
    PLANNERS,
    POSITIONS,
    READINGS,
    REGULARS,
    SOURCES,
    STREAM_TEMPLATES,
    TOOLS,
    TROLL,
    VISITORS,
    StreamTemplate,
    capabilities,
)
from tools.journal_generator.simulation import Simulation

REGULARS_WITHOUT_HOST: Final = tuple(name for name in REGULARS if name != HOST)


def absence(simulation: Simulation) -> Scenario:
    """Disconnect a participant and let it reconnect."""
    name = pick_active(simulation, REGULARS_WITHOUT_HOST)
    if name is None:
        return
    actions.leave(simulation, name, simulation.rng.choice((None, "connection lost", "ping timeout")))
    yield jitter(simulation, GRACE_SECONDS)
    return_if_possible(simulation, name)


def return_if_possible(simulation: Simulation, name: str) -> None:
    """Join again if the participant is absent and may join."""
    if not simulation.is_present(name) and simulation.state.may_return(name):
        actions.join(simulation, name)


def return_of_absent(simulation: Simulation) -> Scenario:
    """Let absent participants join, resume paused ones, and invite kicked ones again."""
    for name in [name for name in REGULARS_WITHOUT_HOST if not simulation.is_present(name)][:3]:
        return_if_possible(simulation, name)
        yield jitter(simulation, 0.3)
    for name in [name for name, until in simulation.state.paused.items() if until is None and name != TROLL]:
        actions.resume(simulation, name)
        yield jitter(simulation, 0.3)
    for name in sorted(simulation.state.kicked.keys() - {TROLL}):
        actions.invite(simulation, name, capabilities(name))
        yield jitter(simulation, 0.3)
        return_if_possible(simulation, name)


def takeover(simulation: Simulation) -> Scenario:
    """Join over a second connection, which closes the first, and then send `system/join` again."""
    name = pick_active(simulation, REGULARS_WITHOUT_HOST)
    if name is None:
        return
    actions.join(simulation, name)
    yield jitter(simulation, 0.5)
    if simulation.may_send(name):
        actions.rejoin(simulation, name)
        other = {"type": "join", "participantId": HOST, "token": simulation.token(name)}
        actions.send_invalid_message(simulation, name, actions.encode(other), "invalid_request")


def visit(simulation: Simulation) -> Scenario:
    """Join anonymously, chat, try to request a stream, and leave."""
    absent = [name for name in VISITORS if not simulation.is_present(name)]
    if not absent:
        return
    name = simulation.rng.choice(absent)
    actions.join(simulation, name, anonymous=True)
    yield jitter(simulation, 1)
    actions.send(simulation, name, "chat", chat_payload(simulation))
    actions.send_rejected(simulation, name, "stream/request", {"description": "mine"}, "capability_violation")
    yield jitter(simulation, 1)
    actions.leave(simulation, name)


def granting(simulation: Simulation) -> Scenario:
    """Grant a capability, use it, and revoke it."""
    recipient = pick_active(simulation, (*SOURCES, *PLANNERS))
    if recipient is None:
        return
    method = f"tools/{simulation.rng.getrandbits(48):x}"
    capability = {"kind": "mcp/request", "payload": {"method": method}}
    actions.send_rejected(simulation, recipient, "mcp/request", {"method": method}, "capability_violation")
    granted = actions.grant_capability(simulation, recipient, capability)
    yield jitter(simulation, 0.5)
    if recipient in SOURCES and simulation.may_send(recipient):
        actions.send(
            simulation, recipient, "capability/grant-ack", {"status": "accepted"}, correlation_id=[granted.grant_id]
        )
    if simulation.may_send(recipient) and actions.has_grant(simulation, granted):
        actions.send(simulation, recipient, "mcp/request", {"method": method}, to=[TOOLS[0]])
    yield jitter(simulation, 1)
    actions.revoke_capability(simulation, granted, capability if simulation.rng.random() < 0.5 else None)


def invitation(simulation: Simulation) -> Scenario:
    """Invite a guest; it joins late, opens a stream and leaves."""
    name = simulation.rng.choice(GUESTS)
    actions.invite(simulation, name, capabilities(name))
    yield jitter(simulation, 0.5)
    if simulation.is_present(name) or not simulation.state.may_return(name):
        return
    actions.join(simulation, name)
    yield jitter(simulation, 0.5)
    if not simulation.may_send(name):
        return
    actions.send(simulation, name, "chat", chat_payload(simulation))
    stream = actions.open_stream(simulation, name, POSITIONS)
    actions.write_frames(simulation, stream, name, 5)
    yield jitter(simulation, 3)
    if simulation.is_present(name):
        actions.leave(simulation, name)


def kicking(simulation: Simulation) -> Scenario:
    """Kick a participant; it fails to join, is invited again and returns."""
    name = pick_active(simulation, (*GUESTS, *SOURCES[3:]))
    if name is None:
        return
    actions.kick(simulation, name)
    actions.join_while_kicked(simulation, name)
    yield jitter(simulation, 1)
    if name in simulation.state.kicked:
        actions.invite(simulation, name, capabilities(name))
        yield jitter(simulation, 0.5)
        return_if_possible(simulation, name)


def permanent_kick(simulation: Simulation) -> Scenario:
    """Invite a participant, exceed its rate limit, and kick it permanently."""
    if TROLL in simulation.state.kicked or simulation.is_present(TROLL):
        return
    actions.invite(simulation, TROLL)
    yield jitter(simulation, 0.5)
    actions.join(simulation, TROLL)
    actions.flood(simulation, TROLL, 10)
    yield jitter(simulation, 0.5)
    if simulation.is_present(TROLL):
        actions.kick(simulation, TROLL)


def pausing(simulation: Simulation) -> Scenario:
    """Pause a writer; its messages are rejected until the pause times out or the host resumes it."""
    writing = [(stream, writer) for stream, writer in simulation.writing() if writer not in {HOST, TROLL}]
    if not writing:
        return
    stream, name = simulation.rng.choice(writing)
    seconds = simulation.rng.choice((None, 1.5))
    actions.pause(simulation, name, seconds)
    actions.send_rejected(simulation, name, "chat", {"text": "but"}, "paused")
    actions.send_rejected_frame(simulation, name, stream.header + stream.payload(simulation.rng), "paused")
    yield jitter(simulation, 1.5)
    if seconds is None and name in simulation.state.paused:
        actions.resume(simulation, name)


def shutting_down(simulation: Simulation) -> Scenario:
    """Shut a participant down; it returns later."""
    name = pick_active(simulation, (*PILOTS[2:], *TOOLS[1:]))
    if name is None:
        return
    actions.shut_down(simulation, name)
    yield jitter(simulation, 0.5)
    if simulation.is_present(name):
        actions.send_rejected(simulation, name, "chat", {"text": "bye"}, "paused")
    yield 6.0
    return_if_possible(simulation, name)


def rejections(simulation: Simulation) -> Scenario:
    """Send one message for each way of being rejected that does not concern an open stream."""
    name, tool = pick_active(simulation, PILOTS), pick_active(simulation, TOOLS)
    if name is None or tool is None:
        return
    actions.send_rejected(simulation, tool, "mcp/request", {"method": "tools/list"}, "capability_violation")
    actions.send_rejected(simulation, name, "chat", {"text": ""}, "invalid_envelope")
    actions.send_rejected(simulation, name, "system/register", {"capabilities": []}, "invalid_request")
    actions.send_rejected(simulation, name, "stream/gap", {"stream_id": "stream-1"}, "reserved_kind")
    yield jitter(simulation, 0.5)
    actions.send_invalid_message(simulation, HOST, b"hello, is this thing on?")
    actions.send_invalid_message(simulation, HOST, b'{"payload":{"text":"of no kind"}}')
    actions.send_rejected(simulation, HOST, "space/kick", {"participant_id": "nobody"}, "participant_not_found")
    unwritable = {"recipient": tool, "capabilities": [{"kind": "stream/write:stream-1"}]}
    actions.send_rejected(simulation, HOST, "capability/grant", unwritable, "invalid_operation")
    actions.send_rejected(simulation, HOST, "participant/pause", {"timeout_seconds": -1}, "invalid_envelope", to=[tool])
    actions.send_rejected_frame(simulation, HOST, b"#no end", "invalid_envelope")
    actions.send_rejected_frame(simulation, HOST, b"#stream-0#nowhere", "unauthorized_stream_write")


_WRITERS: Final = (*SOURCES, *PILOTS)
"""Participants that open streams and get write access."""


def _is_open(simulation: Simulation, stream: OpenStream) -> bool:
    return stream.stream_id in simulation.streams


def _pick_stream(simulation: Simulation, streams: Sequence[OpenStream] | None = None) -> OpenStream | None:
    """Return a random live stream whose owner may send, or None."""
    writable = [
        stream
        for stream in (simulation.streams.values() if streams is None else streams)
        if stream.live and _is_open(simulation, stream) and simulation.may_send(stream.owner)
    ]
    return simulation.rng.choice(writable) if writable else None


def _pick_outsider(simulation: Simulation, stream: OpenStream) -> str | None:
    return pick_active(simulation, [name for name in _WRITERS if name not in stream.writers])


def opening(simulation: Simulation, template: StreamTemplate | None = None) -> Scenario:
    """Open a stream; an announced stream has to be started before it accepts data."""
    owner = pick_active(simulation, _WRITERS)
    if owner is None:
        return
    template = template or simulation.rng.choice(STREAM_TEMPLATES)
    present = [name for name in REGULARS_WITHOUT_HOST if simulation.is_present(name) and name != owner]
    targets = tuple(simulation.rng.sample(present, min(3, len(present)))) if template.targeted else ()
    if template.targeted and not targets:
        return
    version = sum(stream_truth.way == "announce" for stream_truth in simulation.truth.streams.values())
    stream = actions.open_stream(simulation, owner, template, version=version, targets=targets)
    yield from _start_announced(simulation, stream)
    if template.hertz and _pick_stream(simulation, [stream]):
        actions.write_frames(simulation, stream, stream.owner, 3, one_invalid=True)
    if template.data_hertz and _pick_stream(simulation, [stream]):
        actions.write_data(simulation, stream, stream.owner)
    if simulation.rng.random() < 0.6:
        yield jitter(simulation, 0.5)
        yield from sharing(simulation, stream)


def _start_announced(simulation: Simulation, stream: OpenStream) -> Scenario:
    """Start a stream that was announced."""
    if stream.live:
        return
    yield jitter(simulation, 0.3)
    if _is_open(simulation, stream) and simulation.may_send(stream.owner):
        early = stream.header + stream.payload(simulation.rng)
        actions.send_rejected_frame(simulation, stream.owner, early, "stream_not_live")
        actions.start_stream(simulation, stream)


def sharing(simulation: Simulation, stream: OpenStream | None = None) -> Scenario:
    """Grant write access, then revoke it from one writer, whose next frames are rejected."""
    shared = stream if stream is not None and _pick_stream(simulation, [stream]) else _pick_stream(simulation)
    if shared is None or len(shared.writers) > 4:
        return
    for _ in range(simulation.rng.randrange(1, 4)):
        other = _pick_outsider(simulation, shared)
        if other is None or not _pick_stream(simulation, [shared]):
            break
        actions.grant_write(simulation, shared, other, simulation.rng.choice((None, "takes the controls")))
        yield jitter(simulation, 0.5)
    yield jitter(simulation, 4)
    if _pick_stream(simulation, [shared]) and len(shared.writers) > 1:
        former_writer = simulation.rng.choice(shared.writers[1:])
        actions.revoke_write(simulation, shared, former_writer, simulation.rng.choice((None, "thank you")))
        if simulation.may_send(former_writer):
            actions.write_unauthorized_frames(simulation, former_writer, shared, simulation.rng.randrange(1, 6))


def handover(simulation: Simulation) -> Scenario:
    """Transfer a stream; the former owner's frames are rejected until it gets write access."""
    stream = _pick_stream(simulation)
    if stream is None:
        return
    former, heir = stream.owner, pick_active(simulation, [name for name in _WRITERS if name != stream.owner])
    if heir is None:
        return
    actions.transfer_ownership(simulation, stream, heir, simulation.rng.choice((None, "end of shift")))
    actions.write_unauthorized_frames(simulation, former, stream, simulation.rng.randrange(1, 4))
    payload = {"stream_id": stream.stream_id, "participant_id": former}
    actions.send_rejected(simulation, former, "stream/grant-write", payload, "unauthorized")
    yield jitter(simulation, 1)
    if _pick_stream(simulation, [stream]) and simulation.is_present(former):
        actions.grant_write(simulation, stream, former)


def writer_disconnect(simulation: Simulation) -> Scenario:
    """Disconnect a participant that may write to the stream of another participant."""
    stream = _pick_stream(simulation)
    leaver = None if stream is None else _pick_outsider(simulation, stream)
    if stream is None or leaver is None:
        return
    actions.grant_write(simulation, stream, leaver)
    yield jitter(simulation, 0.5)
    if simulation.is_present(leaver):
        actions.leave(simulation, leaver, "ping timeout")
    yield jitter(simulation, 3)
    return_if_possible(simulation, leaver)


def ending(simulation: Simulation, kind: str | None = None) -> Scenario:
    """End a stream, as its owner or as the host."""
    stream = _pick_stream(simulation)
    if stream is None:
        return
    if kind is None and simulation.rng.random() < 0.2:
        actions.end_stream(simulation, stream, HOST, "stream/close", "cleaning up")
        return
    kind = kind or simulation.rng.choice(("stream/complete", "stream/close", "stream/close", "stream/error"))
    actions.end_stream(simulation, stream, stream.owner, kind, "done" if kind == "stream/close" else None)
    yield jitter(simulation, 0.2)
    if simulation.may_send(stream.owner):
        actions.send_rejected_frame(simulation, stream.owner, stream.header + b"too late", "unauthorized_stream_write")


def reopened_movement(simulation: Simulation) -> Scenario:
    """End a movement stream and open one with another schema: a new stream id, but the same format id."""
    for version in (0, 1):
        owner = pick_active(simulation, SOURCES)
        if owner is None:
            return
        stream = actions.open_stream(simulation, owner, MOVES, version=version)
        actions.start_stream(simulation, stream)
        for _ in range(4):
            actions.write_frames(simulation, stream, owner, 4, one_invalid=True)
        actions.write_data(simulation, stream, owner, fits=False)
        yield jitter(simulation, 0.4)
        if version == 0 and _pick_stream(simulation, [stream]):
            actions.end_stream(simulation, stream, stream.owner, "stream/complete")


def owner_disconnect(simulation: Simulation, template: StreamTemplate, *, seconds: float, shared: bool) -> Scenario:
    """Disconnect an owner: the stream closes, waits for the owner, or is transferred."""
    owner = pick_active(simulation, SOURCES)
    if owner is None:
        return
    stream = actions.open_stream(simulation, owner, template)
    if not stream.live:
        actions.start_stream(simulation, stream)
    heirs = [_pick_outsider(simulation, stream), HOST] if shared else []
    for heir in filter(None, heirs):
        actions.grant_write(simulation, stream, heir)
    yield 1.0
    if simulation.is_present(owner):
        _drop_queued(simulation, owner)
        actions.leave(simulation, owner, "connection lost")
    yield seconds
    return_if_possible(simulation, owner)


def owner_disconnects() -> list[Callable[[Simulation], Scenario]]:
    """Return scenarios for each disconnect policy: owners return in time or late, with other writers or none."""
    closes = next(template for template in STREAM_TEMPLATES if template.policy == "close" and not template.targeted)
    late, soon = GRACE_SECONDS + 2, GRACE_SECONDS / 3
    return [
        partial(owner_disconnect, template=closes, seconds=soon, shared=True),
        partial(owner_disconnect, template=READINGS, seconds=late, shared=True),
        partial(owner_disconnect, template=POSITIONS, seconds=late, shared=True),
        partial(owner_disconnect, template=MOVES, seconds=late, shared=False),
        partial(owner_disconnect, template=MOVES, seconds=soon, shared=True),
    ]


def _drop_queued(simulation: Simulation, reader: str) -> None:
    """Drop the queued frames of a reader that is about to disconnect."""
    for stream in list(simulation.streams.values()):
        queued = min(actions.count_undelivered(stream, reader), simulation.rng.randrange(1, 60))
        if queued > 0 and reader != stream.owner:
            actions.report_loss(simulation, stream, reader, queued, gone=True)
            return


def slow_reader(simulation: Simulation) -> Scenario:
    """Drop frames of a slow reader, which then continues or disconnects."""
    reader = pick_active(simulation, REGULARS_WITHOUT_HOST)
    if reader is None:
        return
    slow = [stream for stream in simulation.streams.values() if actions.count_undelivered(stream, reader) > 0]
    for stream in slow[: simulation.rng.randrange(1, 6)]:
        lost = min(actions.count_undelivered(stream, reader), simulation.rng.randrange(1, 400))
        actions.report_loss(simulation, stream, reader, lost)
    yield jitter(simulation, 1)
    if simulation.is_present(reader) and simulation.rng.random() < 0.3:
        _drop_queued(simulation, reader)
        actions.leave(simulation, reader, "connection lost")
        yield jitter(simulation, 2)
        return_if_possible(simulation, reader)


def rejected_data(simulation: Simulation) -> Scenario:
    """Send data that is rejected, once for each reason."""
    owner = pick_active(simulation, _WRITERS)
    if owner is None:
        return
    stream = actions.open_stream(simulation, owner, READINGS)
    actions.start_stream(simulation, stream)
    for skip in (3, 0, 4):
        actions.write_data(simulation, stream, owner, skip=skip)
    payload, sequence = actions.data_payload(simulation, stream, 0), stream.flows[owner].sequence
    for reason, changes in (
        ("sequence_out_of_order", {}),
        ("unknown_format", {"sequence": sequence + 1, "format_id": "movement/9d"}),
        ("schema_violation", {**actions.data_payload(simulation, stream, sequence + 1, fits=False)}),
        ("stream_not_found", {"stream": {"stream_id": "gone"}}),
        ("invalid_envelope", {"sequence": True}),
    ):
        actions.send_rejected(simulation, owner, "stream/data", {**payload, **changes}, reason)
    actions.send_rejected(simulation, HOST, "stream/data", payload, "unauthorized_stream_write")
    yield jitter(simulation, 0.3)
    if _pick_stream(simulation, [stream]) and stream.owner == owner:
        absent = {"stream_id": stream.stream_id, "participant_id": "nobody"}
        actions.send_rejected(simulation, owner, "stream/grant-write", absent, "participant_not_found")
        actions.send_rejected(simulation, owner, "stream/request", {"target": ["nobody"]}, "target_not_found")
        actions.send_rejected(simulation, owner, "stream/announce", {"formats": []}, "invalid_format")
        own = {"stream_id": stream.stream_id, "participant_id": owner}
        actions.send_rejected(simulation, owner, "stream/revoke-write", own, "invalid_operation")
        actions.end_stream(simulation, stream, owner, "stream/close", "tried everything")


def envelopes_without_effect(simulation: Simulation) -> Scenario:
    """Send envelopes that look like a change of a stream but have no effect."""
    stream = _pick_stream(simulation)
    if stream is None:
        return
    format_field = {"stream_id": stream.stream_id}
    actions.send(simulation, HOST, "stream/open", {**format_field, "owner": HOST})
    actions.send(simulation, HOST, "stream/quality", {**format_field, "loss": 0.01})
    actions.send(simulation, HOST, "stream/close", {"stream_id": "stream-0", "reason": "never was"})
    yield jitter(simulation, 0.2)
    if _pick_stream(simulation, [stream]):
        actions.transfer_ownership(simulation, stream, stream.owner)
        actions.grant_write(simulation, stream, stream.owner)
