"""How a journal is kept: what a space's configuration says of it, as one frozen value."""

from typing import Literal, TypeAlias

import msgspec

from mew.journal.kafka.address import Address

SyncMode: TypeAlias = Literal["always", "interval", "os"]
ErrorPolicy: TypeAlias = Literal["stop", "continue"]


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `journal` section of space.yaml."""

    enabled: bool = True
    """Whether it is kept; without it a restart forgets the space."""
    sync: SyncMode = "interval"
    """When the disk has it: `always`, before anything leaves; `interval:<ms>`, within so long; `os`, when it likes."""
    interval_ms: int = 50
    """How long frames may wait to be written; control records never do."""
    segment_bytes: int = 64 * 2**20
    """A log of this size is sealed; at least 65536."""
    segment_seconds: float = 5
    """So is one of this age."""
    retention_seconds: float | None = None
    """How long it is kept: `30d`, `12h`, `90m`, or `all`."""
    on_error: ErrorPolicy = "stop"
    """While it cannot be written: `stop` takes no more, `continue` goes on unrecorded."""
    kafka: Address | None = None
    """Where its blocks are sent besides, by a process of their own."""
