"""Whether a message would be let through if its sender posted it now, by what right, or what came nearest.

Pure, and a rehearsal: the same code that handles a `Post` runs until something would take effect, on a space of which
nothing changes. It repeats no rule.
"""

from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from mew.protocol import joining, kinds
from mew.protocol.admission import is_join
from mew.protocol.authority import decide, managing
from mew.protocol.capability import Capability
from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidEnvelope, ParticipantNotFound, Refusal
from mew.protocol.nearest import Nearest, nearest_miss
from mew.protocol.proposing import is_own_withdrawal
from mew.protocol.receiving import DECIDED_BY_OWNERSHIP, Incoming
from mew.protocol.records import Record
from mew.protocol.references import reference
from mew.protocol.sessions import Session
from mew.protocol.state import Presence
from mew.protocol.streams import Stream
from mew.protocol.turn import Turn
from mew.protocol.work import Work

if TYPE_CHECKING:
    from mew.protocol.space import Space


class Right(msgspec.Struct, frozen=True):
    """By what somebody may send an envelope, as far as its kind and stream are concerned."""

    reason: str
    source: str | None = None
    """Where the capability comes from; `owner` or `writer` of the stream, `proposer`, `approvals`, `everyone`."""
    capability: Capability | None = None
    nearest: Nearest | None = None
    """Where a capability is needed and none fits."""


class Explanation(msgspec.Struct, frozen=True):
    """What would come of a message."""

    kind: str | None
    right: Right
    refusal: Refusal | None
    """None: it would be carried out."""
    units: int = 0
    """What it took to find out (`work`)."""

    def answer(self) -> dict[str, Any]:
        """The body of an HTTP answer. A right that is there although the message is refused is not what is missing."""
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
    """Nothing stands in the way any more."""


class _Rehearsal(Turn):
    """A turn that ends before anything takes effect."""

    __slots__ = ()

    def all_checked(self) -> NoReturn:
        raise _Passed


def _take_nothing(_record: Record) -> NoReturn:
    """In place of `Space.take`, by which alone a space changes."""
    raise _Passed


def explain(space: "Space", participant: str, message: bytes, now: int) -> Explanation:
    """What would come of this message of a participant's, whoever asks; its rate is neither heeded nor used."""
    if not space.state.knows(participant):
        raise ParticipantNotFound(f"no participant {participant!r}", participant_id=participant)
    session = session_of(space, participant)
    turn = _Rehearsal(as_if_present(space, session, now), now)
    incoming = Incoming(turn, participant, message)
    refusal = None
    try:
        with suppress(_Passed):
            _rehearse(turn, session, incoming)
    except Refusal as refused:
        refusal = refused
    if incoming.envelope is None:
        joins = is_join(incoming.values)
        return Explanation(kinds.JOIN if joins else None, _EVERYONE if joins else _NOTHING, refusal, incoming.units)
    work = Work()
    right = _right(turn.space, incoming.envelope, work, now)
    return Explanation(incoming.envelope.kind, right, refusal, incoming.units + work.units)


def session_of(space: "Space", participant: str) -> Session:
    """The participant's connection; posting makes one where there is none (protocol §5)."""
    seat = space.seats.get(participant)
    if seat is not None:
        return space.sessions[seat]
    return Session(connection=f"http:{participant}", participant=participant, transport="http")


def as_if_present(space: "Space", session: Session, now: int) -> "Space":
    """A space that shares everything with this one, but that somebody is present, that no record is taken, and that
    grants have ended which are due: a message settles those before it is looked at.
    """
    twin, state = copy(space), space.state
    present = {session.participant: Presence(session.transport), **state.present}
    twin.state = msgspec.structs.replace(state, present=present)
    vars(twin)["take"] = _take_nothing
    due = {
        recipient: {grant_id for grant_id, end in ends.items() if end <= now}
        for recipient, ends in state.grant_ends.items()
    }
    if any(due.values()):
        _end_grants(twin, due)
    return twin


def _end_grants(twin: "Space", due: dict[str, set[str]]) -> None:
    state, none = twin.state, frozenset[str]()
    twin.state = msgspec.structs.replace(
        state,
        grants={
            name: tuple(each for each in held if each.grant_id not in due.get(name, none))
            for name, held in state.grants.items()
        },
        grant_ends={
            name: {grant_id: end for grant_id, end in ends.items() if grant_id not in due[name]}
            for name, ends in state.grant_ends.items()
        },
    )
    twin.compile_again()


def _rehearse(turn: Turn, session: Session, incoming: Incoming) -> None:
    """As `receiving.post` does it."""
    joining.require_welcome(turn, session.participant)
    turn.space.pass_time(turn.now)
    incoming.refuse_frame()
    incoming.carry_out(session, counted=False)


_EVERYONE = Right("everybody may send it", "everyone")
_DECIDER = Right("the space's approval rules decide who may vote", "approvals")
_PROPOSER = Right("it is the sender's own proposal", "proposer")
_NOTHING = Right("it is no envelope")


def _right(space: "Space", envelope: Envelope, work: Work, now: int) -> Right:
    """Of a stream there is, its owner and writers decide; of everything else, capabilities (protocol §4, Who may)."""
    if envelope.kind == kinds.HEARTBEAT:
        return _EVERYONE
    if envelope.kind == kinds.MCP_APPROVE:
        return _DECIDER
    if envelope.kind == kinds.MCP_WITHDRAW and is_own_withdrawal(space, envelope, now):
        return _PROPOSER
    stream = _named_stream(space, envelope)
    if envelope.kind in DECIDED_BY_OWNERSHIP and stream is not None:
        return right_over(space, stream, envelope, work)
    if envelope.kind in DECIDED_BY_OWNERSHIP and envelope.kind != kinds.STREAM_CLOSE:
        return Right("it names no stream")
    decision = decide(space, envelope, work)
    near = None if decision.allowed else nearest_miss(space.capabilities(envelope.sender), envelope, work)
    return Right(decision.reason, decision.source, decision.capability, near)


def _named_stream(space: "Space", envelope: Envelope) -> Stream | None:
    with suppress(InvalidEnvelope):
        named = reference(envelope)
        return None if named is None else space.state.streams.get(named)
    return None


def right_over(space: "Space", stream: Stream, envelope: Envelope, work: Work) -> Right:
    """By what somebody may send an envelope about this stream (protocol §4, Who may)."""
    sender, name = envelope.sender, stream.stream_id
    if sender == stream.owner:
        return Right(f"{sender!r} owns {name!r}", "owner")
    if envelope.kind == kinds.STREAM_DATA and sender in stream.writers:
        return Right(f"{sender!r} is an authorised writer of {name!r}", "writer")
    held = managing(space, envelope, work) if envelope.kind in kinds.ENDINGS else None
    if held is None:
        return Right(f"{sender!r} has no right over {name!r}")
    source, capability = held
    return Right(f"allowed by {capability.text.decode()}", source, capability)
