"""WebSocket over TLS: a sample of each family of `test_rfc6455`, TLS itself, and a reader that stops reading."""

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count, cycle
from typing import Any

import msgspec
import pytest

from mew.config.models import Queues, Timeouts
from mew.gateway.gateway import Gateway
from tests.gateway import test_rfc6455 as plain
from tests.gateway.raw import (
    BINARY,
    CLOSE,
    MASK,
    PING,
    PONG,
    TEXT,
    Frame,
    Raw,
    Running,
    closing,
    fragments,
    frame,
    joined,
    length_of,
    running,
    tls_of,
    upgrade,
)
from tests.gateway.test_rfc6455 import LARGEST, MARGIN, Case, P, cases, converse, echoed, fill, open_echo, refused

DATA = 128 * 1024


class Secure(msgspec.Struct, frozen=True):
    """A gateway with TLS, and an SSL context of a client that trusts it."""

    gateway: Running
    trust: ssl.SSLContext

    def connect(self, **options: Any) -> Raw:
        return Raw(self.gateway.port, **{"tls": self.trust, **options})

    def join(self, participant: str = "alice", **options: Any) -> Raw:
        return joined(self.gateway, participant, **{"tls": self.trust, **options})


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("tls")
    tls, trust = tls_of(directory)
    with running(directory, plain.SPACE, tls=tls, timeouts=Timeouts(close_seconds=1)) as started:
        open_echo(started, tls=trust)
        yield Secure(started, trust)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """A gateway with short time-outs, but long enough for the handshake of TLS."""
    directory = tmp_path_factory.mktemp("impatient")
    tls, trust = tls_of(directory)
    timeouts = Timeouts(handshake_seconds=1, close_seconds=0.5)
    with running(directory, plain.SPACE, tls=tls, timeouts=timeouts) as started:
        yield Secure(started, trust)


@pytest.fixture
def client(secure: Secure) -> Iterator[Raw]:
    connected = secure.join()
    yield connected
    connected.close()


# A sample of each family

TEXTS = [echoed(f"UTF-8: {name}", TEXT, P + text) for name, text in plain.VALID.items()]
NO_TEXTS = [refused(f"not UTF-8: {name}", 1007, [frame(TEXT, P + text)]) for name, text in plain.INVALID.items()]
FAMILIES: Sequence[Sequence[Case]] = (
    plain.FRAMING,
    plain.LENGTHS,
    plain.UNMASKED,
    plain.PINGS,
    plain.PONGS,
    plain.CONTROL,
    plain.RESERVED[::3],
    plain.UNKNOWN[::3],
    plain.FRAGMENTS,
    plain.BROKEN,
    TEXTS,
    NO_TEXTS[::3],
    plain.CLOSINGS[::3],
    [case for case in plain.CLOSINGS if case.name == "no code"],
)
SMALL = [case for family in FAMILIES for case in family[:2] if sum(map(len, case.sent)) < 400]


@cases(*FAMILIES)
def test_over_wss_a_conversation_is_the_same_as_without_tls(client: Raw, case: Case) -> None:
    converse(client, case)


@cases(SMALL)
def test_over_wss_a_conversation_is_the_same_with_one_byte_per_tls_record(client: Raw, case: Case) -> None:
    converse(client, case, piecemeal=True)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_over_wss_a_message_over_the_limit_gets_an_error_and_closes(client: Raw, parts: int) -> None:
    message, step = fill(LARGEST + 1), -(-(LARGEST + 1) // parts)
    client.send(*fragments(TEXT, *(message[n : n + step] for n in range(0, len(message), step))))
    assert client.envelope("system/error")["payload"]["error"] == "message_too_large"
    assert client.closed() == 1009


def test_over_wss_a_frame_far_over_the_limit_is_refused_before_its_payload_arrives(client: Raw) -> None:
    client.send(bytes((0x80 | BINARY,)), length_of(LARGEST + MARGIN + 1), MASK)
    assert client.closed() == 1009


@pytest.mark.parametrize("chopped", [False, True], ids=["one record", "one record per byte"])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_over_wss_data_in_the_same_packet_as_the_request_is_not_lost(
    secure: Secure, opcode: int, chopped: bool
) -> None:
    client = secure.connect()
    join = msgspec.json.encode({"type": "join", "token": secure.gateway.token("alice")})
    data = upgrade() + frame(opcode, join) + frame(PING, b"and this")
    (client.chop if chopped else client.send)(data)
    assert client.answer().status == 101
    received = [client.frame(), client.frame()]
    assert Frame(PONG, b"and this") in received
    assert any(b"system/welcome" in message.payload for message in received)
    client.close()


def test_over_wss_a_large_join_in_the_same_packet_as_the_request_is_not_lost(secure: Secure) -> None:
    client = secure.connect()
    join = {"type": "join", "token": secure.gateway.token("alice"), "payload": {"filling": "*" * 30_000}}
    client.send(upgrade(), frame(TEXT, msgspec.json.encode(join)))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    client.close()


def test_over_wss_many_messages_in_few_records_arrive_in_order(client: Raw) -> None:
    client.send(*(frame(TEXT, b"%b%d" % (P, n)) for n in range(5000)))
    assert [client.echo().payload for _ in range(5000)] == [b"%b%d" % (P, n) for n in range(5000)]


# TLS itself


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_supported(secure: Secure, version: ssl.TLSVersion) -> None:
    former = secure.trust.minimum_version, secure.trust.maximum_version
    try:
        secure.trust.minimum_version = secure.trust.maximum_version = version
        client = secure.join()
    finally:
        secure.trust.minimum_version, secure.trust.maximum_version = former
    assert client.socket.version() == version.name.replace("_", ".")  # type: ignore[attr-defined]
    converse(client, echoed("", TEXT, P + b"hello"))
    client.close()


def test_a_client_that_also_offers_http_2_is_answered_in_http_1(secure: Secure) -> None:
    secure.trust.set_alpn_protocols(["h2", "http/1.1"])
    try:
        client = secure.join()
    finally:
        secure.trust.set_alpn_protocols([])
    assert client.socket.selected_alpn_protocol() in {None, "http/1.1"}  # type: ignore[attr-defined]
    client.close()


def test_a_client_that_does_not_trust_the_certificate_disturbs_no_other(secure: Secure, client: Raw) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        secure.connect(tls=ssl.create_default_context())
    converse(client, echoed("", TEXT, P + b"hello"))


def test_http_is_answered_on_the_same_port_before_the_upgrade(secure: Secure) -> None:
    client = secure.connect()
    token = secure.gateway.token("bob")
    assert client.ask("GET", "/health").json["status"] == "ok"
    posted = client.ask("POST", "/participants/bob/messages", token, {"kind": "chat", "payload": {"text": "hi"}})
    assert (posted.status, posted.json["status"]) == (200, "accepted")
    client.send(upgrade(Authorization=f"Bearer {token}"))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    client.close()


def test_over_wss_an_endless_head_is_refused(secure: Secure) -> None:
    client = secure.connect()
    client.send(b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000)
    assert client.answer().status == 431
    client.close()


def test_a_peer_whose_tls_handshake_is_slow_is_disconnected(impatient: Secure) -> None:
    client = Raw(impatient.gateway.port)
    client.send(b"\x16\x03\x01")
    assert client.rest() == b""


def test_over_wss_a_peer_whose_head_does_not_arrive_in_time_is_disconnected(impatient: Secure) -> None:
    client = impatient.connect()
    client.send(b"GET /")
    with pytest.raises((ssl.SSLError, EOFError)):
        client.answer()


def test_a_peer_that_sends_a_plain_request_to_a_tls_port_is_disconnected(impatient: Secure) -> None:
    client = Raw(impatient.gateway.port)
    client.send(upgrade())
    client.rest()
    client.close()


def test_an_invitation_names_the_secure_address(secure: Secure, client: Raw) -> None:
    client.say(kind="space/invite", payload={"participant_id": "guest", "initial_capabilities": []})
    answer = client.envelope("space/invite-ack")["payload"]
    assert answer["connection_url"].rstrip("/") == f"wss://localhost:{secure.gateway.port}"


def close_tls(client: Raw) -> None:
    with suppress(ssl.SSLError):  # an envelope may still be in flight
        client.socket.unwrap()  # type: ignore[attr-defined]


CLOSINGS: dict[str, Callable[[Raw], None]] = {
    "a close frame": lambda client: client.send(closing(1000)),
    "a close notification of TLS": close_tls,
    "nothing": Raw.close,
}


@pytest.mark.parametrize("end", CLOSINGS.values(), ids=CLOSINGS)
def test_a_peer_that_ends_the_connection_in_any_way_has_left(
    secure: Secure, client: Raw, end: Callable[[Raw], None]
) -> None:
    bob = secure.join("bob")
    end(client)
    assert bob.envelope("system/presence")["payload"]["event"] == "leave"
    bob.close()


def test_after_the_close_frame_the_gateway_also_closes_tls(client: Raw) -> None:
    """Without it, a client cannot distinguish an end from an interruption: Python then raises an error."""
    client.socket.suppress_ragged_eofs = False  # type: ignore[attr-defined]
    client.send(closing(1000))
    received = client.echo()
    assert (received.opcode, received.code) == (CLOSE, 1000)
    assert client.rest() == b""


def test_a_takeover_over_tls_closes_the_old_socket(secure: Secure, client: Raw) -> None:
    new = secure.join()
    assert client.closed() == 4409
    converse(new, echoed("", TEXT, P + b"mine now"))
    new.close()


def test_a_gateway_with_tls_that_stops_closes_with_its_code(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("stopping")
    tls, trust = tls_of(directory)
    with running(directory, tls=tls) as gateway:
        client = joined(gateway, tls=trust)
        stopping = gateway.stopping()
        assert client.closed() == 1001
        stopping.result(5)


# A reader that stops reading

SIZES = cycle((100, 1_000, 20_000, 300))
"""One of them is larger than a TLS record may be."""


def paused_and_losing(gateway: Gateway) -> bool:
    return any(socket.sink.losses for socket in gateway.sockets)


def test_over_wss_every_sent_frame_is_delivered_or_reported_as_dropped(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("slow")
    tls, trust = tls_of(directory)
    with running(directory, tls=tls, queues=Queues(data_bytes=DATA)) as gateway:
        alice, bob = joined(gateway, "alice", tls=trust, buffer=4096), joined(gateway, "bob", tls=trust)
        prefix = bob.open_stream()
        sent = flood(gateway, bob, prefix)
        bob.say(kind="chat", payload={"text": "that was all"})
        delivered, dropped = account(alice, prefix)
        assert delivered == sorted(delivered)
        assert sorted(delivered + dropped) == list(range(1, sent + 1))
        assert dropped
        alice.close()
        bob.close()


def flood(gateway: Running, writer: Raw, prefix: bytes) -> int:
    """Write frames of many sizes until a reader loses some, and 100 more; return their number."""
    more = 100
    for number in count(1):
        writer.send(frame(BINARY, b"%b%08d%b" % (prefix, number, bytes(next(SIZES)))))
        assert writer.echo().payload[len(prefix) :][:8] == b"%08d" % number
        if gateway.ask(paused_and_losing):
            more -= 1
        if not more:
            return number
    raise AssertionError("unreachable")


def account(reader: Raw, prefix: bytes) -> tuple[list[int], list[int]]:
    """The frame numbers that a reader receives, and those that are reported as lost, until the last chat."""
    delivered: list[int] = []
    dropped: list[int] = []
    while True:
        received = reader.frame()
        if received.opcode == BINARY:
            assert received.payload.startswith(prefix)
            delivered.append(int(received.payload[len(prefix) :][:8]))
            continue
        envelope = msgspec.json.decode(received.payload)
        if envelope["kind"] == "stream/gap":
            gap = envelope["payload"]
            assert gap["dropped"] == gap["to"] - gap["from"] + 1
            dropped += range(gap["from"], gap["to"] + 1)
        elif envelope["kind"] == "chat":
            return delivered, dropped
