"""A stranger without a token can use hardly any memory and time of a gateway."""

import gc
import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from picows import WSTransport
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvloop.loop import TCPTransport  # type: ignore[attr-defined]

from mew.config.models import Timeouts, UnadmittedLimits
from mew.gateway.fanout.sinks import SocketSink
from mew.gateway.http.exchange import Exchange
from mew.gateway.http_protocol import HttpConnection
from mew.gateway.websocket import WebSocketConnection
from mew.gateway.websocket_protocol import WebSocketProtocol
from mew.journal import JournalSettings
from mew.protocol import Limits
from mew.protocol.dispatch import IncomingMessage
from tests.gateway.http_requests import tokens_of
from tests.gateway.raw import (
    CONTINUATION,
    MASK,
    PING,
    TEXT,
    Frame,
    Raw,
    Running,
    frame,
    head,
    joined,
    length_of,
    running,
    upgrade,
)

JOIN_BYTES: Final = UnadmittedLimits().join_bytes
HEAD_BYTES: Final = UnadmittedLimits().http_head_bytes
MEGABYTE: Final = 2**20
MAILS: Final = "/participants/alice/messages"
GET: Final = head("/health", {"Host": "localhost"})
QUICK: Final = Timeouts(failed_join_seconds=0.3)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("strangers"), timeouts=QUICK) as started:
        yield started


def upgraded(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    client.send(upgrade())
    assert client.answer().status == 101
    return client


def join(token: str, filling: int = 0) -> bytes:
    return b'{"type":"join","token":"%b","payload":{"filling":"%b"}}' % (token.encode(), b"*" * filling)


def pushed(client: Raw, *parts: bytes) -> None:
    """Send as much as the gateway accepts."""
    with suppress(ConnectionError, TimeoutError):
        client.send(*parts)


def pushed_in_parts(client: Raw, first: bytes, part: bytes) -> None:
    """Send up to twelve megabytes, as far as the gateway accepts them; this process stores only one part."""
    client.socket.settimeout(0.2)
    with suppress(ConnectionError, TimeoutError):
        client.send(first)
        for _ in range(12 * MEGABYTE // len(part)):
            client.send(part)


# Bytes before the join


@pytest.mark.requirement("JOIN-39")
def test_a_join_may_have_the_maximum_size(gateway: Running) -> None:
    token = gateway.token("alice")
    client = upgraded(gateway)
    client.send(frame(TEXT, join(token, JOIN_BYTES - len(join(token)))))
    client.envelope("system/welcome")
    client.close()


@pytest.mark.parametrize(
    "message",
    [
        frame(TEXT, join("T", JOIN_BYTES)),
        frame(TEXT, join("T", JOIN_BYTES), fin=False),
        frame(TEXT, join("T", JOIN_BYTES // 2), fin=False) + frame(CONTINUATION, b"*" * (JOIN_BYTES // 2)),
        b"\x81" + length_of(15 * MEGABYTE) + MASK + bytes(3 * JOIN_BYTES),
        frame(TEXT, b"[" + b"[]," * (5 * MEGABYTE) + b"[]]"),
        b"".join(frame(PING, b"*" * 125) for _ in range(400)),
    ],
    ids=["whole", "its first fragment", "its second fragment", "unfinished", "16 MiB of lists", "pings"],
)
@pytest.mark.requirement("JOIN-39")
def test_more_bytes_before_the_join_are_refused(gateway: Running, message: bytes) -> None:
    client = upgraded(gateway)
    pushed(client, message)
    while (received := client.frame()).opcode != TEXT:
        pass
    assert b'"error":"message_too_large"' in received.payload
    assert f'"limit":{JOIN_BYTES}'.encode() in received.payload
    assert client.frame().code == 1009
    client.close()


def test_messages_after_the_join_may_be_larger(gateway: Running) -> None:
    client = upgraded(gateway)
    large = b'{"kind":"chat","payload":{"text":"%b"}}' % (b"*" * 5 * JOIN_BYTES)
    client.send(frame(TEXT, join(gateway.token("alice"))), frame(TEXT, large))
    assert len(client.envelope("chat")["payload"]["text"]) == 5 * JOIN_BYTES
    client.close()


def test_a_refused_message_is_not_buffered(gateway: Running) -> None:
    """Bytes that arrive after the refusal are dropped immediately, until the connection ends."""
    before = resident()
    with ExitStack() as opened:
        for _ in range(10):
            client = opened.enter_context(closing_soon(upgraded(gateway)))
            pushed_in_parts(client, b"\x81" + length_of(15 * MEGABYTE) + MASK, bytes(JOIN_BYTES))
        assert resident() - before < 20 * MEGABYTE


@contextmanager
def closing_soon(client: Raw) -> Iterator[Raw]:
    try:
        yield client
    finally:
        client.close()


def resident() -> int:
    """The resident memory of this process, in which the gateway runs too."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


# Heads and bodies of requests


@pytest.mark.parametrize("path", ["/health", "/"])
def test_a_head_over_the_maximum_size_is_refused(gateway: Running, path: str) -> None:
    for size, status in ((HEAD_BYTES - 200, 200), (HEAD_BYTES, 431)):
        client = Raw(gateway.port)
        client.send(head(path, {"Host": "localhost", "Cookie": "*" * size}))
        assert client.answer().status == status
        client.close()


@pytest.mark.parametrize("size", [20_000, 30_000])
def test_the_head_of_an_upgrade_has_the_same_maximum_size(gateway: Running, size: int) -> None:
    token = "*" * size
    gateway.do(add_token(gateway, token, "alice"))
    for path in ("/", f"/{'p' * (HEAD_BYTES - size - 500)}"):
        client = Raw(gateway.port)
        client.send(upgrade(path, Authorization=f"Bearer {token}"))
        assert client.answer().status == 101
        assert client.envelope("system/welcome")["payload"]["you"]["id"] == "alice"
        client.close()
    client = Raw(gateway.port)
    client.send(upgrade(Authorization=f"Bearer {token}", Cookie="*" * (HEAD_BYTES - size)))
    assert client.answer().status == 431
    client.close()


def in_one_packet(gateway: Running, client: Raw, *parts: bytes) -> None:
    """Send on the gateway's own event loop, so that the gateway reads only after everything has arrived."""

    async def send() -> None:
        client.send(*parts)

    gateway.do(send())


def test_a_head_after_a_request_in_the_same_packet_has_a_maximum_size(gateway: Running) -> None:
    client, since = Raw(gateway.port), time.monotonic()
    in_one_packet(gateway, client, GET, b"GET / HTTP/1.1\r\nX: ", b"*" * 120_000)
    assert client.answer().status == 200
    assert client.rest() == b""
    assert time.monotonic() - since < 5
    client.close()


def test_a_large_body_before_a_request_in_the_same_packet_does_not_count_as_head(gateway: Running) -> None:
    client, token = Raw(gateway.port), gateway.token("alice")
    chat = b'{"kind":"chat","payload":{"text":"%b"}}' % (b"*" * 2 * HEAD_BYTES)
    headers = {"Host": "localhost", "Content-Length": str(len(chat)), "Authorization": f"Bearer {token}"}
    in_one_packet(gateway, client, head(MAILS, headers, "POST"), chat, GET, GET[:-2])
    assert [client.answer().status for _ in range(2)] == [200, 200]
    client.send(GET[-2:])
    assert client.answer().status == 200
    client.close()


@pytest.mark.parametrize("token", [False, True], ids=["without a token", "with a token"])
def test_bytes_after_an_upgrade_have_the_maximum_size_of_a_join(gateway: Running, *, token: bool) -> None:
    client = Raw(gateway.port)
    bearer = f"Bearer {gateway.token('alice')}" if token else None
    in_one_packet(gateway, client, upgrade(Authorization=bearer), frame(TEXT, bytes(100_000)))
    assert client.answer().status == 101
    assert client.envelope("system/error")["payload"]["error"] == "message_too_large"
    assert client.closed() == 1009


def test_bytes_after_an_upgrade_are_not_buffered_while_it_waits(tmp_path: Path) -> None:
    limits = UnadmittedLimits(unadmitted_per_address=1)
    with running(tmp_path, unadmitted=limits, trusted_proxies=("127.0.0.0/8",)) as proxied, ExitStack() as opened:
        behind, before = frame(TEXT, bytes(120_000)), 0
        for number in range(110):
            if number == 10:
                before = resident()
            client = opened.enter_context(closing_soon(Raw(proxied.port)))
            in_one_packet(proxied, client, upgrade(X_Forwarded_For="192.0.2.1"), behind)
        proxied.until(lambda gateway: gateway.connections.waiting_count == 109)
        assert resident() - before < 6 * MEGABYTE


async def add_token(gateway: Running, token: str, participant: str) -> None:
    """Add a token that another service has issued, such as a large JWT."""
    tokens = tokens_of(gateway)
    tokens.holders[token] = tokens.holders[gateway.token(participant)]


def test_a_body_without_a_token_is_not_read(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(head(MAILS, {"Host": "localhost", "Content-Length": str(10**9)}, "POST"), bytes(40_000))
    answer = client.answer()
    assert (answer.status, answer.headers["connection"]) == (401, "close")
    pushed(client, bytes(MEGABYTE))
    assert client.rest() == b""


def test_a_request_with_its_body_in_one_packet_may_be_followed_by_another(gateway: Running) -> None:
    client = Raw(gateway.port)
    assert client.ask("POST", MAILS, body={"kind": "chat"}).status == 401
    assert client.ask("GET", "/health").status == 200
    client.close()


def test_the_number_of_pipelined_requests_is_limited(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(GET * 5_000)
    answers = 1
    while client.answer().headers.get("connection") != "close":
        answers += 1
    assert 16 <= answers <= 100
    assert client.rest() == b""


# A closed connection leaves no memory to the garbage collector


def only_connected(gateway: Running) -> Raw:
    return Raw(gateway.port)


def half_a_head(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    client.send(b"GET / HTTP/1.1\r\nX: " + b"*" * 20_000)
    return client


def half_a_body(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    headers = {"Host": "localhost", "Content-Length": "60000", "Authorization": f"Bearer {gateway.token('alice')}"}
    client.send(head(MAILS, headers, "POST"), bytes(50_000))
    return client


def answered(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    assert client.ask("GET", "/health").status == 200
    return client


def refused_request(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    assert client.ask("POST", MAILS, "not a token", {"kind": "chat"}).status == 403
    return client


def posted(client: Raw, gateway: Running, body: bytes) -> int:
    headers = {"Host": "localhost", "Authorization": f"Bearer {gateway.token('alice')}"}
    client.send(head(MAILS, {**headers, "Content-Length": str(len(body))}, "POST"), body)
    return client.answer().status


def refused_post(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    assert posted(client, gateway, bytes(MEGABYTE)) == 400
    return client


def post_over_its_budget(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    posted(client, gateway, b'{"kind":"chat"}')
    assert posted(client, gateway, bytes(MEGABYTE)) == 429
    return client


def poll_over_its_budget(gateway: Running) -> Raw:
    client = post_over_its_budget(gateway)
    assert client.ask("GET", MAILS, gateway.token("alice")).status == 429
    return client


def wrong_request(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    client.send(b"no request\r\n\r\n")
    assert client.answer().status == 400
    return client


def many_requests(gateway: Running) -> Raw:
    """The gateway answers the first requests and disconnects, perhaps before the last one is sent."""
    client = Raw(gateway.port)
    pushed(client, GET * 2_000)
    return client


def half_a_message(gateway: Running) -> Raw:
    client = upgraded(gateway)
    client.send(b"\x81" + length_of(15 * MEGABYTE) + MASK + bytes(20_000))
    return client


def a_fragment(gateway: Running) -> Raw:
    client = upgraded(gateway)
    client.send(frame(TEXT, bytes(20_000), fin=False))
    return client


def too_much(gateway: Running) -> Raw:
    client = upgraded(gateway)
    client.send(frame(TEXT, bytes(2 * JOIN_BYTES)))
    assert client.frame().opcode == TEXT
    return client


def refused_join(gateway: Running) -> Raw:
    client = upgraded(gateway)
    client.send(frame(TEXT, join("not a token")))
    client.frame()
    return client


def a_member(gateway: Running) -> Raw:
    client = joined(gateway)
    client.open_stream()
    return client


OPENERS: Final = [
    only_connected,
    half_a_head,
    half_a_body,
    answered,
    refused_request,
    refused_post,
    wrong_request,
    many_requests,
    upgraded,
    half_a_message,
    a_fragment,
    too_much,
    refused_join,
    a_member,
]
OF_A_CONNECTION: Final = frozenset(
    kind.__name__
    for kind in (
        HttpConnection,
        WebSocketProtocol,
        WebSocketConnection,
        SocketSink,
        WSTransport,
        RequestResponseCycle,
        TCPTransport,
        Exchange,
        IncomingMessage,
    )
)
"""The classes that have an object for each connection or message."""


def counted() -> Counter[str]:
    """The objects of connections that were created since the others were frozen, counted by class."""
    return Counter(name for tracked in gc.get_objects() if (name := type(tracked).__name__) in OF_A_CONNECTION)


@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
def test_a_closed_connection_leaves_nothing_for_the_collector(
    gateway: Running, opener: Callable[[Running], Raw]
) -> None:
    leave_nothing(gateway, opener)


@pytest.mark.parametrize("opener", [post_over_its_budget, poll_over_its_budget], ids=lambda opener: opener.__name__)
def test_a_closed_connection_over_its_budget_leaves_nothing_for_the_collector(
    tmp_path: Path, opener: Callable[[Running], Raw]
) -> None:
    with running(tmp_path, {"limits": Limits(work_per_second=1, work_burst=1)}) as gateway:
        leave_nothing(gateway, opener)


def live_reader(gateway: Running) -> Raw:
    client = Raw(gateway.port)
    client.send(asking("/spaces/lab/journal", gateway.token("alice"), Accept="text/event-stream"))
    assert client.answer().status == 200
    return client


def live_reader_that_reads_nothing(gateway: Running) -> Raw:
    """A live reader whose records wait to be sent."""
    client = live_reader(gateway)
    for _ in range(40):
        other = Raw(gateway.port)
        assert posted(other, gateway, b'{"kind":"chat","payload":{"text":"%b"}}' % (b"*" * (MEGABYTE // 2))) == 200
        other.close()
    return client


@pytest.mark.parametrize("opener", [live_reader, live_reader_that_reads_nothing], ids=lambda opener: opener.__name__)
def test_a_closed_reader_of_the_journal_leaves_nothing_for_the_collector(
    tmp_path: Path, opener: Callable[[Running], Raw]
) -> None:
    unbounded = Limits(work_per_second=10**9, work_burst=10**9, bytes_per_second=2**30, byte_burst=2**30)
    with running(tmp_path, {"limits": unbounded}, journal=JournalSettings()) as gateway:
        joined(gateway).close()
        leave_nothing(gateway, opener)


def leave_nothing(gateway: Running, opener: Callable[[Running], Raw]) -> None:
    gc.collect()
    gc.freeze()  # exclude existing objects, so that the list is short
    gc.disable()
    try:
        with ExitStack() as opened:
            for _ in range(3):
                opened.enter_context(closing_soon(opener(gateway)))
            # Connections are accepted in order: when this one is answered, the others have been accepted.
            opened.enter_context(closing_soon(answered(gateway)))
            assert gateway.ask(lambda _: counted())["TCPTransport"] >= 1
        gateway.until(lambda gateway: gateway.connections.open_count == 0)
        gateway.until(lambda _: counted() == Counter())
    finally:
        gc.enable()
        gc.unfreeze()


# Guessing tokens


@pytest.mark.requirement("JOIN-40")
def test_a_wrong_token_delays_only_its_own_connection(gateway: Running) -> None:
    client = upgraded(gateway)
    since = time.monotonic()
    client.send(frame(TEXT, join("not a token")))
    other = joined(gateway)
    assert time.monotonic() - since < QUICK.failed_join_seconds
    assert client.envelope("system/error")["payload"]["error"] == "unauthorized"
    assert time.monotonic() - since >= QUICK.failed_join_seconds * 0.9
    assert client.closed() == 4401
    other.close()


@pytest.mark.requirement("JOIN-40")
def test_no_second_token_is_checked_during_the_delay(gateway: Running) -> None:
    client = upgraded(gateway)
    client.send(frame(TEXT, join("not a token")), frame(TEXT, join(gateway.token("alice"))))
    assert client.envelope("system/error")["payload"]["error"] == "unauthorized"
    assert client.closed() == 4401


def test_a_join_without_a_token_is_answered_without_delay(gateway: Running) -> None:
    client = upgraded(gateway)
    since = time.monotonic()
    client.send(frame(TEXT, b'{"type":"join"}'))
    assert client.envelope("system/error")["payload"]["error"] == "unauthorized"
    assert time.monotonic() - since < QUICK.failed_join_seconds
    client.close()


def asking(path: str, token: str | None, **headers: str) -> bytes:
    authorization = None if token is None else f"Bearer {token}"
    return head(path, {"Host": "localhost", "Authorization": authorization, **headers})


@pytest.mark.parametrize("path", ["/participants", MAILS, "/spaces/lab/journal", "/participants/alice/explain"])
def test_a_wrong_token_over_http_is_answered_after_the_delay(gateway: Running, path: str) -> None:
    client = Raw(gateway.port)
    since = time.monotonic()
    client.send(asking(path, "not a token"))
    assert client.answer().status == 403
    assert time.monotonic() - since >= QUICK.failed_join_seconds * 0.9
    client.close()


def test_no_second_token_is_checked_over_http_during_the_delay(gateway: Running) -> None:
    """Requests on a connection are answered in order: the valid token waits for the wrong ones."""
    client = Raw(gateway.port)
    since = time.monotonic()
    client.send(asking("/participants", "not a token") * 3, asking("/participants", gateway.token("alice")))
    assert [client.answer().status for _ in range(4)] == [403, 403, 403, 200]
    assert time.monotonic() - since >= 3 * QUICK.failed_join_seconds * 0.9
    client.close()


def test_only_a_wrong_token_is_delayed_over_http(tmp_path: Path) -> None:
    with running(tmp_path, timeouts=Timeouts(failed_join_seconds=30)) as gateway:
        waiting = Raw(gateway.port)
        waiting.send(asking("/participants", "not a token"))
        gateway.until(lambda _: gateway.server.requests == 1)
        client, alice = Raw(gateway.port), gateway.token("alice")
        client.send(asking("/participants", alice), asking("/participants", None))
        client.send(asking("/participants/bob/messages", alice), asking("/participants?space=elsewhere", "not a token"))
        assert [client.answer().status for _ in range(4)] == [200, 401, 403, 404]
        # Nothing is left of the request after its peer has disconnected.
        waiting.close()
        gateway.until(lambda _: gateway.server.requests == 0)
        client.close()


def test_a_peer_that_waits_for_its_answer_uses_little_memory(tmp_path: Path) -> None:
    with running(tmp_path, timeouts=Timeouts(failed_join_seconds=30)) as gateway, ExitStack() as opened:
        before = resident()
        for _ in range(5):
            body = opened.enter_context(closing_soon(Raw(gateway.port)))
            wrong = {"Host": "localhost", "Authorization": "Bearer not a token", "Content-Length": str(10**9)}
            pushed_in_parts(body, head(MAILS, wrong, "POST"), bytes(HEAD_BYTES))
            pipeline = opened.enter_context(closing_soon(Raw(gateway.port)))
            pushed_in_parts(pipeline, b"", asking("/participants", "not a token", Cookie="*" * (HEAD_BYTES - 500)))
        gateway.until(lambda _: gateway.server.requests == 10)
        assert resident() - before < 10 * MEGABYTE


# Members during attacks


def test_members_are_served_while_strangers_send_sixteen_megabytes(gateway: Running) -> None:
    member = joined(gateway)
    strangers = [upgraded(gateway) for _ in range(3)]
    message = frame(TEXT, b"[" + b"[]," * (5 * MEGABYTE) + b"[]]")
    delays = []
    sent = [0] * 3
    for client in strangers:
        client.socket.setblocking(False)
    for _ in range(100):
        for number, client in enumerate(strangers):
            with suppress(OSError):
                sent[number] += client.socket.send(message[sent[number] : sent[number] + MEGABYTE])
        since = time.monotonic()
        member.send(frame(PING, b"now"))
        assert member.echo() == Frame(10, b"now")
        delays.append(time.monotonic() - since)
    assert statistics.median(delays) < 0.02
    assert max(delays) < 0.2
    for client in (member, *strangers):
        client.close()
