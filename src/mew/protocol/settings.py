"""What a space is told once, when it is made: who is configured, what is allowed, how much of it.

Frozen values without secrets. Reading them from a file is somebody else's job.
"""

from typing import Any, Literal

import msgspec

from mew.protocol.capability import CHAT_ONLY, Capability

OwnerPolicy = Literal["close", "keep", "transfer"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one participant, stream or space may have."""

    message_bytes: int = 16 * 2**20
    envelopes_per_second: float = 2_000
    envelope_burst: int = 4_000
    frames_per_second: float | None = None
    """None: as many as come."""
    frame_burst: int = 4_000
    connections: int = 10_000
    streams: int = 1_000
    writers: int = 1_024
    formats: int = 64
    stream_request_bytes: int = 256 * 2**10
    """A request's payload stands in every later welcome."""
    grants: int = 2_048
    """Pattern values that one participant may be granted: two for a capability that names just a kind."""
    invitations: int = 10_000
    desired_ids: int = 100_000


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The space's own choice where a stream makes none."""

    on_owner_disconnect: OwnerPolicy = "transfer"
    owner_grace_seconds: float = 60
    validate: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one space, as far as the protocol depends on it."""

    space_id: str
    participants: dict[str, tuple[Capability, ...] | None] = {}
    """Configured ids; None has the defaults."""
    defaults: tuple[Capability, ...] = CHAT_ONLY
    output_logs: frozenset[str] = frozenset()
    allow_anonymous: bool = False
    strict_from: bool = False
    http_presence_seconds: float = 60
    connection_url: str = "ws://localhost:8080"
    streams: StreamSettings = StreamSettings()
    limits: Limits = Limits()

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
        }


def _patterns(capabilities: tuple[Capability, ...] | None) -> list[Any] | None:
    return None if capabilities is None else [capability.pattern for capability in capabilities]
