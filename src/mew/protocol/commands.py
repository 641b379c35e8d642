"""What a space can be told: the whole input of `Space.handle`.

Frozen values that doors build. A connection is a name that its door chose; `http:<id>` and `log:<id>` are the
space's own.
"""

from typing import Any, Literal, TypeAlias

import msgspec

Transport = Literal["websocket", "http", "virtual"]


class Start(msgspec.Struct, frozen=True):
    """The gateway has started: a new epoch, nobody here."""

    epoch: str
    """Unique for each start; every id the gateway makes begins with it."""


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whose identity is established comes in by a socket."""

    connection: str
    participant: str
    observer: bool = False
    anonymous: bool = False
    cause: tuple[str, ...] = ()
    """The id of the join message, where it had one."""
    peer: str | None = None
    """The address it comes from, for the journal alone."""
    source: str | None = None
    """As in `RefuseConnection`."""


class Attach(msgspec.Struct, frozen=True):
    """Connect an `output_log` participant to its file (protocol §5)."""

    participant: str


class Leave(msgspec.Struct, frozen=True):
    """A connection is gone."""

    connection: str
    reason: str | None = None


class Receive(msgspec.Struct, frozen=True):
    """A message came in by a connection: JSON, or a frame."""

    connection: str
    message: bytes
    text: bool = True
    """The WebSocket opcode, which a frame keeps."""


class Post(msgspec.Struct, frozen=True):
    """A message came in over HTTP, from an authenticated participant."""

    participant: str
    message: bytes
    peer: str | None = None
    """The address it comes from, for the journal alone."""


class Poll(msgspec.Struct, frozen=True):
    """An authenticated participant asks over HTTP for what it has received."""

    participant: str
    peer: str | None = None
    """The address it comes from, for the journal alone."""


class RefuseConnection(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody without a place here wanted to join, or asked over HTTP, and was refused."""

    error: str
    """The code it was refused with."""
    peer: str
    source: str | None = None
    """What its refusals are counted under: an address, or a network of them; None: `peer` without its port."""
    transport: Transport
    participant: str | None = None
    """The id it claimed; recorded only where it is an id of the space, because it may be anything, even a token."""


class Administer(msgspec.Struct, frozen=True, kw_only=True):
    """Something was done to a space from outside, and is to be on record."""

    action: str
    """One of `administration`'s."""
    participant: str | None = None
    """Whom it is about."""
    observer: bool = False
    uid: int | None = None
    """The user of the machine who did it; None: not known, or the gateway itself."""
    changes: tuple[dict[str, Any], ...] = ()
    """Of the configuration: key, value before and value after."""


class Lose(msgspec.Struct, frozen=True, kw_only=True):
    """A reader was too slow, or left, and frames of a stream were dropped for it."""

    participant: str
    stream_id: str
    first: int
    last: int
    dropped: int
    reason: str | None = None
    """`disconnected` where nobody is left to be told."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Put the whole state on record, so that nobody has to fold what was before."""


Command: TypeAlias = (
    Start | Join | Attach | Leave | Receive | Post | Poll | Lose | Tick | Checkpoint | RefuseConnection | Administer
)
