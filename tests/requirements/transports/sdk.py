"""The SDK as a transport: participants that use `mew.connect` at a real gateway on a real port. The test sets the time.

A client sends through the SDK: an envelope with `Space.send` if that can express it, a frame with `Stream.try_send` if
the SDK permits it, and everything else as bytes. The result of `send` must match the answer of the gateway. A client's
messages are those that the SDK delivers, in this order, and its view is the view of the SDK.

A client without a token uses a plain socket: the SDK cannot join in a wrong way.
"""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from mew.client import ConnectionLost, Frame, JoinRefused, ProtocolError, Space, connect
from mew.protocol import Envelope, raw_json
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.frames import build_frame, is_frame, split_frame
from mew.protocol.streams import referenced_stream_id
from mew.testing import Client, Message
from mew.view import SpaceView
from tests.requirements.transports.websocket import SocketClient, WebsocketSpace, _Loop

SAID = {"kind", "payload", "to", "correlation_id", "context"}
"""The fields that `Space.send` can express."""
ID_BYTES = 64
"""The bytes that the id of `Space.send` takes."""
UNSAID = {"space/kick", "system/heartbeat"}
"""Kinds that may have no answer. The SDK then sends a flush marker, which no test expects."""


def sayable(message: bytes) -> dict[str, Any] | None:
    """The arguments with which `Space.send` produces this envelope, without the id; None if it cannot."""
    try:
        fields = raw_json.decode_json(message)
    except raw_json.NotJSON:
        return None
    # 1.0 or a repeated key would not keep its bytes.
    if not isinstance(fields, dict) or msgspec.json.encode(fields) != message:
        return None
    lists = [isinstance(fields.get(name, []), list) for name in ("to", "correlation_id")]
    can = isinstance(fields.get("kind"), str) and fields["kind"] not in UNSAID and fields.keys() <= SAID
    return fields if can and all(lists) and isinstance(fields.get("payload"), dict) else None


class Member:
    """The SDK's end of a socket, where the other transports have a `Peer`."""

    def __init__(self, client: "SdkClient", space: Space, lab: "SdkSpace") -> None:
        self.space = space
        self.gone = asyncio.Event()
        self._client = client
        self._lab = lab
        self._received = space.messages()
        self._reading = asyncio.create_task(self._read(), name=f"{space.participant_id} reads")
        self._sending: list[asyncio.Task[Envelope | None]] = []

    async def _read(self) -> None:
        try:
            async for received in self._received:
                if isinstance(received, Frame):
                    self._client.arrived(build_frame(received.stream_id, received.data), text=received.text)
                else:
                    self._client.arrived(received.encode(), text=True)
        except (JoinRefused, ConnectionLost) as error:
            self._client.closed = error.code
        else:
            self._client.closed = getattr(self.space.session.end_reason, "code", None)
        self.gone.set()

    async def catch_up(self) -> None:
        """Wait until everything sent in either direction before has arrived."""
        if self.space.connection is not None:
            try:
                await self.space.connection.ping()
            except ConnectionLost:
                await self.gone.wait()
        self._check_answers()

    def send(self, message: bytes, *, text: bool) -> None:
        """Each send has its own task. Tasks write in the order of their creation."""
        sending = self._send(message, text=text)
        self._sending.append(asyncio.create_task(sending, name=f"{self.space.participant_id} sends"))

    async def _send(self, message: bytes, *, text: bool) -> Envelope | None:
        envelope = sayable(message) if text and self._lab.has_room(message) else None
        if envelope is not None:
            return await self.space.send(**envelope)
        stream_id = self._writes(message)
        if stream_id is not None:
            data = split_frame(message)[1]
            await self.space.stream(stream_id).send(data.decode() if text else data)
        elif self.space.connection is not None:
            self.space.connection.send_raw(message, text=text)
        return None

    def _writes(self, message: bytes) -> str | None:
        """The stream of a frame that the SDK permits."""
        if not is_frame(message):
            return None
        with suppress(InvalidEnvelope):
            route = self.space.router.route(split_frame(message)[0])
            return None if route is None or not route.writable else route.stream_id
        return None

    def _check_answers(self) -> None:
        """Check that the result or exception of each `send` matches the gateway's answer."""
        for task in [task for task in self._sending if task.done()]:
            self._sending.remove(task)
            error = task.exception()
            if error is None:
                answer = task.result()
                assert answer is None or self._client.has_heard(answer) or not self._echoes(answer)
            elif isinstance(error, ProtocolError):
                assert self._client.has_heard_error(error)
            else:
                assert isinstance(error, ConnectionLost | JoinRefused), error

    def _echoes(self, envelope: Envelope) -> bool:
        """Whether the sender receives an echo: not of data for other targets only."""
        route = self.space.router.route(str(referenced_stream_id(envelope)))
        return route is None or route.echoes

    async def leave(self) -> None:
        self._received.close()
        await self.space.close()
        await asyncio.gather(self._reading, *self._sending, return_exceptions=True)


class SdkClient(SocketClient):
    """A participant that uses the SDK."""

    peer: Any  # a `Member`, or `Outside`

    def __init__(self, space: "SdkSpace", name: str) -> None:
        super().__init__(space, name)
        self._heard: list[bytes] = []

    @property
    def view(self) -> SpaceView | None:
        self._look()
        return self.peer.space.view if isinstance(getattr(self, "peer", None), Member) else None

    @view.setter
    def view(self, view: SpaceView | None) -> None:
        """The view of the SDK."""

    def deliver(self, message: bytes) -> None:
        self._unread.append(Message(message))
        self._heard.append(message)

    def has_heard(self, envelope: Envelope) -> bool:
        return envelope.encode() in self._heard

    def has_heard_error(self, error: ProtocolError) -> bool:
        payload = {"error": error.code, "message": error.message, **error.parts}
        messages = [Message(message) for message in self._heard]
        return any(message["kind"] == "system/error" and message["payload"] == payload for message in messages)

    def rejected(self, error: JoinRefused | ConnectionLost) -> None:
        """The join failed; only the SDK has the reason."""
        self.closed = error.code
        self.peer = Outside()
        if error.refusal is not None and error.refusal.envelope is not None:
            self._unread.append(Message(error.refusal.envelope.encode()))


def member_of(client: Any) -> Member | None:
    """The SDK's end of a client's socket, if the client uses the SDK."""
    return client.peer if isinstance(client.peer, Member) else None


class Outside:
    """The client did not join."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.gone.set()

    async def catch_up(self) -> None:
        """There are no messages."""


class SdkSpace(WebsocketSpace):
    """A space whose participants use the SDK, with the interface of `MemorySpace`."""

    by_hand = False
    """Whether envelopes are sent as bytes too."""

    def has_room(self, message: bytes) -> bool:
        """Whether an id may be added to an envelope."""
        return not self.by_hand and len(message) + ID_BYTES <= self.settings.limits.message_bytes

    def connect(self, *, token: str | None = None, space: str | None = None) -> Client:
        if token is None:
            return super().connect(token=token, space=space)
        self.settle()
        client = SdkClient(self, f"client {len(self._sockets) + 1}")
        _Loop.do(self._join(client, token, space))
        return client

    async def _join(self, client: SdkClient, token: str, space: str | None) -> None:
        url = f"ws://127.0.0.1:{self._server.port}/anywhere"
        try:
            joined = await connect(url, token=token, space=space, reconnect=False)
        except (JoinRefused, ConnectionLost) as error:
            client.rejected(error)
        else:
            client.peer = Member(client, joined, self)
            client.participant = joined.participant_id
            assert joined.last_welcome is not None
            with client.arriving():
                client.deliver(joined.last_welcome.encode())
        self._sockets.append(client)
        await self._settle()

    def _send(self, begun: list[tuple[SocketClient, bytes, bool]]) -> None:
        for client, message, text in begun:
            member = member_of(client)
            if member is None:
                super()._send([(client, message, text)])
            else:
                member.send(message, text=text)

    async def _disconnect(self, client: SocketClient) -> None:
        member = member_of(client)
        if member is None:
            await super()._disconnect(client)
            return
        before = len(self.gateway.sockets)
        was_here = not member.gone.is_set()
        await member.leave()
        while was_here and len(self.gateway.sockets) >= before:
            await asyncio.sleep(0)
        await self._settle()

    def stop(self) -> None:
        super().stop()
        for member in filter(None, map(member_of, self._sockets)):
            _Loop.do(member.leave())
