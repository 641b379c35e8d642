"""The meaning of an input line, and the output line of a message."""

import json

import msgspec
import pytest

from mew.cli.participate.client import BadLine, Read, encode_message, parse_line
from mew.client import Frame
from mew.protocol.envelope import parse

CHAT = b'{"protocol":"mew/v0.4","id":"1","ts":"2026-01-01T00:00:00Z","from":"a","kind":"chat","payload":{"text":"1.0"}}'


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"chat","payload":{"text":"hello"}}',
        b'{"id":"mine","kind":"x/y","payload":{"n":1.0},"unknown":[1,2]}',
        b"#stream-1#data # more",
    ],
)
def test_an_envelope_and_a_frame_of_an_open_stream_are_sent_unchanged(line: bytes) -> None:
    assert parse_line(b"  " + line + b"\r", {"stream-1"}) == Read(line)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("hello", "hello"),
        ("  two words \r", "two words"),
        ("12", "12"),
        ('"quoted"', '"quoted"'),
        ("[1, 2]", "[1, 2]"),
        ("#hashtag", "#hashtag"),
        ("#stream-9#data", "#stream-9#data"),
        ("héllo", "héllo"),
    ],
)
def test_any_other_line_is_a_chat(line: str, text: str) -> None:
    matches = parse_line(line.encode(), {"stream-1"})
    assert matches is not None
    assert json.loads(matches.message) == {"kind": "chat", "payload": {"text": text}}


@pytest.mark.parametrize("line", [b"", b"   ", b"\r"])
def test_an_empty_line_is_ignored(line: bytes) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize("line", [b'{"text":"hello"}', b'{"kind":1}', b'{"kind":"chat"', b"{}", b"\xff\xfe"])
def test_an_object_that_is_not_an_envelope_is_refused(line: bytes) -> None:
    with pytest.raises(BadLine):
        parse_line(line)


def test_an_envelope_is_written_unchanged() -> None:
    assert encode_message(parse(CHAT)) == CHAT + b"\n"


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (Frame("s", "né".encode()), {"stream_id": "s", "encoding": "text", "data": "né"}),
        (Frame("s", b"\x00\xff", False), {"stream_id": "s", "encoding": "base64", "data": "AP8="}),
        (Frame("s", b"\xff", True), {"stream_id": "s", "encoding": "base64", "data": "/w=="}),
    ],
)
def test_a_frame_is_written_as_in_an_output_log(frame: Frame[None], data: dict[str, str]) -> None:
    assert msgspec.json.decode(encode_message(frame)) == {"frame": data}
