"""The echo agent: what it answers, what it survives, and that two of them come to an end."""

import asyncio
import http.client
import json
from typing import Any

from tests.agents.harness import working
from tests.client.harness import close_all, joining, played, shut_down
from tests.gateway.raw import Running


@played
async def test_each_chat_of_another_is_echoed_and_correlated(gateway: Running) -> None:
    async with working(gateway, "echo"), joining(gateway, "alice") as alice:
        answers = alice.envelopes("chat", sender="echo")
        for text in ("hello", "Echo: hello", "to somebody else"):
            output = await alice.chat(text, to="planner")
            answer = await anext(answers)
            assert (answer.payload["text"], answer.correlation_id, answer.to) == (
                f"Echo: {text}",
                (output.id,),
                ("alice",),
            )


@played
async def test_frames_and_unknown_kinds_are_survived(gateway: Running) -> None:
    async with working(gateway, "echo"), joining(gateway, "alice") as alice:
        answers = alice.envelopes("chat", sender="echo")
        stream = await alice.open_stream(description="noise")
        await stream.send(b"\x00\xff")
        await stream.send("#text#within#")
        await alice.send("weather/storm", {"text": 1, "wind": {"from": ["north"]}}, to="echo")
        await alice.send("reasoning/start", {"message": "hm"})
        await alice.chat("still there?")
        assert (await anext(answers)).payload["text"] == "Echo: still there?"


@played
async def test_two_echoes_come_to_an_end(gateway: Running) -> None:
    async with (
        working(gateway, "echo"),
        working(gateway, "echo", "second-echo"),
        joining(gateway, "alice") as alice,
    ):
        answers = alice.envelopes("chat")
        messages: set[tuple[str, str]] = set()
        echoes = ("echo", "second-echo")
        for text in ("hello", "fence"):
            # What an echo had answered to an echo would stand between, and come before its answer to the fence.
            await alice.chat(text)
            while not messages >= {(name, f"Echo: {text}") for name in echoes}:
                chat = await anext(answers)
                messages.add((chat.sender, chat.payload["text"]))
        output = {("alice", "hello"), ("alice", "fence")}
        assert messages == output | {(name, f"Echo: {text}") for name in echoes for text in ("hello", "fence")}


@played
async def test_what_is_said_in_its_own_name_is_not_echoed(gateway: Running) -> None:
    async with working(gateway, "echo"), joining(gateway, "alice") as alice:
        answers = alice.envelopes("chat", sender="echo")
        await asyncio.to_thread(post, gateway, "echo", {"kind": "chat", "payload": {"text": "by somebody's script"}})
        await alice.chat("hello")
        texts = [(await anext(answers)).payload["text"] for _ in range(2)]
        assert texts == ["by somebody's script", "Echo: hello"]


def post(gateway: Running, name: str, envelope: dict[str, Any]) -> None:
    """Say something through the HTTP door."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    headers = {"Authorization": f"Bearer {gateway.token(name)}"}
    connection.request("POST", f"/participants/{name}/messages", json.dumps(envelope), headers)
    assert connection.getresponse().status == 200
    connection.close()


@played
async def test_it_comes_back_after_the_connection_broke(gateway: Running) -> None:
    async with working(gateway, "echo"), joining(gateway, "alice") as alice:
        answers, received = alice.envelopes("chat", sender="echo"), alice.envelopes("system/presence")
        close_all(gateway, 1011, "something broke", "echo")
        while (await anext(received)).payload["event"] != "join":
            pass
        await alice.chat("again")
        assert (await anext(answers)).payload["text"] == "Echo: again"


@played
async def test_it_leaves_when_it_is_shut_down(gateway: Running) -> None:
    async with working(gateway, "echo") as agent, joining(gateway, "alice") as alice:
        await shut_down(gateway, alice, "echo")
        await agent
