"""Defines how each journal record changes the state of a space.

Pure. This is the only such definition: the gateway, crash recovery, the audit and the pipeline all use it. It decides
nothing, because a record describes something that was already accepted.
"""

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, Final

import msgspec

from mew.protocol import kinds, proposals, raw_json, records
from mew.protocol.capabilities import Capability, read_capability
from mew.protocol.proposals import ClosedProposal, OpenProposal, may_be_sent, read_stamp, stamped_fields
from mew.protocol.records import Record
from mew.protocol.state import Grant, Presence, SnapshotVersionError, SpaceState, restore
from mew.protocol.streams import LIVE, StreamEntry, read_stream_entry, read_stream_ready
from mew.protocol.timestamps import SECOND, parse_rfc3339, rfc3339
from mew.protocol.work import Work

MAX_TIMEOUT_SECONDS: Final = 31_536_000
"""Longest duration of a pause or a grant that ends, in seconds."""
SHUTDOWN_SECONDS: Final = 5
"""Seconds that a participant stays connected after a shutdown, to send its last messages (protocol §3)."""


def fold(state: SpaceState, record: Record) -> SpaceState:
    """Apply a record and return the new state.

    The state object is changed in place and returned, but a checkpoint gives a new object. Raises
    `SnapshotVersionError` if a checkpoint of an unreadable fold version comes before any other record.
    """
    if record.event == records.CHECKPOINT:
        state = _checkpoint(state, record)
    else:
        change = _BY_EVENT.get(record.event)
        if change is not None:
            change(state, record)
    state.position = record.position
    state.time = record.time
    return state


def _checkpoint(state: SpaceState, record: Record) -> SpaceState:
    """Return the state in the checkpoint.

    If its fold version is unreadable, return the state folded so far: the checkpoint describes the same state.
    """
    try:
        restored = restore(record.payload)
    except SnapshotVersionError:
        if state.position < 0:
            raise
        return state
    if not restored.configuration:
        restored.configuration = state.configuration
    return restored


def advance_frame_number(state: SpaceState, stream_id: str, count: int) -> int:
    """Count accepted frames or data of a stream, and return the number of the first of them."""
    first = state.frames[stream_id] + 1
    state.frames[stream_id] += count
    return first


def _start(state: SpaceState, record: Record) -> None:
    """Begin a new epoch. Participants that were still present have just left (architecture, Journal)."""
    start = raw_json.decode_json(record.payload)
    state.epoch = start["epoch"]
    state.configured = {
        name: None if capabilities is None else _capabilities(capabilities)
        for name, capabilities in start["participants"].items()
    }
    state.defaults = _capabilities(start["defaults"])
    state.configuration = raw_json.encode_json({key: value for key, value in start.items() if key not in _IN_STATE})
    for participant in list(state.present):
        _depart(state, participant, record.time)
    for voter in {voter for proposal in state.proposals.values() for voter in proposal.votes}:
        _remove_lost_votes(state, voter)


_IN_STATE: Final = frozenset({"epoch", "participants", "defaults"})
"""Keys of a start record that have their own fields in the state."""


def _join(state: SpaceState, record: Record) -> None:
    if record.participant not in state.present:
        joined = raw_json.decode_json(record.payload)
        state.present[record.participant] = Presence(joined["transport"], joined.get("anonymous", False))
    state.left.pop(record.participant, None)
    if state.closing.get(record.participant, record.time + 1) <= record.time:
        del state.closing[record.participant]  # the log stayed connected after the shutdown; this is a new socket


def _leave(state: SpaceState, record: Record) -> None:
    _depart(state, record.participant, record.time)


def _depart(state: SpaceState, participant: str, now: int) -> None:
    presence = state.present.pop(participant)
    state.closing.pop(participant, None)
    if presence.anonymous:
        for table in (state.grants, state.grant_ends, state.paused, state.revoked):
            table.pop(participant, None)
    else:
        state.left[participant] = now


def _frame(state: SpaceState, record: Record) -> None:
    advance_frame_number(state, str(record.stream_id), 1)


def _envelope(state: SpaceState, record: Record) -> None:
    change = (_BY_GATEWAY if record.participant == kinds.GATEWAY else _BY_PARTICIPANT).get(str(record.kind))
    if change is not None:
        change(state, record)


def _data(state: SpaceState, record: Record) -> None:
    stream_id = str(record.stream_id)
    advance_frame_number(state, stream_id, 1)
    state.sequences.setdefault(stream_id, {})[record.participant] = int(record.sequence or 0)


def _opened(state: SpaceState, record: Record) -> None:
    stream = read_stream_entry(state.space_id, _payload_fields(record))
    state.stream_count += 1
    _register(state, stream)


def _readied(state: SpaceState, record: Record) -> None:
    stream = read_stream_ready(state.space_id, _payload_fields(record), rfc3339(record.time))
    if stream.stream_id == f"stream-{state.stream_count + 1}":
        state.stream_count += 1
    else:
        state.desired_ids[stream.stream_id] = None
    _register(state, stream)


def _register(state: SpaceState, stream: StreamEntry) -> None:
    state.streams[stream.stream_id] = stream
    state.frames[stream.stream_id] = 0


def _started(state: SpaceState, record: Record) -> None:
    _change_stream(state, str(record.stream_id), status=LIVE)


def _ended(state: SpaceState, record: Record) -> None:
    if record.stream_id is not None:
        for table in (state.streams, state.frames, state.sequences):
            table.pop(record.stream_id, None)


def _writers_changed(state: SpaceState, record: Record) -> None:
    payload = _payload(record)
    _change_stream(state, payload["stream_id"], writers=tuple(payload["authorized_writers"]))


def _ownership_transferred(state: SpaceState, record: Record) -> None:
    payload = _payload(record)
    writers = tuple(payload["authorized_writers"])
    _change_stream(state, payload["stream_id"], owner=payload["new_owner"], writers=writers)


def _change_stream(state: SpaceState, stream_id: str, **changes: Any) -> None:
    state.streams[stream_id] = msgspec.structs.replace(state.streams[stream_id], **changes)


def _capability_granted(state: SpaceState, record: Record) -> None:
    payload = _payload(record)
    recipient = payload["recipient"]
    granted = tuple(
        Grant(str(record.envelope_id), record.participant, capability)
        for capability in _capabilities(payload["capabilities"])
    )
    state.grants[recipient] = state.grants.get(recipient, ()) + granted
    seconds = payload.get("timeout_seconds")
    if granted and type(seconds) in {int, float} and 0 < seconds <= MAX_TIMEOUT_SECONDS:
        ends = state.grant_ends.setdefault(recipient, {})
        ends[str(record.envelope_id)] = record.time + round(seconds * SECOND)


def _capability_revoked(state: SpaceState, record: Record) -> None:
    """Remove the granted and base capabilities that a pattern covers, or a whole grant (protocol §3)."""
    payload = _payload(record)
    recipient, grant_id = payload["recipient"], payload.get("grant_id")
    patterns = () if grant_id is not None else _capabilities(payload["capabilities"])

    def is_taken(capability: Capability) -> bool:
        return any(pattern.covers(capability) for pattern in patterns)

    remaining = tuple(
        grant
        for grant in state.grants.get(recipient, ())
        if grant.grant_id != grant_id and not is_taken(grant.capability)
    )
    _put(state.grants, recipient, remaining)
    _drop_ends(state, recipient)
    revoked = [capability.text for capability in state.base(recipient)[1] if is_taken(capability)]
    _put(state.revoked, recipient, tuple(dict.fromkeys((*state.revoked.get(recipient, ()), *revoked))))
    _remove_lost_votes(state, recipient)


def _drop_ends(state: SpaceState, recipient: str) -> None:
    """Drop the end times of grants that no longer exist."""
    grant_ids = {grant.grant_id for grant in state.grants.get(recipient, ())}
    left = {grant_id: end for grant_id, end in state.grant_ends.pop(recipient, {}).items() if grant_id in grant_ids}
    if left:
        state.grant_ends[recipient] = left


def _put(table: dict[str, tuple[Any, ...]], key: str, values: tuple[Any, ...]) -> None:
    """Set an entry, or delete it if it would be empty: equal states must have equal snapshots."""
    if values:
        table[key] = values
    else:
        table.pop(key, None)


def _invited(state: SpaceState, record: Record) -> None:
    payload = _payload(record)
    invited = payload["participant_id"]
    if state.knows(invited) and invited not in state.kicked:
        return
    if invited in state.kicked:
        del state.kicked[invited]
        for table in (state.grants, state.grant_ends, state.revoked, state.paused):
            table.pop(invited, None)
    initial = payload.get("initial_capabilities")
    state.invited[invited] = None if initial is None else _capabilities(initial)


def _kicked(state: SpaceState, record: Record) -> None:
    kicked = _payload(record)["participant_id"]
    state.kicked[kicked] = None
    _remove_votes_of(state, kicked)


def _paused(state: SpaceState, record: Record) -> None:
    seconds = _payload(record).get("timeout_seconds")
    until = None if seconds is None else record.time + round(seconds * SECOND)
    for participant in _recipients(state, record):
        state.paused[participant] = until


def _resumed(state: SpaceState, record: Record) -> None:
    for participant in _recipients(state, record):
        if participant != record.participant:
            state.paused.pop(participant, None)


def _shut_down(state: SpaceState, record: Record) -> None:
    for participant in _recipients(state, record):
        if participant in state.present and state.closing.get(participant, 0) <= record.time:
            state.closing[participant] = record.time + SHUTDOWN_SECONDS * SECOND


def _recipients(state: SpaceState, record: Record) -> list[str]:
    to = raw_json.decode_json(record.payload).get("to") or []
    return [participant for participant in to if state.knows(participant)]


def _payload(record: Record) -> Any:
    return raw_json.decode_json(record.payload).get("payload", {})


def _payload_fields(record: Record) -> dict[str, bytes]:
    return raw_json.split_json(raw_json.split_json(record.payload)["payload"])


def _capabilities(values: list[Any]) -> tuple[Capability, ...]:
    return tuple(read_capability(value, "recorded") for value in values)


def _proposal_opened(state: SpaceState, record: Record) -> None:
    """Apply an `mcp/proposal` with a stamp from the gateway: open the proposal."""
    fields = stamped_fields(record)
    stamp = read_stamp(fields)
    if stamp is None or stamp.position != record.position:
        return
    payload, expires = fields.get("payload", b"{}"), parse_rfc3339(str(stamp.expires_at))
    method, presence = raw_json.decode_json(payload).get("method"), state.present.get(record.participant)
    if expires is None or presence is None or not isinstance(method, str) or record.envelope_id in state.proposals:
        return
    forgotten = state.closed_proposals.pop(str(record.envelope_id), None)
    if forgotten is not None:
        _forget_proposal(state, forgotten)
    state.proposals[str(record.envelope_id)] = OpenProposal(
        position=record.position,
        proposal_id=str(record.envelope_id),
        proposer=record.participant,
        anonymous=presence.anonymous,
        to=tuple(raw_json.decode_json(fields.get("to", b"null")) or ()),
        method=method,
        digest=stamp.digest,
        opened=record.time,
        expires=expires,
        payload=payload,
    )


def _proposal_fulfilled(state: SpaceState, record: Record) -> None:
    """Apply an `mcp/request` or `mcp/response` with a stamp."""
    _close_stamped(state, record, proposals.FULFILLED)


def _proposal_rejected(state: SpaceState, record: Record) -> None:
    """Apply an `mcp/reject` with a stamp."""
    _close_stamped(state, record, proposals.REJECTED_OUTCOME)


def _proposal_withdrawn(state: SpaceState, record: Record) -> None:
    """Apply an `mcp/withdraw` with a stamp."""
    _close_stamped(state, record, proposals.WITHDRAWN)


def _proposal_approved(state: SpaceState, record: Record) -> None:
    """Apply an `mcp/approve` with a stamp: the vote of its sender. A second vote has no effect."""
    proposal = _stamped_proposal(state, record)
    if proposal is not None and record.participant not in proposal.votes:
        votes = (*proposal.votes, record.participant)
        state.proposals[proposal.proposal_id] = msgspec.structs.replace(proposal, votes=votes)


def _proposal_ended(state: SpaceState, record: Record) -> None:
    """Apply the gateway's `mcp/proposal-closed`: an end that no participant sent."""
    payload = raw_json.decode_json(record.payload)["payload"]
    proposal = state.proposals.get(payload["proposal"])
    if proposal is not None:
        _close_proposal(state, proposal, payload["outcome"], record)


def _remove_votes_of(state: SpaceState, participant: str) -> None:
    """Remove the votes of a participant that was kicked."""
    _remove_votes(
        state, participant, [proposal for proposal in state.proposals.values() if participant in proposal.votes]
    )


def _remove_lost_votes(state: SpaceState, participant: str) -> None:
    """Remove votes of a participant that may no longer send the request.

    If checking this takes too much work, the vote is removed too.
    """
    voted = [proposal for proposal in state.proposals.values() if participant in proposal.votes]
    if voted:
        capabilities, work = state.capabilities(participant), Work()
        is_known = state.may_return(participant)
        lost = [proposal for proposal in voted if not (is_known and may_be_sent(proposal, capabilities, work))]
        _remove_votes(state, participant, lost)


def _remove_votes(state: SpaceState, participant: str, voted: Iterable[OpenProposal]) -> None:
    for proposal in voted:
        votes = tuple(voter for voter in proposal.votes if voter != participant)
        state.proposals[proposal.proposal_id] = msgspec.structs.replace(proposal, votes=votes)


def _close_proposal(state: SpaceState, proposal: OpenProposal, outcome: str, record: Record) -> None:
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
    state.remember_proposal(closed)
    _forget_closed(state, closed.proposer, record.time)


def _forget_closed(state: SpaceState, proposer: str, now: int) -> None:
    table = state.closed_proposals
    surplus = len(table) - proposals.REMEMBERED_PER_SPACE
    since = now - proposals.REMEMBERED_SECONDS * SECOND
    old = [
        closed.proposal_id
        for _, closed in takewhile(
            lambda numbered: numbered[0] < surplus or numbered[1].closed <= since, enumerate(table.values())
        )
    ]
    own = state.closed_by_proposer[proposer]
    if len(own) > proposals.REMEMBERED_PER_PROPOSER:
        old.append(next(iter(own)))
    for proposal_id in dict.fromkeys(old):
        _forget_proposal(state, table.pop(proposal_id))


def _forget_proposal(state: SpaceState, closed: ClosedProposal) -> None:
    del state.closed_positions[closed.position]
    own = state.closed_by_proposer[closed.proposer]
    del own[closed.proposal_id]
    if not own:
        del state.closed_by_proposer[closed.proposer]


def _close_stamped(state: SpaceState, record: Record, outcome: str) -> None:
    proposal = _stamped_proposal(state, record)
    if proposal is not None:
        _close_proposal(state, proposal, outcome, record)


def _stamped_proposal(state: SpaceState, record: Record) -> OpenProposal | None:
    """Return the open proposal that a stamped envelope refers to."""
    fields = stamped_fields(record)
    stamp = read_stamp(fields)
    if stamp is None:
        return None
    proposal_ids = raw_json.decode_json(fields.get("correlation_id", b"[]")) or ()
    candidates = (state.proposals.get(proposal_id) for proposal_id in proposal_ids)
    same = (stamp.position, stamp.digest)
    return next(
        (proposal for proposal in candidates if proposal is not None and (proposal.position, proposal.digest) == same),
        None,
    )


_Change = Callable[[SpaceState, Record], None]

_BY_GATEWAY: Final[dict[str, _Change]] = {
    kinds.STREAM_OPEN: _opened,
    kinds.STREAM_READY: _readied,
    kinds.STREAM_CLOSE: _ended,
    kinds.WRITE_GRANTED: _writers_changed,
    kinds.WRITE_REVOKED: _writers_changed,
    kinds.OWNERSHIP_TRANSFERRED: _ownership_transferred,
    kinds.CAPABILITY_REVOKE: _capability_revoked,
    kinds.PROPOSAL_CLOSED: _proposal_ended,
}
_BY_PARTICIPANT: Final[dict[str, _Change]] = {
    kinds.STREAM_START: _started,
    kinds.STREAM_DATA: _data,
    kinds.STREAM_CLOSE: _ended,
    kinds.STREAM_COMPLETE: _ended,
    kinds.STREAM_ERROR: _ended,
    kinds.CAPABILITY_GRANT: _capability_granted,
    kinds.CAPABILITY_REVOKE: _capability_revoked,
    kinds.INVITE: _invited,
    kinds.KICK: _kicked,
    kinds.PAUSE: _paused,
    kinds.RESUME: _resumed,
    kinds.SHUTDOWN: _shut_down,
    kinds.MCP_PROPOSAL: _proposal_opened,
    kinds.MCP_REQUEST: _proposal_fulfilled,
    kinds.MCP_RESPONSE: _proposal_fulfilled,
    kinds.MCP_REJECT: _proposal_rejected,
    kinds.MCP_WITHDRAW: _proposal_withdrawn,
    kinds.MCP_APPROVE: _proposal_approved,
}
_BY_EVENT: Final[dict[str, _Change]] = {
    records.START: _start,
    records.JOINED: _join,
    records.LEFT: _leave,
    records.ENVELOPE: _envelope,
    records.CONSUMED: _envelope,
    records.FRAME: _frame,
}
"""Events that are not listed do not change the state."""
