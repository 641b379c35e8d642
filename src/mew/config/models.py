"""The configuration of a gateway as frozen structs. The docstring of each field is the text of docs/reference.

Nothing here reads a file, and no `repr` shows a token. `loader` reads space.yaml; its keys may differ from these names.
"""

from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from mew.journal.settings import JournalSettings
from mew.protocol.capabilities import Capability
from mew.protocol.settings import Settings

RestartPolicy: TypeAlias = Literal["never", "on-failure", "always"]


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """Where the certificate chain and its key are, as PEM; `wss://` and `https://` are then on the same port."""

    certificate: Path
    """The certificate and what it is signed by, as PEM."""
    key: Path
    """Its private key, as PEM."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long the gateway waits for a peer."""

    handshake_seconds: float = 10
    """From the connection to the end of the request's head, and on to the join."""
    idle_seconds: float = 60
    """Silence after which a peer is pinged; half of it more without an answer, and it is closed (1001)."""
    close_seconds: float = 5
    """For a peer to answer a close frame before it is cut off."""
    write_seconds: float = 10
    """For a peer to read 64 KiB of HTTP responses, or the rest; 1/4 if others wait; with a token `idle_seconds`."""
    failed_join_seconds: float = 1
    """After which a join or an HTTP request with a token that is not valid is refused. Only that connection waits."""


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """What may wait for one slow reader (architecture, "Slow readers")."""

    data_bytes: int = 8 * 2**20
    """Frames that wait for one reader. Over it the oldest are dropped, and the reader is told (`stream/gap`)."""
    control_bytes: int = 2**20
    """Envelopes that wait for one reader. Over it the reader is closed (1013)."""


class UnadmittedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What connections may use before a valid token came."""

    http_head_bytes: int = 32 * 2**10
    """The head of an HTTP request; over it 431."""
    join_bytes: int = 32 * 2**10
    """The join message, and all that comes before it on the WebSocket; over it `message_too_large`, close 1009."""
    unadmitted_connections: int = 1_024
    """Connections without a valid token, in all; at most 3/4 of what `ulimit -n` leaves. Further ones wait."""
    unadmitted_per_address: int = 256
    """Likewise from one address, or one IPv6 network of 64 bits. Further ones wait."""


class LoggingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the readable logs are written (protocol §7)."""

    envelope_history: bool = True
    """`{enabled: false}` writes no `.mew/logs/envelope-history.jsonl`, with each envelope that came, went or failed."""
    capability_decisions: bool = True
    """`{enabled: false}` writes no `.mew/logs/capability-decisions.jsonl`, with who may send what and why."""


class _Discreet(msgspec.Struct, frozen=True, kw_only=True):
    """Has fields with secrets in them, so its repr shows no field."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> Any:
        """Nothing: msgspec's own would show every field."""
        return iter(())


class McpServer(_Discreet, frozen=True, kw_only=True):
    """The MCP server behind a bridge; `args` and `env` as written, the supervisor fills in `${…}`."""

    command: str
    """The program that is the server."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = {}
    """Variables of its environment; `${NAME}` is filled in from the gateway's own."""
    cwd: str | None = None
    """Where it runs, from the space's directory, which is the default."""


class BridgeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a bridge treats its server; None leaves it to the bridge."""

    init_timeout: float | None = None
    """Milliseconds for the server to have started; 30000."""
    reconnect: bool = True
    """Whether a server that ended is started again."""
    max_reconnects: int | None = None
    """So many times within a minute, then it is given up; 5."""


class ParticipantConfig(_Discreet, frozen=True, kw_only=True):
    """One participant as configured; `args` and `env` as written, the supervisor fills in `${…}`."""

    type: str = "local"
    """`local`, or `mcp-bridge` for an MCP server that takes part by a bridge."""
    tokens: tuple[str, ...] = ()
    """Its tokens; without any, one is made in `.mew/tokens/<id>.token` at the first start."""
    capabilities: tuple[Capability, ...] | None = None
    """What it may send (protocol, "Capabilities"); without it, what `defaults.capabilities` says."""
    command: str | None = None
    """The program that is the participant, run in the space's directory."""
    args: tuple[str, ...] = ()
    """Its arguments; `${PORT}`, `${SPACE}` and `${TOKEN}` are filled in."""
    env: dict[str, str] = {}
    """Variables of its environment; likewise, and any other `${NAME}` from the gateway's own."""
    auto_start: bool = False
    """Whether the gateway starts it."""
    restart_policy: RestartPolicy = "never"
    """When it is started again after it ended."""
    output_log: Path | None = None
    """A file to which what it receives is appended, a line of JSON each, in place of a socket."""
    auto_connect: bool = False
    """Whether a participant with `output_log` is in the space from the start, instead of from its first POST."""
    io: str | None = None
    """Known from other gateways, and without effect."""
    fifo: bool = False
    """Known from other gateways, and without effect: `mew client connect --fifo-in` does it."""
    default_to: dict[str, tuple[str, ...]] = {}
    """Whom a kind goes to, for whoever types and names nobody; known from other gateways, and without effect."""
    mcp_server: McpServer | None = None
    """The server behind a bridge."""
    bridge_config: BridgeConfig = BridgeConfig()
    """How the bridge treats it."""


class SpaceConfig(_Discreet, frozen=True, kw_only=True):
    """One space, as its file describes it."""

    settings: Settings
    directory: Path
    """The space directory: what relative paths start from, and where `.mew` is."""
    file: Path
    name: str
    """What people call it; without it, its id."""
    description: str = ""
    """What it is for."""
    default_participant: str | None = None
    """Whom a terminal in the space's directory takes part as, unless it says so."""
    participants: dict[str, ParticipantConfig] = {}
    """Everybody who has a place, by id; `{}` has what everybody has by default."""
    logging: LoggingConfig = LoggingConfig()
    routing: dict[str, Any] = {}
    """Known from other gateways, and without effect."""
    journal: JournalSettings = JournalSettings()
    pipeline: dict[str, Any] = {}


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway: where it listens, what it bears, and its spaces in the order they were given."""

    host: str = "localhost"
    """The address to listen on; `localhost` is 127.0.0.1 and ::1."""
    port: int = 8080
    """The port to listen on; `0`: any that is free."""
    tls: TLS | None = None
    """Where the certificate and its key are: `wss://` and `https://` on the same port."""
    allowed_origins: tuple[str, ...] = ()
    """Pages that may use it besides its own, as browsers name their origin; `*`: all."""
    allowed_hosts: tuple[str, ...] = ()
    """Names it answers to besides `localhost` and the like; required on an address that others reach. `*`: any."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, such as `10.0.0.0/8`: only their `X-Forwarded-For` is believed."""
    timeouts: Timeouts = Timeouts()
    """How long it waits for a peer."""
    queues: Queues = Queues()
    unadmitted: UnadmittedLimits = UnadmittedLimits()
    spaces: tuple[SpaceConfig, ...] = ()
    warnings: tuple[str, ...] = ()

    def listening_on(self, host: str | None = None, port: int | None = None) -> "GatewayConfig":
        """The same gateway at another address, which its invitations then name."""
        host, port = host or self.host, self.port if port is None else port
        url = _url(host, port, secure=self.tls is not None)
        spaces = tuple(
            msgspec.structs.replace(space, settings=msgspec.structs.replace(space.settings, connection_url=url))
            for space in self.spaces
        )
        return msgspec.structs.replace(self, host=host, port=port, spaces=spaces)


def _url(host: str, port: int, *, secure: bool) -> str:
    """Where somebody on this machine or beyond reaches the gateway."""
    name = "localhost" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host
    return f"{'wss' if secure else 'ws'}://{name}:{port}"
