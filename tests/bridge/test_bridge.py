"""What the bridge does for callers in a space, with a server made with the `mcp` package."""

import asyncio
import logging

import pytest

from tests.bridge.harness import Bridged, bridged, odd, text_of
from tests.client.harness import joining, played, until
from tests.gateway.raw import Running


@played
async def test_tools_are_listed_and_called_as_the_server_has_them(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        listed = (await tools.result("tools/list"))["tools"]
        assert {"add", "fail", "learn"} <= {each["name"] for each in listed}
        added = next(each for each in listed if each["name"] == "add")
        assert added["description"] == "The sum of two numbers."
        assert added["inputSchema"]["required"] == ["a", "b"]
        called = await tools.call("add", a=2, b=40)
        assert (text_of(called), called["structuredContent"]) == ("42", {"result": 42})


@played
async def test_a_tool_is_called_for_one_who_may_only_propose_when_another_agrees(gateway: Running) -> None:
    async with bridged(gateway) as tools, joining(gateway, "planner") as planner:
        proposals = tools.alice.proposals()
        calling = asyncio.create_task(planner.call_tool("tools", "add", {"a": 1, "b": 2}), name="proposing")
        proposal = await anext(proposals)
        assert (proposal.by, proposal.tool) == ("planner", "add")
        request = await proposal.approve()
        result = await calling
        assert (result.text, result.answered_by, result.by, request.sender) == ("3", "tools", "alice", "alice")
        # Where no proposal is needed, none is made.
        asked = await tools.alice.call_tool("tools", "add", {"a": 20, "b": 22}, propose=False)
        assert (asked.text, asked.structured) == ("42", {"result": 42})


@played
async def test_a_failing_tool_says_so_in_its_result(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        failed = await tools.call("fail")
        assert failed["isError"] is True
        assert "no such luck" in text_of(failed)


@played
async def test_an_error_of_the_server_keeps_code_message_and_data(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        error = await tools.error("tools/call", name="refuse", arguments={})
        assert error == {"code": -32050, "message": "not today", "data": {"try": "tomorrow"}}
        assert (await tools.error("tools/call", arguments={}))["code"] == -32602


@played
async def test_resources_templates_and_prompts_are_passed_on(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        listed = await tools.result("resources/list")
        assert [each["uri"] for each in listed["resources"]] == ["memo://today"]
        templates = await tools.result("resources/templates/list")
        assert [each["uriTemplate"] for each in templates["resourceTemplates"]] == ["memo://on/{day}"]
        read = await tools.result("resources/read", uri="memo://on/sunday")
        assert [each["text"] for each in read["contents"]] == ["rest on sunday"]
        assert (await tools.error("resources/read", uri="memo://nowhere"))["code"] < 0
        prompts = await tools.result("prompts/list")
        assert [each["name"] for each in prompts["prompts"]] == ["greet"]
        prompt = await tools.result("prompts/get", name="greet", arguments={"name": "bob"})
        assert prompt["messages"][0]["content"]["text"] == "Say hello to bob."


@played
async def test_ping_and_initialize_are_answered_for_the_server(gateway: Running) -> None:
    async with bridged(gateway, odd("plain")) as tools:
        assert await tools.result("ping") == {}
        said = await tools.result("initialize")
        assert (said["serverInfo"]["name"], said["instructions"]) == ("odd", "Ask me anything.")


@played
async def test_what_the_server_has_not_is_not_asked_of_it(gateway: Running) -> None:
    async with bridged(gateway, odd("toolless")) as tools:
        for method in (
            "tools/list",
            "tools/call",
            "resources/list",
            "prompts/get",
            "made/up",
            "sampling/createMessage",
        ):
            assert await tools.error(method) == {
                "code": -32601,
                "message": f"the MCP server behind this participant has no {method!r}",
            }


@played
async def test_a_change_of_the_tools_is_told_to_the_space_and_the_next_list_has_it(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        notifications = tools.alice.envelopes("mcp/notification", sender="tools")
        assert "sing" not in await names(tools)
        await tools.call("learn", name="sing")
        assert (await anext(notifications)).payload == {"method": "notifications/tools/list_changed"}
        assert "sing" in await names(tools)
        assert text_of(await tools.call("sing")) == "I am sing"


@played
async def test_a_bridge_that_may_not_tell_of_changes_goes_on_without(
    gateway: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="mew.bridge")
    async with bridged(gateway, odd("changing")) as tools:
        revoked = {"recipient": "tools", "capabilities": [{"kind": "mcp/notification"}]}
        await tools.alice.send("capability/revoke", revoked)
        assert await names(tools) == ["odd"]
        await until(lambda: "the list of tools has changed, and tools may not report it" in caplog.text)
        assert await names(tools) == ["odd"]
        assert not tools.running.done()


@played
async def test_calls_are_worked_on_at_the_same_time_and_one_that_lasts_too_long_fails(gateway: Running) -> None:
    async with bridged(gateway, call=1) as tools:
        started = tools.alice.envelopes("mcp/notification", sender="tools")
        asked = {"method": "tools/call", "params": {"name": "ponder", "arguments": {}}}
        answers = tools.alice.envelopes("mcp/response", sender="tools")
        request = await tools.alice.send("mcp/request", asked, to="tools")
        await anext(started)
        assert text_of(await tools.call("add", a=1, b=1)) == "2"
        assert list((await anext(answers)).correlation_id) != [request.id]
        late = await anext(answers)
        assert list(late.correlation_id) == [request.id]
        assert late.payload["error"] == {
            "code": -32001,
            "message": "the MCP server did not answer 'tools/call' in 1 s",
        }


@played
async def test_a_space_that_comes_back_finds_the_same_server(gateway: Running) -> None:
    async with bridged(gateway, odd("plain")) as tools:
        before = (await tools.result("initialize"))["serverInfo"]
        gateway.ask(
            lambda each: next(each for each in each.sockets if each._participant == "tools").close(1001, "away")
        )
        await tools.alice.wait_until(lambda view: "tools" not in view.participants)
        await tools.alice.wait_until(lambda view: "tools" in view.participants)
        assert (await tools.result("initialize"))["serverInfo"] == before


@played
async def test_a_bridge_that_is_shut_down_ends_in_good_order(gateway: Running) -> None:
    async with bridged(gateway, odd("plain")) as tools:
        await tools.alice.send("participant/shutdown", {}, to="tools")
        await until(tools.running.done)
        assert tools.running.exception() is None


@played
async def test_fields_that_nobody_knows_are_passed_on(gateway: Running) -> None:
    async with bridged(gateway, odd("plain")) as tools:
        tool = {"name": "odd", "inputSchema": {"type": "object"}, "x-unknown": {"kept": None}}
        assert await tools.result("tools/list") == {"tools": [tool], "x-also": 1}


@played
async def test_an_answer_that_is_not_mcp_is_the_servers_error(gateway: Running) -> None:
    async with bridged(gateway, odd("nonsense")) as tools:
        error = {"code": -32603, "message": "the answer of the MCP server is not valid MCP"}
        assert await tools.error("tools/list") == error


@played
async def test_a_version_of_mcp_that_nobody_knows_is_taken_with_a_warning(
    gateway: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with bridged(gateway, odd("future")) as tools:
        assert await names(tools) == ["odd"]
    assert "speaks MCP '2099-01-01', which is not known" in caplog.text


@played
async def test_a_server_without_initialize_is_discovered_and_its_changes_are_followed(gateway: Running) -> None:
    async with joining(gateway, "planner") as planner:
        notifications = planner.envelopes("mcp/notification", sender="tools")
        async with bridged(gateway, odd("modern")) as tools:
            assert await names(tools) == ["odd"]
            assert (await anext(notifications)).payload == {"method": "notifications/tools/list_changed"}
            assert (await tools.result("initialize"))["protocolVersion"] == "2026-07-28"


async def names(tools: Bridged) -> list[str]:
    return [each["name"] for each in (await tools.result("tools/list"))["tools"]]
