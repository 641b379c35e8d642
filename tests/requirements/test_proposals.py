"""Proposals: who opens and ends them, which requests fulfil them, which votes they need (protocol §3)."""

from typing import Any

import msgspec
import pytest

from mew.protocol.canonical_json import digests
from mew.protocol.capabilities import read_capability
from mew.protocol.settings import ApprovalRule
from tests.requirements.transports import Transport

ALL = [{"kind": "*"}]
MAY_PROPOSE = [{"kind": "mcp/proposal"}, {"kind": "chat"}]
CALL = {"method": "tools/call", "params": {"name": "write_file", "arguments": {"path": "a", "n": 1}}}
PEOPLE = {"alice": ALL, "bob": MAY_PROPOSE, "carol": ALL, "files": None}


def propose(client: Any, name: str = "p-1", payload: Any = CALL, to: Any = ("files",), **fields: Any) -> dict[str, Any]:
    """Send a proposal, and return the stamp that the gateway adds."""
    client.inbox()
    client.send(fields, id=name, kind="mcp/proposal", to=list(to), payload=payload)
    stamp: dict[str, Any] = client.take("mcp/proposal").get("proposal", {})
    return stamp


def fulfil(
    client: Any, stamp: Any, name: str = "p-1", payload: Any = CALL, to: Any = ("files",), **fields: Any
) -> None:
    client.inbox()
    claim = {} if stamp is None else {"proposal": {"position": stamp["position"], "digest": stamp["digest"]}}
    client.send({**claim, **fields}, kind="mcp/request", correlation_id=[name], to=list(to), payload=payload)


def claim(stamp: dict[str, Any]) -> dict[str, Any]:
    return {"position": stamp["position"], "digest": stamp["digest"]}


def refusal(client: Any) -> str:
    return str(client.error()["error"])


def open_ids(lab: Any) -> list[str]:
    return list(lab.state.proposals)


@pytest.mark.transport
@pytest.mark.requirement("PRO-01")
def test_a_proposal_is_stamped_by_the_gateway(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    forged = {"position": 3, "digest": "x", "expires_at": "2099-01-01T00:00:00.000000Z"}
    stamp = propose(bob, proposal=forged)
    assert alice.take("mcp/proposal")["proposal"] == stamp
    record = next(record for record in lab.records if record.kind == "mcp/proposal")
    expected = digests(msgspec.json.encode(CALL), ["files"]).digest
    assert stamp == {"position": record.position, "digest": expected, "expires_at": stamp["expires_at"]}
    assert open_ids(lab) == ["p-1"]


@pytest.mark.requirement("PRO-01")
@pytest.mark.transports("core")
def test_a_post_is_answered_with_the_stamp(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    answer = lab.post("bob", {"id": "p-1", "kind": "mcp/proposal", "payload": CALL})
    assert answer.body["proposal"]["position"] == lab.state.proposals["p-1"].position


@pytest.mark.requirement("PRO-02")
@pytest.mark.parametrize(
    ("sent", "seconds"),
    [({}, 300), ({"expires_in_seconds": 10}, 10), ({"expires_in_seconds": 86_400}, 86_400), (None, 300)],
)
def test_a_proposal_says_how_long_it_waits(open_space: Transport, sent: Any, seconds: int) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    propose(bob, proposal=sent)
    lab.advance(seconds - 1)
    assert open_ids(lab) == ["p-1"]
    lab.advance(1)
    assert open_ids(lab) == []
    assert alice.take("mcp/proposal-closed")["payload"]["outcome"] == "expired"


@pytest.mark.requirement("PRO-02")
@pytest.mark.parametrize(
    "sent", [{"expires_in_seconds": seconds} for seconds in (9.9, 86_401, "60", True)] + [5, "soon"]
)
def test_any_other_time_is_refused(open_space: Transport, sent: Any) -> None:
    bob = open_space(participants=PEOPLE).join("bob")
    bob.inbox()
    bob.send(kind="mcp/proposal", payload=CALL, proposal=sent)
    assert refusal(bob) == "invalid_envelope"


@pytest.mark.requirement("PRO-03")
@pytest.mark.parametrize("payload", [{}, {"method": 5}, {"method": ""}, {"params": {}}])
def test_a_proposal_without_a_method_is_only_relayed(open_space: Transport, payload: Any) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    assert propose(bob, payload=payload, proposal={"position": 1, "digest": "x"}) == {}
    assert open_ids(lab) == []
    fulfil(alice, None)
    assert "proposal" not in alice.take("mcp/request")


@pytest.mark.requirement("PRO-04")
@pytest.mark.parametrize("payload", [CALL, {"method": "other"}, {}])
def test_the_first_of_an_id_wins(open_space: Transport, payload: Any) -> None:
    lab = open_space(participants={**PEOPLE, "carol": MAY_PROPOSE})
    bob, carol, alice = lab.join("bob"), lab.join("carol"), lab.join("alice")
    stamp = propose(bob)
    for client in (carol, bob):
        client.inbox()
        client.send(id="p-1", kind="mcp/proposal", payload=payload)
        error = client.error()
        assert (error["error"], error["position"]) == ("already_exists", stamp["position"])
    fulfil(alice, stamp)
    assert alice.take("mcp/request")["proposal"] == claim(stamp)
    carol.inbox()
    carol.send(id="p-1", kind="mcp/proposal", payload=payload)
    assert carol.error()["position"] == stamp["position"]


@pytest.mark.requirement("PRO-05")
@pytest.mark.parametrize("params", [b'{"a":1,"a":2}', b'{"a":[1' + b"0" * 400 + b"]}"])
def test_what_two_readers_could_read_differently_is_no_proposal(open_space: Transport, params: bytes) -> None:
    bob = open_space(participants=PEOPLE).join("bob")
    bob.inbox()
    bob.send_bytes(b'{"kind":"mcp/proposal","payload":{"method":"m","params":' + params + b"}}")
    assert refusal(bob) == "invalid_envelope"
    bob.send_bytes(b'{"kind":"mcp/proposal","payload":{"text":"a plan","params":{"a":1,"a":2}}}')
    assert "proposal" not in bob.take("mcp/proposal")


@pytest.mark.transport
@pytest.mark.requirement("PRO-06")
def test_a_request_fulfils_the_proposal_once(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stamp = propose(bob)
    fulfil(alice, stamp, id="r-1")
    assert bob.take("mcp/request")["proposal"] == claim(stamp)
    assert open_ids(lab) == []
    fulfil(carol, stamp)
    error = carol.error()
    assert {name: error[name] for name in ("error", "outcome", "by", "position")} == {
        "error": "proposal_closed",
        "outcome": "fulfilled",
        "by": "alice",
        "position": stamp["position"],
    }
    assert error["request"] == lab.state.closed_proposals["p-1"].request


@pytest.mark.requirement("PRO-07")
@pytest.mark.parametrize(
    "changed",
    [
        {"payload": {**CALL, "method": "tools/list"}},
        {"payload": {"method": "tools/call", "params": {"name": "exec_file"}}},
        {"to": ["files", "carol"]},
        {"to": []},
        {"proposal": {"position": 1, "digest": "x"}},
    ],
    ids=["method", "params", "one more", "nobody", "claim"],
)
def test_a_request_that_differs_is_refused_and_the_proposal_waits(open_space: Transport, changed: Any) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    stamp = propose(bob)
    fulfil(alice, stamp, **changed)
    error = alice.error()
    assert (error["error"], error["position"]) == ("proposal_mismatch", stamp["position"])
    assert open_ids(lab) == ["p-1"]


@pytest.mark.requirement("PRO-07")
def test_a_proposal_without_recipients_may_be_fulfilled_to_any_participant(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    stamp = propose(bob, to=[])
    fulfil(alice, stamp, to=["carol"])
    assert alice.take("mcp/request")["proposal"] == claim(stamp)


@pytest.mark.requirement("PRO-08")
def test_a_typescript_client_fulfils_by_the_id_alone(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    stamp = propose(bob)
    same = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    same["params"] = {"arguments": {"n": 1.0, "path": "a"}, "name": "write_file"}
    fulfil(alice, None, payload=same, to=["carol"])
    assert alice.take("mcp/request")["proposal"] == claim(stamp)


@pytest.mark.requirement("PRO-08")
@pytest.mark.parametrize("padding", ["", "x" * 2_000_000])
def test_by_the_id_alone_changed_content_is_refused(open_space: Transport, padding: str) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    propose(bob)
    fulfil(alice, None, payload={"method": "tools/call", "params": {"name": "exec_file" + padding}})
    assert refusal(alice) == "proposal_mismatch"
    assert open_ids(lab) == ["p-1"]


@pytest.mark.requirement("PRO-09")
@pytest.mark.parametrize("with_claim", [True, False])
def test_a_closed_proposal_refuses_even_those_who_may(open_space: Transport, with_claim: bool) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    stamp = propose(bob)
    bob.send(id="w-1", kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    fulfil(alice, stamp if with_claim else None)
    error = alice.error()
    assert (error["error"], error["outcome"], error["by"]) == ("proposal_closed", "withdrawn", "bob")
    assert (error["request"], error["position"]) == (lab.state.closed_proposals["p-1"].request, stamp["position"])
    alice.send(kind="mcp/request", to=["files"], payload=CALL)
    assert "proposal" not in alice.take("mcp/request")


@pytest.mark.requirement("PRO-10")
def test_a_request_that_names_no_proposal_is_an_ordinary_one(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    stamp = propose(bob)
    fulfil(alice, None, name="something else")
    assert "proposal" not in alice.take("mcp/request")
    fulfil(alice, stamp, name="something else")
    assert refusal(alice) == "proposal_mismatch"
    fulfil(alice, {**stamp, "position": 10_000}, name="something else")
    error = alice.error()
    assert (error["error"], error["position"]) == ("proposal_closed", 10_000)
    fulfil(alice, None, name="something else", proposal="p-1")
    assert refusal(alice) == "invalid_envelope"


@pytest.mark.requirement("PRO-11")
def test_a_request_fulfils_one_proposal(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    propose(bob)
    propose(bob, "p-2")
    alice.inbox()
    alice.send(kind="mcp/request", correlation_id=["p-1", "p-2"], to=["files"], payload=CALL)
    assert refusal(alice) == "proposal_mismatch"
    alice.send(kind="mcp/reject", correlation_id=["p-1", "p-2"], payload={})
    assert "proposal" not in alice.take("mcp/reject")
    assert open_ids(lab) == ["p-1", "p-2"]


@pytest.mark.requirement("PRO-12")
def test_fulfilling_needs_the_capability_for_the_request(open_space: Transport) -> None:
    lab = open_space(participants={"bob": MAY_PROPOSE, "dave": [{"kind": "mcp/request", "payload": {"method": "x"}}]})
    bob, dave = lab.join("bob"), lab.join("dave")
    stamp = propose(bob)
    fulfil(dave, stamp)
    assert refusal(dave) == "capability_violation"
    fulfil(bob, stamp)
    assert refusal(bob) == "capability_violation"
    assert open_ids(lab) == ["p-1"]


@pytest.mark.transport
@pytest.mark.requirement("PRO-13")
@pytest.mark.parametrize(("kind", "outcome"), [("mcp/response", "fulfilled"), ("mcp/reject", "rejected")])
def test_an_answer_to_the_proposal_itself_closes_it(open_space: Transport, kind: str, outcome: str) -> None:
    people = {**PEOPLE, "files": [{"kind": kind}], "eve": [{"kind": kind}]}
    for who in ("files", "alice"):
        lab = open_space(participants=people)
        bob, eve, decider = lab.join("bob"), lab.join("eve"), lab.join(who)
        stamp = propose(bob)
        eve.send(kind=kind, correlation_id=["p-1"], payload={}, proposal=claim(stamp))
        assert "proposal" not in bob.take(kind), "an opinion"
        assert open_ids(lab) == ["p-1"]
        decider.send(kind=kind, correlation_id=["p-1"], payload={})
        assert bob.take(kind)["proposal"] == claim(stamp)
        closed = lab.state.closed_proposals["p-1"]
        assert (closed.outcome, closed.by) == (outcome, who)
        decider.send(kind=kind, correlation_id=["p-1"], payload={})
        assert "proposal" not in bob.take(kind), "it has ended already"


@pytest.mark.transport
@pytest.mark.requirement("PRO-14")
def test_the_proposer_may_always_withdraw(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    stamp = propose(bob)
    alice.send(kind="participant/pause", to=["bob"], payload={})
    bob.inbox()
    bob.send(kind="mcp/withdraw", correlation_id=["something else"], payload={})
    assert refusal(bob) == "paused"
    bob.send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    assert bob.take("mcp/withdraw")["proposal"] == claim(stamp)
    bob.send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    assert refusal(bob) == "proposal_closed"


@pytest.mark.requirement("PRO-14")
def test_only_the_proposer_withdraws_a_proposal(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    propose(bob)
    propose(bob, "p-2")
    alice.inbox()
    alice.send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    assert refusal(alice) == "unauthorized"
    alice.send(kind="mcp/withdraw", correlation_id=["something else"], payload={}, proposal={"position": 1})
    assert "proposal" not in alice.take("mcp/withdraw")
    bob.inbox()
    bob.send(kind="mcp/withdraw", correlation_id=["something else"], payload={})
    assert refusal(bob) == "capability_violation"
    bob.send(kind="mcp/withdraw", correlation_id=["p-1", "p-2"], payload={})
    assert refusal(bob) == "proposal_mismatch"
    assert open_ids(lab) == ["p-1", "p-2"]


@pytest.mark.transport
@pytest.mark.requirement("PRO-15")
@pytest.mark.transports("core", "memory", "websocket")
def test_a_click_after_the_end_is_refused_even_before_the_next_tick(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    stamp = propose(bob, proposal={"expires_in_seconds": 10})
    lab.now += 10_000_000
    fulfil(alice, stamp)
    closed = alice.take("mcp/proposal-closed")
    assert (closed["from"], closed["correlation_id"]) == ("system:gateway", ["p-1"])
    assert closed["payload"] == {"position": stamp["position"], "proposal": "p-1", "outcome": "expired"}
    error = alice.error()
    assert (error["error"], error["outcome"], error["request"]) == ("proposal_closed", "expired", None)


@pytest.mark.requirement("PRO-16")
@pytest.mark.transports("core")
def test_what_expired_in_the_meantime_is_closed_at_the_start(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    propose(lab.join("bob"))
    lab.now += 301_000_000
    lab.restart()
    assert [record.kind for record in lab.records][-1] == "mcp/proposal-closed"
    assert lab.join("alice").take("system/welcome")["payload"]["open_proposals"] == []


@pytest.mark.transport
@pytest.mark.requirement("PRO-17")
def test_leaving_keeps_a_proposal_and_a_kick_closes_it(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    propose(bob)
    bob.leave()
    assert open_ids(lab) == ["p-1"]
    alice.inbox()
    alice.send(kind="space/kick", payload={"participant_id": "bob"})
    assert alice.take("mcp/proposal-closed")["payload"]["outcome"] == "kicked"
    assert open_ids(lab) == []


@pytest.mark.transport
@pytest.mark.requirement("PRO-17")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("kick", [False, True])
def test_what_an_anonymous_participant_proposed_ends_with_it(open_space: Transport, kick: bool) -> None:
    lab = open_space(participants=PEOPLE, defaults=[{"kind": "mcp/proposal"}], allow_anonymous=True)
    alice, guest = lab.join("alice"), lab.connect()
    guest.send(type="join", participantId="guest")
    propose(guest)
    if kick:
        alice.send(kind="space/kick", payload={"participant_id": "guest"})
    else:
        guest.leave()
    assert alice.take("mcp/proposal-closed")["payload"]["outcome"] == ("kicked" if kick else "left")


@pytest.mark.requirement("PRO-17")
@pytest.mark.transports("core")
def test_no_anonymous_proposal_outlives_a_restart(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE, defaults=[{"kind": "mcp/proposal"}], allow_anonymous=True)
    guest, bob = lab.connect(), lab.join("bob")
    guest.send(type="join", participantId="guest")
    propose(guest)
    propose(bob, "p-2")
    lab.restart()
    assert open_ids(lab) == ["p-2"]
    assert lab.state.closed_proposals["p-1"].outcome == "left"


@pytest.mark.requirement("PRO-18")
def test_only_the_gateway_says_that_a_proposal_is_closed(open_space: Transport) -> None:
    alice = open_space(participants=PEOPLE).join("alice")
    alice.inbox()
    alice.send(kind="mcp/proposal-closed", payload={"position": 1, "proposal": "p-1", "outcome": "expired"})
    assert refusal(alice) == "reserved_kind"


@pytest.mark.requirement("PRO-19")
@pytest.mark.parametrize(
    ("payload", "to"),
    [
        ({"method": "m", "params": {"a": "x" * 2**20}}, []),
        ({"method": "m" * 257}, []),
        ({"method": "m"}, ["x" * 4096]),
        ({"method": "m", "params": {"a": [0] * 50_001}}, []),
    ],
    ids=["bytes", "method", "recipients", "values"],
)
def test_a_proposal_has_a_size(open_space: Transport, payload: Any, to: Any) -> None:
    bob = open_space(participants=PEOPLE).join("bob")
    bob.inbox()
    bob.send(kind="mcp/proposal", to=to, payload=payload)
    assert refusal(bob) == "quota_exceeded"


@pytest.mark.requirement("PRO-20")
@pytest.mark.transports("core")
@pytest.mark.parametrize(("count", "size", "left"), [(66, 0, 64), (6, 900_000, 4)])
def test_a_proposer_with_too_many_loses_its_own_oldest(open_space: Transport, count: int, size: int, left: int) -> None:
    lab = open_space(participants={**PEOPLE, "dave": MAY_PROPOSE})
    alice, bob, dave = lab.join("alice"), lab.join("bob"), lab.join("dave")
    propose(dave, "real")
    for number in range(count):
        propose(bob, f"p-{number}", {"method": "m", "params": {"a": "x" * size}})
    assert open_ids(lab) == ["real", *(f"p-{number}" for number in range(count - left, count))]
    closed = [message["payload"] for message in alice.inbox() if message["kind"] == "mcp/proposal-closed"]
    assert [message["proposal"] for message in closed] == [f"p-{number}" for number in range(count - left)]
    assert {message["outcome"] for message in closed} == {"dropped"}


@pytest.mark.requirement("PRO-21")
@pytest.mark.transports("core")
@pytest.mark.parametrize(("each_has", "proposers", "size"), [(64, 8, 0), (4, 5, 1_000_000)])
def test_a_space_that_is_full_takes_no_more(open_space: Transport, each_has: int, proposers: int, size: int) -> None:
    people = {f"bot-{number}": MAY_PROPOSE for number in range(proposers + 1)}
    lab = open_space(participants=people)
    clients = [lab.join(name) for name in people]
    payload = {"method": "m", "params": {"a": "x" * size}}
    for client in clients[:proposers]:
        for number in range(each_has):
            client.send(id=f"{client.participant}-{number}", kind="mcp/proposal", payload=payload)
    clients[-1].inbox()
    clients[-1].send(kind="mcp/proposal", payload=payload)
    full = lab.state.proposals
    assert refusal(clients[-1]) == "quota_exceeded"
    assert sum(proposal.size for proposal in full.values()) <= 16 * 2**20
    propose(clients[0], "instead", payload)
    assert list(full)[-1] == "instead"


@pytest.mark.requirement("PRO-22")
def test_an_id_is_free_again_after_an_hour(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    first = propose(bob)
    bob.send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    for _ in range(59):
        lab.advance(60)
    bob.inbox()
    bob.send(id="p-1", kind="mcp/proposal", payload=CALL)
    assert refusal(bob) == "already_exists"
    lab.advance(60)
    second = propose(bob)
    assert second["position"] > first["position"]
    assert lab.state.closed_proposals == {}
    assert lab.state.closed_positions == {}
    fulfil(alice, first)
    assert refusal(alice) == "proposal_mismatch"
    fulfil(alice, second)
    assert alice.take("mcp/request")["proposal"] == claim(second)
    assert lab.state.closed_by_proposer == {"bob": {"p-1": None}}


@pytest.mark.requirement("PRO-22")
@pytest.mark.transports("core")
def test_a_proposer_is_remembered_for_its_last_1024(open_space: Transport) -> None:
    lab = open_space(participants={"bob": [{"kind": "mcp/*"}]})
    bob = lab.join("bob")
    for number in range(1_026):
        bob.send(id=f"p-{number}", kind="mcp/proposal", payload={"method": "m"})
        bob.send(kind="mcp/withdraw", correlation_id=[f"p-{number}"], payload={})
        lab.now += 10_000
    assert list(lab.state.closed_proposals) == [f"p-{number}" for number in range(2, 1_026)]
    assert list(lab.state.closed_by_proposer["bob"]) == list(lab.state.closed_proposals)
    lab.advance(3_600)
    propose(bob, "p-last")
    bob.send(kind="mcp/withdraw", correlation_id=["p-last"], payload={})
    assert list(lab.state.closed_proposals) == ["p-last"]


@pytest.mark.transport
@pytest.mark.requirement("PRO-23")
def test_a_late_joiner_that_may_fulfil_sees_the_open_proposals(open_space: Transport) -> None:
    lab = open_space(participants={**PEOPLE, "dave": MAY_PROPOSE})
    stamp = propose(lab.join("bob"))
    (entry,) = lab.join("alice").take("system/welcome")["payload"]["open_proposals"]
    assert entry == {
        "position": stamp["position"],
        "id": "p-1",
        "from": "bob",
        "to": ["files"],
        "method": "tools/call",
        "digest": stamp["digest"],
        "expires_at": stamp["expires_at"],
        "bytes": len(msgspec.json.encode(CALL)),
        "votes": [],
    }
    for client in (lab.join("files"), lab.join("dave")):
        assert "open_proposals" not in client.take("system/welcome")["payload"]


# Rules with a quorum


def rule(*deciders: str, **fields: Any) -> ApprovalRule:
    match = {"kind": "mcp/request", "payload": {"params": {"name": "write_*"}}, "to": ["files"]}
    return ApprovalRule(match=read_capability(match, "match"), deciders=deciders, **fields)


def approve(client: Any, stamp: Any, name: str = "p-1") -> None:
    client.inbox()
    client.send(kind="mcp/approve", correlation_id=[name], proposal=claim(stamp), payload={})


@pytest.mark.transport
@pytest.mark.requirement("PRO-24")
def test_a_request_that_a_rule_binds_waits_for_its_votes(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("alice", "carol", quorum=2),))
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stamp = propose(bob)
    fulfil(alice, stamp)
    error = alice.error()
    assert (error["error"], error["quorum"], error["votes"]) == ("approval_required", 2, ["alice"])
    approve(carol, stamp)
    assert alice.take("mcp/approve")["proposal"] == claim(stamp)
    approve(carol, stamp)
    assert lab.state.proposals["p-1"].votes == ("carol",)
    fulfil(alice, stamp)
    assert alice.take("mcp/request")["proposal"] == claim(stamp)


@pytest.mark.requirement("PRO-25")
@pytest.mark.parametrize(
    ("fields", "to", "passes"),
    [
        ({}, ["files"], False),
        ({}, [], False),
        ({}, ["carol", "files"], False),
        ({"not_proposer": False}, ["files"], True),
        ({"not_proposer": False, "quorum": 2}, ["files"], False),
        ({}, ["carol"], True),
    ],
)
def test_a_rule_binds_requests_without_a_proposal(open_space: Transport, fields: Any, to: Any, passes: bool) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("alice", **fields),))
    alice = lab.join("alice")
    alice.inbox()
    alice.send(kind="mcp/request", to=to, payload=CALL)
    assert alice.kinds() == (["mcp/request"] if passes else ["system/error"])
    alice.send(kind="mcp/request", to=to, payload={"method": "tools/list"})
    assert alice.kinds() == ["mcp/request"]


@pytest.mark.requirement("PRO-25")
def test_a_rule_binds_a_request_that_is_too_long_to_be_compared(open_space: Transport) -> None:
    match = {"kind": "mcp/request", "payload": {"params": {"note": "*secret*file*"}}}
    bound = ApprovalRule(match=read_capability(match, "match"), deciders=("alice",))
    lab = open_space(participants=PEOPLE, approvals=(bound,))
    alice = lab.join("alice")
    for note, kinds in (("z" * 1_000, ["mcp/request"]), ("z" * 70_000, ["system/error"])):
        alice.inbox()
        alice.send(kind="mcp/request", payload={"method": "tools/call", "params": {"note": note}})
        assert alice.kinds() == kinds


@pytest.mark.requirement("PRO-12")
def test_a_right_that_takes_too_long_to_find_closes_no_proposal(open_space: Transport) -> None:
    patterns = [{"kind": "mcp/request", "payload": {"params": {"note": f"*a{n}*b*"}}} for n in range(100)]
    people = {**PEOPLE, "dave": [{"kind": "mcp/reject"}, *patterns]}
    lab = open_space(participants=people)
    bob, dave = lab.join("bob"), lab.join("dave")
    propose(bob, payload={"method": "tools/call", "params": {"note": "z" * 60_000}})
    dave.send(kind="mcp/reject", correlation_id=["p-1"], payload={})
    assert "proposal" not in bob.take("mcp/reject")
    assert open_ids(lab) == ["p-1"]


@pytest.mark.requirement("PRO-26")
def test_who_is_no_decider_has_no_vote(open_space: Transport) -> None:
    people = {**PEOPLE, "dave": [{"kind": "mcp/approve"}], "carol": MAY_PROPOSE}
    lab = open_space(participants=people, approvals=(rule("alice", "carol", "bob", "ghost"),))
    alice, bob, carol, dave = (lab.join(name) for name in ("alice", "bob", "carol", "dave"))
    stamp = propose(alice)
    for client in (dave, carol, alice):  # not listed; may not send it; its proposer
        approve(client, stamp)
        assert refusal(client) == "unauthorized"
    fulfil(alice, stamp)
    assert refusal(alice) == "approval_required"
    assert bob.take("mcp/proposal")["proposal"] == stamp


@pytest.mark.transport
@pytest.mark.requirement("PRO-26")
@pytest.mark.transports("core", "memory", "websocket")
def test_an_anonymous_participant_never_counts(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE, defaults=ALL, allow_anonymous=True, approvals=(rule("ghost"),))
    bob, ghost = lab.join("bob"), lab.connect()
    ghost.send(type="join", participantId="ghost")
    stamp = propose(bob)
    approve(ghost, stamp)
    assert refusal(ghost) == "unauthorized"
    fulfil(ghost, stamp)
    assert refusal(ghost) == "approval_required"


@pytest.mark.requirement("PRO-26")
@pytest.mark.parametrize("how", ["kick", "revoke"])
def test_a_vote_ends_with_what_it_rests_on(open_space: Transport, how: str) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("alice", "carol", quorum=2),))
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stamp = propose(bob)
    approve(carol, stamp)
    if how == "kick":
        alice.send(kind="space/kick", payload={"participant_id": "carol"})
        assert lab.state.proposals["p-1"].votes == ()
    else:
        alice.send(kind="capability/revoke", payload={"recipient": "carol", "capabilities": [{"kind": "*"}]})
        alice.send(kind="capability/grant", payload={"recipient": "carol", "capabilities": [{"kind": "*"}]})
    fulfil(alice, stamp)
    assert alice.error()["votes"] == ["alice"]


@pytest.mark.requirement("PRO-27")
def test_only_a_deciders_rejection_closes(open_space: Transport) -> None:
    people = {**PEOPLE, "files": [{"kind": "mcp/reject"}]}
    lab = open_space(participants=people, approvals=(rule("carol"),))
    bob, alice, files, carol = (lab.join(name) for name in ("bob", "alice", "files", "carol"))
    stamp = propose(bob)
    for client in (alice, files):
        client.send(kind="mcp/reject", correlation_id=["p-1"], payload={})
        assert "proposal" not in bob.take("mcp/reject")
    carol.send(kind="mcp/reject", correlation_id=["p-1"], payload={})
    assert bob.take("mcp/reject")["proposal"] == claim(stamp)


@pytest.mark.requirement("PRO-35")
def test_a_response_ends_a_bound_proposal_when_enough_have_voted(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("carol"),))
    bob, files, carol = lab.join("bob"), lab.join("files"), lab.join("carol")
    stamp = propose(bob)
    for voted in (False, True):
        if voted:
            approve(carol, stamp)
        bob.inbox()
        files.send(kind="mcp/response", correlation_id=["p-1"], payload={})
        assert ("proposal" in bob.take("mcp/response")) is voted
    assert open_ids(lab) == []


@pytest.mark.requirement("PRO-27")
def test_of_two_rules_a_decider_of_either_may_reject(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("carol"), rule("alice")))
    bob, carol = lab.join("bob"), lab.join("carol")
    stamp = propose(bob)
    carol.send(kind="mcp/reject", correlation_id=["p-1"], payload={})
    assert bob.take("mcp/reject")["proposal"] == claim(stamp)


@pytest.mark.requirement("PRO-28")
def test_a_vote_is_on_one_open_proposal_that_needs_it(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("alice"),))
    alice, bob = lab.join("alice"), lab.join("bob")
    stamp, other = propose(bob), propose(bob, "p-2", {"method": "tools/list"})
    alice.inbox()
    alice.send(kind="mcp/approve", correlation_id=["p-1"], payload={})
    assert refusal(alice) == "invalid_envelope"
    alice.send(kind="mcp/approve", proposal=claim(stamp), payload={})
    assert refusal(alice) == "invalid_envelope"
    approve(alice, other)
    assert refusal(alice) == "proposal_mismatch"
    approve(alice, stamp, "something else")
    assert refusal(alice) == "proposal_mismatch"
    approve(alice, other, "p-2")
    assert refusal(alice) == "invalid_operation"
    bob.send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    approve(alice, stamp)
    assert refusal(alice) == "proposal_closed"


@pytest.mark.requirement("PRO-33")
@pytest.mark.parametrize("name", [["read_a", "write_a"], ["read_a"] * 1_025, {"0": "write_a"}])
def test_a_rule_binds_what_could_be_another_form_of_what_it_names(open_space: Transport, name: Any) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("alice"),))
    alice = lab.join("alice")
    for tool, kinds in ((name, ["system/error"]), (["read_a", "read_b"], ["mcp/request"])):
        alice.inbox()
        alice.send(kind="mcp/request", to=["files"], payload={"method": "tools/call", "params": {"name": tool}})
        assert alice.kinds() == kinds


@pytest.mark.requirement("PRO-34")
@pytest.mark.parametrize(
    ("params", "error"),
    [(b'{"name":"write_a","name":"read_a"}', "invalid_envelope"), (b"[%b0]" % (b"0," * 50_000), "quota_exceeded")],
)
def test_where_rules_judge_requests_they_have_one_reading(open_space: Transport, params: bytes, error: str) -> None:
    text = b'{"kind":"mcp/request","to":["files"],"payload":{"method":"tools/call","params":' + params + b"}}"
    for rules in ((), (rule("alice"),)):
        alice = open_space(participants=PEOPLE, approvals=rules).join("alice")
        alice.inbox()
        alice.send_bytes(text)
        assert refusal(alice) == error if rules else alice.kinds() == ["mcp/request"]


@pytest.mark.requirement("PRO-32")
def test_votes_are_for_the_recipients_that_were_proposed(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("alice", "carol", quorum=2),))
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    approve(carol, propose(bob))
    fulfil(alice, None, to=["files", "carol"])
    error = alice.error()
    assert (error["error"], error["votes"]) == ("approval_required", ["alice"])
    fulfil(alice, None)
    assert alice.kinds() == ["mcp/request"]


# Grants with an expiry


def grant(client: Any, name: str, **fields: Any) -> None:
    client.inbox()
    payload = {"recipient": "bob", "capabilities": [{"kind": "memo"}], **fields}
    client.send(id=name, kind="capability/grant", payload=payload)


@pytest.mark.transport
@pytest.mark.requirement("PRO-29")
def test_a_grant_ends_when_it_said(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    grant(alice, "g-1", timeout_seconds=30)
    granted = alice.take("capability/grant")["id"]
    lab.advance(29)
    bob.inbox()
    bob.send(kind="memo", payload={})
    assert bob.take("memo")["from"] == "bob"
    lab.advance(1)
    revoked = bob.take("capability/revoke")
    assert revoked["from"] == "system:gateway"
    assert revoked["payload"] == {"recipient": "bob", "grant_id": granted, "reason": "expired"}
    assert {"kind": "memo"} not in bob.take("system/welcome")["payload"]["you"]["capabilities"]
    assert alice.take("system/presence")["payload"]["event"] == "capabilities"
    bob.send(kind="memo", payload={})
    assert refusal(bob) == "capability_violation"


@pytest.mark.requirement("PRO-30")
@pytest.mark.parametrize("seconds", [0, -1, 31_536_001, "60", True])
def test_a_grant_lasts_up_to_a_year(open_space: Transport, seconds: Any) -> None:
    lab = open_space(participants=PEOPLE)
    alice = lab.join("alice")
    grant(alice, "g-1", timeout_seconds=seconds)
    assert refusal(alice) == "invalid_envelope"
    grant(alice, "g-1", timeout_seconds=31_536_000)
    assert alice.kinds()[0] == "capability/grant"


@pytest.mark.transport
@pytest.mark.requirement("PRO-30")
@pytest.mark.transports("core", "memory", "websocket")
def test_the_end_of_a_grant_takes_no_other_along(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice = lab.join("alice")
    for first, second in (({}, {"timeout_seconds": 1}), ({"timeout_seconds": 1}, {}), ({"timeout_seconds": 9},) * 2):
        name = f"g-{first}"
        grant(alice, name, **first)
        assert "capability/grant" in alice.kinds()
        grant(alice, name, **second)
        assert refusal(alice) == "already_exists"
    alice.send(kind="capability/revoke", payload={"recipient": "bob", "capabilities": [{"kind": "memo"}]})
    assert lab.state.grant_ends == {}


@pytest.mark.requirement("PRO-29")
@pytest.mark.transports("core")
def test_two_grants_end_each_at_its_time(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE)
    alice, bob = lab.join("alice"), lab.join("bob")
    grant(alice, "g-1", timeout_seconds=10)
    grant(alice, "g-2", timeout_seconds=20, capabilities=[{"kind": "note"}])
    lab.advance(10)
    assert bob.take("capability/revoke")["payload"]["grant_id"] == "g-1"
    assert list(lab.state.grant_ends["bob"]) == ["g-2"]
    lab.advance(10)
    assert bob.take("capability/revoke")["payload"]["grant_id"] == "g-2"
    assert lab.state.grant_ends == {}


@pytest.mark.requirement("PRO-31")
@pytest.mark.transports("core")
def test_proposals_votes_and_ends_survive_a_restart(open_space: Transport) -> None:
    lab = open_space(participants=PEOPLE, approvals=(rule("alice", "carol", quorum=2),))
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    propose(bob, "p-0", {"method": "m"})
    bob.send(kind="mcp/withdraw", correlation_id=["p-0"], payload={})
    stamp = propose(bob)
    approve(carol, stamp)
    grant(alice, "g-1", timeout_seconds=30)
    lab.restart()
    alice, bob = lab.join("alice"), lab.join("bob")
    bob.inbox()
    bob.send(id="p-0", kind="mcp/proposal", payload={"method": "m"})
    assert refusal(bob) == "already_exists"
    fulfil(alice, stamp)
    assert alice.take("mcp/request")["proposal"] == claim(stamp)
    lab.advance(30)
    assert bob.take("capability/revoke")["payload"]["reason"] == "expired"
