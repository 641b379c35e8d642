"""Proposals: open ones, recently closed ones, and the field `proposal` of envelopes.

Pure values. `state` stores them, `fold` opens and closes them, and `handlers.proposals` decides which participants may.
Only records with the gateway's stamp count. A stamp names the position of its own record, or of an open proposal with
the same digest.
"""

from typing import Any, Final

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.capabilities import CapabilitySet
from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.records import Record
from mew.protocol.timestamps import rfc3339
from mew.protocol.work import ScannedTooMuch, Work

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
REJECTED_OUTCOME: Final = "rejected"
WITHDRAWN: Final = "withdrawn"
EXPIRED: Final = "expired"
DROPPED: Final = "dropped"
KICKED: Final = "kicked"
LEFT_OUTCOME: Final = "left"
OUTCOMES: Final = (FULFILLED, REJECTED_OUTCOME, WITHDRAWN, EXPIRED, DROPPED, KICKED, LEFT_OUTCOME)
_ENDS: Final = {
    kinds.MCP_REQUEST: FULFILLED,
    kinds.MCP_RESPONSE: FULFILLED,
    kinds.MCP_REJECT: REJECTED_OUTCOME,
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
            msgspec.structs.force_setattr(self, "size", proposal_size(self.payload, self.to))

    def stamp(self) -> bytes:
        """The field `proposal` of envelopes about this proposal."""
        return raw_json.encode_json({"position": self.position, "digest": self.digest})

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
        return raw_json.join_json({**raw_json.split_json(raw_json.encode_json(self.entry())), "payload": self.payload})


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


def proposal_size(payload: bytes, to: tuple[str, ...]) -> int:
    """Bytes of a proposal that count towards the limits."""
    return len(payload) + len(raw_json.encode_json(to))


def may_be_sent(proposal: OpenProposal, capabilities: CapabilitySet, work: Work) -> bool:
    """Whether the capabilities allow the proposed request. False if checking takes too much work."""
    try:
        return capabilities.decide(kinds.MCP_REQUEST, raw_json.decode_json(proposal.payload), proposal.to, work).allowed
    except ScannedTooMuch:
        return False


def proposal_outcome(record: Record) -> str | None:
    """Return how an envelope ended a proposal; None if it ended none.

    The envelope must have been accepted by a current gateway.
    """
    if record.kind == kinds.PROPOSAL_CLOSED:
        return record.reason
    outcome = _ENDS.get(str(record.kind))
    return None if outcome is None or read_stamp(stamped_fields(record)) is None else outcome


def stamped_fields(record: Record) -> dict[str, bytes]:
    """Return the fields of an envelope that may have a stamp. Most envelopes have none and are not parsed."""
    return raw_json.split_json(record.payload) if b'"proposal"' in record.payload else {}


def read_stamp(fields: dict[str, bytes]) -> ProposalStamp | None:
    """Return the stamp of an envelope, if there is one. Older gateways relayed a field with this name unchanged."""
    try:
        return msgspec.json.decode(fields.get(kinds.PROPOSAL_FIELD, b"null"), type=ProposalStamp | None)
    except msgspec.ValidationError:
        return None
