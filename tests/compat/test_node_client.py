"""A client based on `ws` of npm: it joins, and uses chats, streams and grants."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.raw import Running, running
from tests.support.host_requirements import requires

HERE = Path(__file__).parent / "node"
INSTALL_SECONDS = 60
PARTICIPANTS: dict[str, list[dict[str, Any]]] = {
    "alice": [{"kind": "*"}],
    "bob": [{"kind": "chat"}, {"kind": "capability/grant-ack"}],
    "carol": [{"kind": "chat"}],
}


class Node:
    """A Node client, as a process."""

    def __init__(self, gateway: Running, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            ["node", str(HERE / "client.js"), f"ws://127.0.0.1:{gateway.port}/any/path", "lab", name],
            env={**os.environ, "MEW_TOKEN": gateway.token(name)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.passed: list[dict[str, Any]] = []
        """Messages that were skipped while waiting for another one."""
        self.welcome = self.take("system/welcome")
        assert self.passed == []

    def send(self, kind: str, payload: dict[str, Any], **fields: Any) -> None:
        self.write(json.dumps({"protocol": "mew/v0.4", "kind": kind, "payload": payload, **fields}))

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def take(self, kind: str) -> dict[str, Any]:
        """The next envelope of this kind; earlier messages are skipped."""
        while (message := self.next()).get("kind") != kind:
            self.passed.append(message)
        return message

    def frame(self) -> tuple[str, bool]:
        """The next frame, and whether it was binary."""
        while "frame" not in (message := self.next()):
            self.passed.append(message)
        return message["frame"], message["binary"]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def packages() -> None:
    """Install the packages of the client from the lock file, without their scripts."""
    requires(shutil.which("node") and shutil.which("npm"), "Node.js and npm are not installed")
    ready, lock = HERE / "node_modules" / ".ready", HERE / "package-lock.json"
    if not ready.exists() or ready.read_bytes() != lock.read_bytes():
        command = ["npm", "ci", "--ignore-scripts"]
        completed = subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
        )
        requires(completed.returncode == 0, f"npm ci failed: {completed.stderr.strip().splitlines()[-1:]}")
        shutil.copy(lock, ready)


@pytest.fixture
def joining(packages: None, tmp_path: Path) -> Iterator[Callable[[str], Node]]:
    """A function that returns a client with this name that has joined."""
    with ExitStack() as stack:
        gateway = stack.enter_context(running(tmp_path, {"participants": PARTICIPANTS}))

        def join(name: str) -> Node:
            client = Node(gateway, name)
            stack.callback(client.end)
            return client

        yield join


@pytest.mark.timeout(INSTALL_SECONDS + 60)
def test_a_node_client_joins_and_chats(joining: Callable[[str], Node]) -> None:
    alice = joining("alice")
    assert alice.welcome["payload"]["you"]["id"] == "alice"
    bob = joining("bob")
    assert [participant["id"] for participant in bob.welcome["payload"]["participants"]] == ["alice"]
    arrived = alice.take("system/presence")["payload"]
    assert (arrived["event"], arrived["participant"]["id"]) == ("join", "bob")
    assert {"kind": "mcp/response"} in arrived["participant"]["capabilities"]
    bob.send("chat", {"text": "hello"}, id="msg-1", to=["alice"])
    for client in (alice, bob):
        chat = client.take("chat")
        assert (chat["id"], chat["from"], chat["payload"]) == ("msg-1", "bob", {"text": "hello"})
    bob.send("stream/request", {"direction": "upload"})
    refused = bob.take("system/error")["payload"]
    assert (refused["error"], refused["attempted_kind"]) == ("capability_violation", "stream/request")


def test_a_node_client_opens_and_shares_streams(joining: Callable[[str], Node]) -> None:
    alice, bob = joining("alice"), joining("bob")
    alice.send("stream/request", {"direction": "upload", "description": "the cat", "hz": 60}, id="req-1")
    opened = bob.take("stream/open")
    assert [message["kind"] for message in bob.passed if message["from"] == "alice"] == ["stream/request"]
    assert opened["correlation_id"][0] == "req-1"
    stream = opened["payload"]["stream_id"]
    alice.take("stream/open")
    alice.write(f"#{stream}#x=1")
    alice.write(f"binary #{stream}#x=2")
    for client in (alice, bob):
        assert [client.frame(), client.frame()] == [(f"#{stream}#x=1", False), (f"#{stream}#x=2", True)]
    (entry,) = joining("carol").welcome["payload"]["active_streams"]
    fields = {name: entry[name] for name in ("stream_id", "owner", "direction", "description", "hz")}
    assert fields == {"stream_id": stream, "owner": "alice", "direction": "upload", "description": "the cat", "hz": 60}
    assert entry["created"]
    bob.write(f"#{stream}#mine")
    assert bob.take("system/error")["payload"]["error"] == "unauthorized_stream_write"
    alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
    assert bob.take("stream/write-granted")["payload"]["authorized_writers"] == ["alice", "bob"]
    bob.write(f"#{stream}#mine now")
    assert alice.frame() == (f"#{stream}#mine now", False)
    alice.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": "bob"})
    assert bob.take("stream/ownership-transferred")["payload"]["new_owner"] == "bob"
    bob.send("stream/close", {"stream_id": stream})
    assert alice.take("stream/close")["payload"]["stream_id"] == stream


def test_frames_of_a_targeted_stream_reach_only_its_target(joining: Callable[[str], Node]) -> None:
    alice, bob, carol = joining("alice"), joining("bob"), joining("carol")
    alice.send("stream/request", {"target": ["carol"]})
    stream = alice.take("stream/open")["payload"]["stream_id"]
    alice.write(f"#{stream}#for carol")
    assert carol.frame() == (f"#{stream}#for carol", False)
    alice.send("chat", {"text": "done"})
    for client in (alice, bob):
        client.take("chat")
        assert [message for message in client.passed if "frame" in message] == []
    assert [message["kind"] for message in bob.passed if message["from"] == "alice"] == ["stream/request"]


def test_a_node_client_grants_and_revokes_and_the_recipient_acknowledges(joining: Callable[[str], Node]) -> None:
    alice, bob = joining("alice"), joining("bob")
    capability = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
    grant = {"recipient": "bob", "capabilities": [capability], "reason": "trusted"}
    alice.send("capability/grant", grant, id="grant-1", to=["bob"])
    relayed = bob.take("capability/grant")
    assert (relayed["id"], relayed["from"], relayed["payload"]) == ("grant-1", "alice", grant)
    assert capability in bob.take("system/welcome")["payload"]["you"]["capabilities"]
    bob.send("mcp/request", {"method": "tools/call", "params": {"name": "x"}}, to=["alice"])
    assert alice.take("mcp/request")["from"] == "bob"
    bob.send("capability/grant-ack", {"status": "accepted"}, correlation_id=["grant-1"])
    acknowledged = alice.take("capability/grant-ack")
    assert (acknowledged["from"], acknowledged["correlation_id"]) == ("bob", ["grant-1"])
    assert "capability/grant-ack" not in [message.get("kind") for message in alice.passed]
    alice.send("capability/revoke", {"recipient": "bob", "grant_id": "grant-1"})
    assert capability not in bob.take("system/welcome")["payload"]["you"]["capabilities"]
    bob.send("mcp/request", {"method": "tools/call"}, to=["alice"])
    assert bob.take("system/error")["payload"]["error"] == "capability_violation"


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (HERE / "package-lock.json").read_text(encoding="utf-8")
