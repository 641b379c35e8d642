"""Each refusal has its code, its status and its parts."""

import re
from collections.abc import Iterator

import pytest

from mew.errors import MewError
from mew.protocol import errors
from mew.protocol.errors import ERROR_CODES, ProtocolError

STATUSES = {
    400: {
        "invalid_envelope",
        "invalid_request",
        "invalid_format",
        "invalid_operation",
        "unknown_format",
        "schema_violation",
        "reserved_kind",
        "target_not_found",
    },
    403: {"unauthorized", "capability_violation", "unauthorized_stream_write", "paused", "approval_required"},
    404: {"space_not_found", "stream_not_found", "participant_not_found", "not_found"},
    409: {"stream_not_live", "sequence_out_of_order", "already_exists", "proposal_closed", "proposal_mismatch"},
    413: {"message_too_large"},
    429: {"rate_limited", "quota_exceeded"},
    500: {"internal_error"},
    503: {"journal_unavailable"},
}
CLOSING = {
    errors.Unauthenticated: 4401,
    errors.MissingToken: 4401,
    errors.Kicked: 4403,
    errors.SpaceNotFound: 4404,
    errors.MessageTooLarge: 1009,
    errors.TooManyConnections: 1013,
    errors.JoinRateLimited: 1013,
    errors.JournalUnavailable: 1013,
}


def below(error: type[ProtocolError]) -> Iterator[type[ProtocolError]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from below(subclass)


REFUSALS = list(below(ProtocolError))


def test_each_code_has_its_status() -> None:
    assert set().union(*STATUSES.values()) == ERROR_CODES
    by_status: dict[int, set[str]] = {}
    for refusal in ProtocolError.__subclasses__():
        by_status.setdefault(refusal.status, set()).add(refusal.code)
    assert by_status == STATUSES


def test_a_missing_token_is_401_and_a_wrong_one_403() -> None:
    assert (errors.MissingToken.status, errors.Unauthenticated.status) == (401, 403)


def test_each_code_has_one_class() -> None:
    own = [refusal.code for refusal in ProtocolError.__subclasses__()]
    assert len(own) == len(set(own))
    for refusal in REFUSALS:
        assert refusal.code in own


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+) +(\w+)", str(errors.__doc__))
    assert drawn[1:] == [(refusal.__name__, refusal.code) for refusal in ProtocolError.__subclasses__()]
    assert drawn[0][0] == "ProtocolError"
    assert ProtocolError.__bases__ == (MewError,)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_only_these_errors_close_a_socket(refusal: type[ProtocolError]) -> None:
    assert refusal.close_code == CLOSING.get(refusal)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_the_payload_of_a_refusal_has_code_sentence_and_parts_in_order(refusal: type[ProtocolError]) -> None:
    raised = refusal("no such thing", stream_id="stream-1", targets=["bob"])
    assert list(raised.payload().items()) == [
        ("error", refusal.code),
        ("message", "no such thing"),
        ("stream_id", "stream-1"),
        ("targets", ["bob"]),
    ]
    assert str(raised) == raised.message == "no such thing"
    assert refusal("bare").payload() == {"error": refusal.code, "message": "bare"}


def test_a_refusal_is_short_even_if_it_quotes_a_long_text() -> None:
    raised = ProtocolError("x" * 501, stream_id="y" * 257, last_sequence=7)
    assert (raised.message, raised.parts) == ("x" * 500, {"stream_id": "y" * 256, "last_sequence": 7})


def test_a_received_error_has_the_class_of_its_code_and_its_parts() -> None:
    payload = {"error": "stream_not_found", "message": "no such stream", "code": 1008, "stream_id": "stream-1"}
    received = ProtocolError.from_payload(payload)
    assert type(received) is errors.StreamNotFound
    assert (received.code, received.message, received.parts) == (
        "stream_not_found",
        "no such stream",
        {"stream_id": "stream-1"},
    )


def test_a_received_error_with_an_unknown_code_keeps_its_code() -> None:
    received = ProtocolError.from_payload({"error": "quantum_noise"})
    assert type(received) is ProtocolError
    assert (received.code, received.message, received.parts) == ("quantum_noise", "quantum_noise", {})


def test_an_answer_without_a_code_is_an_error_without_a_code() -> None:
    received = ProtocolError.from_payload({"detail": "a proxy wrote this"})
    assert type(received) is ProtocolError
    assert (received.code, received.message, received.parts) == ("", "", {"detail": "a proxy wrote this"})
