"""The tables of a lake, declared: names, columns with their types and meaning, never inferred.

Every engine must know the types: no maps, no unsigned numbers, no nanoseconds. Where a table is `unfinished`, the
boolean column `open` parts the rows that may still change from those that are final; it is no column of the files.
"""

from typing import Final

import msgspec
import pyarrow as pa

COMMENT: Final = b"comment"
TIME: Final = pa.timestamp("us", tz="UTC")
TEXT: Final = pa.string()
NUMBER: Final = pa.int64()
TEXTS: Final = pa.list_(pa.field("element", TEXT))
NUMBERS: Final = pa.list_(pa.field("element", NUMBER))
TIMES: Final = pa.list_(pa.field("element", TIME))
OPEN: Final = "open"


class Table(msgspec.Struct, frozen=True):
    """One table of the lake."""

    name: str
    comment: str
    schema: pa.Schema
    """With `open` as its last column where it is unfinished."""
    unfinished: bool = False
    key: tuple[str, ...] = ("space", "position")
    """The columns that tell its rows apart."""

    @property
    def partitions(self) -> list[str]:
        """The columns that part its files."""
        return [OPEN] if self.unfinished else []

    @property
    def file_schema(self) -> pa.Schema:
        """What its files hold."""
        return pa.schema([field for field in self.schema if field.name not in self.partitions])


def _column(name: str, of: pa.DataType, comment: str, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, of, nullable, {COMMENT: comment.encode()})


def _needed(name: str, of: pa.DataType, comment: str) -> pa.Field:
    return _column(name, of, comment, nullable=False)


SPACE: Final = _needed("space", TEXT, "the space it happened in")
POSITION: Final = _needed("position", NUMBER, "its place in the space's one order")
AT: Final = _needed("time", TIME, "by the gateway's clock")


def _table(name: str, comment: str, *columns: pa.Field, unfinished: bool = False, key: str = "position") -> Table:
    last = [_column(OPEN, pa.bool_(), "whether the row may still change")] if unfinished else []
    return Table(name, comment, pa.schema([SPACE, *columns, *last]), unfinished, ("space", *key.split()))


ENVELOPES: Final = _table(
    "envelopes",
    "An envelope that was accepted or refused; accepted stream/data is in frames.",
    POSITION,
    AT,
    _needed("event", TEXT, "envelope, consumed or rejected"),
    _needed("accepted", pa.bool_(), "whether the gateway took it"),
    _needed("participant", TEXT, "who sent it"),
    _column("kind", TEXT, "what kind of envelope"),
    _column("envelope_id", TEXT, "its id"),
    _column("to", TEXTS, "whom it is addressed to; null for all"),
    _column("correlation_id", TEXTS, "the envelopes it answers"),
    _column("context", TEXT, "the reasoning it belongs to, as JSON"),
    _column("payload", TEXT, "as JSON, of a refused one {bytes, sha256, head}; null where it is none"),
    _column("reason", TEXT, "why it was refused"),
    _column("capability", TEXT, "the capability that allowed it, as JSON"),
    _needed("size", NUMBER, "bytes of the whole envelope"),
    _column("stream_id", TEXT, "the open stream that it is about; null for a refused one"),
    _needed("bytes", NUMBER, "bytes of it that the journal has; of a refused one, without its payload"),
    _column(
        "capability_fits",
        pa.bool_(),
        "whether a pattern of the sender allows it: the capability, or one for stream/manage where another's stream "
        "was ended; null where no pattern is needed",
    ),
    _column("grant_covered", pa.bool_(), "of a capability/grant, whether its sender had everything that it grants"),
    _column("problem", TEXT, "why it could not be applied to the state of the space; null if it could"),
)
_FRAME_COUNT = pa.struct([pa.field("stream_id", TEXT), pa.field("frames", NUMBER)])
SYSTEM_RECORDS: Final = _table(
    "system_records",
    "A record that is neither an envelope nor a frame.",
    POSITION,
    AT,
    _needed("event", TEXT, "start, join, leave, frame_rejected, gap, welcome, checkpoint or admin"),
    _needed("participant", TEXT, "whom it concerns"),
    _column("stream_id", TEXT, "which stream"),
    _column("reason", TEXT, "why it happened, or its type"),
    _needed("size", NUMBER, "bytes of the message or the text; 0 for joins and leaves"),
    _needed("bytes", NUMBER, "bytes of it that the journal has"),
    _column("configuration", TEXT, "of a start, the configuration without secrets, as JSON"),
    _column("frame_counts", pa.list_(pa.field("element", _FRAME_COUNT)), "of a welcome, the frames that it counts"),
    _column(
        "difference",
        TEXT,
        "what of a welcome or a checkpoint differs from the state rebuilt at its position; null if nothing does. "
        "Counts of frames are not compared here",
    ),
    _column("problem", TEXT, "why it could not be applied to the state of the space; null if it could"),
)
PARTICIPANTS: Final = _table(
    "participants",
    "A presence: a participant was present from one record to another.",
    _needed("participant", TEXT, "who"),
    _needed("transport", TEXT, "how it was connected"),
    _needed("anonymous", pa.bool_(), "whether it had no token"),
    _needed("joined_position", NUMBER, "the record of its joining"),
    _needed("joined_time", TIME, "when it joined"),
    _column("left_position", NUMBER, "the record of its leaving, or of the start that found it gone"),
    _column("left_time", TIME, "when it left"),
    _column("reason", TEXT, "why it left; restart where the gateway went first"),
    _needed("takeovers", NUMBERS, "positions at which another connection took over"),
    _needed("capabilities", TEXT, "what it could do when it joined, as JSON"),
    unfinished=True,
    key="participant joined_position",
)
_OWNED = pa.struct([pa.field("owner", TEXT), pa.field("position", NUMBER), pa.field("time", TIME)])
STREAMS: Final = _table(
    "streams",
    "A stream's whole life.",
    _needed("stream_id", TEXT, "which stream"),
    _needed("namespace", TEXT, "its full name"),
    _needed("creator", TEXT, "who asked for it"),
    _needed("way", TEXT, "request or announce"),
    _needed("position", NUMBER, "the record that made it"),
    _needed("time", TIME, "when it was made"),
    _column("started_position", NUMBER, "from where on it was live"),
    _column("started_time", TIME, "since when it was live"),
    _needed("owner", TEXT, "its last owner"),
    _needed("owners", pa.list_(pa.field("element", _OWNED)), "every owner, and from where on"),
    _needed("writers", TEXTS, "all participants that ever could write, in order"),
    _needed("formats", TEXTS, "fingerprints of its formats, in order"),
    _column("targets", TEXTS, "its only receivers; null for all"),
    _column("policy", TEXT, "what happens to it when its owner leaves, as JSON"),
    _needed("request", TEXT, "every field it was asked for with, as JSON"),
    _needed("frames", NUMBER, "raw frames accepted"),
    _needed("data", NUMBER, "stream/data accepted"),
    _needed("bytes", NUMBER, "of both, without the frames' headers"),
    _needed("refused", NUMBER, "frames refused while it was open"),
    _column("ended_position", NUMBER, "the record that ended it"),
    _column("ended_time", TIME, "when it ended"),
    _column("ended_kind", TEXT, "the kind of envelope that ended it"),
    _column("ended_by", TEXT, "who ended it"),
    _column("reason", TEXT, "why it ended"),
    unfinished=True,
    key="stream_id",
)
STREAM_ACCESS: Final = _table(
    "stream_access",
    "Who could write to a stream from one position to another.",
    _needed("stream_id", TEXT, "which stream"),
    _needed("participant", TEXT, "who could write"),
    _needed("role", TEXT, "owner or writer"),
    _needed("from_position", NUMBER, "the record that let it"),
    _needed("from_time", TIME, "since when"),
    _column("to_position", NUMBER, "the record that ended it; from there on it could not"),
    _column("to_time", TIME, "until when"),
    _column("granted_by", TEXT, "who let it"),
    _needed("why", TEXT, "the kind of envelope that let it"),
    _column("ended_why", TEXT, "what ended it"),
    unfinished=True,
    key="stream_id participant role from_position",
)
CAPABILITIES: Final = _table(
    "capabilities",
    "Who had which capability from one position to another.",
    _needed("participant", TEXT, "whose"),
    _needed("capability", TEXT, "as JSON"),
    _needed("source", TEXT, "configured, invited, default, baseline or grant:<id>"),
    _column("granted_by", TEXT, "who granted it"),
    _needed("from_position", NUMBER, "the record that gave it"),
    _needed("from_time", TIME, "since when"),
    _column("to_position", NUMBER, "the record that took it; from there on it was gone"),
    _column("to_time", TIME, "until when"),
    unfinished=True,
    key="participant capability source from_position",
)
FORMATS: Final = _table(
    "formats",
    "A format as a stream announced it, or the one that a v0.4 stream means by its format or content_type.",
    _needed("stream_id", TEXT, "which stream"),
    _needed("format_id", TEXT, "its id within the stream, or the v0.4 stream's own word for it"),
    POSITION,
    AT,
    _needed("participant", TEXT, "who announced it"),
    _needed("fingerprint", TEXT, "of its canonical schema, the same in all spaces"),
    _needed("slug", TEXT, "its id as part of a table's name"),
    _column("mime_type", TEXT, "what its frames are"),
    _column("description", TEXT, "in the announcer's words"),
    _column("schema", TEXT, "its JSON Schema"),
    _column("columns", TEXT, "property to column and type, as JSON; null where it has none"),
    key="stream_id format_id",
)
FRAMES: Final = _table(
    "frames",
    "A frame, or a stream/data, that was accepted.",
    _needed("stream_id", TEXT, "which stream"),
    POSITION,
    AT,
    _needed("writer", TEXT, "who sent it"),
    _needed("frame_number", NUMBER, "the gateway's count on the stream, from 1"),
    _needed("kind", TEXT, "frame or data"),
    _column("sequence", NUMBER, "the sender's own number"),
    _needed("size", NUMBER, "bytes, without a frame's header"),
    _column("format_id", TEXT, "which of its stream's formats"),
    _column("format", TEXT, "that format's fingerprint"),
    _column("value", TEXT, "its content as JSON, or as text; null where it is neither"),
    _column("raw", pa.binary(), "its content where it is not text"),
    _column("valid", pa.bool_(), "whether it is what its format says; null where there is no format"),
    _needed("bytes", NUMBER, "bytes of its record in the journal"),
)
QUARANTINE: Final = _table(
    "quarantine",
    "A frame that is not what its format says.",
    _needed("stream_id", TEXT, "which stream"),
    POSITION,
    AT,
    _needed("writer", TEXT, "who sent it"),
    _needed("frame_number", NUMBER, "the gateway's count on the stream"),
    _column("format_id", TEXT, "which format it should have"),
    _column("format", TEXT, "that format's fingerprint"),
    _needed("reason", TEXT, "not_json, schema, not_utf8, length, unknown_format or bad_record"),
    _needed("detail", TEXT, "a description of the error"),
    _needed("payload", pa.binary(), "the record's own bytes"),
)
SEQUENCE_GAPS: Final = _table(
    "sequence_gaps",
    "Numbers that a writer left out of its sequence.",
    _needed("stream_id", TEXT, "which stream"),
    _needed("writer", TEXT, "whose sequence"),
    POSITION,
    AT,
    _needed("first", NUMBER, "the first number missing"),
    _needed("last", NUMBER, "the last number missing"),
    _needed("missing", NUMBER, "how many"),
)
READER_GAPS: Final = _table(
    "reader_gaps",
    "Frames that a reader did not get, as reported to it.",
    POSITION,
    AT,
    _needed("reader", TEXT, "who did not get them"),
    _needed("stream_id", TEXT, "of which stream"),
    _needed("first", NUMBER, "the first frame missing, by the gateway's count"),
    _needed("last", NUMBER, "the last"),
    _needed("dropped", NUMBER, "how many"),
    _column("reason", TEXT, "why"),
)
STREAM_ACTIVITY: Final = _table(
    "stream_activity",
    "What flowed on a stream in a second, and in a minute.",
    _needed("stream_id", TEXT, "which stream"),
    _needed("seconds", NUMBER, "the width of the window, 1 or 60"),
    _needed("start", TIME, "when the window begins"),
    _needed("frames", NUMBER, "frames and stream/data"),
    _needed("bytes", NUMBER, "their bytes"),
    _needed("writers", TEXTS, "who wrote, in the order of their names"),
    _needed("invalid", NUMBER, "not what their format says"),
    _needed("missing", NUMBER, "numbers left out, as revealed here"),
    _column("interarrival_p50", NUMBER, "microseconds from frame to frame: half are below"),
    _column("interarrival_p99", NUMBER, "the same, 99 of 100 are below"),
    unfinished=True,
    key="stream_id seconds start",
)
_COUNTED = pa.struct([pa.field("kind", TEXT), pa.field("count", NUMBER)])
PARTICIPANT_ACTIVITY: Final = _table(
    "participant_activity",
    "What a participant did in a minute.",
    _needed("participant", TEXT, "who"),
    _needed("start", TIME, "when the minute begins"),
    _needed("envelopes", NUMBER, "envelopes accepted"),
    _needed("kinds", pa.list_(pa.field("element", _COUNTED)), "these by kind, in the order of their names"),
    _needed("refusals", NUMBER, "envelopes and frames refused"),
    _needed("frames", NUMBER, "frames and stream/data accepted"),
    _needed("bytes", NUMBER, "bytes of these"),
    unfinished=True,
    key="participant start",
)
CONVERSATIONS: Final = _table(
    "conversations",
    "Envelopes that answer one another, from a proposal or a request to its outcome.",
    _needed("root", TEXT, "the id of the first"),
    _needed("root_kind", TEXT, "its kind"),
    _needed("position", NUMBER, "its record"),
    _needed("time", TIME, "when it was sent"),
    _needed("last_position", NUMBER, "the last record so far"),
    _needed("last_time", TIME, "when that was"),
    _needed("method", TEXT, "what was asked for, where it says so; else empty"),
    _needed("participants", TEXTS, "who spoke, in order"),
    _needed("kinds", TEXTS, "the kinds, in order"),
    _needed("positions", NUMBERS, "the records, in order"),
    _needed("times", TIMES, "when each was"),
    _needed("outcome", TEXT, "fulfilled, rejected, withdrawn, cancelled, expired or open"),
    _column("decided_after", NUMBER, "microseconds from a proposal to the request or the refusal of it"),
    _column("answered_after", NUMBER, "microseconds from the root to its outcome"),
    unfinished=True,
)
APPROVALS: Final = _table(
    "approvals",
    "A proposal that the gateway kept, from its opening to its end.",
    POSITION,
    AT,
    _needed("proposal", TEXT, "the id of its envelope"),
    _needed("proposer", TEXT, "who proposed it"),
    _needed("to", TEXTS, "who is to answer it; empty where that was left open"),
    _needed("method", TEXT, "what it asks for"),
    _column("tool", TEXT, "of tools/call, which one"),
    _needed("digest", TEXT, "of method, params and recipients"),
    _needed("expires", TIME, "when it is closed at the latest"),
    _needed("votes", TEXTS, "who approved it where a rule asks for votes, without the one that fulfilled it"),
    _needed("outcome", TEXT, "open, fulfilled, rejected, withdrawn, expired, dropped, kicked or left"),
    _column("ended_position", NUMBER, "the record that closed it"),
    _column("ended_time", TIME, "when that was"),
    _column("by", TEXT, "who closed it; system:gateway where no participant did"),
    _column("request", TEXT, "the envelope by which a participant closed it"),
    _column("decided_after", NUMBER, "microseconds from its opening to its end"),
    unfinished=True,
)
ADMIN_EVENTS: Final = _table(
    "admin_events",
    "What the administration of a space did: connections, refusals, tokens, changes of the configuration.",
    POSITION,
    AT,
    _needed(
        "action",
        TEXT,
        "connection_joined, connection_refused, token_created, token_issued, token_rotated, token_revoked or "
        "configuration_changed",
    ),
    _needed("actor", TEXT, "who joined or invited; system:gateway for everything else"),
    _column("participant", TEXT, "whose token, or who wanted to join, where the space knows that id"),
    _column("observer", pa.bool_(), "whether it is an observer's"),
    _column("peer", TEXT, "the address it came from; where several are counted, without the port"),
    _column("transport", TEXT, "websocket or http"),
    _column("error", TEXT, "the code it was refused with"),
    _needed("count", NUMBER, "how many refusals this row stands for; 1 for everything else"),
    _column("uid", NUMBER, "the user of the gateway's machine who changed a token"),
    _column("changes", TEXT, "keys of the configuration with the values before and after, as JSON"),
)
AUDIT: Final = _table(
    "audit",
    "A check of what happened, up to a position.",
    _needed("check", TEXT, "which check"),
    _needed("to_position", NUMBER, "up to this record"),
    _needed("checked", NUMBER, "how many were looked at"),
    _needed("violations", NUMBER, "how many were wrong"),
    _needed("sample", TEXT, "some of them, as JSON"),
    key="check to_position",
)

TABLES: Final = {
    table.name: table
    for table in (
        ENVELOPES,
        SYSTEM_RECORDS,
        PARTICIPANTS,
        STREAMS,
        STREAM_ACCESS,
        CAPABILITIES,
        FORMATS,
        FRAMES,
        QUARANTINE,
        SEQUENCE_GAPS,
        READER_GAPS,
        STREAM_ACTIVITY,
        PARTICIPANT_ACTIVITY,
        CONVERSATIONS,
        APPROVALS,
        ADMIN_EVENTS,
        AUDIT,
    )
}
"""By name, in the order in which a batch commits them; `progress`, which is last, is the lake's own."""
