"""Reads space.yaml and the environment into one frozen `GatewayConfig` (protocol §8, docs/operations.md).

An unknown key gives a warning. In `approvals` it is an error, because a misspelled rule would protect nothing. This
module starts nothing and writes nothing. No error or `repr` contains a token.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from mew.config import ConfigError
from mew.config.models import (
    TLS,
    Capabilities,
    GatewayConfig,
    LoggingConfig,
    ParticipantConfig,
    Queues,
    SpaceConfig,
    UnadmittedLimits,
)
from mew.config.yaml_source import ConfigValue, decode_config_value, decode_fields, file_keys, read_yaml
from mew.journal import JournalSettings
from mew.journal.kafka import TOPIC_URL_FORM, InvalidTopicUrl, TopicUrl, parse_topic_url
from mew.protocol import kinds
from mew.protocol.capabilities import CHAT_ONLY, Capability, read_capability
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.ids import is_participant_id, is_reserved_id, is_space_id
from mew.protocol.settings import ApprovalRule, Limits, SpaceSettings, StreamSettings

SECTIONS: Final = frozenset(
    {"space", "participants", "defaults", "approvals", "gateway", "gateway_logging", "streams", "journal", "pipeline"}
)
SPACE_KEYS: Final = ("name", "description", "default_participant")
GATEWAY_KEYS: Final = ("host", "port", "tls", "allowed_origins", "allowed_hosts", "trusted_proxies", "timeouts")
GATEWAY_KEYS_OF_SPACE: Final = ("allow_anonymous", "strict_from")
GATEWAY_LIMITS: Final = file_keys(Queues) | file_keys(UnadmittedLimits)
"""Limits that apply to the whole gateway, not to one space."""
JOURNAL_KEYS: Final = frozenset(
    {"enabled", "sync", "segment_bytes", "segment_seconds", "retention", "on_error", "kafka"}
)
KAFKA_KEYS: Final = frozenset({"to", "topic"})
_LOGS: Final = LoggingConfig.__struct_fields__
IGNORED_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "space": ("ui_theme",),
    "participants": ("io", "fifo", "default_to"),
    "defaults": ("routing",),
}
"""Keys of the TypeScript gateway that have no effect here."""
MAX_INTERVAL_MS: Final = 60_000
_SYNC: Final = re.compile(r"(always|os)|interval:([0-9]{1,5})")
_SYNC_VALUES: Final = f"always, os, or interval:<milliseconds, 1 to {MAX_INTERVAL_MS}>"
_RETENTION: Final = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_RETENTION_VALUES: Final = "all, or a time such as 30d, 12h, 90m"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TYPES: Final = frozenset({"local", "mcp-bridge"})
_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})


def load_config(files: Sequence[Path], *, environ: Mapping[str, str], directory: Path | None = None) -> GatewayConfig:
    """Read these files into one configuration. Raises `ConfigError` if a file cannot be used.

    The gateway settings come from the first file. `directory` overrides the space directory of every file.
    """
    if not files:
        raise ConfigError("no configuration given: a gateway needs a space.yaml")
    tops = [read_yaml(file) for file in files]
    for top in tops:
        top.warn_unknown(SECTIONS)
    spaces = tuple(_read_space(top, environ, directory) for top in tops)
    _refuse_shared(tops, spaces)
    _refuse_shared_tokens(tops)
    gateway = _read_gateway(tops[0], spaces[0].directory)
    for top in tops[1:]:
        _warn_of_second_gateway(top, tops[0].file)
    warnings = tuple(warning for top in tops for warning in top.warnings)
    return msgspec.structs.replace(gateway, spaces=spaces, warnings=warnings).listening_on()


def _read_gateway(top: ConfigValue, directory: Path) -> GatewayConfig:
    section = top.section("gateway")
    limits, proxies = section.section("limits"), section.get("trusted_proxies")
    fields = decode_fields(section, GatewayConfig, set(GATEWAY_KEYS) - {"tls"})
    for proxy in () if proxies is None else proxies.items():
        try:
            ip_network(str(proxy.node.value), strict=False)
        except ValueError:
            raise proxy.error("expected an address or a network such as 10.0.0.0/8") from None
    return GatewayConfig(
        **fields,
        tls=_read_tls(section, directory),
        queues=Queues(**decode_fields(limits, Queues)),
        unadmitted=UnadmittedLimits(**decode_fields(limits, UnadmittedLimits)),
    )


def _read_tls(section: ConfigValue, directory: Path) -> TLS | None:
    value = section.get("tls")
    if value is None:
        return None
    paths = {key: directory / path for key, path in msgspec.structs.asdict(decode_config_value(value, TLS)).items()}
    for key, path in paths.items():
        if not path.is_file():
            raise value.required(key).error(f"no such file: {path}")
    return TLS(**paths)


def _warn_of_second_gateway(top: ConfigValue, first: Path) -> None:
    """Warn about host, port and similar keys in any file but the first: they have no effect."""
    section = top.section("gateway")
    for key, value in (*section.entries(), *section.section("limits").entries()):
        if key in GATEWAY_KEYS or key in GATEWAY_LIMITS:
            value.warn(f"ignored: gateway settings come only from the first configuration, {first}")


def _read_space(top: ConfigValue, environ: Mapping[str, str], directory: Path | None) -> SpaceConfig:
    file = top.file.absolute()
    directory = directory or (file.parent.parent if file.parent.name == ".mew" else file.parent)
    section, pipeline = top.section("space"), top.section("pipeline")
    _warn_keys(section, "space", {"id", *SPACE_KEYS})
    space_id = _read_space_id(section)
    participants = {
        name: _read_participant(name, value, directory) for name, value in top.section("participants").entries()
    }
    fields = {"name": space_id, **decode_fields(section, SpaceConfig, SPACE_KEYS)}
    default_participant = fields.get("default_participant")
    if default_participant is not None and default_participant not in participants:
        section.warn(f"default_participant {default_participant!r} is not among the participants")
    return SpaceConfig(
        **fields,
        settings=_read_settings(top, space_id, participants),
        directory=directory,
        file=file,
        participants=participants,
        logging=_read_logging(top, environ),
        journal=_read_journal(top),
        pipeline=pipeline.node.plain(),
    )


def _read_space_id(section: ConfigValue) -> str:
    value = section.required("id")
    space_id = str(decode_config_value(value, Annotated[str, msgspec.Meta(description="a space id")]))
    if not is_space_id(space_id):
        raise value.error("expected 1 to 128 letters, digits, `.`, `_`, `@` or `-`, the first a letter or digit")
    return space_id


def _read_settings(top: ConfigValue, space_id: str, participants: Mapping[str, ParticipantConfig]) -> SpaceSettings:
    gateway, defaults = top.section("gateway"), top.section("defaults")
    gateway.warn_unknown((*GATEWAY_KEYS, *GATEWAY_KEYS_OF_SPACE, "limits"))
    limits = gateway.section("limits")
    limits.warn_unknown(file_keys(Limits) | GATEWAY_LIMITS)
    _warn_keys(defaults, "defaults", {"capabilities"})
    capabilities = defaults.get("capabilities")
    return SpaceSettings(
        space_id=space_id,
        participants={name: participant.capabilities for name, participant in participants.items()},
        defaults=CHAT_ONLY if capabilities is None else decode_config_value(capabilities, Capabilities, _READERS),
        output_logs=frozenset(name for name, one in participants.items() if one.output_log is not None),
        streams=decode_config_value(top.section("streams"), StreamSettings),
        limits=Limits(**decode_fields(limits, Limits)),
        approvals=_read_approvals(top, participants),
        **decode_fields(gateway, SpaceSettings, GATEWAY_KEYS_OF_SPACE),
    )


def _read_approvals(top: ConfigValue, participants: Mapping[str, ParticipantConfig]) -> tuple[ApprovalRule, ...]:
    """Read the rules. Warn about each decider that is not configured: it has no vote until it is invited."""
    value = top.get("approvals")
    if value is None:
        return ()
    rules = tuple(_read_rule(item) for item in value.items("a list of rules"))
    for name in dict.fromkeys(decider for rule in rules for decider in rule.deciders):
        if name not in participants:
            value.warn(f"decider {name!r} is not among the participants")
    return rules


def _read_rule(value: ConfigValue) -> ApprovalRule:
    _refuse_unknown(value, file_keys(ApprovalRule))
    deciders = value.required("deciders")
    listed = decode_config_value(
        deciders, Annotated[tuple[str, ...], msgspec.Meta(description="a list of participants")]
    )
    names = tuple(dict.fromkeys(listed))
    if not names:
        raise deciders.error("expected at least one participant")
    quorum = value.get("quorum")
    return ApprovalRule(
        match=_read_match(value.required("match")),
        deciders=names,
        quorum=1 if quorum is None else decode_config_value(quorum, Annotated[int, msgspec.Meta(ge=1, le=len(names))]),
        **decode_fields(value, ApprovalRule, {"not_proposer"}),
    )


def _read_match(value: ConfigValue) -> Capability:
    """Read the patterns for payload and recipients as a capability. The kind is always `mcp/request`."""
    _refuse_unknown(value, frozenset({"payload", "to"}))
    return _to_capability(value, {"kind": kinds.MCP_REQUEST, **value.node.plain()}, "match")


def _refuse_unknown(value: ConfigValue, known_keys: frozenset[str]) -> None:
    for key, entry in value.entries():
        if key not in known_keys:
            raise entry.error(f"unknown key; expected {', '.join(sorted(known_keys))}")


def _warn_keys(section: ConfigValue, name: str, known_keys: set[str]) -> None:
    """Warn about keys that are unknown, and about keys of the TypeScript gateway that have no effect."""
    ignored = IGNORED_KEYS[name]
    section.warn_unknown(known_keys.union(ignored))
    for key in ignored:
        if (value := section.get(key)) is not None:
            value.warn("has no effect")


def _read_logging(top: ConfigValue, environ: Mapping[str, str]) -> LoggingConfig:
    """Read which logs to write. The environment overrides the file; `enabled: false` disables all (protocol §7)."""
    section = top.section("gateway_logging")
    section.warn_unknown(("enabled", *_LOGS))
    any_log = _overridden(environ, "GATEWAY_LOGGING", _enabled(section))
    logs = {}
    for name in _LOGS:
        log = section.section(name)
        log.warn_unknown(("enabled",))
        logs[name] = _overridden(environ, name.upper(), _enabled(log)) and any_log
    return LoggingConfig(**logs)


def _enabled(section: ConfigValue) -> bool:
    value = section.get("enabled")
    return True if value is None else bool(decode_config_value(value, bool))


def _overridden(environ: Mapping[str, str], variable: str, configured: bool) -> bool:
    word = environ.get(variable, "").strip().lower()
    if not word:
        return configured
    if word not in _YES | _NO:
        raise ConfigError("expected true, 1, yes, on, false, 0, no or off", where=f"environment variable {variable}")
    return word in _YES


def _read_participant(name: str, value: ConfigValue, directory: Path) -> ParticipantConfig:
    if not is_participant_id(name):
        raise value.error("not a valid participant id: expected 1 to 128 letters, digits, `.`, `_`, `@`, `:` or `-`")
    if is_reserved_id(name):
        raise value.error("the id is reserved for the gateway")
    if value.node.value is None:
        return ParticipantConfig()
    _warn_keys(value, "participants", set(file_keys(ParticipantConfig)))
    fields = decode_fields(value, ParticipantConfig, readers=_READERS)
    if "output_log" in fields:
        fields["output_log"] = directory / fields["output_log"]
    participant = ParticipantConfig(**fields)
    if participant.type not in _TYPES:
        value.warn(f"unknown type {participant.type!r}: expected local or mcp-bridge")
    return participant


def _read_capability(value: ConfigValue) -> Capability:
    if not isinstance(value.node.value, dict):
        raise value.expected("a capability such as `kind: chat`")
    return _to_capability(value, value.node.plain(), "capability")


def _to_capability(value: ConfigValue, pattern: dict[str, Any], name: str) -> Capability:
    try:
        return read_capability(pattern, name)
    except InvalidEnvelope as error:
        raise value.error(error.message) from None


_READERS: Final = {Capability: _read_capability}


def _read_journal(top: ConfigValue) -> JournalSettings:
    """Read the journal settings of the space."""
    section = top.section("journal")
    section.warn_unknown(JOURNAL_KEYS)
    fields = decode_fields(section, JournalSettings, {"enabled", "segment_bytes", "segment_seconds", "on_error"})
    return JournalSettings(
        **fields,
        **_read_sync(section.get("sync")),
        retention_seconds=_read_retention(section.get("retention")),
        kafka=_read_kafka(section, enabled=fields.get("enabled", True)),
    )


def _read_sync(value: ConfigValue | None) -> dict[str, Any]:
    if value is None:
        return {}
    text = decode_config_value(value, Annotated[str, msgspec.Meta(description=_SYNC_VALUES)])
    match = _SYNC.fullmatch(text)
    if match is None or (match[2] and not 1 <= int(match[2]) <= MAX_INTERVAL_MS):
        raise value.error(f"expected {_SYNC_VALUES}, got {text!r}")
    return {"sync": match[1]} if match[1] else {"sync": "interval", "interval_ms": int(match[2])}


def _read_retention(value: ConfigValue | None) -> float | None:
    if value is None:
        return None
    text = decode_config_value(value, Annotated[str, msgspec.Meta(description=_RETENTION_VALUES)])
    if text == "all":
        return None
    match = _RETENTION.fullmatch(text)
    if match is None or not int(match[1]):
        raise value.error(f"expected {_RETENTION_VALUES}, got {text!r}")
    return float(int(match[1]) * _SECONDS[match[2]])


def _read_kafka(section: ConfigValue, *, enabled: bool) -> TopicUrl | None:
    value = section.get("kafka")
    if value is None:
        return None
    value.warn_unknown(KAFKA_KEYS)
    url, topic = value.required("to"), value.get("topic")
    if not enabled:
        raise url.error("a disabled journal cannot be shipped: remove `kafka`, or set journal.enabled to true")
    topic_type = Annotated[str, msgspec.Meta(description="the name of a topic")]
    topic_name = None if topic is None else decode_config_value(topic, topic_type)
    try:
        return parse_topic_url(
            decode_config_value(url, Annotated[str, msgspec.Meta(description=TOPIC_URL_FORM)]), topic_name
        )
    except InvalidTopicUrl as error:
        raise url.error(str(error)) from None


def _refuse_shared(tops: Sequence[ConfigValue], spaces: Sequence[SpaceConfig]) -> None:
    """Reject spaces that share an id or a directory: `.mew` in the directory holds a space's tokens and logs."""
    files: dict[str | Path, Path] = {}
    for top, space in zip(tops, spaces, strict=True):
        for key, what in ((space.settings.space_id, "id"), (space.directory.resolve(), "directory")):
            if key in files:
                problem = f"the space has the same {what} as that of {files[key]}: each needs its own"
                raise top.section("space").required("id").error(problem)
            files[key] = top.file


def _refuse_shared_tokens(tops: Sequence[ConfigValue]) -> None:
    """Reject a token that is used twice: a token identifies one participant in one space (protocol §2)."""
    holders: dict[str, ConfigValue] = {}
    for top in tops:
        for _, participant in top.section("participants").entries():
            tokens = None if participant.node.value is None else participant.get("tokens")
            for token in () if tokens is None else tokens.items():
                first = holders.setdefault(str(token.node.value), token)
                if (first.file, first.path[1]) != (token.file, token.path[1]):
                    other = f"{first.file}:{first.node.line}: {first.where}"
                    raise token.error(f"the same token as {other}: each participant needs its own")
