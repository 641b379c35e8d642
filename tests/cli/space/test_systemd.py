"""A gateway that systemd started reports when it is ready; without a listener, it continues."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mew.cli.space.gateway import notify_systemd

SPACE = "space: {id: lab}\ngateway: {port: 0}\nparticipants: {alice: {}}\n"
PATIENCE = 20


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE)
        yield listening


def test_each_state_is_a_line(manager: socket.socket) -> None:
    assert notify_systemd("READY=1", "STATUS=at work", environ={"NOTIFY_SOCKET": manager.getsockname()})
    assert manager.recv(4096) == b"READY=1\nSTATUS=at work"


def test_an_abstract_socket_name_begins_with_an_at_sign() -> None:
    name = f"mew-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(PATIENCE)
        assert notify_systemd("READY=1", environ={"NOTIFY_SOCKET": f"@{name}"})
        assert listening.recv(4096) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_without_a_listener_nothing_is_sent_and_nothing_fails(environ: dict[str, str]) -> None:
    assert not notify_systemd("READY=1", environ=environ)


def test_a_gateway_is_ready_when_it_listens(tmp_path: Path, manager: socket.socket) -> None:
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    command = [sys.executable, "-m", "mew", "gateway", "start"]
    environ = {**os.environ, "NOTIFY_SOCKET": manager.getsockname()}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True) as gateway:
        try:
            ready, status = manager.recv(4096).decode().split("\n")
            assert gateway.stdout is not None
            assert (ready, status) == ("READY=1", f"STATUS={gateway.stdout.readline().strip()}")
            port = int(status.split(" for ")[0].rpartition(":")[2])
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(PATIENCE) == 0
        finally:
            gateway.kill()
