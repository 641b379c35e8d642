"""The settings of a space: its participants, permissions, limits and rules. Frozen structs without secrets.

`mew.config` reads them from files.
"""

from typing import Annotated, Any, Literal

import msgspec

from mew.protocol.capabilities import CHAT_ONLY, Capability

OwnerPolicy = Literal["close", "keep", "transfer"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one participant, stream or space."""

    message_bytes: int = 16 * 2**20
    """Size of one message. Over it: `message_too_large`, close 1009, or 413 over HTTP."""
    envelopes_per_second: float = 2_000
    """Envelopes per second of one participant. Over it: `rate_limited`."""
    envelope_burst: int = 4_000
    """Envelopes that one participant may send in a burst."""
    work_per_second: int = 200_000
    """Work per second of one participant, in units of about 1 µs (protocol, "Limits"). Over it: `rate_limited`."""
    work_burst: int = 200_000
    """Units of work that one participant may use in a burst."""
    bytes_per_second: int = 32 * 2**20
    """Bytes per second of one participant's messages, frames excluded. Over it: `rate_limited`."""
    byte_burst: int = 64 * 2**20
    """Bytes that one participant may send in a burst."""
    heartbeat_bytes: int = 4 * 2**10
    """Size of a heartbeat."""
    control_message_bytes: int = 64 * 2**10
    """Size of a message that the gateway acts on, such as a grant or the end of a stream."""
    explain_bytes: int = 256 * 2**10
    """Size of a message that `mew explain` checks."""
    frames_per_second: float | None = None
    """Frames per second of one participant. Over it: `rate_limited`. Unlimited by default."""
    frame_burst: int = 4_000
    """Frames that one participant may send in a burst."""
    connections: int = 10_000
    """Connections of one space; a tenth is for participants with a token. Over it: `quota_exceeded`, as below."""
    sockets_per_observer: int = 64
    """Joined sockets of one observer token."""
    streams: int = 1_000
    """Open streams of one space."""
    streams_per_participant: int = 256
    """Open streams that one participant has requested, including those that it has transferred."""
    writers: int = 1_024
    """Writers of one stream."""
    formats: int = 64
    """Formats of one stream."""
    patterns: int = 1_024
    """Regular expressions in the formats of all streams of one space."""
    participant_patterns: int = 256
    """Regular expressions in the formats of the streams that one participant has opened."""
    stream_request_bytes: int = 256 * 2**10
    """Size of a stream request: every later welcome repeats its payload."""
    stream_metadata_bytes: int = 2 * 2**20
    """Total size of the requests of all open streams of one space: every welcome repeats them."""
    stream_metadata_bytes_per_participant: int = 2**20
    """Total size of the requests of one participant's open streams."""
    grants: int = 2_048
    """Pattern values that one participant may be granted. A capability with only a kind has two."""
    capability_bytes: int = 4 * 2**20
    """Total text of the capabilities granted or given with invitations in one space."""
    capability_bytes_per_participant: int = 128 * 2**10
    """Text of the capabilities granted to one participant or given with its invitation: welcomes repeat it."""
    invitations: int = 10_000
    """Invitations of one space."""
    desired_ids: int = 100_000
    """Distinct desired stream ids in one space, over its lifetime."""
    live_readers_per_participant: int = 8
    """Live journals that one participant or one observer token may follow over HTTP concurrently."""


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for streams that do not choose."""

    on_owner_disconnect: OwnerPolicy = "transfer"
    """What happens to a stream when its owner leaves. `transfer`: the earliest writer that is present owns it."""
    owner_grace_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60
    """How long an owner that left may return, in seconds."""
    validate: bool = False
    """Whether `stream/data` is validated against the schema of its format."""


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: which `mcp/request` needs how many votes, and whose."""

    match: Capability
    """A pattern for `mcp/request`. The rule applies if the payload and any recipient match."""
    deciders: tuple[str, ...]
    """Who may vote, and who may reject."""
    quorum: int = 1
    """How many votes are needed."""
    not_proposer: bool = True
    """Whether the proposer's own vote is ignored. Without a proposal, the sender is the proposer."""


class SpaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one space, as far as the protocol depends on it."""

    space_id: str
    """Its id: 1 to 128 letters, digits, `.`, `_`, `@` or `-`, the first a letter or digit."""
    participants: dict[str, tuple[Capability, ...] | None] = {}
    """Capabilities by configured id; None means the defaults."""
    defaults: tuple[Capability, ...] = CHAT_ONLY
    """Capabilities of participants without their own; chat only by default."""
    output_logs: frozenset[str] = frozenset()
    allow_anonymous: bool = False
    """Whether a client may join without a token, as an anonymous participant."""
    strict_from: bool = False
    """Whether an envelope with a wrong `from` is refused instead of corrected."""
    http_presence_seconds: float = 60
    connection_url: str = "ws://localhost:8080"
    streams: StreamSettings = StreamSettings()
    limits: Limits = Limits()
    """The limits."""
    approvals: tuple[ApprovalRule, ...] = ()
    """Rules for requests that need votes, for every sender."""

    def effective(self) -> dict[str, Any]:
        """Return the configuration in the form of the journal's `start` record."""
        return {
            "participants": {name: _patterns(capabilities) for name, capabilities in self.participants.items()},
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
