"""Streams: opened, written, read, transferred and ended through the SDK."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.client import Format, MessageRefused, Stream, errors
from mew.client.errors import DecodeError
from mew.client.frames import descriptor, format_id
from mew.gateway.websocket import WebSocketConnection
from tests.client.harness import joining, played, until
from tests.gateway.raw import Running, running


class Position(msgspec.Struct):
    x: float
    y: float
    entity: str = "cat"


@dataclasses.dataclass
class Word:
    text: str
    at: float


@played
async def test_a_requested_stream_is_live_immediately(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.open_stream(description="positions", metadata={"hz": 60})
        view = stream.view
        assert view is not None
        assert (view.owner, view.status, view.writers) == ("alice", "live", ("alice",))
        assert view.entry["metadata"] == {"hz": 60}
        assert stream == alice.stream(stream.stream_id)
        assert repr(stream) == "<Stream 'stream-1'>"


@played
async def test_an_announced_stream_is_live_when_it_is_started(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.announce_stream([Position], desired_id="moves", intent="movement")
        with pytest.raises(errors.StreamNotLive):
            await stream.send("too early")
        assert (await stream.start()).kind == "stream/start"
        assert alice.view.streams["moves"].status == "live"
        await stream.send(Position(1, 2))


@pytest.mark.parametrize("kind", [Position, Word])
@played
async def test_the_gateway_checks_data_against_the_schema_of_a_type(gateway: Running, kind: Any) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.announce_stream([kind], validate=True)
        await stream.start()
        fitting = Position(1, 2) if kind is Position else Word("hello", 0.5)
        frames = alice.frames(format=kind)
        await stream.send_data(fitting)
        with pytest.raises(errors.SchemaViolation):
            await stream.send_data({"x": "left"})
        assert (await anext(frames)).value == fitting


@played
async def test_bytes_text_and_values_arrive_as_they_were_sent(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        stream = await alice.announce_stream([Position])
        await stream.start()
        await bob.wait_until(lambda view: bool(view.streams))
        frames = bob.stream(stream.stream_id).frames(Position)
        for data in (b"\xff#", bytearray(b"ab"), memoryview(b"cd"), "häh", "", Position(1, 2), {"x": 3, "y": 4}, [1]):
            await stream.send(data)
        received = [await anext(frames) for _ in range(8)]
        assert [(frame.data, frame.text) for frame in received] == [
            (b"\xff#", False), (b"ab", False), (b"cd", False), ("häh".encode(), True), (b"", True),
            (b'{"x":1,"y":2,"entity":"cat"}', True), (b'{"x":3,"y":4}', True), (b"[1]", True),
        ]  # fmt: skip
        assert received[5].value == Position(1, 2)
        assert received[6].value == Position(3, 4)
        for other in (0, 3, 7):
            with pytest.raises(DecodeError, match=stream.stream_id):
                received[other].value  # noqa: B018
        assert {frame.sender for frame in received} == {None}


@played
async def test_data_have_a_sequence_number_and_a_sender(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        stream = await alice.open_stream()
        await stream.grant("bob")
        frames = alice.frames()
        await asyncio.gather(*(stream.send_data(number) for number in range(3)))
        await bob.wait_until(lambda view: view.may_write(stream.stream_id))
        await bob.stream(stream.stream_id).send_data("b")
        received = [await anext(frames) for _ in range(4)]
        assert [(frame.sender, frame.sequence, frame.value) for frame in received] == [
            ("alice", 0, 0), ("alice", 1, 1), ("alice", 2, 2), ("bob", 0, "b"),
        ]  # fmt: skip


@played
async def test_sequence_numbers_continue_after_an_earlier_connection(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.open_stream()
        for number in range(3):
            await stream.send_data(number)
    async with joining(gateway, "alice") as alice:
        sent = await alice.stream(stream.stream_id).send_data(3)
        assert (sent.payload["sequence"], sent.payload["content"]) == (3, 3)


@pytest.mark.parametrize("before", [1, 3, 9])
@played
async def test_sequence_numbers_continue_for_concurrent_data(gateway: Running, before: int) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.open_stream()
        for number in range(before):
            await stream.send_data(number)
    async with joining(gateway, "alice") as alice:
        same_stream = alice.stream(stream.stream_id)
        sent = await asyncio.gather(*(same_stream.send_data(value) for value in "abc"))
        assert [envelope.payload["content"] for envelope in sent] == ["a", "b", "c"]
        assert sorted(envelope.payload["sequence"] for envelope in sent) == list(range(before, before + 3))


@played
async def test_a_format_that_the_stream_does_not_have_is_refused_before_anything_is_sent(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.announce_stream([Position, Format(Word, "word", "one word")])
        await stream.start()
        words, everything = alice.frames(format=Format(Word, "word")), alice.frames()
        await stream.send_data(Position(0, 0), Position)
        await stream.send_data(Word("a", 1), Format(Word, "word"))
        assert (await anext(words)).value == Word("a", 1)
        assert [(await anext(everything)).format_id for _ in range(2)] == ["Position", "word"]
        await stream.send(Position(1, 2), Position)
        for refused in (stream.send("x", format="none"), stream.send_data("x", format=Word)):
            with pytest.raises(errors.UnknownFormat):
                await refused
        with pytest.raises(errors.UnknownFormat):  # the gateway refuses this: there are two formats
            await stream.send_data(Word("a", 1))


def test_a_format_is_described_by_its_type() -> None:
    described = descriptor(Word)
    assert (described["id"], described["mime_type"]) == ("Word", "application/json")
    assert described["schema"]["$defs"]["Word"]["required"] == ["text", "at"]
    assert descriptor(Format(dict[str, int], "counts", "how many"))["description"] == "how many"
    assert descriptor("text") == {"id": "text"}
    assert descriptor({"id": "own", "schema": {}}) == {"id": "own", "schema": {}}
    assert [format_id(form) for form in (Word, "a", {"id": "b"}, Format(int, "c"))] == ["Word", "a", "b", "c"]


# Write access


@played
async def test_write_access_is_granted_revoked_and_transferred(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        stream = await alice.open_stream()
        same: Stream = bob.stream(stream.stream_id)
        await bob.wait_until(lambda view: bool(view.streams))
        with pytest.raises(errors.UnauthorizedStreamWrite):
            await same.send("may I?")
        assert (await stream.grant("bob", "your turn")).payload["reason"] == "your turn"
        await bob.wait_until(lambda view: view.may_write(stream.stream_id))
        await same.send("now I may")
        await stream.revoke("bob")
        await bob.wait_until(lambda view: not view.may_write(stream.stream_id))
        with pytest.raises(errors.UnauthorizedStreamWrite):
            same.try_send("and now?")
        await stream.transfer("bob")
        with pytest.raises(errors.UnauthorizedStreamWrite):
            await stream.send("mine?")
        with pytest.raises(errors.Unauthorized):
            await stream.grant("alice")
        await bob.wait_until(lambda view: view.may_write(stream.stream_id))
        await same.send("mine")
        with pytest.raises(errors.ParticipantNotFound):
            await same.grant("nobody")


@pytest.mark.parametrize("end", ["close", "complete", "fail"])
@played
async def test_a_stream_can_be_closed_completed_and_failed(gateway: Running, end: str) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.open_stream()
        ways = {"close": stream.close("done"), "complete": stream.complete(), "fail": stream.fail("bug", "it broke")}
        ending = await ways.pop(end)
        for other in ways.values():
            other.close()
        assert ending.kind == {"close": "stream/close", "complete": "stream/complete", "fail": "stream/error"}[end]
        assert stream.view is None
        with pytest.raises(errors.StreamNotFound):
            await stream.send("one more")
        with pytest.raises(errors.StreamNotFound):
            await stream.send_data("one more")


@played
async def test_reading_one_stream_ends_with_it_and_reading_all_continues(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        stream, other = await alice.open_stream(), await alice.open_stream()
        await bob.wait_until(lambda view: len(view.streams) == 2)
        one, all_ = bob.stream(stream.stream_id).frames(), bob.frames()
        await stream.send("first")
        await stream.send_data("last")
        await stream.complete()
        assert [frame.data async for frame in one] == [b"first", b'"last"']
        await other.send("more")
        assert [(await anext(all_)).data for _ in range(3)] == [b"first", b'"last"', b"more"]


@played
async def test_targeted_data_without_an_echo_are_sent_and_not_awaited(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        await alice.wait_until(lambda view: "bob" in view.participants)
        stream = await alice.announce_stream([Position], target=["bob"], validate=True)
        await stream.start()
        frames, events = bob.frames(), alice.events()
        sent = await stream.send_data(Position(1, 2))
        assert sent.payload["content"] == {"x": 1, "y": 2, "entity": "cat"}
        await stream.send(Position(3, 4))
        assert [(await anext(frames)).value for _ in range(2)] == [
            {"x": 1, "y": 2, "entity": "cat"}, {"x": 3, "y": 4, "entity": "cat"},
        ]  # fmt: skip
        await stream.send_data("no position")
        async for event in events:
            if isinstance(event, MessageRefused):
                assert isinstance(event.error, errors.SchemaViolation)
                break


# Back-pressure


@played
async def test_on_a_full_socket_try_send_returns_the_frame_and_send_waits(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
            await alice.wait_until(lambda view: "bob" in view.participants)
            stream = await alice.open_stream(target=["bob"])
            frames = bob.frames()
            sockets = gateway.ask(lambda gateway: list(gateway.sockets))
            gateway.ask(lambda _: list(map(WebSocketConnection.pause_reading, sockets)))
            written = 0
            while stream.try_send(b"x" * 50_000) is None:
                written += 1
            data = b"y" * 10
            assert stream.try_send(data) is data
            waiting = [asyncio.create_task(stream.send(b"behind")), asyncio.create_task(alice.chat("behind"))]
            for _ in range(20):
                await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)
            gateway.ask(lambda _: list(map(WebSocketConnection.resume_reading, sockets)))
            await asyncio.gather(*waiting)
            await until(lambda: bob.view.streams[stream.stream_id].frames == written + 1)
            received = [(await anext(frames)).data]
            while received[-1] != b"behind":
                received.append((await anext(frames)).data)
            assert frames.missed + len(received) == written + 1


@played
async def test_continuous_sending_lets_other_tasks_run(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        await alice.wait_until(lambda view: "bob" in view.participants)
        stream = await alice.open_stream(target=["bob"])
        stop, chats = asyncio.Event(), alice.envelopes("chat")

        async def listen() -> None:
            await anext(chats)
            stop.set()

        listening = asyncio.create_task(listen())
        assert bob.connection is not None
        bob.connection.send_raw(b'{"kind":"chat","payload":{"text":"enough"}}')
        while not stop.is_set():
            await stream.send(b"x")
        await listening


@played
async def test_without_a_connection_try_send_returns_the_frame(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.open_stream()
        assert alice.connection is not None
        alice.connection.abort("as if the network were gone")
        await until(lambda: alice.connection is None)
        assert stream.try_send("kept") == "kept"
        with pytest.raises(errors.ConnectionLost):
            await stream.send("lost")
        await alice.connected()
        assert stream.try_send("written") is None
    with pytest.raises(errors.ConnectionLost):
        stream.try_send("too late")
