"""Joins, refusals and changes of tokens are in the journal, and no participant sees them."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.config.loader import load_config
from mew.config.tokens import TokenFolder, TokenStore
from mew.gateway.gateway import Gateway
from mew.gateway.server import GatewayServer
from mew.journal.reader import Journal
from mew.journal.verify import verify_journal
from mew.protocol import Record
from mew.supervisor.control_socket import ControlServer, reload_tokens
from mew.supervisor.supervisor import GatewaySupervisor
from tests.gateway.raw import TEXT, Raw, Running, frame, head, started, upgrade

SPACE = """\
space: {id: lab}
participants:
  alice: {tokens: [alices-own], capabilities: [{kind: "*"}]}
  bob: {}
gateway: {port: 0}
"""


def records_in(directory: Path) -> list[Record]:
    root = directory / ".mew" / "journal"
    assert not verify_journal(root, "lab").damaged
    return list(Journal(root, "lab").records())


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    yield tmp_path


def gateway_of(directory: Path) -> Any:
    config = load_config([directory / "space.yaml"], environ={}).listening_on(port=0)
    return started(config, TokenStore(config.spaces, environ={}))


def joined(gateway: Running, token: str) -> Raw:
    client = Raw(gateway.port)
    client.send(upgrade(Authorization=f"Bearer {token}"))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    return client


def refused(gateway: Running, message: bytes) -> None:
    client = Raw(gateway.port)
    client.send(upgrade())
    assert client.answer().status == 101
    client.send(frame(TEXT, message))
    client.envelope("system/error")
    client.closed()


def get(gateway: Running, path: str, token: str) -> bytes:
    client = Raw(gateway.port)
    headers = {"Host": "localhost", "Authorization": f"Bearer {token}", "Connection": "close"}
    client.send(head(path, headers))
    return client.rest()


def administered(directory: Path) -> list[dict[str, Any]]:
    records = [record for record in records_in(directory) if record.event == "admin"]
    return [{"actor": record.participant, **msgspec.json.decode(record.payload)} for record in records]


def test_administrative_events_are_recorded_and_shown_to_no_participant(directory: Path) -> None:
    secrets = ["alices-own", "a-guess-of-mine", "another-guess"]
    with gateway_of(directory) as gateway:
        alice = joined(gateway, "alices-own")
        for guess in ("a-guess-of-mine", "another-guess"):
            refused(gateway, msgspec.json.encode({"type": "join", "token": guess, "participantId": "alice"}))
            refused(gateway, msgspec.json.encode({"type": "join", "space": guess, "participantId": guess}))
        get(gateway, "/participants", "a-guess-of-mine")
        control = ControlServer(gateway.gateway, gateway.tokens, gateway.config.spaces[0], nothing)
        gateway.do(control.open())
        folder = TokenFolder(directory)
        secrets += [folder.stored_token("bob") or "", folder.replace("bob"), folder.obtain("screen", observer=True)]
        reload_tokens(directory)
        folder.remove("screen", observer=True)
        reload_tokens(directory)
        gateway.do(control.close())
        page = get(gateway, "/spaces/lab/journal", "alices-own")
        alice.close()
    uid = os.getuid()
    entries = administered(directory)
    for entry in entries:
        peer = entry.pop("peer", None)
        assert (peer is None) == (entry["action"].startswith("token_"))
        assert peer is None or peer.startswith("127.0.0.1")
    by_owner = {"actor": "system:gateway", "uid": uid}
    screen = {**by_owner, "participant": "screen", "observer": True}
    counted = {"actor": "system:gateway", "action": "connection_refused"}
    refusal = {**counted, "transport": "websocket", "count": 1}
    changed = [entry for entry in entries if entry["action"].startswith("token_")]
    assert sorted(changed, key=lambda entry: entry["action"]) == [
        {**screen, "action": "token_created"},
        {**screen, "action": "token_revoked"},
        {**by_owner, "action": "token_rotated", "participant": "bob"},
    ]
    assert [entry for entry in entries if entry not in changed] == [
        {"actor": "alice", "action": "connection_joined", "transport": "websocket"},
        {**refusal, "error": "unauthorized", "participant": "alice"},
        {**refusal, "error": "space_not_found"},
        {**counted, "error": "unauthorized", "count": 2},
        {**counted, "error": "space_not_found", "count": 1},
    ]
    assert b"127.0.0.1" not in page
    assert b'"event":"admin"' in page
    everything = b"".join(record.payload for record in records_in(directory))
    assert not [secret for secret in secrets if secret.encode() in everything]


async def nothing(_participant: str) -> None:
    pass


def test_a_changed_configuration_is_recorded_at_the_next_start(directory: Path) -> None:
    with gateway_of(directory):
        pass
    changed = SPACE.replace("bob: {}", "bob: {capabilities: [{kind: chat}]}").replace("port: 0", "strict_from: true")
    (directory / "space.yaml").write_text(changed, encoding="utf-8")
    for _ in range(2):
        with gateway_of(directory):
            pass
    assert administered(directory) == [
        {
            "actor": "system:gateway",
            "action": "configuration_changed",
            "changes": [
                {"key": "participants.bob", "before": None, "after": [{"kind": "chat"}]},
                {"key": "strict_from", "before": False, "after": True},
            ],
        }
    ]


def test_refused_origins_and_host_names_are_recorded(directory: Path) -> None:
    with gateway_of(directory) as gateway:
        for headers in ({"Host": "evil.example"}, {"Host": "localhost", "Origin": "http://evil.example"}):
            for request in (head("/health", headers), upgrade("/", **headers)):
                client = Raw(gateway.port)
                client.send(request)
                assert client.answer().status == 403
                client.close()
    entries = administered(directory)
    assert [(entry["error"], entry["count"]) for entry in entries] == [("unauthorized", 1), ("unauthorized", 3)]
    assert {entry["peer"].partition(":")[0] for entry in entries} == {"127.0.0.1"}
    assert entries[0]["transport"] == "http"


def run_once(directory: Path) -> list[dict[str, Any]]:
    """Start and stop a gateway with its supervisor; return the administrative events that it recorded."""
    before = len(administered(directory)) if (directory / ".mew" / "journal").exists() else 0
    config = load_config([directory / "space.yaml"], environ={}).listening_on(port=0)
    tokens = TokenStore(config.spaces, environ={})
    gateway = Gateway(config, tokens)
    server = GatewayServer(gateway)
    server.bind()
    asyncio.run(served(server, GatewaySupervisor(gateway, tokens, environ={}, auto_start=False)))
    return administered(directory)[before:]


async def served(server: GatewayServer, supervisor: GatewaySupervisor) -> None:
    await server.start()
    async with supervisor:
        pass
    await server.stop()


def by_gateway(action: str, participant: str, **more: Any) -> dict[str, Any]:
    return {"actor": "system:gateway", "action": action, "participant": participant, **more}


def test_changes_of_tokens_while_no_gateway_ran_are_recorded_at_the_next_start(directory: Path) -> None:
    folder = TokenFolder(directory)
    folder.obtain("screen", observer=True)
    assert run_once(directory) == [
        by_gateway("token_created", "bob"),
        by_gateway("token_created", "screen", observer=True),
    ]
    assert run_once(directory) == []
    folder.replace("bob")
    folder.remove("screen", observer=True)
    folder.obtain("wall", observer=True)
    (directory / "space.yaml").write_text(SPACE.replace("alices-own", "alices-second"), encoding="utf-8")
    assert run_once(directory) == [
        by_gateway("token_rotated", "alice"),
        by_gateway("token_rotated", "bob"),
        by_gateway("token_created", "wall", observer=True),
        by_gateway("token_revoked", "screen", observer=True),
    ]
    assert run_once(directory) == []
    assert stat.S_IMODE(folder.state_file.stat().st_mode) == 0o600
    stored = folder.state_file.read_text(encoding="utf-8")
    assert not [secret for secret in ("alices-second", folder.stored_token("bob") or "bob") if secret in stored]


def test_without_a_valid_state_file_no_changes_are_recorded(directory: Path) -> None:
    run_once(directory)
    for damage in ("", "{", '{"participants": 1}'):
        TokenFolder(directory).state_file.write_text(damage, encoding="utf-8")
        TokenFolder(directory).replace("bob")
        assert run_once(directory) == []
    TokenFolder(directory).state_file.unlink()
    assert run_once(directory) == []


PROGRAMS = """\
  files: {type: mcp-bridge, auto_start: true, mcp_server: {command: npx, args: [-y, server-filesystem, ./workspace]}}
  cat: {command: python, args: [cat.py]}
"""
KEY = "a-key-of-another-person"


def written(directory: Path, programs: str) -> None:
    (directory / "space.yaml").write_text(SPACE.replace("gateway:", f"{programs}gateway:"), encoding="utf-8")


def changed_programs(directory: Path, programs: str) -> dict[str, tuple[Any, Any]]:
    """The changes that a start with these programs records, by key: before and after."""
    written(directory, programs)
    *_, changed = [entry for entry in run_once(directory) if entry["action"] == "configuration_changed"]
    assert run_once(directory) == []
    assert not any(name in msgspec.json.encode(changed).decode() for name in ("alices-own", "bobs-own", KEY))
    assert KEY not in TokenFolder(directory).state_file.read_text(encoding="utf-8")
    return {change["key"]: (change["before"], change["after"]) for change in changed["changes"]}


def test_changed_programs_of_participants_are_recorded(directory: Path) -> None:
    written(directory, PROGRAMS)
    run_once(directory)
    changed = PROGRAMS.replace("./workspace]", "/srv], cwd: ..").replace(
        "{command: python", "{auto_start: true, command: sh"
    )
    assert changed_programs(directory, changed) == {
        "participants.files.mcp_server.args": (
            ["-y", "server-filesystem", "./workspace"],
            ["-y", "server-filesystem", "/srv"],
        ),
        "participants.files.mcp_server.cwd": (None, ".."),
        "participants.cat.auto_start": (False, True),
        "participants.cat.command": ("python", "sh"),
    }
    cat = {"type": "local", "auto_start": True, "command": "sh", "args": ["cat.py"]}
    assert changed_programs(directory, changed.partition("  cat")[0])["participants.cat"] == (cat, None)


@pytest.mark.parametrize(
    "secret",
    [
        f"args: [cat.py], env: {{KEY: {KEY}}}",
        f"args: [cat.py, {KEY}], env: {{OF: {KEY}}}",
        "args: [cat.py, '${TOKEN}']",
        f"args: [--password, {KEY}]",
        f"args: ['https://me:{KEY}@example.org']",
        "args: [--as, alices-own]",
        "args: [--as, bobs-own]",
        "args: [4nd7cKq_0jvR-pW2xT9aZs]",
    ],
)
def test_arguments_that_may_contain_a_secret_are_recorded_as_a_digest(directory: Path, secret: str) -> None:
    written(directory, PROGRAMS)
    TokenFolder(directory).obtain("bob")
    TokenFolder(directory).file("bob").write_text("bobs-own", encoding="utf-8")
    run_once(directory)
    changes = changed_programs(directory, PROGRAMS.replace("args: [cat.py]", secret))
    before, after = changes.pop("participants.cat.args")
    assert before == ["cat.py"]
    assert after.startswith("sha256:")
    assert changes in ({}, {"participants.cat.env": (None, ["KEY"])}, {"participants.cat.env": (None, ["OF"])})
    again = changed_programs(directory, PROGRAMS.replace("args: [cat.py]", secret.replace("args: [", "args: [-x, ")))
    assert again["participants.cat.args"][0] == after != again["participants.cat.args"][1]


def test_programs_that_an_earlier_version_did_not_store_are_not_a_change(directory: Path) -> None:
    written(directory, PROGRAMS)
    run_once(directory)
    state_file = TokenFolder(directory).state_file
    state = msgspec.json.decode(state_file.read_bytes())
    assert state.pop("programs").keys() == {"files", "cat"}
    state_file.write_bytes(msgspec.json.encode(state))
    assert run_once(directory) == []
    assert "programs" in msgspec.json.decode(state_file.read_bytes())


def test_changed_access_settings_of_the_gateway_are_recorded(directory: Path) -> None:
    run_once(directory)
    gateway = 'gateway: {port: 0, allowed_origins: ["*"], allowed_hosts: [lab.example], limits: {join_bytes: 40000}}'
    journal = "journal: {retention: 30d}"
    text = SPACE.replace("gateway: {port: 0}", f"{gateway}\n{journal}")
    (directory / "space.yaml").write_text(text, encoding="utf-8")
    (entry,) = run_once(directory)
    assert entry == {
        "actor": "system:gateway",
        "action": "configuration_changed",
        "changes": [
            {"key": "gateway.allowed_hosts", "before": [], "after": ["lab.example"]},
            {"key": "gateway.allowed_origins", "before": [], "after": ["*"]},
            {"key": "gateway.limits.join_bytes", "before": 32_768, "after": 40_000},
            {"key": "journal.retention_seconds", "before": None, "after": 2_592_000.0},
        ],
    }
    assert run_once(directory) == []
