"""The state of a space that its journal determines, and nothing else.

Pure data. Only `fold` changes it; sockets, rates and caches live in `Space` and are not part of it.
"""

from collections.abc import Container, Iterator

import msgspec

from mew.protocol.capability import BASELINE, CHAT_ONLY, Capability, CapabilitySet
from mew.protocol.proposals import ClosedProposal, OpenProposal
from mew.protocol.streams import Stream


class Presence(msgspec.Struct, frozen=True):
    """A participant that is present."""

    transport: str
    anonymous: bool = False


class Grant(msgspec.Struct, frozen=True):
    """A capability that one participant handed to another."""

    grant_id: str
    granter: str
    capability: Capability


class SpaceState(msgspec.Struct, kw_only=True):
    """What has become of a space after the record at `position`."""

    space_id: str
    position: int = -1
    time: int = 0
    epoch: str = ""
    configured: dict[str, tuple[Capability, ...] | None] = {}
    defaults: tuple[Capability, ...] = CHAT_ONLY
    configuration: bytes = b""
    """The rest of the last start's configuration, as JSON; empty where a checkpoint of fold version 1 did not tell."""
    invited: dict[str, tuple[Capability, ...] | None] = {}
    kicked: dict[str, None] = {}
    grants: dict[str, tuple[Grant, ...]] = {}
    grant_ends: dict[str, dict[str, int]] = {}
    """Per recipient, when each grant with an end ends, by its id."""
    revoked: dict[str, tuple[bytes, ...]] = {}
    """Texts of the configured capabilities that were taken away."""
    paused: dict[str, int | None] = {}
    """Until when; None until somebody resumes them."""
    closing: dict[str, int] = {}
    """Shut down: until when they may say goodbye."""
    present: dict[str, Presence] = {}
    """In order of joining."""
    left: dict[str, int] = {}
    """When each participant that may come back was last here."""
    streams: dict[str, Stream] = {}
    """In order of creation."""
    frames: dict[str, int] = {}
    sequences: dict[str, dict[str, int]] = {}
    """Per stream each writer's last."""
    stream_count: int = 0
    desired_ids: dict[str, None] = {}
    """Every name a creator's wish has ever used up."""
    proposals: dict[str, OpenProposal] = {}
    """The open ones by id, in order of opening."""
    closed_proposals: dict[str, ClosedProposal] = {}
    """Those that are remembered by id, in order of closing."""
    closed_by_proposer: dict[str, dict[str, None]] = {}
    """The ids of those per proposer, in the same order."""
    closed_positions: dict[int, str] = {}
    """The ids of those by the position of their proposal's record."""

    def knows(self, participant: str) -> bool:
        """Whether this is somebody: configured, invited or here."""
        return participant in self.configured or participant in self.invited or participant in self.present

    def may_return(self, participant: str) -> bool:
        """Whether an absent participant can come back as itself: anonymous and kicked ones cannot."""
        return participant not in self.kicked and (participant in self.configured or participant in self.invited)

    def is_muted(self, participant: str, now: int) -> bool:
        """Whether the participant is paused or shutting down at this time."""
        if participant in self.paused:
            until = self.paused[participant]
            if until is None or now < until:
                return True
        return now < self.closing.get(participant, 0)

    def base(self, participant: str) -> tuple[str, tuple[Capability, ...]]:
        """What a participant starts from, and where that comes from."""
        for source, table in (("invited", self.invited), ("configured", self.configured)):
            if participant in table:
                held = table[participant]
                return ("default", self.defaults) if held is None else (source, held)
        return "default", self.defaults

    def capabilities(self, participant: str, ended: Container[str] = ()) -> CapabilitySet:
        """The effective capabilities: base, baseline, granted (protocol §2, Welcome), but no grant that has ended."""
        return CapabilitySet(self._sourced(participant, ended))

    def _sourced(self, participant: str, ended: Container[str]) -> Iterator[tuple[str, Capability]]:
        source, base = self.base(participant)
        revoked = self.revoked.get(participant, ())
        yield from ((source, capability) for capability in base if capability.text not in revoked)
        yield "baseline", BASELINE
        granted = self.grants.get(participant, ())
        yield from ((f"grant:{each.grant_id}", each.capability) for each in granted if each.grant_id not in ended)
