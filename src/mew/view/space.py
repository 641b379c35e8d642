"""The view itself: participants, their capabilities, and the open streams, as the last envelope left them.

Frozen values. How they change stands in `fold`.
"""

from typing import Any

import msgspec


class ParticipantView(msgspec.Struct, frozen=True):
    """Somebody who is present."""

    id: str
    """Its name in the space."""
    capabilities: list[dict[str, Any]]
    """What it may send, as the protocol writes it."""


class StreamView(msgspec.Struct, frozen=True):
    """An open stream: the entry that a welcome would have for it."""

    entry: dict[str, Any]
    """The entry, field by field."""

    @property
    def stream_id(self) -> str:
        """Its id within the space."""
        return str(self.entry["stream_id"])

    @property
    def namespace(self) -> str:
        """Its id among all spaces."""
        return str(self.entry["stream"]["namespace"])

    @property
    def owner(self) -> str:
        """Who decides about it."""
        return str(self.entry["owner"])

    @property
    def writers(self) -> tuple[str, ...]:
        """Who may write to it, the owner first."""
        return tuple(self.entry["authorized_writers"])

    @property
    def status(self) -> str:
        """`ready` or `live`."""
        return str(self.entry["stream"]["status"])

    @property
    def owner_connected(self) -> bool:
        """Whether its owner is present."""
        return bool(self.entry["stream"]["owner_connected"])

    @property
    def frames(self) -> int:
        """How many frames and data it has carried, as far as this observer could count."""
        return int(self.entry["stream"]["frames"])

    @property
    def formats(self) -> list[dict[str, Any]]:
        """What its data look like."""
        return list(self.entry["stream"]["formats"])

    def with_entry(self, **changes: Any) -> "StreamView":
        """The same stream with other top-level fields."""
        return StreamView({**self.entry, **changes})

    def with_stream(self, **changes: Any) -> "StreamView":
        """The same stream with other fields in its `stream` object."""
        return self.with_entry(stream={**self.entry["stream"], **changes})


class ProposalView(msgspec.Struct, frozen=True):
    """An open proposal: the entry that a welcome would have for it."""

    entry: dict[str, Any]
    """The entry, field by field."""

    @property
    def position(self) -> int:
        """Of its record: what identifies it."""
        return int(self.entry["position"])

    @property
    def proposal_id(self) -> str:
        """Its envelope's id: what a fulfilment names in `correlation_id`."""
        return str(self.entry["id"])

    @property
    def proposer(self) -> str:
        """Who proposed it."""
        return str(self.entry["from"])

    @property
    def digest(self) -> str:
        """Of method, params and recipients."""
        return str(self.entry["digest"])

    @property
    def expires_at(self) -> str:
        """When it is closed at the latest."""
        return str(self.entry["expires_at"])

    @property
    def votes(self) -> tuple[str, ...]:
        """Who has approved it."""
        return tuple(self.entry["votes"])


class SpaceView(msgspec.Struct, frozen=True):
    """What one observer knows of a space."""

    you: ParticipantView
    """The observer itself."""
    participants: dict[str, ParticipantView]
    """The others, in order of joining."""
    streams: dict[str, StreamView]
    """In order of creation."""
    position: int
    """The journal's, at the last welcome."""
    proposals: dict[int, ProposalView] | None = None
    """The open ones by position, in order of opening; None where you may send no `mcp/request`."""

    def may_write(self, stream_id: str) -> bool:
        """Whether you are an authorised writer of a stream that is live."""
        stream = self.streams.get(stream_id)
        return stream is not None and stream.status == "live" and self.you.id in stream.writers
