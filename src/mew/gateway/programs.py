"""What a gateway would run as its own user, in the form in which changes of it are recorded.

Must not return a secret: no value of `env`, and only a digest of arguments that may hold one.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from mew.gateway.auth import TokenStore
from mew.gateway.config_values import McpServer, ParticipantConfig, SpaceConfig

_FILLED_IN: Final = re.compile(r"\$\{")
_SECRET: Final = re.compile(r"token|secret|passw|key|auth|bearer|credential|://[^/\s]*@", re.IGNORECASE)
"""Names of options and variables with secrets, and an address with a password."""
_RANDOM: Final = re.compile(r"(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{22,}")
"""So many characters of base64 may be a token; see `exposure.SHORTEST_TOKEN`."""


def programs(space: SpaceConfig, tokens: TokenStore) -> dict[str, Any]:
    """By participant, as space.yaml names it; participants without a program are left out."""
    return {
        name: _program(each, tokens)
        for name, each in space.participants.items()
        if each.command is not None or each.mcp_server is not None
    }


def _program(participant: ParticipantConfig, tokens: TokenStore) -> dict[str, Any]:
    told: dict[str, Any] = {"type": participant.type, "auto_start": participant.auto_start}
    if participant.command is not None:
        told |= _command(participant.command, participant.args, participant.env, tokens)
    server = participant.mcp_server
    if server is not None:
        told["mcp_server"] = _server(server, tokens)
    return told


def _server(server: McpServer, tokens: TokenStore) -> dict[str, Any]:
    told = _command(server.command, server.args, server.env, tokens)
    return told if server.cwd is None else {**told, "cwd": server.cwd}


def _command(command: str, args: Sequence[str], env: Mapping[str, str], tokens: TokenStore) -> dict[str, Any]:
    # The values of `env` may be repeated in the arguments, so one variable is reason enough.
    secret = bool(env) or any(_may_hold_secret(each, tokens) for each in (command, *args))
    told: dict[str, Any] = {"command": command}
    if _may_hold_secret(command, tokens):
        told["command"] = _digest(command)
    if args:
        told["args"] = _digest(args) if secret else list(args)
    if env:
        told["env"] = sorted(env)
    return told


def _may_hold_secret(text: str, tokens: TokenStore) -> bool:
    alike = any(each.search(text) for each in (_FILLED_IN, _SECRET, _RANDOM))
    return alike or any(tokens.sources_of(text.__contains__))


def _digest(value: str | Sequence[str]) -> str:
    return f"sha256:{sha256(msgspec.json.encode(value)).hexdigest()}"
