"""The same behind TLS: a sample of each family of `test_rfc6455`, what TLS adds, and a reader that stops reading."""

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
    """A gateway behind TLS, and what a client needs to trust it."""

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
)
SMALL = [case for family in FAMILIES for case in family[:2] if sum(map(len, case.sent)) < 400]


@cases(*FAMILIES)
def test_over_wss_a_conversation_goes_as_in_plain(client: Raw, case: Case) -> None:
    converse(client, case)


@cases(SMALL)
def test_over_wss_a_conversation_goes_the_same_with_each_byte_in_a_record_of_its_own(client: Raw, case: Case) -> None:
    converse(client, case, piecemeal=True)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_over_wss_a_message_over_the_limit_is_named_and_closes(client: Raw, parts: int) -> None:
    message, step = fill(LARGEST + 1), -(-(LARGEST + 1) // parts)
    client.send(*fragments(TEXT, *(message[n : n + step] for n in range(0, len(message), step))))
    assert client.envelope("system/error")["payload"]["error"] == "message_too_large"
    assert client.closed() == 1009


def test_over_wss_a_frame_far_over_the_limit_is_refused_by_its_length_alone(client: Raw) -> None:
    client.send(bytes((0x80 | BINARY,)), length_of(LARGEST + MARGIN + 1), MASK)
    assert client.closed() == 1009


@pytest.mark.parametrize("chopped", [False, True], ids=["one record", "a record each byte"])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_over_wss_what_comes_right_behind_the_request_is_not_lost(secure: Secure, opcode: int, chopped: bool) -> None:
    client = secure.connect()
    join = msgspec.json.encode({"type": "join", "token": secure.gateway.token("alice")})
    data = upgrade() + frame(opcode, join) + frame(PING, b"and this")
    (client.chop if chopped else client.send)(data)
    assert client.answer().status == 101
    received = [client.frame(), client.frame()]
    assert Frame(PONG, b"and this") in received
    assert any(b"system/welcome" in each.payload for each in received)
    client.close()


def test_over_wss_a_large_join_right_behind_the_request_is_not_lost(secure: Secure) -> None:
    client = secure.connect()
    join = {"type": "join", "token": secure.gateway.token("alice"), "payload": {"filling": "*" * 30_000}}
    client.send(upgrade(), frame(TEXT, msgspec.json.encode(join)))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    client.close()


def test_over_wss_many_messages_in_few_records_arrive_in_their_order(client: Raw) -> None:
    client.send(*(frame(TEXT, b"%b%d" % (P, n)) for n in range(5000)))
    assert [client.echo().payload for _ in range(5000)] == [b"%b%d" % (P, n) for n in range(5000)]


# What is TLS's own


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_versions_of_tls_in_use_are_spoken(secure: Secure, version: ssl.TLSVersion) -> None:
    kept = secure.trust.minimum_version, secure.trust.maximum_version
    try:
        secure.trust.minimum_version = secure.trust.maximum_version = version
        client = secure.join()
    finally:
        secure.trust.minimum_version, secure.trust.maximum_version = kept
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


def test_a_client_that_does_not_trust_the_certificate_hinders_nobody(secure: Secure, client: Raw) -> None:
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


def test_an_invitation_names_the_secure_address(secure: Secure, client: Raw) -> None:
    client.say(kind="space/invite", payload={"participant_id": "guest", "initial_capabilities": []})
    answer = client.envelope("space/invite-ack")["payload"]
    assert answer["connection_url"].rstrip("/") == f"wss://localhost:{secure.gateway.port}"


def tls_goodbye(client: Raw) -> None:
    with suppress(ssl.SSLError):  # an envelope may still be on its way to us
        client.socket.unwrap()  # type: ignore[attr-defined]


GOODBYES: dict[str, Callable[[Raw], None]] = {
    "a close frame": lambda client: client.send(closing(1000)),
    "TLS's own goodbye": tls_goodbye,
    "not a word": Raw.close,
}


@pytest.mark.parametrize("goodbye", GOODBYES.values(), ids=GOODBYES)
def test_however_a_peer_behind_tls_goes_it_has_left(
    secure: Secure, client: Raw, goodbye: Callable[[Raw], None]
) -> None:
    bob = secure.join("bob")
    goodbye(client)
    assert bob.envelope("system/presence")["payload"]["event"] == "leave"
    bob.close()


def test_behind_the_close_frame_the_gateway_says_goodbye_in_tls_too(client: Raw) -> None:
    """Whoever does not hear it cannot tell an end from a cut: Python then raises instead of returning nothing."""
    client.socket.suppress_ragged_eofs = False  # type: ignore[attr-defined]
    client.send(closing(1000))
    received = client.echo()
    assert (received.opcode, received.code) == (CLOSE, 1000)
    assert client.rest() == b""


def test_a_take_over_behind_tls_closes_the_old_socket(secure: Secure, client: Raw) -> None:
    new = secure.join()
    assert client.closed() == 4409
    converse(new, echoed("", TEXT, P + b"mine now"))
    new.close()


def test_a_gateway_behind_tls_that_stops_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("stopping")
    tls, trust = tls_of(directory)
    with running(directory, tls=tls) as gateway:
        client = joined(gateway, tls=trust)
        stopping = gateway.stopping()
        assert client.closed() == 1001
        stopping.result(5)


# A reader that stops reading

SIZES = cycle((100, 1_000, 20_000, 300))
"""One of them is larger than a record of TLS may be."""


def paused_and_losing(gateway: Gateway) -> bool:
    return any(socket.sink.losses for socket in gateway.sockets)


def test_over_wss_what_was_sent_is_what_was_delivered_and_what_was_dropped(
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
    """Write frames of many sizes until somebody loses some, and some more; their number."""
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
    """The numbers that a reader gets, and those of which it is told that it does not, until the last chat."""
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
