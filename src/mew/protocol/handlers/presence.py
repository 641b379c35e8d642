"""Start, join, takeover, leave and tick: which participants are present, and what the others receive (protocol §2).

Pure. `authentication` has established the identity before a `Join` arrives here.
"""

from typing import Any

from mew.protocol import kinds, raw_json, records
from mew.protocol.authentication import Identity, Session, http_session, log_session, read_join
from mew.protocol.errors import InvalidRequest, JoinRateLimited, Kicked, ProtocolError, RateLimited, TooManyConnections
from mew.protocol.handlers import administration, ownership, proposals
from mew.protocol.interface import (
    Admit,
    AllExcept,
    AttachOutputLog,
    Checkpoint,
    Close,
    Join,
    Leave,
    OneConnection,
    Recipients,
    RefuseConnection,
    Start,
    Tick,
)
from mew.protocol.state import snapshot
from mew.protocol.timestamps import SECOND
from mew.protocol.transition import GatewayMessage, Transition
from mew.protocol.welcome import observer_payload, welcome_payload
from mew.protocol.work import JOIN_UNITS

_TAKEN_OVER = 4409
REMOVED = 4403
DONE = 1000


def record_start(transition: Transition, command: Start) -> None:
    """Begin a new epoch. Streams whose owner can never return do not continue in the new epoch."""
    space = transition.space
    before = administration.last_configuration(space.state)
    payload = {"epoch": command.epoch, **space.settings.effective()}
    text = raw_json.encode_json(payload)
    transition.record(records.START, kinds.GATEWAY, size=len(text), payload=text)
    administration.record_configuration_changes(transition, before)
    space.pass_time(transition.now)
    ownership.await_writers(transition)
    ownership.apply_grace_periods(transition)


def record_checkpoint(transition: Transition, _command: Checkpoint) -> None:
    """Record the whole state as a checkpoint. A reader of the journal may start here (architecture, Journal)."""
    administration.record_counted_refusals(transition, early=True)
    text = snapshot(transition.space.state)
    transition.record(records.CHECKPOINT, kinds.GATEWAY, size=len(text), payload=text)


def join_connection(transition: Transition, command: Join) -> None:
    """Admit a connection: snapshot, registration and welcome are one step. A refused connection is closed."""
    space = transition.space
    if command.connection in space.sessions:
        return
    session = Session(
        connection=command.connection,
        participant=command.participant,
        transport="websocket",
        observer=command.observer,
        anonymous=command.anonymous,
    )
    try:
        _pay_for_join(transition, session)
        if not command.observer:
            require_not_kicked(transition, command.participant)
        _require_room(transition, session)
    except ProtocolError as refusal:
        if command.peer is not None:
            administration.record_refused_connection(
                transition,
                RefuseConnection(
                    error=refusal.code,
                    peer=command.peer,
                    source=command.source,
                    transport="websocket",
                    participant=command.participant,
                ),
            )
        transition.send_error(OneConnection(command.connection), command.participant, refusal, command.cause)
        transition.effects.append(Close(command.connection, refusal.close_code or DONE, refusal.code))
        return
    if command.observer:
        administration.record_joined(transition, session, command.peer)
        space.sessions[session.connection] = session
        transition.effects.append(_admission(session))
        _welcome_observer(transition, session, command.cause)
    else:
        administration.record_joined(transition, session, command.peer)
        _enter(transition, session, command.cause)


def _require_room(transition: Transition, session: Session) -> None:
    """Raise `TooManyConnections` if there is no room for another connection.

    Observers and participants without a token leave a tenth of the connections to others.
    """
    space, limits = transition.space, transition.space.settings.limits
    if session.observer:
        own = sum(other.observer and other.participant == session.participant for other in space.sessions.values())
        if own >= limits.sockets_per_observer:
            raise TooManyConnections(
                f"{session.participant!r} has {own} sockets, which is the limit of one observer token",
                quota="sockets_per_observer",
                limit=limits.sockets_per_observer,
                value=own + 1,
            )
    elif session.participant in space.connections:
        return
    limit = limits.connections
    if session.observer or session.anonymous:
        limit -= limit // 10
    if len(space.sessions) >= limit:
        raise TooManyConnections(
            f"the space has {limit} connections, which is the limit", quota="connections", limit=limit, value=limit + 1
        )


def _pay_for_join(transition: Transition, session: Session) -> None:
    """Charge for a join, or raise `JoinRateLimited` if the payer is over a budget.

    Reconnecting costs work and does not reset the budgets.
    """
    space = transition.space
    try:
        space.budgets.require(session.payer, space.settings.limits, transition.now)
    except RateLimited as refusal:
        raise JoinRateLimited(refusal.message, **refusal.parts) from None
    space.charge(session.payer, transition.now, work=JOIN_UNITS, size=0)


def require_not_kicked(transition: Transition, participant: str) -> None:
    """Raise `Kicked` if the participant was removed and has not been invited again (protocol §3)."""
    if participant in transition.space.state.kicked:
        raise Kicked(f"{participant!r} was removed from {transition.space.settings.space_id!r}")


def attach_output_log(transition: Transition, command: AttachOutputLog) -> None:
    """Connect an `output_log` participant if it is not connected already."""
    if (
        command.participant not in transition.space.connections
        and command.participant not in transition.space.state.kicked
    ):
        _enter(transition, log_session(command.participant))


def ensure_present(transition: Transition, participant: str, peer: str | None) -> Session:
    """Make a participant that uses the HTTP API present, and return its session (protocol §5)."""
    space = transition.space
    require_not_kicked(transition, participant)
    if participant in space.settings.output_logs:
        attach_output_log(transition, AttachOutputLog(participant))
    elif participant not in space.connections:
        session = http_session(participant)
        administration.record_joined(transition, session, peer)
        _enter(transition, session)
    session = space.sessions[space.connections[participant]]
    if session.transport == "http":
        space.http_expiry[participant] = transition.now + round(space.settings.http_presence_seconds * SECOND)
    return session


def _enter(transition: Transition, session: Session, cause: tuple[str, ...] = ()) -> None:
    """Register the connection of a participant. Close its previous connection; in that case no join is announced."""
    space = transition.space
    replaced = space.sessions.get(space.connections.get(session.participant, ""))
    if replaced is not None:
        space.http_expiry.pop(session.participant, None)
        del space.sessions[replaced.connection]
        transition.effects.append(Close(replaced.connection, _TAKEN_OVER, "another connection took over"))
    space.sessions[session.connection] = session
    space.connections[session.participant] = session.connection
    joined: dict[str, Any] = {"transport": session.transport}
    if session.anonymous:
        joined["anonymous"] = True
    reason = None if replaced is None else "takeover"
    transition.record(records.JOINED, session.participant, reason=reason, payload=raw_json.encode_json(joined))
    transition.effects.append(_admission(session))
    send_welcome(transition, session.participant, cause)
    if replaced is None:
        announce_presence(transition, "join", session.participant)


def _admission(session: Session) -> Admit:
    return Admit(
        connection=session.connection,
        participant=session.participant,
        transport=session.transport,
        observer=session.observer,
    )


def send_welcome(transition: Transition, participant: str, cause: tuple[str, ...] = ()) -> None:
    """Send a participant a welcome with the current state of the space."""
    space = transition.space
    payload = welcome_payload(space.state, participant, space.capabilities(participant), space.roster)
    message = GatewayMessage(
        kind=kinds.WELCOME, payload=payload, audience=Recipients((participant,)), to=(participant,), cause=cause
    )
    transition.emit(message, records.WELCOMED, participant=participant)


def _welcome_observer(transition: Transition, session: Session, cause: tuple[str, ...] = ()) -> None:
    space = transition.space
    payload = observer_payload(space.state, session.participant, space.roster)
    audience, to = OneConnection(session.connection), (session.participant,)
    message = GatewayMessage(kind=kinds.WELCOME, payload=payload, audience=audience, to=to, cause=cause)
    transition.emit(message, records.WELCOMED, participant=session.participant, reason="observer")


def announce_presence(
    transition: Transition, event: str, participant: str, cause: tuple[str, ...] = (), **parts: Any
) -> None:
    """Send a presence event to all except the participant that it is about.

    `but` names another participant to leave out instead. `known_as` is an earlier roster entry of the participant.
    """
    left_out = parts.pop("but", participant)
    known_as = parts.pop("known_as", None) or transition.space.roster_entry(participant)
    fields = {name: raw_json.encode_json(value) for name, value in parts.items() if value is not None}
    payload = raw_json.join_json({"event": raw_json.encode_json(event), "participant": known_as, **fields})
    message = GatewayMessage(kind=kinds.PRESENCE, payload=payload, audience=AllExcept(left_out), cause=cause)
    transition.emit(message, reason=parts.get("reason"))


def rejoin(transition: Transition, session: Session, values: dict[str, Any], cause: tuple[str, ...]) -> None:
    """Handle a join on a connection that has joined already (protocol §2).

    The same identity gets a new welcome. A different one raises `InvalidRequest`.
    """
    space = transition.space
    request = read_join(values)
    if (
        request.participant not in {None, session.participant}
        or request.space not in {None, "default", space.settings.space_id}
        or not _is_own_token(transition, session, request.token)
    ):
        raise InvalidRequest(f"this connection has joined {space.settings.space_id!r} as {session.participant!r}")
    if session.observer:
        _welcome_observer(transition, session, cause)
    else:
        send_welcome(transition, session.participant, cause)


def _is_own_token(transition: Transition, session: Session, token: str | None) -> bool:
    """Whether a repeated token, if given, has the same identity. Any token of the participant is accepted."""
    if token is None:
        return True
    identity = transition.space.tokens.identify(token)
    if identity is None:
        return session.anonymous
    return identity == Identity(transition.space.settings.space_id, session.participant, session.observer)


def leave_connection(transition: Transition, command: Leave) -> None:
    """Handle a closed connection. A connection that was taken over has been removed before."""
    session = transition.space.sessions.get(command.connection)
    if session is not None:
        remove_connection(transition, session, reason=command.reason)


def remove_connection(
    transition: Transition, session: Session, reason: str | None = None, cause: tuple[str, ...] = ()
) -> None:
    """Remove a connection and notify the others, in the order of protocol §2.

    If the participant has an `output_log`, the log takes over and the participant stays present.
    """
    space, participant = transition.space, session.participant
    del space.sessions[session.connection]
    if session.observer:
        space.forget(session.allowance)
        return
    if _has_log(transition, session):
        log = log_session(participant)
        space.sessions[log.connection] = log
        space.connections[participant] = log.connection
        transition.effects.append(_admission(log))
        return
    known_as = space.roster_entry(participant)
    transition.record(records.LEFT, participant, reason=reason)
    space.forget(participant)
    announce_presence(transition, "leave", participant, cause, known_as=known_as, reason=reason)
    if session.anonymous:
        proposals.close_proposals_of(transition, participant)
    ownership.release_streams(transition, participant, cause)


def _has_log(transition: Transition, session: Session) -> bool:
    """Whether an `output_log` keeps the participant present after this connection closes; not after a kick."""
    return (
        session.transport != "virtual"
        and session.participant in transition.space.settings.output_logs
        and session.participant not in transition.space.state.kicked
    )


def remove_participant(
    transition: Transition, participant: str, code: int, reason: str, cause: tuple[str, ...] = ()
) -> None:
    """Close the connection of a participant, if it has one, and let the participant leave."""
    space = transition.space
    session = space.sessions.get(space.connections.get(participant, ""))
    if session is not None:
        transition.effects.append(Close(session.connection, code, reason))
        remove_connection(transition, session, reason, cause)


def end_due_presences(transition: Transition, _command: Tick) -> None:
    """Apply what is due by now: ends of pauses, shutdowns, HTTP presences and grace periods."""
    space = transition.space
    space.pass_time(transition.now)
    space.fill_frame_rates(transition.now)
    space.forget_rates(transition.now)
    space.refusal_details.forget(transition.now)
    administration.record_counted_refusals(transition)
    for participant in [name for name, until in space.state.closing.items() if until <= transition.now]:
        if space.sessions[space.connections[participant]].transport != "virtual":
            remove_participant(transition, participant, DONE, "shutdown")
    for participant in [name for name, until in space.http_expiry.items() if until <= transition.now]:
        remove_participant(transition, participant, DONE, "timeout")
    ownership.apply_grace_periods(transition)
