"""Many connections, and some that never read: they wait or end, and members and the journal are not affected."""

import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from mew.config.models import Timeouts, UnadmittedLimits
from mew.gateway.connections import Connections, OpenConnection, TrustedProxies, counted_as, descriptors_left
from mew.gateway.gateway import USUAL_OPTIONS, GatewayOptions
from tests.gateway.raw import TEXT, Raw, Running, frame, head, joined, running, tls_of, upgrade

GET: Final = head("/openapi.json", {"Host": "localhost"})
FEW: Final = UnadmittedLimits(unadmitted_connections=8, unadmitted_per_address=8)


def silent(port: int) -> socket.socket:
    """A client that sends requests and never reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.setblocking(False)
    return client


def flood(client: socket.socket) -> None:
    with suppress(OSError):
        client.send(GET * 500)


# Peers that do not read


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_peer_that_never_reads_its_answers_is_disconnected(tmp_path: Path, *, secure: bool) -> None:
    tls, trust = tls_of(tmp_path) if secure else (None, None)
    with running(tmp_path, tls=tls, timeouts=Timeouts(write_seconds=0.5, close_seconds=0.5)) as gateway:
        clients = [Raw(gateway.port, tls=trust, buffer=4096) for _ in range(20)]
        for client in clients:
            client.send(GET * 50)
        gateway.until(lambda gateway: gateway.connections.open_count == 20)
        gateway.until(lambda gateway: gateway.connections.open_count == 0)
        for client in clients:
            client.close()


def test_a_peer_that_never_reads_a_small_answer_is_disconnected_too(tmp_path: Path) -> None:
    """The answer waits in the gateway while the silent connection is closed."""
    with running(tmp_path, timeouts=Timeouts(write_seconds=0.5)) as gateway:
        client = silent(gateway.port)
        client.send(GET)
        gateway.until(lambda gateway: gateway.connections.open_count == 1)
        gateway.until(lambda gateway: gateway.connections.open_count == 0)
        client.close()


def test_a_peer_that_reads_slowly_gets_its_answer(tmp_path: Path) -> None:
    with running(tmp_path, timeouts=Timeouts(write_seconds=0.4, close_seconds=0.3)) as gateway:
        client = Raw(gateway.port, buffer=16_384)
        client.send(GET * 20)
        received, since = 0, time.monotonic()
        while time.monotonic() - since < 1.5:
            received += len(client.socket.recv(32_768))
            time.sleep(0.01)
        assert received > 200_000
        client.close()


# Limits on connections


def test_connections_over_the_limit_wait_and_are_served_in_order(tmp_path: Path) -> None:
    with running(tmp_path, unadmitted=FEW) as gateway:
        idle = [Raw(gateway.port) for _ in range(8)]
        gateway.until(lambda gateway: gateway.connections.unadmitted_count == 8)
        waiting = [Raw(gateway.port) for _ in range(4)]
        for client in waiting:
            client.send(head("/health", {"Host": "localhost"}))
        time.sleep(0.1)
        assert gateway.ask(lambda gateway: gateway.connections.open_count) == 8
        idle[0].close()
        assert waiting[0].answer().status == 200
        for client in (*idle[1:], *waiting):
            client.close()


def test_members_do_not_count_as_unadmitted_connections(tmp_path: Path) -> None:
    with running(tmp_path, unadmitted=FEW) as gateway:
        members = [joined(gateway, name) for name in ("alice", "bob", "carol") for _ in range(1)]
        polling = Raw(gateway.port)
        assert polling.ask("GET", "/participants", gateway.token("alice")).status == 200
        assert gateway.ask(lambda gateway: gateway.connections.unadmitted_count) == 0
        assert gateway.ask(lambda gateway: gateway.connections.open_count) == 4
        for client in (*members, polling):
            client.close()
        gateway.until(lambda gateway: gateway.connections.open_count == 0)
        assert gateway.ask(lambda gateway: gateway.connections.unadmitted_count) == 0


def test_a_failed_tls_handshake_is_no_longer_counted(tmp_path: Path) -> None:
    tls, _ = tls_of(tmp_path)
    with running(tmp_path, tls=tls, unadmitted=FEW) as gateway:
        for _ in range(20):
            client = Raw(gateway.port)
            client.send(b"no handshake at all\r\n\r\n")
            client.rest()
        gateway.until(lambda gateway: gateway.connections.open_count == 0)


def test_one_address_waits_while_another_is_served(tmp_path: Path) -> None:
    limits = UnadmittedLimits(unadmitted_per_address=4)
    with running(tmp_path, unadmitted=limits, host="0.0.0.0", allowed_hosts=("*",)) as gateway:
        idle = [Raw(gateway.port) for _ in range(4)]
        gateway.until(lambda gateway: gateway.connections.unadmitted_count == 4)
        fifth = Raw(gateway.port)
        fifth.send(head("/health", {"Host": "localhost"}))
        with socket.create_connection(("127.0.0.1", gateway.port), source_address=("127.0.0.2", 0)) as other:
            other.sendall(head("/health", {"Host": "localhost"}))
            assert other.recv(1000).startswith(b"HTTP/1.1 200")
        fifth.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            fifth.socket.recv(1)
        fifth.socket.settimeout(10)
        idle[0].close()
        assert fifth.answer().status == 200
        for client in (*idle[1:], fifth):
            client.close()


def from_elsewhere(gateway: Running) -> socket.socket:
    """A connection from another address."""
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=10, source_address=("127.0.0.2", 0))


def open_to_all(
    directory: Path, work: GatewayOptions = USUAL_OPTIONS, **limits: int
) -> AbstractContextManager[Running]:
    return running(
        directory,
        work=work,
        unadmitted=UnadmittedLimits(**limits),
        host="0.0.0.0",
        allowed_hosts=("*",),
        timeouts=Timeouts(handshake_seconds=30),
    )


def test_an_address_at_its_limit_does_not_delay_other_addresses(tmp_path: Path) -> None:
    """Connections that wait for their address do not use up the places of others."""
    with open_to_all(tmp_path, unadmitted_connections=16, unadmitted_per_address=4) as gateway, ExitStack() as opened:
        for _ in range(40):
            opened.enter_context(closing(Raw(gateway.port)))
        gateway.until(lambda gateway: gateway.connections.waiting_count == 36)
        since, member = time.monotonic(), opened.enter_context(from_elsewhere(gateway))
        member.sendall(upgrade(Authorization=f"Bearer {gateway.token('alice')}"))
        assert member.recv(1000).startswith(b"HTTP/1.1 101")
        assert time.monotonic() - since < 2
        assert gateway.ask(lambda gateway: gateway.connections.open_count) == 41


def test_at_the_limit_of_waiting_connections_the_largest_waiting_address_loses_one(tmp_path: Path) -> None:
    work = GatewayOptions(waiting_connections=20)
    with (
        open_to_all(tmp_path, work, unadmitted_connections=16, unadmitted_per_address=4) as gateway,
        ExitStack() as opened,
    ):
        early = [opened.enter_context(closing(Raw(gateway.port))) for _ in range(24)]
        gateway.until(lambda gateway: gateway.connections.waiting_count == 20)
        elsewhere = [opened.enter_context(from_elsewhere(gateway)) for _ in range(5)]
        gateway.until(lambda gateway: gateway.connections.open_count == 28)
        assert early[-1].rest() == b""
        early[0].close()
        early[4].send(GET)
        assert early[4].answer().status == 200
        elsewhere[0].close()
        elsewhere[4].sendall(GET)
        assert elsewhere[4].recv(1000).startswith(b"HTTP/1.1 200")
        late = opened.enter_context(closing(Raw(gateway.port)))
        gateway.until(lambda gateway: gateway.connections.waiting_count == 19)
        over = opened.enter_context(closing(Raw(gateway.port)))
        gateway.until(lambda gateway: gateway.connections.waiting_count == 20)
        late.close()
        over.close()


def test_the_limit_of_waiting_connections_includes_clients_of_a_proxy(tmp_path: Path) -> None:
    work, limits = GatewayOptions(waiting_connections=1), UnadmittedLimits(unadmitted_per_address=1)
    with (
        running(tmp_path, work=work, unadmitted=limits, trusted_proxies=("127.0.0.0/8",)) as gateway,
        ExitStack() as opened,
    ):
        first, second, third = (opened.enter_context(closing(Raw(gateway.port))) for _ in range(3))
        for count, client in enumerate((first, second, third)):
            client.send(upgrade(X_Forwarded_For="192.0.2.1"))
            if count < 2:
                gateway.until(lambda gateway, count=count: gateway.connections.waiting_count == count)  # type: ignore[misc]
        assert first.answer().status == 101
        assert third.rest() == b""
        first.close()
        assert second.answer().status == 101


def test_a_valid_token_makes_room_for_the_next_from_its_address(tmp_path: Path) -> None:
    with running(tmp_path, unadmitted=UnadmittedLimits(unadmitted_per_address=1)) as gateway:
        members = [joined(gateway, name) for name in ("alice", "bob", "carol")]
        for client in members:
            client.close()


def test_a_waiting_connection_may_disconnect(tmp_path: Path) -> None:
    with running(tmp_path, unadmitted=UnadmittedLimits(unadmitted_per_address=1)) as gateway:
        first, *others = [Raw(gateway.port) for _ in range(5)]
        gateway.until(lambda gateway: gateway.connections.unadmitted_count == 5)
        for client in others:
            client.close()
        first.close()
        gateway.until(lambda gateway: gateway.connections.open_count == 0)
        joined(gateway).close()


# Behind a proxy


def test_the_address_of_a_client_comes_only_from_a_trusted_proxy() -> None:
    proxies = TrustedProxies(("10.0.0.0/8", "::1"))
    forwarded = [(b"x-forwarded-for", b"192.0.2.1, 203.0.113.7, 10.1.1.1")]
    assert proxies.client("10.0.0.1", forwarded) == "203.0.113.7"
    assert proxies.client("::1", forwarded) == "203.0.113.7"
    assert proxies.client("198.51.100.1", forwarded) == "198.51.100.1"
    assert proxies.client("10.0.0.1", []) == "10.0.0.1"
    assert proxies.client("10.0.0.1", [(b"x-forwarded-for", b"192.0.2.1, nonsense")]) == "10.0.0.1"
    assert proxies.client("10.0.0.1", [(b"x-forwarded-for", b"[2001:db8::1]:99")]) == "2001:db8::1"
    assert proxies.client("10.0.0.1", [(b"x-forwarded-for", b"192.0.2.9:4711")]) == "192.0.2.9"
    assert TrustedProxies(()).client("10.0.0.1", forwarded) == "10.0.0.1"


def test_behind_a_trusted_proxy_each_client_is_counted_separately(tmp_path: Path) -> None:
    limits = UnadmittedLimits(unadmitted_per_address=1)
    with running(tmp_path, unadmitted=limits, trusted_proxies=("127.0.0.0/8",)) as gateway:
        one, two, again = Raw(gateway.port), Raw(gateway.port), Raw(gateway.port)
        one.send(upgrade(X_Forwarded_For="192.0.2.1"))
        assert one.answer().status == 101
        two.send(upgrade(X_Forwarded_For="192.0.2.2"))
        assert two.answer().status == 101
        again.send(upgrade(X_Forwarded_For="192.0.2.1"))
        again.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            again.answer()
        again.socket.settimeout(10)
        one.close()
        assert again.answer().status == 101
        two.close()
        again.close()


def test_a_member_behind_a_proxy_does_not_admit_the_next_client(tmp_path: Path) -> None:
    """A proxy reuses its connection for the next client."""
    with running(tmp_path, trusted_proxies=("127.0.0.1",)) as gateway:
        client = Raw(gateway.port)
        assert client.ask("GET", "/participants", gateway.token("alice")).status == 200
        client.send(upgrade(), frame(TEXT, bytes(100_000), fin=False))
        assert client.answer().status == 101
        assert b"message_too_large" in client.frame().payload
        client.close()


# Counting


def test_an_ipv6_address_is_counted_by_its_network() -> None:
    assert counted_as("2001:db8::1") == counted_as("2001:db8::2:3") != counted_as("2001:db8:1::1")
    assert counted_as("192.0.2.1") == "192.0.2.1"
    assert counted_as("fe80::1%eth0") == "fe80::/64"
    assert counted_as("not:an:address") == "not:an:address"


def test_a_free_place_goes_to_the_connection_that_has_waited_longest() -> None:
    book, turns = Connections(unadmitted=9, per_address=1), list[int]()
    opened = [book.open("192.0.2.1:1") for _ in range(4)]
    waits = [connection.await_turn("192.0.2.1", lambda n=n: turns.append(n)) for n, connection in enumerate(opened)]  # type: ignore[misc]
    assert waits == [False, True, True, True]
    opened[2].closed()
    opened[0].admit()
    assert turns == [1]
    opened[1].closed()
    assert turns == [1, 3]
    opened[3].closed()
    opened[3].closed()
    opened[0].closed()
    assert (book.open_count, book.unadmitted_count, turns) == (0, 0, [1, 3])


def test_some_descriptors_are_reserved_for_members() -> None:
    book = Connections(unadmitted=1_000, per_address=1_000)
    book.limit_to(20)

    def fill() -> list[OpenConnection]:
        opened = []
        while not book.full:
            opened.append(book.open(""))
        return opened

    strangers = fill()
    assert len(strangers) == 15
    for connection in strangers:
        connection.admit()
    assert len(fill()) == 5


def test_waiting_connections_are_closed_if_descriptors_run_out() -> None:
    book, disconnected = Connections(unadmitted=1_000, per_address=250), list[int]()
    book.limit_to(20)  # of which 15 are for strangers, and 3 of them for one address

    def come(number: int, address: str) -> bool:
        assert not book.full
        opened = book.open("")
        return opened.await_turn(address, lambda: None, lambda: disconnected.append(number))

    assert [come(number, "192.0.2.1") for number in range(15)] == [False] * 3 + [True] * 12
    assert [come(number, "192.0.2.2") for number in range(15, 18)] == [False] * 3
    assert disconnected == [14, 13, 12]
    assert come(18, "192.0.2.1")
    assert disconnected == [14, 13, 12, 11]
    assert (book.open_count, book.unadmitted_count, book.waiting_count) == (15, 15, 9)


# Descriptors

SPACE: Final = """
space: {id: lab, name: lab}
participants: {alice: {tokens: [alice-token], capabilities: [{kind: "*"}]}}
gateway: {timeouts: {close_seconds: 0.3}}
"""
DESCRIPTORS: Final = 256


@contextmanager
def process(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A gateway process with a journal and a low limit of descriptors."""
    (directory / "space.yaml").write_text(SPACE, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    command = [sys.executable, "-m", "mew", "gateway", "start", "--port", str(port), "--log-level", "info"]
    with (directory / "log").open("wb") as log:
        gateway = subprocess.Popen(command, cwd=directory, stderr=log, stdout=log, preexec_fn=limit)  # noqa: PLW1509
        try:
            deadline = time.monotonic() + 40
            while "listening" not in (directory / "log").read_text(encoding="utf-8"):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield gateway, port
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(20)


def test_connections_never_use_up_the_descriptors_of_the_journal(tmp_path: Path) -> None:
    with process(tmp_path) as (gateway, port):
        member = Raw(port)
        member.send(upgrade(Authorization="Bearer alice-token"))
        assert member.answer().status == 101
        member.envelope("system/welcome")
        clients = [silent(port) for _ in range(300)]
        for client in clients:
            flood(client)
        for number in range(20):
            member.say(kind="chat", payload={"text": str(number)})
            assert member.envelope("chat")["payload"]["text"] == str(number)
            time.sleep(0.02)
        assert len(list(Path(f"/proc/{gateway.pid}/fd").iterdir())) <= DESCRIPTORS - 32
        for client in clients:
            client.close()
        member.close()
        other = Raw(port)
        health = other.ask("GET", "/health")
        assert (health.status, health.json["status"]) == (200, "ok")
        other.close()
    assert "Too many open files" not in (tmp_path / "log").read_text(encoding="utf-8")


def test_the_descriptors_for_connections_exclude_open_and_reserved_ones() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = descriptors_left()
    with socket.socket():
        assert descriptors_left() == before - 1
    assert before < limit
