"""The control socket: its owner makes a running gateway reload its tokens."""

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mew._internal.unix_sockets import SHORT, connect_to_socket, control_socket
from mew.cli.common.errors import exit_code_of
from mew.config.tokens import TokenFolder, TokenStore
from mew.errors import MewError
from mew.supervisor.control_socket import REQUEST_BYTES, ControlServer, ControlUnavailable, ask_gateway, reload_tokens
from tests.gateway.raw import Raw, Running, running_from, upgrade

SPACE = """\
space: {id: lab}
participants:
  alice: {capabilities: [{kind: "*"}]}
  bob: {tokens: [bobs-own]}
"""


class Lab:
    """A gateway with an open control socket, and the participants that its supervisor would have to renew."""

    def __init__(self, gateway: Running, directory: Path) -> None:
        self.gateway, self.directory = gateway, directory
        self.folder = TokenFolder(directory)
        self.renewed: list[str] = []
        assert isinstance(gateway.tokens, TokenStore)
        self.server = ControlServer(gateway.gateway, gateway.tokens, gateway.config.spaces[0], self._renew)

    async def _renew(self, participant: str) -> None:
        self.renewed.append(participant)

    def connected(self, token: str) -> Raw:
        client = Raw(self.gateway.port)
        client.send(upgrade(Authorization=f"Bearer {token}"))
        assert client.answer().status == 101
        client.envelope("system/welcome")
        return client

    def close_code(self, token: str) -> int | None:
        client = Raw(self.gateway.port)
        client.send(upgrade(Authorization=f"Bearer {token}"))
        assert client.answer().status == 101
        return client.closed()


@contextmanager
def opened(directory: Path) -> Iterator[Lab]:
    (directory / "space.yaml").write_text(SPACE, encoding="utf-8")
    with running_from(directory / "space.yaml") as gateway:
        lab = Lab(gateway, directory)
        gateway.do(lab.server.open())
        try:
            yield lab
        finally:
            gateway.do(lab.server.close())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with opened(tmp_path) as lab:
        yield lab


def test_only_the_owner_can_open_the_socket(lab: Lab) -> None:
    mode = control_socket(lab.directory).lstat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_revoked_token_closes_its_connection_with_4401_within_a_second(lab: Lab) -> None:
    token = lab.gateway.token("alice")
    alice, bob = lab.connected(token), lab.connected("bobs-own")
    lab.folder.remove("alice")
    began = time.monotonic()
    answer = reload_tokens(lab.directory)
    assert alice.closed() == 4401
    assert time.monotonic() - began < 1
    assert (answer["lost"], answer["closed"], lab.renewed) == (["alice"], 1, ["alice"])
    assert bob.envelope("system/presence")["payload"]["event"] == "leave"
    assert lab.close_code(token) == 4401
    bob.close()


def test_a_rotated_token_is_accepted_and_the_old_one_is_not(lab: Lab) -> None:
    old = lab.gateway.token("alice")
    alice = lab.connected(old)
    new = lab.folder.replace("alice")
    reload_tokens(lab.directory)
    assert alice.closed() == 4401
    lab.connected(new).close()
    assert lab.close_code(old) == 4401


def test_a_connection_with_another_token_of_the_participant_stays_open(lab: Lab) -> None:
    token = lab.folder.obtain("bob")
    reload_tokens(lab.directory)
    bob = lab.connected("bobs-own")
    lab.folder.remove("bob")
    assert reload_tokens(lab.directory)["closed"] == 0
    bob.close()
    assert lab.close_code(token) == 4401


def test_tokens_of_observers_are_reloaded_too(lab: Lab) -> None:
    token = lab.folder.obtain("screen", observer=True)
    reload_tokens(lab.directory)
    lookers = [lab.connected(token), lab.connected(token)]
    lab.folder.remove("screen", observer=True)
    assert reload_tokens(lab.directory)["closed"] == 2
    assert [looker.closed() for looker in lookers] == [4401, 4401]
    assert lab.renewed == []


def test_tokens_are_listed_by_source_without_their_text(lab: Lab) -> None:
    lab.folder.obtain("screen", observer=True)
    reload_tokens(lab.directory)
    holders = ask_gateway(lab.directory, {"do": "tokens"})["tokens"]
    tokens = lab.directory / ".mew" / "tokens"
    assert holders == [
        {"participant": "alice", "observer": False, "sources": [f"{tokens}/alice.token"]},
        {"participant": "bob", "observer": False, "sources": [f"{lab.directory}/space.yaml: participants.bob.tokens"]},
        {"participant": "screen", "observer": True, "sources": [f"{tokens}/screen.observer"]},
    ]
    assert lab.gateway.token("alice") not in str(holders)
    assert "bobs-own" not in str(holders)


def test_present_participants_are_listed(lab: Lab) -> None:
    alice = lab.connected(lab.gateway.token("alice"))
    assert ask_gateway(lab.directory, {"do": "present"})["present"] == ["alice"]
    alice.close()


def test_unreadable_tokens_change_nothing_and_are_reported(lab: Lab) -> None:
    token = lab.gateway.token("alice")
    lab.folder.file("bob").write_text(token, encoding="utf-8")
    with pytest.raises(MewError, match=r"bob\.token"):
        reload_tokens(lab.directory)
    lab.connected(token).close()


@pytest.mark.parametrize("line", [b"", b"\n", b"nonsense\n", b"[]\n", b'{"do":"dance"}\n', b"x" * (REQUEST_BYTES + 10)])
def test_invalid_requests_are_rejected(lab: Lab, line: bytes) -> None:
    with connect_to_socket(control_socket(lab.directory), 10) as peer:
        try:
            peer.sendall(line)
            peer.shutdown(socket.SHUT_WR)
            answer = peer.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        assert answer == b"" or answer.startswith(b'{"ok":false,"problem":')
    assert ask_gateway(lab.directory, {"do": "present"})["present"] == []


def test_the_socket_works_with_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * SHORT) / ("e" * SHORT)
    deep.mkdir(parents=True)
    with opened(deep) as lab:
        assert len(os.fsencode(control_socket(deep))) > SHORT
        assert ask_gateway(deep, {"do": "present"})["present"] == []
        assert stat.S_IMODE(control_socket(deep).lstat().st_mode) == 0o600
        assert lab.directory == deep


def test_a_socket_of_a_dead_gateway_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.path.relpath(control_socket(tmp_path)))
    with pytest.raises(ControlUnavailable):
        ask_gateway(tmp_path, {"do": "present"})
    with opened(tmp_path):
        assert ask_gateway(tmp_path, {"do": "present"})["ok"] is True


def test_a_file_with_the_name_of_the_socket_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    control_socket(tmp_path).write_text("mine", encoding="utf-8")
    with pytest.raises(OSError, match="in use"), opened(tmp_path):
        pass
    assert control_socket(tmp_path).read_text(encoding="utf-8") == "mine"


def test_a_closed_socket_is_removed(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    assert not os.path.lexists(control_socket(tmp_path))
    with pytest.raises(ControlUnavailable) as caught:
        ask_gateway(tmp_path, {"do": "reload"})
    assert exit_code_of(caught.value) == 3
    assert "No such file" in str(caught.value)
