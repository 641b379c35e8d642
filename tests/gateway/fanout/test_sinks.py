"""The queue of a slow reader: it keeps the order and is bounded; it drops the oldest frames, and reports each one."""

import io
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.gateway.fanout import sinks
from mew.gateway.fanout.encoding import ITEM_BYTES, EncodedMessage, encode, envelope_item, frame_items, to_json_lines
from mew.gateway.fanout.sinks import DroppedFrames, FileSink, HttpMailbox, SocketSink

PLENTY = 1 << 30


class FakeWire:
    """A socket that accepts writes until it is full."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed: list[tuple[int, str]] = []
        self.room: int | None = None
        """Number of writes until it is full; None means any number."""
        self.outlet: SocketSink | None = None

    def write(self, data: bytes) -> None:
        self.sent.append(data)
        if self.room is not None:
            self.room -= 1
            if self.room <= 0 and self.outlet is not None:
                self.outlet.pause()

    def close(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))

    @property
    def bytes(self) -> bytes:
        return b"".join(self.sent)


class Stage:
    """A sink between a fake socket and a test."""

    def __init__(self, *, data_bytes: int = PLENTY, control_bytes: int = PLENTY) -> None:
        self.wire = FakeWire()
        self.episodes = 0
        self.outlet = SocketSink(
            self.wire, data_bytes=data_bytes, control_bytes=control_bytes, on_loss=self._lost_something
        )
        self.wire.outlet = self.outlet

    def _lost_something(self) -> None:
        self.episodes += 1

    def put(self, *items: EncodedMessage) -> None:
        if self.outlet.write_now is not None:
            self.outlet.write_now(joined(items))
        else:
            assert self.outlet.put(list(items)) == 0


def joined(items: Iterable[EncodedMessage]) -> bytes:
    return b"".join(item.wire for item in items)


def envelope(text: str) -> EncodedMessage:
    return envelope_item(text.encode())


def frame(number: int, stream_id: str = "s", size: int = 10) -> EncodedMessage:
    return run(number, 1, stream_id, size)


def run(first: int, count: int, stream_id: str = "s", size: int = 10) -> EncodedMessage:
    messages = [f"#{stream_id}#{number:0{size}}".encode() for number in range(first, first + count)]
    (item,) = frame_items(stream_id, first, messages, text=True)
    return item


def cost(count: int) -> int:
    """The memory of this many queued frames."""
    return count * (len(frame(0).wire) + sinks.WAITING_BYTES)


# Direct writes


def test_a_reader_that_keeps_up_gets_a_batch_in_one_write() -> None:
    stage = Stage()
    turn = [envelope("a"), frame(1), frame(2)]
    stage.put(*turn)
    assert stage.wire.sent == [joined(turn)]
    assert stage.outlet.queued_bytes == (0, 0)


def test_nothing_is_written_while_the_socket_is_full() -> None:
    stage = Stage()
    stage.outlet.pause()
    stage.put(envelope("a"), frame(1))
    assert stage.wire.sent == []
    assert stage.outlet.queued_bytes == (cost(1), len(envelope("a").wire))


def test_queued_messages_are_sent_in_order() -> None:
    stage = Stage()
    items = [frame(1), envelope("a"), envelope("b"), frame(2), frame(3), envelope("c"), frame(4)]
    stage.outlet.pause()
    for item in items:
        stage.put(item)
    stage.outlet.resume([])
    assert stage.wire.bytes == joined(items)
    assert stage.outlet.queued_bytes == (0, 0)
    assert stage.episodes == 0


def test_messages_after_the_queue_has_drained_are_written_directly() -> None:
    stage = Stage()
    stage.outlet.pause()
    stage.put(frame(1))
    stage.outlet.resume([])
    stage.put(frame(2))
    assert stage.wire.sent == [frame(1).wire, frame(2).wire]


def test_the_queue_drains_only_until_the_socket_is_full_again() -> None:
    stage = Stage()
    large = sinks.BATCH_BYTES  # each item is a write
    items = [frame(1, size=large), envelope("a" * large), frame(2, size=large), envelope("b" * large)]
    stage.outlet.pause()
    stage.put(*items)
    stage.wire.room = 2
    stage.outlet.resume([])
    assert stage.wire.bytes == joined(items[:2])
    stage.put(frame(3))
    stage.wire.room = None
    stage.outlet.resume([])
    assert stage.wire.bytes == joined([*items, frame(3)])


def test_a_queue_drains_in_writes_of_moderate_size() -> None:
    stage = Stage()
    items = [frame(n, size=1000) for n in range(1000)]
    stage.outlet.pause()
    stage.put(*items)
    stage.outlet.resume([])
    assert stage.wire.bytes == joined(items)
    assert len(stage.wire.sent) < 20
    assert max(map(len, stage.wire.sent)) < sinks.BATCH_BYTES + 2000


# Losses


def test_the_oldest_frames_are_dropped_and_counted() -> None:
    stage = Stage(data_bytes=cost(3))
    stage.outlet.pause()
    for number in range(1, 11):
        stage.put(frame(number))
    assert stage.outlet.losses == {"s": DroppedFrames(1, 7, 7)}
    assert stage.outlet.queued_bytes == (cost(3), 0)
    stage.outlet.resume([])
    assert stage.wire.bytes == joined(frame(number) for number in (8, 9, 10))


def test_envelopes_keep_their_place_when_frames_before_and_after_them_are_dropped() -> None:
    stage = Stage(data_bytes=cost(1))
    stage.outlet.pause()
    stage.put(frame(1), envelope("a"), frame(2), envelope("b"), frame(3), envelope("c"))
    stage.outlet.resume([])
    assert stage.wire.bytes == joined([envelope("a"), envelope("b"), frame(3), envelope("c")])


def test_losses_are_counted_per_stream() -> None:
    stage = Stage(data_bytes=cost(1))
    stage.outlet.pause()
    stage.put(frame(5, "a"), frame(1, "b"), frame(6, "a"), frame(8, "a"), frame(9, "a"))
    assert stage.outlet.losses == {"a": DroppedFrames(5, 8, 3), "b": DroppedFrames(1, 1, 1)}


def test_consecutive_frames_are_queued_and_dropped_together_and_each_is_counted() -> None:
    stage = Stage(data_bytes=2 * (len(run(1, 10).wire) + sinks.WAITING_BYTES))
    stage.outlet.pause()
    stage.put(run(1, 10), run(11, 10), envelope("a"), run(21, 10))
    assert stage.outlet.losses == {"s": DroppedFrames(1, 10, 10)}
    assert stage.outlet.counts.dropped_frames == 10
    stage.outlet.resume([])
    assert stage.wire.bytes == joined([run(11, 10), envelope("a"), run(21, 10)])
    assert stage.outlet.counts.deliveries == 21
    assert stage.outlet.counts.delivered_bytes == len(stage.wire.bytes)


def test_many_frames_are_divided_into_items_of_moderate_size() -> None:
    messages = [b"#s#" + bytes(1000) for _ in range(1000)]
    items = list(frame_items("s", 7, messages, text=False))
    assert [message for item in items for message in item.messages] == messages
    assert [item.first for item in items] == [
        7 + sum(len(piece.messages) for piece in items[:n]) for n in range(len(items))
    ]
    assert max(len(item.wire) for item in items) <= ITEM_BYTES
    assert joined(items) == b"".join(encode(message, text=False) for message in messages)


def test_a_frame_larger_than_the_queue_is_lost() -> None:
    stage = Stage(data_bytes=cost(1))
    stage.outlet.pause()
    stage.put(frame(1, size=1000))
    assert stage.outlet.losses == {"s": DroppedFrames(1, 1, 1)}
    assert stage.outlet.queued_bytes == (0, 0)


def test_a_loss_is_signalled_once_until_it_is_reported_to_the_reader() -> None:
    stage = Stage(data_bytes=cost(1))
    stage.outlet.pause()
    stage.put(frame(1), frame(2), frame(3))
    stage.put(frame(4))
    assert stage.episodes == 1
    stage.outlet.resume([])
    assert stage.outlet.losses == {}
    stage.outlet.pause()
    stage.put(frame(5), frame(6))
    assert stage.episodes == 2
    assert stage.outlet.losses == {"s": DroppedFrames(5, 5, 1)}


def test_loss_notices_are_sent_before_all_other_messages() -> None:
    stage = Stage(data_bytes=cost(1))
    stage.outlet.pause()
    stage.put(envelope("a"), frame(1, "s"), frame(1, "t"), frame(2, "s"))
    notices = [envelope("gap of s"), envelope("gap of t")]
    stage.outlet.resume(notices)
    assert stage.wire.bytes == joined([*notices, envelope("a"), frame(2, "s")])
    assert stage.outlet.queued_bytes == (0, 0)


def test_loss_notices_are_sent_together_even_if_the_socket_is_full_immediately() -> None:
    stage = Stage(data_bytes=cost(1))
    stage.outlet.pause()
    stage.put(frame(1), frame(2))
    stage.wire.room = 1
    stage.outlet.resume([envelope("gap of s"), envelope("gap of t")])
    assert stage.wire.bytes == joined([envelope("gap of s"), envelope("gap of t")])
    assert stage.outlet.queued_bytes == (cost(1), 0)
    stage.put(frame(3))
    assert stage.outlet.losses == {"s": DroppedFrames(2, 2, 1)}


@pytest.mark.parametrize("seed", range(20))
def test_every_frame_is_received_or_reported_as_lost_and_the_order_is_kept(seed: int) -> None:
    chance = random.Random(seed)
    stage = Stage(data_bytes=cost(chance.randint(0, 20)))
    reported: list[tuple[str, int, int, int]] = []
    sent: list[EncodedMessage] = []
    numbers = {"a": 0, "b": 0}

    def resume(room: int | None) -> None:
        reported.extend((stream, loss.first, loss.last, loss.dropped) for stream, loss in stage.outlet.losses.items())
        stage.wire.room = room
        stage.outlet.resume([])

    for _ in range(300):
        turn: list[EncodedMessage] = []
        for _ in range(chance.randint(1, 5)):
            stream = chance.choice("ab")
            numbers[stream] += 1
            turn.append(envelope(f"{len(sent)}") if chance.random() < 0.2 else frame(numbers[stream], stream))
            sent.append(turn[-1])
            if turn[-1].stream_id is None:
                numbers[stream] -= 1
        stage.put(*turn)
        if chance.random() < 0.1:
            stage.outlet.pause()
        elif chance.random() < 0.1:
            resume(chance.choice([1, 2, 5, None]))
    resume(None)
    received = stage.wire.bytes
    lost = [item for item in sent if item.stream_id is not None and is_reported(item, reported)]
    assert received == joined(item for item in sent if item not in lost)
    assert sum(dropped for *_, dropped in reported) == len(lost)


def is_reported(item: EncodedMessage, reported: list[tuple[str, int, int, int]]) -> bool:
    return any(stream == item.stream_id and first <= item.first <= last for stream, first, last, _ in reported)


# Too slow, and disconnected


def test_too_many_envelopes_close_the_reader() -> None:
    stage = Stage(control_bytes=2 * len(envelope("a").wire))
    stage.outlet.pause()
    stage.put(envelope("a"), envelope("b"))
    assert stage.wire.closed == []
    stage.put(envelope("c"))
    assert [code for code, _ in stage.wire.closed] == [1013]


def test_frames_and_envelopes_have_separate_limits() -> None:
    stage = Stage(data_bytes=cost(2), control_bytes=len(envelope("a").wire))
    stage.outlet.pause()
    stage.put(*(frame(number) for number in range(100)), envelope("a"))
    assert stage.wire.closed == []
    assert stage.outlet.losses == {"s": DroppedFrames(0, 97, 98)}


def test_nothing_follows_a_close() -> None:
    stage = Stage()
    stage.outlet.pause()
    stage.put(envelope("a"), frame(1))
    stage.outlet.close(1001, "bye")
    stage.put(envelope("b"), frame(2))
    stage.outlet.resume([envelope("gap")])
    stage.put(frame(3))
    assert stage.wire.sent == []
    assert stage.wire.closed == [(1001, "bye")]
    assert stage.outlet.queued_bytes == (0, 0)


def test_a_second_close_does_nothing() -> None:
    stage = Stage()
    stage.outlet.close(1001, "bye")
    stage.outlet.close(4409, "again")
    assert stage.wire.closed == [(1001, "bye")]


def test_frames_that_a_reader_leaves_unread_are_lost() -> None:
    stage = Stage(data_bytes=cost(2))
    stage.outlet.pause()
    stage.put(frame(1), envelope("a"), frame(2), frame(3))
    stage.outlet.abandon()
    stage.put(frame(4))
    assert stage.outlet.losses == {"s": DroppedFrames(1, 4, 4)}
    assert stage.episodes == 1


def test_a_reader_that_kept_up_has_no_losses() -> None:
    stage = Stage()
    stage.put(frame(1))
    stage.outlet.abandon()
    assert stage.outlet.losses == {}


# Mailboxes and logs


@pytest.mark.parametrize(
    ("message", "text", "shown"),
    [
        (b"#s#hello", True, {"stream_id": "s", "encoding": "text", "data": "hello"}),
        ("#s#κόσμε".encode(), True, {"stream_id": "s", "encoding": "text", "data": "κόσμε"}),
        (b"#s#hello", False, {"stream_id": "s", "encoding": "base64", "data": "aGVsbG8="}),
        (b"#s#\xff", True, {"stream_id": "s", "encoding": "base64", "data": "/w=="}),
    ],
)
def test_a_frame_reads_as_json(message: bytes, text: bool, shown: dict[str, str]) -> None:
    (item,) = frame_items("s", 1, [message], text=text)
    assert [msgspec.json.decode(line) for line in to_json_lines(item)] == [{"frame": shown}]


def test_an_envelope_is_logged_unchanged() -> None:
    assert to_json_lines(envelope('{"a":1.0}')) == [b'{"a":1.0}']


def test_a_mailbox_numbers_its_messages_and_counts_dropped_ones() -> None:
    box = HttpMailbox(most_bytes=6)
    for text in ("aa", "bb", "cc", "dd"):
        box.put([envelope(text)])
    assert box.since(0) == ([b"bb", b"cc", b"dd"], 4, 1)
    assert box.since(3) == ([b"dd"], 4, 0)
    assert box.since(4) == ([], 4, 0)
    assert box.since(9) == ([], 4, 0)


def test_a_mailbox_has_a_maximum_number_of_messages() -> None:
    box = HttpMailbox(most_bytes=PLENTY, first=5)
    texts = [str(number) for number in range(sinks.MAILBOX_MESSAGES + 1)]
    box.put([envelope(text) for text in texts])
    assert box.since(5) == ([text.encode() for text in texts[1:]], 5 + len(texts), 1)


def test_a_closed_mailbox_can_still_be_read() -> None:
    box = HttpMailbox(most_bytes=PLENTY)
    box.put([envelope("a")])
    box.close(1001, "bye")
    assert box.since(0) == ([b"a"], 1, 0)


def test_a_log_is_created_with_its_folders_and_only_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "alice.log"
    FileSink(path).put([envelope("{}")])
    log = FileSink(path)
    log.put([envelope("[]"), frame(1, size=1)])
    log.close(1001, "bye")
    assert path.read_bytes() == b'{}\n[]\n{"frame":{"stream_id":"s","encoding":"text","data":"1"}}\n'


def test_a_log_that_cannot_be_written_loses_lines_and_continues_later(tmp_path: Path) -> None:
    path = tmp_path / "alice.log"
    log = FileSink(path)
    path.mkdir()
    assert log.put([envelope("{}")]) == 0
    path.rmdir()
    assert log.put([envelope("[]")]) == 1
    assert path.read_bytes() == b"[]\n"


def test_a_log_gets_the_complete_line_even_if_each_write_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Thin(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:3])

    path = tmp_path / "alice.log"
    log = FileSink(path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, mode, buffering: Thin(self, mode))
        log.put([envelope('{"kind":"chat"}')])
    assert path.read_bytes() == b'{"kind":"chat"}\n'
