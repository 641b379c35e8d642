"""The command, environment, folder and log of a participant that the space starts, from its configuration.

This module starts nothing. A token is put into the environment, and into arguments only if they contain `${TOKEN}`.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mew._internal.processes import MARK, mark_of
from mew._internal.unix_sockets import SOCKET_VARIABLE, address_of, gateway_socket
from mew.config.models import McpServerConfig, ParticipantConfig, RestartPolicy, SpaceConfig
from mew.config.served_folders import served_folder_problem
from mew.config.tokens import environment_variable

BRIDGE: Final = "mcp-bridge"
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TOKEN_PREFIX: Final = "MEW_TOKEN"
"""Name prefix of environment variables with tokens. Those of other participants are not passed on."""


class LaunchEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """Settings shared by all participants of a space."""

    url: str
    port: int
    run: str
    environ: Mapping[str, str]
    """The environment in which the gateway was started."""

    def __repr__(self) -> str:
        return f"<LaunchEnvironment {self.url}>"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """The process of one participant, ready to start."""

    participant: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    restart_policy: RestartPolicy = "never"

    def __repr__(self) -> str:
        return f"<Launch {self.participant!r}>"

    def __rich_repr__(self) -> Any:
        """Show only the name, because other fields may contain secrets."""
        yield self.participant


def launch_problem(participant: ParticipantConfig) -> str | None:
    """Return why an `auto_start` participant cannot be started, or None."""
    if participant.type == BRIDGE:
        return None if participant.mcp_server is not None else "auto_start is set, but mcp_server is missing"
    return None if participant.command else "auto_start is set, but command is missing"


def exposure_problem(space: SpaceConfig, participant: ParticipantConfig) -> str | None:
    """Return why an MCP server must not be started: it would serve the folder with the tokens. None if it may start."""
    server = participant.mcp_server
    if participant.type != BRIDGE or server is None:
        return None
    command = (server.command, *server.args)
    return served_folder_problem(command, space.directory / (server.cwd or "."), space.directory)


def make_launch(space: SpaceConfig, name: str, token: str, shared: LaunchEnvironment) -> Launch:
    """Return the command and settings to start a participant. Requires that `launch_problem` returned None."""
    participant = space.participants[name]
    values = {"PORT": str(shared.port), "SPACE": space.settings.space_id, "TOKEN": token}
    env = _without_tokens(shared.environ) | values | _expanded(participant.env, values, shared.environ)
    if participant.type == BRIDGE and participant.mcp_server is not None:
        argv = _bridge_command(participant, participant.mcp_server, space, values)
        env |= _expanded(participant.mcp_server.env, values, shared.environ)
    else:
        argv = (str(participant.command), *(expand_variables(argument, values) for argument in participant.args))
    env |= {
        "MEW_GATEWAY": shared.url,
        SOCKET_VARIABLE: str(gateway_socket(space.directory)),
        "MEW_SPACE": space.settings.space_id,
        "MEW_TOKEN": token,
        "MEW_PARTICIPANT_ID": name,
        environment_variable(name): token,
        MARK: mark_of(shared.run, name),
    }
    return Launch(
        participant=name,
        argv=argv,
        env=env,
        cwd=space.directory,
        log=space.directory / "logs" / f"{name}.log",
        restart_policy=participant.restart_policy,
    )


def expand_variables(text: str, values: Mapping[str, str], environ: Mapping[str, str] | None = None) -> str:
    """Replace each `${NAME}`: first from `values`, then from `environ`, else by nothing.

    If `environ` is None, unknown names stay unchanged. Inserted values are not expanded again.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in values:
            return values[name]
        return match[0] if environ is None else environ.get(name, "")

    return _REFERENCE.sub(value, text)


def _expanded(env: Mapping[str, str], values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: expand_variables(text, values, environ) for name, text in env.items()}


def _without_tokens(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the gateway's environment without tokens. `mew` is found on `PATH` wherever it is installed."""
    env = {name: value for name, value in environ.items() if not name.startswith(_TOKEN_PREFIX)}
    folders, own = env.get("PATH", os.defpath).split(os.pathsep), str(Path(sys.executable).parent)
    return env | {"PATH": os.pathsep.join(folders if own in folders else [*folders, own])}


def _bridge_command(
    participant: ParticipantConfig, server: McpServerConfig, space: SpaceConfig, values: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the command of the MCP bridge.

    The server's environment is passed through the bridge's own environment, which `ps` does not show.
    """
    config, limits = participant.bridge_config, []
    if config.init_timeout is not None:
        limits += ["--init-timeout", str(config.init_timeout)]
    if not config.reconnect:
        limits += ["--reconnect", "false"]
    elif config.max_reconnects is not None:
        limits += ["--max-reconnects", str(config.max_reconnects)]
    folder = space.directory / (server.cwd or ".")
    gateway = address_of(gateway_socket(space.directory))
    target = ("--gateway", gateway, "--space", space.settings.space_id, "--mcp-cwd", str(folder))
    command = (server.command, *(expand_variables(argument, values) for argument in server.args))
    # -P: a file in the space's directory must not be imported instead of a mew module.
    return (sys.executable, "-P", "-m", "mew", "bridge", "start", *target, *limits, "--", *command)
