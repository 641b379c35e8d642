"""After a broken connection: who reconnects, which losses are reported, and what is never sent again."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import mew
from mew.client import (
    ConnectionLost,
    Disconnected,
    Gap,
    JoinRefused,
    ParticipantJoined,
    ParticipantLeft,
    Reconnected,
    Space,
    StreamDiscovered,
    StreamEnded,
    StreamGap,
    session,
)
from mew.client.session import FINAL_CLOSE_CODES
from mew.protocol.envelope import Envelope
from tests.client.fake_gateway import WELCOME, await_close, faking, whole
from tests.client.harness import close_all, gateways_view, joining, played, same, shut_down, until
from tests.client.proxy import Proxy, proxied
from tests.gateway.raw import Running


class Report:
    """What the callbacks of a client received."""

    def __init__(self) -> None:
        self.gaps: list[Gap] = []
        self.unconfirmed = list[Envelope]()

    def options(self, **others: Any) -> dict[str, Any]:
        return {"on_reconnected": self.gaps.append, "on_unconfirmed": self.unconfirmed.append, **others}


@asynccontextmanager
async def behind_proxy(gateway: Running, participant: str, **options: Any) -> AsyncIterator[tuple[Proxy, Space]]:
    """Connect a participant through a proxy."""
    token = gateway.token(participant)
    async with proxied(gateway.port) as (proxy, url), mew.connect(url, token=token, **options) as space:
        yield proxy, space


async def away(proxy: Proxy, space: Space) -> None:
    """Break the connection, and refuse the next ones."""
    proxy.refusing = True
    proxy.cut()
    await until(lambda: space.connection is None)


async def back(proxy: Proxy, space: Space) -> None:
    """Allow connections, and wait for the next one."""
    proxy.behave()
    await space.connected()


@played
async def test_missed_frames_are_counted_exactly_and_subscriptions_continue(gateway: Running) -> None:
    report, read = Report(), list[Any]()
    async with joining(gateway, "alice") as alice, proxied(gateway.port) as (proxy, url):
        one, two = await alice.open_stream(), await alice.open_stream()
        async with mew.connect(url, token=gateway.token("bob"), **report.options()) as bob:
            frames, chats = bob.frames(on_gap=read.append), bob.envelopes("chat")
            for _ in range(3):
                await one.send("before")
            for _ in range(3):
                read.append((await anext(frames)).data)
            position = bob.view.position
            await away(proxy, bob)
            await asyncio.gather(
                *(one.send("during the break") for _ in range(70)), *(two.send_data(n) for n in range(5))
            )
            await alice.chat("lost message")
            await back(proxy, bob)
            assert report.gaps == [Gap(position, bob.view.position, {one.stream_id: 70, two.stream_id: 5})]
            assert bob.view.position > position + 76
            await one.send("after")
            read.append((await anext(frames)).data)
            assert read == [
                b"before", b"before", b"before",
                StreamGap(one.stream_id, 70, "connection"), StreamGap(two.stream_id, 5, "connection"), b"after",
            ]  # fmt: skip
            await alice.chat("and now?")
            assert (await anext(chats)).payload["text"] == "and now?"
            assert same(bob.view, await gateways_view(bob))


@played
async def test_streams_and_participants_that_changed_during_a_break_are_events(gateway: Running) -> None:
    report = Report()
    async with joining(gateway, "alice") as alice, proxied(gateway.port) as (proxy, url):
        old, lasting = await alice.open_stream(), await alice.open_stream()
        async with mew.connect(url, token=gateway.token("bob"), **report.options()) as bob:
            await old.send("known")
            carol = await joining(gateway, "carol")
            await bob.wait_until(lambda view: "carol" in view.participants)
            events, reading = bob.events(), bob.frames(old.stream_id)
            await away(proxy, bob)
            await old.close()
            new = await alice.open_stream()
            await new.send("not seen")
            await carol.close()
            await alice.wait_until(lambda view: "carol" not in view.participants)
            await back(proxy, bob)
            (gap,) = report.gaps
            assert gap.streams == {lasting.stream_id: 0, new.stream_id: 1}
            assert gap.ended == (old.stream_id,)
            stream = bob.stream
            assert [await anext(events) for _ in range(7)] == [
                StreamDiscovered(stream(old.stream_id)),
                StreamDiscovered(stream(lasting.stream_id)),
                Disconnected("the connection broke"),
                ParticipantLeft("carol"),
                StreamEnded(old.stream_id),
                StreamDiscovered(stream(new.stream_id)),
                Reconnected(gap),
            ]
            assert [frame async for frame in reading] == []
            async with joining(gateway, "carol"):
                assert isinstance(await anext(events), ParticipantJoined)


@played
async def test_frames_for_others_are_not_missed(gateway: Running) -> None:
    report = Report()
    async with joining(gateway, "alice") as alice, proxied(gateway.port) as (proxy, url):
        private = await alice.open_stream(target=["alice"])
        async with mew.connect(url, token=gateway.token("bob"), **report.options()) as bob:
            await private.send("before")
            await away(proxy, bob)
            await private.send("during the break")
            await alice.chat("recorded")
            await back(proxy, bob)
            assert [gap.streams for gap in report.gaps] == [{}]


@played
async def test_a_client_owns_its_stream_after_a_reconnect(gateway: Running) -> None:
    async with behind_proxy(gateway, "alice") as (proxy, alice):
        stream = await alice.open_stream()
        await stream.send_data("0")
        await away(proxy, alice)
        await back(proxy, alice)
        assert (await stream.send_data("1")).payload["sequence"] == 1
        await stream.send("a frame")
        assert (await stream.close()).kind == "stream/close"


# Who does not reconnect


async def closed_with(gateway: Running, code: int) -> None:
    close_all(gateway, code, "requested")


@pytest.mark.parametrize("code", sorted(FINAL_CLOSE_CODES))
@played
async def test_after_a_final_code_the_client_does_not_reconnect(gateway: Running, code: int) -> None:
    report = Report()
    async with proxied(gateway.port) as (proxy, url):
        async with mew.connect(url, token=gateway.token("alice"), **report.options()) as alice:
            loops: list[Any] = [alice.envelopes(), alice.frames(), alice.events(), alice.messages()]
            waiting: list[Any] = [asyncio.create_task(anext(loop)) for loop in loops]
            waiting.append(asyncio.create_task(alice.wait_for(lambda _: False)))
            waiting.append(asyncio.create_task(alice.request("mcp/request", {"method": "x"})))
            await asyncio.sleep(0)
            await closed_with(gateway, code)
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(outcome, JoinRefused), outcome
                assert outcome.code == code
            for refused in (alice.chat("late"), alice.connected(), anext(alice.envelopes())):
                with pytest.raises(JoinRefused):
                    await refused
        assert (proxy.connections, report.gaps) == (1, [])


@pytest.mark.parametrize("code", [1001, 1009, 1011, 1012, 1013, 3000, 4000])
@played
async def test_after_any_other_code_the_client_reconnects(gateway: Running, code: int) -> None:
    report = Report()
    async with joining(gateway, "alice", **report.options()) as alice:
        await closed_with(gateway, code)
        await until(lambda: report.gaps)
        await alice.chat("back")


@played
async def test_a_client_that_was_shut_down_does_not_reconnect(gateway: Running) -> None:
    report = Report()
    async with joining(gateway, "alice") as alice, proxied(gateway.port) as (proxy, url):
        async with mew.connect(url, token=gateway.token("bob"), **report.options()) as bob:
            waiting = asyncio.create_task(bob.wait_for(lambda _: False))
            shutdowns = bob.envelopes("participant/shutdown")
            await alice.wait_until(lambda view: "bob" in view.participants)
            await shut_down(gateway, alice, "bob")
            assert [shutdown.sender async for shutdown in shutdowns] == ["alice"]
            for refused in (waiting, bob.chat("late"), bob.connected()):
                with pytest.raises(ConnectionLost) as lost:
                    await refused
                assert lost.value.code == 1000
            assert [envelope async for envelope in bob.envelopes()] == []
        assert (proxy.connections, report.gaps) == (1, [])
        async with joining(gateway, "bob") as bob:  # a new connect() may join
            await bob.chat("joined again")


@played
async def test_a_shutdown_by_the_gateway_ends_the_client(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["mew.protocol.fold"], "SHUTDOWN_SECONDS", 0)
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        shutdowns = bob.envelopes("participant/shutdown")
        await alice.send("participant/shutdown", to="bob")
        assert [shutdown.to async for shutdown in shutdowns] == [("bob",)]
        with pytest.raises(ConnectionLost) as lost:
            await bob.chat("late")
        assert lost.value.code == 1000


@played
async def test_a_normal_close_without_a_shutdown_is_followed_by_a_reconnect(gateway: Running) -> None:
    report = Report()
    async with joining(gateway, "alice", **report.options()) as alice, joining(gateway, "bob"):
        await alice.send("participant/shutdown", to="bob")  # of another participant
        close_all(gateway, 1000, "idle for too long", "alice")
        await until(lambda: report.gaps)
        await alice.chat("back")


@played
async def test_a_replaced_client_does_not_take_its_place_back(gateway: Running) -> None:
    async with joining(gateway, "alice") as first, joining(gateway, "alice") as second:
        with pytest.raises(JoinRefused) as raised:
            await anext(first.envelopes())
        assert raised.value.code == 4409
        await second.chat("hello")


@played
async def test_a_client_that_was_kicked_during_a_break_stops_when_it_reconnects(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, behind_proxy(gateway, "bob") as (proxy, bob):
        waiting = asyncio.create_task(anext(bob.envelopes()))
        await away(proxy, bob)
        await alice.send("space/kick", {"participant_id": "bob"})
        proxy.behave()
        with pytest.raises(JoinRefused) as raised:
            await waiting
        assert raised.value.code == 4403
        with pytest.raises(JoinRefused):
            await bob.connected()


@played
async def test_a_client_without_reconnect_does_not_reconnect(gateway: Running) -> None:
    async with joining(gateway, "alice", reconnect=False) as alice:
        frames, waiting = alice.frames(), asyncio.create_task(alice.wait_for(lambda _: False))
        await asyncio.sleep(0)
        await closed_with(gateway, 1012)
        with pytest.raises(ConnectionLost) as lost:
            await anext(frames)
        assert lost.value.code == 1012
        with pytest.raises(ConnectionLost):
            await waiting


@played
async def test_attempts_continue_until_a_gateway_answers(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_BACKOFF_SECONDS", 0.02)
    async with behind_proxy(gateway, "alice", timeout=0.5) as (proxy, alice):
        await away(proxy, alice)
        await until(lambda: proxy.connections >= 4)
        proxy.behave()
        proxy.hold("down")  # it answers the upgrade, and then nothing
        await until(lambda: proxy.connections >= 7)
        with pytest.raises(ConnectionLost) as lost:
            await alice.chat("not yet")
        assert not lost.value.unconfirmed
        await back(proxy, alice)
        await alice.chat("now")


@played
async def test_a_welcome_in_the_iteration_of_its_time_out_starts_no_second_reconnect() -> None:
    seconds, broken, reconnects = 0.5, asyncio.Event(), list[int]()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await reader.read(65_536)
        reconnects.append(sum("reconnect to" in task.get_name() for task in asyncio.all_tasks()))
        writer.write(whole(WELCOME))
        if number == 1:
            await broken.wait()
            return
        until_then = asyncio.get_running_loop().time() + seconds
        while number == 2 and asyncio.get_running_loop().time() < until_then:
            pass  # no other task runs until the welcome has arrived and its time is up
        await await_close(reader)

    async with faking(script) as url, mew.connect(url, token="any", timeout=seconds) as alice:
        events = alice.events()
        broken.set()
        kinds = [type(await anext(events)) for _ in range(4)]
        assert kinds == [Disconnected, Reconnected, Disconnected, Reconnected]
        assert (reconnects[0], set(reconnects[1:])) == (0, {1})
        assert len(reconnects) > 2
        await until(lambda: "back to" not in str(asyncio.all_tasks()))


@played
async def test_closing_ends_the_reconnect(gateway: Running) -> None:
    async with proxied(gateway.port) as (proxy, url):
        async with mew.connect(url, token=gateway.token("alice")) as alice:
            chats = alice.envelopes("chat")
            await away(proxy, alice)
            assert "mew client" in str(asyncio.all_tasks())
        assert "mew client" not in str(asyncio.all_tasks())
        assert [chat async for chat in chats] == []
        with pytest.raises(ConnectionLost):
            await alice.connected()


# At most once


@pytest.mark.parametrize("way", ["up", "down"])
@played
async def test_an_unconfirmed_message_is_reported_and_never_sent_again(gateway: Running, way: Any) -> None:
    report = Report()
    async with joining(gateway, "bob") as bob, proxied(gateway.port) as (proxy, url):
        chats = bob.envelopes("chat")
        async with mew.connect(url, token=gateway.token("alice"), **report.options()) as alice:
            proxy.hold(way)
            sending = asyncio.create_task(alice.chat("perhaps"))
            if way == "down":
                assert (await anext(chats)).payload["text"] == "perhaps"
            else:
                await until(lambda: alice._pending._requests)
            proxy.cut()
            with pytest.raises(ConnectionLost) as lost:
                await sending
            assert lost.value.unconfirmed
            assert [envelope.payload["text"] for envelope in report.unconfirmed] == ["perhaps"]
            assert report.unconfirmed[0].sender == "alice"
            await back(proxy, alice)
            await alice.chat("surely")
            assert (await anext(chats)).payload["text"] == "surely"


@played
async def test_an_accepted_request_is_not_unconfirmed_when_its_answer_is_lost(gateway: Running) -> None:
    report = Report()
    async with behind_proxy(gateway, "alice", **report.options()) as (proxy, alice):
        asking = asyncio.create_task(alice.request("mcp/request", {"method": "tools/list"}))
        await alice.wait_for(lambda envelope: envelope.kind == "mcp/request")
        proxy.cut()
        with pytest.raises(ConnectionLost) as lost:
            await asking
        assert not lost.value.unconfirmed
        assert report.unconfirmed == []


@played
async def test_an_error_in_a_callback_does_not_affect_the_client(gateway: Running) -> None:
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

    def mistaken(gap: Gap) -> None:
        raise ZeroDivisionError(gap)

    async with joining(gateway, "alice", on_reconnected=mistaken) as alice:
        await closed_with(gateway, 1012)
        await until(lambda: faults)
        await alice.chat("still connected")
    assert [type(fault["exception"]) for fault in faults] == [ZeroDivisionError]


# Silence


@pytest.mark.parametrize("ways", [{"up"}, {"down"}, {"up", "down"}])
@played
async def test_a_network_that_swallows_everything_is_detected(gateway: Running, ways: Any) -> None:
    report = Report()
    async with behind_proxy(gateway, "alice", **report.options(heartbeat=0.3)) as (proxy, alice):
        proxy.swallowing |= ways
        with pytest.raises(ConnectionLost):
            await alice.chat("hello?")
        proxy.behave()
        await until(lambda: report.gaps)
        await alice.connected()
        await alice.chat("hello")


@played
async def test_a_silent_gateway_that_answers_pings_is_kept(gateway: Running) -> None:
    async with joining(gateway, "alice", heartbeat=0.5) as alice:
        connection = alice.connection
        assert connection is not None
        enough = asyncio.get_running_loop().time() + 2.5
        await until(lambda: asyncio.get_running_loop().time() > enough)
        assert alice.connection is connection
        assert await connection.ping() > 0
