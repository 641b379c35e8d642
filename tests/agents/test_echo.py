"""The echo agent: what it answers, what it ignores, and that two of them do not answer each other."""

import asyncio
import http.client
import json
from typing import Any

from tests.agents.harness import working
from tests.client.harness import close_all, joining, played, shut_down
from tests.gateway.raw import Running


@played
async def test_every_chat_of_another_participant_is_echoed_with_its_correlation_id(gateway: Running) -> None:
    async with working(gateway, "echo"), joining(gateway, "alice") as alice:
        answers = alice.envelopes("chat", sender="echo")
        for text in ("hello", "Echo: hello", "to another participant"):
            output = await alice.chat(text, to="planner")
            answer = await anext(answers)
            assert (answer.payload["text"], answer.correlation_id, answer.to) == (
                f"Echo: {text}",
                (output.id,),
                ("alice",),
            )


@played
async def test_frames_and_unknown_kinds_are_ignored(gateway: Running) -> None:
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
async def test_two_echo_agents_do_not_echo_each_other(gateway: Running) -> None:
    async with (
        working(gateway, "echo"),
        working(gateway, "echo", "second-echo"),
        joining(gateway, "alice") as alice,
    ):
        answers = alice.envelopes("chat")
        messages: set[tuple[str, str]] = set()
        echoes = ("echo", "second-echo")
        for text in ("hello", "marker"):
            # An echo of an echo would arrive before the echo of the second text.
            await alice.chat(text)
            while not messages >= {(name, f"Echo: {text}") for name in echoes}:
                chat = await anext(answers)
                messages.add((chat.sender, chat.payload["text"]))
        output = {("alice", "hello"), ("alice", "marker")}
        assert messages == output | {(name, f"Echo: {text}") for name in echoes for text in ("hello", "marker")}


@played
async def test_a_chat_under_the_agents_own_name_is_not_echoed(gateway: Running) -> None:
    async with working(gateway, "echo"), joining(gateway, "alice") as alice:
        answers = alice.envelopes("chat", sender="echo")
        await asyncio.to_thread(post, gateway, "echo", {"kind": "chat", "payload": {"text": "by a script"}})
        await alice.chat("hello")
        texts = [(await anext(answers)).payload["text"] for _ in range(2)]
        assert texts == ["by a script", "Echo: hello"]


def post(gateway: Running, name: str, envelope: dict[str, Any]) -> None:
    """Post an envelope over HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    headers = {"Authorization": f"Bearer {gateway.token(name)}"}
    connection.request("POST", f"/participants/{name}/messages", json.dumps(envelope), headers)
    assert connection.getresponse().status == 200
    connection.close()


@played
async def test_the_agent_reconnects_after_the_connection_broke(gateway: Running) -> None:
    async with working(gateway, "echo"), joining(gateway, "alice") as alice:
        answers, received = alice.envelopes("chat", sender="echo"), alice.envelopes("system/presence")
        close_all(gateway, 1011, "something broke", "echo")
        while (await anext(received)).payload["event"] != "join":
            pass
        await alice.chat("again")
        assert (await anext(answers)).payload["text"] == "Echo: again"


@played
async def test_the_agent_ends_when_it_is_shut_down(gateway: Running) -> None:
    async with working(gateway, "echo") as agent, joining(gateway, "alice") as alice:
        await shut_down(gateway, alice, "echo")
        await agent
