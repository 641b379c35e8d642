"""Every order does what its line of the help says, and what cannot be done is said in words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import mew
from mew.cli.common.errors import UsageError
from mew.cli.terminal.slash_commands import CommandContext, carry_out, completions
from mew.client import Space
from tests.client.harness import joining, played, until
from tests.gateway.raw import Running


@asynccontextmanager
async def desk_of(gateway: Running) -> AsyncIterator[tuple[CommandContext, Space]]:
    """Alice's desk, and Bob."""
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        await alice.wait_until(lambda view: "bob" in view.participants)
        yield CommandContext(alice, clear=lambda: None, leave=lambda: None), bob


@pytest.mark.parametrize(
    ("line", "kind", "payload"),
    [
        ("/pause bob 2s too loud", "participant/pause", {"timeout_seconds": 2.0, "reason": "too loud"}),
        ("/pause bob too loud", "participant/pause", {"reason": "too loud"}),
        (
            "/forget bob newest 3 please",
            "participant/forget",
            {"direction": "newest", "entries": 3, "reason": "please"},
        ),
        ("/forget bob", "participant/forget", {}),
        ("/clear bob a new day", "participant/clear", {"reason": "a new day"}),
        ("/restart bob", "participant/restart", {}),
        ("/shutdown bob goodbye", "participant/shutdown", {"reason": "goodbye"}),
    ],
)
def test_an_order_to_somebody_reaches_them(gateway: Running, line: str, kind: str, payload: dict[str, Any]) -> None:
    @played
    async def story() -> None:
        async with desk_of(gateway) as (desk, bob):
            result = bob.envelopes("participant/*", to="bob")
            await carry_out(desk, line)
            envelope = await anext(result)
            assert (envelope.kind, envelope.payload) == (kind, payload)

    story()


@played
async def test_a_pause_can_be_ended(gateway: Running) -> None:
    async with desk_of(gateway) as (desk, bob):
        await carry_out(desk, "/pause bob")
        with pytest.raises(mew.client.errors.Paused):
            await bob.chat("mmh")
        await carry_out(desk, "/resume bob")
        await bob.chat("ah")


@played
async def test_who_is_asked_how_it_is_tells(gateway: Running) -> None:
    async with desk_of(gateway) as (desk, bob):
        serving = asyncio.create_task(mew.Participant().run(bob))
        answer = await carry_out(desk, "/status bob")
        assert answer is not None
        assert answer.startswith('bob: {"status":"active"')
        assert "skipped" in str(await carry_out(desk, "/compact bob"))
        assert await carry_out(desk, "/status") == "alice in lab, connected; sending to all participants"
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@played
async def test_a_chat_is_acknowledged_and_taken_back(gateway: Running) -> None:
    async with desk_of(gateway) as (desk, bob):
        result = bob.envelopes("chat/*")
        desk.received_chat = await bob.chat("do you hear me?")
        await carry_out(desk, "/ack loud and clear")
        messages = await anext(result)
        assert (messages.kind, messages.payload) == ("chat/acknowledge", {"status": "loud and clear"})
        assert messages.correlation_id == (desk.received_chat.id,)
        desk.sent_chat = await desk.space.chat("nonsense")
        await carry_out(desk, "/cancel")
        assert (await anext(result)).correlation_id == (desk.sent_chat.id,)


@played
async def test_one_speaks_to_whom_one_has_chosen(gateway: Running) -> None:
    async with desk_of(gateway) as (desk, _):
        assert await carry_out(desk, "/target bob") == "sending to bob"
        assert desk.targets == ("bob",)
        with pytest.raises(UsageError, match="not in the space: nobody"):
            await carry_out(desk, "/target bob, nobody")
        assert await carry_out(desk, "/target") == "sending to bob"
        assert await carry_out(desk, "/target all") == "sending to all participants"


@played
async def test_streams_are_opened_written_shared_and_closed(gateway: Running) -> None:
    async with desk_of(gateway) as (desk, bob):
        assert await carry_out(desk, "/stream") == "there are no open streams"
        opened = str(await carry_out(desk, "/stream open where the cat is")).removeprefix("opened ")
        frames = bob.frames(opened)
        await carry_out(desk, f"/stream send {opened} on the roof")
        assert (await anext(frames)).data == b"on the roof"
        await carry_out(desk, f"/stream grant {opened} bob")
        await bob.wait_until(lambda view: view.may_write(opened))
        assert f"{opened}  live, alice; alice, bob may write" in str(await carry_out(desk, "/stream ls"))
        await carry_out(desk, f"/stream revoke {opened} bob")
        await bob.wait_until(lambda view: not view.may_write(opened))
        await carry_out(desk, f"/stream transfer {opened} bob")
        assert desk.space.view.streams[opened].owner == "bob"
        assert "each frame" in str(await carry_out(desk, f"/stream watch {opened}"))
        assert desk.watched == {opened}
        assert "not shown" in str(await carry_out(desk, f"/stream watch {opened}"))
        with pytest.raises(mew.client.errors.ProtocolError):
            await carry_out(desk, f"/stream grant {opened} carol")
        await bob.stream(opened).transfer("alice")
        await until(lambda: desk.space.view.streams[opened].owner == "alice")
        await carry_out(desk, f"/stream close {opened} asleep")
        await bob.wait_until(lambda view: not view.streams)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/paus bob", "there is no command /paus: did you mean /pause?"),
        ("/zzz", "there is no command /zzz: /help lists the commands"),
        ("/", "there is no command /: /help lists the commands"),
        ("/pause", "/pause needs more arguments: /pause who [seconds]"),
        ("/stream fly", "/stream fly does not exist: use one of ls, open, send, watch, grant, revoke, transfer, close"),
        ("/stream grant nowhere bob", "there is no stream 'nowhere'"),
        ("/stream grant nowhere", "/stream grant needs more arguments"),
        ("/ack", "no other participant has sent a chat yet"),
        ("/cancel", "you have not sent a chat yet"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(gateway: Running, line: str, words: str) -> None:
    @played
    async def story() -> None:
        async with desk_of(gateway) as (desk, _):
            with pytest.raises(UsageError) as raised:
                await carry_out(desk, line)
            assert words in str(raised.value)

    story()


@played
async def test_the_rest_of_the_orders_are_for_the_screen(gateway: Running) -> None:
    done: list[str] = []
    async with joining(gateway, "alice") as alice:
        desk = CommandContext(alice, clear=lambda: done.append("clear"), leave=lambda: done.append("leave"))
        for line in ("/clear", "/exit"):
            await carry_out(desk, line)
        assert done == ["clear", "leave"]
        assert "all messages" in str(await carry_out(desk, "/VERBOSE"))
        assert desk.verbose
        assert str(await carry_out(desk, "/help")).count("\n") == 14
        assert completions(desk, "hello") == []
