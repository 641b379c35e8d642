"""The WebSocket transport: a real gateway on a real port, with real sockets. The test sets the time.

All messages travel over TCP. Consecutive messages of one client are written together when the test looks or another
client acts. Then the transport waits: a ping behind the last message returns when the gateway has read it, and a ping
to each client returns when everything before it has arrived.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, TypeVar, cast

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from mew.gateway.server import GatewayServer
from mew.testing import OWN_TOKEN, Client, Message, ReceivedFrame
from tests.requirements.transports.gateway import GatewaySpace
from tests.requirements.transports.http_requests import PATIENCE, Asker, HttpAnswer, messages_of
from tests.requirements.transports.message_reader import Reader, received

T = TypeVar("T")
LARGEST = 64 * 2**20


class _Loop:
    """One event loop for all tests of a process, in its own thread, which starts with the first test."""

    loop: asyncio.AbstractEventLoop | None = None
    faults: ClassVar[list[dict[str, Any]]] = []
    """Exceptions on the loop that no task received."""

    @classmethod
    def do(cls, work: Coroutine[Any, Any, T]) -> T:
        if cls.loop is None:
            cls.loop = cls._run_for_ever()
        return asyncio.run_coroutine_threadsafe(work, cls.loop).result(PATIENCE)

    @classmethod
    def _run_for_ever(cls) -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        loop.set_exception_handler(lambda _, context: cls.faults.append(context))
        threading.Thread(target=loop.run_forever, name="gateway under test", daemon=True).start()
        return loop


class Peer(WSListener):
    """The client's end of a socket."""

    def __init__(self, client: "SocketClient") -> None:
        super().__init__()
        self._client = client
        self._pong: asyncio.Event = asyncio.Event()
        self.gone = asyncio.Event()

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.PONG:
            self._pong.set()
        elif frame.msg_type == WSMsgType.CLOSE:
            self._client.closed = int(frame.get_close_code())  # type: ignore[call-overload]
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        else:
            self._client.arrived(frame.get_payload_as_bytes(), text=frame.msg_type == WSMsgType.TEXT)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._pong.set()
        self.gone.set()

    async def catch_up(self) -> None:
        """Wait until everything sent in either direction before has arrived."""
        if not self.gone.is_set():
            self._pong.clear()
            self.transport.send_ping(b"")
            await self._pong.wait()


class SocketClient(Reader):
    """A client behind a real socket."""

    peer: Peer

    def __init__(self, space: "WebsocketSpace", name: str) -> None:
        super().__init__(name)
        self._space = space

    def catch_up(self) -> None:
        self._space.settle()

    def arrived(self, message: bytes, *, text: bool) -> None:
        with self.arriving():
            if message.startswith(b"#"):
                self.deliver_frame(message, text=text)
                return
            self.deliver(message)
            if self.participant is None and self.view is not None:
                self.participant = self.view.you.id

    def send_bytes(self, message: bytes, *, text: bool = True) -> None:
        """A text message must be UTF-8 (RFC 6455 §8.1). Other bytes go as binary; the same rules apply."""
        self._space.send(self, message, text=text and message.decode(errors="replace").encode() == message)

    def leave(self) -> None:
        self._space.disconnect(self)


class WebsocketSpace(GatewaySpace):
    """A space behind a gateway on a port, with the interface of `MemorySpace`."""

    def __init__(self, **configuration: Any) -> None:
        super().__init__(**configuration)
        self._sockets: list[SocketClient] = []
        self._begun: list[tuple[SocketClient, bytes, bool]] = []
        """The messages of one client since the last wait."""
        self._polled: dict[str, int] = {}
        _Loop.do(self._start())
        self.asker = Asker(self._server.port)

    async def _start(self) -> None:
        self._server = GatewayServer(self.new_gateway())
        self._server.bind()
        await self._server.start()

    def stop(self) -> None:
        self.settle()
        self.asker.close()
        _Loop.do(self._server.stop())
        faults, _Loop.faults[:] = _Loop.faults[:], []
        assert faults == []

    @property
    def url(self) -> str:
        """The address of the gateway's HTTP API."""
        self.settle()
        return f"http://127.0.0.1:{self._server.port}"

    # Sockets

    def connect(self, *, token: str | None = None, space: str | None = None) -> Client:
        return self.open_socket(SocketClient(self, f"client {len(self._sockets) + 1}"), token, space)

    def open_socket(self, client: SocketClient, token: str | None, space: str | None = None) -> Client:
        """Give a client its socket."""
        self.settle()
        _Loop.do(self._connect(client, token, space))
        return client

    async def _connect(self, client: SocketClient, token: str | None, space: str | None) -> None:
        query = "" if space is None else f"?space={space}"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"ws://127.0.0.1:{self._server.port}/anywhere{query}"
        _, peer = await ws_connect(lambda: Peer(client), url, extra_headers=headers, max_frame_size=LARGEST)
        client.peer = cast("Peer", peer)
        self._sockets.append(client)
        await self._settle()

    def send(self, client: SocketClient, message: bytes, *, text: bool) -> None:
        """A client sends a message after its last one. First, messages of other clients must have arrived."""
        if self._begun and self._begun[0][0] is not client:
            self.settle()
        self._begun.append((client, message, text))

    def settle(self) -> None:
        begun, self._begun = self._begun, []
        if begun:
            self.act(lambda: self._send(begun))

    def _send(self, begun: list[tuple[SocketClient, bytes, bool]]) -> None:
        for client, message, text in begun:
            if not client.peer.gone.is_set():
                client.peer.transport.send(WSMsgType.TEXT if text else WSMsgType.BINARY, message)

    def disconnect(self, client: SocketClient) -> None:
        self.settle()
        _Loop.do(self._disconnect(client))

    async def _disconnect(self, client: SocketClient) -> None:
        before = len(self.gateway.sockets)
        if not client.peer.gone.is_set():
            client.peer.transport.disconnect()
            while len(self.gateway.sockets) >= before:
                await asyncio.sleep(0)
        await self._settle()

    def act(self, work: Callable[[], T]) -> T:
        self.settle()
        return _Loop.do(self._act(work))

    async def _act(self, work: Callable[[], T]) -> T:
        done = work()
        await self._settle()
        return done

    async def _settle(self) -> None:
        """Wait until all sent messages are read and all their results have arrived."""
        for _ in range(2):
            await asyncio.gather(*(client.peer.catch_up() for client in self._sockets))
            self.hub.flush()

    # Requests

    def post(
        self, participant: str, envelope: Mapping[str, Any] | bytes, *, token: str | None = OWN_TOKEN
    ) -> HttpAnswer:
        message = envelope if isinstance(envelope, bytes) else msgspec.json.encode(envelope)
        bearer = self.token(participant) if token == OWN_TOKEN else token
        return self.ask("POST", messages_of(participant), bearer, message)

    def poll(self, participant: str) -> list[Message | ReceivedFrame]:
        since = self._polled.get(participant, 0)
        answer = self.ask("GET", f"{messages_of(participant)}?since={since}", self.token(participant))
        if answer.refusal is not None:
            return []
        self._polled[participant] = answer.mail.next
        return [received(bytes(message)) for message in answer.mail.messages]

    def ask(self, method: str, path: str, token: str | None, body: bytes | None = None) -> HttpAnswer:
        """The answer to a request. Its results have reached all clients."""
        self.settle()
        answer = self.asker.ask(method, path, token, body)
        self.act(lambda: None)
        return answer
