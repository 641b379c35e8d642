"""The state of a space that its journal determines, and its canonical JSON for checkpoints.

Pure data, changed only by `fold`. Equal states encode to equal bytes. Sockets, rates and caches belong to `Space`.
"""

from collections.abc import Container, Iterator

import msgspec

from mew.errors import MewError
from mew.protocol import raw_json
from mew.protocol.capabilities import BASELINE, CHAT_ONLY, Capability, CapabilitySet, read_capability
from mew.protocol.proposals import REMEMBERED_SECONDS, ClosedProposal, OpenProposal
from mew.protocol.streams import Status, StreamEntry
from mew.protocol.timestamps import SECOND


class Presence(msgspec.Struct, frozen=True):
    """How a present participant is connected."""

    transport: str
    anonymous: bool = False


class Grant(msgspec.Struct, frozen=True):
    """A capability that one participant granted to another."""

    grant_id: str
    granter: str
    capability: Capability


class SpaceState(msgspec.Struct, kw_only=True):
    """State of a space after the record at `position`."""

    space_id: str
    position: int = -1
    time: int = 0
    epoch: str = ""
    configured: dict[str, tuple[Capability, ...] | None] = {}
    defaults: tuple[Capability, ...] = CHAT_ONLY
    configuration: bytes = b""
    """The remaining configuration of the last start, as JSON. Empty if a checkpoint of fold version 1 lacks it."""
    invited: dict[str, tuple[Capability, ...] | None] = {}
    kicked: dict[str, None] = {}
    grants: dict[str, tuple[Grant, ...]] = {}
    grant_ends: dict[str, dict[str, int]] = {}
    """Per recipient, the end time of each grant that has one, by grant id."""
    revoked: dict[str, tuple[bytes, ...]] = {}
    """Per participant, JSON texts of the base capabilities that were revoked."""
    paused: dict[str, int | None] = {}
    """When each pause ends; None if it lasts until a resume."""
    closing: dict[str, int] = {}
    """Participants that were shut down, and when each shutdown period ends."""
    present: dict[str, Presence] = {}
    """In order of joining."""
    left: dict[str, int] = {}
    """When each participant that may return was last present."""
    streams: dict[str, StreamEntry] = {}
    """In order of creation."""
    frames: dict[str, int] = {}
    sequences: dict[str, dict[str, int]] = {}
    """Per stream, the last sequence number of each writer."""
    stream_count: int = 0
    desired_ids: dict[str, None] = {}
    """Every stream id that was ever assigned because a creator desired it. It is never assigned again."""
    proposals: dict[str, OpenProposal] = {}
    """Open proposals by id, in order of opening."""
    closed_proposals: dict[str, ClosedProposal] = {}
    """Remembered closed proposals by id, in order of closing."""
    closed_by_proposer: dict[str, dict[str, None]] = {}
    """Ids of the remembered closed proposals per proposer, in the same order."""
    closed_positions: dict[int, str] = {}
    """Ids of the remembered closed proposals, by the position of the proposal's record."""

    def knows(self, participant: str) -> bool:
        """Return whether the participant is configured, invited or present."""
        return participant in self.configured or participant in self.invited or participant in self.present

    def may_return(self, participant: str) -> bool:
        """Return whether an absent participant can reconnect as itself: anonymous and kicked ones cannot."""
        return participant not in self.kicked and (participant in self.configured or participant in self.invited)

    def is_muted(self, participant: str, now: int) -> bool:
        """Return whether the participant is paused or shutting down at this time."""
        if participant in self.paused:
            until = self.paused[participant]
            if until is None or now < until:
                return True
        return now < self.closing.get(participant, 0)

    def base(self, participant: str) -> tuple[str, tuple[Capability, ...]]:
        """Return a participant's base capabilities, preceded by their source: `invited`, `configured` or `default`."""
        for source, table in (("invited", self.invited), ("configured", self.configured)):
            if participant in table:
                capabilities = table[participant]
                return ("default", self.defaults) if capabilities is None else (source, capabilities)
        return "default", self.defaults

    def capabilities(self, participant: str, ended: Container[str] = ()) -> CapabilitySet:
        """Return the effective capabilities: base, baseline, granted (protocol §2, Welcome), without `ended` grants."""
        return CapabilitySet(self._sourced(participant, ended))

    def _sourced(self, participant: str, ended: Container[str]) -> Iterator[tuple[str, Capability]]:
        source, base = self.base(participant)
        revoked = self.revoked.get(participant, ())
        yield from ((source, capability) for capability in base if capability.text not in revoked)
        yield "baseline", BASELINE
        granted = self.grants.get(participant, ())
        yield from ((f"grant:{grant.grant_id}", grant.capability) for grant in granted if grant.grant_id not in ended)

    def proposal(self, proposal_id: str, now: int) -> OpenProposal | ClosedProposal | None:
        """Return the proposal with this id while it is open or remembered."""
        proposal = self.proposals.get(proposal_id)
        if proposal is not None:
            return proposal
        closed = self.closed_proposals.get(proposal_id)
        return closed if closed is not None and now < closed.closed + REMEMBERED_SECONDS * SECOND else None

    def proposal_at(self, position: int, now: int) -> OpenProposal | ClosedProposal | None:
        """Return the proposal whose record has this position, while it is open or remembered."""
        proposal = next((proposal for proposal in self.proposals.values() if proposal.position == position), None)
        if proposal is not None:
            return proposal
        proposal_id = self.closed_positions.get(position)
        return None if proposal_id is None else self.proposal(proposal_id, now)

    def remember_proposal(self, closed: ClosedProposal) -> None:
        """Store the outcome of a proposal."""
        self.closed_proposals[closed.proposal_id] = closed
        self.closed_by_proposer.setdefault(closed.proposer, {})[closed.proposal_id] = None
        self.closed_positions[closed.position] = closed.proposal_id


FOLD_VERSION = 2
"""Increased whenever folding the same records gives a different state."""
READABLE = frozenset({1, 2})
"""Versions that `restore` reads. Their snapshots are complete but for optional fields: version 1 had no proposals."""


class _Stream(msgspec.Struct):
    stream_id: str
    namespace: str
    creator: str
    owner: str
    writers: tuple[str, ...]
    status: Status
    created: str
    direction: msgspec.Raw
    encoding: msgspec.Raw
    fields: msgspec.Raw
    frames: int
    sequences: dict[str, int]


class _Grant(msgspec.Struct):
    grant_id: str
    granter: str
    capability: msgspec.Raw


class _Proposal(msgspec.Struct):
    position: int
    proposal_id: str
    proposer: str
    anonymous: bool
    to: tuple[str, ...]
    method: str
    digest: str
    opened: int
    expires: int
    payload: msgspec.Raw
    votes: tuple[str, ...]


class _State(msgspec.Struct):
    """JSON form of a state. Maps whose order matters are arrays; the encoder sorts the keys of the others."""

    fold_version: int
    space_id: str
    position: int
    time: int
    epoch: str
    configured: dict[str, list[msgspec.Raw] | None]
    defaults: list[msgspec.Raw]
    invited: dict[str, list[msgspec.Raw] | None]
    kicked: list[str]
    grants: dict[str, list[_Grant]]
    revoked: dict[str, list[msgspec.Raw]]
    paused: dict[str, int | None]
    closing: dict[str, int]
    present: list[tuple[str, Presence]]
    left: dict[str, int]
    streams: list[_Stream]
    stream_count: int
    desired_ids: list[str]
    grant_ends: dict[str, dict[str, int]] = {}
    proposals: list[_Proposal] = []
    closed_proposals: list[ClosedProposal] = []
    configuration: msgspec.Raw = msgspec.Raw(b"null")
    """Present since fold version 2."""


_decoder = msgspec.json.Decoder(_State)
_UNKNOWN = b"null"
_encoder = msgspec.json.Encoder(order="deterministic")


def snapshot(state: SpaceState) -> bytes:
    """Encode the state as canonical JSON."""
    return _encoder.encode(
        _State(
            fold_version=FOLD_VERSION,
            space_id=state.space_id,
            position=state.position,
            time=state.time,
            epoch=state.epoch,
            configured={name: _texts(capabilities) for name, capabilities in state.configured.items()},
            defaults=_texts(state.defaults) or [],
            invited={name: _texts(capabilities) for name, capabilities in state.invited.items()},
            kicked=sorted(state.kicked),
            grants={name: [_save_grant(grant) for grant in grants] for name, grants in state.grants.items()},
            revoked={name: [msgspec.Raw(text) for text in texts] for name, texts in state.revoked.items()},
            paused=state.paused,
            closing=state.closing,
            present=list(state.present.items()),
            left=state.left,
            streams=[_save_stream(state, stream) for stream in state.streams.values()],
            stream_count=state.stream_count,
            desired_ids=sorted(state.desired_ids),
            grant_ends=state.grant_ends,
            proposals=[_save_proposal(proposal) for proposal in state.proposals.values()],
            closed_proposals=list(state.closed_proposals.values()),
            configuration=msgspec.Raw(state.configuration or _UNKNOWN),
        )
    )


class SnapshotVersionError(MewError):
    """The snapshot was written by a fold version that this program cannot read."""


def restore(text: bytes) -> SpaceState:
    """Decode a snapshot. Raises `SnapshotVersionError` if its fold version is not in `READABLE`."""
    saved = _decoder.decode(text)
    if saved.fold_version not in READABLE:
        raise SnapshotVersionError(
            f"a snapshot of fold version {saved.fold_version}; this program folds as version {FOLD_VERSION}"
        )
    streams = [_load_stream(stream) for stream in saved.streams]
    state = SpaceState(
        space_id=saved.space_id,
        position=saved.position,
        time=saved.time,
        epoch=saved.epoch,
        configured={name: _capabilities(texts) for name, texts in saved.configured.items()},
        defaults=_capabilities(saved.defaults) or (),
        invited={name: _capabilities(texts) for name, texts in saved.invited.items()},
        kicked=dict.fromkeys(saved.kicked),
        grants={name: tuple(_load_grant(grant) for grant in grants) for name, grants in saved.grants.items()},
        revoked={name: tuple(bytes(text) for text in texts) for name, texts in saved.revoked.items()},
        paused=saved.paused,
        closing=saved.closing,
        present=dict(saved.present),
        left=saved.left,
        streams={stream.stream_id: stream for stream in streams},
        frames={stream.stream_id: stream.frames for stream in saved.streams},
        sequences={stream.stream_id: stream.sequences for stream in saved.streams if stream.sequences},
        stream_count=saved.stream_count,
        desired_ids=dict.fromkeys(saved.desired_ids),
        grant_ends=saved.grant_ends,
        proposals={proposal.proposal_id: _load_proposal(proposal) for proposal in saved.proposals},
        configuration=bytes(saved.configuration).removeprefix(_UNKNOWN),
    )
    for closed in saved.closed_proposals:
        state.remember_proposal(closed)
    return state


def _texts(capabilities: tuple[Capability, ...] | None) -> list[msgspec.Raw] | None:
    return None if capabilities is None else [msgspec.Raw(capability.text) for capability in capabilities]


def _capabilities(texts: list[msgspec.Raw] | None) -> tuple[Capability, ...] | None:
    return None if texts is None else tuple(_capability(text) for text in texts)


def _capability(text: msgspec.Raw) -> Capability:
    return read_capability(raw_json.decode_json(bytes(text)), "snapshot")


def _save_grant(grant: Grant) -> _Grant:
    return _Grant(grant.grant_id, grant.granter, msgspec.Raw(grant.capability.text))


def _load_grant(saved: _Grant) -> Grant:
    return Grant(saved.grant_id, saved.granter, _capability(saved.capability))


def _save_proposal(proposal: OpenProposal) -> _Proposal:
    saved = {**msgspec.structs.asdict(proposal), "payload": msgspec.Raw(proposal.payload)}
    del saved["size"]
    return _Proposal(**saved)


def _load_proposal(saved: _Proposal) -> OpenProposal:
    return OpenProposal(**{**msgspec.structs.asdict(saved), "payload": bytes(saved.payload)})


def _save_stream(state: SpaceState, stream: StreamEntry) -> _Stream:
    return _Stream(
        stream_id=stream.stream_id,
        namespace=stream.namespace,
        creator=stream.creator,
        owner=stream.owner,
        writers=stream.writers,
        status=stream.status,
        created=stream.created,
        direction=msgspec.Raw(stream.direction),
        encoding=msgspec.Raw(stream.encoding),
        fields=msgspec.Raw(raw_json.join_json(stream.fields)),
        frames=state.frames[stream.stream_id],
        sequences=state.sequences.get(stream.stream_id, {}),
    )


def _load_stream(saved: _Stream) -> StreamEntry:
    return StreamEntry(
        stream_id=saved.stream_id,
        namespace=saved.namespace,
        creator=saved.creator,
        owner=saved.owner,
        writers=saved.writers,
        status=saved.status,
        created=saved.created,
        direction=bytes(saved.direction),
        encoding=bytes(saved.encoding),
        fields=raw_json.split_json(bytes(saved.fields)),
    )
