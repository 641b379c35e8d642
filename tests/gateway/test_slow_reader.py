"""A reader that really stops reading: it loses the oldest frames and receives their numbers; no one else notices."""

import socket
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from mew.config.models import Queues, Timeouts
from mew.gateway.fanout.sinks import SocketSink
from mew.gateway.gateway import Gateway
from mew.gateway.server import KERNEL_BUFFER
from tests.gateway.raw import CLOSE, PING, PONG, TEXT, Raw, Running, closing, frame, joined, running, tls_of
from tests.support.record_collector import Collected

DATA, CONTROL = 128 * 1024, 32 * 1024
BATCH = 200
SMALL = 4096
"""Receive buffer of the slow reader: a small one is full sooner, so the test is faster."""


@pytest.fixture(params=["plain", "tls"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Lab"]:
    directory = tmp_path_factory.mktemp("slow")
    tls, trust = tls_of(directory) if request.param == "tls" else (None, None)
    queues, times = Queues(data_bytes=DATA, control_bytes=CONTROL), Timeouts(close_seconds=8)
    with running(directory, tls=tls, queues=queues, timeouts=times) as started:
        opened = Lab(started, {"tls": trust})
        yield opened
        opened.close()


class Lab:
    """A writer, a reader that keeps up, and a reader that reads only when the test calls for it."""

    def __init__(self, gateway: Running, options: dict[str, Any]) -> None:
        self.gateway = gateway
        self.options = options
        self.journal = Collected([])
        gateway.ask(self._listen)
        self.alice = joined(gateway, "alice", buffer=SMALL, **options)
        self.bob = joined(gateway, "bob", **options)
        self.carol = joined(gateway, "carol", **options)
        self.prefix = self.bob.open_stream()
        self.sent = 0

    def _listen(self, gateway: Gateway) -> None:
        gateway.first_hub.journal = self.journal

    def outlet(self, gateway: Gateway) -> SocketSink:
        """The sink of alice in the gateway."""
        sessions = gateway.first_hub.space.sessions
        sinks = {socket.connection: socket.sink for socket in gateway.sockets}
        return next(sinks[name] for name, session in sessions.items() if session.participant == "alice")

    def flood(self) -> None:
        """Bob sends a batch; carol and bob receive all of it, in order, before the next one."""
        numbers = range(self.sent + 1, self.sent + BATCH + 1)
        self.sent += BATCH
        payloads = [b"%b%08d%b" % (self.prefix, number, b"*" * 80) for number in numbers]
        self.bob.send(*(frame(TEXT, payload) for payload in payloads))
        for reader in (self.bob, self.carol):
            assert [reader.echo().payload for _ in payloads] == payloads
        data, control = self.gateway.ask(lambda gateway: self.outlet(gateway).queued_bytes)
        assert data <= DATA
        assert control <= CONTROL

    def flood_until(self, question: Callable[[SocketSink], bool]) -> None:
        for _ in range(1000):
            self.flood()
            if self.gateway.ask(lambda gateway: question(self.outlet(gateway))):
                return
        raise AssertionError("the kernel accepted everything")

    def chat(self, text: str) -> None:
        self.bob.say(kind="chat", payload={"text": text})
        for reader in (self.bob, self.carol):
            assert reader.envelope("chat")["payload"]["text"] == text

    def close(self) -> None:
        for client in (self.alice, self.bob, self.carol):
            client.close()


class Account:
    """The frames of a stream that a reader received, and those that were reported as lost."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.gaps: list[tuple[int, int, int]] = []
        self.events: list[int | str] = []
        """Numbers of frames, `gap`, and the texts of chats, in the order of arrival."""

    def read(self, reader: Raw, prefix: bytes, last: str) -> int | None:
        """Read until this chat, or until the gateway closes; then return the code."""
        while not self.events or self.events[-1] != last:
            received = reader.frame()
            if received.opcode == CLOSE:
                return received.code
            assert received.opcode == TEXT, received
            if received.payload.startswith(prefix):
                number = int(received.payload[len(prefix) :][:8])
                self.received.append(number)
                self.events.append(number)
                continue
            envelope = msgspec.json.decode(received.payload)
            payload = envelope["payload"]
            if envelope["kind"] == "stream/gap":
                self.gaps.append((payload["from"], payload["to"], payload["dropped"]))
                self.events.append("gap")
            elif envelope["kind"] == "chat":
                self.events.append(payload["text"])
        return None

    def lost(self) -> list[int]:
        return [number for first, last, _ in self.gaps for number in range(first, last + 1)]


def test_every_frame_is_received_or_reported_as_lost(lab: Lab) -> None:
    account = Account()
    lab.flood_until(lambda outlet: bool(outlet.losses))
    lab.flood()
    lab.chat("after the first flood")
    middle = lab.sent
    lab.flood()
    lab.chat("first over")
    account.read(lab.alice, lab.prefix, "first over")
    assert len(account.gaps) == 1
    lab.flood_until(lambda outlet: bool(outlet.losses))
    lab.chat("second over")
    account.read(lab.alice, lab.prefix, "second over")

    assert len(account.gaps) == 2
    assert [dropped for *_, dropped in account.gaps] == [last - first + 1 for first, last, _ in account.gaps]
    assert account.received == sorted(account.received)
    assert sorted(account.received + account.lost()) == list(range(1, lab.sent + 1))
    place = account.events.index("after the first flood")
    assert all(number <= middle for number in account.events[:place] if isinstance(number, int))
    assert all(number > middle for number in account.events[place:] if isinstance(number, int))
    for first, last, _ in account.gaps:
        # The notice comes where the gap is: after the last frame before it, and before the first frame after it.
        notice = [n for n, event in enumerate(account.events) if event == "gap"][account.gaps.index((first, last, _))]
        assert all(number < first for number in account.events[:notice] if isinstance(number, int))
        assert all(number > last for number in account.events[notice:] if isinstance(number, int))
    assert lab.gateway.ask(lambda running: running.losses) == 2


@pytest.mark.parametrize("buffer", [socket.SO_SNDBUF, socket.SO_RCVBUF])
def test_the_kernel_buffers_of_a_connection_are_small(lab: Lab, buffer: int) -> None:
    """Linux reports twice the requested size, because it includes its own overhead."""

    def sizes(running: Gateway) -> set[int]:
        transports = [connection._transport.underlying_transport for connection in running.sockets]
        return {transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, buffer) for transport in transports}

    assert max(lab.gateway.ask(sizes)) <= 2 * KERNEL_BUFFER


def gap_records(lab: Lab) -> list[dict[str, Any]]:
    gaps = [record for record in lab.journal.records if record.event == "gap"]
    assert all(record.participant == "alice" for record in gaps)
    return [{**msgspec.json.decode(record.payload or b"{}")["payload"], "reason": record.reason} for record in gaps]


def test_a_loss_notice_is_recorded(lab: Lab) -> None:
    account = Account()
    lab.flood_until(lambda outlet: bool(outlet.losses))
    lab.chat("over")
    account.read(lab.alice, lab.prefix, "over")
    recorded = [(gap["from"], gap["to"], gap["dropped"], gap["reason"]) for gap in gap_records(lab)]
    assert recorded == [(*notice, None) for notice in account.gaps]


def test_frames_that_a_reader_did_not_receive_before_it_left_are_recorded(lab: Lab) -> None:
    lab.flood_until(lambda outlet: bool(outlet.losses))
    lab.flood()
    lab.alice.close()
    lab.carol.envelope("system/presence")
    (gap,) = gap_records(lab)
    assert gap["reason"] == "disconnected"
    assert gap["from"] > 1
    assert gap["to"] == lab.sent
    assert gap["dropped"] == gap["to"] - gap["from"] + 1


def test_frames_queued_when_a_reader_leaves_are_recorded_too(lab: Lab) -> None:
    lab.flood_until(lambda outlet: outlet.queued_bytes[0] > 0)
    assert lab.gateway.ask(lambda running: lab.outlet(running).losses) == {}
    lab.alice.close()
    lab.carol.envelope("system/presence")
    (gap,) = gap_records(lab)
    assert (gap["to"], gap["dropped"]) == (lab.sent, gap["to"] - gap["from"] + 1)


def test_frames_that_a_closed_reader_did_not_receive_are_recorded_once(lab: Lab) -> None:
    account = Account()
    lab.flood_until(lambda outlet: bool(outlet.losses))
    lab.alice.send(frame(TEXT, b"\xff"))
    lab.gateway.until(lambda running: lab.outlet(running).closed)
    lab.flood()
    assert account.read(lab.alice, lab.prefix, "") == 1007
    lab.alice.send(closing(1007))
    lab.carol.envelope("system/presence")
    (gap,) = gap_records(lab)
    assert account.gaps == []
    assert account.received == list(range(1, gap["from"]))
    assert (gap["to"], gap["dropped"], gap["reason"]) == (lab.sent, lab.sent - len(account.received), "disconnected")


@pytest.mark.parametrize("ending", ["kicked", "taken over"])
def test_frames_queued_for_a_reader_that_the_gateway_closes_are_recorded(lab: Lab, ending: str) -> None:
    account = Account()
    lab.flood_until(lambda outlet: outlet.queued_bytes[0] > 0)
    if ending == "kicked":
        lab.carol.say(kind="space/kick", payload={"participant_id": "alice"})
        lab.carol.envelope("system/presence")
    else:
        joined(lab.gateway, "alice", **lab.options).close()
    assert account.read(lab.alice, lab.prefix, "") in (4403, 4409)
    (gap,) = gap_records(lab)
    assert account.received == list(range(1, gap["from"]))
    assert (gap["to"], gap["dropped"], gap["reason"]) == (lab.sent, lab.sent - len(account.received), "disconnected")
    positions = [record.position for record in lab.journal.records]
    assert positions == list(range(positions[0], positions[0] + len(positions)))


def test_every_sent_frame_is_counted_as_delivered_or_dropped(lab: Lab) -> None:
    def figures(running: Gateway) -> tuple[int, int, int]:
        counts = running.first_hub.counts
        return counts.frames, counts.deliveries, counts.dropped_frames

    lab.chat("begin")
    Account().read(lab.alice, lab.prefix, "begin")
    frames, delivered, dropped = lab.gateway.ask(figures)
    account = Account()
    lab.flood_until(lambda outlet: bool(outlet.losses))
    lab.flood()
    lab.chat("over")
    account.read(lab.alice, lab.prefix, "over")
    now = lab.gateway.ask(figures)
    reported = sum(count for *_, count in account.gaps)
    assert now[0] - frames == lab.sent
    assert now[2] - dropped == reported
    envelopes = 3 * 1 + len(account.gaps)
    assert now[1] - delivered == 3 * lab.sent - reported + envelopes


def test_a_reader_that_kept_up_leaves_no_gap(lab: Lab) -> None:
    account = Account()
    lab.flood()
    lab.chat("over")
    account.read(lab.alice, lab.prefix, "over")
    lab.alice.close()
    lab.carol.envelope("system/presence")
    assert account.received == list(range(1, lab.sent + 1))
    assert gap_records(lab) == []


def test_too_many_envelopes_close_only_the_slow_reader(lab: Lab) -> None:
    for number in count():
        lab.chat(f"{number} {'*' * 8000}")
        if "alice" not in lab.gateway.ask(lambda running: running.first_hub.space.connections) or lab.gateway.ask(
            lambda running: lab.outlet(running).closed
        ):
            break
    received = lab.alice.frame()
    while received.opcode != CLOSE:
        received = lab.alice.frame()
    assert received.code == 1013
    lab.alice.send(closing(1013))
    lab.carol.envelope("system/presence")
    lab.chat("still here")


def test_many_pings_from_a_peer_that_does_not_read_fill_no_buffer(lab: Lab) -> None:

    def waiting(running: Gateway) -> int:
        return max(connection._transport.underlying_transport.get_write_buffer_size() for connection in running.sockets)

    last = b""
    for batch in range(40):
        pings = [b"%08d%b" % (batch * 500 + n, b"*" * 100) for n in range(500)]
        lab.alice.send(*(frame(PING, ping) for ping in pings))
        last = pings[-1]
        assert lab.gateway.ask(waiting) < 256 * 1024
    pongs = [lab.alice.echo().payload]
    while pongs[-1] != last:
        received = lab.alice.echo()
        assert received.opcode == PONG
        pongs.append(received.payload)
    assert pongs == sorted(pongs)
