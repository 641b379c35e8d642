"""Checks what this participant may send, with the gateway's own code and the state that the client knows.

No I/O, and no copy of a rule. The client does not know that it is paused, nor the rules about votes: in these cases the
gateway may reject what this module allows. Without `mcp/request` the client does not see proposals: then the gateway
may accept a withdrawal that this module does not allow.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mew.client.frames import is_observer
from mew.protocol import kinds
from mew.protocol.authorization import REQUIRED_STATUS, authority_over, decide, is_decided_by_ownership
from mew.protocol.capabilities import CapabilitySet, read_capabilities
from mew.protocol.envelope import Envelope, Stamp, check_content, read_object, stamp_envelope
from mew.protocol.errors import ProtocolError
from mew.protocol.proposals import read_claim
from mew.protocol.streams import referenced_stream_id
from mew.protocol.work import Work
from mew.view import ProposalView, SpaceView

_WRITER_ENTRY: Final = "stream/write:"
"""Prefix of the capabilities that list writable streams in a welcome. The writer list decides instead (protocol §4)."""


class _OwnPermissions:
    """The capabilities of this participant, as a source of permissions."""

    def __init__(self, view: SpaceView) -> None:
        values = [value for value in view.you.capabilities if not str(value["kind"]).startswith(_WRITER_ENTRY)]
        capabilities = read_capabilities(values, "you.capabilities")
        self._capabilities = CapabilitySet(("", capability) for capability in capabilities)

    def capabilities(self, _participant: str) -> CapabilitySet:
        """Return the capabilities of this participant; no other participant is checked."""
        return self._capabilities


def is_permitted(view: SpaceView, envelope: Mapping[str, Any]) -> bool:
    """Whether this participant may send the envelope, if it is not paused and the kind's own checks pass."""
    try:
        values, fields = read_object(msgspec.json.encode({**envelope, "kind": envelope["kind"]}))
        stamped = stamp_envelope(values, fields, Stamp(view.you.id, "asked", 0))
        check_content(stamped)
        if stamped.kind in kinds.FROM_PARTICIPANTS:
            return True
        if kinds.is_reserved_kind(stamped.kind) or is_observer(view):
            return False
        return _is_allowed(view, stamped)
    except (ProtocolError, KeyError, TypeError, msgspec.MsgspecError):
        return False


def _is_allowed(view: SpaceView, envelope: Envelope) -> bool:
    if envelope.kind == kinds.MCP_APPROVE:
        return _may_vote(view, envelope)
    if envelope.kind == kinds.MCP_WITHDRAW and (proposals := _open_proposals(view, envelope)):
        return [proposal.proposer for proposal in proposals] == [view.you.id]
    permissions, stream = _OwnPermissions(view), None
    if envelope.kind in kinds.DECIDED_BY_OWNERSHIP:
        stream = view.streams.get(referenced_stream_id(envelope) or "")
    if not is_decided_by_ownership(envelope.kind, stream):
        return decide(permissions, envelope, Work()).allowed
    return (
        stream is not None
        and REQUIRED_STATUS.get(envelope.kind, stream.status) == stream.status
        and authority_over(stream, envelope, permissions, Work()) is not None
    )


def _may_vote(view: SpaceView, envelope: Envelope) -> bool:
    """Whether the vote names exactly one open proposal, with its position and digest (protocol §3, Approvals)."""
    claim, proposals = read_claim(envelope), _open_proposals(view, envelope)
    if claim is None:
        return False
    return [(proposal.position, proposal.digest) for proposal in proposals] == [(claim.position, claim.digest)]


def _open_proposals(view: SpaceView, envelope: Envelope) -> list[ProposalView]:
    """Return the open proposals in `correlation_id`."""
    proposals = (view.proposals or {}).values()
    return [proposal for proposal in proposals if proposal.proposal_id in envelope.correlation_id]
