"""The fulfiller agent: it carries out proposals of others, and reports the result or the error by chat."""

import pytest

from mew.agents import fulfiller
from tests.agents.harness import propose, working
from tests.client.harness import joining, played
from tests.gateway.raw import Running


@pytest.mark.parametrize("to", [(), ("calculator",), ("fulfiller",)])
@played
async def test_a_proposal_becomes_a_request_to_the_owner_of_the_tool_and_its_result_a_chat(
    gateway: Running, to: tuple[str, ...]
) -> None:
    async with (
        working(gateway, "calculator"),
        working(gateway, "echo"),
        working(gateway, "fulfiller"),
        joining(gateway, "planner") as planner,
    ):
        requests = planner.envelopes("mcp/request", sender="fulfiller")
        chats = planner.envelopes("chat", sender="fulfiller")
        proposal = await propose(planner, "add", *to, a=10, b=5)
        chat = await anext(chats)
        assert (chat.payload["text"], chat.correlation_id, chat.to) == ("15", (proposal.id,), ("planner",))
        request = await anext(requests)
        while request.payload["method"] == "tools/list":
            request = await anext(requests)
        assert (request.correlation_id, request.to) == ((proposal.id,), ("calculator",))
        assert request.payload == proposal.payload


@pytest.mark.parametrize("to", [("carol",), ("calculator", "carol"), ("fulfiller", "carol")])
@played
async def test_a_proposal_to_an_absent_participant_is_sent_to_no_other(gateway: Running, to: tuple[str, ...]) -> None:
    """The gateway compares recipients only for requests that name the state of the proposal they have read."""
    async with working(gateway, "calculator"), working(gateway, "fulfiller"), joining(gateway, "planner") as planner:
        requests, chats = planner.envelopes("mcp/request"), planner.envelopes("chat", sender="fulfiller")
        await propose(planner, "add", *to, a=10, b=5)
        assert (await anext(chats)).payload["text"] == "Error fulfilling proposal: not in the space: carol"
        await propose(planner, "add", "calculator", a=1, b=1)
        assert (await anext(requests)).payload["params"]["arguments"] == {"a": 1, "b": 1}


@played
async def test_an_error_of_the_tool_is_reported_by_chat(gateway: Running) -> None:
    async with working(gateway, "calculator"), working(gateway, "fulfiller"), joining(gateway, "planner") as planner:
        chats = planner.envelopes("chat", sender="fulfiller")
        await propose(planner, "evaluate", expression="1 / 0")
        assert (await anext(chats)).payload["text"] == "Error fulfilling proposal: division by zero"
        await propose(planner, "subtract", "calculator", a=1, b=1)
        assert (await anext(chats)).payload["text"] == "Error fulfilling proposal: there is no tool 'subtract'"


@played
async def test_a_missing_tool_is_reported_by_chat_as_soon_as_it_is_known(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fulfiller, "LIST_SECONDS", 0.2)  # the planner does not answer
    async with working(gateway, "calculator"), working(gateway, "fulfiller"), joining(gateway, "planner") as planner:
        chats = planner.envelopes("chat", sender="fulfiller")
        await propose(planner, "subtract", a=1, b=1)
        assert (await anext(chats)).payload[
            "text"
        ] == "Error fulfilling proposal: no participant in the space has the tool 'subtract'"
        for to, message in {
            "fulfiller": "the proposal names no recipient and no tool",
            "carol": "not in the space: carol",
        }.items():
            await planner.send("mcp/proposal", {"method": "resources/list"}, to=to)
            assert (await anext(chats)).payload["text"] == f"Error fulfilling proposal: {message}"


@played
async def test_a_missing_permission_for_requests_is_reported_by_chat(gateway: Running) -> None:
    async with (
        working(gateway, "calculator"),
        working(gateway, "fulfiller", "powerless"),
        joining(gateway, "planner") as planner,
    ):
        chats = planner.envelopes("chat", sender="powerless")
        await propose(planner, "add", "calculator", a=1, b=1)
        result = (await anext(chats)).payload["text"]
        assert result.startswith("Error fulfilling proposal: ")
        assert "mcp/request" in result


@played
async def test_a_proposal_that_was_rejected_during_the_search_for_its_tool_is_ignored(gateway: Running) -> None:
    async with (
        working(gateway, "calculator"),
        joining(gateway, "alice") as alice,
        joining(gateway, "planner") as planner,
        working(gateway, "fulfiller"),
    ):
        command = alice.envelopes("mcp/request", sender="fulfiller", to="alice")
        requests = planner.envelopes("mcp/request", sender="fulfiller")
        chats = planner.envelopes("chat", sender="fulfiller")
        proposal = await propose(planner, "slow", n=1)
        question = await anext(command)
        await alice.send("mcp/reject", {"reason": "mine"}, to="planner", correlation_id=proposal.id)
        tools = {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}
        await alice.send("mcp/response", {"result": tools}, to="fulfiller", correlation_id=question.id)
        await propose(planner, "add", "calculator", a=1, b=1)
        assert (await anext(chats)).payload["text"] == "2"
        tools_called = []
        while (request := await anext(requests)).payload["params"].get("name") != "add":
            tools_called.append(request.payload["params"].get("name"))
        assert set(tools_called) == {None}


@played
async def test_a_proposal_that_was_rejected_before_it_was_read_is_ignored(gateway: Running) -> None:
    async with (
        working(gateway, "calculator"),
        joining(gateway, "alice") as alice,
        joining(gateway, "planner") as planner,
        working(gateway, "fulfiller"),
    ):
        requests = planner.envelopes("mcp/request", sender="fulfiller")
        chats = planner.envelopes("chat", sender="fulfiller")
        await alice.pause("fulfiller")
        await propose(planner, "add", "calculator", a=1, b=1)  # it waits with this one, and reads no other
        rejected = await propose(planner, "add", "calculator", a=2, b=2)
        await alice.send("mcp/reject", to="planner", correlation_id=rejected.id)
        await alice.resume("fulfiller")
        assert (await anext(chats)).payload["text"] == "2"
        await propose(planner, "add", "calculator", a=3, b=3)
        assert (await anext(chats)).payload["text"] == "6"
        called = [(await anext(requests)).payload["params"]["arguments"]["a"] for _ in range(2)]
        assert called == [1, 3]
