"""Start, join, takeover, leave and tick: which participants are present, and what the others receive (protocol §2).

Pure. `authentication` has established the identity before a `Join` arrives here.
"""

from typing import Any

from mew.protocol import kinds, raw_json, records
from mew.protocol.authentication import Identity, Session, read_join
from mew.protocol.commands import AttachOutputLog, Checkpoint, Join, Leave, RefuseConnection, Start, Tick
from mew.protocol.effects import Admit, AllExcept, Close, OneConnection, Recipients
from mew.protocol.errors import InvalidRequest, JoinRateLimited, Kicked, ProtocolError, RateLimited, TooManyConnections
from mew.protocol.handlers import administration, ownership, proposals
from mew.protocol.state import snapshot
from mew.protocol.timestamps import SECOND
from mew.protocol.transition import GatewayMessage, Transition
from mew.protocol.welcome import observer_payload, welcome_payload
from mew.protocol.work import JOIN_UNITS

TAKEN_OVER = 4409
REMOVED = 4403
DONE = 1000


def start(turn: Transition, command: Start) -> None:
    """Begin a new epoch. Streams whose owner can never return do not continue in the new epoch."""
    space = turn.space
    before = administration.last_configuration(space.state)
    payload = {"epoch": command.epoch, **space.settings.effective()}
    text = raw_json.encode(payload)
    turn.record(records.START, kinds.GATEWAY, size=len(text), payload=text)
    administration.configuration_changed(turn, before)
    space.pass_time(turn.now)
    ownership.await_writers(turn)
    ownership.settle_absent(turn)


def checkpoint(turn: Transition, _command: Checkpoint) -> None:
    """Record the whole state as a checkpoint. A reader of the journal may start here (architecture, Journal)."""
    administration.record_counted(turn, early=True)
    text = snapshot(turn.space.state)
    turn.record(records.CHECKPOINT, kinds.GATEWAY, size=len(text), payload=text)


def join(turn: Transition, command: Join) -> None:
    """Admit a connection: snapshot, registration and welcome are one step. A refused connection is closed."""
    space = turn.space
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
        _pay_for_join(turn, session)
        if not command.observer:
            require_not_kicked(turn, command.participant)
        _require_room(turn, session)
    except ProtocolError as refusal:
        if command.peer is not None:
            administration.refuse_connection(
                turn,
                RefuseConnection(
                    error=refusal.code,
                    peer=command.peer,
                    source=command.source,
                    transport="websocket",
                    participant=command.participant,
                ),
            )
        turn.send_error(OneConnection(command.connection), command.participant, refusal, command.cause)
        turn.effects.append(Close(command.connection, refusal.close_code or DONE, refusal.code))
        return
    if command.observer:
        administration.joined(turn, session, command.peer)
        space.sessions[session.connection] = session
        turn.effects.append(_admission(session))
        _welcome_observer(turn, session, command.cause)
    else:
        administration.joined(turn, session, command.peer)
        _enter(turn, session, command.cause)


def _require_room(turn: Transition, session: Session) -> None:
    """Raise `TooManyConnections` if there is no room for another connection.

    Observers and participants without a token leave a tenth of the connections to others.
    """
    space, limits = turn.space, turn.space.settings.limits
    if session.observer:
        own = sum(each.observer and each.participant == session.participant for each in space.sessions.values())
        if own >= limits.sockets_per_observer:
            raise TooManyConnections(
                f"{session.participant!r} has {own} sockets, the most that one observer token may",
                quota="sockets_per_observer",
                limit=limits.sockets_per_observer,
                value=own + 1,
            )
    elif session.participant in space.seats:
        return
    limit = limits.connections
    if session.observer or session.anonymous:
        limit -= limit // 10
    if len(space.sessions) >= limit:
        raise TooManyConnections(
            f"the space has {limit} connections, the most it may", quota="connections", limit=limit, value=limit + 1
        )


def _pay_for_join(turn: Transition, session: Session) -> None:
    """Charge for a join, or raise `JoinRateLimited` if the payer is over a budget.

    Reconnecting costs work and does not reset the budgets.
    """
    space = turn.space
    try:
        space.budgets.require(session.payer, space.settings.limits, turn.now)
    except RateLimited as refusal:
        raise JoinRateLimited(refusal.message, **refusal.parts) from None
    space.charge(session.payer, turn.now, work=JOIN_UNITS, size=0)


def require_not_kicked(turn: Transition, participant: str) -> None:
    """Raise `Kicked` if the participant was removed and has not been invited again (protocol §3)."""
    if participant in turn.space.state.kicked:
        raise Kicked(f"{participant!r} was removed from {turn.space.settings.space_id!r}")


def attach(turn: Transition, command: AttachOutputLog) -> None:
    """Connect an `output_log` participant if it is not connected already."""
    if command.participant not in turn.space.seats and command.participant not in turn.space.state.kicked:
        _enter(turn, _log_session(command.participant))


def ensure_present(turn: Transition, participant: str, peer: str | None) -> Session:
    """Make a participant that uses the HTTP API present, and return its session (protocol §5)."""
    space = turn.space
    require_not_kicked(turn, participant)
    if participant in space.settings.output_logs:
        attach(turn, AttachOutputLog(participant))
    elif participant not in space.seats:
        session = Session(connection=f"http:{participant}", participant=participant, transport="http")
        administration.joined(turn, session, peer)
        _enter(turn, session)
    session = space.sessions[space.seats[participant]]
    if session.transport == "http":
        space.http_until[participant] = turn.now + round(space.settings.http_presence_seconds * SECOND)
    return session


def _enter(turn: Transition, session: Session, cause: tuple[str, ...] = ()) -> None:
    """Register the connection of a participant. Close its previous connection; in that case no join is announced."""
    space = turn.space
    replaced = space.sessions.get(space.seats.get(session.participant, ""))
    if replaced is not None:
        space.http_until.pop(session.participant, None)
        del space.sessions[replaced.connection]
        turn.effects.append(Close(replaced.connection, TAKEN_OVER, "another connection took over"))
    space.sessions[session.connection] = session
    space.seats[session.participant] = session.connection
    joined: dict[str, Any] = {"transport": session.transport}
    if session.anonymous:
        joined["anonymous"] = True
    reason = None if replaced is None else "takeover"
    turn.record(records.JOINED, session.participant, reason=reason, payload=raw_json.encode(joined))
    turn.effects.append(_admission(session))
    welcome(turn, session.participant, cause)
    if replaced is None:
        tell_presence(turn, "join", session.participant)


def _log_session(participant: str) -> Session:
    return Session(connection=f"log:{participant}", participant=participant, transport="virtual")


def _admission(session: Session) -> Admit:
    return Admit(
        connection=session.connection,
        participant=session.participant,
        transport=session.transport,
        observer=session.observer,
    )


def welcome(turn: Transition, participant: str, cause: tuple[str, ...] = ()) -> None:
    """Send a participant a welcome with the current state of the space."""
    space = turn.space
    payload = welcome_payload(space.state, participant, space.capabilities(participant), space.roster)
    saying = GatewayMessage(
        kind=kinds.WELCOME, payload=payload, audience=Recipients((participant,)), to=(participant,), cause=cause
    )
    turn.say(saying, records.WELCOMED, participant=participant)


def _welcome_observer(turn: Transition, session: Session, cause: tuple[str, ...] = ()) -> None:
    space = turn.space
    payload = observer_payload(space.state, session.participant, space.roster)
    audience, to = OneConnection(session.connection), (session.participant,)
    saying = GatewayMessage(kind=kinds.WELCOME, payload=payload, audience=audience, to=to, cause=cause)
    turn.say(saying, records.WELCOMED, participant=session.participant, reason="observer")


def tell_presence(turn: Transition, event: str, participant: str, cause: tuple[str, ...] = (), **parts: Any) -> None:
    """Send a presence event to all except the participant that it is about.

    `but` names another participant to leave out instead. `known_as` is an earlier roster entry of the participant.
    """
    left_out = parts.pop("but", participant)
    known_as = parts.pop("known_as", None) or turn.space.roster_entry(participant)
    told = {name: raw_json.encode(value) for name, value in parts.items() if value is not None}
    payload = raw_json.join({"event": raw_json.encode(event), "participant": known_as, **told})
    saying = GatewayMessage(kind=kinds.PRESENCE, payload=payload, audience=AllExcept(left_out), cause=cause)
    turn.say(saying, reason=parts.get("reason"))


def rejoin(turn: Transition, session: Session, values: dict[str, Any], cause: tuple[str, ...]) -> None:
    """Handle a join on a connection that has joined already (protocol §2).

    The same identity gets a new welcome. A different one raises `InvalidRequest`.
    """
    space = turn.space
    request = read_join(values)
    if (
        request.participant not in {None, session.participant}
        or request.space not in {None, "default", space.settings.space_id}
        or not _is_own_token(turn, session, request.token)
    ):
        raise InvalidRequest(f"this connection has joined {space.settings.space_id!r} as {session.participant!r}")
    if session.observer:
        _welcome_observer(turn, session, cause)
    else:
        welcome(turn, session.participant, cause)


def _is_own_token(turn: Transition, session: Session, token: str | None) -> bool:
    """Whether a repeated token, if given, has the same identity. Any token of the participant is accepted."""
    if token is None:
        return True
    identity = turn.space.tokens.identify(token)
    if identity is None:
        return session.anonymous
    return identity == Identity(turn.space.settings.space_id, session.participant, session.observer)


def leave(turn: Transition, command: Leave) -> None:
    """Handle a closed connection. A connection that was taken over has been removed before."""
    session = turn.space.sessions.get(command.connection)
    if session is not None:
        depart(turn, session, reason=command.reason)


def depart(turn: Transition, session: Session, reason: str | None = None, cause: tuple[str, ...] = ()) -> None:
    """Remove a connection and notify the others, in the order of protocol §2.

    If the participant has an `output_log`, the log takes over and the participant stays present.
    """
    space, participant = turn.space, session.participant
    del space.sessions[session.connection]
    if session.observer:
        space.forget(session.allowance)
        return
    if _has_log(turn, session):
        log = _log_session(participant)
        space.sessions[log.connection] = log
        space.seats[participant] = log.connection
        turn.effects.append(_admission(log))
        return
    known_as = space.roster_entry(participant)
    turn.record(records.LEFT, participant, reason=reason)
    space.forget(participant)
    tell_presence(turn, "leave", participant, cause, known_as=known_as, reason=reason)
    if session.anonymous:
        proposals.close_all_of(turn, participant)
    ownership.release(turn, participant, cause)


def _has_log(turn: Transition, session: Session) -> bool:
    """Whether an `output_log` keeps the participant present after this connection closes; not after a kick."""
    return (
        session.transport != "virtual"
        and session.participant in turn.space.settings.output_logs
        and session.participant not in turn.space.state.kicked
    )


def remove(turn: Transition, participant: str, code: int, reason: str, cause: tuple[str, ...] = ()) -> None:
    """Close the connection of a participant, if it has one, and let the participant leave."""
    space = turn.space
    session = space.sessions.get(space.seats.get(participant, ""))
    if session is not None:
        turn.effects.append(Close(session.connection, code, reason))
        depart(turn, session, reason, cause)


def tick(turn: Transition, _command: Tick) -> None:
    """Apply what is due by now: ends of pauses, shutdowns, HTTP presences and grace periods."""
    space = turn.space
    space.pass_time(turn.now)
    space.fill_frame_rates(turn.now)
    space.forget_rates(turn.now)
    space.refusal_details.forget(turn.now)
    administration.record_counted(turn)
    for participant in [name for name, until in space.state.closing.items() if until <= turn.now]:
        if not space.seats[participant].startswith("log:"):
            remove(turn, participant, DONE, "shutdown")
    for participant in [name for name, until in space.http_until.items() if until <= turn.now]:
        remove(turn, participant, DONE, "timeout")
    ownership.settle_absent(turn)
