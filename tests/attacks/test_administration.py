"""Who came from where, who was refused, and what was done to tokens: on record, and shown to no participant."""

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


def asked(gateway: Running, path: str, token: str) -> bytes:
    client = Raw(gateway.port)
    headers = {"Host": "localhost", "Authorization": f"Bearer {token}", "Connection": "close"}
    client.send(head(path, headers))
    return client.rest()


def administered(directory: Path) -> list[dict[str, Any]]:
    records = [each for each in records_in(directory) if each.event == "admin"]
    return [{"actor": each.participant, **msgspec.json.decode(each.payload)} for each in records]


def test_everything_of_the_administration_is_on_record_and_nobody_is_shown_it(directory: Path) -> None:
    secrets = ["alices-own", "a-guess-of-mine", "another-guess"]
    with gateway_of(directory) as gateway:
        alice = joined(gateway, "alices-own")
        for guess in ("a-guess-of-mine", "another-guess"):
            refused(gateway, msgspec.json.encode({"type": "join", "token": guess, "participantId": "alice"}))
            refused(gateway, msgspec.json.encode({"type": "join", "space": guess, "participantId": guess}))
        asked(gateway, "/participants", "a-guess-of-mine")
        door = ControlServer(gateway.gateway, gateway.tokens, gateway.config.spaces[0], nothing)
        gateway.do(door.open())
        folder = TokenFolder(directory)
        secrets += [folder.stored_token("bob") or "", folder.replace("bob"), folder.obtain("screen", observer=True)]
        reload_tokens(directory)
        folder.remove("screen", observer=True)
        reload_tokens(directory)
        gateway.do(door.close())
        seen = asked(gateway, "/spaces/lab/journal", "alices-own")
        alice.close()
    uid = os.getuid()
    found = administered(directory)
    for each in found:
        peer = each.pop("peer", None)
        assert (peer is None) == (each["action"].startswith("token_"))
        assert peer is None or peer.startswith("127.0.0.1")
    by_owner = {"actor": "system:gateway", "uid": uid}
    screen = {**by_owner, "participant": "screen", "observer": True}
    counted = {"actor": "system:gateway", "action": "connection_refused"}
    refusal = {**counted, "transport": "websocket", "count": 1}
    changed = [each for each in found if each["action"].startswith("token_")]
    assert sorted(changed, key=lambda each: each["action"]) == [
        {**screen, "action": "token_created"},
        {**screen, "action": "token_revoked"},
        {**by_owner, "action": "token_rotated", "participant": "bob"},
    ]
    assert [each for each in found if each not in changed] == [
        {"actor": "alice", "action": "connection_joined", "transport": "websocket"},
        {**refusal, "error": "unauthorized", "participant": "alice"},
        {**refusal, "error": "space_not_found"},
        {**counted, "error": "unauthorized", "count": 2},
        {**counted, "error": "space_not_found", "count": 1},
    ]
    assert b"127.0.0.1" not in seen
    assert b'"event":"admin"' in seen
    everything = b"".join(each.payload for each in records_in(directory))
    assert not [each for each in secrets if each.encode() in everything]


async def nothing(_participant: str) -> None:
    pass


def test_a_changed_configuration_is_on_record_at_the_next_start(directory: Path) -> None:
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


def test_pages_and_names_that_are_not_served_are_on_record(directory: Path) -> None:
    with gateway_of(directory) as gateway:
        for headers in ({"Host": "evil.example"}, {"Host": "localhost", "Origin": "http://evil.example"}):
            for request in (head("/health", headers), upgrade("/", **headers)):
                client = Raw(gateway.port)
                client.send(request)
                assert client.answer().status == 403
                client.close()
    found = administered(directory)
    assert [(each["error"], each["count"]) for each in found] == [("unauthorized", 1), ("unauthorized", 3)]
    assert {each["peer"].partition(":")[0] for each in found} == {"127.0.0.1"}
    assert found[0]["transport"] == "http"


def run_once(directory: Path) -> list[dict[str, Any]]:
    """Start and stop a gateway with all that surrounds it; what that run recorded of the administration."""
    before = len(administered(directory)) if (directory / ".mew" / "journal").exists() else 0
    config = load_config([directory / "space.yaml"], environ={}).listening_on(port=0)
    tokens = TokenStore(config.spaces, environ={})
    gateway = Gateway(config, tokens)
    server = GatewayServer(gateway)
    server.bind()
    asyncio.run(served(server, GatewaySupervisor(gateway, tokens, environ={}, auto_start=False)))
    return administered(directory)[before:]


async def served(server: GatewayServer, household: GatewaySupervisor) -> None:
    await server.start()
    async with household:
        pass
    await server.stop()


def by_gateway(action: str, participant: str, **more: Any) -> dict[str, Any]:
    return {"actor": "system:gateway", "action": action, "participant": participant, **more}


def test_what_was_done_to_tokens_while_no_gateway_ran_is_on_record_at_the_next_start(directory: Path) -> None:
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
    kept = folder.state_file.read_text(encoding="utf-8")
    assert not [each for each in ("alices-second", folder.stored_token("bob") or "bob") if each in kept]


def test_a_space_that_ran_before_such_changes_were_kept_begins_with_none(directory: Path) -> None:
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
KEY = "a-key-of-somebody-else"


def written(directory: Path, programs: str) -> None:
    (directory / "space.yaml").write_text(SPACE.replace("gateway:", f"{programs}gateway:"), encoding="utf-8")


def changed_programs(directory: Path, programs: str) -> dict[str, tuple[Any, Any]]:
    """What a start with these records of them, by key: before and after."""
    written(directory, programs)
    *_, told = [each for each in run_once(directory) if each["action"] == "configuration_changed"]
    assert run_once(directory) == []
    assert not any(name in msgspec.json.encode(told).decode() for name in ("alices-own", "bobs-own", KEY))
    assert KEY not in TokenFolder(directory).state_file.read_text(encoding="utf-8")
    return {each["key"]: (each["before"], each["after"]) for each in told["changes"]}


def test_what_the_gateway_runs_as_its_user_is_on_record_when_it_has_changed(directory: Path) -> None:
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
def test_arguments_that_may_hold_a_secret_are_on_record_by_their_digest(directory: Path, secret: str) -> None:
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


def test_programs_that_an_earlier_version_did_not_keep_are_no_change(directory: Path) -> None:
    written(directory, PROGRAMS)
    run_once(directory)
    known = TokenFolder(directory).state_file
    kept = msgspec.json.decode(known.read_bytes())
    assert kept.pop("programs").keys() == {"files", "cat"}
    known.write_bytes(msgspec.json.encode(kept))
    assert run_once(directory) == []
    assert "programs" in msgspec.json.decode(known.read_bytes())


def test_what_strangers_meet_first_is_on_record_when_it_has_changed(directory: Path) -> None:
    run_once(directory)
    gateway = 'gateway: {port: 0, allowed_origins: ["*"], allowed_hosts: [lab.example], limits: {join_bytes: 40000}}'
    journal = "journal: {retention: 30d}"
    text = SPACE.replace("gateway: {port: 0}", f"{gateway}\n{journal}")
    (directory / "space.yaml").write_text(text, encoding="utf-8")
    (told,) = run_once(directory)
    assert told == {
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
