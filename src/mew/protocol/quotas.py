"""Quotas on the open streams and capabilities of each participant, and on the bytes they add to every welcome.

Pure. The totals are derived from the state and kept up to date. So a check costs about the same for any state size.
"""

from mew.protocol.capabilities import Capability
from mew.protocol.errors import QuotaExceeded
from mew.protocol.settings import Limits
from mew.protocol.state import SpaceState
from mew.protocol.streams import StreamEntry


class StreamUsage:
    """Counts open streams and the bytes of their metadata, for each participant that requested them.

    A stream counts for its creator. A transfer neither frees the creator's quota nor uses the new owner's quota.
    """

    def __init__(self) -> None:
        """Start with no open streams."""
        self._held: dict[str, tuple[str, int]] = {}
        self._streams: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._total = 0

    def put(self, stream: StreamEntry) -> None:
        """Count an open stream. Its creator and its metadata never change, so a known stream is ignored."""
        if stream.stream_id in self._held:
            return
        creator, size = stream.creator, metadata_bytes(stream)
        self._held[stream.stream_id] = creator, size
        self._streams[creator] = self._streams.get(creator, 0) + 1
        self._bytes[creator] = self._bytes.get(creator, 0) + size
        self._total += size

    def drop(self, stream_id: str) -> None:
        """Remove a stream that has ended."""
        creator, size = self._held.pop(stream_id)
        self._total -= size
        self._streams[creator] -= 1
        self._bytes[creator] -= size
        if not self._streams[creator]:
            del self._streams[creator], self._bytes[creator]

    def require_room(self, asked: StreamEntry, limits: Limits) -> None:
        """Raise `QuotaExceeded`, which names the quota, if one more stream would exceed a quota."""
        creator, size = asked.creator, metadata_bytes(asked)
        for quota, limit, value, what in (
            ("streams", limits.streams, len(self._held) + 1, "the space may have {limit} open streams"),
            (
                "streams_per_participant",
                limits.streams_per_participant,
                self._streams.get(creator, 0) + 1,
                "{creator!r} may have {limit} open streams: close one first",
            ),
            (
                "stream_metadata_bytes_per_participant",
                limits.stream_metadata_bytes_per_participant,
                self._bytes.get(creator, 0) + size,
                "the open streams of {creator!r} may be described in {limit} bytes; with this one it is {value}",
            ),
            (
                "stream_metadata_bytes",
                limits.stream_metadata_bytes,
                self._total + size,
                "the open streams of the space may be described in {limit} bytes; with this one it is {value}",
            ),
        ):
            if value > limit:
                message = what.format(limit=limit, value=value, creator=creator)
                raise QuotaExceeded(message, quota=quota, limit=limit, value=value)


def metadata_bytes(stream: StreamEntry) -> int:
    """Return the size of a stream's stored request: names and texts of all fields that are kept."""
    fields = {"direction": stream.direction, "encoding": stream.encoding, **stream.fields}
    return sum(len(name) + len(text) for name, text in fields.items())


class CapabilityUsage:
    """Counts the bytes of the capabilities that participants were granted or invited with."""

    def __init__(self) -> None:
        """Start with no capabilities."""
        self._sizes: dict[str, int] = {}
        self._total = 0

    def put(self, state: SpaceState, participant: str) -> None:
        """Recompute the total of a participant whose capabilities may have changed."""
        granted = tuple(each.capability for each in state.grants.get(participant, ()))
        size = _text_bytes((*granted, *(state.invited.get(participant) or ())))
        self._total += size - self._sizes.pop(participant, 0)
        if size:
            self._sizes[participant] = size

    def require_room(self, participant: str, capabilities: tuple[Capability, ...], limits: Limits) -> None:
        """Raise `QuotaExceeded`, which names the quota, if these additional capabilities would exceed a quota."""
        added = _text_bytes(capabilities)
        for quota, limit, value, whose in (
            (
                "capability_bytes_per_participant",
                limits.capability_bytes_per_participant,
                self._sizes.get(participant, 0) + added,
                f"the capabilities that {participant!r} is granted or invited with",
            ),
            (
                "capability_bytes",
                limits.capability_bytes,
                self._total + added,
                "all capabilities that were granted or came with an invitation",
            ),
        ):
            if value > limit:
                message = f"{whose} may have {limit} bytes; with these it is {value}"
                raise QuotaExceeded(message, quota=quota, limit=limit, value=value)


def _text_bytes(capabilities: tuple[Capability, ...]) -> int:
    return sum(len(each.text) for each in capabilities)
