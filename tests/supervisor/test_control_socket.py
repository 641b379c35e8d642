"""The admin door: tokens read again by a gateway that runs, and by its owner's word alone."""

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
    """A gateway with an open door, and what its supervisor would have been told."""

    def __init__(self, gateway: Running, directory: Path) -> None:
        self.gateway, self.directory = gateway, directory
        self.folder = TokenFolder(directory)
        self.renewed: list[str] = []
        assert isinstance(gateway.tokens, TokenStore)
        self.door = ControlServer(gateway.gateway, gateway.tokens, gateway.config.spaces[0], self._renew)

    async def _renew(self, participant: str) -> None:
        self.renewed.append(participant)

    def came_in(self, token: str) -> Raw:
        client = Raw(self.gateway.port)
        client.send(upgrade(Authorization=f"Bearer {token}"))
        assert client.answer().status == 101
        client.envelope("system/welcome")
        return client

    def turned_away(self, token: str) -> int | None:
        client = Raw(self.gateway.port)
        client.send(upgrade(Authorization=f"Bearer {token}"))
        assert client.answer().status == 101
        return client.closed()


@contextmanager
def opened(directory: Path) -> Iterator[Lab]:
    (directory / "space.yaml").write_text(SPACE, encoding="utf-8")
    with running_from(directory / "space.yaml") as gateway:
        lab = Lab(gateway, directory)
        gateway.do(lab.door.open())
        try:
            yield lab
        finally:
            gateway.do(lab.door.close())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with opened(tmp_path) as lab:
        yield lab


def test_the_door_is_its_owners_alone(lab: Lab) -> None:
    mode = control_socket(lab.directory).lstat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_who_holds_a_revoked_token_is_out_with_4401_within_a_second_and_stays_out(lab: Lab) -> None:
    token = lab.gateway.token("alice")
    alice, bob = lab.came_in(token), lab.came_in("bobs-own")
    lab.folder.remove("alice")
    began = time.monotonic()
    answer = reload_tokens(lab.directory)
    assert alice.closed() == 4401
    assert time.monotonic() - began < 1
    assert (answer["lost"], answer["closed"], lab.renewed) == (["alice"], 1, ["alice"])
    assert bob.envelope("system/presence")["payload"]["event"] == "leave"
    assert lab.turned_away(token) == 4401
    bob.close()


def test_a_rotated_token_lets_in_and_the_old_one_does_not(lab: Lab) -> None:
    old = lab.gateway.token("alice")
    alice = lab.came_in(old)
    new = lab.folder.replace("alice")
    reload_tokens(lab.directory)
    assert alice.closed() == 4401
    lab.came_in(new).close()
    assert lab.turned_away(old) == 4401


def test_who_came_in_with_another_of_its_tokens_stays(lab: Lab) -> None:
    token = lab.folder.obtain("bob")
    reload_tokens(lab.directory)
    bob = lab.came_in("bobs-own")
    lab.folder.remove("bob")
    assert reload_tokens(lab.directory)["closed"] == 0
    bob.close()
    assert lab.turned_away(token) == 4401


def test_an_observer_comes_in_and_goes_likewise(lab: Lab) -> None:
    token = lab.folder.obtain("screen", observer=True)
    reload_tokens(lab.directory)
    lookers = [lab.came_in(token), lab.came_in(token)]
    lab.folder.remove("screen", observer=True)
    assert reload_tokens(lab.directory)["closed"] == 2
    assert [looker.closed() for looker in lookers] == [4401, 4401]
    assert lab.renewed == []


def test_whose_tokens_there_are_is_told_by_source_and_never_by_text(lab: Lab) -> None:
    lab.folder.obtain("screen", observer=True)
    reload_tokens(lab.directory)
    told = ask_gateway(lab.directory, {"do": "tokens"})["tokens"]
    tokens = lab.directory / ".mew" / "tokens"
    assert told == [
        {"participant": "alice", "observer": False, "sources": [f"{tokens}/alice.token"]},
        {"participant": "bob", "observer": False, "sources": [f"{lab.directory}/space.yaml: participants.bob.tokens"]},
        {"participant": "screen", "observer": True, "sources": [f"{tokens}/screen.observer"]},
    ]
    assert lab.gateway.token("alice") not in str(told)
    assert "bobs-own" not in str(told)


def test_who_is_present_is_told(lab: Lab) -> None:
    alice = lab.came_in(lab.gateway.token("alice"))
    assert ask_gateway(lab.directory, {"do": "present"})["present"] == ["alice"]
    alice.close()


def test_tokens_that_cannot_be_read_change_nothing_and_are_told_of(lab: Lab) -> None:
    token = lab.gateway.token("alice")
    lab.folder.file("bob").write_text(token, encoding="utf-8")
    with pytest.raises(MewError, match="one token for two"):
        reload_tokens(lab.directory)
    lab.came_in(token).close()


@pytest.mark.parametrize("line", [b"", b"\n", b"nonsense\n", b"[]\n", b'{"do":"dance"}\n', b"x" * (REQUEST_BYTES + 10)])
def test_whatever_else_is_said_at_the_door_harms_nothing(lab: Lab, line: bytes) -> None:
    with connect_to_socket(control_socket(lab.directory), 10) as peer:
        try:
            peer.sendall(line)
            peer.shutdown(socket.SHUT_WR)
            answer = peer.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        assert answer == b"" or answer.startswith(b'{"ok":false,"problem":')
    assert ask_gateway(lab.directory, {"do": "present"})["present"] == []


def test_it_can_be_reached_however_deep_the_space_lies(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * SHORT) / ("e" * SHORT)
    deep.mkdir(parents=True)
    with opened(deep) as lab:
        assert len(os.fsencode(control_socket(deep))) > SHORT
        assert ask_gateway(deep, {"do": "present"})["present"] == []
        assert stat.S_IMODE(control_socket(deep).lstat().st_mode) == 0o600
        assert lab.directory == deep


def test_what_a_dead_gateway_left_at_the_door_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.path.relpath(control_socket(tmp_path)))
    with pytest.raises(ControlUnavailable, match="Connection refused"):
        ask_gateway(tmp_path, {"do": "present"})
    with opened(tmp_path):
        assert ask_gateway(tmp_path, {"do": "present"})["ok"] is True


def test_a_file_in_the_doors_place_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    control_socket(tmp_path).write_text("mine", encoding="utf-8")
    with pytest.raises(OSError, match="in use"), opened(tmp_path):
        pass
    assert control_socket(tmp_path).read_text(encoding="utf-8") == "mine"


def test_when_it_is_closed_nothing_is_left_of_it(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    assert not os.path.lexists(control_socket(tmp_path))
    with pytest.raises(ControlUnavailable) as caught:
        ask_gateway(tmp_path, {"do": "reload"})
    assert exit_code_of(caught.value) == 3
    assert "No such file" in str(caught.value)
