"""Proposals in the state of a space: open ones, recently closed ones, and the records that change them.

Pure. Only records with the gateway's stamp count. A stamp names the position of its own record, or of an open proposal
with the same digest. `handlers.proposals` decides which participants may open or close a proposal.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.records import Record
from mew.protocol.timestamps import SECOND, instant, rfc3339
from mew.protocol.work import ScannedTooMuch, Work

if TYPE_CHECKING:
    from mew.protocol.capabilities import CapabilitySet
    from mew.protocol.state import SpaceState


PROPOSAL_BYTES: Final = 2**20
"""Maximum size of one proposal: its payload and its recipients."""
METHOD_LENGTH: Final = 256
RECIPIENT_BYTES: Final = 4 * 2**10
"""The method and the recipients of every open proposal are part of each welcome."""
OPEN_PER_PROPOSER: Final = 64
BYTES_PER_PROPOSER: Final = 4 * 2**20
OPEN_PER_SPACE: Final = 512
BYTES_PER_SPACE: Final = 16 * 2**20
REMEMBERED_SECONDS: Final = 3_600
REMEMBERED_PER_PROPOSER: Final = 1_024
REMEMBERED_PER_SPACE: Final = 100_000

FULFILLED: Final = "fulfilled"
REJECTED: Final = "rejected"
WITHDRAWN: Final = "withdrawn"
EXPIRED: Final = "expired"
DROPPED: Final = "dropped"
KICKED: Final = "kicked"
LEFT: Final = "left"
OUTCOMES: Final = (FULFILLED, REJECTED, WITHDRAWN, EXPIRED, DROPPED, KICKED, LEFT)
_ENDS: Final = {
    kinds.MCP_REQUEST: FULFILLED,
    kinds.MCP_RESPONSE: FULFILLED,
    kinds.MCP_REJECT: REJECTED,
    kinds.MCP_WITHDRAW: WITHDRAWN,
}


class OpenProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that may still be fulfilled."""

    position: int
    """Position of its record. It identifies the proposal for the lifetime of the space."""
    proposal_id: str
    proposer: str
    anonymous: bool
    """Whether its proposer has no token and therefore cannot return under its identity."""
    to: tuple[str, ...]
    method: str
    digest: str
    opened: int
    expires: int
    payload: bytes
    votes: tuple[str, ...] = ()
    """Participants that have approved it, in order of their votes. Votes are counted again when it is fulfilled."""

    size: int = 0
    """Bytes that count towards the limits. Computed once, because each further proposal adds them up."""

    def __post_init__(self) -> None:
        """Compute the size if it is not given."""
        if not self.size:
            msgspec.structs.force_setattr(self, "size", size_of(self.payload, self.to))

    def stamp(self) -> bytes:
        """The field `proposal` of envelopes about this proposal."""
        return raw_json.encode({"position": self.position, "digest": self.digest})

    def entry(self) -> dict[str, Any]:
        """Its entry in `open_proposals`: everything except the payload."""
        return {
            "position": self.position,
            "id": self.proposal_id,
            "from": self.proposer,
            "to": self.to,
            "method": self.method,
            "digest": self.digest,
            "expires_at": rfc3339(self.expires),
            "bytes": len(self.payload),
            "votes": self.votes,
        }

    def content(self) -> bytes:
        """The complete proposal, as returned over HTTP."""
        return raw_json.join({**raw_json.split(raw_json.encode(self.entry())), "payload": self.payload})


class ClosedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that can no longer be fulfilled. It is remembered so that a retry receives the outcome."""

    position: int
    proposal_id: str
    proposer: str
    outcome: str
    by: str
    request: str | None
    """Id of the envelope that closed it; None if no participant closed it."""
    closed: int


class ProposalStamp(msgspec.Struct, frozen=True):
    """The content that the gateway writes into the field `proposal` of an envelope."""

    position: int
    digest: str
    expires_at: str | None = None


class Claim(msgspec.Struct, frozen=True):
    """The proposal that a participant refers to, and the digest that it has seen."""

    position: int
    digest: str


def read_claim(envelope: Envelope) -> Claim | None:
    """Return the proposal that the sender of a request or a vote refers to; None if it sent no reference."""
    claim: Claim | None = read_proposal_field(envelope, Claim)
    return claim


def read_proposal_field(envelope: Envelope, struct: type[Any]) -> Any:
    """Decode the field `proposal`; None if it is missing. Raises `InvalidEnvelope` if it is malformed."""
    try:
        return msgspec.json.decode(envelope.fields.get(kinds.PROPOSAL_FIELD, b"null"), type=struct | None)
    except msgspec.ValidationError as error:
        error_text = str(error).replace("$.", "proposal.")
        raise InvalidEnvelope(f"{envelope.kind}: {error_text}") from None


def size_of(payload: bytes, to: tuple[str, ...]) -> int:
    """Bytes of a proposal that count towards the limits."""
    return len(payload) + len(raw_json.encode(to))


def find(state: "SpaceState", proposal_id: str, now: int) -> OpenProposal | ClosedProposal | None:
    """Return the proposal with this id while it is open or remembered."""
    known = state.proposals.get(proposal_id)
    if known is not None:
        return known
    closed = state.closed_proposals.get(proposal_id)
    return closed if closed is not None and now < closed.closed + REMEMBERED_SECONDS * SECOND else None


def at_position(state: "SpaceState", position: int, now: int) -> OpenProposal | ClosedProposal | None:
    """Return the proposal whose record has this position, while it is open or remembered."""
    still_open = next((each for each in state.proposals.values() if each.position == position), None)
    if still_open is not None:
        return still_open
    name = state.closed_positions.get(position)
    return None if name is None else find(state, name, now)


# Changes by records


def opened(state: "SpaceState", record: Record) -> None:
    """Apply an `mcp/proposal` with a stamp from the gateway: open the proposal."""
    fields = _stamped_fields(record)
    stamp = _stamp(fields)
    if stamp is None or stamp.position != record.position:
        return
    payload, expires = fields.get("payload", b"{}"), instant(str(stamp.expires_at))
    method, presence = raw_json.decode(payload).get("method"), state.present.get(record.participant)
    if expires is None or presence is None or not isinstance(method, str) or record.envelope_id in state.proposals:
        return
    forgotten = state.closed_proposals.pop(str(record.envelope_id), None)
    if forgotten is not None:
        _forget_one(state, forgotten)
    state.proposals[str(record.envelope_id)] = OpenProposal(
        position=record.position,
        proposal_id=str(record.envelope_id),
        proposer=record.participant,
        anonymous=presence.anonymous,
        to=tuple(raw_json.decode(fields.get("to", b"null")) or ()),
        method=method,
        digest=stamp.digest,
        opened=record.time,
        expires=expires,
        payload=payload,
    )


def fulfilled(state: "SpaceState", record: Record) -> None:
    """Apply an `mcp/request` or `mcp/response` with a stamp."""
    _closed_by(state, record, FULFILLED)


def rejected(state: "SpaceState", record: Record) -> None:
    """Apply an `mcp/reject` with a stamp."""
    _closed_by(state, record, REJECTED)


def withdrawn(state: "SpaceState", record: Record) -> None:
    """Apply an `mcp/withdraw` with a stamp."""
    _closed_by(state, record, WITHDRAWN)


def approved(state: "SpaceState", record: Record) -> None:
    """Apply an `mcp/approve` with a stamp: the vote of its sender. A second vote has no effect."""
    proposal = _stamped_proposal(state, record)
    if proposal is not None and record.participant not in proposal.votes:
        votes = (*proposal.votes, record.participant)
        state.proposals[proposal.proposal_id] = msgspec.structs.replace(proposal, votes=votes)


def ended(state: "SpaceState", record: Record) -> None:
    """Apply the gateway's `mcp/proposal-closed`: an end that no participant sent."""
    payload = raw_json.decode(record.payload)["payload"]
    proposal = state.proposals.get(payload["proposal"])
    if proposal is not None:
        _close(state, proposal, payload["outcome"], record)


def forget_votes(state: "SpaceState", participant: str) -> None:
    """Remove the votes of a participant that was kicked."""
    _forget_votes(state, participant, [each for each in state.proposals.values() if participant in each.votes])


def forget_lost_votes(state: "SpaceState", participant: str) -> None:
    """Remove votes of a participant that may no longer send the request.

    If checking this takes too much work, the vote is removed too.
    """
    voted = [each for each in state.proposals.values() if participant in each.votes]
    if voted:
        held, work = state.capabilities(participant), Work()
        is_known = state.may_return(participant)
        lost = [each for each in voted if not (is_known and may_be_sent(each, held, work))]
        _forget_votes(state, participant, lost)


def may_be_sent(proposal: OpenProposal, held: "CapabilitySet", work: Work) -> bool:
    """Whether the capabilities allow the proposed request. False if checking takes too much work."""
    try:
        return held.decide(kinds.MCP_REQUEST, raw_json.decode(proposal.payload), proposal.to, work).allowed
    except ScannedTooMuch:
        return False


def _forget_votes(state: "SpaceState", participant: str, voted: Iterable[OpenProposal]) -> None:
    for proposal in voted:
        votes = tuple(voter for voter in proposal.votes if voter != participant)
        state.proposals[proposal.proposal_id] = msgspec.structs.replace(proposal, votes=votes)


def remember(state: "SpaceState", closed: ClosedProposal) -> None:
    """Store the outcome of a proposal."""
    state.closed_proposals[closed.proposal_id] = closed
    state.closed_by_proposer.setdefault(closed.proposer, {})[closed.proposal_id] = None
    state.closed_positions[closed.position] = closed.proposal_id


def _close(state: "SpaceState", proposal: OpenProposal, outcome: str, record: Record) -> None:
    """Close a proposal, remember its outcome, and remove outcomes that are too old or too many."""
    del state.proposals[proposal.proposal_id]
    closed = ClosedProposal(
        position=proposal.position,
        proposal_id=proposal.proposal_id,
        proposer=proposal.proposer,
        outcome=outcome,
        by=record.participant,
        request=None if record.participant == kinds.GATEWAY else record.envelope_id,
        closed=record.time,
    )
    remember(state, closed)
    _forget(state, closed.proposer, record.time)


def _forget(state: "SpaceState", proposer: str, now: int) -> None:
    table = state.closed_proposals
    surplus = len(table) - REMEMBERED_PER_SPACE
    since = now - REMEMBERED_SECONDS * SECOND
    old = [
        each.proposal_id
        for _, each in takewhile(
            lambda numbered: numbered[0] < surplus or numbered[1].closed <= since, enumerate(table.values())
        )
    ]
    own = state.closed_by_proposer[proposer]
    if len(own) > REMEMBERED_PER_PROPOSER:
        old.append(next(iter(own)))
    for proposal_id in dict.fromkeys(old):
        _forget_one(state, table.pop(proposal_id))


def _forget_one(state: "SpaceState", closed: ClosedProposal) -> None:
    del state.closed_positions[closed.position]
    own = state.closed_by_proposer[closed.proposer]
    del own[closed.proposal_id]
    if not own:
        del state.closed_by_proposer[closed.proposer]


def outcome_of(record: Record) -> str | None:
    """Return how an envelope ended a proposal; None if it ended none.

    The envelope must have been accepted by a current gateway.
    """
    if record.kind == kinds.PROPOSAL_CLOSED:
        return record.reason
    outcome = _ENDS.get(str(record.kind))
    return None if outcome is None or _stamp(_stamped_fields(record)) is None else outcome


def _closed_by(state: "SpaceState", record: Record, outcome: str) -> None:
    proposal = _stamped_proposal(state, record)
    if proposal is not None:
        _close(state, proposal, outcome, record)


def _stamped_proposal(state: "SpaceState", record: Record) -> OpenProposal | None:
    """Return the open proposal that a stamped envelope refers to."""
    fields = _stamped_fields(record)
    stamp = _stamp(fields)
    if stamp is None:
        return None
    named = raw_json.decode(fields.get("correlation_id", b"[]")) or ()
    found = (state.proposals.get(each) for each in named)
    same = (stamp.position, stamp.digest)
    return next((each for each in found if each is not None and (each.position, each.digest) == same), None)


def _stamped_fields(record: Record) -> dict[str, bytes]:
    """Return the fields of an envelope that may have a stamp. Most envelopes have none and are not parsed."""
    return raw_json.split(record.payload) if b'"proposal"' in record.payload else {}


def _stamp(fields: dict[str, bytes]) -> ProposalStamp | None:
    """Return the stamp if there is one. Older gateways relayed a field with this name unchanged."""
    try:
        return msgspec.json.decode(fields.get(kinds.PROPOSAL_FIELD, b"null"), type=ProposalStamp | None)
    except msgspec.ValidationError:
        return None
