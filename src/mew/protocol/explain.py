"""A dry run of one message, and the list of everything that a participant may send now.

Pure. The dry run executes the code that handles a `Post`, on a copy of the space, until the first effect. It therefore
does not duplicate any rule.
"""

from contextlib import suppress
from typing import Any, Final, NoReturn

import msgspec

from mew.protocol import kinds
from mew.protocol.authentication import Session, http_session, is_join
from mew.protocol.authorization import (
    REQUIRED_STATUS,
    NearestMiss,
    authority_over,
    checked_kinds,
    decide,
    is_decided_by_ownership,
    nearest_miss,
)
from mew.protocol.capabilities import Capability, CapabilitySet
from mew.protocol.dispatch import IncomingMessage
from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidEnvelope, ParticipantNotFound, ProtocolError, QuotaExceeded
from mew.protocol.handlers import presence
from mew.protocol.handlers.proposals import is_own_withdrawal
from mew.protocol.records import Record
from mew.protocol.space import SpaceCore
from mew.protocol.state import Presence, SpaceState
from mew.protocol.streams import StreamEntry, referenced_stream_id
from mew.protocol.transition import Transition
from mew.protocol.work import KINDS_PER_UNIT, Work


class Authorization(msgspec.Struct, frozen=True):
    """On what authority a participant may send an envelope, as far as its kind and stream are concerned."""

    reason: str
    source: str | None = None
    """Source of the capability, or `owner`, `writer` (of the stream), `proposer`, `approvals`, `everyone`."""
    capability: Capability | None = None
    nearest: NearestMiss | None = None
    """The closest capability, if one is needed and none matches."""


class Explanation(msgspec.Struct, frozen=True):
    """The result of a dry run."""

    kind: str | None
    right: Authorization
    refusal: ProtocolError | None
    """The error; None if the message would be carried out."""
    units: int = 0
    """Units of work that the dry run took (`work`)."""

    def answer(self) -> dict[str, Any]:
        """The body of the HTTP response.

        A rejected message may still have a capability or source. The rejection then has another reason.
        """
        right, refusal, near = self.right, self.refusal, self.right.nearest
        return {
            "allowed": refusal is None,
            "kind": self.kind,
            "error": None if refusal is None else refusal.code,
            "reason": right.reason if refusal is None else refusal.message,
            "capability": None if right.capability is None else right.capability.pattern,
            "source": right.source,
            "nearest": None
            if near is None
            else {"capability": near.capability.pattern, "source": near.source, "why": near.why},
        }


class _Passed(Exception):
    """Raised when all checks have passed."""


def _stop(_record: Record) -> NoReturn:
    """End the dry run. Nothing takes effect before the first record."""
    raise _Passed


class _DryRun(Transition):
    """A transition that stops before anything takes effect."""

    __slots__ = ()

    def __init__(self, space: SpaceCore, now: int) -> None:
        super().__init__(space, now, _stop)

    def all_checked(self) -> NoReturn:
        raise _Passed


def explain_message(space: SpaceCore, participant: str, message: bytes, now: int) -> Explanation:
    """Return whether this message of a participant would be accepted now, and why (protocol §5). Nothing changes.

    The rate of the participant is neither checked nor used up. Raises `ParticipantNotFound` for an unknown participant.
    """
    if not space.state.knows(participant):
        raise ParticipantNotFound(f"no participant {participant!r}", participant_id=participant)
    now, session = space.time_at(now), _session_of(space, participant)
    transition = _DryRun(_as_if_present(space, session, now), now)
    incoming = IncomingMessage(transition, participant, message)
    refusal = None
    try:
        with suppress(_Passed):
            _run_checks(transition, session, incoming)
    except ProtocolError as refused:
        refusal = refused
    if incoming.envelope is None:
        joins = is_join(incoming.values)
        return Explanation(kinds.JOIN if joins else None, _EVERYONE if joins else _NOTHING, refusal, incoming.units)
    work = Work()
    right = _right(transition.space, incoming.envelope, work, now)
    return Explanation(incoming.envelope.kind, right, refusal, incoming.units + work.units)


def _session_of(space: SpaceCore, participant: str) -> Session:
    """The session of the participant. If there is none, the one that a post would create (protocol §5)."""
    seat = space.connections.get(participant)
    if seat is not None:
        return space.sessions[seat]
    return http_session(participant)


def _as_if_present(space: SpaceCore, session: Session, now: int) -> SpaceCore:
    """Return a copy of the space in which the participant is present and due grants have ended.

    Due grants end first, because handling a real message also ends them before the checks.
    """
    state = space.state
    present = {session.participant: Presence(session.transport), **state.present}
    due = {
        recipient: {grant_id for grant_id, end in ends.items() if end <= now}
        for recipient, ends in state.grant_ends.items()
    }
    if any(due.values()):
        state = _without_grants(state, due)
    return space.in_state(msgspec.structs.replace(state, present=present))


def _without_grants(state: SpaceState, due: dict[str, set[str]]) -> SpaceState:
    none = frozenset[str]()
    return msgspec.structs.replace(
        state,
        grants={
            recipient: tuple(grant for grant in grants if grant.grant_id not in due.get(recipient, none))
            for recipient, grants in state.grants.items()
        },
        grant_ends={
            recipient: {grant_id: end for grant_id, end in ends.items() if grant_id not in due[recipient]}
            for recipient, ends in state.grant_ends.items()
        },
    )


def _run_checks(transition: Transition, session: Session, incoming: IncomingMessage) -> None:
    """Run the same steps as `dispatch.post_message`."""
    presence.require_not_kicked(transition, session.participant)
    transition.space.pass_time(transition.now)
    incoming.refuse_frame()
    incoming.carry_out(session, counted=False)


_EVERYONE = Authorization("every participant may send it", "everyone")
_DECIDER = Authorization("the space's approval rules decide who may vote", "approvals")
_PROPOSER = Authorization("it is the sender's own proposal", "proposer")
_NOTHING = Authorization("it is not an envelope")


def _right(space: SpaceCore, envelope: Envelope, work: Work, now: int) -> Authorization:
    """Return the authority for an envelope (protocol §4, Who may).

    For an existing stream, its owner and writers decide. For everything else, capabilities decide.
    """
    if envelope.kind == kinds.HEARTBEAT:
        return _EVERYONE
    if envelope.kind == kinds.MCP_APPROVE:
        return _DECIDER
    if envelope.kind == kinds.MCP_WITHDRAW and is_own_withdrawal(space.state, envelope, now):
        return _PROPOSER
    stream = _named_stream(space, envelope)
    if is_decided_by_ownership(envelope.kind, stream):
        if stream is None:
            return Authorization("it names no stream")
        return _right_over(space, stream, envelope, work)
    decision = decide(space, envelope, work)
    near = None if decision.allowed else nearest_miss(space.capabilities(envelope.sender), envelope, work)
    return Authorization(decision.reason, decision.source, decision.capability, near)


def _named_stream(space: SpaceCore, envelope: Envelope) -> StreamEntry | None:
    with suppress(InvalidEnvelope):
        stream_id = referenced_stream_id(envelope)
        return None if stream_id is None else space.state.streams.get(stream_id)
    return None


def _right_over(space: SpaceCore, stream: StreamEntry, envelope: Envelope, work: Work) -> Authorization:
    """Describe on what authority a participant may send an envelope about this stream."""
    sender, stream_id = envelope.sender, stream.stream_id
    authority = authority_over(stream, envelope, space, work)
    if authority is None:
        return Authorization(f"{sender!r} has no permission for {stream_id!r}")
    if authority.capability is not None:
        reason = f"allowed by {authority.capability.text.decode()}"
    elif authority.source == "owner":
        reason = f"{sender!r} owns {stream_id!r}"
    else:
        reason = f"{sender!r} is an authorised writer of {stream_id!r}"
    return Authorization(reason, authority.source, authority.capability)


BY_CAPABILITY: Final = tuple(
    sorted(kind for kind in kinds.KINDS - kinds.NO_CAPABILITY - {kinds.JOIN} if not kinds.is_reserved_kind(kind))
)
"""All kinds of the protocol that require a capability."""
BY_OWNERSHIP: Final = tuple(sorted(kinds.DECIDED_BY_OWNERSHIP - {kinds.HEARTBEAT}))
"""All kinds about a stream that require a permission for that stream."""


STREAM_UNITS: Final = 25
"""Units of work to list the permissions for one stream, in addition to patterns."""
MAX_UNITS: Final = 50_000
"""Maximum units of work for trying patterns in one answer."""


class AllowedKind(msgspec.Struct, frozen=True):
    """A kind that a capability allows."""

    kind: str
    capability: Capability
    source: str

    @property
    def is_conditional(self) -> bool:
        """Whether it depends on the payload or the recipients."""
        return not self.capability.is_plain


class AllowedOnStream(msgspec.Struct, frozen=True):
    """The kinds that may be sent about one stream."""

    stream_id: str
    kinds: tuple[str, ...]


class Actions(msgspec.Struct, frozen=True):
    """Everything that a participant may send."""

    participant: str
    kinds: tuple[AllowedKind, ...] = ()
    streams: tuple[AllowedOnStream, ...] = ()
    """In order of creation. Streams without any permitted kind are left out."""
    refusal: ProtocolError | None = None
    """The reason why it may send nothing at all."""
    units: int = 0
    """Units of work that it took to build the list (`work`)."""

    def answer(self) -> dict[str, Any]:
        """The body of the HTTP response."""
        refusal = self.refusal
        return {
            "participant": self.participant,
            "error": None if refusal is None else refusal.code,
            "reason": None if refusal is None else refusal.message,
            "kinds": [
                {
                    "kind": entry.kind,
                    "conditional": entry.is_conditional,
                    "capability": entry.capability.pattern,
                    "source": entry.source,
                }
                for entry in self.kinds
            ],
            "streams": [{"stream_id": entry.stream_id, "kinds": entry.kinds} for entry in self.streams],
        }


def list_actions(space: SpaceCore, participant: str, now: int) -> Actions:
    """Return everything that a participant may send now (protocol §5), whether it is present or not.

    Raises `QuotaExceeded` if this takes more than `MAX_UNITS`, or more than may be scanned for one message, and
    `ParticipantNotFound` for an unknown participant.
    """
    if not space.state.knows(participant):
        raise ParticipantNotFound(f"no participant {participant!r}", participant_id=participant)
    now = space.time_at(now)
    space = _as_if_present(space, _session_of(space, participant), now)
    try:
        presence.require_not_kicked(_DryRun(space, now), participant)
    except ProtocolError as refusal:
        return Actions(participant, refusal=refusal)
    space.pass_time(now)
    passing = kinds.ALLOWED_WHILE_PAUSED if space.is_muted(participant) else kinds.KINDS
    capabilities = space.capabilities(participant)
    work = Work()
    work.add(len(capabilities.sourced) * len(BY_CAPABILITY) // KINDS_PER_UNIT)
    offered = (_allowed(capabilities, kind) for kind in BY_CAPABILITY if kind in passing)
    on_streams = []
    for stream in space.state.streams.values():
        on_streams.append((stream.stream_id, _on(space, stream, participant, work)))
        if work.is_exhausted or work.units > MAX_UNITS:
            message = f"{participant!r} holds too many patterns to list all that it may send; POST one message instead"
            raise QuotaExceeded(message, quota="listed_actions", limit=MAX_UNITS)
    return Actions(
        participant,
        tuple(entry for entry in offered if entry is not None),
        tuple(
            AllowedOnStream(name, left)
            for name, rights in on_streams
            if (left := tuple(kind for kind in rights if kind in passing))
        ),
        units=work.units + STREAM_UNITS * len(on_streams),
    )


def _allowed(capabilities: CapabilitySet, kind: str) -> AllowedKind | None:
    """Return the capability for a kind that a decision would name, or None. One without conditions is preferred."""
    fitting = [
        ((not capability.is_plain, number, capability.kind.exact != name), AllowedKind(kind, capability, source))
        for number, name in enumerate(checked_kinds(kind))
        for source, capability in capabilities.sourced
        if capability.kind.matches(name)
    ]
    return min(fitting, key=lambda ranked: ranked[0])[1] if fitting else None


def _on(space: SpaceCore, stream: StreamEntry, participant: str, work: Work) -> list[str]:
    """Return the kinds about a stream that a participant may send in the current state of the stream."""
    payload = {"stream_id": stream.stream_id}

    def has_right(kind: str) -> bool:
        return authority_over(stream, _about(participant, kind, payload), space, work) is not None

    # A participant that may end a stream in one way may end it in every way, so patterns are tried once.
    may_end = has_right(kinds.STREAM_CLOSE)
    return [
        kind
        for kind in BY_OWNERSHIP
        if REQUIRED_STATUS.get(kind, stream.status) == stream.status
        and (may_end if kind in kinds.ENDINGS else has_right(kind))
    ]


def _about(sender: str, kind: str, payload: dict[str, Any]) -> Envelope:
    return Envelope(id="", ts="", sender=sender, kind=kind, payload=payload, fields={})
