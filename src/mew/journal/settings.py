"""How a journal is kept: what a space's configuration says of it, as one frozen value."""

from typing import Literal, TypeAlias

import msgspec

from mew.journal.kafka.address import Address

SyncMode: TypeAlias = Literal["always", "interval", "os"]
ErrorPolicy: TypeAlias = Literal["stop", "continue"]


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `journal` section of space.yaml."""

    enabled: bool = True
    sync: SyncMode = "interval"
    """When the disk has it: before anything leaves, within `interval_ms`, or whenever the system likes."""
    interval_ms: int = 50
    """How long frames may wait to be written; control records never do."""
    segment_bytes: int = 64 * 2**20
    segment_seconds: float = 5
    """So full or so old a log is sealed."""
    retention_seconds: float | None = None
    """None: everything is kept."""
    on_error: ErrorPolicy = "stop"
    """What a gateway does that cannot write: take no more, or go on unrecorded."""
    kafka: Address | None = None
    """Where its blocks are sent besides, by a process of their own."""
