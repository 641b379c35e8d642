"""Admission: the fields of a join, and the space and participant that it leads to."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import (
    Admission,
    Close,
    Deliver,
    Identity,
    Join,
    JoinRequest,
    OneConnection,
    SpaceCore,
    Start,
    parse,
    reject_connection,
)
from mew.protocol.authentication import is_join, read_join
from mew.protocol.envelope import Stamp
from mew.protocol.errors import InvalidEnvelope, Kicked, MissingToken, ProtocolError, SpaceNotFound, Unauthenticated
from mew.testing import NOON, MemoryTokens
from mew.testing import settings as space_settings
from tests.support.hypothesis_settings import examples

FREE = JoinRequest(participant="guest")


def lobby(*space_ids: str, **configuration: Any) -> Admission:
    tokens = MemoryTokens()
    spaces = {name: SpaceCore(space_settings(name, {"alice": None}, **configuration), tokens) for name in space_ids}
    for space in spaces.values():
        space.handle(Start("epoch"), NOON)
        tokens.issue(space.settings.space_id, "alice")
    return Admission(spaces, tokens)


def tokens_of(entrance: Admission) -> MemoryTokens:
    assert isinstance(entrance.tokens, MemoryTokens)
    return entrance.tokens


def refused(entrance: Admission, request: JoinRequest) -> type[ProtocolError]:
    with pytest.raises(ProtocolError) as caught:
        entrance.admit("c1", request)
    return caught.type


# ---------------------------------------------------------------------------------------------- the fields of a join


@pytest.mark.parametrize(
    ("message", "joins"),
    [
        ({"kind": "system/join"}, True),
        ({"type": "join"}, True),
        ({"type": "join", "kind": "system/join"}, True),
        ({"type": "join", "kind": "chat"}, False),
        ({"type": "join", "kind": None}, False),
        ({"type": "leave"}, False),
        ({}, False),
    ],
)
def test_a_join_has_a_kind_or_a_type(message: dict[str, Any], joins: bool) -> None:
    assert is_join(message) is joins


def test_fields_at_top_level_take_precedence_over_the_payload() -> None:
    message = {"participant": "alice", "space": None, "payload": {"participantId": "bob", "space": "lab", "token": "t"}}
    assert read_join(message) == JoinRequest("lab", "alice", "t")


@pytest.mark.parametrize("payload", [None, "no object", ["token"]])
def test_a_payload_that_is_not_an_object_is_ignored(payload: Any) -> None:
    assert read_join({"token": "t", "payload": payload}) == JoinRequest(token="t")


@pytest.mark.parametrize(
    ("field", "label"),
    [("space", "space"), ("token", "token"), ("participantId", "participantId"), ("participant", "participantId")],
)
@pytest.mark.parametrize("value", [1, ["alice"], {"id": "alice"}, False])
@pytest.mark.parametrize("nested", [False, True])
def test_a_field_that_is_not_a_string_is_named(field: str, label: str, value: Any, nested: bool) -> None:
    message = {field: value}
    with pytest.raises(InvalidEnvelope, match=f"`{label}`"):
        read_join({"payload": message} if nested else message)


def test_a_request_takes_missing_fields_from_another() -> None:
    own, other = JoinRequest(participant="alice"), JoinRequest("lab", "bob", "t", ("m",))
    assert own.or_else(other) == JoinRequest("lab", "alice", "t", ("m",))
    assert other.or_else(own) == other


@pytest.mark.parametrize("number", [b"9e303", b"1e23"])
def test_a_first_message_with_slow_numbers_is_not_a_join(number: bytes) -> None:
    """A caller without a token has no budget: once, 32 KiB of such numbers took 64 ms."""
    message = b'{"kind":"system/join","token":"t","a":[%b1]}' % ((number + b",") * 5_000)
    with pytest.raises(Unauthenticated) as caught:
        lobby("lab").first_message(message)
    assert caught.type is Unauthenticated
    ordinary = b'{"kind":"system/join","token":"t","a":[%b1]}' % ((number + b",") * 17)
    assert lobby("lab").first_message(ordinary) == JoinRequest(token="t")


@given(message=st.binary(max_size=40) | st.sampled_from([b'{"type":"join"}', b'{"kind":"system/join","token":1}']))
@examples(100)
def test_any_first_message_is_a_request_or_a_refusal(message: bytes) -> None:
    try:
        assert isinstance(lobby("lab").first_message(message), JoinRequest)
    except ProtocolError as refusal:
        assert refusal.code in {"unauthorized", "invalid_envelope"}


# -------------------------------------------------------------------------------------------- who may join


@pytest.mark.requirement("JOIN-08")
@pytest.mark.parametrize("name", [None, "default", "first"])
def test_the_first_space_is_the_default(name: str | None) -> None:
    entrance = lobby("first", "second")
    space, join = entrance.admit("c1", JoinRequest(name, token="token-of-alice@first"))
    assert space is entrance.spaces["first"]
    assert join == Join(connection="c1", participant="alice")


@pytest.mark.requirement("JOIN-08")
def test_a_space_with_the_id_default_is_found_by_it() -> None:
    entrance = lobby("first", "default")
    assert entrance.find("default") is entrance.spaces["default"]
    assert entrance.find(None) is entrance.spaces["first"]


@pytest.mark.requirement("JOIN-08")
def test_a_token_is_valid_only_for_its_own_space() -> None:
    entrance = lobby("first", "second")
    token = "token-of-alice@second"
    assert entrance.admit("c1", JoinRequest("second", token=token))[0] is entrance.spaces["second"]
    for name in (None, "default", "first"):
        assert refused(entrance, JoinRequest(name, "alice", token)) is Unauthenticated


@pytest.mark.requirement("JOIN-09")
@pytest.mark.parametrize("name", ["nowhere", ""])
def test_a_space_that_does_not_exist_is_not_found_whatever_the_token(name: str) -> None:
    with pytest.raises(SpaceNotFound) as caught:
        lobby("lab").admit("c1", JoinRequest(name))
    assert caught.value.parts == {"space": name}


def test_the_token_of_an_observer_admits_an_observer() -> None:
    entrance = lobby("lab")
    token = tokens_of(entrance).issue("lab", "onlooker", observer=True)
    assert entrance.admit("c1", JoinRequest(token=token))[1].observer


@pytest.mark.parametrize("claim", [{"token": "token-of-alice@lab"}, {"participantId": "guest"}], ids=["known", "guest"])
def test_a_join_names_the_message_that_requested_it(claim: dict[str, str]) -> None:
    entrance = lobby("lab", allow_anonymous=True)
    request = entrance.first_message(msgspec.json.encode({"kind": "system/join", "id": "hello", **claim}))
    assert entrance.admit("c1", request)[1].cause == ("hello",)


def test_a_missing_token_and_a_wrong_one_are_different_errors() -> None:
    assert refused(lobby("lab"), JoinRequest()) is MissingToken
    assert refused(lobby("lab"), JoinRequest(token="unknown-token")) is Unauthenticated


@pytest.mark.parametrize("observer", [True, False])
def test_any_token_of_a_space_may_read_it(observer: bool) -> None:
    entrance = lobby("first", "second")
    token = tokens_of(entrance).issue("second", "alice", observer=observer)
    assert entrance.look_in(JoinRequest("second", token=token)) is entrance.spaces["second"]


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (JoinRequest(), MissingToken),
        (JoinRequest(token="unknown-token"), Unauthenticated),
        (JoinRequest(token="token-of-alice@second"), Unauthenticated),
        (JoinRequest("nowhere", token="token-of-alice@first"), SpaceNotFound),
    ],
)
def test_other_tokens_may_not_read_a_space(request_: JoinRequest, refusal: type[ProtocolError]) -> None:
    with pytest.raises(ProtocolError) as caught:
        lobby("first", "second").look_in(request_)
    assert caught.type is refusal


def test_a_removed_participant_may_not_read_a_space_but_an_observer_of_that_name_may() -> None:
    entrance = lobby("lab")
    entrance.spaces["lab"].state.kicked["alice"] = None
    with pytest.raises(Kicked):
        entrance.look_in(JoinRequest(token="token-of-alice@lab"))
    observer = tokens_of(entrance).issue("lab", "alice", observer=True)
    assert entrance.look_in(JoinRequest(token=observer)) is entrance.spaces["lab"]


@pytest.mark.parametrize("name", ["system:gateway", "gateway", "system", "no spaces", ""])
def test_a_token_for_an_invalid_name_admits_no_one(name: str) -> None:
    entrance = lobby("lab")
    tokens_of(entrance).holders["t"] = Identity("lab", name)
    assert refused(entrance, JoinRequest(token="t")) is Unauthenticated


@pytest.mark.requirement("JOIN-23")
def test_in_an_anonymous_space_a_token_of_another_space_counts_as_none() -> None:
    entrance = lobby("first", "second", allow_anonymous=True)
    request = JoinRequest("first", "guest", "token-of-alice@second")
    assert entrance.admit("c1", request)[1] == Join(connection="c1", participant="guest", anonymous=True)


@pytest.mark.requirement("JOIN-24")
def test_a_kicked_anonymous_participant_is_refused_by_the_space() -> None:
    entrance = lobby("lab", allow_anonymous=True)
    space, join = entrance.admit("c1", FREE)
    space.state.kicked["guest"] = None
    closed = [effect for effect in space.handle(join, NOON) if isinstance(effect, Close)]
    assert [close.code for close in closed] == [4403]


# --------------------------------------------------------------------------------------------------- over HTTP


@pytest.mark.requirement("JOIN-33")
@pytest.mark.parametrize(
    ("token", "refusal"),
    [
        (None, MissingToken),
        ("unknown-token", Unauthenticated),
        ("token-of-bob@lab", Unauthenticated),
        ("token-of-alice@elsewhere", Unauthenticated),
        ("observer-token-of-alice@lab", Unauthenticated),
    ],
)
def test_http_requires_the_token_of_the_participant_in_the_path(
    token: str | None, refusal: type[ProtocolError]
) -> None:
    entrance = lobby("lab", "elsewhere")
    tokens = tokens_of(entrance)
    tokens.issue("lab", "bob")
    tokens.issue("lab", "alice", observer=True)
    with pytest.raises(ProtocolError) as caught:
        entrance.authenticate("alice", JoinRequest("lab", token=token))
    assert caught.type is refusal


@pytest.mark.parametrize("name", [None, "default", "lab"])
def test_http_selects_the_space_in_the_same_way_as_a_socket(name: str | None) -> None:
    entrance = lobby("lab", "elsewhere")
    space = entrance.authenticate("alice", JoinRequest(name, token="token-of-alice@lab"))
    assert space is entrance.spaces["lab"]


def test_http_in_an_unknown_space_is_not_found_even_without_a_token() -> None:
    with pytest.raises(SpaceNotFound):
        lobby("lab").authenticate("alice", JoinRequest("nowhere"))


# ------------------------------------------------------------------------------------------------ rejection


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Unauthenticated("no"), 4401),
        (SpaceNotFound("no", space="x"), 4404),
        (InvalidEnvelope("`token` of a join must be a string"), 4401),
    ],
)
def test_a_rejected_connection_gets_the_error_and_is_closed(refusal: ProtocolError, code: int) -> None:
    delivery, closed = reject_connection("c1", refusal, Stamp("system:gateway", "id-1", NOON), ("join-1",))
    assert isinstance(delivery, Deliver)
    envelope = parse(delivery.message)
    assert (delivery.audience, delivery.kind, delivery.envelope_id) == (OneConnection("c1"), "system/error", "id-1")
    assert (envelope.sender, envelope.payload) == ("system:gateway", refusal.payload())
    assert envelope.correlation_id == ("join-1",)
    assert closed == Close("c1", code, refusal.code)


def test_no_rejection_repeats_a_token() -> None:
    for request in (JoinRequest(token="secret"), JoinRequest("nowhere", "alice", "secret")):
        with pytest.raises(ProtocolError) as caught:
            lobby("lab").admit("c1", request)
        assert b"secret" not in msgspec.json.encode(caught.value.payload())


@pytest.mark.parametrize(("observer", "payer"), [(False, "alice"), (True, "#alice")])
def test_a_participant_and_an_observer_of_its_name_are_charged_separately(observer: bool, payer: str) -> None:
    entrance = lobby("lab")
    token = tokens_of(entrance).issue("lab", "alice", observer=observer)
    assert entrance.payer(JoinRequest(token=token)) == payer
