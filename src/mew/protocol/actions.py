"""Everything that a participant may send at this moment, and by what: which kinds, and what on which streams.

Pure, and for tools that offer somebody what they can do. It repeats no rule: kinds are matched by `capability`, rights
over a stream are told by `explain`. What a kind asks of its payload only shows once there is one.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.protocol import joining, kinds
from mew.protocol.authority import asked_as
from mew.protocol.capability import Capability, CapabilitySet
from mew.protocol.envelope import Envelope
from mew.protocol.errors import ParticipantNotFound, QuotaExceeded, Refusal
from mew.protocol.explain import as_if_present, right_over, session_of
from mew.protocol.receiving import DECIDED_BY_OWNERSHIP, NO_CAPABILITY
from mew.protocol.streams import LIVE, READY, Status, Stream
from mew.protocol.turn import Turn
from mew.protocol.work import KINDS_PER_UNIT, Work

if TYPE_CHECKING:
    from mew.protocol.space import Space

BY_CAPABILITY: Final = tuple(
    sorted(kind for kind in kinds.KINDS - NO_CAPABILITY - {kinds.JOIN} if not kinds.is_reserved(kind))
)
"""Every kind of the protocol for which a participant needs a capability."""
BY_OWNERSHIP: Final = tuple(sorted(DECIDED_BY_OWNERSHIP - {kinds.HEARTBEAT}))
"""Every kind about a stream for which it needs a right over that stream."""
_ONLY_WHILE: Final[dict[str, Status]] = {kinds.STREAM_START: READY, kinds.STREAM_DATA: LIVE}
"""What a stream takes in one of its states alone (protocol §4)."""


STREAM_UNITS: Final = 25
"""What it takes to say what may be sent on one stream, besides patterns."""
MOST_UNITS: Final = 50_000
"""What trying patterns may take for one answer."""


class AllowedKind(msgspec.Struct, frozen=True):
    """A kind that a capability is for."""

    kind: str
    capability: Capability
    source: str

    @property
    def is_conditional(self) -> bool:
        """Whether it depends on the payload or the recipients."""
        return not self.capability.is_plain


class AllowedOnStream(msgspec.Struct, frozen=True):
    """What may be sent about one stream."""

    stream_id: str
    kinds: tuple[str, ...]


class Actions(msgspec.Struct, frozen=True):
    """What a participant may send."""

    participant: str
    kinds: tuple[AllowedKind, ...] = ()
    streams: tuple[AllowedOnStream, ...] = ()
    """In order of creation; those on which it may nothing are left out."""
    refusal: Refusal | None = None
    """Why it may send nothing at all."""
    units: int = 0
    """What it took to find out (`work`)."""

    def answer(self) -> dict[str, Any]:
        """The body of an HTTP answer."""
        refusal = self.refusal
        return {
            "participant": self.participant,
            "error": None if refusal is None else refusal.code,
            "reason": None if refusal is None else refusal.message,
            "kinds": [
                {
                    "kind": each.kind,
                    "conditional": each.is_conditional,
                    "capability": each.capability.pattern,
                    "source": each.source,
                }
                for each in self.kinds
            ],
            "streams": [{"stream_id": each.stream_id, "kinds": each.kinds} for each in self.streams],
        }


def actions(space: "Space", participant: str, now: int) -> Actions:
    """What this participant may send now, present or not; whoever asks.

    `QuotaExceeded` where finding out takes over `MOST_UNITS`, or over what may be scanned for one message.
    """
    if not space.state.knows(participant):
        raise ParticipantNotFound(f"no participant {participant!r}", participant_id=participant)
    space = as_if_present(space, session_of(space, participant), now)
    try:
        joining.require_welcome(Turn(space, now), participant)
    except Refusal as refusal:
        return Actions(participant, refusal=refusal)
    space.pass_time(now)
    passing = kinds.ALLOWED_WHILE_PAUSED if space.is_muted(participant) else kinds.KINDS
    held = space.capabilities(participant)
    work = Work()
    work.add(len(held.sourced) * len(BY_CAPABILITY) // KINDS_PER_UNIT)
    offered = (_allowed(held, kind) for kind in BY_CAPABILITY if kind in passing)
    found = []
    for stream in space.state.streams.values():
        found.append((stream.stream_id, _on(space, stream, participant, work)))
        if work.is_exhausted or work.units > MOST_UNITS:
            message = f"{participant!r} holds too many patterns to list all that it may send; POST one message instead"
            raise QuotaExceeded(message, quota="listed_actions", limit=MOST_UNITS)
    return Actions(
        participant,
        tuple(each for each in offered if each is not None),
        tuple(
            AllowedOnStream(name, left)
            for name, rights in found
            if (left := tuple(kind for kind in rights if kind in passing))
        ),
        units=work.units + STREAM_UNITS * len(found),
    )


def _allowed(held: CapabilitySet, kind: str) -> AllowedKind | None:
    """The capability for a kind that a decision would name: one that asks for nothing else, where there is one."""
    fitting = [
        ((not capability.is_plain, number, capability.kind.exact != name), AllowedKind(kind, capability, source))
        for number, name in enumerate(asked_as(kind))
        for source, capability in held.sourced
        if capability.kind.matches(name)
    ]
    return min(fitting, key=lambda each: each[0])[1] if fitting else None


def _on(space: "Space", stream: Stream, participant: str, work: Work) -> list[str]:
    """The kinds for which somebody has a right over a stream, in its present state."""
    named = {"stream_id": stream.stream_id}

    def has_right(kind: str) -> bool:
        return right_over(space, stream, _about(participant, kind, named), work).source is not None

    # Who may end it in one way may end it in each: patterns are tried once.
    may_end = has_right(kinds.STREAM_CLOSE)
    return [
        kind
        for kind in BY_OWNERSHIP
        if _ONLY_WHILE.get(kind, stream.status) == stream.status
        and (may_end if kind in kinds.ENDINGS else has_right(kind))
    ]


def _about(sender: str, kind: str, payload: dict[str, Any]) -> Envelope:
    return Envelope(id="", ts="", sender=sender, kind=kind, payload=payload, fields={})
