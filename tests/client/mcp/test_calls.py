"""The caller of a tool gets the result, by request or by proposal, or an error that says what happened."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mew
from mew.client import (
    ConnectionLost,
    McpError,
    NotPermitted,
    Participant,
    Proposal,
    Rejected,
    RequestTimeout,
    Space,
    ToolResult,
    Withdrawn,
    mcp,
    serve,
)
from mew.client.errors import ParticipantNotFound, ProposalClosed, Unauthorized
from tests.client.harness import begun, ended, joining, played, until
from tests.client.proxy import proxied
from tests.gateway.raw import Running, running

ADD = {"kind": "mcp/request", "to": ["bob"], "payload": {"method": "tools/*", "params": {"name": "add"}}}
CAPABILITIES: dict[str, Any] = {
    "alice": [{"kind": "*"}],
    "bob": [{"kind": "*"}],
    "proposer": [{"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}, ADD],
    "silent": [{"kind": "chat"}],
}


@pytest.fixture
def rights(tmp_path: Path) -> Iterator[Running]:
    """A gateway with participants that may do everything, may only propose, or may do neither."""
    with running(tmp_path, {"participants": CAPABILITIES}) as gateway:
        yield gateway


def calculator() -> Participant:
    participant = Participant(page=2)
    for name in ("zero", "one", "two"):
        participant.tool(name=name)(lambda: 1)
        participant.resource(f"number:{name}")(lambda: b"1")
        participant.prompt(name=name)(lambda: "1")

    @participant.tool
    def add(a: int, b: int) -> int:
        return a + b

    @participant.tool
    def fail() -> None:
        raise RuntimeError("it broke")

    @participant.tool
    async def hang() -> None:
        await asyncio.Event().wait()

    @participant.resource("note:{name}")
    def note(name: str) -> str:
        return f"a note of {name}"

    @participant.prompt
    def greet(name: str) -> str:
        return f"Say hello to {name}."

    return participant


@asynccontextmanager
async def scene(gateway: Running, caller: str) -> AsyncIterator[tuple[Space, Space]]:
    """Connect the caller, alice, who may do everything, and bob, who has tools."""
    async with (
        joining(gateway, "bob") as bob,
        joining(gateway, "alice") as alice,
        joining(gateway, caller) as space,
    ):
        task = await begun(calculator().run(bob))
        await space.wait_until(lambda view: {"bob", "alice"} <= {*view.participants, space.participant_id})
        try:
            yield space, alice
        finally:
            await ended(task)


# By request


@played
async def test_a_permitted_tool_call_is_a_request(gateway: Running) -> None:
    async with scene(gateway, "carol") as (carol, alice):
        requests = alice.envelopes("mcp/*", sender="carol")
        result = await carol.call_tool("bob", "add", {"a": 3, "b": 5})
        assert result == ToolResult([mcp.TextContent(text="8")], {"result": 8}, False, "carol", "bob")
        assert result.text == "8"
        sent = await anext(requests)
        assert (sent.kind, sent.to) == ("mcp/request", ("bob",))
        assert sent.payload == {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 3, "b": 5}}}


@played
async def test_arguments_may_be_a_struct(gateway: Running) -> None:
    class Pair(msgspec.Struct):
        a: int
        b: int

    async with scene(gateway, "carol") as (carol, _):
        assert (await carol.call_tool("bob", "add", Pair(1, 2))).structured == {"result": 3}


@played
async def test_a_failed_tool_is_a_result_and_a_wrong_call_is_an_error(gateway: Running) -> None:
    async with scene(gateway, "carol") as (carol, _):
        failed = await carol.call_tool("bob", "fail")
        assert (failed.is_error, failed.text) == (True, "it broke")
        with pytest.raises(McpError, match="`b`") as raised:
            await carol.call_tool("bob", "add", {"a": 1})
        assert raised.value.code == mcp.INVALID_PARAMS


@played
async def test_lists_are_complete_whatever_their_number_of_pages(gateway: Running) -> None:
    async with scene(gateway, "carol") as (carol, _):
        names = ["zero", "one", "two"]
        assert [tool.name for tool in await carol.list_tools("bob")] == [*names, "add", "fail", "hang"]
        assert [resource.uri for resource in await carol.list_resources("bob")] == [f"number:{name}" for name in names]
        assert [template.uri_template for template in await carol.list_resource_templates("bob")] == ["note:{name}"]
        assert [prompt.name for prompt in await carol.list_prompts("bob")] == [*names, "greet"]


@played
async def test_resources_are_read_and_prompts_are_filled_in(gateway: Running) -> None:
    async with scene(gateway, "carol") as (carol, _):
        (number,) = await carol.read_resource("bob", "number:one")
        assert isinstance(number, mcp.BlobResource)
        assert number.bytes == b"1"
        (note,) = await carol.read_resource("bob", "note:x")
        assert isinstance(note, mcp.TextResource)
        assert note.text == "a note of x"
        prompt = await carol.get_prompt("bob", "greet", {"name": "Zoe"})
        assert prompt.messages == [mcp.PromptMessage.of("Say hello to Zoe.")]


class Endless:
    """A server with a list that never ends."""

    async def answer(self, method: str, params: Any) -> Any:
        return {"tools": [], "nextCursor": "again"}


@played
async def test_a_list_without_an_end_is_an_error(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, joining(gateway, "alice") as alice:
        task = await begun(serve(bob, Endless()))
        with pytest.raises(McpError, match="without an end"):
            await alice.list_tools("bob")
        await ended(task)


@played
async def test_only_the_addressee_of_a_request_can_answer_it(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, joining(gateway, "carol") as carol, joining(gateway, "alice") as alice:
        requests = bob.envelopes("mcp/request")
        calling = asyncio.create_task(alice.call("bob", "m"))
        request = await anext(requests)
        await carol.send("mcp/response", {"result": {"of": "carol"}}, correlation_id=request.id)
        await bob.send("mcp/response", {"result": {"of": "bob"}}, correlation_id=request.id)
        assert (await calling).result == {"of": "bob"}


@played
async def test_a_call_to_an_absent_participant_fails_immediately(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        with pytest.raises(ParticipantNotFound, match="'bob'"):
            await alice.call_tool("bob", "add")
        async with joining(gateway, "bob") as bob:
            requests = bob.envelopes("mcp/request")
            calling = asyncio.create_task(alice.call_tool("bob", "add", timeout=None))
            await anext(requests)
        with pytest.raises(ParticipantNotFound, match="'bob'"):
            await calling
        assert alice._pending._requests == {}


@played
async def test_an_answer_counts_even_if_its_sender_leaves_right_after_it(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        async with joining(gateway, "bob") as bob:
            requests = bob.envelopes("mcp/request")
            calling = asyncio.create_task(alice.call("bob", "m"))
            request = await anext(requests)
            await bob.send("mcp/response", {"result": {"last": "words"}}, correlation_id=request.id)
        assert (await calling).result == {"last": "words"}


@played
async def test_an_unanswered_call_times_out(gateway: Running) -> None:
    async with scene(gateway, "carol") as (carol, _):
        with pytest.raises(RequestTimeout, match=r"'bob'.*0\.05 s"):
            await carol.call_tool("bob", "hang", timeout=0.05)


@played
async def test_a_call_fails_when_the_connection_breaks(gateway: Running) -> None:
    async with scene(gateway, "carol") as (carol, alice):
        requests = alice.envelopes("mcp/request")
        calling = asyncio.create_task(carol.call_tool("bob", "hang"))
        await anext(requests)
        assert carol.connection is not None
        carol.connection.abort("as if the network were gone")
        with pytest.raises(ConnectionLost):
            await calling


# By proposal


@played
async def test_a_call_that_may_not_be_requested_is_proposed_and_returns_the_result(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposals = alice.proposals()
        calling = asyncio.create_task(proposer.call_tool("bob", "one"))
        proposal = await anext(proposals)
        assert (proposal.by, proposal.to, proposal.method, proposal.tool) == ("proposer", ("bob",), "tools/call", "one")
        assert proposal.params == {"name": "one", "arguments": {}}
        assert repr(proposal) == "<IncomingProposal 'tools/call' by 'proposer', open>"
        request = await proposal.approve()
        assert (request.kind, request.to, request.correlation_id) == ("mcp/request", ("bob",), (proposal.id,))
        result = await calling
        assert (result.text, result.by, result.answered_by) == ("1", "alice", "bob")


@played
async def test_the_exact_envelope_decides_whether_a_call_is_a_request(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, _):
        result = await proposer.call_tool("bob", "add", {"a": 1, "b": 1})
        assert (result.text, result.by) == ("2", "proposer")


@played
async def test_the_fulfiller_of_a_proposal_can_wait_for_the_answer(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposals = alice.proposals()
        calling = asyncio.create_task(proposer.call_tool("bob", "add", {"a": 1, "b": 2}, propose=True))
        answer = await (await anext(proposals)).fulfil()
        assert (answer.result["structuredContent"], answer.by, answer.answered_by) == ({"result": 3}, "alice", "bob")
        assert (await calling).structured == {"result": 3}


@played
async def test_a_failed_fulfilment_fails_the_call(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposals = alice.proposals()
        calling = asyncio.create_task(proposer.call_tool("bob", "nothing"))
        await (await anext(proposals)).approve()
        with pytest.raises(McpError, match="'nothing'") as raised:
            await calling
        assert raised.value.code == mcp.INVALID_PARAMS


@played
async def test_a_rejection_fails_the_call_with_its_reason(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposals = alice.proposals()
        calling = asyncio.create_task(proposer.call_tool("bob", "one"))
        await (await anext(proposals)).reject("too risky")
        with pytest.raises(Rejected) as raised:
            await calling
        assert (raised.value.reason, raised.value.by) == ("too risky", "alice")


@played
async def test_a_rejection_after_the_fulfilment_changes_nothing(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposals = alice.proposals()
        proposal = await proposer.propose("bob", "tools/call", {"name": "hang"})
        proposed = await anext(proposals)
        request = await proposed.approve()
        await until(lambda: proposed.state == "fulfilled")
        await proposed.reject()
        response = {"result": {"late": True}}
        async with joining(rights, "bob") as another:  # takes over the socket of bob
            await another.send("mcp/response", response, correlation_id=request.id)
            assert (await proposal.result(5)).result == {"late": True}


@played
async def test_a_withdrawn_proposal_is_closed_for_both_sides(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposals = alice.proposals()
        proposal = await proposer.propose("bob", "tools/call", {"name": "one"})
        proposed = await anext(proposals)
        waiting = asyncio.create_task(proposal.result())
        await proposal.withdraw("changed my mind")
        for late in (waiting, proposal.result()):
            with pytest.raises(Withdrawn) as withdrawn:
                await late
            assert withdrawn.value.reason == "changed my mind"
        await until(lambda: proposed.state == "withdrawn")
        with pytest.raises(Withdrawn):
            await proposed.approve()


@played
async def test_a_proposal_withdrawn_before_it_is_read_is_not_delivered(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice), alice.proposals() as proposals:
        first = await proposer.propose("bob", "first")
        second = await proposer.propose("bob", "second")
        await first.withdraw()
        await alice.chat("all of it has come")
        assert (await anext(proposals)).id == second.id


@pytest.mark.parametrize(("kind", "state"), [("mcp/request", "fulfilled"), ("mcp/reject", "rejected")])
@played
async def test_a_proposal_has_its_present_state_when_it_is_read(rights: Running, kind: str, state: str) -> None:
    async with scene(rights, "proposer") as (proposer, alice), alice.proposals() as proposals:
        first = await proposer.propose("bob", "first")
        second = await proposer.propose("bob", "second")
        with pytest.raises(Unauthorized):
            await alice.send("mcp/withdraw", correlation_id=first.id)
        await alice.send(kind, {"method": "first"}, to="bob", correlation_id=first.id)
        read = [await anext(proposals) for _ in range(2)]
        assert [(proposal.id, proposal.state) for proposal in read] == [(first.id, state), (second.id, "open")]
        await read[1].reject()
        assert read[1].state == "rejected"


@played
async def test_states_are_kept_only_for_proposals_that_wait_to_be_read(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice), joining(rights, "silent", queue=2) as silent:
        proposals = silent.proposals()
        proposals_made = [await proposer.propose("bob", str(number)) for number in range(3)]
        for proposal in (proposals_made[0], proposals_made[2]):
            await alice.send("mcp/reject", correlation_id=proposal.id)
            with pytest.raises(ProposalClosed):
                await proposal.withdraw()
        await proposals_made[1].withdraw()
        await until(lambda: proposals._queue._queued == {proposals_made[0].id: "rejected"})
        assert (await anext(proposals)).state == "rejected"
        assert proposals._queue._queued == {}


@played
async def test_only_its_proposer_can_withdraw_a_proposal(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposals = alice.proposals()
        proposal = await proposer.propose("bob", "tools/call", {"name": "one"})
        proposed = await anext(proposals)
        with pytest.raises(Unauthorized):
            await alice.send("mcp/withdraw", correlation_id=proposal.id)
        assert proposed.state == "open"
        await proposed.approve()
        assert (await proposal.result(5)).answered_by == "bob"


@played
async def test_our_own_proposals_are_not_offered_to_us(gateway: Running) -> None:
    async with scene(gateway, "carol") as (carol, alice):
        proposals = alice.proposals()
        await alice.propose("bob", "mine")
        await carol.propose("bob", "another's")
        assert (await anext(proposals)).method == "another's"


@played
async def test_a_proposal_without_an_addressee_is_approved_with_one(gateway: Running) -> None:
    async with scene(gateway, "carol") as (carol, alice):
        proposals = alice.proposals()
        proposal = await carol.propose((), "tools/call", {"name": "one"})
        proposed = await anext(proposals)
        with pytest.raises(ValueError):
            await proposed.approve()
        await proposed.approve(to="bob")
        assert (await proposal.result(5)).by == "alice"


@played
async def test_the_addressee_can_answer_a_proposal_itself(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, joining(gateway, "carol") as carol:
        proposal = await carol.propose("bob", "m")
        await carol.send("mcp/response", {"result": {"of": "carol"}}, correlation_id=proposal.id)
        await bob.send("mcp/response", {"result": {"of": "bob"}}, correlation_id=proposal.id)
        answer = await proposal.result(5)
        assert (answer.result, answer.by, answer.answered_by) == ({"of": "bob"}, "bob", "bob")


@played
async def test_a_call_that_may_be_neither_requested_nor_proposed_is_not_sent(rights: Running) -> None:
    async with scene(rights, "silent") as (silent, alice):
        envelopes = alice.envelopes("mcp/*")
        with pytest.raises(NotPermitted) as refused:
            await silent.call_tool("bob", "one")
        assert (refused.value.method, refused.value.who) == ("tools/call", "bob")
        async with joining(rights, "proposer") as proposer:
            with pytest.raises(NotPermitted):
                await proposer.call_tool("bob", "one", propose=False)
        await alice.send("mcp/marker")
        assert (await anext(envelopes)).kind == "mcp/marker"


@played
async def test_a_proposal_is_withdrawn_when_its_caller_stops_waiting(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        withdrawals, proposed_envelopes = alice.envelopes("mcp/withdraw"), alice.envelopes("mcp/proposal")
        with pytest.raises(RequestTimeout, match=r"0\.05 s"):
            await proposer.call_tool("bob", "one", timeout=0.05)
        assert (await anext(withdrawals)).correlation_id == ((await anext(proposed_envelopes)).id,)
        calling = asyncio.create_task(proposer.call_tool("bob", "one"))
        proposed = await anext(proposed_envelopes)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        withdrawn = await anext(withdrawals)
        assert withdrawn.correlation_id == (proposed.id,)
        assert withdrawn.payload == {"reason": "the caller no longer waits for it"}


@pytest.mark.parametrize("end", ["cancelled", "too late"])
@played
async def test_a_proposal_is_withdrawn_when_its_caller_stops_before_the_echo(rights: Running, end: str) -> None:
    async with (
        scene(rights, "silent") as (_, alice),
        proxied(rights.port) as (proxy, url),
        mew.connect(url, token=rights.token("proposer")) as proposer,
    ):
        proposed_envelopes, withdrawals = alice.envelopes("mcp/proposal"), alice.envelopes("mcp/withdraw")
        proxy.hold("down")
        timeout = 0.1 if end == "too late" else None
        calling = asyncio.create_task(proposer.call_tool("bob", "one", timeout=timeout))
        proposed = await anext(proposed_envelopes)
        if end == "cancelled":
            calling.cancel()
        withdrawn = await anext(withdrawals)
        proxy.release("down")
        with pytest.raises(RequestTimeout if end == "too late" else asyncio.CancelledError):
            await calling
        assert (withdrawn.correlation_id, withdrawn.to) == ((proposed.id,), ("bob",))
        assert withdrawn.payload == {"reason": "the caller no longer waits for it"}


@played
async def test_a_proposal_that_was_not_sent_in_time_is_not_sent_later(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        envelopes = alice.envelopes("mcp/*")
        assert proposer.connection is not None
        proposer.connection.pause_writing()
        with pytest.raises(RequestTimeout, match=r"'tools/call'.*0\.05 s"):
            await proposer.call_tool("bob", "one", timeout=0.05)
        proposer.connection.resume_writing()
        second = await proposer.propose("bob", "second")
        assert (await anext(envelopes)).id == second.id


@played
async def test_a_caller_can_wait_again_after_a_time_out(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposals = alice.proposals()
        proposal: Proposal = await proposer.propose("bob", "tools/call", {"name": "one"})
        with pytest.raises(RequestTimeout):
            await proposal.result(0.01)
        await (await anext(proposals)).approve()
        assert (await proposal.result(5)).by == "alice"
        assert (await proposal.result()).by == "alice"


@played
async def test_a_proposal_fails_if_its_answer_may_have_been_missed(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, alice):
        proposal = await proposer.propose("bob", "tools/call", {"name": "one"})
        waiting = asyncio.create_task(proposal.result())
        await alice.send("capability/grant", {"recipient": "proposer", "capabilities": [{"kind": "chat"}]})
        await proposer.wait_until(lambda view: {"kind": "chat"} in view.you.capabilities)
        assert not waiting.done()  # a new welcome alone does not fail it
        assert proposer.connection is not None
        proposer.connection.abort("as if the network were gone")
        with pytest.raises(ConnectionLost):
            await waiting


@played
async def test_a_proposal_fails_when_the_space_is_closed(rights: Running) -> None:
    async with scene(rights, "proposer") as (proposer, _):
        proposal = await proposer.propose("bob", "m")
        waiting = asyncio.create_task(proposal.result())
        await proposer.close()
        with pytest.raises(ConnectionLost):
            await waiting
