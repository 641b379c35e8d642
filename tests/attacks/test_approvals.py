"""Attacks on approvals: none may send a request that a person has not seen, or has seen too late.

Each is tried where the decision is made: in the core, through a real gateway, or in the SDK.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mew
from mew.client.errors import ProposalClosed, ProposalExpired, ProposalMismatch
from mew.config.models import GatewayConfig, SpaceConfig
from mew.journal import JournalSettings
from mew.protocol.capabilities import read_capability
from mew.protocol.settings import ApprovalRule
from mew.testing import Client, MemorySpace, MemoryTokens, settings
from tests.client.harness import joining, played
from tests.gateway.raw import NO_JOURNAL, TEXT, Raw, Running, frame, joined, running, started, upgrade

ALL = [{"kind": "*"}]
MAY_PROPOSE = [{"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}, {"kind": "chat"}]
PEOPLE = {"human": ALL, "agent": MAY_PROPOSE, "mallory": MAY_PROPOSE, "files": None}
READ = {"method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "a"}}}
EXEC = {"method": "tools/call", "params": {"name": "exec_file", "arguments": {"path": "a"}}}


@pytest.fixture
def lab() -> MemorySpace:
    return MemorySpace(participants=PEOPLE)


@pytest.fixture
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("space"), {"participants": PEOPLE}) as started:
        yield started


def propose(client: Client, name: str, payload: Any = READ, to: Any = ("files",), **fields: Any) -> Any:
    client.inbox()
    client.send(fields, id=name, kind="mcp/proposal", to=list(to), payload=payload)
    inbox: list[Any] = client.inbox()
    (answer,) = [envelope for envelope in inbox if envelope["kind"] in {"mcp/proposal", "system/error"}]
    return answer


def click(client: Client, proposal: Any, name: str | None = None, **changed: Any) -> list[str]:
    """Approve a proposal as it was shown; return the errors or kinds that come back."""
    stamp = proposal["proposal"]
    client.inbox()
    claim = {"position": stamp["position"], "digest": stamp["digest"]}
    request = {"kind": "mcp/request", "to": proposal["to"], "payload": proposal["payload"], "proposal": claim}
    client.send({**request, "correlation_id": [name or proposal["id"]], **changed})
    inbox: list[Any] = client.inbox()
    return [envelope["payload"].get("error", envelope["kind"]) for envelope in inbox]


def executed(lab: MemorySpace) -> list[str]:
    """The names of the tools that were called."""
    calls = [record for record in lab.records if record.kind == "mcp/request" and record.event == "envelope"]
    return [msgspec.json.decode(record.payload)["payload"]["params"]["name"] for record in calls]


def test_a_proposal_that_timed_out_is_not_executed_14_seconds_later(lab: MemorySpace) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1", proposal={"expires_in_seconds": 10})
    lab.now += 24_000_000
    assert click(human, proposal) == ["mcp/proposal-closed", "proposal_closed"]
    assert executed(lab) == []


def test_a_second_proposal_with_the_same_id_does_not_replace_the_first(lab: MemorySpace) -> None:
    human, agent, mallory = lab.join("human"), lab.join("agent"), lab.join("mallory")
    proposal = propose(agent, "p-1")
    for attacker in (mallory, agent):
        assert propose(attacker, "p-1", EXEC)["payload"]["error"] == "already_exists"
    assert click(human, proposal) == ["mcp/request"]
    assert propose(mallory, "p-1", EXEC)["payload"]["error"] == "already_exists"
    assert executed(lab) == ["read_file"]


def test_a_proposal_after_a_withdrawal_is_not_approved_by_the_first_one(lab: MemorySpace) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1")
    agent.send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    assert propose(agent, "p-1", EXEC)["payload"]["error"] == "already_exists"
    lab.advance(3_600)
    assert propose(agent, "p-1", EXEC)["kind"] == "mcp/proposal"
    assert click(human, proposal) == ["proposal_mismatch"]
    assert executed(lab) == []


@pytest.mark.parametrize("count", [520, 65])
def test_many_proposals_do_not_displace_those_of_others(lab: MemorySpace, count: int) -> None:
    human, agent, mallory = lab.join("human"), lab.join("agent"), lab.join("mallory")
    proposal = propose(agent, "real")
    for number in range(count):
        mallory.send(id=f"noise-{number}", kind="mcp/proposal", payload=EXEC)
    late = lab.join("human")
    assert late.view is not None
    assert late.view.proposals is not None
    assert len(late.view.proposals) == 65
    assert late.view.proposals[proposal["proposal"]["position"]].proposal_id == "real"
    assert click(late, proposal) == ["mcp/request"]
    assert human.closed == 4409


def test_60000_frames_do_not_hide_a_proposal_from_a_late_joiner(lab: MemorySpace) -> None:
    lab = MemorySpace(participants={**PEOPLE, "game": ALL})
    agent, game = lab.join("agent"), lab.join("game")
    propose(agent, "p-1")
    game.send(kind="stream/request", payload={})
    route = lab.space.route("game", b"#stream-1#x")
    assert not isinstance(route, Exception)
    lab.space.accept_frames(route, 60_000, lab.now)
    welcome = lab.join("human").take("system/welcome")["payload"]
    assert [entry["id"] for entry in welcome["open_proposals"]] == ["p-1"]


def test_a_forged_stamp_is_replaced_or_removed(lab: MemorySpace) -> None:
    human, mallory = lab.join("human"), lab.join("mallory")
    forged = {"position": 1, "digest": "0" * 64, "expires_at": "2099-01-01T00:00:00.000000Z"}
    assert propose(mallory, "p-1", proposal=forged)["proposal"] != forged
    for kind in ("mcp/response", "mcp/proposal"):
        mallory.send(kind=kind, correlation_id=["p-1"], payload={}, proposal=forged)
        inbox: list[Any] = human.inbox()
        assert "proposal" not in inbox[-1]
    assert list(lab.state.proposals) == ["p-1"]


@pytest.mark.parametrize(
    "changed",
    [
        {"payload": EXEC},
        {"to": ["mallory"]},
        {"to": ["files", "mallory"]},
        {"to": []},
        {"payload": {**READ, "params": {**READ["params"], "extra": None}}},  # type: ignore[dict-item]
        {"correlation_id": ["p-1", "p-2"]},
        {"correlation_id": []},
    ],
    ids=["tool", "other", "one more", "none", "extra", "two", "unnamed"],
)
def test_a_request_that_differs_from_the_shown_proposal_is_refused(lab: MemorySpace, changed: Any) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1")
    propose(agent, "p-2")
    assert click(human, proposal, **changed) == ["proposal_mismatch"]
    assert executed(lab) == []


def test_another_participant_cannot_close_or_fulfil_a_proposal(lab: MemorySpace) -> None:
    human, agent, mallory = lab.join("human"), lab.join("agent"), lab.join("mallory")
    proposal = propose(agent, "p-1")
    for kind in ("mcp/withdraw", "mcp/response", "mcp/reject", "mcp/request", "mcp/proposal-closed", "mcp/approve"):
        claim = {name: proposal["proposal"][name] for name in ("position", "digest")}
        mallory.send(kind=kind, correlation_id=["p-1"], payload=READ, proposal=claim)
    assert click(human, proposal) == ["mcp/request"]
    assert click(human, proposal) == ["proposal_closed"]
    assert executed(lab) == ["read_file"]


def test_a_proposal_with_a_duplicate_field_is_refused(lab: MemorySpace) -> None:
    agent = lab.join("agent")
    agent.inbox()
    twice = b'{"name":"exec_file","name":"read_file"}'
    agent.send_bytes(b'{"id":"p-1","kind":"mcp/proposal","payload":{"method":"tools/call","params":' + twice + b"}}")
    assert agent.error()["error"] == "invalid_envelope"


def test_a_proposal_of_a_kicked_participant_is_closed(lab: MemorySpace) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1")
    human.send(kind="space/kick", payload={"participant_id": "agent"})
    assert click(human, proposal) == ["proposal_closed"]


def test_a_restart_reopens_no_proposal(lab: MemorySpace) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    done, late = propose(agent, "p-1"), propose(agent, "p-2", proposal={"expires_in_seconds": 10})
    assert click(human, done) == ["mcp/request"]
    lab.now += 10_000_000
    lab.restart()
    human = lab.join("human")
    assert click(human, done) == ["proposal_closed"]
    assert click(human, late) == ["proposal_closed"]


def as_read(client: Client, text: bytes) -> bytes:
    """The answer to an envelope that is sent byte by byte as the test wrote it."""
    client.inbox()
    client.send_bytes(text)
    inbox: list[Any] = client.inbox()
    return msgspec.json.encode(inbox[-1])


PROPOSED = b'{"id":"p-1","kind":"mcp/proposal","to":["files"],"payload":{"method":"m","params":{"a":%b}}}'
CLICKED = (
    b'{"kind":"mcp/request","to":["files"],"correlation_id":["p-1"],"proposal":{"position":%d,"digest":"%b"},'
    b'"payload":{"method":"m","params":{"a":%b}}}'
)


@pytest.mark.parametrize(
    ("shown", "sent", "same"),
    [
        (b"1", b"1.0", True),
        (b"1", b"1e0", True),
        (b"9007199254740993", b"9007199254740992", True),  # in JavaScript, both are the same double
        (b"9007199254740993", b"9007199254740994", False),
        (b"1", b'"1"', False),
        (b"1", b"true", False),
        ('"\u00e9"'.encode(), b'"\\u00e9"', True),
        ('"\u00e9"'.encode(), '"e\u0301"'.encode(), False),
        (b'"a"', '"\u0430"'.encode(), False),
        (b'"a"', '"a\u200b"'.encode(), False),
        (b'"a"', b'"\\u202ea"', False),
    ],
)
def test_values_that_parse_equal_match_and_values_that_only_look_equal_do_not(
    lab: MemorySpace, shown: bytes, sent: bytes, same: bool
) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    stamp = msgspec.json.decode(as_read(agent, PROPOSED % shown))["proposal"]
    answer = as_read(human, CLICKED % (stamp["position"], stamp["digest"].encode(), sent))
    assert (b'"mcp/request"' in answer, b'"proposal_mismatch"' in answer) == (same, not same)
    assert list(lab.state.proposals) == ([] if same else ["p-1"])


@pytest.mark.parametrize("twice", [b'1,"a":2', b'1,"\\u0061":2', b'{"b":[{"c":1,"c":2}]}'])
def test_a_duplicate_field_neither_opens_nor_fulfils_a_proposal(lab: MemorySpace, twice: bytes) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    assert b'"invalid_envelope"' in as_read(agent, PROPOSED % twice)
    stamp = msgspec.json.decode(as_read(agent, PROPOSED % b"1"))["proposal"]
    answer = as_read(human, CLICKED % (stamp["position"], stamp["digest"].encode(), twice))
    assert b'"invalid_envelope"' in answer
    assert list(lab.state.proposals) == ["p-1"]


def test_a_vote_counts_once_and_needs_a_named_decider_with_the_capability() -> None:
    bound = ApprovalRule(
        match=read_capability({"kind": "mcp/request"}, "match"),
        deciders=("human", "carol", "agent", "ghost"),
        quorum=2,
    )
    may_ask = [{"kind": "mcp/*"}]
    people = {**PEOPLE, "agent": may_ask, "carol": may_ask}
    lab = MemorySpace(participants=people, defaults=may_ask, allow_anonymous=True, approvals=(bound,))
    human, agent, carol, ghost = lab.join("human"), lab.join("agent"), lab.join("carol"), lab.connect()
    ghost.send(type="join", participantId="ghost")
    proposal = propose(agent, "p-1")
    approval = {"kind": "mcp/approve", "correlation_id": ["p-1"], "payload": {}}
    claim = {name: proposal["proposal"][name] for name in ("position", "digest")}
    for voter, error in ((agent, "unauthorized"), (ghost, "unauthorized"), (carol, None), (carol, None)):
        voter.inbox()
        voter.send({**approval, "proposal": claim})
        inbox: list[Any] = voter.inbox()
        assert [envelope["payload"].get("error") for envelope in inbox] == [error]
    assert lab.state.proposals["p-1"].votes == ("carol",)
    for alone in (carol, agent, ghost):
        assert "approval_required" in click(alone, proposal)
    human.send(kind="capability/revoke", payload={"recipient": "carol", "capabilities": may_ask})
    assert click(human, proposal) == ["approval_required"]
    human.send(kind="capability/grant", payload={"recipient": "carol", "capabilities": may_ask})
    assert click(human, proposal) == ["approval_required"]
    vote(carol, proposal)
    assert click(human, proposal)[-1] == "mcp/request"


MAY_ASK = [{"kind": "mcp/*"}]
VOTERS = {**PEOPLE, "human": MAY_ASK, "carol": MAY_ASK, "dave": MAY_ASK, "root": ALL, "prod": None}


def bound(*deciders: str, quorum: int = 1, **match: Any) -> ApprovalRule:
    return ApprovalRule(
        match=read_capability({"kind": "mcp/request", **match}, "match"), deciders=deciders, quorum=quorum
    )


def last(client: Client) -> Any:
    inbox: list[Any] = client.inbox()
    return inbox[-1]


def vote(client: Client, proposal: Any) -> None:
    client.inbox()
    claim = {name: proposal["proposal"][name] for name in ("position", "digest")}
    client.send(kind="mcp/approve", correlation_id=[proposal["id"]], payload={}, proposal=claim)


def test_votes_for_one_recipient_do_not_count_for_another() -> None:
    lab = MemorySpace(participants=VOTERS, approvals=(bound("human", "carol", quorum=2),))
    human, carol, dave, agent = (lab.join(name) for name in ("human", "carol", "dave", "agent"))
    proposal = propose(agent, "p-1")
    vote(carol, proposal)
    by_id = {"kind": "mcp/request", "correlation_id": ["p-1"], "payload": READ}
    for to in (["prod"], ["files", "prod"], []):
        human.inbox()
        human.send(by_id, to=to)
        assert human.error()["votes"] == ["human"]
    vote(human, proposal)
    dave.inbox()
    dave.send(by_id, to=["prod"])
    assert (dave.error()["votes"], executed(lab)) == ([], [])
    dave.send(by_id, to=["files"])
    assert executed(lab) == ["read_file"]


@pytest.mark.parametrize(
    "paths",
    [
        "/etc/passwd",
        ["/etc/passwd", "/tmp/x"],
        [["/tmp/x"], [["/etc/passwd"]]],
        ["/tmp/x", {"path": "/etc/passwd"}],
        ["/tmp/x"] * 1_025,
        [["/tmp/x"]] * 1_025,
        [],
        {"0": "/etc/passwd"},
        5,
        True,
    ],
    ids=lambda paths: repr(paths)[:40],
)
def test_a_value_in_a_list_or_another_type_does_not_evade_a_rule(paths: Any) -> None:
    lab = MemorySpace(
        participants=VOTERS, approvals=(bound("human", payload={"params": {"arguments": {"paths": "/etc/*"}}}),)
    )
    dave = lab.join("dave")
    for arguments, error in (
        ({"paths": paths}, "approval_required"),
        ({"paths": ["/tmp/x", "/tmp/y"]}, None),
        ({"paths": None}, None),
        ({"other": "/etc/passwd"}, None),
        ([{"paths": "/tmp/x"}, {"paths": paths}], "approval_required"),
        ("/etc/passwd", "approval_required"),
    ):
        dave.inbox()
        dave.send(kind="mcp/request", to=["files"], payload={**READ, "params": {"name": "r", "arguments": arguments}})
        assert last(dave)["payload"].get("error") == error


@pytest.mark.parametrize("params", [None, {}, {"name": None}, {"name": ["safe_a", "exec"]}, {"name": {}}])
def test_omitting_an_excepted_value_does_not_evade_a_rule(params: Any) -> None:
    lab = MemorySpace(participants=VOTERS, approvals=(bound("human", payload={"params": {"name": "!safe_*"}}),))
    dave = lab.join("dave")
    for params_field in ({"params": params}, {} if params is None else {"params": params}):
        dave.inbox()
        dave.send(kind="mcp/request", to=["files"], payload={"method": "tools/call", **params_field})
        assert dave.error()["error"] == "approval_required"
    dave.send(kind="mcp/request", to=["files"], payload={"method": "tools/call", "params": {"name": "safe_a"}})
    assert last(dave)["kind"] == "mcp/request"


TWICE = b'{"kind":"mcp/request","to":["files"],"payload":{"method":"tools/call","params":{"name":"exec"%b}}}'


@pytest.mark.parametrize("second", [b',"name":"safe"', b',"\\u006eame":"safe"', b',"arguments":{"a":[{"b":1,"b":2}]}'])
def test_a_duplicate_field_does_not_evade_a_rule(second: bytes) -> None:
    lab = MemorySpace(participants=VOTERS, approvals=(bound("human", payload={"params": {"name": "exec"}}),))
    assert b'"invalid_envelope"' in as_read(lab.join("dave"), TWICE % second)
    assert executed(lab) == []
    lab = MemorySpace(participants=VOTERS)
    assert b'"mcp/request"' in as_read(lab.join("dave"), TWICE % second)


def test_a_decider_of_one_of_two_rules_can_reject_after_its_vote() -> None:
    rules = (bound("carol", "dave"), bound("human", "dave", payload={"params": {"name": "read_*"}}))
    lab = MemorySpace(participants=VOTERS, approvals=rules)
    human, carol, agent = lab.join("human"), lab.join("carol"), lab.join("agent")
    proposal = propose(agent, "p-1")
    vote(carol, proposal)
    carol.send(kind="mcp/reject", correlation_id=["p-1"], payload={})
    assert click(human, proposal) == ["proposal_closed"]
    assert lab.state.closed_proposals["p-1"].outcome == "rejected"


def test_a_response_does_not_fulfil_a_proposal_that_lacks_votes() -> None:
    lab = MemorySpace(participants=VOTERS, approvals=(bound("human", "carol", quorum=2),))
    agent, files, carol = lab.join("agent"), lab.join("files"), lab.join("carol")
    proposal = propose(agent, "p-1", to=["files", "agent"])
    for sender in (files, agent, carol):
        sender.inbox()
        sender.send(kind="mcp/response", correlation_id=["p-1"], payload={"result": {}})
        assert "proposal" not in last(sender)
    assert list(lab.state.proposals) == ["p-1"]
    vote(lab.join("human"), proposal)
    carol.send(kind="mcp/response", correlation_id=["p-1"], payload={"result": {}})
    assert lab.state.closed_proposals["p-1"].outcome == "fulfilled"


@pytest.mark.parametrize("cause", ["revoked", "ended", "configured", "removed"])
def test_a_voter_that_loses_its_capability_loses_its_vote(cause: str) -> None:
    people = {**VOTERS, "carol": MAY_PROPOSE} if cause == "ended" else VOTERS
    rules = (bound("human", "carol", quorum=2),)
    lab = MemorySpace(participants=people, approvals=rules)
    root, agent, carol = lab.join("root"), lab.join("agent"), lab.join("carol")
    granted = {"recipient": "carol", "capabilities": MAY_ASK}
    if cause == "ended":
        root.send(id="g-1", kind="capability/grant", payload={**granted, "timeout_seconds": 10})
    proposal = propose(agent, "p-1")
    vote(carol, proposal)
    if cause == "revoked":
        root.send(kind="capability/revoke", payload=granted)
    elif cause == "ended":
        lab.advance(10)
    else:
        others = {name: capabilities for name, capabilities in VOTERS.items() if name != "carol"}
        remaining = others if cause == "removed" else {**others, "carol": MAY_PROPOSE}
        lab.settings = settings(participants=remaining, approvals=rules)
        lab.restart()
    assert lab.state.proposals["p-1"].votes == ()


def test_a_vote_stays_while_its_voter_keeps_the_capability() -> None:
    lab = MemorySpace(participants=VOTERS, approvals=(bound("human", "carol", quorum=2),))
    root, agent, carol = lab.join("root"), lab.join("agent"), lab.join("carol")
    vote(carol, propose(agent, "p-1"))
    root.send(kind="capability/revoke", payload={"recipient": "carol", "capabilities": [{"kind": "chat"}]})
    root.send(kind="capability/revoke", payload={"recipient": "human", "capabilities": MAY_ASK})
    lab.restart()
    assert lab.state.proposals["p-1"].votes == ("carol",)


@pytest.mark.parametrize("withdrawn_first", [True, False])
def test_of_a_withdrawal_and_an_approval_the_first_wins(lab: MemorySpace, withdrawn_first: bool) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1")
    if not withdrawn_first:
        assert click(human, proposal) == ["mcp/request"]
    agent.inbox()
    agent.send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    inbox: list[Any] = agent.inbox()
    (answer,) = inbox
    if withdrawn_first:
        assert answer["kind"] == "mcp/withdraw"
        assert click(human, proposal) == ["proposal_closed"]
    else:
        assert (answer["payload"]["error"], answer["payload"]["outcome"]) == ("proposal_closed", "fulfilled")
    assert executed(lab) == ([] if withdrawn_first else ["read_file"])


# Through a gateway, byte by byte


@pytest.mark.parametrize("withdrawn_first", [True, False])
def test_a_withdrawal_and_an_approval_in_one_packet_are_handled_in_order(
    gateway: Running, withdrawn_first: bool
) -> None:
    human = joined(gateway, "human")
    human.say(id="p-1", kind="mcp/proposal", to=["files"], payload=READ)
    stamp = human.envelope("mcp/proposal")["proposal"]
    claim = {"position": stamp["position"], "digest": stamp["digest"]}
    both: list[dict[str, Any]] = [
        {"kind": "mcp/withdraw", "payload": {}},
        {"kind": "mcp/request", "to": ["files"], "payload": READ, "proposal": claim},
    ]
    ordered = both if withdrawn_first else both[::-1]
    human.send(*(frame(TEXT, msgspec.json.encode({**envelope, "correlation_id": ["p-1"]})) for envelope in ordered))
    assert human.envelope(ordered[0]["kind"])["proposal"] == claim
    error = human.envelope("system/error")["payload"]
    assert (error["error"], error["outcome"]) == ("proposal_closed", "withdrawn" if withdrawn_first else "fulfilled")
    human.close()


def test_a_restart_keeps_open_proposals_and_expires_due_ones_before_the_first_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps: dict[str, dict[str, Any]] = {}
    with running(tmp_path, {"participants": PEOPLE}, journal=JournalSettings()) as gateway:
        agent = joined(gateway, "agent")
        for name, seconds in (("kept", 300), ("due", 10)):
            expiry = {"expires_in_seconds": seconds}
            agent.say(id=name, kind="mcp/proposal", to=["files"], payload=READ, proposal=expiry)
            stamps[name] = agent.envelope("mcp/proposal")["proposal"]
        agent.close()
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 60 * 10**9)
    with running(tmp_path, {"participants": PEOPLE}, journal=JournalSettings()) as gateway:
        state = gateway.ask(lambda instance: instance.first_hub.space.state)
        assert state.present == {}
        proposal = state.proposals["kept"]
        assert (proposal.position, proposal.digest) == (stamps["kept"]["position"], stamps["kept"]["digest"])
        assert (list(state.proposals), state.closed_proposals["due"].outcome) == (["kept"], "expired")
        human = joined(gateway, "human")
        for name in ("due", "kept"):
            claim = {part: stamps[name][part] for part in ("position", "digest")}
            human.say(kind="mcp/request", to=["files"], correlation_id=[name], payload=READ, proposal=claim)
        assert human.envelope("system/error")["payload"]["error"] == "proposal_closed"
        assert human.envelope("mcp/request")["correlation_id"] == ["kept"]
        human.close()


def test_a_proposal_of_one_space_approves_nothing_in_another(tmp_path: Path) -> None:
    tokens, spaces = MemoryTokens(), []
    for name in ("lab", "vault"):
        space_settings = settings(space_id=name, participants=PEOPLE)
        file = tmp_path / name / "space.yaml"
        spaces.append(
            SpaceConfig(settings=space_settings, directory=file.parent, file=file, name=name, journal=NO_JOURNAL)
        )
    with started(GatewayConfig(port=0, spaces=tuple(spaces)), tokens) as gateway:
        in_lab, in_vault = Raw(gateway.port), Raw(gateway.port)
        for client, name in ((in_lab, "lab"), (in_vault, "vault")):
            client.send(upgrade(f"/?space={name}", Authorization=f"Bearer {tokens.issue(name, 'human')}"))
            assert client.answer().status == 101
            assert client.envelope("system/welcome")["payload"]
        in_lab.say(id="p-1", kind="mcp/proposal", to=["files"], payload=READ)
        stamp = in_lab.envelope("mcp/proposal")["proposal"]
        claim = {"position": stamp["position"], "digest": stamp["digest"]}
        click = {"kind": "mcp/request", "to": ["files"], "correlation_id": ["p-1"], "proposal": claim}
        in_vault.say(**click, payload=READ)
        assert in_vault.envelope("system/error")["payload"]["error"] == "proposal_closed"
        in_vault.say(id="p-1", kind="mcp/proposal", to=["files"], payload=EXEC)
        other = in_vault.envelope("mcp/proposal")["proposal"]
        for payload in (READ, EXEC):
            in_vault.say(**click, payload=payload)
            assert in_vault.envelope("system/error")["payload"]["error"] == "proposal_mismatch"
        for space, token, status in (("lab", "vault", 403), ("vault", "lab", 403), ("vault", "vault", 200)):
            path = f"/spaces/{space}/proposals/{other['position']}"
            reader = Raw(gateway.port)
            assert reader.ask("GET", path, tokens.issue(token, "human")).status == status
            reader.close()
        in_lab.close()
        in_vault.close()


# Through a gateway, with the SDK


@played
async def test_a_second_approval_gets_the_outcome_of_the_first(gateway: Running) -> None:
    async with joining(gateway, "human") as human, joining(gateway, "agent") as agent:
        proposals = human.proposals()
        sent = await agent.propose("files", "tools/call", READ["params"])  # type: ignore[arg-type]
        proposed = await anext(proposals)
        await proposed.approve()
        with pytest.raises(ProposalClosed) as refused:
            await proposed.approve()
        assert (refused.value.parts["outcome"], refused.value.parts["by"]) == ("fulfilled", "human")
        sent.close()
        proposals.close()


@played
async def test_a_modified_proposal_is_refused(gateway: Running) -> None:
    async with joining(gateway, "human") as human, joining(gateway, "agent") as agent:
        proposals = human.proposals()
        sent = await agent.propose("files", "tools/call", READ["params"])  # type: ignore[arg-type]
        proposed = await anext(proposals)
        proposed.envelope = msgspec.structs.replace(proposed.envelope, payload=EXEC)
        with pytest.raises(ProposalMismatch):
            await proposed.approve()
        sent.close()
        proposals.close()


@played
async def test_only_the_gateway_ends_a_proposal_of_the_sdk(gateway: Running) -> None:
    hub = gateway.gateway.first_hub
    clock = hub.clock
    async with (
        joining(gateway, "human") as human,
        joining(gateway, "agent") as agent,
        joining(gateway, "mallory") as mallory,
    ):
        sent = await agent.propose("files", "tools/call", READ["params"], expires_in=10)  # type: ignore[arg-type]
        answer = asyncio.create_task(sent.result())
        await mallory.send("mcp/response", {"result": {"forged": True}}, correlation_id=sent.id)
        await human.send("chat", {"text": "the forged answer has come before this"})
        assert not answer.done()
        hub.clock = lambda: clock() + 11_000_000
        with pytest.raises(ProposalExpired):
            await answer


def test_the_errors_are_exported_by_the_client() -> None:
    assert mew.client.ProposalExpired is ProposalExpired
