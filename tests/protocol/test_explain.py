"""An explanation gives the outcome of a post and the capability behind it, and changes nothing."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import KINDS, HttpAnswer, Limits, snapshot
from mew.protocol.errors import AlreadyExists, ParticipantNotFound
from mew.protocol.explain import explain_message, list_actions
from mew.testing import MemorySpace
from tests.support.hypothesis_settings import examples

STREAMS = ["stream-1", "stream-2", "ready", "nowhere", None, 5]
PEOPLE = ["alice", "bob", "carol", "dora", "eve", "fred", "gina", "log", "nobody"]
SENDERS = PEOPLE[:-1]


def lab_in_use() -> MemorySpace:
    """A space with a participant in every state: owner, writer, manager, paused, kicked, absent, logged, invited."""
    lab = MemorySpace(
        participants={
            "alice": [{"kind": "*"}],
            "bob": [{"kind": "chat"}, {"kind": "stream/request"}, {"kind": "mcp/request", "payload": {"method": "a"}}],
            "carol": [{"kind": "stream/manage", "to": "bob"}, {"kind": "capability/*"}, {"kind": "space/*"}],
            "dora": [{"kind": "stream/manage"}, {"kind": "participant/*"}, {"kind": "!chat", "to": ["bob", "carol"]}],
            "eve": [{"kind": "*"}],
            "fred": [{"kind": "stream/*"}],
            "log": [{"kind": "*"}],
        },
        output_logs=frozenset({"log"}),
        limits=Limits(streams=4, writers=3, message_bytes=4000),
    )
    alice = lab.join("alice")
    for present in ("bob", "carol", "eve"):
        lab.join(present)
    alice.send(kind="stream/request", payload={"target": ["bob"]})
    alice.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "bob"})
    lab.post("bob", {"kind": "stream/request", "payload": {"formats": [{"id": "f"}, {"id": "g"}]}})
    alice.send(kind="stream/announce", payload={"desired_id": "ready", "formats": [{"id": "f"}]})
    alice.send(kind="stream/data", payload={"stream_id": "stream-1", "sequence": 3, "content": 0})
    alice.send(kind="space/invite", payload={"participant_id": "gina", "initial_capabilities": [{"kind": "chat"}]})
    alice.send(kind="participant/pause", to=["carol"], payload={})
    alice.send(kind="participant/pause", to=["dora"], payload={"timeout_seconds": 5})
    alice.send(kind="space/kick", payload={"participant_id": "eve"})
    lab.now += 5_000_000
    return lab


def explained(lab: MemorySpace, participant: str, message: Any) -> dict[str, Any]:
    text = message if isinstance(message, bytes) else msgspec.json.encode(message)
    return explain_message(lab.space, participant, text, lab.now).answer()


def as_posted(answer: HttpAnswer) -> tuple[bool, str | None, str | None]:
    """Whether the post passed, or else code and sentence. An invitation of a known participant counts as passed."""
    refusal = answer.refusal
    if refusal is None or isinstance(refusal, AlreadyExists):
        return True, None, None
    return False, refusal.code, refusal.message


capabilities = st.sampled_from(
    [[{"kind": "chat"}], [{"kind": "*"}], [{"kind": "stream/write:stream-1"}], [{"kind": "capability/x"}], [{}], "all"]
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "stream_id": st.sampled_from(STREAMS),
    "stream": st.fixed_dictionaries(
        {"stream_id": st.sampled_from(STREAMS)}, optional={"namespace": st.sampled_from(["lab/stream-1", "x/y"])}
    ),
    "participant_id": st.sampled_from([*PEOPLE, "new", "not one", 1]),
    "new_owner": st.sampled_from(PEOPLE),
    "recipient": st.sampled_from(PEOPLE),
    "capabilities": capabilities,
    "initial_capabilities": capabilities,
    "grant_id": st.just("1"),
    "target": st.lists(st.sampled_from(PEOPLE), max_size=2),
    "formats": st.sampled_from([[{"id": "f"}], [], [{"id": "f"}, {"id": "f"}], 1]),
    "desired_id": st.sampled_from(["ready", "fresh"]),
    "sequence": st.sampled_from([0, 3, 4, True]),
    "content": st.just(0),
    "format_id": st.sampled_from(["f", "h"]),
    "code": st.just("c"),
    "message": st.just("m"),
    "text": st.sampled_from(["hi", ""]),
    "method": st.sampled_from(["a", "b"]),
    "timeout_seconds": st.sampled_from([1, -1]),
}
NEEDED = {
    "chat": ("text",),
    "mcp/request": ("method",),
    "capability/grant": ("recipient", "capabilities"),
    "capability/revoke": ("recipient", "capabilities"),
    "space/invite": ("participant_id",),
    "space/kick": ("participant_id",),
    "stream/request": (),
    "stream/announce": ("formats",),
    "stream/start": ("stream_id",),
    "stream/data": ("stream_id", "sequence", "content"),
    "stream/close": ("stream_id",),
    "stream/complete": ("stream",),
    "stream/error": ("stream_id", "code", "message"),
    "stream/grant-write": ("stream_id", "participant_id"),
    "stream/revoke-write": ("stream_id", "participant_id"),
    "stream/transfer-ownership": ("stream_id", "new_owner"),
}
kinds = (
    st.sampled_from(sorted(NEEDED))
    | st.sampled_from(sorted(KINDS))
    | st.sampled_from(["custom/thing", "stream/own", 1])
)


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """Mostly with all fields that the kind needs, valid or invalid; sometimes with one field more or fewer."""
    kind = draw(kinds)
    needed = {field: draw(FIELDS[field]) for field in NEEDED.get(str(kind), ())}
    more = draw(st.sampled_from([None, None, None, *FIELDS]))
    if more is not None:
        needed[more] = draw(FIELDS[more])
    less = draw(st.sampled_from([None, None, None, None, None, *needed]))
    needed.pop(str(less), None)
    payload = draw(st.sampled_from([needed] * 9 + [None, "text"]))
    others = {"to": st.lists(st.sampled_from(PEOPLE), max_size=2), "token": st.sampled_from(["token-of-bob@lab", "no"])}
    others |= {name: st.sampled_from(PEOPLE) for name in ("participant", "from")}
    return {"kind": kind, "payload": payload, **draw(st.fixed_dictionaries({}, optional=others))}


messages = st.one_of(
    *[envelopes().map(msgspec.json.encode)] * 5,
    st.sampled_from([b"", b"[]", b"#stream-1#frame", b'{"type":"join"}', b"*" * 4001]),
)


@examples(100)
@given(participant=st.sampled_from(SENDERS), message=messages)
def test_an_explanation_agrees_with_the_outcome_of_a_post(participant: str, message: bytes) -> None:
    lab = lab_in_use()
    answer = explained(lab, participant, message)
    lab.token(participant)
    posted = as_posted(lab.post(participant, message))
    assert (answer["allowed"], answer["error"], None if answer["allowed"] else answer["reason"]) == posted
    if answer["allowed"]:
        assert answer["source"] is not None
        assert answer["nearest"] is None


@examples(30)
@given(participant=st.sampled_from(SENDERS), message=messages)
def test_an_explanation_changes_nothing(participant: str, message: bytes) -> None:
    lab = lab_in_use()
    before = snapshot(lab.state), dict(lab.space.sessions), dict(lab.space.connections), dict(lab.space.roster.entries)
    holders, records, effects = dict(lab.tokens.holders), len(lab.records), lab.effects
    explained(lab, participant, message)
    assert (snapshot(lab.state), lab.space.sessions, lab.space.connections, lab.space.roster.entries) == before
    assert (lab.tokens.holders, len(lab.records), lab.effects) == (holders, records, effects)
    twin = lab_in_use()
    assert lab.post("alice", {"kind": "custom/thing"}) == twin.post("alice", {"kind": "custom/thing"})


def test_an_explained_invitation_creates_no_token() -> None:
    lab = lab_in_use()
    holders = dict(lab.tokens.holders)
    answer = explained(lab, "alice", {"kind": "space/invite", "payload": {"participant_id": "new"}})
    assert (answer["allowed"], answer["capability"]) == (True, {"kind": "*"})
    assert lab.tokens.holders == holders


def test_an_explanation_neither_checks_nor_uses_a_rate() -> None:
    lab = MemorySpace(participants={"alice": None}, limits=Limits(envelopes_per_second=1, envelope_burst=1))
    chat = {"kind": "chat", "payload": {"text": "hi"}}
    assert all(explained(lab, "alice", chat)["allowed"] for _ in range(5))
    assert lab.post("alice", chat).refusal is None
    assert lab.post("alice", chat).body["error"] == "rate_limited"
    assert explained(lab, "alice", chat)["allowed"]


def test_time_never_runs_backwards_in_an_explanation() -> None:
    lab = lab_in_use()
    paused = {"kind": "custom/thing", "to": ["bob"]}
    assert explained(lab, "dora", paused)["allowed"]
    lab.advance(0)
    lab.now -= 5_000_000
    assert explained(lab, "dora", paused)["allowed"]


def test_an_explanation_considers_an_expired_pause_and_does_not_end_it() -> None:
    lab = lab_in_use()
    assert lab.space.is_muted("dora")
    assert explained(lab, "dora", {"kind": "custom/thing", "to": ["bob"]})["allowed"]
    assert lab.space.is_muted("dora")


@pytest.mark.parametrize("nobody", ["nobody", "", "system:gateway"])
def test_an_explanation_for_an_unknown_participant_is_an_error(nobody: str) -> None:
    with pytest.raises(ParticipantNotFound) as refusal:
        explained(lab_in_use(), nobody, {"kind": "chat"})
    assert refusal.value.payload()["participant_id"] == nobody


def test_an_allowed_envelope_is_explained_with_the_capability_and_its_source() -> None:
    answer = explained(lab_in_use(), "bob", {"kind": "chat", "payload": {"text": "hi"}})
    assert answer == {
        "allowed": True,
        "kind": "chat",
        "error": None,
        "reason": 'allowed by {"kind":"chat"}',
        "capability": {"kind": "chat"},
        "source": "configured",
        "nearest": None,
    }


def test_a_denied_envelope_is_explained_with_the_nearest_capability() -> None:
    answer = explained(lab_in_use(), "bob", {"kind": "mcp/request", "payload": {"method": "b"}})
    nearest = {"kind": "mcp/request", "payload": {"method": "a"}}
    assert (answer["allowed"], answer["error"], answer["capability"], answer["source"]) == (
        False,
        "capability_violation",
        None,
        None,
    )
    assert answer["nearest"] == {
        "capability": nearest,
        "source": "configured",
        "why": "payload.method: 'b' is not 'a'",
    }
    assert answer["reason"].startswith("'bob' may not send 'mcp/request': ")


@pytest.mark.parametrize(
    ("participant", "envelope", "allowed", "source", "capability"),
    [
        ("alice", {"kind": "system/heartbeat"}, True, "everyone", None),
        ("bob", {"kind": "system/join", "payload": {"token": "token-of-bob@lab"}}, True, "everyone", None),
        ("bob", {"type": "join", "participant": "carol"}, False, "everyone", None),
        ("alice", {"kind": "stream/complete", "payload": {"stream_id": "stream-1"}}, True, "owner", None),
        ("bob", {"kind": "stream/complete", "payload": {"stream_id": "stream-1"}}, False, None, None),
        (
            "dora",
            {"kind": "stream/complete", "payload": {"stream_id": "stream-1"}},
            True,
            "configured",
            "stream/manage",
        ),
        ("dora", {"kind": "stream/complete", "payload": {"stream_id": "nowhere"}}, False, None, None),
        ("dora", {"kind": "stream/start", "payload": {"stream_id": "ready"}}, False, None, None),
        ("carol", {"kind": "stream/close", "payload": {"stream_id": "stream-1"}}, False, None, None),
        (
            "carol",
            {"kind": "stream/close", "to": ["bob"], "payload": {"stream_id": "stream-1"}},
            True,
            "configured",
            "stream/manage",
        ),
        ("bob", {"kind": "stream/close"}, True, "configured", "stream/request"),
        ("gina", {"kind": "chat", "payload": {"text": "hi"}}, True, "invited", "chat"),
        ("bob", {"kind": "mcp/response"}, True, "baseline", "mcp/response"),
        (
            "bob",
            {"kind": "stream/data", "payload": {"stream_id": "stream-1", "sequence": 0, "content": 0}},
            True,
            "writer",
            None,
        ),
        (
            "alice",
            {"kind": "stream/data", "payload": {"stream_id": "stream-1", "sequence": 0, "content": 0}},
            False,
            "owner",
            None,
        ),
        (
            "bob",
            {"kind": "stream/grant-write", "payload": {"stream_id": "stream-1", "participant_id": "bob"}},
            False,
            None,
            None,
        ),
        (
            "alice",
            {"kind": "stream/complete", "payload": {"stream_id": "a", "stream": {"stream_id": "b"}}},
            False,
            None,
            None,
        ),
        ("eve", {"kind": "chat", "payload": {"text": "hi"}}, False, None, None),
    ],
)
def test_the_authorization_is_named(
    participant: str, envelope: dict[str, Any], allowed: bool, source: str | None, capability: str | None
) -> None:
    answer = explained(lab_in_use(), participant, envelope)
    assert (answer["allowed"], answer["source"]) == (allowed, source), answer["reason"]
    assert answer["kind"] == (None if participant == "eve" else envelope.get("kind", "system/join"))
    assert (answer["capability"] or {}).get("kind") == capability


@pytest.mark.parametrize(
    ("participant", "envelope", "kind", "error"),
    [
        ("bob", {"kind": "chat"}, "chat", "invalid_envelope"),
        ("alice", {"kind": "system/welcome"}, "system/welcome", "reserved_kind"),
        ("carol", {"kind": "capability/grant"}, "capability/grant", "paused"),
    ],
)
def test_the_authorization_is_named_even_if_another_check_fails(
    participant: str, envelope: dict[str, Any], kind: str, error: str
) -> None:
    answer = explained(lab_in_use(), participant, envelope)
    assert (answer["allowed"], answer["kind"], answer["error"], answer["source"]) == (False, kind, error, "configured")
    assert answer["capability"] is not None


@pytest.mark.parametrize("message", [b"", b"[]", b"#stream-1#data", b'{"kind":5}', b"{}"])
def test_an_invalid_envelope_is_explained_without_a_kind(message: bytes) -> None:
    answer = explained(lab_in_use(), "alice", message)
    assert (answer["kind"], answer["error"], answer["source"], answer["nearest"]) == (
        None,
        "invalid_envelope",
        None,
        None,
    )


def test_a_removed_participant_may_send_nothing() -> None:
    answer = explained(lab_in_use(), "eve", {"kind": "chat", "payload": {"text": "hi"}})
    assert (answer["allowed"], answer["error"]) == (False, "unauthorized")
    assert "'eve' was removed" in answer["reason"]


@pytest.mark.parametrize("to", ["owns", "writes"])
def test_reasons_are_sentences(to: str) -> None:
    lab = lab_in_use()
    data = {"kind": "stream/data", "payload": {"stream_id": "stream-1", "sequence": 9, "content": 0}}
    reason = explained(lab, "alice" if to == "owns" else "bob", data)["reason"]
    assert reason == ("'alice' owns 'stream-1'" if to == "owns" else "'bob' is an authorised writer of 'stream-1'")


def test_a_manager_of_streams_gets_the_capability() -> None:
    answer = explained(lab_in_use(), "dora", {"kind": "stream/complete", "payload": {"stream_id": "stream-1"}})
    assert answer["reason"] == 'allowed by {"kind":"stream/manage"}'


def test_an_absent_participant_is_explained_as_if_present() -> None:
    lab = lab_in_use()
    answer = explained(lab, "fred", {"kind": "stream/request", "payload": {"target": ["fred", "bob"]}})
    assert (answer["allowed"], "fred" in lab.state.present) == (True, False)
    assert not explained(lab, "fred", {"kind": "stream/request", "payload": {"target": ["dora"]}})["allowed"]


def test_an_anonymous_participant_is_explained_as_such() -> None:
    lab = MemorySpace(participants={"alice": None}, allow_anonymous=True)
    lab.connect().send(kind="system/join", participant="guest")
    lab.join("alice")
    again = {"kind": "system/join", "token": "whatever"}
    assert explained(lab, "guest", again)["allowed"]
    assert not explained(lab, "alice", again)["allowed"]


def test_an_expired_grant_allows_nothing_before_the_next_tick() -> None:
    """A post first ends what has expired; an explanation gives the same answer and ends nothing."""
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": []})
    alice = lab.join("alice")
    for name, kind, end in (("g-1", "memo", {"timeout_seconds": 10}), ("g-2", "note", {"timeout_seconds": 20})):
        granted = {"recipient": "bob", "capabilities": [{"kind": kind}], **end}
        alice.send(id=name, kind="capability/grant", payload=granted)
    alice.send(kind="capability/grant", payload={"recipient": "alice", "capabilities": [{"kind": "memo"}]})
    for passed, left in ((9, ["memo", "note"]), (1, ["note"]), (10, [])):
        lab.now += passed * 1_000_000
        before = snapshot(lab.state)
        for kind in ("memo", "note"):
            assert explained(lab, "bob", {"kind": kind, "payload": {}})["allowed"] is (kind in left)
        again = {"recipient": "bob", "capabilities": [{"kind": "x"}], "timeout_seconds": 9}
        answer = explained(lab, "alice", {"id": "g-1", "kind": "capability/grant", "payload": again})
        assert answer["allowed"] is ("memo" not in left)
        lasting = {"recipient": "bob", "capabilities": [{"kind": "x"}]}
        answer = explained(lab, "alice", {"id": "g-1", "kind": "capability/grant", "payload": lasting})
        assert answer["allowed"] is ("memo" not in left)
        assert snapshot(lab.state) == before
    lab.post("bob", {"kind": "memo", "payload": {}})
    assert lab.state.grant_ends == {}


def test_actions_omit_what_an_expired_grant_allowed() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": []})
    granted = {"recipient": "bob", "capabilities": [{"kind": "chat"}], "timeout_seconds": 10}
    lab.join("alice").send(kind="capability/grant", payload=granted)
    for passed, offered in ((9, True), (1, False)):
        lab.now += passed * 1_000_000
        assert ("chat" in {action.kind for action in list_actions(lab.space, "bob", lab.now).kinds}) is offered
