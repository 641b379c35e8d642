"""The settings of the MCP bridge, read from options and environment, and the errors of wrong ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from mew.errors import MewError


class BadSettings(MewError):
    """Settings with which no bridge can work."""


class CannotStart(MewError):
    """The program of the MCP server cannot be run; to try again were of no use."""


class ServerLost(MewError):
    """The MCP server ended, fell silent, or was never there."""


class TooManyRestarts(MewError):
    """The MCP server was lost more often than its limit allows."""


SECRET: Final = "…"


def _positive(**times: float) -> None:
    for name, seconds in times.items():
        if not seconds > 0:
            raise BadSettings(f"{name} must be more than no time, not {seconds:g} s")


class StdioServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that is a program: started by us, spoken to through its standard input and output."""

    command: tuple[str, ...]
    """The program and its arguments."""
    env: Mapping[str, str] = {}
    """Added to our own environment, of which it gets everything but tokens of spaces."""
    cwd: Path | None = None
    """The folder in which it runs; ours unless said otherwise."""

    def __post_init__(self) -> None:
        """A command is needed."""
        if not self.command or not self.command[0]:
            raise BadSettings("an MCP server over stdio needs a command")

    def __repr__(self) -> str:
        return f"StdioServer({self.name!r})"

    @property
    def name(self) -> str:
        """What it is called in sentences: the program, without arguments, which may hold secrets."""
        return self.command[0]


class HttpServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that runs by itself and speaks streamable HTTP."""

    url: str
    """Where it is: `http://` or `https://`."""
    headers: Mapping[str, str] = {}
    """Sent with every request, such as an `Authorization`."""
    ping: float = 30.0
    """Seconds after which it is asked whether it still knows us: it may have been restarted unnoticed."""

    def __post_init__(self) -> None:
        """An address is needed."""
        if not self.url.startswith(("http://", "https://")):
            raise BadSettings(f"an MCP server over HTTP needs an address with http:// or https://, not {self.url!r}")
        _positive(ping=self.ping)

    def __repr__(self) -> str:
        return f"HttpServer({self.name!r})"

    @property
    def name(self) -> str:
        """What it is called in sentences: the address, without a query or a password."""
        scheme, _, rest = self.url.partition("?")[0].partition("://")
        authority, slash, path = rest.partition("/")
        return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


class BridgeTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a bridge waits, and how often it tries again. Times are seconds."""

    initialize: float = 30.0
    """For the server to have started and answered `initialize`."""
    call: float = 60.0
    """For an answer of the server, the wait for a server that is being restarted included."""
    restarts: int = 5
    """So many within `window`; with the next one the bridge gives up."""
    window: float = 60.0
    """The time in which restarts count."""
    backoff: float = 0.1
    """Before the first restart; each further one in the window waits twice as long."""
    longest: float = 10.0
    """The longest delay before a restart."""

    def __post_init__(self) -> None:
        """Every time is positive."""
        delays = {"backoff": self.backoff, "longest": self.longest}
        _positive(initialize=self.initialize, call=self.call, window=self.window, **delays)
        if self.restarts < 0:
            raise BadSettings(f"{self.restarts} restarts are fewer than none")


class BridgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A bridge: an MCP server, and the space in which it is a participant."""

    server: StdioServer | HttpServer
    """The MCP server."""
    url: str
    """Of the gateway: `ws://localhost:8080`."""
    space: str | None = None
    """Which space; the gateway's first unless said otherwise."""
    token: str | None = None
    """Says which participant we are."""
    participant: str | None = None
    """Needed only where there is no token, in a space that lets such in."""
    patience: BridgeTimeouts = BridgeTimeouts()
    """How long it waits, and how often it tries again."""
    concurrency: int = 16
    """Calls that the server works on at the same time."""

    def __post_init__(self) -> None:
        """At least one call at a time."""
        if self.concurrency < 1:
            raise BadSettings(f"a bridge that works on {self.concurrency} calls at a time answers nobody")

    def __repr__(self) -> str:
        token = None if self.token is None else SECRET
        return f"BridgeSettings({self.server!r}, url={self.url!r}, space={self.space!r}, token={token!r})"
