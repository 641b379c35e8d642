"""At the threshold: what a join says, and into which space it leads whom."""

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


# ---------------------------------------------------------------------------------------------- what a join says


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
def test_a_join_has_its_kind_or_its_type(message: dict[str, Any], joins: bool) -> None:
    assert is_join(message) is joins


def test_what_stands_at_top_level_comes_before_the_payload() -> None:
    message = {"participant": "alice", "space": None, "payload": {"participantId": "bob", "space": "lab", "token": "t"}}
    assert read_join(message) == JoinRequest("lab", "alice", "t")


@pytest.mark.parametrize("payload", [None, "no object", ["token"]])
def test_a_payload_that_is_no_object_says_nothing(payload: Any) -> None:
    assert read_join({"token": "t", "payload": payload}) == JoinRequest(token="t")


@pytest.mark.parametrize(
    ("field", "label"),
    [("space", "space"), ("token", "token"), ("participantId", "participantId"), ("participant", "participantId")],
)
@pytest.mark.parametrize("value", [1, ["alice"], {"id": "alice"}, False])
@pytest.mark.parametrize("nested", [False, True])
def test_a_field_that_is_no_string_is_refused_by_name(field: str, label: str, value: Any, nested: bool) -> None:
    message = {field: value}
    with pytest.raises(InvalidEnvelope, match=f"`{label}`"):
        read_join({"payload": message} if nested else message)


def test_a_request_takes_what_it_lacks_from_another() -> None:
    own, other = JoinRequest(participant="alice"), JoinRequest("lab", "bob", "t", ("m",))
    assert own.or_else(other) == JoinRequest("lab", "alice", "t", ("m",))
    assert other.or_else(own) == other


@pytest.mark.parametrize("number", [b"9e303", b"1e23"])
def test_a_first_message_of_numbers_that_are_slow_to_read_is_no_join(number: bytes) -> None:
    """Who has no token pays for nothing: 32 KiB of such numbers took 64 ms."""
    message = b'{"kind":"system/join","token":"t","a":[%b1]}' % ((number + b",") * 5_000)
    with pytest.raises(Unauthenticated, match="join first"):
        lobby("lab").first_message(message)
    ordinary = b'{"kind":"system/join","token":"t","a":[%b1]}' % ((number + b",") * 17)
    assert lobby("lab").first_message(ordinary) == JoinRequest(token="t")


@given(message=st.binary(max_size=40) | st.sampled_from([b'{"type":"join"}', b'{"kind":"system/join","token":1}']))
@examples(100)
def test_any_first_message_is_a_request_or_a_refusal(message: bytes) -> None:
    try:
        assert isinstance(lobby("lab").first_message(message), JoinRequest)
    except ProtocolError as refusal:
        assert refusal.code in {"unauthorized", "invalid_envelope"}


# -------------------------------------------------------------------------------------------- who may come in


@pytest.mark.requirement("JOIN-08")
@pytest.mark.parametrize("name", [None, "default", "first"])
def test_the_first_space_is_meant_where_none_is_named(name: str | None) -> None:
    entrance = lobby("first", "second")
    space, join = entrance.admit("c1", JoinRequest(name, token="token-of-alice@first"))
    assert space is entrance.spaces["first"]
    assert join == Join(connection="c1", participant="alice")


@pytest.mark.requirement("JOIN-08")
def test_a_space_that_is_called_default_is_itself() -> None:
    entrance = lobby("first", "default")
    assert entrance.find("default") is entrance.spaces["default"]
    assert entrance.find(None) is entrance.spaces["first"]


@pytest.mark.requirement("JOIN-08")
def test_a_token_opens_its_own_space_and_no_other() -> None:
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


def test_an_observers_token_makes_an_observer() -> None:
    entrance = lobby("lab")
    token = tokens_of(entrance).issue("lab", "onlooker", observer=True)
    assert entrance.admit("c1", JoinRequest(token=token))[1].observer


@pytest.mark.parametrize("claim", [{"token": "token-of-alice@lab"}, {"participantId": "guest"}], ids=["known", "guest"])
def test_a_join_remembers_the_message_that_asked_for_it(claim: dict[str, str]) -> None:
    entrance = lobby("lab", allow_anonymous=True)
    request = entrance.first_message(msgspec.json.encode({"kind": "system/join", "id": "hello", **claim}))
    assert entrance.admit("c1", request)[1].cause == ("hello",)


def test_no_token_and_a_wrong_one_are_told_apart() -> None:
    assert refused(lobby("lab"), JoinRequest()) is MissingToken
    assert refused(lobby("lab"), JoinRequest(token="of nobody")) is Unauthenticated


@pytest.mark.parametrize("observer", [True, False])
def test_whoever_holds_a_token_of_a_space_may_look_in(observer: bool) -> None:
    entrance = lobby("first", "second")
    token = tokens_of(entrance).issue("second", "alice", observer=observer)
    assert entrance.look_in(JoinRequest("second", token=token)) is entrance.spaces["second"]


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (JoinRequest(), MissingToken),
        (JoinRequest(token="of nobody"), Unauthenticated),
        (JoinRequest(token="token-of-alice@second"), Unauthenticated),
        (JoinRequest("nowhere", token="token-of-alice@first"), SpaceNotFound),
    ],
)
def test_nobody_else_looks_in(request_: JoinRequest, refusal: type[ProtocolError]) -> None:
    with pytest.raises(ProtocolError) as caught:
        lobby("first", "second").look_in(request_)
    assert caught.type is refusal


def test_who_was_removed_may_not_look_in_again_but_an_observer_of_that_name_may() -> None:
    entrance = lobby("lab")
    entrance.spaces["lab"].state.kicked["alice"] = None
    with pytest.raises(Kicked, match="'alice' was removed from 'lab'"):
        entrance.look_in(JoinRequest(token="token-of-alice@lab"))
    observer = tokens_of(entrance).issue("lab", "alice", observer=True)
    assert entrance.look_in(JoinRequest(token=observer)) is entrance.spaces["lab"]


@pytest.mark.parametrize("name", ["system:gateway", "gateway", "system", "no spaces", ""])
def test_a_token_admits_nobody_under_a_name_that_none_may_bear(name: str) -> None:
    entrance = lobby("lab")
    tokens_of(entrance).holders["t"] = Identity("lab", name)
    assert refused(entrance, JoinRequest(token="t")) is Unauthenticated


@pytest.mark.requirement("JOIN-23")
def test_a_token_of_another_space_counts_as_none_where_strangers_may_come_in() -> None:
    entrance = lobby("first", "second", allow_anonymous=True)
    request = JoinRequest("first", "guest", "token-of-alice@second")
    assert entrance.admit("c1", request)[1] == Join(connection="c1", participant="guest", anonymous=True)


@pytest.mark.requirement("JOIN-24")
def test_a_kicked_stranger_is_no_longer_somebody_and_is_refused_by_the_space_itself() -> None:
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
        ("of nobody", Unauthenticated),
        ("token-of-bob@lab", Unauthenticated),
        ("token-of-alice@elsewhere", Unauthenticated),
        ("observer-token-of-alice@lab", Unauthenticated),
    ],
)
def test_http_asks_for_the_token_of_the_participant_in_the_path(
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
def test_http_finds_the_space_like_a_socket(name: str | None) -> None:
    entrance = lobby("lab", "elsewhere")
    space = entrance.authenticate("alice", JoinRequest(name, token="token-of-alice@lab"))
    assert space is entrance.spaces["lab"]


def test_http_in_an_unknown_space_is_not_found_even_without_a_token() -> None:
    with pytest.raises(SpaceNotFound):
        lobby("lab").authenticate("alice", JoinRequest("nowhere"))


# ------------------------------------------------------------------------------------------------ turning away


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Unauthenticated("no"), 4401),
        (SpaceNotFound("no", space="x"), 4404),
        (InvalidEnvelope("`token` of a join must be a string"), 4401),
    ],
)
def test_who_never_came_in_is_told_why_and_closed(refusal: ProtocolError, code: int) -> None:
    delivery, closed = reject_connection("c1", refusal, Stamp("system:gateway", "id-1", NOON), ("join-1",))
    assert isinstance(delivery, Deliver)
    envelope = parse(delivery.message)
    assert (delivery.audience, delivery.kind, delivery.envelope_id) == (OneConnection("c1"), "system/error", "id-1")
    assert (envelope.sender, envelope.payload) == ("system:gateway", refusal.payload())
    assert envelope.correlation_id == ("join-1",)
    assert closed == Close("c1", code, refusal.code)


def test_no_refusal_at_the_threshold_repeats_a_token() -> None:
    for request in (JoinRequest(token="secret"), JoinRequest("nowhere", "alice", "secret")):
        with pytest.raises(ProtocolError) as caught:
            lobby("lab").admit("c1", request)
        assert b"secret" not in msgspec.json.encode(caught.value.payload())


@pytest.mark.parametrize(("observer", "payer"), [(False, "alice"), (True, "#alice")])
def test_who_asks_over_http_pays_an_observer_under_a_name_that_nobody_bears(observer: bool, payer: str) -> None:
    entrance = lobby("lab")
    token = tokens_of(entrance).issue("lab", "alice", observer=observer)
    assert entrance.payer(JoinRequest(token=token)) == payer
