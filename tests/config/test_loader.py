"""The contents of space.yaml and the environment, and the places that errors name."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from mew.config import ConfigError, find_config
from mew.config.loader import load_config
from mew.config.models import (
    TLS,
    BridgeConfig,
    GatewayConfig,
    LoggingConfig,
    McpServerConfig,
    ParticipantConfig,
    Queues,
    SpaceConfig,
    Timeouts,
    UnadmittedLimits,
)
from mew.config.yaml_source import MAX_YAML_DEPTH, read_yaml
from mew.journal import JournalSettings
from mew.protocol import Limits, MewError, StreamSettings
from mew.protocol.capabilities import CHAT_ONLY
from tests.support.hypothesis_settings import examples

SECRET = "s3cret-of-alice"
SPACE = "space: {id: lab}\n"


def written(folder: Path, text: str, name: str = "space.yaml") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def configured(folder: Path, text: str, **environ: str) -> GatewayConfig:
    return load_config([written(folder, text)], environ=environ)


def space_of(folder: Path, text: str, **environ: str) -> SpaceConfig:
    return configured(folder, SPACE + text, **environ).spaces[0]


def participant_of(folder: Path, text: str) -> ParticipantConfig:
    return space_of(folder, f"participants:\n  alice: {text}\n").participants["alice"]


def refused(folder: Path, text: str, **environ: str) -> ConfigError:
    """The error of a configuration, whose message must be one line. `tests/messages` has the sentences."""
    with pytest.raises(ConfigError) as caught:
        configured(folder, text, **environ)
    assert "\n" not in str(caught.value)
    return caught.value


def place(error: ConfigError) -> tuple[int | None, str]:
    """The line and the path in the file that an error names."""
    return error.line, error.where


FULL = """\
space:
  id: lab
  name: The lab
  description: Where things are tried
  default_participant: alice
  ui_theme: dark
participants:
  alice:
    type: local
    tokens: [one, two]
    capabilities:
      - kind: "mcp/*"
        payload: {method: tools/call}
        to: bob
    command: node
    args: [agent.js, --port, "${PORT}", 8080, 1.10]
    env: {TOKEN: "${TOKEN}", DEPTH: 3, QUICK: true, EMPTY: }
    auto_start: true
    restart_policy: on-failure
    output_log: ./logs/alice.log
    auto_connect: true
    io: http
    fifo: true
    default_to: {chat: [bob]}
  bob:
    type: mcp-bridge
    mcp_server: {command: npx, args: [-y, files], env: {A: b}, cwd: ./files}
    bridge_config: {init_timeout: 30000, reconnect: false, max_reconnects: 0}
  carol:
defaults:
  capabilities: [{kind: x/*}]
  routing: {default_to: {chat: [bob]}}
gateway:
  host: 127.0.0.1
  port: 9000
  allow_anonymous: true
  strict_from: true
  allowed_origins: ["https://example.org"]
  allowed_hosts: [example.org]
  trusted_proxies: [127.0.0.1, "10.0.0.0/8"]
  timeouts: {handshake_seconds: 1, idle_seconds: 2.5, close_seconds: 3, write_seconds: 4, failed_join_seconds: 0.5}
  limits:
    {streams: 7, envelopes_per_second: 0.5, frames_per_second: 10, data_queue_bytes: 11, control_queue_bytes: 12,
     join_bytes: 13, http_head_bytes: 14, unadmitted_connections: 15, unadmitted_per_address: 16,
     work_per_second: 13, work_burst: 14, bytes_per_second: 15, byte_burst: 16, heartbeat_bytes: 17,
     control_message_bytes: 18, explain_bytes: 19, patterns: 20, participant_patterns: 21}
streams: {on_owner_disconnect: keep, owner_grace_seconds: 0, validate: true}
journal: {sync: always, segment_bytes: 65536, segment_seconds: 0.5, retention: 30d, on_error: continue}
pipeline: {warehouse: ./tables}
gateway_logging:
  enabled: true
  envelope_history: {enabled: false}
"""


def test_every_key_is_read(tmp_path: Path) -> None:
    config = configured(tmp_path, FULL)
    (space,) = config.spaces
    ignored = [(6, "space.ui_theme"), (22, "participants.alice.io"), (23, "participants.alice.fifo")]
    ignored += [(24, "participants.alice.default_to"), (32, "defaults.routing")]
    assert config.warnings == tuple(f"{space.file}:{line}: {path}: has no effect" for line, path in ignored)
    assert (config.host, config.port, config.tls) == ("127.0.0.1", 9000, None)
    assert (config.allowed_origins, config.allowed_hosts) == (("https://example.org",), ("example.org",))
    assert config.trusted_proxies == ("127.0.0.1", "10.0.0.0/8")
    assert config.timeouts == Timeouts(
        handshake_seconds=1, idle_seconds=2.5, close_seconds=3, write_seconds=4, failed_join_seconds=0.5
    )
    assert config.queues == Queues(data_bytes=11, control_bytes=12)
    assert config.unadmitted == UnadmittedLimits(
        join_bytes=13, http_head_bytes=14, unadmitted_connections=15, unadmitted_per_address=16
    )
    assert (space.name, space.description, space.default_participant) == ("The lab", "Where things are tried", "alice")
    assert space.logging == LoggingConfig(envelope_history=False, capability_decisions=True)
    assert space.journal == JournalSettings(
        sync="always", segment_bytes=65536, segment_seconds=0.5, retention_seconds=30 * 86400, on_error="continue"
    )
    assert space.pipeline == {"warehouse": "./tables"}


def test_the_settings_of_the_space_are_read(tmp_path: Path) -> None:
    settings = configured(tmp_path, FULL).spaces[0].settings
    assert settings.space_id == "lab"
    assert list(settings.participants) == ["alice", "bob", "carol"]
    (capability,) = settings.participants["alice"] or ()
    assert capability.pattern == {"kind": "mcp/*", "payload": {"method": "tools/call"}, "to": "bob"}
    assert settings.participants["carol"] is None
    assert [item.pattern for item in settings.defaults] == [{"kind": "x/*"}]
    assert settings.output_logs == {"alice"}
    assert (settings.allow_anonymous, settings.strict_from) == (True, True)
    assert settings.connection_url == "ws://127.0.0.1:9000"
    assert settings.streams == StreamSettings(on_owner_disconnect="keep", owner_grace_seconds=0, validate=True)
    assert settings.limits == Limits(
        streams=7,
        envelopes_per_second=0.5,
        frames_per_second=10,
        work_per_second=13,
        work_burst=14,
        bytes_per_second=15,
        byte_burst=16,
        heartbeat_bytes=17,
        control_message_bytes=18,
        explain_bytes=19,
        patterns=20,
        participant_patterns=21,
    )


def test_the_configuration_of_a_participant_is_read(tmp_path: Path) -> None:
    people = configured(tmp_path, FULL).spaces[0].participants
    alice, bob = people["alice"], people["bob"]
    assert (alice.type, alice.tokens, alice.command) == ("local", ("one", "two"), "node")
    assert alice.args == ("agent.js", "--port", "${PORT}", "8080", "1.10")
    assert alice.env == {"TOKEN": "${TOKEN}", "DEPTH": "3", "QUICK": "true", "EMPTY": ""}
    assert (alice.auto_start, alice.restart_policy, alice.auto_connect) == (True, "on-failure", True)
    assert alice.output_log == tmp_path / "logs" / "alice.log"
    assert bob.type == "mcp-bridge"
    assert bob.mcp_server == McpServerConfig(command="npx", args=("-y", "files"), env={"A": "b"}, cwd="./files")
    assert bob.bridge_config == BridgeConfig(init_timeout=30000, reconnect=False, max_reconnects=0)
    assert people["carol"] == ParticipantConfig()


def test_a_space_needs_only_an_id(tmp_path: Path) -> None:
    config = configured(tmp_path, SPACE)
    (space,) = config.spaces
    assert (config.host, config.port, config.tls) == ("localhost", 8080, None)
    assert (config.allowed_origins, config.allowed_hosts, config.warnings) == ((), (), ())
    assert config.timeouts == Timeouts(
        handshake_seconds=10, idle_seconds=60, close_seconds=5, write_seconds=10, failed_join_seconds=1
    )
    assert config.unadmitted == UnadmittedLimits(
        join_bytes=32 * 1024, http_head_bytes=32 * 1024, unadmitted_connections=1024, unadmitted_per_address=256
    )
    assert config.trusted_proxies == ()
    assert config.queues == Queues(data_bytes=8 * 1024**2, control_bytes=64 * 1024**2)
    assert (space.name, space.description, space.default_participant) == ("lab", "", None)
    assert (space.participants, space.pipeline) == ({}, {})
    assert space.journal == JournalSettings(
        enabled=True, sync="interval", interval_ms=50, segment_seconds=5, retention_seconds=None, on_error="stop"
    )
    assert (space.settings.defaults, space.settings.limits) == (CHAT_ONLY, Limits())
    assert space.settings.streams == StreamSettings()
    assert space.settings.connection_url == "ws://localhost:8080"


def test_a_key_without_a_value_counts_as_absent(tmp_path: Path) -> None:
    text = "participants:\ngateway:\n  port:\n  limits:\nstreams:\njournal:\nspace: {id: lab, description: ''}\n"
    config = configured(tmp_path, text)
    assert (config.port, config.spaces[0].settings.limits) == (8080, Limits())


def test_an_empty_list_of_capabilities_is_not_the_defaults(tmp_path: Path) -> None:
    assert participant_of(tmp_path, "{capabilities: []}").capabilities == ()


# ------------------------------------------------------------------------------------------- paths and addresses


@pytest.mark.parametrize("name", ["space.yaml", ".mew/space.yaml"])
def test_the_space_directory_is_that_of_the_file_or_above_its_mew_folder(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, SPACE, name)
    (space,) = load_config([file], environ={}).spaces
    assert (space.directory, space.file) == (tmp_path, file)


def test_the_directory_of_a_file_with_a_relative_path_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, SPACE, ".mew/space.yaml")
    monkeypatch.chdir(tmp_path / ".mew")
    assert load_config([Path("space.yaml")], environ={}).spaces[0].directory == tmp_path


def test_the_file_in_the_mew_folder_takes_precedence(tmp_path: Path) -> None:
    beside = written(tmp_path, SPACE)
    assert find_config(tmp_path) == beside
    inside = written(tmp_path, SPACE, ".mew/space.yaml")
    assert find_config(tmp_path) == inside


def test_if_no_file_is_found_the_error_lists_the_searched_places(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_config(tmp_path)
    assert f"{tmp_path}/.mew/space.yaml and {tmp_path}/space.yaml" in str(caught.value)


def test_the_path_of_an_absolute_output_log_is_unchanged(tmp_path: Path) -> None:
    assert participant_of(tmp_path, "{output_log: /var/log/x}").output_log == Path("/var/log/x")


def test_certificate_and_key_are_relative_to_the_space_directory(tmp_path: Path) -> None:
    for name in ("c.pem", "k.pem"):
        written(tmp_path, "", name)
    config = configured(tmp_path, SPACE + "gateway: {tls: {certificate: c.pem, key: k.pem}}\n")
    assert config.tls == TLS(certificate=tmp_path / "c.pem", key=tmp_path / "k.pem")
    assert config.spaces[0].settings.connection_url == "wss://localhost:8080"


def test_certificate_and_key_are_both_required_and_must_exist(tmp_path: Path) -> None:
    written(tmp_path, "", "c.pem")
    text = SPACE + "gateway:\n  tls:\n    certificate: c.pem\n"
    assert place(refused(tmp_path, text)) == (3, "gateway.tls")
    assert place(refused(tmp_path, text + "    key: k.pem\n")) == (5, "gateway.tls.key")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("example.org", "ws://example.org:1234"),
        ("::1", "ws://[::1]:1234"),
        ("0.0.0.0", "ws://localhost:1234"),
        ("::", "ws://localhost:1234"),
        (None, "ws://localhost:1234"),
    ],
)
def test_invitations_name_the_address_of_the_gateway(tmp_path: Path, host: str | None, url: str) -> None:
    config = configured(tmp_path, SPACE).listening_on(host, 1234)
    assert (config.host, config.port) == (host or "localhost", 1234)
    assert config.spaces[0].settings.connection_url == url


def test_port_0_requests_any_free_port(tmp_path: Path) -> None:
    config = configured(tmp_path, SPACE + "gateway: {port: 7}\n")
    assert config.listening_on(port=0).port == 0
    assert config.listening_on("example.org").port == 7


# ---------------------------------------------------------------------------------------------- several files


def test_several_files_are_several_spaces_in_order(tmp_path: Path) -> None:
    files = [written(tmp_path, f"space: {{id: {name}}}", f"{name}/space.yaml") for name in ("b", "a")]
    config = load_config(files, environ={})
    assert [space.settings.space_id for space in config.spaces] == ["b", "a"]


def test_gateway_settings_come_from_the_first_file_and_others_cause_a_warning(tmp_path: Path) -> None:
    first = written(tmp_path, "space: {id: a}\ngateway: {port: 1}\n", "a/space.yaml")
    limits = "{streams: 5, data_queue_bytes: 9}"
    text = f"space: {{id: b}}\ngateway:\n  port: 2\n  strict_from: true\n  limits: {limits}\n  x: 1\n"
    second = written(tmp_path, text, "b/space.yaml")
    config = load_config([first, second], environ={})
    assert (config.port, config.queues) == (1, Queues())
    assert config.spaces[1].settings.connection_url == "ws://localhost:1"
    assert (config.spaces[1].settings.strict_from, config.spaces[1].settings.limits.streams) == (True, 5)
    ignored = f"ignored: gateway settings come only from the first configuration, {first}"
    assert set(config.warnings) == {
        f"{second}:3: gateway.port: {ignored}",
        f"{second}:5: gateway.limits.data_queue_bytes: {ignored}",
        f"{second}:6: gateway.x: unknown key, ignored",
    }


@pytest.mark.parametrize(("other", "what"), [("b/space.yaml", "id"), ("other.yaml", "directory")])
def test_two_spaces_cannot_share_an_id_or_a_directory(tmp_path: Path, other: str, what: str) -> None:
    first = written(tmp_path, "space: {id: lab}")
    second = written(tmp_path, "# second\nspace: {id: %s}" % ("lab" if what == "id" else "lib"), other)
    with pytest.raises(ConfigError) as caught:
        load_config([first, second], environ={})
    assert (caught.value.file, *place(caught.value)) == (second, 2, "space.id")
    assert str(first) in caught.value.problem


def test_a_configuration_needs_a_file() -> None:
    with pytest.raises(ConfigError):
        load_config([], environ={})


# ------------------------------------------------------------------------------------------------ errors


def test_an_error_of_the_configuration_has_its_parts_as_attributes(tmp_path: Path) -> None:
    file = written(tmp_path, SPACE + "gateway:\n  port: x\n")
    with pytest.raises(MewError) as caught:
        load_config([file], environ={})
    error = caught.value
    assert isinstance(error, ConfigError)
    assert (error.file, error.line, error.where) == (file, 3, "gateway.port")
    assert str(error) == f"{file}:3: gateway.port: {error.problem}"


WRONG = [
    ("participants.alice.capabilities", "alice: {capabilities: chat}"),
    ("participants.alice.capabilities[0]", "alice: {capabilities: [chat]}"),
    ("participants.alice.capabilities[1]", "alice: {capabilities: [{kind: a}, {kind: 3}]}"),
    ("participants.alice", "alice: []"),
    ("participants.alice.tokens", "alice: {tokens: abc}"),
    ("participants.alice.tokens[0]", "alice: {tokens: [17]}"),
    ("participants.alice.tokens[0]", "alice: {tokens: ['']}"),
    ("participants.alice.tokens[0]", "alice: {tokens: [~]}"),
    ("participants.alice.tokens[1]", "alice: {tokens: [x, {kind: a}]}"),
    ("participants.alice.command", "alice: {command: [node]}"),
    ("participants.alice.args", "alice: {args: --verbose}"),
    ("participants.alice.args[0]", "alice: {args: [[a]]}"),
    ("participants.alice.args[1]", "alice: {args: [a, ~]}"),
    ("participants.alice.env", "alice: {env: [A=b]}"),
    ("participants.alice.env.A", "alice: {env: {A: {}}}"),
    ("participants.alice.auto_start", "alice: {auto_start: 1}"),
    ("participants.alice.auto_start", "alice: {auto_start: 'true'}"),
    ("participants.alice.auto_start", "alice: {auto_start: Yes}"),
    ("participants.alice.auto_start", "alice: {auto_start: off}"),
    ("participants.alice.restart_policy", "alice: {restart_policy: sometimes}"),
    ("participants.alice.restart_policy", "alice: {restart_policy: true}"),
    ("participants.alice.output_log", "alice: {output_log: true}"),
    ("participants.alice.mcp_server", "alice: {mcp_server: {args: [a]}}"),
    ("participants.alice.bridge_config.init_timeout", "alice: {bridge_config: {init_timeout: 30s}}"),
    ("participants.alice.bridge_config.max_reconnects", "alice: {bridge_config: {max_reconnects: -1}}"),
    ("participants.a/b", "a/b: {}"),
    ("participants.system", "system:"),
    ("participants.system:x", "'system:x': {}"),
    ("participants.gateway", "gateway: {}"),
]


@pytest.mark.parametrize(("where", "participant"), WRONG)
def test_an_error_in_a_participant_has_line_and_path(tmp_path: Path, where: str, participant: str) -> None:
    error = refused(tmp_path, f"{SPACE}participants:\n  bob: {{}}\n  {participant}\n")
    assert place(error) == (4, where)


WRONG_ELSEWHERE = [
    ("gateway", "gateway: []"),
    ("gateway.host", "gateway: {host: 127}"),
    ("gateway.port", "gateway: {port: '8080'}"),
    ("gateway.port", "gateway: {port: 65536}"),
    ("gateway.port", "gateway: {port: -1}"),
    ("gateway.port", "gateway: {port: 80.5}"),
    ("gateway.port", "gateway: {port: true}"),
    ("gateway.allow_anonymous", "gateway: {allow_anonymous: maybe}"),
    ("gateway.tls", "gateway: {tls: true}"),
    ("gateway.allowed_origins", "gateway: {allowed_origins: '*'}"),
    ("gateway.allowed_hosts[0]", "gateway: {allowed_hosts: [1]}"),
    ("gateway.timeouts.idle_seconds", "gateway: {timeouts: {idle_seconds: 0}}"),
    ("gateway.trusted_proxies[1]", "gateway: {trusted_proxies: ['127.0.0.1', proxy.example.org]}"),
    ("gateway.limits.join_bytes", "gateway: {limits: {join_bytes: 0}}"),
    ("gateway.limits.streams", "gateway: {limits: {streams: 0}}"),
    ("gateway.limits.streams", "gateway: {limits: {streams: 1.5}}"),
    ("gateway.limits.frames_per_second", "gateway: {limits: {frames_per_second: .inf}}"),
    ("gateway.limits.envelopes_per_second", "gateway: {limits: {envelopes_per_second: .nan}}"),
    ("gateway.limits.data_queue_bytes", "gateway: {limits: {data_queue_bytes: 0}}"),
    ("gateway.limits.control_queue_bytes", "gateway: {limits: {control_queue_bytes: 1M}}"),
    ("streams.on_owner_disconnect", "streams: {on_owner_disconnect: drop}"),
    ("streams.owner_grace_seconds", "streams: {owner_grace_seconds: -1}"),
    ("streams.owner_grace_seconds", "streams: {owner_grace_seconds: true}"),
    ("streams.validate", "streams: {validate: on}"),
    ("journal", "journal: always"),
    ("journal.sync", "journal: {sync: never}"),
    ("journal.sync", "journal: {sync: 'interval:0'}"),
    ("journal.sync", "journal: {sync: 50}"),
    ("journal.segment_bytes", "journal: {segment_bytes: 1}"),
    ("journal.segment_seconds", "journal: {segment_seconds: 0}"),
    ("journal.retention", "journal: {retention: 0d}"),
    ("journal.retention", "journal: {retention: forever}"),
    ("journal.on_error", "journal: {on_error: panic}"),
    ("journal.enabled", "journal: {enabled: 1}"),
    ("pipeline", "pipeline: [a]"),
    ("defaults.capabilities", "defaults: {capabilities: {kind: chat}}"),
    ("gateway_logging.enabled", "gateway_logging: {enabled: 1}"),
    ("gateway_logging.envelope_history", "gateway_logging: {envelope_history: true}"),
    ("participants", "participants: [alice]"),
]


@pytest.mark.parametrize(("where", "section"), WRONG_ELSEWHERE)
def test_an_error_in_a_section_has_line_and_path(tmp_path: Path, where: str, section: str) -> None:
    error = refused(tmp_path, f"{SPACE}# a line\n{section}\n")
    assert place(error) == (3, where)


@pytest.mark.parametrize("field", ["message_bytes", "connections", "writers", "grants", "frame_burst", "desired_ids"])
def test_every_limit_of_the_core_is_configurable(tmp_path: Path, field: str) -> None:
    limits = space_of(tmp_path, f"gateway: {{limits: {{{field}: 3}}}}\n").settings.limits
    assert getattr(limits, field) == 3


@pytest.mark.parametrize(
    ("text", "line", "where"),
    [
        ("participants: {}\n", 1, "space"),
        ("# first\nspace:\n  name: x\n", 2, "space"),
        ("space:\n  id: 17\n", 2, "space.id"),
        ("space: lab\n", 1, "space"),
        ("- space\n", 1, ""),
        ("space\n", 1, ""),
        *((f"space:\n  id: {name}\n", 2, "space.id") for name in ("a/b", "-a", "a:b", "'{{SPACE_NAME}}'", "a" * 129)),
    ],
)
def test_a_space_without_a_valid_id_is_refused(tmp_path: Path, text: str, line: int, where: str) -> None:
    assert place(refused(tmp_path, text)) == (line, where)


# ---------------------------------------------------------------------------------------------------- the YAML


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "~\n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    assert place(refused(tmp_path, text)) == (1, "")


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([tmp_path / "none.yaml"], environ={})
    assert (caught.value.file, caught.value.line) == (tmp_path / "none.yaml", None)


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([tmp_path], environ={})
    assert (caught.value.file, caught.value.line) == (tmp_path, None)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("space: {id: lab\nparticipants: {}\n", 2),
        ("space:\n  id: lab\n name: x\n", 3),
        ("space: lab: x\n", 1),
        ("space:\n\t id: x\n", 2),
        ("space:\n  id: 'lab\n", 3),
        ("space:\n  id: \x07\n", 2),
        ("space: {id: a}\n---\nspace: {id: b}\n", 2),
    ],
)
def test_invalid_yaml_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    assert place(refused(tmp_path, text)) == (line, "")


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_bytes(b"space:\n  id: lab\n  name: caf\xe9\n")
    with pytest.raises(ConfigError) as caught:
        load_config([file], environ={})
    assert (caught.value.file, caught.value.line) == (file, 3)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_bytes(b"\xef\xbb\xbf" + SPACE.encode())
    assert load_config([tmp_path / "space.yaml"], environ={}).spaces[0].name == "lab"


@pytest.mark.parametrize(
    ("text", "line", "where"),
    [
        ("space: {id: a}\nspace: {id: b}\n", 2, "space"),
        ("space: {id: a}\nparticipants:\n  bob: {}\n  bob:\n    fifo: true\n", 4, "participants.bob"),
    ],
)
def test_a_duplicate_key_is_refused(tmp_path: Path, text: str, line: int, where: str) -> None:
    assert place(refused(tmp_path, text)) == (line, where)


@pytest.mark.parametrize("key", ["17", "true", "~", "[a]"])
def test_a_key_is_a_string(tmp_path: Path, key: str) -> None:
    assert place(refused(tmp_path, f"{SPACE}participants:\n  ? {key}\n  : {{}}\n")) == (3, "participants")


def test_a_key_cannot_break_the_line_that_names_it(tmp_path: Path) -> None:
    text = f'{SPACE}participants: {{"a\\nb\\e[0m": {{}}}}\n'
    assert place(refused(tmp_path, text)) == (2, r"participants.'a\nb\x1b[0m'")


def test_an_alias_has_the_value_of_its_anchor(tmp_path: Path) -> None:
    text = "participants:\n  a: {capabilities: &all [{kind: '*'}]}\n  b: {capabilities: *all}\n"
    settings = space_of(tmp_path, text).settings
    assert settings.participants["a"] == settings.participants["b"] != None  # noqa: E711


def test_merged_keys_do_not_replace_explicit_ones(tmp_path: Path) -> None:
    text = (
        "participants:\n  a: &a {command: x, type: local, auto_connect: true}\n  b: &b {command: y, auto_start: true}\n"
        "  c: {<<: [*a, *b], auto_connect: false}\n  d: {<<: *b}\n"
    )
    people = space_of(tmp_path, text).participants
    c, d = people["c"], people["d"]
    assert (c.command, c.type, c.auto_connect, c.auto_start) == ("x", "local", False, True)
    assert (d.command, d.auto_start) == ("y", True)


def test_only_mappings_can_be_merged(tmp_path: Path) -> None:
    text = f"{SPACE}participants:\n  a: {{<<: [x]}}\n"
    assert place(refused(tmp_path, text)) == (3, "participants.a")


def test_aliases_cannot_expand_a_small_file_without_limit(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert place(refused(tmp_path, "\n".join(lines))) == (5, "a4")


def test_the_depth_of_a_file_is_limited(tmp_path: Path) -> None:
    for text in ("a: " + "[" * (MAX_YAML_DEPTH + 10), "a: &a [*a]"):
        assert refused(tmp_path, text).line == 1


def test_scalars_have_the_meaning_of_yaml_1_2(tmp_path: Path) -> None:
    text = (
        "[yes, no, on, 012, 0o14, 0x1F, +7, -7, 1_000, 12e03, .5, 5., -.inf, 2020-01-01, ~, null, '', True, FALSE,"
        " '7', !!str 7, ! 7, 12:30, 1.2.3]"
    )
    document = read_yaml(written(tmp_path, text))
    assert document.node.plain() == [
        *(
            "yes",
            "no",
            "on",
            12,
            12,
            31,
            7,
            -7,
            "1_000",
            12000.0,
            0.5,
            5.0,
            float("-inf"),
            "2020-01-01",
            None,
            None,
            "",
        ),
        *(True, False, "7", "7", "7", "12:30", "1.2.3"),
    ]


def test_too_many_digits_are_a_string(tmp_path: Path) -> None:
    text = "gateway: {limits: {frames_per_second: %s}}\n" % ("9" * 5000)
    assert refused(tmp_path, SPACE + text).where == "gateway.limits.frames_per_second"
    assert space_of(tmp_path, text.replace("9" * 5000, "9" * 200)).settings.limits.frames_per_second == int("9" * 200)


@examples(300, allow=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="ab:-[]{},&*!|>'\"%@`#?<\\xU0F \n\t~", max_size=60))
@example('"\\UFFFFFFFF"')
@example("%YAML 3.0\n---\na: 1\n")
@example("%TAG ! x\n--- !y z\n")
def test_any_text_is_a_configuration_or_one_clear_line(tmp_path: Path, text: str) -> None:
    try:
        configured(tmp_path, text)
    except ConfigError as error:
        assert "\n" not in str(error)
        assert str(error).startswith(f"{tmp_path}/space.yaml")


# ---------------------------------------------------------------------------------------------------- warnings


def test_unknown_keys_cause_warnings_with_name_file_and_line(tmp_path: Path) -> None:
    text = """\
space: {id: lab, colour: red}
participants:
  alice:
    capabilites: []
    mcp_server: {command: x, shell: true}
    bridge_config: {retry: 1}
    type: human
gateway:
  prot: 80
  limits: {speed: 3}
  timeouts: {read: 3}
streams: {x: 1}
defaults: {y: 1}
gateway_logging: {z: 1, envelope_history: {path: p}}
extra: 1
"""
    config = configured(tmp_path, text)
    unknown = {
        *((1, "space.colour"), (4, "participants.alice.capabilites"), (5, "participants.alice.mcp_server.shell")),
        *((6, "participants.alice.bridge_config.retry"), (9, "gateway.prot"), (10, "gateway.limits.speed")),
        *((11, "gateway.timeouts.read"), (12, "streams.x"), (13, "defaults.y"), (14, "gateway_logging.z")),
        *((14, "gateway_logging.envelope_history.path"), (15, "extra")),
    }
    file = tmp_path / "space.yaml"
    expected = [f"{file}:{line}: {path}: unknown key, ignored" for line, path in unknown]
    expected.append(f"{file}:3: participants.alice: unknown type 'human': expected local or mcp-bridge")
    assert sorted(config.warnings) == sorted(expected)


@pytest.mark.parametrize(
    ("written", "mode", "interval_ms"),
    [("always", "always", 50), ("os", "os", 50), ("interval:1", "interval", 1), ("interval:60000", "interval", 60_000)],
)
def test_a_journal_is_synced_as_configured(tmp_path: Path, written: str, mode: str, interval_ms: int) -> None:
    (space,) = configured(tmp_path, SPACE + f"journal: {{sync: '{written}'}}\n").spaces
    assert (space.journal.sync, space.journal.interval_ms) == (mode, interval_ms)


@pytest.mark.parametrize(("written", "seconds"), [("all", None), ("90s", 90), ("2m", 120), ("12h", 43_200)])
def test_the_retention_of_a_journal_is_configurable(tmp_path: Path, written: str, seconds: float | None) -> None:
    (space,) = configured(tmp_path, SPACE + f"journal: {{retention: {written}}}\n").spaces
    assert space.journal.retention_seconds == seconds


@pytest.mark.parametrize("written", ["{to: 'kafka://a:1,b:2/lab'}", "{to: 'kafka://a:1,b:2', topic: lab}"])
def test_the_target_of_shipping_is_configurable(tmp_path: Path, written: str) -> None:
    (space,) = configured(tmp_path, SPACE + f"journal: {{kafka: {written}}}\n").spaces
    assert str(space.journal.kafka) == "kafka://a:1,b:2/lab"


def test_keys_of_the_pipeline_cause_no_warnings(tmp_path: Path) -> None:
    assert configured(tmp_path, SPACE + "pipeline: {thing: 2}\n").warnings == ()


def test_an_unknown_default_participant_causes_a_warning(tmp_path: Path) -> None:
    (warning,) = configured(tmp_path, "space: {id: lab, default_participant: zoe}\n").warnings
    assert warning.endswith("space.yaml:1: space: default_participant 'zoe' is not among the participants")


# ------------------------------------------------------------------------------------------- logs on and off


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "TRUE", "On", " yes "])
def test_the_environment_can_enable_a_log(tmp_path: Path, word: str) -> None:
    text = "gateway_logging: {enabled: false, capability_decisions: {enabled: false}}\n"
    assert space_of(tmp_path, text).logging == LoggingConfig(envelope_history=False, capability_decisions=False)
    one = space_of(tmp_path, text, GATEWAY_LOGGING=word).logging
    assert one == LoggingConfig(envelope_history=True, capability_decisions=False)
    both = space_of(tmp_path, text, GATEWAY_LOGGING=word, CAPABILITY_DECISIONS=word).logging
    assert both == LoggingConfig(envelope_history=True, capability_decisions=True)


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "OFF", "False"])
def test_the_environment_can_disable_a_log(tmp_path: Path, word: str) -> None:
    none = LoggingConfig(envelope_history=False, capability_decisions=False)
    assert space_of(tmp_path, "", ENVELOPE_HISTORY=word).logging == LoggingConfig(envelope_history=False)
    assert space_of(tmp_path, "", CAPABILITY_DECISIONS=word).logging == LoggingConfig(capability_decisions=False)
    assert space_of(tmp_path, "", GATEWAY_LOGGING=word, ENVELOPE_HISTORY="true").logging == none


def test_both_logs_are_enabled_by_default(tmp_path: Path) -> None:
    assert space_of(tmp_path, "").logging == LoggingConfig(envelope_history=True, capability_decisions=True)
    assert space_of(tmp_path, "", GATEWAY_LOGGING="").logging == LoggingConfig()


@pytest.mark.parametrize("variable", ["GATEWAY_LOGGING", "ENVELOPE_HISTORY", "CAPABILITY_DECISIONS"])
def test_an_invalid_value_in_the_environment_is_refused(tmp_path: Path, variable: str) -> None:
    assert refused(tmp_path, SPACE, **{variable: "perhaps"}).where == f"environment variable {variable}"


# ------------------------------------------------------------------------------------------------------ secrets


def test_a_token_of_two_participants_is_refused_without_being_shown(tmp_path: Path) -> None:
    alice, bob = f"  alice:\n    tokens: [{SECRET}]\n", f"  bob:\n    tokens:\n      - other\n      - {SECRET}\n"
    text = f"{SPACE}participants:\n{alice}{bob}"
    error = refused(tmp_path, text)
    assert place(error) == (8, "participants.bob.tokens[1]")
    assert "participants.alice.tokens[0]" in error.problem
    assert SECRET not in str(error)


def test_a_token_of_two_spaces_is_refused(tmp_path: Path) -> None:
    text = "space: {id: %s}\nparticipants: {alice: {tokens: [x]}}\n"
    files = [written(tmp_path, text % name, f"{name}/space.yaml") for name in ("a", "b")]
    with pytest.raises(ConfigError) as caught:
        load_config(files, environ={})
    assert (caught.value.file, caught.value.where) == (files[1], "participants.alice.tokens[0]")


def test_a_token_may_be_repeated_for_the_same_participant(tmp_path: Path) -> None:
    assert participant_of(tmp_path, "{tokens: [x, x]}").tokens == ("x", "x")


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    text = f"""\
{SPACE}
participants:
  alice:
    tokens: [{SECRET}]
    args: [{SECRET}]
    env: {{A: {SECRET}}}
    mcp_server: {{command: x, env: {{A: {SECRET}}}}}
journal: {{kafka: {{to: 'kafka://a:1/lab', password: {SECRET}}}}}
"""
    config = configured(tmp_path, text)
    alice = config.spaces[0].participants["alice"]
    assert alice.tokens == (SECRET,)
    for value in (config, config.spaces[0], alice, alice.mcp_server):
        assert SECRET not in repr(value)
        assert SECRET not in f"{value}"
    for value in (config.spaces[0], alice, alice.mcp_server):
        assert list(value.__rich_repr__()) == []  # type: ignore[union-attr]
    assert SECRET not in repr(read_yaml(tmp_path / "space.yaml"))


@pytest.mark.parametrize(
    "tokens",
    [
        f"{SECRET}",
        f"*{SECRET}",
        f"[*{SECRET}]",
        f"!{SECRET}",
        f"!{SECRET}!x y",
        f"!<{SECRET}> y",
        f"[!{SECRET} x]",
        f"{{{SECRET}: 1}}",
        f"{{{SECRET}, {SECRET}}}",
        f"{{{SECRET}: [*x]}}",
        f'"{SECRET}',
        f"[{SECRET}",
        f"'{SECRET}' '{SECRET}'",
        f"{SECRET}: {SECRET}",
        f"@{SECRET}",
        f"%{SECRET}",
        f"[[{SECRET}]]",
        f"\n  {SECRET}",
        f'"\\{SECRET}"',
        f"|{SECRET}",
        f"&{SECRET} &{SECRET} x",
    ],
)
def test_no_error_quotes_the_values_of_tokens(tmp_path: Path, tokens: str) -> None:
    error = refused(tmp_path, f"{SPACE}participants:\n  alice:\n    tokens: {tokens}\n")
    assert "s3cret" not in str(error)
    assert error.file == tmp_path / "space.yaml"


def test_a_participant_called_tokens_is_named_in_errors(tmp_path: Path) -> None:
    text = f"{SPACE}participants: {{tokens: {{env: {{A: []}}}}}}\n"
    assert place(refused(tmp_path, text)) == (2, "participants.tokens.env.A")


RULES = """\
participants: {alice: {}, carol: {}}
approvals:
  - match: {payload: {method: tools/call, params: {name: "exec_*"}}, to: shell}
    deciders: [alice, carol, alice]
    quorum: 2
    not_proposer: false
  - {match: {}, deciders: [dave]}
"""


def test_rules_of_approvals_are_read(tmp_path: Path) -> None:
    config = configured(tmp_path, SPACE + RULES)
    first, second = config.spaces[0].settings.approvals
    assert (first.deciders, first.quorum, first.not_proposer) == (("alice", "carol"), 2, False)
    payload = {"method": "tools/call", "params": {"name": "exec_*"}}
    assert first.match.pattern == {"kind": "mcp/request", "payload": payload, "to": "shell"}
    assert (second.deciders, second.quorum, second.not_proposer) == (("dave",), 1, True)
    (warning,) = config.warnings
    assert warning.endswith("space.yaml:3: approvals: decider 'dave' is not among the participants")


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ("{deciders: [a]}", "approvals[0]"),
        ("{match: {}}", "approvals[0]"),
        ("{match: {}, deciders: []}", "approvals[0].deciders"),
        ("{match: {}, deciders: [a], quorum: 2}", "approvals[0].quorum"),
        ("{match: {}, deciders: [a], not_propser: 1}", "approvals[0].not_propser"),
        ("{match: {kind: chat}, deciders: [a]}", "approvals[0].match.kind"),
        ("{match: {payload: x}, deciders: [a]}", "approvals[0].match"),
    ],
)
def test_an_invalid_rule_is_refused(tmp_path: Path, rule: str, where: str) -> None:
    assert refused(tmp_path, f"{SPACE}approvals:\n- {rule}\n").where == where
