"""The cases of the Autobahn suite, families 1 to 10, that have no counterpart in `test_rfc6455`, by their numbers.

Families 9 (speed), 12 and 13 (compression, which is never negotiated) are omitted. The UTF-8 sequences of family 6 are
tested here only.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from tests.gateway.raw import (
    BINARY,
    CONTINUATION,
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
    running,
)
from tests.gateway.test_rfc6455 import SPACE, Case, P, cases, closed, converse, echoed, open_echo, refused


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("autobahn"), SPACE) as started:
        open_echo(started)
        yield started


@pytest.fixture
def client(gateway: Running) -> Iterator[Raw]:
    connected = joined(gateway)
    yield connected
    connected.close()


def converse_frame_by_frame(client: Raw, case: Case) -> None:
    """Same as `converse`, but each frame is sent separately."""
    *first, last = case.sent
    for part in first:
        client.send(part)
    converse(client, Case(case.name, [last], case.received))


# 2: pings and pongs

TEN = [(frame(PING, b"payload-%d" % n), Frame(PONG, b"payload-%d" % n)) for n in range(10)]
BYTES = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"


@pytest.mark.parametrize("payload", [BYTES, b"\xfe" * 125], ids=["2.3", "2.4"])
def test_a_ping_may_have_bytes_that_are_not_text(client: Raw, payload: bytes) -> None:
    converse(client, Case("", [frame(PING, payload)], [Frame(PONG, payload)]))


def test_ten_pings_byte_by_byte_are_answered_in_order(client: Raw) -> None:
    """2.11."""
    converse(client, Case("", [sent for sent, _ in TEN], [answer for _, answer in TEN]), piecemeal=True)


# 3 and 4: reserved bits and opcodes, after a valid message and before a ping

GOOD = echoed("", TEXT, P + b"Hello, world!")
FAULTS = [
    ("3.2", frame(TEXT, P, reserved=2), False),
    ("3.3", frame(TEXT, P, reserved=3), False),
    ("3.4", frame(TEXT, P, reserved=4), True),
    ("3.7", frame(8, b"\x03\xe8", reserved=7), False),
    *((f"4.{kind}.3", frame(base + 2), False) for kind, base in ((1, 3), (2, 11))),
    *((f"4.{kind}.4", frame(base + 3, P), False) for kind, base in ((1, 3), (2, 11))),
    *((f"4.{kind}.5", frame(base + 4, P), True) for kind, base in ((1, 3), (2, 11))),
]


@pytest.mark.parametrize(("fault", "piecemeal"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS])
def test_a_protocol_error_after_a_valid_message_closes_and_later_pings_are_ignored(
    client: Raw, fault: bytes, piecemeal: bool
) -> None:
    client.send(*GOOD.sent)
    assert client.echo() == GOOD.received[0]
    if piecemeal:
        client.chop(fault)
        assert client.closed() == 1002
    else:
        converse(client, refused("", 1002, [fault, frame(PING, b"too late")]))


# 5: fragments

TWO = echoed("5.4", TEXT, P + b"fragment1fragment2", len(P) + 9)
AROUND_A_PING = [TWO.sent[0], frame(PING, b"ping payload"), TWO.sent[1]]
PONGED = [Frame(PONG, b"ping payload"), *TWO.received]
FIVE = fragments(TEXT, P + b"1", b"2", b"3", b"4", b"5")
TWO_PINGS = [*FIVE[:2], frame(PING, b"one"), *FIVE[2:4], frame(PING, b"two"), FIVE[4]]
TWO_PONGS = [Frame(PONG, b"one"), Frame(PONG, b"two"), Frame(TEXT, P + b"12345")]
WHOLE = frame(TEXT, P + b"Hello, world!")
LAST, MORE = frame(CONTINUATION, b"non-continuation payload"), frame(CONTINUATION, b"payload", fin=False)

IN_FRAGMENTS = [TWO, Case("5.7", AROUND_A_PING, PONGED), Case("5.20", TWO_PINGS, TWO_PONGS)]
OUT_OF_PLACE = [
    refused("5.10", 1002, [LAST, WHOLE]),
    refused("5.13", 1002, [MORE, WHOLE]),
    refused("5.16", 1002, [MORE, WHOLE] * 2),
    refused("5.17", 1002, [LAST, WHOLE] * 2),
]


@cases(IN_FRAGMENTS)
def test_fragments_sent_separately_make_one_message(client: Raw, case: Case) -> None:
    converse_frame_by_frame(client, case)


@cases([Case("5.8", AROUND_A_PING, PONGED), Case("5.19", TWO_PINGS, TWO_PONGS)])
def test_a_ping_between_fragments_sent_byte_by_byte_is_answered_immediately(client: Raw, case: Case) -> None:
    converse(client, case, piecemeal=True)


@cases(OUT_OF_PLACE)
def test_a_continuation_without_a_beginning_closes_before_the_next_message(client: Raw, case: Case) -> None:
    converse(client, case)


@pytest.mark.parametrize("fault", [LAST, MORE], ids=["5.11", "5.14"])
def test_a_continuation_without_a_beginning_closes_byte_by_byte_too(client: Raw, fault: bytes) -> None:
    converse(client, refused("", 1002, [fault]), piecemeal=True)


def test_a_continuation_after_the_last_fragment_closes(client: Raw) -> None:
    """5.15."""
    client.send(*TWO.sent)
    assert client.echo() == TWO.received[0]
    converse(client, refused("", 1002, [MORE, WHOLE]))


# 6.1 to 6.4: text in fragments

KOSME = bytes.fromhex("CEBAE1BDB9CF83CEBCCEB5")
BROKEN = KOSME + b"\xed\xa0\x80edited"
TOO_HIGH = KOSME + b"\xf4\x90\x80\x80edited"


def test_three_empty_fragments_are_an_empty_message_and_do_not_close(client: Raw) -> None:
    """6.1.2. An empty message is not a valid envelope: the answer is an error."""
    client.send(*fragments(TEXT, b"", b"", b""))
    assert client.envelope("system/error")["payload"]["error"] == "invalid_envelope"
    converse(client, GOOD)


def test_empty_fragments_around_a_text_change_nothing(client: Raw) -> None:
    """6.1.3."""
    converse(client, Case("", fragments(TEXT, b"", P + b"middle frame payload", b""),
                          [Frame(TEXT, P + b"middle frame payload")]))  # fmt: skip


def test_a_text_may_be_divided_between_two_characters(client: Raw) -> None:
    """6.2.2."""
    text = P + "Hello-µ@ßöäüàá-".encode()
    converse(client, echoed("", TEXT, text + b"UTF-8!!", len(text)))


def test_text_that_is_not_utf_8_is_refused_in_fragments_of_one_byte(client: Raw) -> None:
    """6.3.2."""
    message = P + BROKEN
    converse(client, refused("", 1007, fragments(TEXT, *(message[n : n + 1] for n in range(len(message))))))


SPLIT = {
    "6.4.1": (P + KOSME, b"\xf4\x90\x80\x80", b"edited"),
    "6.4.2": (P + KOSME + b"\xf4", b"\x90", b"\x80\x80edited"),
}


@pytest.mark.parametrize("parts", SPLIT.values(), ids=SPLIT)
def test_an_invalid_fragment_is_refused_at_the_last_fragment_at_the_latest(client: Raw, parts: Sequence[bytes]) -> None:
    """Autobahn expects an immediate rejection, and rates this as correct but not strict."""
    converse_frame_by_frame(client, refused("", 1007, fragments(TEXT, *parts)))


@pytest.mark.parametrize("cut", [len(KOSME), len(KOSME) + 1], ids=["6.4.3", "6.4.4"])
def test_an_invalid_text_frame_is_refused_at_its_last_byte_at_the_latest(client: Raw, cut: int) -> None:
    data = frame(TEXT, P + TOO_HIGH)
    edge = len(data) - len(TOO_HIGH) + cut
    client.send(data[:edge])
    converse(client, refused("", 1007, [data[edge:]]))


# 6.5 to 6.23: valid and invalid UTF-8


def hexes(text: str) -> list[bytes]:
    return [bytes.fromhex(word) for word in text.split()]


def each_with_a_space(first: int, last: int) -> bytes:
    return b"".join(bytes((start, 0x20)) for start in range(first, last + 1))


CUT_OFF = hexes("C0 E080 F08080 F8808080 FC80808080 DF EFBF F7BFBF FBBFBFBF FDBFBFBFBF")
HIGH, LOW = hexes("EDA080 EDADBF EDAE80 EDAFBF"), hexes("EDB080 EDBFBF")
SEQUENCES: dict[str, list[bytes]] = {
    "6.5": [*(b"hello%bworld" % character for character in hexes("24 C2A2 E282AC F0A4ADA2")), KOSME],
    "6.6": [KOSME[:n] for n in range(1, len(KOSME) + 1)],
    "6.7": hexes("00 C280 E0A080 F0908080"),
    "6.8": hexes("F888808080 FC8480808080"),
    "6.9": hexes("7F DFBF EFBFBF F48FBFBF"),
    "6.10": hexes("F7BFBFBF FBBFBFBFBF FDBFBFBFBFBF"),
    "6.11": hexes("ED9FBF EE8080 EFBFBD F48FBFBF F4908080"),
    "6.12": [*((b"\x80\xbf" * 3)[:n] for n in range(1, 7)), b"\xbf", bytes(range(0x80, 0xC0))],
    "6.13": [each_with_a_space(*ends) for ends in hexes("C0DF E0EF F0F7 F8FB FCFD")],
    "6.14": CUT_OFF,
    "6.15": [b"".join(CUT_OFF)],
    "6.16": hexes("FE FF FEFEFFFF"),
    "6.17": hexes("C0AF E080AF F08080AF F8808080AF FC80808080AF"),
    "6.18": hexes("C1BF E09FBF F08FBFBF F887BFBFBF FC83BFBFBFBF"),
    "6.19": hexes("C080 E08080 F0808080 F880808080 FC8080808080"),
    "6.20": [*HIGH, *hexes("EDB080 EDBE80 EDBFBF")],
    "6.21": [high + low for high, low in product(HIGH, LOW)],
    "6.22": [chr(plane << 16 | last).encode() for plane in range(17) for last in (0xFFFE, 0xFFFF)],
    "6.23": [chr(code).encode() for code in range(0xFFF9, 0x10000)],
}  # fmt: skip
VALID = {"6.5", "6.7", "6.9", "6.22", "6.23"}
"""Families all of whose sequences are UTF-8; of 6.6 and 6.11 some are."""
SOME_VALID = {"6.6": {2, 5, 7, 9, 11}, "6.11": {1, 2, 3, 4}}
NUMBERED = [
    pytest.param(text, family in VALID or number in SOME_VALID.get(family, ()), id=f"{family}.{number}")
    for family, texts in SEQUENCES.items()
    for number, text in enumerate(texts, 1)
]


@pytest.mark.parametrize(("text", "valid"), NUMBERED)
def test_a_text_is_accepted_if_and_only_if_it_is_utf_8(client: Raw, text: bytes, valid: bool) -> None:
    converse(client, echoed("", TEXT, P + text) if valid else refused("", 1007, [frame(TEXT, P + text)]))


def test_there_are_as_many_sequences_as_autobahn_has() -> None:
    assert len(NUMBERED) == 132


# 7: closing


def test_a_message_that_a_close_interrupts_is_never_delivered(gateway: Running, client: Raw) -> None:
    """7.1.5."""
    bob = joined(gateway, "bob")
    converse(client, Case("", [TWO.sent[0], closing(1000), TWO.sent[1]], closed(1000)))
    assert bob.envelope("system/presence")["payload"]["event"] == "leave"
    converse(bob, Case("", []))
    bob.close()


@pytest.mark.parametrize("size", [5, 60_000], ids=["7.1.1", "7.1.6"])
def test_a_message_in_one_packet_with_a_close_is_echoed_before_the_close_is_answered(client: Raw, size: int) -> None:
    message = P + b"*" * size
    client.send(frame(TEXT, message), closing(1000))
    assert client.echo() == Frame(TEXT, message)
    assert client.closed() == 1000


# 10: fragments as a library creates them


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_message_of_64_kib_arrives_whole_in_fragments_of_1300_bytes(client: Raw, opcode: int) -> None:
    """10.1.1."""
    message = (P + b"*" * 65536)[:65536]
    converse(client, echoed("", opcode, message, *range(1300, 65536, 1300)))
