"""Reads space.yaml and the environment into one frozen `GatewayConfig` (protocol §8, docs/operations.md).

An unknown key gives a warning. In `approvals` it is an error, because a misspelled rule would protect nothing. This
module starts nothing and writes nothing. No error or `repr` contains a token.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from mew.config.models import (
    TLS,
    BridgeConfig,
    GatewayConfig,
    LoggingConfig,
    McpServerConfig,
    ParticipantConfig,
    Queues,
    RestartPolicy,
    SpaceConfig,
    Timeouts,
    UnadmittedLimits,
)
from mew.config.yaml_source import ConfigError, ConfigSection, ConfigValue, read_yaml
from mew.journal.kafka.address import TOPIC_URL_FORM, InvalidTopicUrl, TopicUrl, parse_topic_url
from mew.journal.settings import ErrorPolicy, JournalSettings, SyncMode
from mew.protocol import kinds
from mew.protocol.capabilities import CHAT_ONLY, Capability, read_capability
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.ids import is_participant_id, is_reserved_id, is_space_id
from mew.protocol.settings import ApprovalRule, Limits, OwnerPolicy, SpaceSettings, StreamSettings

APPROVAL_KEYS: Final = frozenset(ApprovalRule.__struct_fields__)
_MATCH: Final = frozenset({"payload", "to"})


def read_approvals(top: ConfigSection) -> tuple[ApprovalRule, ...]:
    """Read the approval rules, in the order of the file."""
    place = top.get("approvals")
    return () if place is None else tuple(_read_rule(each) for each in place.items("a list of rules"))


def _read_rule(place: ConfigValue) -> ApprovalRule:
    given = place.section()
    _refuse_others(given, APPROVAL_KEYS)
    deciders = given.required("deciders")
    names = tuple(dict.fromkeys(given.texts("deciders", "a list of participants")))
    if not names:
        raise deciders.error("expected at least one participant")
    quorum = given.whole("quorum", 1, least=1, most=len(names))
    not_proposer = given.flag("not_proposer", default=True)
    return ApprovalRule(
        match=_read_match(given.required("match")), deciders=names, quorum=quorum, not_proposer=not_proposer
    )


def _read_match(place: ConfigValue) -> Capability:
    """Read the patterns for payload and recipients as a capability. The kind is always `mcp/request`."""
    _refuse_others(place.section(), _MATCH)
    try:
        return read_capability({"kind": kinds.MCP_REQUEST, **place.node.plain()}, "match")
    except InvalidEnvelope as refusal:
        raise place.error(refusal.message) from None


def _refuse_others(section: ConfigSection, known: frozenset[str]) -> None:
    for key, place in section.entries():
        if key not in known:
            raise place.error(f"unknown key; expected {', '.join(sorted(known))}")


JOURNAL_KEYS: Final = frozenset(
    {"enabled", "sync", "segment_bytes", "segment_seconds", "retention", "on_error", "kafka"}
)
_KAFKA: Final = frozenset({"to", "topic"})
LEAST_SEGMENT_BYTES: Final = 64 * 2**10
MOST_INTERVAL_MS: Final = 60_000
_SYNC: Final = re.compile(r"(always|os)|interval:([0-9]{1,5})")
_RETENTION: Final = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def read_journal(top: ConfigSection) -> JournalSettings:
    """Read the journal settings of the space."""
    given, usual = top.section("journal", JOURNAL_KEYS), JournalSettings()
    mode, interval_ms = _read_sync(given, usual)
    seconds = given.number("segment_seconds")
    return JournalSettings(
        enabled=given.flag("enabled", default=usual.enabled),
        sync=mode,
        interval_ms=interval_ms,
        segment_bytes=given.whole("segment_bytes", usual.segment_bytes, least=LEAST_SEGMENT_BYTES),
        segment_seconds=usual.segment_seconds if seconds is None else seconds,
        retention_seconds=_read_retention(given),
        on_error=cast("ErrorPolicy", given.choice("on_error", ("stop", "continue")) or usual.on_error),
        kafka=_read_kafka(given),
    )


def _read_sync(given: ConfigSection, usual: JournalSettings) -> tuple[SyncMode, int]:
    place = given.get("sync")
    if place is None:
        return usual.sync, usual.interval_ms
    what = f"always, os, or interval:<milliseconds, 1 to {MOST_INTERVAL_MS}>"
    found = _SYNC.fullmatch(place.text(what))
    if found is None:
        raise place.error(f"expected {what}, got {place.node.value!r}")
    if found[1] is not None:
        return cast("SyncMode", found[1]), usual.interval_ms
    if not 1 <= int(found[2]) <= MOST_INTERVAL_MS:
        raise place.error(f"expected {what}, got {place.node.value!r}")
    return "interval", int(found[2])


def _read_retention(given: ConfigSection) -> float | None:
    place = given.get("retention")
    if place is None:
        return None
    what = "all, or a time such as 30d, 12h, 90m"
    if place.text(what) == "all":
        return None
    found = _RETENTION.fullmatch(place.text())
    if found is None or not int(found[1]):
        raise place.error(f"expected {what}, got {place.node.value!r}")
    return float(int(found[1]) * _SECONDS[found[2]])


def _read_kafka(given: ConfigSection) -> TopicUrl | None:
    if given.get("kafka") is None:
        return None
    section = given.section("kafka", _KAFKA)
    place, topic = section.required("to"), section.text("topic", "the name of a topic")
    if not given.flag("enabled", default=True):
        raise place.error("nothing can be sent of a journal that is not kept: see journal.enabled")
    try:
        return parse_topic_url(place.text(TOPIC_URL_FORM), topic)
    except InvalidTopicUrl as problem:
        raise place.error(str(problem)) from None


__all__ = [
    "TLS",
    "BridgeConfig",
    "ConfigError",
    "GatewayConfig",
    "LoggingConfig",
    "McpServerConfig",
    "ParticipantConfig",
    "Queues",
    "RestartPolicy",
    "SpaceConfig",
    "Timeouts",
    "UnadmittedLimits",
    "find_config",
    "load",
]

_SECTIONS: Final = frozenset(
    {"space", "participants", "defaults", "approvals", "gateway", "gateway_logging", "streams", "journal", "pipeline"}
)
_SPACE: Final = frozenset({"id", "name", "description", "default_participant", "ui_theme"})
_PROCESS: Final = frozenset({"host", "port", "tls", "allowed_origins", "allowed_hosts", "trusted_proxies", "timeouts"})
_GATEWAY: Final = _PROCESS | {"allow_anonymous", "strict_from", "limits"}
_QUEUES: Final = frozenset({"data_queue_bytes", "control_queue_bytes"})
_OF_PROCESS: Final = _QUEUES | frozenset(UnadmittedLimits.__struct_fields__)
"""Limits that apply to the whole gateway, not to one space."""
_LIMITS: Final = frozenset(Limits.__struct_fields__) | _OF_PROCESS
_PARTICIPANT: Final = frozenset(ParticipantConfig.__struct_fields__)
_TYPES: Final = frozenset({"local", "mcp-bridge"})
_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})


def find_config(directory: Path) -> Path:
    """Return the space.yaml of a space directory: `.mew/space.yaml`, else `space.yaml` (protocol §8)."""
    places = (directory / ".mew" / "space.yaml", directory / "space.yaml")
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(f"no space.yaml here: looked for {' and '.join(map(str, places))}; `mew init` makes a space")


def load(files: Sequence[Path], *, environ: Mapping[str, str], directory: Path | None = None) -> GatewayConfig:
    """Read these files into one configuration. Raises `ConfigError` if a file cannot be used.

    The gateway settings come from the first file. `directory` overrides the space directory of every file.
    """
    if not files:
        raise ConfigError("no configuration given: a gateway needs a space.yaml")
    roots = [read_yaml(file) for file in files]
    tops = [root.section(_SECTIONS) for root in roots]
    spaces = tuple(_read_space(top, environ, directory) for top in tops)
    _refuse_shared(tops, spaces)
    _refuse_shared_tokens(tops)
    gateway = _read_gateway(tops[0], spaces[0].directory)
    for top in tops[1:]:
        _warn_of_second_gateway(top, tops[0].place.file)
    warnings = tuple(warning for root in roots for warning in root.warnings)
    return msgspec.structs.replace(gateway, spaces=spaces, warnings=warnings).listening_on()


def _read_gateway(top: ConfigSection, directory: Path) -> GatewayConfig:
    given = top.section("gateway", _GATEWAY)
    limits, timeouts = given.section("limits"), given.section("timeouts", frozenset(Timeouts.__struct_fields__))
    queues = Queues()
    return GatewayConfig(
        host=given.text("host", "a host name or address") or "localhost",
        port=given.whole("port", 8080, least=0, most=65535),
        tls=_read_tls(given, directory),
        allowed_origins=given.texts("allowed_origins"),
        allowed_hosts=given.texts("allowed_hosts"),
        trusted_proxies=_read_proxies(given),
        timeouts=Timeouts(**_numbers(timeouts, Timeouts)),
        queues=Queues(
            data_bytes=limits.whole("data_queue_bytes", queues.data_bytes, least=1),
            control_bytes=limits.whole("control_queue_bytes", queues.control_bytes, least=1),
        ),
        unadmitted=UnadmittedLimits(**_numbers(limits, UnadmittedLimits)),
    )


def _read_proxies(given: ConfigSection) -> tuple[str, ...]:
    place = given.get("trusted_proxies")
    if place is None:
        return ()
    for each in place.items("a list of addresses or networks"):
        try:
            ip_network(each.text(), strict=False)
        except ValueError:
            raise each.error("expected an address or a network such as 10.0.0.0/8") from None
    return given.texts("trusted_proxies")


def _read_tls(given: ConfigSection, directory: Path) -> TLS | None:
    if given.get("tls") is None:
        return None
    section = given.section("tls", frozenset(TLS.__struct_fields__))
    paths = {key: section.required(key) for key in TLS.__struct_fields__}
    for place in paths.values():
        if not (directory / place.text("a path")).is_file():
            raise place.error(f"no such file: {directory / place.text()}")
    return TLS(**{key: directory / place.text() for key, place in paths.items()})


def _warn_of_second_gateway(top: ConfigSection, first: Path) -> None:
    """Warn about host, port and similar keys in any file but the first: they have no effect."""
    given = top.section("gateway", _GATEWAY)
    for key, place in (*given.entries(), *given.section("limits").entries()):
        if key in _PROCESS or key in _OF_PROCESS:
            place.warn(f"ignored: only the first configuration, {first}, sets the gateway")


def _read_space(top: ConfigSection, environ: Mapping[str, str], directory: Path | None) -> SpaceConfig:
    file = top.place.file.absolute()
    directory = directory or (file.parent.parent if file.parent.name == ".mew" else file.parent)
    given, defaults = top.section("space", _SPACE), top.section("defaults", frozenset({"capabilities", "routing"}))
    listed = top.section("participants").entries()
    participants = {name: _read_participant(name, place, directory) for name, place in listed}
    default_participant = given.text("default_participant")
    if default_participant is not None and default_participant not in participants:
        given.place.warn(f"default_participant {default_participant!r} is not among the participants")
    space_id = _read_space_id(given)
    return SpaceConfig(
        settings=_read_settings(top, space_id, participants),
        directory=directory,
        file=file,
        name=given.text("name") or space_id,
        description=given.text("description") or "",
        default_participant=default_participant,
        participants=participants,
        logging=_read_logging(top, environ),
        routing=defaults.plain("routing"),
        journal=read_journal(top),
        pipeline=top.plain("pipeline"),
    )


def _read_space_id(given: ConfigSection) -> str:
    place = given.required("id")
    if not is_space_id(place.text("a space id")):
        raise place.error("expected 1 to 128 letters, digits, `.`, `_`, `@` or `-`, the first a letter or digit")
    return place.text()


def _read_settings(top: ConfigSection, space_id: str, participants: Mapping[str, ParticipantConfig]) -> SpaceSettings:
    gateway, defaults = top.section("gateway"), _read_capabilities(top.section("defaults"))
    streams = top.section("streams", frozenset(StreamSettings.__struct_fields__))
    usual, grace = StreamSettings(), streams.number("owner_grace_seconds", zero=True)
    policy = streams.choice("on_owner_disconnect", ("close", "keep", "transfer"))
    return SpaceSettings(
        space_id=space_id,
        participants={name: each.capabilities for name, each in participants.items()},
        defaults=CHAT_ONLY if defaults is None else defaults,
        output_logs=frozenset(name for name, each in participants.items() if each.output_log is not None),
        allow_anonymous=gateway.flag("allow_anonymous", default=False),
        strict_from=gateway.flag("strict_from", default=False),
        streams=StreamSettings(
            on_owner_disconnect=cast("OwnerPolicy", policy or usual.on_owner_disconnect),
            owner_grace_seconds=usual.owner_grace_seconds if grace is None else grace,
            validate=streams.flag("validate", default=usual.validate),
        ),
        limits=Limits(**_numbers(gateway.section("limits", _LIMITS), Limits)),
        approvals=_read_approvals(top, participants),
    )


def _read_approvals(top: ConfigSection, participants: Mapping[str, ParticipantConfig]) -> tuple[ApprovalRule, ...]:
    """Read the rules. Warn about each decider that is not configured: it has no vote until it is invited."""
    rules = read_approvals(top)
    for name in dict.fromkeys(decider for rule in rules for decider in rule.deciders):
        if name not in participants:
            top.required("approvals").warn(f"decider {name!r} is not among the participants")
    return rules


def _numbers(section: ConfigSection, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Read the numeric fields that the section contains: each above 0, and an integer if the field is `int`."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if section.get(field.name) is not None:
            whole = field.type is int
            found[field.name] = section.whole(field.name, 0, least=1) if whole else section.number(field.name)
    return found


def _read_logging(top: ConfigSection, environ: Mapping[str, str]) -> LoggingConfig:
    """Read which logs to write. The environment overrides the file; `enabled: false` disables all (protocol §7)."""
    logs = ("envelope_history", "capability_decisions")
    given = top.section("gateway_logging", frozenset({"enabled", *logs}))
    all_of_them = _overridden(environ, "GATEWAY_LOGGING", given.flag("enabled", default=True))
    chosen = {
        log: _overridden(environ, log.upper(), given.section(log, frozenset({"enabled"})).flag("enabled", default=True))
        for log in logs
    }
    return LoggingConfig(**{log: all_of_them and on for log, on in chosen.items()})


def _overridden(environ: Mapping[str, str], variable: str, configured: bool) -> bool:
    word = environ.get(variable, "").strip().lower()
    if not word:
        return configured
    if word not in _YES | _NO:
        raise ConfigError("expected true, 1, yes, on, false, 0, no or off", where=f"environment variable {variable}")
    return word in _YES


def _read_participant(name: str, place: ConfigValue, directory: Path) -> ParticipantConfig:
    if not is_participant_id(name):
        raise place.error("no participant id: expected 1 to 128 letters, digits, `.`, `_`, `@`, `:` or `-`")
    if is_reserved_id(name):
        raise place.error("the id belongs to the gateway")
    if place.node.value is None:
        return ParticipantConfig()
    given = place.section(_PARTICIPANT)
    kind, log = given.text("type") or "local", given.text("output_log", "a path")
    if kind not in _TYPES:
        place.warn(f"unknown type {kind!r}: expected local or mcp-bridge")
    policy = given.choice("restart_policy", ("never", "on-failure", "always")) or "never"
    return ParticipantConfig(
        type=kind,
        tokens=given.texts("tokens", "a list of tokens"),
        capabilities=_read_capabilities(given),
        command=given.text("command"),
        args=given.words("args"),
        env=given.variables("env"),
        auto_start=given.flag("auto_start", default=False),
        restart_policy=cast("RestartPolicy", policy),
        output_log=None if log is None else directory / log,
        auto_connect=given.flag("auto_connect", default=False),
        io=given.text("io"),
        fifo=given.flag("fifo", default=False),
        default_to={kind: given.section("default_to").texts(kind) for kind in given.section("default_to").nodes},
        mcp_server=_read_mcp_server(given),
        bridge_config=_read_bridge(given.section("bridge_config", frozenset(BridgeConfig.__struct_fields__))),
    )


def _read_mcp_server(given: ConfigSection) -> McpServerConfig | None:
    if given.get("mcp_server") is None:
        return None
    server = given.section("mcp_server", frozenset(McpServerConfig.__struct_fields__))
    command = server.required("command").text()
    return McpServerConfig(
        command=command, args=server.words("args"), env=server.variables("env"), cwd=server.text("cwd")
    )


def _read_bridge(given: ConfigSection) -> BridgeConfig:
    return BridgeConfig(
        init_timeout=given.number("init_timeout"),
        reconnect=given.flag("reconnect", default=True),
        max_reconnects=given.whole("max_reconnects", 0, least=0) if given.get("max_reconnects") else None,
    )


def _read_capabilities(given: ConfigSection) -> tuple[Capability, ...] | None:
    """Read the `capabilities` of a participant or of the defaults; None if the key is missing."""
    place = given.get("capabilities")
    return None if place is None else tuple(map(_read_capability, place.items("a list of capabilities")))


def _read_capability(place: ConfigValue) -> Capability:
    if not isinstance(place.node.value, dict):
        raise place.expected("a capability such as `kind: chat`")
    try:
        return read_capability(place.node.plain(), "capability")
    except InvalidEnvelope as refusal:
        raise place.error(refusal.message) from None


def _refuse_shared(tops: Sequence[ConfigSection], spaces: Sequence[SpaceConfig]) -> None:
    """Reject spaces that share an id or a directory: `.mew` in the directory holds a space's tokens and logs."""
    seen: dict[str | Path, Path] = {}
    for top, space in zip(tops, spaces, strict=True):
        place = top.section("space").required("id")
        for key, what in ((place.text(), "id"), (space.directory.resolve(), "directory")):
            if key in seen:
                raise place.error(f"the space has the same {what} as that of {seen[key]}: each needs its own")
            seen[key] = top.place.file


def _refuse_shared_tokens(tops: Sequence[ConfigSection]) -> None:
    """Reject a token that is used twice: a token identifies one participant in one space (protocol §2)."""
    holders: dict[str, ConfigValue] = {}
    for top in tops:
        for _, participant in top.section("participants").entries():
            tokens = participant.section().get("tokens") if participant.node.value is not None else None
            for place in tokens.items() if tokens is not None else ():
                first = holders.setdefault(place.text(), place)
                if (first.file, first.path[1]) != (place.file, place.path[1]):
                    other = f"{first.file}:{first.node.line}: {first.where}"
                    raise place.error(f"the same token as {other}: each participant needs its own")
