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
        assert {"add", "fail", "learn"} <= {item["name"] for item in listed}
        added = next(tool for tool in listed if tool["name"] == "add")
        assert added["description"] == "The sum of two numbers."
        assert added["inputSchema"]["required"] == ["a", "b"]
        called = await tools.call("add", a=2, b=40)
        assert (text_of(called), called["structuredContent"]) == ("42", {"result": 42})


@played
async def test_a_proposed_tool_call_is_made_when_another_participant_approves(gateway: Running) -> None:
    async with bridged(gateway) as tools, joining(gateway, "planner") as planner:
        proposals = tools.alice.proposals()
        calling = asyncio.create_task(planner.call_tool("tools", "add", {"a": 1, "b": 2}), name="proposing")
        proposal = await anext(proposals)
        assert (proposal.by, proposal.tool) == ("planner", "add")
        request = await proposal.approve()
        result = await calling
        assert (result.text, result.answered_by, result.by, request.sender) == ("3", "tools", "alice", "alice")
        # Where no proposal is needed, none is made.
        answer = await tools.alice.call_tool("tools", "add", {"a": 20, "b": 22}, propose=False)
        assert (answer.text, answer.structured) == ("42", {"result": 42})


@played
async def test_a_failing_tool_has_an_error_result(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        failed = await tools.call("fail")
        assert failed["isError"] is True
        assert "no such luck" in text_of(failed)


@played
async def test_an_error_of_the_server_keeps_code_message_and_data(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        error = await tools.error("tools/call", name="refuse", arguments={})
        assert error == {"code": -32050, "message": "not today", "data": {"try": "tomorrow"}}
        error = await tools.error("tools/call", name="busy", arguments={})
        assert error == {"code": -32000, "message": "Connection closed for maintenance"}
        assert (await tools.error("tools/call", arguments={}))["code"] == -32602


@played
async def test_resources_templates_and_prompts_are_passed_on(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        listed = await tools.result("resources/list")
        assert [item["uri"] for item in listed["resources"]] == ["memo://today"]
        templates = await tools.result("resources/templates/list")
        assert [item["uriTemplate"] for item in templates["resourceTemplates"]] == ["memo://on/{day}"]
        read = await tools.result("resources/read", uri="memo://on/sunday")
        assert [item["text"] for item in read["contents"]] == ["rest on sunday"]
        assert (await tools.error("resources/read", uri="memo://nowhere"))["code"] < 0
        prompts = await tools.result("prompts/list")
        assert [item["name"] for item in prompts["prompts"]] == ["greet"]
        prompt = await tools.result("prompts/get", name="greet", arguments={"name": "bob"})
        assert prompt["messages"][0]["content"]["text"] == "Say hello to bob."


@played
async def test_ping_and_initialize_are_answered_for_the_server(gateway: Running) -> None:
    async with bridged(gateway, odd("plain")) as tools:
        assert await tools.result("ping") == {}
        info = await tools.result("initialize")
        assert (info["serverInfo"]["name"], info["instructions"]) == ("odd", "Ask me anything.")


@played
async def test_methods_without_a_capability_of_the_server_are_not_forwarded(gateway: Running) -> None:
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
async def test_a_changed_tool_list_is_reported_to_the_space(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        notifications = tools.alice.envelopes("mcp/notification", sender="tools")
        assert "sing" not in await names(tools)
        await tools.call("learn", name="sing")
        assert (await anext(notifications)).payload == {"method": "notifications/tools/list_changed"}
        assert "sing" in await names(tools)
        assert text_of(await tools.call("sing")) == "I am sing"


@played
async def test_a_bridge_without_permission_to_report_changes_continues(
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
async def test_calls_run_concurrently_and_fail_after_the_timeout(gateway: Running) -> None:
    async with bridged(gateway, call=1) as tools:
        started = tools.alice.envelopes("mcp/notification", sender="tools")
        payload = {"method": "tools/call", "params": {"name": "ponder", "arguments": {}}}
        answers = tools.alice.envelopes("mcp/response", sender="tools")
        request = await tools.alice.send("mcp/request", payload, to="tools")
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
async def test_a_reconnect_keeps_the_server(gateway: Running) -> None:
    async with bridged(gateway, odd("plain")) as tools:
        before = (await tools.result("initialize"))["serverInfo"]
        gateway.ask(
            lambda running: next(socket for socket in running.sockets if socket._participant == "tools").close(
                1001, "away"
            )
        )
        await tools.alice.wait_until(lambda view: "tools" not in view.participants)
        await tools.alice.wait_until(lambda view: "tools" in view.participants)
        assert (await tools.result("initialize"))["serverInfo"] == before


@played
async def test_a_shutdown_ends_the_bridge_without_an_error(gateway: Running) -> None:
    async with bridged(gateway, odd("plain")) as tools:
        await tools.alice.send("participant/shutdown", {}, to="tools")
        await until(tools.running.done)
        assert tools.running.exception() is None


@played
async def test_unknown_fields_are_passed_on(gateway: Running) -> None:
    async with bridged(gateway, odd("plain")) as tools:
        tool = {"name": "odd", "inputSchema": {"type": "object"}, "x-unknown": {"kept": None}}
        assert await tools.result("tools/list") == {"tools": [tool], "x-also": 1}


@played
async def test_an_answer_that_is_not_mcp_is_an_internal_error(gateway: Running) -> None:
    async with bridged(gateway, odd("nonsense")) as tools:
        error = {"code": -32603, "message": "the answer of the MCP server is not valid MCP"}
        assert await tools.error("tools/list") == error


@played
async def test_an_unknown_version_of_mcp_is_accepted_with_a_warning(
    gateway: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with bridged(gateway, odd("future")) as tools:
        assert await names(tools) == ["odd"]
    assert "speaks MCP '2099-01-01', which is not known" in caplog.text


@played
async def test_a_server_without_initialize_is_discovered_and_its_changes_are_reported(gateway: Running) -> None:
    async with joining(gateway, "planner") as planner:
        notifications = planner.envelopes("mcp/notification", sender="tools")
        async with bridged(gateway, odd("modern")) as tools:
            assert await names(tools) == ["odd"]
            assert (await anext(notifications)).payload == {"method": "notifications/tools/list_changed"}
            assert (await tools.result("initialize"))["protocolVersion"] == "2026-07-28"


async def names(tools: Bridged) -> list[str]:
    return [item["name"] for item in (await tools.result("tools/list"))["tools"]]
