"""The transport in memory: a gateway's own hub and sinks, without a socket, a port or a thread.

Actions of clients wait until the test looks or time passes. Then all run in one iteration of the event loop, as when
many sockets become readable together. So several audiences, joins and closes meet in one write; with real sockets that
happens only by chance.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from mew.config.models import LoggingConfig
from mew.gateway.fanout.sinks import SocketSink
from mew.protocol import GATEWAY, HttpAnswer, JoinRequest, Poll, Post, ProtocolError, reject_connection
from mew.protocol.envelope import Stamp
from mew.testing import OWN_TOKEN, Message, ReceivedFrame
from tests.requirements.transports.gateway import GatewaySpace
from tests.requirements.transports.message_reader import Reader, received

T = TypeVar("T")
TEXT, BINARY = 0x81, 0x82
"""The first byte of a whole message (RFC 6455 §5.2)."""


class _Loop:
    """One event loop for all tests of a process. It runs only while a test waits for it."""

    loop: asyncio.AbstractEventLoop | None = None
    faults: ClassVar[list[dict[str, Any]]] = []
    """Exceptions on the loop that no task received."""

    @classmethod
    def do(cls, work: Coroutine[Any, Any, T]) -> T:
        if cls.loop is None:
            cls.loop = asyncio.new_event_loop()
            cls.loop.set_exception_handler(lambda _, context: cls.faults.append(context))
        return cls.loop.run_until_complete(work)


def server_frames(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """The messages in what a server sent, and whether each is text."""
    at = 0
    while at < len(data):
        first, size = data[at], data[at + 1]
        assert first in {TEXT, BINARY}, f"no whole message begins with {first:#x}"
        start = at + 2
        if size >= 126:
            start = at + (4 if size == 126 else 10)
            size = int.from_bytes(data[at + 2 : start], "big")
        at = start + size
        assert at <= len(data), "a frame was cut off"
        yield data[start:at], first == TEXT


class Line:
    """The gateway's end of a client's connection, in place of a socket."""

    def __init__(self, client: "HubClient", hung_up: Callable[[], None]) -> None:
        self._client = client
        self._hung_up = hung_up

    def write(self, data: bytes) -> None:
        for message, text in server_frames(data):
            self._client.arrived(message, text=text)

    def close(self, code: int, reason: str) -> None:
        self._client.closed = code
        self._hung_up()


class HubClient(Reader):
    """A client of the hub, with the sink of a socket."""

    outlet: SocketSink

    def __init__(self, home: "HubSpace", connection: str, credentials: JoinRequest) -> None:
        super().__init__(connection)
        self.credentials = credentials
        self.joined = self.gone = False
        self._home = home
        self._run: tuple[bytes, bool, Callable[[bytes], None]] | None = None

    def catch_up(self) -> None:
        self._home.settle()

    def arrived(self, message: bytes, *, text: bool) -> None:
        assert not self.gone, "something came after the connection had ended"
        with self.arriving():
            if message.startswith(b"#"):
                self.deliver_frame(message, text=text)
            else:
                self.deliver(message)

    def send_bytes(self, message: bytes, *, text: bool = True) -> None:
        """A text message must be UTF-8 (RFC 6455 §8.1). Other bytes go as binary; the same rules apply."""
        self._home.receive(self, message, text=text and message.decode(errors="replace").encode() == message)

    def begin_run(self, header: bytes, add: Callable[[bytes], None], *, text: bool) -> None:
        """Begin a run: frames with this header and opcode may be added."""
        self._run = (header, text, add)

    def end_run(self) -> None:
        """End the run."""
        self._run = None

    def extends_run(self, message: bytes, *, text: bool) -> bool:
        """Add the message if it is a frame of the run and within the size limit. False otherwise."""
        too_large = len(message) > self._home.settings.limits.message_bytes
        if self._run is None or text != self._run[1] or too_large or not message.startswith(self._run[0]):
            return False
        self._run[2](message)
        return True

    def leave(self) -> None:
        """Read everything, then leave. What arrives in the same iteration as the leave would be lost."""
        self._home.settle()
        self._home.hang_up(self)


class HubSpace(GatewaySpace):
    """A space behind a hub, with the interface of `MemorySpace`. It has no history logs: each needs a thread."""

    logging = LoggingConfig(envelope_history=False, capability_decisions=False)

    def __init__(self, **configuration: Any) -> None:
        super().__init__(**configuration)
        self._begun: list[Callable[[], None]] = []
        self._settling = False
        self._polled: dict[str, int] = {}
        _Loop.do(self._start())

    async def _start(self) -> None:
        gateway = self.new_gateway()
        gateway.listens_on(8080)
        gateway.start()

    def stop(self) -> None:
        self.settle()
        _Loop.do(self._stop())
        faults, _Loop.faults[:] = _Loop.faults[:], []
        assert faults == []

    async def _stop(self) -> None:
        self.gateway.stop()

    # Iterations

    def settle(self) -> None:
        """Run all waiting actions and everything that follows from them."""
        if not self._settling:
            self._settling = True
            try:
                _Loop.do(self._turns())
            finally:
                self._settling = False

    async def _turns(self) -> None:
        while True:
            begun, self._begun = self._begun, []
            for message in begun:
                message()
            await asyncio.sleep(0)
            self.hub.flush()
            if not self._begun:
                return

    def act(self, work: Callable[[], T]) -> T:
        results: list[T] = []
        self._begun.append(lambda: results.append(work()))
        self.settle()
        return results[0]

    def advance(self, seconds: float) -> None:
        self.settle()
        super().advance(seconds)

    # The work of the WebSocket transport

    def connect(self, *, token: str | None = None, space: str | None = None) -> HubClient:
        client = HubClient(self, self.gateway.new_connection(), JoinRequest(space=space, token=token))
        queues = self.gateway.config.queues
        client.outlet = SocketSink(
            Line(client, lambda: self.hang_up(client)),
            data_bytes=queues.data_bytes,
            control_bytes=queues.control_bytes,
            on_loss=self.gateway.count_loss,
        )
        if token is not None:
            self._begun.append(lambda: self._join(client, client.credentials))
        return client

    def receive(self, client: HubClient, message: bytes, *, text: bool) -> None:
        """A client sends a message. It arrives in the next iteration."""
        self._begun.append(lambda: self._receive(client, message, text=text))

    def _receive(self, client: HubClient, message: bytes, *, text: bool) -> None:
        if client.gone or client.closed is not None:
            return
        if client.joined:
            if not client.extends_run(message, text=text):
                self.hub.receive(client.connection, str(client.participant), message, text=text, writer=client)
            return
        try:
            request = self.gateway.lobby.first_message(message)
        except ProtocolError as refusal:
            self._turn_away(client, refusal)
            return
        self._join(client, request.or_else(client.credentials))

    def _join(self, client: HubClient, request: JoinRequest) -> None:
        try:
            _, join = self.gateway.lobby.admit(client.connection, request)
        except ProtocolError as refusal:
            self._turn_away(client, refusal, request.cause)
            return
        client.joined, client.participant, client.observer = True, join.participant, join.observer
        self.hub.attach(client.connection, client.outlet)
        self.hub.run(join)

    def _turn_away(self, client: HubClient, refusal: ProtocolError, cause: tuple[str, ...] = ()) -> None:
        self.hub.attach(client.connection, client.outlet)
        stamp = Stamp(GATEWAY, self.space.new_id(), self.now)
        self.hub.carry_out(reject_connection(client.connection, refusal, stamp, cause))

    def hang_up(self, client: HubClient) -> None:
        """The connection ends in the next iteration, closed by either side."""
        self._begun.append(lambda: self._gone(client))

    def _gone(self, client: HubClient) -> None:
        if client.joined and not client.gone:
            client.outlet.abandon()
            self.hub.leave(client.connection)
        client.gone = True

    # The work of the HTTP transport

    def post(
        self, participant: str, envelope: Mapping[str, Any] | bytes, *, token: str | None = OWN_TOKEN
    ) -> HttpAnswer:
        bearer = self.token(participant) if token == OWN_TOKEN else token
        message = envelope if isinstance(envelope, bytes) else msgspec.json.encode(envelope)

        def ask() -> HttpAnswer | None:
            try:
                self.gateway.lobby.authenticate(participant, JoinRequest(token=bearer))
            except ProtocolError as refusal:
                return HttpAnswer(refusal.payload(), refusal)
            return self.hub.ask(Post(participant, message))

        answer = self.act(ask)
        assert answer is not None
        return answer

    def poll(self, participant: str) -> list[Message | ReceivedFrame]:
        self.act(lambda: self.hub.ask(Poll(participant)))
        mailbox = self.hub.mailbox(participant)
        if mailbox is None:
            return []
        shown, self._polled[participant], _ = mailbox.since(self._polled.get(participant, 0))
        return [received(message) for message in shown]
