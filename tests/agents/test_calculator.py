"""The calculator agent: three tools, bare numbers as answers, and failures as text."""

from typing import Any

import pytest

from mew.client import McpError
from tests.agents.harness import working
from tests.client.harness import joining, played
from tests.gateway.raw import Running


@played
async def test_it_offers_add_multiply_and_evaluate(gateway: Running) -> None:
    async with working(gateway, "calculator"), joining(gateway, "alice") as alice:
        tools = {item.name: item.input_schema["required"] for item in await alice.list_tools("calculator")}
        assert tools == {"add": ["a", "b"], "multiply": ["a", "b"], "evaluate": ["expression"]}


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("add", {"a": 5, "b": 3}, "8"),
        ("add", {"a": 5.0, "b": 3.0}, "8"),
        ("add", {"a": 0.1, "b": 0.2}, "0.3"),
        ("add", {"a": 10**25, "b": 1}, "10000000000000000000000001"),
        ("multiply", {"a": 7, "b": 8}, "56"),
        ("evaluate", {"expression": "(2 + 3) * 4 / 8"}, "2.5"),
    ],
)
@played
async def test_the_answer_is_the_bare_number_as_text(
    gateway: Running, tool: str, arguments: dict[str, Any], text: str
) -> None:
    async with working(gateway, "calculator"), joining(gateway, "alice") as alice:
        answer = await alice.call("calculator", "tools/call", {"name": tool, "arguments": arguments})
        assert answer.result == {"content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("10 / 0", "division by zero"),
        ("2 +", "the expression is not valid: invalid syntax"),
        ("9**9**9", "9 ** 387420489 is too large: more than 4000 digits"),
    ],
)
@played
async def test_an_impossible_calculation_is_an_mcp_error_with_a_reason(
    gateway: Running, expression: str, message: str
) -> None:
    async with working(gateway, "calculator"), joining(gateway, "alice") as alice:
        failed = await alice.call_tool("calculator", "evaluate", {"expression": expression})
        assert (failed.is_error, failed.text) == (True, message)
        assert (await alice.call_tool("calculator", "add", {"a": 1, "b": 1})).text == "2"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("subtract", {"a": 1, "b": 1}), ("add", {"a": 1}), ("add", {"a": "one", "b": 2}), ("evaluate", {})],
)
@played
async def test_an_unknown_tool_and_wrong_arguments_are_json_rpc_errors(
    gateway: Running, tool: str, arguments: dict[str, Any]
) -> None:
    async with working(gateway, "calculator"), joining(gateway, "alice") as alice:
        with pytest.raises(McpError) as failure:
            await alice.call_tool("calculator", tool, arguments)
        assert failure.value.code == -32602
        assert tool in failure.value.message


@played
async def test_frames_and_unknown_kinds_are_ignored(gateway: Running) -> None:
    async with working(gateway, "calculator"), joining(gateway, "alice") as alice:
        stream = await alice.open_stream()
        await stream.send(b"\x00")
        await alice.send("weather/storm", {}, to="calculator")
        assert (await alice.call_tool("calculator", "add", {"a": 1, "b": 1})).text == "2"
