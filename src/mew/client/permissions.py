"""Checks what this participant may send, with the gateway's own code and the state that the client knows.

No I/O, and no copy of a rule. The client does not know that it is paused, nor the rules about votes: in these cases the
gateway may reject what this module allows. Without `mcp/request` the client does not see proposals: then the gateway
may accept a withdrawal that this module does not allow.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from mew.client.frames import is_observer
from mew.protocol import kinds
from mew.protocol.authorization import decide, managing
from mew.protocol.capabilities import CapabilitySet, read_capabilities
from mew.protocol.dispatch import DECIDED_BY_OWNERSHIP
from mew.protocol.envelope import Envelope, Stamp, check_content, read_object, receive
from mew.protocol.errors import ProtocolError
from mew.protocol.handlers.proposals import claimed
from mew.protocol.stream_references import reference
from mew.protocol.work import Work
from mew.view import ProposalView, SpaceView, StreamView

if TYPE_CHECKING:
    from mew.protocol.space import SpaceCore


_MIRROR: Final = "stream/write:"
"""Prefix of the capabilities that list writable streams in a welcome. The writer list decides instead (protocol §4)."""


class _Holder:
    """The part of a space that the matcher uses."""

    def __init__(self, view: SpaceView) -> None:
        own = [each for each in view.you.capabilities if not str(each["kind"]).startswith(_MIRROR)]
        held = read_capabilities(own, "you.capabilities")
        self._held = CapabilitySet(("", each) for each in held)

    def capabilities(self, _participant: str) -> CapabilitySet:
        """Return the capabilities of this participant; the matcher asks for no other."""
        return self._held


def is_permitted(view: SpaceView, envelope: Mapping[str, Any]) -> bool:
    """Whether this participant may send the envelope, if it is not paused and the kind's own checks pass."""
    try:
        values, fields = read_object(msgspec.json.encode({**envelope, "kind": envelope["kind"]}))
        asked = receive(values, fields, Stamp(view.you.id, "asked", 0))
        check_content(asked)
        if asked.kind in kinds.FROM_PARTICIPANTS:
            return True
        if kinds.is_reserved(asked.kind) or is_observer(view):
            return False
        return _is_allowed(view, asked)
    except (ProtocolError, KeyError, TypeError, msgspec.MsgspecError):
        return False


def _is_allowed(view: SpaceView, envelope: Envelope) -> bool:
    space = cast("SpaceCore", _Holder(view))
    if envelope.kind == kinds.MCP_APPROVE:
        return _may_vote(view, envelope)
    if envelope.kind == kinds.MCP_WITHDRAW and (proposed := _open_proposals(view, envelope)):
        return [each.proposer for each in proposed] == [view.you.id]
    if envelope.kind not in DECIDED_BY_OWNERSHIP:
        return decide(space, envelope, Work()).allowed
    named = reference(envelope)
    stream = None if named is None else view.streams.get(named)
    if stream is None:
        return envelope.kind == kinds.STREAM_CLOSE and decide(space, envelope, Work()).allowed
    return _has_right(view, stream, envelope) or (
        envelope.kind in kinds.ENDINGS and managing(space, envelope, Work()) is not None
    )


def _may_vote(view: SpaceView, envelope: Envelope) -> bool:
    """Whether the vote names exactly one open proposal, with its position and digest (protocol §3, Approvals)."""
    claim, named = claimed(envelope), _open_proposals(view, envelope)
    return claim is not None and [(each.position, each.digest) for each in named] == [(claim.position, claim.digest)]


def _open_proposals(view: SpaceView, envelope: Envelope) -> list[ProposalView]:
    """Return the open proposals in `correlation_id`."""
    return [each for each in (view.proposals or {}).values() if each.proposal_id in envelope.correlation_id]


def _has_right(view: SpaceView, stream: StreamView, envelope: Envelope) -> bool:
    """Whether this participant may send it as the stream's owner or writer (protocol §4, Who may)."""
    if envelope.kind == kinds.STREAM_DATA:
        return view.may_write(stream.stream_id)
    if envelope.kind == kinds.STREAM_START and stream.status != "ready":
        return False
    return stream.owner == view.you.id
