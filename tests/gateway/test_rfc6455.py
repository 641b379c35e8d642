"""WebSocket according to RFC 6455, byte by byte, in the families of the Autobahn suite.

A frame of a stream that its writer also reads is the echo: it comes back unchanged, with the same opcode.
`tests/compat/test_autobahn.py` has the UTF-8 sequences, `test_tls.py` the same conversations over TLS.
"""

import hashlib
import logging
import struct
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from mew.config.models import Timeouts
from mew.protocol import Limits
from mew.protocol.settings import StreamSettings
from tests.gateway.raw import (
    BINARY,
    CLOSE,
    CONTINUATION,
    KEY,
    MASK,
    PING,
    PONG,
    TEXT,
    UPGRADE,
    Frame,
    Raw,
    Running,
    closing,
    fragments,
    frame,
    head,
    joined,
    length_of,
    masked,
    running,
    unmasked,
    upgrade,
)

LARGEST = 256 * 1024
MARGIN = 64 * 1024
P = b"#echo#"
# The same participant joins for every case, faster than the usual budget of work allows.
LIMITS = Limits(message_bytes=LARGEST, work_per_second=10**9, work_burst=10**9)
SPACE = {"streams": StreamSettings(owner_grace_seconds=600), "limits": LIMITS}
SHORT = 0.5


def open_echo(gateway: Running, **options: Any) -> None:
    """Open alice's stream, which stays open while she is disconnected."""
    alice = joined(gateway, **options)
    assert alice.open_stream() == P
    alice.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("gateway"), SPACE) as started:
        open_echo(started)
        yield started


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway with short time-outs."""
    times = Timeouts(handshake_seconds=SHORT, idle_seconds=SHORT, close_seconds=SHORT)
    with running(tmp_path_factory.mktemp("impatient"), SPACE, timeouts=times) as started:
        yield started


@pytest.fixture
def client(gateway: Running) -> Iterator[Raw]:
    connected = joined(gateway)
    yield connected
    connected.close()


class Case(msgspec.Struct, frozen=True):
    """The bytes to send, and the frames that must come back."""

    name: str
    sent: Sequence[bytes]
    received: Sequence[Frame] = ()


def fill(size: int) -> bytes:
    """A frame message of this size for the stream."""
    return (P + b"*" * size)[:size]


def closed(code: int) -> Sequence[Frame]:
    return [Frame(CLOSE, struct.pack(">H", code))]


def refused(name: str, code: int, sent: Sequence[bytes]) -> Case:
    return Case(name, sent, closed(code))


def echoed(name: str, opcode: int, message: bytes, *parts: int) -> Case:
    """A message that comes back in one frame; `parts` are the ends of the fragments in which it is sent."""
    edges = [0, *parts, len(message)]
    sent = fragments(opcode, *(message[start:end] for start, end in pairwise(edges)))
    return Case(name, sent, [Frame(opcode, message)])


def converse(client: Raw, case: Case, *, piecemeal: bool = False) -> None:
    """Send the bytes of a case and compare the frames that come back; an open connection must still answer a ping."""
    if piecemeal:
        client.chop(b"".join(case.sent))
    else:
        client.send(*case.sent)
    for expected in case.received:
        if expected.opcode == CLOSE:
            assert client.closed() == expected.code
            return
        assert client.echo() == expected
    client.send(frame(PING, b"still there?"))
    assert client.echo() == Frame(PONG, b"still there?")


def cases(*families: Sequence[Case]) -> pytest.MarkDecorator:
    listed = [case for family in families for case in family]
    return pytest.mark.parametrize("case", listed, ids=[case.name for case in listed])


OPCODES = {"text": TEXT, "binary": BINARY}

# Framing

SIZES = (30, 125, 126, 127, 128, 65535, 65536, 65537, LARGEST)
FRAMING = [echoed(f"{kind} of {size} bytes", opcode, fill(size)) for kind, opcode in OPCODES.items() for size in SIZES]
EMPTY = [Case(f"{kind} of {size} bytes", [frame(opcode, b"*" * size)], [])
         for kind, opcode in OPCODES.items() for size in (0, 1)]  # fmt: skip


@cases(FRAMING)
def test_a_message_of_any_size_arrives_whole(client: Raw, case: Case) -> None:
    converse(client, case)


@cases([case for case in FRAMING if "65" not in case.name and str(LARGEST) not in case.name])
def test_a_message_sent_byte_by_byte_arrives_whole(client: Raw, case: Case) -> None:
    converse(client, case, piecemeal=True)


@cases(EMPTY)
def test_an_empty_message_is_answered_with_an_error_and_does_not_close(client: Raw, case: Case) -> None:
    client.send(*case.sent)
    assert client.envelope("system/error")["payload"]["error"] == "invalid_envelope"
    converse(client, case)


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("size", [65535, 65536])
def test_a_large_message_arrives_whole_in_pieces_of_997_bytes(client: Raw, opcode: int, size: int) -> None:
    message = fill(size)
    data = frame(opcode, message)
    for start in range(0, len(data), 997):
        client.send(data[start : start + 997])
    assert client.echo() == Frame(opcode, message)


@pytest.mark.parametrize("mask", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\1\2\3\4", b"\0\0\0\1"])
def test_any_mask_is_removed(client: Raw, mask: bytes) -> None:
    message = P + bytes(range(256))
    client.send(frame(BINARY, message, mask=mask))
    assert client.echo() == Frame(BINARY, message)


def test_many_messages_in_one_packet_arrive_in_order(client: Raw) -> None:
    client.send(*(frame(TEXT, b"%b%d" % (P, n)) for n in range(1000)))
    assert [client.echo().payload for _ in range(1000)] == [b"%b%d" % (P, n) for n in range(1000)]


def misstated(opcode: int, size: int, form: Literal[16, 64], declared: int) -> bytes:
    payload = b"*" * size
    return bytes((0x80 | opcode,)) + length_of(declared, form, masked=True) + MASK + masked(payload)


LENGTHS = [
    refused("125 bytes in 16 bits", 1002, [misstated(TEXT, 125, 16, 125)]),
    refused("0 bytes in 16 bits", 1002, [misstated(BINARY, 0, 16, 0)]),
    refused("65535 bytes in 64 bits", 1002, [misstated(TEXT, 0, 64, 65535)]),
    refused("125 bytes in 64 bits", 1002, [misstated(BINARY, 125, 64, 125)]),
    refused("more than 63 bits", 1002, [misstated(TEXT, 0, 64, 1 << 63)]),
    refused("all 64 bits", 1002, [misstated(TEXT, 0, 64, (1 << 64) - 1)]),
]


@cases(LENGTHS)
def test_a_length_that_is_not_in_its_shortest_form_closes(client: Raw, case: Case) -> None:
    converse(client, case)


UNMASKED = [
    refused(f"unmasked {name}", 1002, [unmasked(opcode, b"hello")])
    for name, opcode in {**OPCODES, "ping": PING, "pong": PONG, "continuation": CONTINUATION}.items()
] + [refused("unmasked close", 1002, [unmasked(CLOSE, struct.pack(">H", 1000))])]


@cases(UNMASKED)
def test_an_unmasked_frame_closes(client: Raw, case: Case) -> None:
    converse(client, case)


# Pings and pongs

PINGS = [
    Case(f"ping of {size} bytes", [frame(PING, bytes(range(size)))],
         [Frame(PONG, bytes(range(size)))])
    for size in (0, 1, 12, 124, 125)
]  # fmt: skip
PONGS = [
    Case(f"pong of {size} bytes", [frame(PONG, b"*" * size)], []) for size in (0, 1, 125)
] + [
    Case("pong, then ping", [frame(PONG, b"1"), frame(PING, b"2")], [Frame(PONG, b"2")]),
    Case("ping within a message",
         [frame(TEXT, P + b"one ", fin=False), frame(PING, b"here"), frame(CONTINUATION, b"two")],
         [Frame(PONG, b"here"), Frame(TEXT, P + b"one two")]),
    Case("pong within a message",
         [frame(BINARY, P + b"one ", fin=False), frame(PONG, b"here"), frame(CONTINUATION, b"two")],
         [Frame(BINARY, P + b"one two")]),
    Case("pings without end",
         [frame(PING, b"%d" % n) for n in range(50)],
         [Frame(PONG, b"%d" % n) for n in range(50)]),
]  # fmt: skip
CONTROL = [
    refused(f"{name} of {size} bytes", 1002, [frame(opcode, b"*" * size)])
    for name, opcode in {"ping": PING, "pong": PONG, "close": CLOSE}.items()
    for size in (126, 65536)
] + [
    refused(f"{name} in fragments", 1002, [frame(opcode, b"he", fin=False), frame(CONTINUATION, b"re")])
    for name, opcode in {"ping": PING, "pong": PONG, "close": CLOSE}.items()
]


@cases(PINGS, PONGS)
def test_a_ping_is_answered_and_a_pong_is_not(client: Raw, case: Case) -> None:
    converse(client, case)


@cases(PINGS)
def test_a_ping_sent_byte_by_byte_is_answered(client: Raw, case: Case) -> None:
    converse(client, case, piecemeal=True)


@cases(CONTROL)
def test_a_long_or_fragmented_control_frame_closes(client: Raw, case: Case) -> None:
    converse(client, case)


def test_a_ping_is_answered_before_the_join(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(), frame(PING, b"first of all"))
    assert client.answer().status == 101
    assert client.frame() == Frame(PONG, b"first of all")
    client.close()


# Reserved bits and opcodes

RESERVED = [
    refused(f"bits {bits:03b} of a {name}", 1002, [frame(opcode, P, reserved=bits)])
    for bits in range(1, 8)
    for name, opcode in {**OPCODES, "ping": PING}.items()
] + [
    refused("bits 100 of a pong", 1002, [frame(PONG, reserved=4)]),
    refused("bits 100 of a close", 1002, [frame(CLOSE, struct.pack(">H", 1000), reserved=4)]),
    refused("bits 001 of a continuation", 1002,
            [frame(TEXT, P, fin=False), frame(CONTINUATION, b"x", reserved=1)]),
    Case("a good message, then bits 010", [frame(TEXT, P + b"good"), frame(TEXT, P, reserved=2)],
         closed(1002)),
]  # fmt: skip
UNKNOWN = [
    refused(f"opcode {opcode}{name}", 1002, [frame(opcode, b"*" * size)])
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    for name, size in ((" with nothing", 0), (" with a payload", 5))
]


@cases(RESERVED)
def test_a_frame_with_reserved_bits_closes(client: Raw, case: Case) -> None:
    converse(client, case)


@cases(UNKNOWN)
def test_an_unknown_opcode_closes(client: Raw, case: Case) -> None:
    converse(client, case)


def test_nothing_is_sent_after_the_close_that_answers_a_protocol_error(client: Raw) -> None:
    client.send(frame(PING, b"answered too late"), frame(7))
    assert client.closed() == 1002


def test_frames_after_a_protocol_error_are_ignored_and_logged_once(
    client: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mew.sockets")
    client.send(frame(7))
    assert client.echo().code == 1002
    with suppress(OSError):
        for _ in range(100):
            client.send(frame(7))
    assert client.rest() == b""
    lines = [record.getMessage() for record in caplog.records if record.name == "mew.sockets"]
    assert len([line for line in lines if "1002" in line]) == 1


def test_a_message_before_a_protocol_error_is_delivered_and_later_ones_are_not(gateway: Running, client: Raw) -> None:
    bob = joined(gateway, "bob")
    client.send(frame(TEXT, P + b"good"), frame(7, b"bad"), frame(TEXT, P + b"too late"))
    assert client.closed() == 1002
    assert bob.echo() == Frame(TEXT, P + b"good")
    assert bob.envelope("system/presence")["payload"]["event"] == "leave"
    bob.close()


# Fragments

FRAGMENTS = [
    echoed("two", TEXT, P + b"hello", 20),
    echoed("two, binary", BINARY, P + b"\xff\xfe\xfd", 20),
    echoed("cut within the stream's name", TEXT, P + b"hello", 1, 2, 3),
    echoed("three", TEXT, P + b"hello", 20, 22),
    echoed("a hundred of one byte", TEXT, fill(100), *range(1, 100)),
    echoed("two large ones", BINARY, fill(140_000), 70_000),
    echoed("a large and a small one", TEXT, fill(70_001), 70_000),
    echoed("empty first", TEXT, P + b"hello", 0),
    echoed("empty last", TEXT, P + b"hello", 10_000),
    echoed("empty between", BINARY, P + b"hello", 3, 3, 3),
    echoed("full size", TEXT, fill(LARGEST), *range(20_000, LARGEST, 20_000)),
    Case("two messages", [*fragments(TEXT, P, b"1"), *fragments(BINARY, P, b"2", b"3")],
         [Frame(TEXT, P + b"1"), Frame(BINARY, P + b"23")]),
    Case("ten thousand empty ones", fragments(TEXT, P, *[b""] * 10_000, b"end"),
         [Frame(TEXT, P + b"end")]),
    Case("pings between all",
         [frame(TEXT, P, fin=False), frame(PING, b"1"), frame(CONTINUATION, b"a", fin=False),
                    frame(PING, b"2"), frame(CONTINUATION, b"b")],
         [Frame(PONG, b"1"), Frame(PONG, b"2"), Frame(TEXT, P + b"ab")]),
    Case("close within a message", [frame(TEXT, P, fin=False), closing(1000)], closed(1000)),
]  # fmt: skip
BROKEN = [
    refused("a last fragment of nothing", 1002, [frame(CONTINUATION, b"x")]),
    refused("a fragment of nothing", 1002, [frame(CONTINUATION, b"x", fin=False)]),
    refused("an empty fragment of nothing", 1002, [frame(CONTINUATION)]),
    refused("a fragment after the last", 1002, [*fragments(TEXT, b"", P), frame(CONTINUATION, b"x")]),
    refused("text within text", 1002, [frame(TEXT, P, fin=False), frame(TEXT, P)]),
    refused("binary within text", 1002, [frame(TEXT, P, fin=False), frame(BINARY, P)]),
    refused("text within binary", 1002, [frame(BINARY, P, fin=False), frame(TEXT, P)]),
    refused("fragments within fragments", 1002, [frame(TEXT, P, fin=False)] * 2),
]


@cases(FRAGMENTS)
def test_fragments_make_one_message(client: Raw, case: Case) -> None:
    converse(client, case)


@cases(FRAGMENTS[:5])
def test_fragments_sent_byte_by_byte_make_one_message(client: Raw, case: Case) -> None:
    converse(client, case, piecemeal=True)


@cases(BROKEN)
def test_fragments_out_of_order_close(client: Raw, case: Case) -> None:
    converse(client, case)


# UTF-8

VALID = {
    "two bytes": "ä".encode(),
    "three bytes": "κόσμε€".encode(),
    "four bytes": "𝄞😀".encode(),
    "all lengths": "a\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff".encode(),
    "zero": b"\0",
    "last before the surrogates": b"\xed\x9f\xbf",
    "first after the surrogates": b"\xee\x80\x80",
    "no character, yet a code point": b"\xef\xbf\xbe\xf4\x8f\xbf\xbf",
    "replacement character": b"\xef\xbf\xbd",
}
INVALID = {
    "a continuation alone": b"\x80",
    "a run of continuations": b"\x80\xbf\x80",
    "a start alone": b"\xc3 ",
    "two of three bytes": b"\xe2\x82 ",
    "three of four bytes": b"\xf0\x9f\x98 ",
    "two bytes cut off at the end": b"\xc3",
    "three bytes cut off at the end": b"\xe2\x82",
    "four bytes cut off at the end": b"\xf0\x9f\x98",
    "overlong in two bytes": b"\xc0\xaf",
    "overlong in three bytes": b"\xe0\x80\xaf",
    "overlong in four bytes": b"\xf0\x80\x80\xaf",
    "overlong zero": b"\xc0\x80",
    "first surrogate": b"\xed\xa0\x80",
    "last surrogate": b"\xed\xbf\xbf",
    "a pair of surrogates": b"\xed\xa0\xb4\xed\xb4\x9e",
    "over the last code point": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "six bytes": b"\xfc\x84\x80\x80\x80\x80",
    "FE": b"\xfe",
    "FF": b"\xff",
    "after valid text": "κόσμε".encode() + b"\xed\xa0\x80edited",
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_a_character_may_be_divided_by_fragments(client: Raw, text: bytes) -> None:
    client.send(*fragments(TEXT, P, *(text[n : n + 1] for n in range(len(text)))))
    assert client.echo() == Frame(TEXT, P + text)


@pytest.mark.parametrize("text", [b"\xe2\x82 ", b"\xf0\x9f\x98 "], ids=["two of three bytes", "three of four bytes"])
def test_a_character_that_a_space_interrupts_is_refused(client: Raw, text: bytes) -> None:
    converse(client, refused("", 1007, [frame(TEXT, P + text)]))


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_fragments_that_are_not_utf_8_are_refused(client: Raw, text: bytes) -> None:
    converse(client, refused("", 1007, fragments(TEXT, P, text[:1], text[1:])))


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_a_binary_message_may_have_any_bytes(client: Raw, text: bytes) -> None:
    converse(client, echoed("", BINARY, P + text, 20))


def test_an_envelope_that_is_not_utf_8_is_refused(client: Raw) -> None:
    client.send(frame(TEXT, b'{"kind":"chat","payload":{"text":"\xff"}}'))
    assert client.closed() == 1007


def test_a_join_that_is_not_utf_8_is_refused(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(), frame(TEXT, b'{"type":"join","token":"\xff"}'))
    assert client.answer().status == 101
    assert client.closed() == 1007


# Closing

GOOD_CODES = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999)
BAD_CODES = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)
CLOSINGS = [
    *(Case(f"code {code}", [closing(code)], closed(code)) for code in GOOD_CODES),
    Case("no code", [closing()], closed(1000)),
    Case("a reason", [closing(1000, b"the end")], closed(1000)),
    Case("a reason beyond ASCII", [closing(1000, "κόσμε".encode())], closed(1000)),
    Case("the longest reason", [closing(1000, b"*" * 123)], closed(1000)),
    *(refused(f"code {code}, which is not allowed", 1002, [closing(code)]) for code in BAD_CODES),
    refused("half a code", 1002, [frame(CLOSE, b"\x03")]),
    refused("a reason that is not UTF-8", 1007, [closing(1000, b"\xce\xba\xed\xa0\x80")]),
    refused("a reason that is cut off", 1007, [closing(1000, b"\xe2\x82")]),
    Case("text after it", [closing(1000), frame(TEXT, P)], closed(1000)),
    Case("a ping after it", [closing(1000), frame(PING)], closed(1000)),
]  # fmt: skip


@cases(CLOSINGS)
def test_a_close_is_answered(client: Raw, case: Case) -> None:
    converse(client, case)


@cases(CLOSINGS[:18])
def test_a_close_sent_byte_by_byte_is_answered(client: Raw, case: Case) -> None:
    converse(client, case, piecemeal=True)


def test_data_after_a_close_has_no_effect(gateway: Running, client: Raw) -> None:
    bob = joined(gateway, "bob")
    client.send(closing(1000), frame(TEXT, P + b"too late"))
    assert client.closed() == 1000
    assert bob.envelope("system/presence")["payload"]["event"] == "leave"
    bob.send(frame(PING))
    assert bob.echo() == Frame(PONG)
    bob.close()


def test_a_peer_that_disconnects_without_a_close_has_left(gateway: Running, client: Raw) -> None:
    bob = joined(gateway, "bob")
    client.close()
    assert bob.envelope("system/presence")["payload"]["event"] == "leave"
    bob.close()


def test_a_peer_that_does_not_answer_a_close_is_disconnected(tmp_path: Path) -> None:
    with running(tmp_path, timeouts=Timeouts(close_seconds=SHORT)) as gateway:
        old = joined(gateway)
        since = time.monotonic()
        new = joined(gateway)
        received = old.echo()
        assert (received.opcode, received.code) == (CLOSE, 4409)
        assert old.rest() == b""
        assert time.monotonic() - since >= SHORT * 0.9
        new.close()


def test_a_peer_that_answers_a_close_is_disconnected_immediately(gateway: Running) -> None:
    old, new = joined(gateway), joined(gateway)
    assert old.echo().code == 4409
    old.send(frame(TEXT, b"not heard"), closing(4409))
    assert old.rest() == b""
    new.close()


def test_a_peer_that_neither_reads_nor_answers_is_disconnected(tmp_path: Path) -> None:
    """Bytes that it never reads still wait to be sent, so a regular end would never come."""
    with running(
        tmp_path, timeouts=Timeouts(close_seconds=2)
    ) as gateway:  # long enough to see it before it is disconnected
        old, bob = joined(gateway, buffer=4096), joined(gateway, "bob")
        prefix = bob.open_stream()
        while not gateway.ask(lambda gateway: any(socket.sink.paused for socket in gateway.sockets)):
            bob.send(frame(BINARY, prefix + bytes(60_000)))
            bob.echo()
        new = joined(gateway)
        assert gateway.ask(lambda gateway: len(gateway.sockets)) == 3
        gateway.until(lambda gateway: len(gateway.sockets) == 2)
        for connection in (old, new, bob):
            connection.close()


# Limits

PAST = LARGEST + 1


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("size", [PAST, LARGEST + MARGIN])
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_a_message_over_the_limit_gets_an_error_and_closes(client: Raw, opcode: int, size: int, parts: int) -> None:
    message = fill(size)
    step = -(-size // parts)
    client.send(*fragments(opcode, *(message[n : n + step] for n in range(0, size, step))))
    assert client.envelope("system/error")["payload"]["error"] == "message_too_large"
    assert client.closed() == 1009


@pytest.mark.parametrize("size", [LARGEST + MARGIN + 1, 1 << 32, (1 << 63) - 1])
def test_a_frame_far_over_the_limit_is_refused_before_its_payload_arrives(client: Raw, size: int) -> None:
    client.send(bytes((0x80 | BINARY,)), length_of(size), MASK)
    assert client.closed() == 1009


def test_too_many_fragments_are_refused_before_the_last(client: Raw) -> None:
    client.send(frame(TEXT, b"*" * 60_000, fin=False), *[frame(CONTINUATION, b"*" * 60_000, fin=False)] * 4)
    assert client.envelope("system/error")["payload"]["error"] == "message_too_large"
    assert client.closed() == 1009


def test_a_text_that_the_limit_truncates_is_too_large_and_not_invalid(client: Raw) -> None:
    client.send(frame(TEXT, fill(LARGEST), fin=False), frame(CONTINUATION, "€".encode()[:1], fin=False))
    assert client.envelope("system/error")["payload"]["error"] == "message_too_large"
    assert client.closed() == 1009


def test_a_frame_refused_by_its_length_is_not_accepted_later(gateway: Running, client: Raw) -> None:
    bob = joined(gateway, "bob")
    message = fill(LARGEST + MARGIN + 1)
    data = frame(BINARY, message)
    client.send(data[:14])
    assert client.echo().code == 1009
    with suppress(ConnectionResetError, BrokenPipeError):  # it may be disconnected already
        client.send(data[14:])
    assert bob.envelope("system/presence")["payload"] is not None
    bob.send(frame(PING))
    assert bob.echo() == Frame(PONG)
    bob.close()


# The upgrade request


def test_the_answer_has_the_accept_value_of_the_key(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(upgrade())
    answer = client.answer()
    accepted = b64encode(hashlib.sha1(KEY.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
    assert (answer.status, answer.headers["sec-websocket-accept"]) == (101, accepted)
    assert (answer.headers["upgrade"].lower(), answer.headers["connection"].lower()) == ("websocket", "upgrade")
    client.close()


@pytest.mark.parametrize(
    "connection", ["Upgrade", "upgrade", "UPGRADE", "keep-alive, Upgrade", "Upgrade, keep-alive", "keep-alive,upgrade"]
)
def test_the_connection_header_is_a_list_in_any_letter_case(gateway: Running, connection: str) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(Connection=connection))
    assert client.answer().status == 101
    client.close()


def test_the_connection_header_may_be_repeated(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(Connection="Upgrade\r\nConnection: keep-alive"))
    assert client.answer().status == 101
    client.close()


@pytest.mark.parametrize("path", ["/", "/ws", "/health", "/a/b/c?x=1", "//", "//[::", "/%ff%00", "/?space=lab&space=x"])
def test_any_path_is_accepted(gateway: Running, path: str) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(path, Authorization=f"Bearer {gateway.token('alice')}"))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    client.close()


@pytest.mark.parametrize("chopped", [False, True])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_join_in_the_same_packet_as_the_request_is_answered(gateway: Running, opcode: int, chopped: bool) -> None:
    client = Raw(gateway.port)
    join = msgspec.json.encode({"type": "join", "token": gateway.token("alice")})
    data = upgrade() + frame(opcode, join) + frame(PING, b"and this")
    if chopped:
        client.chop(data)
    else:
        client.send(data)
    assert client.answer().status == 101
    received = [client.frame(), client.frame()]
    assert Frame(PONG, b"and this") in received
    assert any(b"system/welcome" in message.payload for message in received)
    client.close()


def test_a_large_join_in_the_same_packet_as_the_request_is_not_lost(gateway: Running) -> None:
    client = Raw(gateway.port)
    join = {"type": "join", "token": gateway.token("alice"), "payload": {"filling": "*" * 30_000}}
    client.send(upgrade(), frame(TEXT, msgspec.json.encode(join)))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    client.close()


@pytest.mark.parametrize("version", ["12", "14", "0", "7", "8", "-1", "thirteen", "13, 8", None])
def test_another_version_is_refused_with_the_supported_one(gateway: Running, version: str | None) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(Sec_WebSocket_Version=version))
    answer = client.answer()
    assert (answer.status, answer.headers["sec-websocket-version"]) == (426, "13")
    assert answer.json["error"] == "invalid_request"
    assert client.rest() == b""


@pytest.mark.parametrize("key", ["", "short", "*" * 24, KEY[:-4], KEY + KEY, None])
def test_a_wrong_key_is_refused(gateway: Running, key: str | None) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(Sec_WebSocket_Key=key))
    assert client.answer().status == 400
    assert client.rest() == b""


@pytest.mark.parametrize(
    "request_head",
    [
        head("/", UPGRADE, "POST"),
        head("/", UPGRADE, "PUT"),
        head("/", UPGRADE).replace(b"HTTP/1.1", b"HTTP/1.0"),
        head("/", {**UPGRADE, "Content-Length": "5"}) + b"hello",
        head("/", {**UPGRADE, "Transfer-Encoding": "chunked"}) + b"0\r\n\r\n",
    ],
    ids=["POST", "PUT", "HTTP/1.0", "a body", "a chunked body"],
)
def test_only_a_get_without_a_body_is_upgraded(gateway: Running, request_head: bytes) -> None:
    client = Raw(gateway.port)
    client.send(request_head)
    answer = client.answer()
    assert (answer.status, answer.json["error"]) == (400, "invalid_request")
    assert client.rest() == b""


@pytest.mark.parametrize(
    "offer",
    [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; server_no_context_takeover, x-webkit-deflate-frame",
    ],
)
def test_compression_is_never_negotiated(gateway: Running, offer: str) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(Sec_WebSocket_Extensions=offer))
    answer = client.answer()
    assert answer.status == 101
    assert "sec-websocket-extensions" not in answer.headers
    client.close()


# Endless heads, and peers that are too slow


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", upgrade()[:-2], b"\r\n"],
    ids=["nothing", "a letter", "half a head", "all but the last line's end", "an empty line"],
)
def test_a_peer_whose_head_does_not_arrive_in_time_is_disconnected(impatient: Running, sent: bytes) -> None:
    since = time.monotonic()
    client = Raw(impatient.port)
    client.send(sent)
    assert client.rest() == b""
    assert time.monotonic() - since >= SHORT * 0.9


@pytest.mark.parametrize("sent", [b"GET /", b"\r\n"], ids=["half a line", "an empty line"])
def test_a_peer_whose_second_head_does_not_arrive_in_time_is_disconnected(impatient: Running, sent: bytes) -> None:
    client = Raw(impatient.port)
    client.socket.settimeout(SHORT * 5)
    client.send(head("/health", {"Host": "localhost"}))
    assert client.answer().status == 200
    client.send(sent)
    assert client.rest() == b""


def test_a_peer_that_sends_its_head_byte_by_byte_is_disconnected(impatient: Running) -> None:
    """Each byte arrives in time, but the complete head does not."""
    since = time.monotonic()
    client = Raw(impatient.port)
    client.socket.settimeout(0.05)
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        for byte in upgrade()[:-2] * 10:
            client.send(bytes((byte,)))
            try:
                if client.socket.recv(1) == b"":
                    raise ConnectionResetError
            except TimeoutError:
                continue
    assert SHORT * 0.9 <= time.monotonic() - since < 5  # the complete head would take a minute
    client.close()


@pytest.mark.parametrize(
    "flood",
    [
        b"GET /" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(20_000)),
        b"\r\n" * 100_000,
        upgrade()[:-2] + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
    ids=["target", "header", "header's name", "headers", "empty lines", "upgrade"],
)
def test_an_endless_head_is_refused(gateway: Running, flood: bytes) -> None:
    client = Raw(gateway.port)
    client.send(flood)
    answer = client.answer()
    assert (answer.status, answer.json["error"]) == (431, "invalid_request")
    client.close()


def test_too_many_headers_are_refused(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(head("/health", {"Host": "localhost", **{f"X-{n}": "1" for n in range(100)}}))
    assert client.answer().status == 431
    assert client.rest() == b""


@pytest.mark.parametrize(("size", "status"), [(20_000, 101), (40_000, 431)])
def test_an_upgrade_request_too_long_for_the_library_is_answered(gateway: Running, size: int, status: int) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(Authorization="*" * size))
    assert client.answer().status == status
    if status == 431:
        assert client.rest() == b""
    client.close()


def test_headers_that_the_gateway_ignores_may_be_longer(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(Cookie="*" * 20_000))
    assert client.answer().status == 101
    client.close()


def test_a_peer_whose_body_does_not_arrive_is_disconnected(impatient: Running) -> None:
    client = Raw(impatient.port)
    headers = {"Host": "localhost", "Content-Length": "10", "Authorization": f"Bearer {impatient.token('alice')}"}
    client.send(head("/participants/alice/messages", headers, "POST"), b"{")
    assert client.rest() == b""


def test_a_peer_that_never_joins_is_closed(impatient: Running) -> None:
    since = time.monotonic()
    client = Raw(impatient.port)
    client.send(upgrade())
    assert client.answer().status == 101
    assert client.closed() == 1008
    assert time.monotonic() - since >= SHORT * 0.9


def test_pings_and_half_a_message_do_not_replace_a_join(impatient: Running) -> None:
    client = Raw(impatient.port)
    client.send(upgrade(), frame(PING, b"1"), frame(TEXT, b'{"type":', fin=False))
    assert client.answer().status == 101
    assert client.frame() == Frame(PONG, b"1")
    assert client.closed() == 1008


def test_a_silent_peer_is_pinged_and_stays_while_it_answers(impatient: Running) -> None:
    client = joined(impatient)
    for _ in range(2):
        ping = client.echo()
        assert ping.opcode == PING
        client.send(frame(PONG, ping.payload))
    client.close()


def test_a_peer_that_does_not_answer_a_ping_is_closed(impatient: Running) -> None:
    client = joined(impatient)
    assert client.echo().opcode == PING
    assert client.closed() == 1001
