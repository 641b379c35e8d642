"""What a space is told once, when it is made: who is configured, what is allowed, how much of it.

Frozen values without secrets. Reading them from a file is somebody else's job.
"""

from typing import Any, Literal

import msgspec

from mew.protocol.capabilities import CHAT_ONLY, Capability

OwnerPolicy = Literal["close", "keep", "transfer"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one participant, stream or space may have."""

    message_bytes: int = 16 * 2**20
    """One message; over it `message_too_large`, close 1009, or 413 over HTTP."""
    envelopes_per_second: float = 2_000
    """Of one participant; over it `rate_limited`."""
    envelope_burst: int = 4_000
    """Envelopes of one participant at once."""
    work_per_second: int = 200_000
    """Of one participant, in units of about a microsecond (protocol, "Limits"); over it `rate_limited`."""
    work_burst: int = 200_000
    """Units of work of one participant at once."""
    bytes_per_second: int = 32 * 2**20
    """Of messages of one participant other than frames; over it `rate_limited`."""
    byte_burst: int = 64 * 2**20
    """Bytes of one participant at once."""
    heartbeat_bytes: int = 4 * 2**10
    """A heartbeat."""
    control_message_bytes: int = 64 * 2**10
    """A message that the gateway acts on, such as a grant or the end of a stream."""
    explain_bytes: int = 256 * 2**10
    """A message that is asked about (`mew explain`), instead of sent."""
    frames_per_second: float | None = None
    """Of one participant; over it `rate_limited`. Without it, as many as come."""
    frame_burst: int = 4_000
    """Frames of one participant at once."""
    connections: int = 10_000
    """In one space, a tenth for participants with a token; over it `quota_exceeded`, as for all that follow."""
    sockets_per_observer: int = 64
    """Joined sockets of one observer token."""
    streams: int = 1_000
    """Open ones in one space."""
    streams_per_participant: int = 256
    """Open ones that one participant asked for, whoever owns them now."""
    writers: int = 1_024
    """Of one stream."""
    formats: int = 64
    """Of one stream."""
    patterns: int = 1_024
    """Regular expressions in the formats of all streams of one space."""
    participant_patterns: int = 256
    """Of those, in the formats of streams that one participant has opened."""
    stream_request_bytes: int = 256 * 2**10
    """A request for a stream: its payload stands in every later welcome."""
    stream_metadata_bytes: int = 2 * 2**20
    """What the requests of all open streams of one space come to: each welcome repeats it."""
    stream_metadata_bytes_per_participant: int = 2**20
    """What the requests of one participant's open streams come to."""
    grants: int = 2_048
    """Pattern values that one participant may be granted: two for a capability that names just a kind."""
    capability_bytes: int = 4 * 2**20
    """Text of all capabilities that were granted or came with an invitation, in one space."""
    capability_bytes_per_participant: int = 128 * 2**10
    """Text of what one participant was granted or invited with: each welcome repeats it."""
    invitations: int = 10_000
    """In one space."""
    desired_ids: int = 100_000
    """Names of streams in one space."""
    live_readers_per_participant: int = 8
    """Live journals that one participant, or one observer token, follows over HTTP at the same time."""


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The space's own choice where a stream makes none."""

    on_owner_disconnect: OwnerPolicy = "transfer"
    """What becomes of a stream whose owner went; `transfer`: to the longest-standing writer present, else it closes."""
    owner_grace_seconds: float = 60
    """How long an owner that left may come back."""
    validate: bool = False
    """Whether `stream/data` is checked against its format's schema."""


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which `mcp/request` needs how many votes, and whose."""

    match: Capability
    """A pattern for `mcp/request`; it binds each request that fits its payload and any of its recipients."""
    deciders: tuple[str, ...]
    """Who may vote, and who may reject."""
    quorum: int = 1
    """How many of them."""
    not_proposer: bool = True
    """Whether the proposer's own vote does not count; who sends without a proposal is its proposer."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one space, as far as the protocol depends on it."""

    space_id: str
    """Its id: 1 to 128 letters, digits, `.`, `_`, `@` or `-`, the first a letter or digit."""
    participants: dict[str, tuple[Capability, ...] | None] = {}
    """Configured ids; None has the defaults."""
    defaults: tuple[Capability, ...] = CHAT_ONLY
    """What those may send for whom nothing is said; without it, chat alone."""
    output_logs: frozenset[str] = frozenset()
    allow_anonymous: bool = False
    """Whether a join without a token makes a guest."""
    strict_from: bool = False
    """Refuse an envelope whose `from` is wrong, instead of correcting it."""
    http_presence_seconds: float = 60
    connection_url: str = "ws://localhost:8080"
    streams: StreamSettings = StreamSettings()
    limits: Limits = Limits()
    """How much is allowed."""
    approvals: tuple[ApprovalRule, ...] = ()
    """Requests that need votes, whoever sends them."""

    def effective(self) -> dict[str, Any]:
        """The configuration as the journal's `start` record keeps it."""
        return {
            "participants": {name: _patterns(held) for name, held in self.participants.items()},
            "defaults": _patterns(self.defaults),
            "output_logs": sorted(self.output_logs),
            "allow_anonymous": self.allow_anonymous,
            "strict_from": self.strict_from,
            "streams": msgspec.structs.asdict(self.streams),
            "limits": msgspec.structs.asdict(self.limits),
            "approvals": [{**msgspec.structs.asdict(rule), "match": rule.match.pattern} for rule in self.approvals],
        }


def _patterns(capabilities: tuple[Capability, ...] | None) -> list[Any] | None:
    return None if capabilities is None else [capability.pattern for capability in capabilities]
