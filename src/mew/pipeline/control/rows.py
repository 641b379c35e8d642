"""The rows that the control fold keeps until they are final, by the names of their columns.

Plain values, as they stand in the state between two batches; times are microseconds since 1970. What a column means is
said in `mew.pipeline.schemas`.
"""

from typing import TypedDict

import msgspec


class PresenceRow(msgspec.Struct, kw_only=True, gc=False):
    """A participant is present."""

    participant: str
    transport: str
    anonymous: bool
    joined_position: int
    joined_time: int
    left_position: int | None = None
    left_time: int | None = None
    reason: str | None = None
    takeovers: list[int] = []
    capabilities: str


class Owned(TypedDict):
    """From this record on a stream has this owner."""

    owner: str
    position: int
    time: int


class StreamRow(msgspec.Struct, kw_only=True, gc=False):
    """A stream, from the record that made it on."""

    stream_id: str
    namespace: str
    creator: str
    way: str
    position: int
    time: int
    started_position: int | None = None
    started_time: int | None = None
    owner: str
    owners: list[Owned]
    writers: list[str] = []
    formats: list[str] = []
    targets: list[str] | None = None
    policy: str | None = None
    request: str
    frames: int = 0
    """Frames do not pass through here: the job adds these three, from the totals of writers."""
    data: int = 0
    bytes: int = 0
    refused: int = 0
    ended_position: int | None = None
    ended_time: int | None = None
    ended_kind: str | None = None
    ended_by: str | None = None
    reason: str | None = None


class Writing(msgspec.Struct, kw_only=True, gc=False):
    """A participant can write to a stream."""

    stream_id: str
    participant: str
    role: str
    from_position: int
    from_time: int
    to_position: int | None = None
    to_time: int | None = None
    granted_by: str | None = None
    why: str
    ended_why: str | None = None


class Holding(msgspec.Struct, kw_only=True, gc=False):
    """A participant has a capability."""

    participant: str
    capability: str
    source: str
    granted_by: str | None = None
    from_position: int
    from_time: int
    to_position: int | None = None
    to_time: int | None = None


class Announced(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A format as a stream announced it: final immediately."""

    stream_id: str
    format_id: str
    position: int
    time: int
    participant: str
    fingerprint: str
    slug: str
    mime_type: str | None
    description: str | None
    schema: str | None
    columns: str | None


class Lost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Frames that a reader did not get: final immediately."""

    position: int
    time: int
    reader: str
    stream_id: str
    first: int
    last: int
    dropped: int
    reason: str | None


class Administered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something was done to the space from outside: final immediately."""

    position: int
    time: int
    action: str
    actor: str
    participant: str | None
    observer: bool | None
    peer: str | None
    transport: str | None
    error: str | None
    count: int
    uid: int | None
    changes: str | None


class ApprovalRow(msgspec.Struct, kw_only=True, gc=False):
    """A proposal that the gateway kept, from its opening on."""

    position: int
    time: int
    proposal: str
    proposer: str
    to: list[str]
    method: str
    tool: str | None
    digest: str
    expires: int
    votes: list[str]
    outcome: str = "open"
    ended_position: int | None = None
    ended_time: int | None = None
    by: str | None = None
    request: str | None = None
    decided_after: int | None = None


class ConversationRow(msgspec.Struct, kw_only=True, gc=False):
    """Envelopes that answer one another."""

    root: str
    root_kind: str
    position: int
    time: int
    last_position: int
    last_time: int
    method: str
    participants: list[str]
    kinds: list[str]
    positions: list[int]
    times: list[int]
    outcome: str = "open"
    decided_after: int | None = None
    answered_after: int | None = None
    ids: list[str]
    """Of its envelopes, for those to come that name one; no column."""
    expires: int = 0
    """When the proposal that it began with is closed at the latest; 0 where the gateway kept none, or it ended."""
    tracked: bool = False
    """Whether the gateway kept the proposal: then its stamps decide."""
    fulfilment: str = ""
    """Id of the request that fulfilled it."""
