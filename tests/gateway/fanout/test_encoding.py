"""Frames of the server have the shortest length and are never masked; all readers get the same bytes."""

import pytest

from mew.gateway.fanout.encoding import encode, pong


@pytest.mark.parametrize(
    ("size", "length"),
    [
        (0, b"\x00"),
        (1, b"\x01"),
        (125, b"\x7d"),
        (126, b"\x7e\x00\x7e"),
        (65535, b"\x7e\xff\xff"),
        (65536, b"\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
@pytest.mark.parametrize(("text", "first"), [(True, b"\x81"), (False, b"\x82")])
def test_a_message_is_one_final_frame_with_the_shortest_length(
    size: int, length: bytes, text: bool, first: bytes
) -> None:
    message = b"*" * size
    assert encode(message, text=text) == first + length + message


def test_a_message_is_text_by_default() -> None:
    assert encode(b"{}") == b"\x81\x02{}"


@pytest.mark.parametrize("size", [0, 1, 125])
def test_a_pong_has_the_payload_of_the_ping(size: int) -> None:
    payload = b"*" * size
    assert pong(payload) == bytes((0x8A, size)) + payload
