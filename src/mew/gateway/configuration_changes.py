"""Compares tokens, configuration and programs with those the gateway saw last, and records each change.

Each space has a file `.mew/tokens/.known` with mode 0600. It holds digests of tokens, never a token. For a program it
holds no value of `env`, and only a digest of arguments that may contain a secret.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from mew._internal.logging import log
from mew.config.models import GatewayConfig, McpServerConfig, ParticipantConfig, SpaceConfig
from mew.config.tokens import TokenFolder, TokenStore
from mew.errors import MewError
from mew.protocol import Administer
from mew.protocol.handlers.administration import CONFIGURATION_CHANGED, configuration_differences, token_changes

_FILLED_IN: Final = re.compile(r"\$\{")
_SECRET: Final = re.compile(r"token|secret|passw|key|auth|bearer|credential|://[^/\s]*@", re.IGNORECASE)
"""Matches names of options and variables with secrets, and URLs with a password."""
_RANDOM: Final = re.compile(r"(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{22,}")
"""This many base64 characters may be a token; see `exposure.SHORTEST_TOKEN`."""


def programs(space: SpaceConfig, tokens: TokenStore) -> dict[str, Any]:
    """Return the programs by participant, as configured in space.yaml, without participants that have none."""
    return {
        name: _program(participant, tokens)
        for name, participant in space.participants.items()
        if participant.command is not None or participant.mcp_server is not None
    }


def _program(participant: ParticipantConfig, tokens: TokenStore) -> dict[str, Any]:
    description: dict[str, Any] = {"type": participant.type, "auto_start": participant.auto_start}
    if participant.command is not None:
        description |= _command(participant.command, participant.args, participant.env, tokens)
    server = participant.mcp_server
    if server is not None:
        description["mcp_server"] = _server(server, tokens)
    return description


def _server(server: McpServerConfig, tokens: TokenStore) -> dict[str, Any]:
    description = _command(server.command, server.args, server.env, tokens)
    return description if server.cwd is None else {**description, "cwd": server.cwd}


def _command(command: str, args: Sequence[str], env: Mapping[str, str], tokens: TokenStore) -> dict[str, Any]:
    # Arguments may repeat values of `env`, so a single variable is reason enough.
    secret = bool(env) or any(_may_hold_secret(text, tokens) for text in (command, *args))
    description: dict[str, Any] = {"command": command}
    if _may_hold_secret(command, tokens):
        description["command"] = _digest(command)
    if args:
        description["args"] = _digest(args) if secret else list(args)
    if env:
        description["env"] = sorted(env)
    return description


def _may_hold_secret(text: str, tokens: TokenStore) -> bool:
    alike = any(pattern.search(text) for pattern in (_FILLED_IN, _SECRET, _RANDOM))
    return alike or any(tokens.sources_of(text.__contains__))


def _digest(value: str | Sequence[str]) -> str:
    return f"sha256:{sha256(msgspec.json.encode(value)).hexdigest()}"


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file. Maps each token holder by name to the digests of its tokens."""

    participants: Mapping[str, frozenset[str]]
    observers: Mapping[str, frozenset[str]]
    configuration: Mapping[str, Any]
    """Settings of the process and the journal. Settings that the protocol depends on are in the `start` record."""
    programs: Mapping[str, Any] | None = None
    """Programs run for participants; None in a file written by a version that did not store them."""


def known_now(config: GatewayConfig, space: SpaceConfig, tokens: TokenStore) -> Known:
    """Return the current state, in the form of the file."""
    digests_by_holder = tokens.digests(space.settings.space_id)
    return Known(
        participants={
            holder.participant: digests for holder, digests in digests_by_holder.items() if not holder.observer
        },
        observers={holder.participant: digests for holder, digests in digests_by_holder.items() if holder.observer},
        configuration=_configuration(config, space),
        programs=programs(space, tokens),
    )


def changes(before: Known, now: Known) -> Iterator[Administer]:
    """Yield the changes to record at a start."""
    for observer, old, new in (
        (False, before.participants, now.participants),
        (True, before.observers, now.observers),
    ):
        for name, action in token_changes(old, new).items():
            yield Administer(action=action, participant=name, observer=observer)
    ran, runs = before.programs, now.programs
    differing = tuple(
        {"key": key, "before": was, "after": is_now}
        for key, was, is_now in (
            *configuration_differences(now.configuration, before.configuration),
            *(configuration_differences(runs, ran, "participants.") if ran is not None and runs is not None else ()),
        )
    )
    if differing:
        yield Administer(action=CONFIGURATION_CHANGED, changes=differing)


def known_before(space: SpaceConfig, tokens: TokenStore, now: Known, *, ran: bool) -> Known:
    """Return the state from the file. If there is none, only tokens that were just generated count as new.

    In a space that never `ran`, the tokens in its folder also count as new: `mew token create` created them.
    """
    folder = TokenFolder(space.directory)
    try:
        text = folder.remembered()
        if text is not None:
            return msgspec.json.decode(text, type=Known)
    except (MewError, msgspec.MsgspecError) as error:
        log.warning("known tokens cannot be read", file=str(folder.state_file), error=str(error))
    generated = {holder.participant for holder in tokens.generated if holder.space_id == space.settings.space_id}

    def old(digests_by_holder: Mapping[str, frozenset[str]], *, observer: bool) -> Mapping[str, frozenset[str]]:
        new = set() if observer else generated
        if not ran:
            new = new | {name for name in digests_by_holder if folder.file(name, observer=observer).exists()}
        return {name: digests for name, digests in digests_by_holder.items() if name not in new}

    return Known(
        participants=old(now.participants, observer=False),
        observers=old(now.observers, observer=True),
        configuration=now.configuration,
        programs=now.programs,
    )


def save_known_state(config: GatewayConfig, space: SpaceConfig, tokens: TokenStore) -> None:
    """Store the current state. If that fails, the next start records some changes again."""
    text = msgspec.json.encode(known_now(config, space, tokens), order="deterministic").decode()
    try:
        TokenFolder(space.directory).remember(text)
    except MewError as error:
        log.warning("known tokens not kept", space=space.settings.space_id, error=str(error))


def _configuration(config: GatewayConfig, space: SpaceConfig) -> dict[str, Any]:
    """Return the settings as named in space.yaml. The port is omitted, because any free port may be used."""
    limits = {**msgspec.structs.asdict(config.unadmitted)}
    limits |= {f"{name}_queue_bytes": getattr(config.queues, f"{name}_bytes") for name in ("data", "control")}
    gateway = {
        "host": config.host,
        "tls": None if config.tls is None else {"certificate": config.tls.certificate, "key": config.tls.key},
        "allowed_origins": config.allowed_origins,
        "allowed_hosts": config.allowed_hosts,
        "trusted_proxies": config.trusted_proxies,
        "timeouts": config.timeouts,
        "limits": limits,
    }
    written = {"gateway": gateway, "journal": space.journal, "gateway_logging": space.logging}
    builtins: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(written, enc_hook=str))
    return builtins
