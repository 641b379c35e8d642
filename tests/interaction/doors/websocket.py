"""The WebSocket door: a real gateway on a real port, its clients real sockets, its time the test's.

What a test sees has travelled over TCP. Every action is waited for: a ping behind each message comes back only when the
gateway has read it, and a ping to each client only when everything before it has arrived.
"""

import asyncio
import threading
from base64 import b64decode
from collections.abc import Coroutine, Mapping
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from mew.gateway.config import GatewayConfig, ParticipantConfig, SpaceConfig
from mew.gateway.gateway import Gateway
from mew.gateway.server import Server
from mew.protocol import Attach, Space, Tick
from mew.protocol.frames import build
from mew.protocol.times import SECOND
from mew.testing import NOON, OWN_TOKEN, Client, Frame, MemoryTokens, Message, settings

T = TypeVar("T")
PATIENCE = 20
LARGEST = 64 * 2**20


def _run_for_ever() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="gateway under test", daemon=True).start()
    return loop


class _Loop:
    """One loop for all tests of a process, in a thread of its own, started with the first."""

    loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def do(cls, work: Coroutine[Any, Any, T]) -> T:
        if cls.loop is None:
            cls.loop = _run_for_ever()
        return asyncio.run_coroutine_threadsafe(work, cls.loop).result(PATIENCE)


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


class SocketClient(Client):
    """A client behind a real socket."""

    peer: Peer
    _space: "WebsocketSpace"

    def __init__(self, space: "WebsocketSpace", name: str) -> None:
        super().__init__(space, name)  # type: ignore[arg-type]
        self._space = space

    def arrived(self, message: bytes, *, text: bool) -> None:
        if message.startswith(b"#"):
            self.deliver_frame(message, text=text)
            return
        self.deliver(message)
        if self.participant is None and self.view is not None:
            self.participant = self.view.you.id

    def send_bytes(self, message: bytes, *, text: bool = True) -> None:
        self._space.send(self, message, text=text)

    def leave(self) -> None:
        self._space.disconnect(self)


class LogReader(Client):
    """Reads an `output_log` as a script would: whatever stands in the file by now."""

    def __init__(self, space: "WebsocketSpace", path: Path) -> None:
        super().__init__(space, path.name)  # type: ignore[arg-type]
        self._path = path
        self._lines = 0

    def _catch_up(self) -> None:
        lines = self._path.read_bytes().splitlines()
        for line in lines[self._lines :]:
            shown = msgspec.json.decode(line)
            if "frame" in shown:
                frame = shown["frame"]
                data = frame["data"].encode() if frame["encoding"] == "text" else b64decode(frame["data"])
                self.deliver_frame(build(frame["stream_id"], data), text=frame["encoding"] == "text")
            else:
                self.deliver(line)
        self._lines = len(lines)

    def inbox(self) -> list[Message | Frame]:
        self._catch_up()
        return super().inbox()

    def take(self, kind: str) -> Message:
        self._catch_up()
        return super().take(kind)

    def take_frame(self) -> Frame:
        self._catch_up()
        return super().take_frame()


class Told(msgspec.Struct):
    """A refusal as HTTP tells it."""

    status: int
    code: str


class HttpAnswer(msgspec.Struct):
    """What an HTTP request was answered."""

    status: int
    body: dict[str, Any]

    @property
    def refusal(self) -> Told | None:
        return None if self.status == 200 else Told(self.status, self.body["error"])


class WebsocketSpace:
    """A space behind a gateway, used as a `MemorySpace` is."""

    def __init__(self, *, now: int = NOON, **configuration: Any) -> None:
        self.settings = settings(**configuration)
        self.tokens = MemoryTokens()
        self.now = now
        self._folder = TemporaryDirectory()
        self._clients: list[SocketClient] = []
        self._polled: dict[str, int] = {}
        self._logs: dict[str, LogReader] = {}
        for participant in self.settings.participants:
            self.tokens.issue(self.settings.space_id, participant)
        _Loop.do(self._start())

    async def _start(self) -> None:
        participants = {name: ParticipantConfig(output_log=Path(f"{name}.log")) for name in self.settings.output_logs}
        directory = Path(self._folder.name)
        space = SpaceConfig(
            settings=self.settings,
            directory=directory,
            file=directory / "space.yaml",
            name="under test",
            participants=participants,
        )
        self._gateway = Gateway(GatewayConfig(port=0, spaces=(space,)), self.tokens, clock=lambda: self.now)
        self._server = Server(self._gateway)
        self._server.bind()
        await self._server.start()

    def close(self) -> None:
        """Stop the gateway."""
        _Loop.do(self._server.stop())
        self._folder.cleanup()

    @property
    def url(self) -> str:
        """Where the gateway answers HTTP."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def directory(self) -> Path:
        """The space directory."""
        return Path(self._folder.name)

    @property
    def space(self) -> Space:
        return self._gateway.first_hub.space

    def token(self, participant: str) -> str:
        return self.tokens.issue(self.settings.space_id, participant)

    def connect(self, *, token: str | None = None, space: str | None = None) -> SocketClient:
        client = SocketClient(self, f"client {len(self._clients) + 1}")
        self._clients.append(client)
        _Loop.do(self._connect(client, token, space))
        return client

    async def _connect(self, client: SocketClient, token: str | None, space: str | None) -> None:
        query = "" if space is None else f"?space={space}"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"ws://127.0.0.1:{self._server.port}/anywhere{query}"
        _, peer = await ws_connect(lambda: Peer(client), url, extra_headers=headers, max_frame_size=LARGEST)
        client.peer = cast("Peer", peer)
        await self._settle()

    def join(self, participant: str) -> SocketClient:
        return self.connect(token=self.token(participant))

    def observe(self, name: str = "onlooker") -> SocketClient:
        return self.connect(token=self.tokens.issue(self.settings.space_id, name, observer=True))

    def send(self, client: SocketClient, message: bytes, *, text: bool) -> None:
        _Loop.do(self._send(client, message, text=text))

    async def _send(self, client: SocketClient, message: bytes, *, text: bool) -> None:
        """A text message must be UTF-8 (RFC 6455 §8.1): what is not goes as binary, and meets the same rules."""
        if not client.peer.gone.is_set():
            as_text = text and message.decode(errors="replace").encode() == message
            client.peer.transport.send(WSMsgType.TEXT if as_text else WSMsgType.BINARY, message)
        await self._settle()

    def disconnect(self, client: SocketClient) -> None:
        _Loop.do(self._disconnect(client))

    async def _disconnect(self, client: SocketClient) -> None:
        before = len(self._gateway.sockets)
        if not client.peer.gone.is_set():
            client.peer.transport.disconnect()
            while len(self._gateway.sockets) >= before:
                await asyncio.sleep(0)
        await self._settle()

    async def _settle(self) -> None:
        """Everything sent has been read, everything that follows from it has arrived."""
        for _ in range(2):
            await asyncio.gather(*(client.peer.catch_up() for client in self._clients if hasattr(client, "peer")))
            self._gateway.first_hub.flush()

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        _Loop.do(self._advance())

    async def _advance(self) -> None:
        self._gateway.first_hub.run(Tick())
        await self._settle()

    def post(
        self, participant: str, envelope: Mapping[str, Any] | bytes, *, token: str | None = OWN_TOKEN
    ) -> HttpAnswer:
        message = envelope if isinstance(envelope, bytes) else msgspec.json.encode(envelope)
        bearer = self.token(participant) if token == OWN_TOKEN else token
        answer = self._request("POST", f"/participants/{participant}/messages", bearer, message)
        _Loop.do(self._settle())
        return answer

    def _request(self, method: str, path: str, token: str | None, body: bytes | None = None) -> HttpAnswer:
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answered = HttpAnswer(response.status, msgspec.json.decode(response.read()))
        connection.close()
        return answered

    def poll(self, participant: str) -> list[Message | Frame]:
        since = self._polled.get(participant, 0)
        path = f"/participants/{participant}/messages?since={since}"
        body = self._request("GET", path, self.token(participant)).body
        _Loop.do(self._settle())
        self._polled[participant] = body.get("next", 0)
        return [Message(msgspec.json.encode(each)) for each in body.get("messages", [])]

    def log(self, participant: str) -> Client:
        _Loop.do(self._attach(participant))
        if participant not in self._logs:
            self._logs[participant] = LogReader(self, Path(self._folder.name) / f"{participant}.log")
        return self._logs[participant]

    async def _attach(self, participant: str) -> None:
        self._gateway.first_hub.run(Attach(participant))
        await self._settle()
