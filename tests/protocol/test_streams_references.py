"""How an envelope refers to a stream, and how the reference is completed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import raw_json
from mew.protocol.envelope import Envelope, parse
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.streams import check_stream_namespace, complete_reference, referenced_stream_id, require_stream_id

LAB = "lab"
WHOLE = {"stream_id": "s", "namespace": "lab/s"}


def envelope(**payload: Any) -> Envelope:
    return parse(msgspec.json.encode({"kind": "stream/note", "from": "alice", "payload": payload}))


@pytest.mark.parametrize(
    ("payload", "stream_id"),
    [
        ({}, None),
        ({"stream_id": "s"}, "s"),
        ({"stream": {"stream_id": "s"}}, "s"),
        ({"stream_id": "s", "stream": {"stream_id": "s"}}, "s"),
        ({"stream_id": 7, "stream": {"stream_id": "s"}}, "s"),
        ({"stream_id": "s", "stream": "t"}, "s"),
        ({"stream": {"stream_id": None}}, None),
        ({"stream": ["s"]}, None),
    ],
)
def test_a_stream_is_named_in_either_place(payload: dict[str, Any], stream_id: str | None) -> None:
    assert referenced_stream_id(envelope(**payload)) == stream_id


def test_two_references_must_not_contradict_each_other() -> None:
    with pytest.raises(InvalidEnvelope, match=r"'s'.*'t'"):
        referenced_stream_id(envelope(stream_id="s", stream={"stream_id": "t"}))


def test_a_required_reference_must_be_present() -> None:
    with pytest.raises(InvalidEnvelope, match=r"stream/note: `payload\.stream_id`"):
        require_stream_id(LAB, envelope(text="which?"))
    assert require_stream_id(LAB, envelope(stream=WHOLE)) == "s"


@pytest.mark.parametrize("stream", [{}, {"namespace": None}, {"namespace": "lab/s"}, None])
def test_a_namespace_may_be_omitted(stream: Any) -> None:
    check_stream_namespace(LAB, envelope(stream=stream), "s")


@pytest.mark.parametrize("stream", [{"namespace": "lab/t"}, {"namespace": ""}, {"namespace": 7}, "s", ["s"], 0, False])
def test_a_given_namespace_must_be_that_of_the_stream(stream: Any) -> None:
    with pytest.raises(InvalidEnvelope, match=r"payload\.stream"):
        check_stream_namespace(LAB, envelope(stream=stream), "s")


def test_an_envelope_with_a_complete_reference_keeps_its_payload() -> None:
    text = b'{"kind":"stream/note","payload":{ "stream" : {"namespace":"lab/s","stream_id":"s"}, "a":1.0 }}'
    sent = complete_reference(LAB, parse(text), "s")
    assert sent.fields["payload"] == b'{ "stream" : {"namespace":"lab/s","stream_id":"s"}, "a":1.0 }'
    assert sent.fields["context"] == b'"lab/s"'


MEMBERS = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3)


@given(others=MEMBERS, nested=st.none() | MEMBERS, at_the_top=st.booleans())
def test_other_fields_of_a_payload_are_kept(
    others: dict[str, Any], nested: dict[str, Any] | None, at_the_top: bool
) -> None:
    payload = {**others, **({"stream_id": "s"} if at_the_top else {})}
    payload["stream"] = nested
    sent = complete_reference(LAB, envelope(**payload), "s")
    assert sent.payload == {**payload, "stream": {**(nested or {}), **WHOLE}}
    assert raw_json.decode_json(sent.fields["payload"]) == sent.payload
    assert complete_reference(LAB, sent, "s") == sent
