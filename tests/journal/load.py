"""Load on a gateway that will be killed: writers, readers and scripts in threads, and what each of them has seen.

Must not judge what it sees: it writes down what came, and when.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

import msgspec

from tests.gateway.raw import TEXT, Raw, frame
from tests.journal.gateway_process import GatewayProcess, post

LOST: Final = (EOFError, OSError)
"""What a client notices of the gateway's end."""
HELPERS: Final = ("reader", "alice", "bob")
"""Participants that are writers of another one's stream; only those who are present can be."""


@dataclass(frozen=True)
class Received:
    """A message that reached a reader."""

    time: float
    reader: str
    data: bytes

    @property
    def is_frame(self) -> bool:
        return self.data.startswith(b"#")


@dataclass
class Seen:
    """Everything that anybody has seen of one gateway until it was killed."""

    received: list[Received] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    """Ids of envelopes that were answered with 200."""
    kicked: set[str] = field(default_factory=set)
    revoked: dict[str, str] = field(default_factory=dict)
    """Streams and participants whose write access was revoked and not granted again."""
    opened: list[str] = field(default_factory=list)
    """Ids of streams, as they were answered."""
    faults: list[BaseException] = field(default_factory=list)

    @property
    def frames(self) -> list[Received]:
        return [message for message in self.received if message.is_frame]

    @property
    def envelopes(self) -> list[Received]:
        return [message for message in self.received if not message.is_frame]


class Listener:
    """Reads a socket in a thread of its own: every byte, with the time of its receipt."""

    def __init__(self, gateway: GatewayProcess, name: str) -> None:
        self.name = name
        self.client, self.welcome = gateway.join(name)
        self.echoed = 0
        """How many of its own messages have come back."""
        self._mark = f"<{name}>".encode()
        self._chunks: list[tuple[float, bytes]] = []
        self._news = threading.Condition()
        self._gone = False
        self._thread = threading.Thread(target=self._read, name=f"{name} reads", daemon=True)
        # What came with the welcome has been read already.
        self._take(bytes(self.client._unread))
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = self.client.socket.recv(1 << 18)
            except OSError:
                data = b""
            if not data:
                break
            self._take(data)
        with self._news:
            self._gone = True
            self._news.notify_all()

    def _take(self, data: bytes) -> None:
        now = time.monotonic()
        with self._news:
            # A mark that two chunks share is not counted: then a writer waits for one less.
            self.echoed += data.count(self._mark)
            self._chunks.append((now, data))
            self._news.notify_all()

    def until_echoed(self, count: int) -> None:
        """Wait until so many of its own messages have come back; `EOFError` if the gateway is gone."""
        with self._news:
            while self.echoed < count:
                if self._gone or not self._news.wait(10):
                    raise EOFError
            if self._gone:
                raise EOFError

    def end(self) -> list[Received]:
        """All that came, once nothing more can."""
        self._thread.join(10)
        assert not self._thread.is_alive()
        self.client.close()
        return [Received(when, self.name, data) for when, data in messages(self._chunks)]


def messages(chunks: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The whole text and binary messages in chunks of a server's bytes, each with the time of its last byte."""
    data = b"".join(chunk for _, chunk in chunks)
    ends, end = [], 0
    for when, chunk in chunks:
        end += len(chunk)
        ends.append((end, when))
    at, index = 0, 0
    while at + 2 <= len(data):
        opcode, size, start = data[at] & 15, data[at + 1] & 127, at + 2
        if size == 126 and at + 4 <= len(data):
            (size,), start = struct.unpack_from(">H", data, at + 2), at + 4
        elif size == 127 and at + 10 <= len(data):
            (size,), start = struct.unpack_from(">Q", data, at + 2), at + 10
        at = start + size
        if at > len(data):
            return  # The kernel got no more of it.
        while ends[index][0] < at:
            index += 1
        if opcode in (1, 2):
            yield ends[index][1], data[start:at]


class Load:
    """Several writers on several streams, several readers, and a script that changes who may do what over HTTP."""

    def __init__(self, gateway: GatewayProcess, number: int, chance: Random) -> None:
        self.seen = Seen()
        self._gateway = gateway
        self._number = number
        """Of the round: everything that is sent is sent once."""
        self._chance = chance
        self._only_frames = threading.Event()
        self._listeners = {name: Listener(gateway, name) for name in ("reader", "alice", "bob", "carol")}
        self._threads = [
            self._actor(self._write, "alice", 100),
            self._actor(self._write, "bob", 20),
            self._actor(self._talk),
            self._actor(self._rule),
        ]

    def _actor(self, act: Callable[..., None], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                act(*arguments)
            except LOST:
                pass
            except BaseException as fault:
                self.seen.faults.append(fault)

        thread = threading.Thread(target=run, name=act.__name__, daemon=True)
        thread.start()
        return thread

    def only_frames(self) -> None:
        """From here on no client sends anything else: frames that no control record takes along."""
        self._only_frames.set()
        for thread in self._threads[2:]:
            thread.join(20)

    def end(self) -> Seen:
        """What all clients have received; the gateway has been killed."""
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), thread.name
        for listener in self._listeners.values():
            self.seen.received += listener.end()
        for fault in self.seen.faults:
            raise fault
        return self.seen

    # Who does what

    def _write(self, name: str, most: int) -> None:
        """Frames without end to a stream of its own, with a limited number in flight."""
        listener = self._listeners[name]
        prefix = f"#{self._own_stream(listener)}#{self._number}<{name}>".encode()
        size = 20 if most < 50 else 120
        sent = 0
        while True:
            until = sent + self._chance.randint(1, most // 2)
            frames = [frame(TEXT, b"%b%d %b" % (prefix, number, b"." * size)) for number in range(sent, until)]
            listener.client.send(*frames)
            sent = until
            listener.until_echoed(sent - most // 2)

    def _own_stream(self, listener: Listener) -> str:
        """The stream that it had before, else a new one."""
        for entry in listener.welcome["active_streams"]:
            if entry["owner"] == listener.name:
                return str(entry["stream_id"])
        answer = self._gateway.post(listener.name, "stream/request", on_owner_disconnect="keep")
        assert answer.status == 200, answer
        return str(answer.json["stream_id"])

    def _talk(self) -> None:
        """Chat and stream data over a socket, with a few in flight."""
        listener = self._listeners["carol"]
        stream_id = self._own_stream(listener)
        sequence = int(time.time() * 1_000_000)
        sent = 0
        while not self._only_frames.is_set():
            text = f"{self._number}<carol>{sent}"
            listener.client.say(kind="chat", id=f"chat-{self._number}-{sent}", payload={"text": text})
            data = {"stream_id": stream_id, "sequence": sequence + sent, "content": text}
            listener.client.say(kind="stream/data", id=f"data-{self._number}-{sent}", payload=data)
            sent += 1
            listener.until_echoed(2 * sent - 10)

    def _rule(self) -> None:
        """Streams, grants, revocations, kicks, invitations and chat over HTTP, one after the other."""
        client, token = Raw(self._gateway.port), self._gateway.token("boss")
        try:
            self._rule_over(client, token)
        finally:
            client.close()

    def _rule_over(self, client: Raw, token: str) -> None:
        def ask(kind: str, **payload: Any) -> dict[str, Any]:
            answer = post(client, "boss", token, kind, payload)
            assert answer.status == 200, (kind, payload, answer)
            answer_body: dict[str, Any] = msgspec.json.decode(answer.body)
            self.seen.accepted.append(answer_body["id"])
            return answer_body

        for turn in count():
            if self._only_frames.is_set():
                return
            stream_id = ask("stream/request", description=f"{self._number}-{turn}")["stream_id"]
            self.seen.opened.append(stream_id)
            for helper in HELPERS:
                ask("stream/grant-write", stream_id=stream_id, participant_id=helper)
            helper = self._chance.choice(HELPERS)
            ask("stream/revoke-write", stream_id=stream_id, participant_id=helper)
            self.seen.revoked[stream_id] = helper
            ask("chat", text=f"{self._number}-{turn}")
            if turn % 3:
                del self.seen.revoked[stream_id]
                ask("stream/close", stream_id=stream_id)
            if turn % 4 == 0:
                victim = f"victim-{self._number}-{turn // 4}"
                ask("space/invite", participant_id=victim)
                ask("space/kick", participant_id=victim)
                self.seen.kicked.add(victim)
