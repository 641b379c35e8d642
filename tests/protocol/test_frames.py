"""Frames: building, recognition and parsing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol.errors import InvalidEnvelope
from mew.protocol.frames import build_frame, frame_body, frame_header, is_frame, split_frame


@given(stream_id=st.text(min_size=1).filter(lambda text: "#" not in text), payload=st.binary())
def test_a_built_frame_is_parsed_again(stream_id: str, payload: bytes) -> None:
    message = build_frame(stream_id, payload)
    assert is_frame(message)
    assert message.startswith(frame_header(stream_id))
    assert split_frame(message) == (stream_id, payload)


@given(message=st.binary())
def test_the_first_byte_distinguishes_a_frame(message: bytes) -> None:
    assert is_frame(message) == message.startswith(b"#")


@given(rest=st.binary())
def test_parsing_returns_a_name_or_refuses(rest: bytes) -> None:
    """This holds for all bytes. A name that is not UTF-8 is still a name, although no stream has it."""
    try:
        stream_id, payload = split_frame(b"#" + rest)
    except InvalidEnvelope as refusal:
        assert rest.find(b"#") <= 0
        assert "#<stream_id>#<bytes>" in refusal.message
    else:
        assert stream_id
        assert rest.endswith(b"#" + payload)


@pytest.mark.parametrize(
    ("message", "why"), [(b"#", "second"), (b"#a", "second"), (b"##", "empty"), (b"##a#", "empty")]
)
def test_a_frame_has_a_name_between_two_hash_signs(message: bytes, why: str) -> None:
    with pytest.raises(InvalidEnvelope, match=why):
        split_frame(message)


@pytest.mark.parametrize(
    ("data", "text", "encoding", "shown"),
    [
        (b"caf\xc3\xa9", True, "text", "café"),
        (b"caf\xc3\xa9", False, "base64", "Y2Fmw6k="),
        (b"\xff\x00", True, "base64", "/wA="),
    ],
)
def test_a_frame_in_json_is_text_only_if_it_was_sent_as_text_and_is_utf_8(
    data: bytes, text: bool, encoding: str, shown: str
) -> None:
    assert frame_body("moves", data, text=text) == {"stream_id": "moves", "encoding": encoding, "data": shown}
    if text:
        assert frame_body("moves", data) == frame_body("moves", data, text=True)
