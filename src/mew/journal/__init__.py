"""The journal of a space: one total order of records, in a write-ahead log and in Parquet segments."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from mew.errors import MewError
from mew.journal.kafka import TopicUrl

SyncMode: TypeAlias = Literal["always", "interval", "os"]
ErrorPolicy: TypeAlias = Literal["stop", "continue"]
MIN_SEGMENT_BYTES: Final = 64 * 2**10


class JournalError(MewError):
    """The journal cannot be written, read, maintained or shipped; the message gives the reason."""


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `journal` section of space.yaml."""

    enabled: bool = True
    """Whether a journal is written. Without it, a restart starts with an empty space."""
    sync: SyncMode = "interval"
    """When records are synced to disk: `always`, before delivery; `interval:<ms>`, within this time; or `os`."""
    interval_ms: int = 50
    """How long frames may wait to be written. Control records never wait."""
    segment_bytes: Annotated[int, msgspec.Meta(ge=MIN_SEGMENT_BYTES)] = 64 * 2**20
    """The size at which a log is sealed; at least 65536."""
    segment_seconds: float = 5
    """The age at which a log is sealed."""
    retention_seconds: float | None = None
    """How long records are retained: `30d`, `12h`, `90m`, or `all`."""
    on_error: ErrorPolicy = "stop"
    """While the journal cannot be written: `stop` refuses messages, `continue` accepts them unrecorded."""
    kafka: TopicUrl | None = None
    """A Kafka topic that a separate process also sends the blocks to."""
