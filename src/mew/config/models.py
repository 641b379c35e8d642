"""The configuration of a gateway as frozen structs. The docstring of each field is the text of docs/reference.

Nothing here reads a file, and no `repr` shows a token. `loader` reads space.yaml: a field has the same name as its key
unless its struct renames it, and the type of a field says which values are valid.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from mew.config.yaml_source import VERBATIM
from mew.journal import JournalSettings
from mew.protocol.capabilities import Capability
from mew.protocol.settings import SpaceSettings

RestartPolicy: TypeAlias = Literal["never", "on-failure", "always"]
Argument: TypeAlias = Annotated[str, VERBATIM]
Capabilities: TypeAlias = Annotated[tuple[Capability, ...], msgspec.Meta(description="a list of capabilities")]


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the certificate chain and its key, as PEM. With them the port serves `wss://` and `https://`."""

    certificate: Path
    """The certificate and its chain, as PEM."""
    key: Path
    """Its private key, as PEM."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long the gateway waits for a peer, in seconds."""

    handshake_seconds: float = 10
    """From the connection to the end of the request head, and again from there to the join."""
    idle_seconds: float = 60
    """Silence after which a peer is pinged. Without an answer it is closed (1001) after half as long again."""
    close_seconds: float = 5
    """For a peer to answer a close frame, before its connection is cut."""
    write_seconds: float = 10
    """For a peer to read 64 KiB of HTTP responses, or the rest; 1/4 if others wait; `idle_seconds` with a token."""
    failed_join_seconds: float = 1
    """Delay before a join or an HTTP request with an invalid token is refused. Only that connection waits."""


class Queues(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"data_bytes": "data_queue_bytes", "control_bytes": "control_queue_bytes"},
):
    """How much may be queued for one slow reader (architecture, "Slow readers")."""

    data_bytes: int = 8 * 2**20
    """Frames queued for one reader. Over it the oldest are dropped, and the reader receives `stream/gap`."""
    control_bytes: int = 64 * 2**20
    """Envelopes queued for one reader. Over it the reader is closed (1013). Below `byte_burst`, one member can close
    readers by a burst of large messages."""


class UnadmittedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection may use before its token is accepted."""

    http_head_bytes: int = 32 * 2**10
    """The head of an HTTP request. Over it: 431."""
    join_bytes: int = 32 * 2**10
    """The join message, and all bytes before it on the WebSocket. Over it: `message_too_large`, close 1009."""
    unadmitted_connections: int = 1_024
    """Connections without a valid token, in total; at most 3/4 of what `ulimit -n` leaves. More of them wait."""
    unadmitted_per_address: int = 256
    """Connections without a valid token from one address, or one IPv6 network of 64 bits. More of them wait."""


class LoggingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the two readable logs are written (protocol §7)."""

    envelope_history: bool = True
    """`{enabled: false}` turns off `.mew/logs/envelope-history.jsonl`: received, delivered and rejected envelopes."""
    capability_decisions: bool = True
    """`{enabled: false}` turns off `.mew/logs/capability-decisions.jsonl`: each permission check with its reason."""


class _Discreet(msgspec.Struct, frozen=True, kw_only=True):
    """Has fields with secrets in them, so its repr shows no field."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> Any:
        """Nothing: msgspec's own would show every field."""
        return iter(())


class McpServerConfig(_Discreet, frozen=True, kw_only=True):
    """The MCP server behind a bridge. `args` and `env` are as written; the supervisor fills in `${…}`."""

    command: str
    """The program of the server."""
    args: tuple[Argument, ...] = ()
    """Its arguments."""
    env: dict[str, Argument] = {}
    """Environment variables; `${NAME}` is replaced by that variable of the gateway."""
    cwd: str | None = None
    """Its working directory, relative to the directory of the space, which is the default."""


class BridgeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a bridge starts and restarts its server; None means the bridge's default."""

    init_timeout: float | None = None
    """Milliseconds in which the server must have started; 30000."""
    reconnect: bool = True
    """Whether a server that exited is restarted."""
    max_reconnects: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Restarts within a minute before the bridge gives up; 5."""


class ParticipantConfig(_Discreet, frozen=True, kw_only=True):
    """One configured participant. `args` and `env` are as written; the supervisor fills in `${…}`."""

    type: str = "local"
    """`local`, or `mcp-bridge` for an MCP server behind a bridge."""
    tokens: Annotated[tuple[str, ...], msgspec.Meta(description="a list of tokens")] = ()
    """Its tokens. Without any, the first start creates one in `.mew/tokens/<id>.token`."""
    capabilities: Capabilities | None = None
    """What it may send (protocol, "Capabilities"). The default is `defaults.capabilities`."""
    command: str | None = None
    """The program of the participant, run in the directory of the space."""
    args: tuple[Argument, ...] = ()
    """Its arguments; `${PORT}`, `${SPACE}` and `${TOKEN}` are replaced."""
    env: dict[str, Argument] = {}
    """Environment variables, with the same replacements; other `${NAME}` come from the gateway's environment."""
    auto_start: bool = False
    """Whether the gateway starts it."""
    restart_policy: RestartPolicy = "never"
    """When it is restarted after it exited."""
    output_log: Path | None = None
    """A file instead of a socket: each received message is appended as a line of JSON."""
    auto_connect: bool = False
    """Whether a participant with `output_log` is present from the start, or only from its first POST."""
    mcp_server: McpServerConfig | None = None
    """The server behind a bridge."""
    bridge_config: BridgeConfig = BridgeConfig()
    """How the bridge starts and restarts it."""


class SpaceConfig(_Discreet, frozen=True, kw_only=True):
    """One space, as its space.yaml describes it."""

    settings: SpaceSettings
    directory: Path
    """The directory of the space: it holds `.mew`, and relative paths start there."""
    file: Path
    name: str = ""
    """Its display name; the id by default."""
    description: str = ""
    """What the space is for, as text."""
    default_participant: str | None = None
    """The participant that commands in the directory of the space use by default."""
    participants: dict[str, ParticipantConfig] = {}
    """The configured participants by id; `{}` means the default capabilities."""
    logging: LoggingConfig = LoggingConfig()
    journal: JournalSettings = JournalSettings()
    pipeline: dict[str, Any] = {}


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway: its address, its limits, and its spaces in the order of the command line."""

    host: Annotated[str, msgspec.Meta(description="a host name or address")] = "localhost"
    """The address to listen on; `localhost` is 127.0.0.1 and ::1."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8080
    """The port to listen on; `0` means any free port."""
    tls: TLS | None = None
    """The files of the certificate and its key. With them the port serves `wss://` and `https://`."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of pages that may use the gateway, besides its own inspector; `*` means all."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may use besides `localhost`. Required off loopback. `*` means any."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, such as `10.0.0.0/8`. Only their `X-Forwarded-For` is used."""
    timeouts: Timeouts = Timeouts()
    """How long it waits for a peer, in seconds."""
    queues: Queues = Queues()
    unadmitted: UnadmittedLimits = UnadmittedLimits()
    spaces: tuple[SpaceConfig, ...] = ()
    warnings: tuple[str, ...] = ()

    def listening_on(self, host: str | None = None, port: int | None = None) -> "GatewayConfig":
        """Return the same configuration with another address, which its invitations then contain."""
        host, port = host or self.host, self.port if port is None else port
        url = _url(host, port, secure=self.tls is not None)
        spaces = tuple(
            msgspec.structs.replace(space, settings=msgspec.structs.replace(space.settings, connection_url=url))
            for space in self.spaces
        )
        return msgspec.structs.replace(self, host=host, port=port, spaces=spaces)


def _url(host: str, port: int, *, secure: bool) -> str:
    """The URL at which clients reach the gateway."""
    name = "localhost" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host
    return f"{'wss' if secure else 'ws'}://{name}:{port}"
