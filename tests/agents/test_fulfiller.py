"""The fulfiller agent: it does what others propose, tells the result by chat, and in words what went wrong."""

import pytest

from mew.agents import fulfiller
from tests.agents.harness import propose, working
from tests.client.harness import joining, played
from tests.gateway.raw import Running


@pytest.mark.parametrize("to", [(), ("calculator",), ("fulfiller",)])
@played
async def test_a_proposal_is_sent_as_a_request_to_whoever_has_the_tool_and_its_result_is_chatted(
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
async def test_nobody_is_asked_in_the_place_of_one_who_is_not_here(gateway: Running, to: tuple[str, ...]) -> None:
    """The gateway compares recipients only with those of a request that says what was read."""
    async with working(gateway, "calculator"), working(gateway, "fulfiller"), joining(gateway, "planner") as planner:
        requests, chats = planner.envelopes("mcp/request"), planner.envelopes("chat", sender="fulfiller")
        await propose(planner, "add", *to, a=10, b=5)
        assert (await anext(chats)).payload["text"] == "Error fulfilling proposal: not in the space: carol"
        await propose(planner, "add", "calculator", a=1, b=1)
        assert (await anext(requests)).payload["params"]["arguments"] == {"a": 1, "b": 1}


@played
async def test_what_the_tool_refuses_is_told_by_chat(gateway: Running) -> None:
    async with working(gateway, "calculator"), working(gateway, "fulfiller"), joining(gateway, "planner") as planner:
        chats = planner.envelopes("chat", sender="fulfiller")
        await propose(planner, "evaluate", expression="1 / 0")
        assert (await anext(chats)).payload["text"] == "Error fulfilling proposal: division by zero"
        await propose(planner, "subtract", "calculator", a=1, b=1)
        assert (await anext(chats)).payload["text"] == "Error fulfilling proposal: there is no tool 'subtract'"


@played
async def test_a_tool_that_nobody_has_is_told_by_chat_as_soon_as_it_is_known(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fulfiller, "LIST_SECONDS", 0.2)  # the planner does not answer
    async with working(gateway, "calculator"), working(gateway, "fulfiller"), joining(gateway, "planner") as planner:
        chats = planner.envelopes("chat", sender="fulfiller")
        await propose(planner, "subtract", a=1, b=1)
        assert (await anext(chats)).payload[
            "text"
        ] == "Error fulfilling proposal: no participant in the space has the tool 'subtract'"
        for to, words in {
            "fulfiller": "the proposal names no recipient and no tool",
            "carol": "not in the space: carol",
        }.items():
            await planner.send("mcp/proposal", {"method": "resources/list"}, to=to)
            assert (await anext(chats)).payload["text"] == f"Error fulfilling proposal: {words}"


@played
async def test_without_the_right_to_ask_it_says_so(gateway: Running) -> None:
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
async def test_a_proposal_that_somebody_else_has_fulfilled_meanwhile_is_left_alone(gateway: Running) -> None:
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
async def test_a_proposal_that_was_rejected_before_it_was_read_is_left_alone(gateway: Running) -> None:
    async with (
        working(gateway, "calculator"),
        joining(gateway, "alice") as alice,
        joining(gateway, "planner") as planner,
        working(gateway, "fulfiller"),
    ):
        requests = planner.envelopes("mcp/request", sender="fulfiller")
        chats = planner.envelopes("chat", sender="fulfiller")
        await alice.pause("fulfiller")
        await propose(planner, "add", "calculator", a=1, b=1)  # it holds this one, and reads no other
        rejected = await propose(planner, "add", "calculator", a=2, b=2)
        await alice.send("mcp/reject", to="planner", correlation_id=rejected.id)
        await alice.resume("fulfiller")
        assert (await anext(chats)).payload["text"] == "2"
        await propose(planner, "add", "calculator", a=3, b=3)
        assert (await anext(chats)).payload["text"] == "6"
        called = [(await anext(requests)).payload["params"]["arguments"]["a"] for _ in range(2)]
        assert called == [1, 3]
