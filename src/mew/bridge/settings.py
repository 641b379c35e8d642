"""Settings of the MCP bridge, read from options and environment, and the errors of the bridge."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from mew.errors import MewError


class InvalidSettings(MewError):
    """The settings are invalid."""


class ServerStartError(MewError):
    """The program of the MCP server cannot be run. A retry would not help."""


class ServerDisconnected(MewError):
    """The MCP server ended, stopped responding, or was never reachable."""


class TooManyRestarts(MewError):
    """The MCP server was lost more often than the restart limit allows."""


SECRET: Final = "…"


def _positive(**times: float) -> None:
    for name, seconds in times.items():
        if not seconds > 0:
            raise InvalidSettings(f"{name} must be greater than 0, not {seconds:g} s")


class StdioServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that the bridge starts as a program. They communicate over its standard input and output."""

    command: tuple[str, ...]
    """The program and its arguments."""
    env: Mapping[str, str] = {}
    """Added to the bridge's environment, which the server inherits without the tokens of spaces."""
    cwd: Path | None = None
    """Working directory of the program; by default the bridge's own."""

    def __post_init__(self) -> None:
        """Raise `InvalidSettings` if the command is empty."""
        if not self.command or not self.command[0]:
            raise InvalidSettings("an MCP server over stdio needs a command")

    def __repr__(self) -> str:
        return f"StdioServer({self.name!r})"

    @property
    def name(self) -> str:
        """Name for messages: the program without its arguments, which may contain secrets."""
        return self.command[0]


class HttpServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that runs independently and uses streamable HTTP."""

    url: str
    """Address of the server, with `http://` or `https://`."""
    headers: Mapping[str, str] = {}
    """Sent with every request, such as `Authorization`."""
    ping: float = 30.0
    """Seconds between checks that the server still knows our session: it may have restarted unnoticed."""

    def __post_init__(self) -> None:
        """Raise `InvalidSettings` if the address or the interval is invalid."""
        if not self.url.startswith(("http://", "https://")):
            raise InvalidSettings(
                f"an MCP server over HTTP needs an address with http:// or https://, not {self.url!r}"
            )
        _positive(ping=self.ping)

    def __repr__(self) -> str:
        return f"HttpServer({self.name!r})"

    @property
    def name(self) -> str:
        """Name for messages: the address without query or password."""
        scheme, _, rest = self.url.partition("?")[0].partition("://")
        authority, slash, path = rest.partition("/")
        return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


class BridgeTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and restart limits of a bridge. Times are in seconds."""

    initialize: float = 30.0
    """Timeout for the server to start and answer `initialize`."""
    call: float = 60.0
    """Timeout for an answer of the server, including the wait for a server that restarts."""
    restarts: int = 5
    """Maximum restarts within `window`. If one more is needed, the bridge stops."""
    window: float = 60.0
    """Time window in which restarts are counted."""
    backoff: float = 0.1
    """Delay before the first restart. It doubles with each further restart in the window."""
    longest: float = 10.0
    """Maximum delay before a restart."""

    def __post_init__(self) -> None:
        """Raise `InvalidSettings` if a time is not positive or `restarts` is negative."""
        delays = {"backoff": self.backoff, "longest": self.longest}
        _positive(initialize=self.initialize, call=self.call, window=self.window, **delays)
        if self.restarts < 0:
            raise InvalidSettings(f"restarts must not be negative, not {self.restarts}")


class BridgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a bridge: the MCP server, and the space in which it is a participant."""

    server: StdioServer | HttpServer
    """The MCP server."""
    url: str
    """Address of the gateway, such as `ws://localhost:8080`."""
    space: str | None = None
    """Id of the space; by default the gateway's first."""
    token: str | None = None
    """Token that identifies the participant."""
    participant: str | None = None
    """Participant id. Required only without a token, in a space that admits anonymous participants."""
    timeouts: BridgeTimeouts = BridgeTimeouts()
    """Timeouts and restart limits."""
    concurrency: int = 16
    """Maximum number of calls that the server processes concurrently."""

    def __post_init__(self) -> None:
        """Raise `InvalidSettings` if `concurrency` is below 1."""
        if self.concurrency < 1:
            raise InvalidSettings(f"concurrency is {self.concurrency}: a bridge needs at least 1 concurrent call")

    def __repr__(self) -> str:
        token = None if self.token is None else SECRET
        return f"BridgeSettings({self.server!r}, url={self.url!r}, space={self.space!r}, token={token!r})"
