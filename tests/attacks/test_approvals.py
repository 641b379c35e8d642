"""Attacks on approvals that once succeeded, or could: none may send what a person has not seen, or has seen too late.

Each is tried where it is decided: in the core, through a real gateway, or by the SDK.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import mew
from mew.client.errors import ProposalClosed, ProposalExpired, ProposalMismatch
from mew.testing import Client, MemorySpace
from tests.client.stage import joining, played
from tests.gateway.raw import Running, running

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
    (answer,) = [each for each in inbox if each["kind"] in {"mcp/proposal", "system/error"}]
    return answer


def click(client: Client, proposal: Any, name: str | None = None, **changed: Any) -> list[str]:
    """A person approves the card that was drawn from this proposal; what comes of it."""
    stamp = proposal["proposal"]
    client.inbox()
    claim = {"position": stamp["position"], "digest": stamp["digest"]}
    asked = {"kind": "mcp/request", "to": proposal["to"], "payload": proposal["payload"], "proposal": claim}
    client.send({**asked, "correlation_id": [name or proposal["id"]], **changed})
    inbox: list[Any] = client.inbox()
    return [each["payload"].get("error", each["kind"]) for each in inbox]


def executed(lab: MemorySpace) -> list[str]:
    """The tools that were called."""
    calls = [each for each in lab.records if each.kind == "mcp/request" and each.event == "envelope"]
    return [msgspec.json.decode(each.payload)["payload"]["params"]["name"] for each in calls]


def test_a_proposal_that_timed_out_is_not_executed_14_seconds_later(lab: MemorySpace) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1", proposal={"expires_in_seconds": 10})
    lab.now += 24_000_000
    assert click(human, proposal) == ["mcp/proposal-closed", "proposal_closed"]
    assert executed(lab) == []


def test_a_second_proposal_of_the_same_id_replaces_no_card(lab: MemorySpace) -> None:
    human, agent, mallory = lab.join("human"), lab.join("agent"), lab.join("mallory")
    proposal = propose(agent, "p-1")
    for attacker in (mallory, agent):
        assert propose(attacker, "p-1", EXEC)["payload"]["error"] == "already_exists"
    assert click(human, proposal) == ["mcp/request"]
    assert propose(mallory, "p-1", EXEC)["payload"]["error"] == "already_exists"
    assert executed(lab) == ["read_file"]


def test_withdrawing_and_proposing_again_replaces_no_card(lab: MemorySpace) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1")
    agent.send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    assert propose(agent, "p-1", EXEC)["payload"]["error"] == "already_exists"
    lab.advance(3_600)
    assert propose(agent, "p-1", EXEC)["kind"] == "mcp/proposal"
    assert click(human, proposal) == ["proposal_mismatch"]
    assert executed(lab) == []


@pytest.mark.parametrize("count", [520, 65])
def test_many_proposals_push_out_nobody_elses(lab: MemorySpace, count: int) -> None:
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


def test_60000_frames_hide_nothing_from_a_late_page(lab: MemorySpace) -> None:
    lab = MemorySpace(participants={**PEOPLE, "game": ALL})
    agent, game = lab.join("agent"), lab.join("game")
    propose(agent, "p-1")
    game.send(kind="stream/request", payload={})
    route = lab.space.route("game", b"#stream-1#x")
    assert not isinstance(route, Exception)
    lab.space.accept_frames(route, 60_000, lab.now)
    welcome = lab.join("human").take("system/welcome")["payload"]
    assert [each["id"] for each in welcome["open_proposals"]] == ["p-1"]


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
    ids=["tool", "other", "one more", "nobody", "extra", "two", "unnamed"],
)
def test_what_was_not_shown_is_not_sent(lab: MemorySpace, changed: Any) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1")
    propose(agent, "p-2")
    assert click(human, proposal, **changed) == ["proposal_mismatch"]
    assert executed(lab) == []


def test_nobody_else_closes_or_fulfils_it(lab: MemorySpace) -> None:
    human, agent, mallory = lab.join("human"), lab.join("agent"), lab.join("mallory")
    proposal = propose(agent, "p-1")
    for kind in ("mcp/withdraw", "mcp/response", "mcp/reject", "mcp/request", "mcp/proposal-closed", "mcp/approve"):
        claim = {name: proposal["proposal"][name] for name in ("position", "digest")}
        mallory.send(kind=kind, correlation_id=["p-1"], payload=READ, proposal=claim)
    assert click(human, proposal) == ["mcp/request"]
    assert click(human, proposal) == ["proposal_closed"]
    assert executed(lab) == ["read_file"]


def test_a_duplicate_name_shows_one_tool_and_calls_no_other(lab: MemorySpace) -> None:
    agent = lab.join("agent")
    agent.inbox()
    twice = b'{"name":"exec_file","name":"read_file"}'
    agent.send_bytes(b'{"id":"p-1","kind":"mcp/proposal","payload":{"method":"tools/call","params":' + twice + b"}}")
    assert agent.error()["error"] == "invalid_envelope"


def test_a_kicked_proposers_card_is_dead(lab: MemorySpace) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    proposal = propose(agent, "p-1")
    human.send(kind="space/kick", payload={"participant_id": "agent"})
    assert click(human, proposal) == ["proposal_closed"]


def test_a_restart_revives_nothing(lab: MemorySpace) -> None:
    human, agent = lab.join("human"), lab.join("agent")
    done, late = propose(agent, "p-1"), propose(agent, "p-2", proposal={"expires_in_seconds": 10})
    assert click(human, done) == ["mcp/request"]
    lab.now += 10_000_000
    lab.restart()
    human = lab.join("human")
    assert click(human, done) == ["proposal_closed"]
    assert click(human, late) == ["proposal_closed"]


# Through a gateway, by the SDK


@played
async def test_a_click_that_comes_second_is_told_so(gateway: Running) -> None:
    async with joining(gateway, "human") as human, joining(gateway, "agent") as agent:
        proposals = human.proposals()
        made = await agent.propose("files", "tools/call", READ["params"])  # type: ignore[arg-type]
        proposed = await anext(proposals)
        await proposed.approve()
        with pytest.raises(ProposalClosed) as refused:
            await proposed.approve()
        assert (refused.value.parts["outcome"], refused.value.parts["by"]) == ("fulfilled", "human")
        made.close()
        proposals.close()


@played
async def test_a_card_that_was_tampered_with_is_refused(gateway: Running) -> None:
    async with joining(gateway, "human") as human, joining(gateway, "agent") as agent:
        proposals = human.proposals()
        made = await agent.propose("files", "tools/call", READ["params"])  # type: ignore[arg-type]
        proposed = await anext(proposals)
        proposed.envelope = msgspec.structs.replace(proposed.envelope, payload=EXEC)
        with pytest.raises(ProposalMismatch):
            await proposed.approve()
        made.close()
        proposals.close()


@played
async def test_a_proposal_of_the_sdk_ends_with_the_gateways_word_alone(gateway: Running) -> None:
    hub = gateway.gateway.first_hub
    clock = hub.clock
    async with (
        joining(gateway, "human") as human,
        joining(gateway, "agent") as agent,
        joining(gateway, "mallory") as mallory,
    ):
        made = await agent.propose("files", "tools/call", READ["params"], expires_in=10)  # type: ignore[arg-type]
        answer = asyncio.create_task(made.result())
        await mallory.send("mcp/response", {"result": {"forged": True}}, correlation_id=made.id)
        await human.send("chat", {"text": "the forged answer has come before this"})
        assert not answer.done()
        hub.clock = lambda: clock() + 11_000_000
        with pytest.raises(ProposalExpired, match="expired"):
            await answer


def test_the_names_are_for_users() -> None:
    assert mew.client.ProposalExpired is ProposalExpired
