"""The interface of the core: the commands that `SpaceCore.handle` takes, and the effects that it returns, in order.

Frozen values. Transports create the commands, and a hub executes the effects. A record precedes the deliveries that it
records. A connection is a name that its transport chooses; nothing is read from the name.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from mew.protocol.capabilities import Decision
from mew.protocol.errors import ProtocolError
from mew.protocol.records import Record

Transport = Literal["websocket", "http", "virtual"]


def http_connection(participant: str) -> str:
    """Return the connection of a participant's HTTP presence. No transport chooses such a name."""
    return f"http:{participant}"


def log_connection(participant: str) -> str:
    """Return the connection of a participant's `output_log`. No transport chooses such a name."""
    return f"log:{participant}"


# Commands


class Start(msgspec.Struct, frozen=True):
    """The gateway has started: a new epoch begins, and no participant is present."""

    epoch: str
    """Unique for each start. Every id that the gateway creates begins with it."""


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A participant or observer joins by a socket. Its identity was checked before."""

    connection: str
    participant: str
    observer: bool = False
    anonymous: bool = False
    cause: tuple[str, ...] = ()
    """The id of the join message, if it had one."""
    peer: str | None = None
    """The remote address, used only in the journal."""
    source: str | None = None
    """The key for counting refusals, as in `RefuseConnection`."""


class AttachOutputLog(msgspec.Struct, frozen=True):
    """Connect an `output_log` participant to its file (protocol §5)."""

    participant: str


class Leave(msgspec.Struct, frozen=True):
    """A connection has closed."""

    connection: str
    reason: str | None = None


class Receive(msgspec.Struct, frozen=True):
    """A message arrived on a connection: JSON or a frame."""

    connection: str
    message: bytes
    text: bool = True
    """Whether the WebSocket opcode is text. A frame is relayed with the same opcode."""


class Post(msgspec.Struct, frozen=True):
    """An authenticated participant sent a message over HTTP."""

    participant: str
    message: bytes
    peer: str | None = None
    """The remote address, used only in the journal."""


class Poll(msgspec.Struct, frozen=True):
    """An authenticated participant requests its received messages over HTTP."""

    participant: str
    peer: str | None = None
    """The remote address, used only in the journal."""


class RefuseConnection(msgspec.Struct, frozen=True, kw_only=True):
    """A join or an HTTP request was rejected before the caller was admitted to the space."""

    error: str
    """The error code of the refusal."""
    peer: str
    source: str | None = None
    """The key for counting refusals: an address or a network. None means `peer` without its port."""
    transport: Transport
    participant: str | None = None
    """The claimed id. It is recorded only if it is an id of the space: it may be anything, even a token."""


class Administer(msgspec.Struct, frozen=True, kw_only=True):
    """An administrative action from outside the space, to be recorded in the journal."""

    action: str
    """One of the actions defined in `administration`."""
    participant: str | None = None
    """The participant that the action concerns."""
    observer: bool = False
    uid: int | None = None
    """Id of the user on this machine who did it. None if unknown, or if the gateway itself did it."""
    changes: tuple[dict[str, Any], ...] = ()
    """Changes of the configuration: key, value before and value after."""


class ReportLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Frames of a stream were dropped for a reader that was too slow or has left."""

    participant: str
    stream_id: str
    first: int
    last: int
    dropped: int
    reason: str | None = None
    """`disconnected` if the reader can no longer be notified."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Record the whole state, so that earlier records need not be folded."""


Command: TypeAlias = (
    Start
    | Join
    | AttachOutputLog
    | Leave
    | Receive
    | Post
    | Poll
    | ReportLoss
    | Tick
    | Checkpoint
    | RefuseConnection
    | Administer
)


# Effects


class Everyone(msgspec.Struct, frozen=True):
    """All present participants and all observers."""


class AllExcept(msgspec.Struct, frozen=True):
    """All present participants except one, and all observers."""

    participant: str


class Recipients(msgspec.Struct, frozen=True):
    """Only these participants, if they are present. No observers."""

    participants: tuple[str, ...]


class OneConnection(msgspec.Struct, frozen=True):
    """Only this connection."""

    connection: str


Audience: TypeAlias = Everyone | AllExcept | Recipients | OneConnection
EVERYONE = Everyone()


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """From now on, the connection receives the messages for its participant or observer."""

    connection: str
    participant: str
    transport: Transport
    observer: bool = False


class Close(msgspec.Struct, frozen=True):
    """The connection receives nothing more. If it is a socket, it is closed with this code."""

    connection: str
    code: int
    reason: str


class Deliver(msgspec.Struct, frozen=True):
    """Send an envelope to an audience."""

    audience: Audience
    kind: str
    envelope_id: str
    message: bytes


class DeliverFrame(msgspec.Struct, frozen=True):
    """Send a frame to an audience, with its bytes and opcode unchanged."""

    audience: Audience
    stream_id: str
    frame_number: int
    message: bytes
    text: bool


class CapabilityChecked(msgspec.Struct, frozen=True):
    """A capability was checked, with this decision."""

    envelope_id: str
    participant: str
    kind: str
    decision: Decision


class HttpAnswer(msgspec.Struct, frozen=True):
    """The HTTP answer to a `Post`: these fields, or a refusal."""

    body: dict[str, Any]
    refusal: ProtocolError | None = None


Effect: TypeAlias = Record | Admit | Close | Deliver | DeliverFrame | CapabilityChecked | HttpAnswer
