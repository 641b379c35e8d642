"""What a program reads: the messages of its subscriptions, in order, and a report of what is missing."""

import asyncio
import gc
import threading
from typing import Any

import pytest

from mew.client import (
    CapabilitiesChanged,
    Event,
    Frame,
    JoinRefused,
    MessageRefused,
    ParticipantJoined,
    ParticipantLeft,
    Space,
    StreamDiscovered,
    StreamEnded,
    StreamGap,
    StreamStarted,
    Subscription,
    SubscriptionOverflow,
)
from mew.client.errors import UnauthorizedStreamWrite
from mew.protocol import Envelope, ReportLoss
from tests.client.harness import joining, played, shut_down, until
from tests.gateway.raw import Running


async def texts(subscription: Subscription[Envelope], count: int) -> list[str]:
    return [(await anext(subscription)).payload["text"] for _ in range(count)]


@played
async def test_envelopes_are_filtered_by_kind_sender_addressee_and_correlation(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        everything, chats, of_mcp = bob.envelopes(), bob.envelopes("chat"), bob.envelopes("mcp/*")
        own, to_me = bob.envelopes(sender="bob"), bob.envelopes(to="bob")
        first = await alice.chat("one", to="bob")
        answering = bob.envelopes(correlation_id=first.id)
        proposal = await alice.send("mcp/proposal", {"method": "x"})
        answer = await bob.send("chat/acknowledge", correlation_id=first.id)
        second = await bob.chat("two")
        for subscription, expected in [
            (everything, [first, proposal, answer, second]),
            (chats, [first, second]),
            (of_mcp, [proposal]),
            (own, [answer, second]),
            (to_me, [first]),
            (answering, [answer]),
        ]:
            assert [await anext(subscription) for _ in expected] == expected


@played
async def test_a_subscription_begins_when_it_is_created(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        await alice.chat("before")
        chats = alice.envelopes("chat")
        await alice.chat("after")
        assert await texts(chats, 1) == ["after"]


@played
async def test_a_slow_reader_gets_an_error_where_envelopes_are_missing(gateway: Running) -> None:
    async with joining(gateway, "alice", queue=3) as alice:
        chats = alice.envelopes("chat")
        for number in range(10):
            await alice.chat(str(number))
        assert await texts(chats, 3) == ["0", "1", "2"]
        with pytest.raises(SubscriptionOverflow) as missed:
            await anext(chats)
        assert missed.value.count == 7
        await alice.chat("10")
        assert await texts(chats, 1) == ["10"]


@played
async def test_with_on_overflow_missing_envelopes_are_reported_there_and_the_loop_continues(gateway: Running) -> None:
    missing: list[int] = []
    async with joining(gateway, "alice", queue=2) as alice:
        chats = alice.envelopes("chat", on_overflow=missing.append)
        for number in range(5):
            await alice.chat(str(number))
        assert await texts(chats, 2) == ["0", "1"]
        await alice.chat("5")
        assert (await texts(chats, 1), missing) == (["5"], [3])


@played
async def test_a_subscription_ends_with_its_space(gateway: Running) -> None:
    alice = await joining(gateway, "alice")
    chats = alice.envelopes("chat")
    await alice.chat("the last word")
    waiting = asyncio.create_task(anext(alice.frames(), None))
    await asyncio.sleep(0)
    await alice.close()
    assert [chat.payload["text"] async for chat in chats] == ["the last word"]
    assert await waiting is None
    assert [envelope async for envelope in alice.envelopes()] == []
    assert [frame async for frame in alice.frames()] == []


@played
async def test_a_kicked_participant_reads_to_the_end_and_gets_the_reason(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        chats = bob.envelopes("chat")
        await alice.chat("last message")
        await alice.send("space/kick", {"participant_id": "bob"})
        assert await texts(chats, 1) == ["last message"]
        for _ in range(2):
            with pytest.raises(JoinRefused) as raised:
                await anext(chats)
            assert raised.value.code == 4403
        with pytest.raises(JoinRefused):
            await bob.chat("may I?")
        with pytest.raises(JoinRefused):
            await anext(bob.frames())


@played
async def test_a_shut_down_participant_reads_to_the_end(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob:
        chats = bob.envelopes("chat")
        await shut_down(gateway, bob)
        assert [chat async for chat in chats] == []
        assert bob.connection is None


def readers(space: Space) -> int:
    return len(space._dispatcher._envelopes) + len(space._dispatcher._events) + len(space.router.queues)


@played
async def test_a_finished_loop_leaves_no_subscription_behind(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        for _ in range(3):
            speaking = asyncio.create_task(alice.chat("hello"))
            async for _ in alice.envelopes("chat"):
                break
            await speaking
        alice.frames(), alice.events()
        await until(lambda: readers(alice) == 0)
        async with alice.envelopes() as subscription, alice.frames("any"):
            assert readers(alice) == 2
        assert readers(alice) == 0
        assert [envelope async for envelope in subscription] == []


@played
async def test_a_subscription_collected_in_another_thread_is_removed_on_the_loop(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        holding: list[Any] = [alice.envelopes()]
        holding.append(holding)
        del holding
        collecting = threading.Thread(target=gc.collect)
        collecting.start()
        collecting.join()
        await until(lambda: readers(alice) == 0)


@played
async def test_a_subscription_has_one_reader(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        chats = alice.envelopes("chat")
        waiting = asyncio.create_task(anext(chats))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError):
            await anext(chats)
        await alice.chat("hello")
        assert (await waiting).payload["text"] == "hello"


# Frames


@played
async def test_frames_are_filtered_by_stream_namespace_and_format(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        text = await alice.announce_stream(["text"], desired_id="text-1")
        early = [bob.frames("text-1"), bob.frames(namespace="lab/te"), bob.frames(format="text"), bob.frames()]
        dict_ = await alice.announce_stream([{"id": "dict", "mime_type": "application/json"}], desired_id="dict")
        await text.start()
        await dict_.start()
        late = [bob.frames("text-1"), bob.frames(namespace="lab/te"), bob.frames(format="text"), bob.frames()]
        await dict_.send({"a": 1})
        await text.send("b")
        for subscriptions in (early, late):
            for subscription in subscriptions[:3]:
                assert (await anext(subscription)).data == b"b"
            both = [await anext(subscriptions[3]), await anext(subscriptions[3])]
            assert [frame.stream_id for frame in both] == ["dict", "text-1"]
            assert [frame.value for frame in both] == [{"a": 1}, None]


@played
async def test_a_slow_reader_of_frames_loses_the_oldest_and_gets_the_count_of_each_stream(
    gateway: Running,
) -> None:
    gaps: list[StreamGap] = []
    async with joining(gateway, "alice") as alice, joining(gateway, "bob", queue=4) as bob:
        one, two = await alice.open_stream(), await alice.open_stream()
        frames = bob.frames(on_gap=gaps.append)
        for number in range(5):
            await one.send(f"{number}")
            await two.send(f"{number}")
        await alice.chat("all frames are sent")
        await until(lambda: [stream.frames for stream in bob.view.streams.values()] == [5, 5])
        received = [await anext(frames) for _ in range(4)]
        assert [(frame.stream_id, frame.data) for frame in received] == [
            (one.stream_id, b"3"), (two.stream_id, b"3"), (one.stream_id, b"4"), (two.stream_id, b"4"),
        ]  # fmt: skip
        assert gaps == [StreamGap(one.stream_id, 3, "queue"), StreamGap(two.stream_id, 3, "queue")]


@played
async def test_queued_frames_are_limited_in_bytes_and_the_newest_is_always_kept(gateway: Running) -> None:
    gaps: list[StreamGap] = []
    async with joining(gateway, "alice") as alice, joining(gateway, "bob", queue_bytes=10_000) as bob:
        stream, chats = await alice.open_stream(), bob.envelopes("chat")
        frames = bob.frames(on_gap=gaps.append)
        for size in (4_000, 4_000, 4_000, 50_000):
            await stream.send(bytes(size))
        await alice.chat("all frames are sent")
        await anext(chats)
        assert (len((await anext(frames)).data), gaps) == (50_000, [StreamGap(stream.stream_id, 3, "queue")])


@played
async def test_an_error_in_on_gap_is_raised_where_the_frames_are_read(gateway: Running) -> None:
    def mistaken(gap: StreamGap) -> None:
        raise ZeroDivisionError(gap)

    async with joining(gateway, "alice", queue=1) as alice:
        stream, chats = await alice.open_stream(), alice.envelopes("chat")
        frames = alice.frames(on_gap=mistaken)
        await stream.send("1")
        await stream.send("2")
        await alice.chat("all frames are sent")
        await anext(chats)
        with pytest.raises(ZeroDivisionError):
            await anext(frames)
        assert (await anext(frames)).data == b"2"


@played
async def test_frames_lost_by_the_gateway_are_reported_in_their_place(gateway: Running) -> None:
    events: list[Any] = []
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        stream = await alice.open_stream()
        await bob.wait_until(lambda view: bool(view.streams))
        frames = bob.frames(on_gap=events.append)
        await stream.send("1")
        events.append((await anext(frames)).data)

        def lose(gateway: Any) -> None:
            hub = gateway.first_hub
            hub.run(ReportLoss(participant="bob", stream_id=stream.stream_id, first=2, last=41, dropped=40))
            hub.flush()

        gateway.ask(lose)
        await stream.send("42")
        events.append((await anext(frames)).data)
        assert events == [b"1", StreamGap(stream.stream_id, 40, "gateway"), b"42"]
        assert bob.view.streams[stream.stream_id].frames == 42
        assert frames.missed == 40


# Everything, and events


@played
async def test_envelopes_and_frames_can_be_read_in_the_order_of_their_arrival(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.open_stream()
        messages = alice.messages()
        await stream.send("1")
        await stream.send_data(2)
        await stream.send(b"3")
        await alice.chat("4")
        received = [await anext(messages) for _ in range(4)]
        kinds = [message.data if isinstance(message, Frame) else message.kind for message in received]
        assert kinds == [b"1", "stream/data", b"3", "chat"]


async def events_of(subscription: Subscription[Event], count: int) -> list[Event]:
    return [await anext(subscription) for _ in range(count)]


@played
async def test_events_report_streams_and_participants(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        old = await alice.open_stream()
        events = alice.events()
        new = await alice.announce_stream(["text"])
        await new.start()
        async with joining(gateway, "bob") as bob:
            await alice.send("capability/revoke", {"recipient": "bob", "capabilities": [{"kind": "*"}]})
            await bob.wait_until(lambda view: len(view.you.capabilities) == 1)
        await new.close("done")
        discovered, announced, started, joined, changed, left, ended = await events_of(events, 7)
        assert discovered == StreamDiscovered(old)
        assert announced == StreamDiscovered(new)
        assert started == StreamStarted(new)
        assert isinstance(joined, ParticipantJoined)
        assert joined.participant.id == "bob"
        assert isinstance(changed, CapabilitiesChanged)
        assert changed.participant.capabilities == [{"kind": "mcp/response"}]
        assert left == ParticipantLeft("bob")
        assert ended == StreamEnded(new.stream_id, "done")


@played
async def test_a_refused_frame_is_an_event(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        events = alice.events()
        assert alice.connection is not None
        alice.connection.send_raw(b"#none#data")
        (refused,) = await events_of(events, 1)
        assert isinstance(refused, MessageRefused)
        assert isinstance(refused.error, UnauthorizedStreamWrite)
        assert refused.error.parts["stream_id"] == "none"
