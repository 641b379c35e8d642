"""A network that delays, cuts and half closes, and a gateway that is killed: nothing hangs, nothing is sent twice."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import mew
from mew.client import ConnectionLost, Gap, Space, StreamGap, errors, session
from mew.journal.reader import Journal
from mew.view import SpaceView
from tests.client.gateway_process import gateway_process
from tests.client.harness import gateways_view, joining, played, same, until
from tests.client.proxy import Proxy, proxied
from tests.gateway.raw import Running

ROUNDS = 12


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reconnect sooner than a program would."""
    monkeypatch.setattr(session, "MAX_BACKOFF_SECONDS", 0.05)
    yield


class Speaker:
    """A participant that sends continuously and stores the outcome of each message."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.confirmed: list[str] = []
        self.unconfirmed: list[str] = []
        self.unsent: list[str] = []

    async def talk(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            text = f"message {number}"
            try:
                echo = await self._space.chat(text)
                assert echo.payload["text"] == text
                self.confirmed.append(text)
            except ConnectionLost as lost:
                (self.unconfirmed if lost.unconfirmed else self.unsent).append(text)
                await self._space.connected()


class Reader:
    """A reader of a stream that counts received frames and reported losses."""

    def __init__(self, space: Space, stream_id: str) -> None:
        self.frames: list[int] = []
        self.gaps: list[StreamGap] = []
        self._subscription = space.frames(stream_id, on_gap=self.gaps.append)
        self.task = asyncio.create_task(self._read(), name="reader")

    async def _read(self) -> None:
        async for frame in self._subscription:
            self.frames.append(int(frame.data))

    @property
    def accounted(self) -> int:
        return len(self.frames) + sum(gap.frames for gap in self.gaps)


async def write(space: Space, stream_id: str, stop: asyncio.Event) -> int:
    """Write numbers to a stream until `stop` is set; returns how many."""
    number, stream = 0, space.stream(stream_id)
    while not stop.is_set():
        await stream.send(str(number))
        number += 1
        if not number % 20:
            await asyncio.sleep(0)
    return number


async def apply_fault(proxy: Proxy, chance: Random, delays: Random) -> None:
    """Apply one fault to the network for a moment.

    Delays have random numbers of their own: the number of packets must not decide which fault is next.
    """
    fault = chance.choice(["cut", "delay", "up", "down", "half up", "half down", "swallow", "within up", "within down"])
    if fault == "cut":
        proxy.cut()
    elif fault == "delay":
        proxy.delay = lambda: delays.uniform(0, 0.004)
    elif fault in {"up", "down"}:
        proxy.hold(fault)  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        proxy.cut()
    elif fault == "swallow":
        proxy.swallowing.add(chance.choice(["up", "down"]))
        await asyncio.sleep(0.08)
        proxy.cut()
    elif fault.startswith("within"):
        proxy.left[fault.removeprefix("within ")] = chance.randrange(2_000)  # type: ignore[index]
    else:
        for flow in proxy.flows[-1:]:
            with suppress(OSError, RuntimeError):
                flow.half_close(fault.removeprefix("half "))  # type: ignore[arg-type]
    await asyncio.sleep(chance.uniform(0.005, 0.04))
    proxy.behave()


async def send_last(space: Space) -> list[str]:
    """Send messages until one is confirmed, since a connection may still be about to break; returns all of them."""
    texts = list[str]()
    while True:
        await space.connected()
        texts.append(f"the end {len(texts)}")
        with suppress(ConnectionLost):
            await space.chat(texts[-1])
            return texts


async def view_of_gateway(space: Space) -> SpaceView | None:
    """The view of the gateway; None if the connection broke in between."""
    with suppress(ConnectionLost):
        return await gateways_view(space)
    return None


@pytest.mark.parametrize("seed", [1, 2, 3])
@played
async def test_network_faults_hang_nothing_double_nothing_and_every_lost_frame_is_reported(
    gateway: Running, seed: int
) -> None:
    chance, delays, stop, gaps = Random(seed), Random(seed + 100), asyncio.Event(), list[Gap]()
    async with joining(gateway, "alice") as alice, proxied(gateway.port) as (proxy, url):
        stream = await alice.open_stream()
        received: Counter[str] = Counter()
        chats = alice.envelopes("chat", sender="bob")
        token = gateway.token("bob")
        async with mew.connect(url, token=token, heartbeat=0.05, on_reconnected=gaps.append, timeout=2) as bob:
            speaker, reader = Speaker(bob), Reader(bob, stream.stream_id)
            talking = asyncio.create_task(speaker.talk(stop))
            writing = asyncio.create_task(write(alice, stream.stream_id, stop))
            for _ in range(ROUNDS):
                await apply_fault(proxy, chance, delays)
            stop.set()
            await asyncio.gather(talking, writing)
            last_texts = await send_last(bob)
            async for chat in chats:
                received[chat.payload["text"]] += 1
                if chat.payload["text"] == last_texts[-1]:
                    break
            assert received.total() == len(received), "a message was sent twice"
            assert [text for text in speaker.confirmed if not received[text]] == []
            assert [text for text in speaker.unsent if received[text]] == []
            assert received.keys() - {*last_texts} <= {*speaker.confirmed, *speaker.unconfirmed}
            await until(lambda: reader.accounted == writing.result())
            assert reader.frames == sorted(set(reader.frames)), "a frame came twice, or out of order"
            assert gaps, "the network broke no connection"
            while not (view := await view_of_gateway(bob)):
                await bob.connected()
            assert same(bob.view, view)
        await reader.task


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("left", [0, 1, 20, 60, 200, 400, 800])
@played
async def test_a_connection_that_breaks_within_a_message_is_replaced(gateway: Running, way: Any, left: int) -> None:
    gaps, token = list[Gap](), gateway.token("alice")
    async with (
        proxied(gateway.port) as (proxy, url),
        mew.connect(url, token=token, on_reconnected=gaps.append) as alice,
    ):
        proxy.left[way] = left
        with pytest.raises(ConnectionLost):
            for _ in range(50):
                await alice.chat("one more message")
        await alice.connected()
        await alice.chat("connected again")
        assert gaps


@pytest.mark.parametrize("way", ["up", "down"])
@played
async def test_a_connection_closed_on_one_side_is_replaced(gateway: Running, way: Any) -> None:
    gaps, token = list[Gap](), gateway.token("alice")
    async with (
        proxied(gateway.port) as (proxy, url),
        mew.connect(url, token=token, on_reconnected=gaps.append) as alice,
    ):
        waiting = asyncio.create_task(alice.request("mcp/request", {"method": "tools/list"}, timeout=None))
        await alice.wait_for(lambda envelope: envelope.kind == "mcp/request")
        proxy.flows[-1].half_close(way)
        with pytest.raises(ConnectionLost):
            await waiting
        await until(lambda: gaps)
        assert (await alice.chat("connected again")).sender == "alice"
        assert same(alice.view, await gateways_view(alice))


# The gateway itself


@played
async def test_after_a_kill_the_state_is_that_of_the_journal_and_the_gap_is_exact(tmp_path: Path) -> None:
    gaps: dict[str, list[Gap]] = {"alice": [], "bob": []}
    with gateway_process(tmp_path, "{sync: always}") as process:
        async with (
            proxied(process.port) as (proxy, url),
            mew.connect(process.url, token="token-of-alice", on_reconnected=gaps["alice"].append) as alice,
            mew.connect(url, token="token-of-bob", on_reconnected=gaps["bob"].append) as bob,
        ):
            stream = await alice.open_stream(description="survives")
            await bob.wait_until(lambda view: bool(view.streams))
            reader = Reader(bob, stream.stream_id)
            for number in range(50):
                await stream.send(str(number))
            await until(lambda: reader.accounted == 50)
            proxy.refusing = True
            proxy.cut()
            await until(lambda: bob.connection is None)
            for number in range(50, 80):
                await stream.send(str(number))
            await until(lambda: alice.view.streams[stream.stream_id].frames == 80)
            process.kill()
            await until(lambda: alice.connection is None)
            process.start()
            await alice.connected()
            assert [gap.streams for gap in gaps["alice"]] == [{stream.stream_id: 0}]
            await stream.send("80")
            await stream.send_data(81)
            proxy.behave()
            await bob.connected()
            assert [gap.streams for gap in gaps["bob"]] == [{stream.stream_id: 32}]
            assert gaps["bob"][0].position_after > gaps["bob"][0].position_before
            await stream.send("82")
            await until(lambda: reader.accounted == 83)
            assert reader.frames == [*range(50), 82]
            assert reader.gaps == [StreamGap(stream.stream_id, 32, "connection")]
            for space in (alice, bob):
                assert same(space.view, await gateways_view(space))
        await reader.task


@played
async def test_without_a_journal_a_new_stream_is_distinguished_from_an_old_one_of_the_same_id(tmp_path: Path) -> None:
    gaps: list[Gap] = []
    with gateway_process(tmp_path, "{enabled: false}") as process:
        async with (
            proxied(process.port) as (proxy, url),
            mew.connect(url, token="token-of-alice", on_reconnected=gaps.append) as alice,
            mew.connect(process.url, token="token-of-bob") as bob,
        ):
            old = await alice.open_stream()
            for _ in range(5):
                await old.send("of the old one")
            await until(lambda: alice.view.streams[old.stream_id].frames == 5)
            proxy.refusing = True
            process.kill()
            await until(lambda: alice.connection is None and bob.connection is None)
            process.start()
            await bob.connected()
            new = await bob.open_stream()
            assert new.stream_id == old.stream_id
            await new.send_data("of the new one")
            proxy.behave()
            await alice.connected()
            assert (gaps[0].streams, gaps[0].ended) == ({new.stream_id: 1}, (old.stream_id,))
            with pytest.raises(errors.UnauthorizedStreamWrite):
                await old.send("of the old one")
            assert same(alice.view, await gateways_view(alice))


@played
async def test_a_repeatedly_killed_gateway_receives_no_message_twice(
    tmp_path: Path,
) -> None:
    stop = asyncio.Event()
    with gateway_process(tmp_path, "{sync: always}") as process:
        async with mew.connect(process.url, token="token-of-alice") as alice:
            speaker = Speaker(alice)
            talking = asyncio.create_task(speaker.talk(stop))
            for end in (process.kill, process.stop, process.kill):
                enough = len(speaker.confirmed) + 20
                while len(speaker.confirmed) < enough:
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(end)
                await asyncio.to_thread(process.start)
            stop.set()
            await talking
            await alice.connected()
            assert same(alice.view, await gateways_view(alice))
        process.stop()
    records = Journal(tmp_path / ".mew" / "journal", "lab").records()
    counts = Counter(
        str(record.envelope_id) for record in records if record.kind == "chat" and record.event == "envelope"
    )
    assert counts.total() == len(counts) >= len(speaker.confirmed) > 60
    assert len(counts) <= len(speaker.confirmed) + len(speaker.unconfirmed)
