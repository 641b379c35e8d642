"""The SDK as a transport: participants who use `mew.connect`, at a real gateway on a real port; its time is the test's.

What a client sends goes through the SDK: an envelope that `Space.send` can say by `Space.send`, a frame that the SDK
lets pass by `Stream.try_send`, and everything else as the bytes it is. What `send` makes of the answer must be what
came. What a client has received is what the SDK gave out, in its order, and its view is the SDK's own.

Who has no token comes by a plain socket: the SDK does not know how to join in the wrong way.
"""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from mew.client import ConnectionLost, Frame, JoinRefused, ProtocolError, Space, connect
from mew.protocol import Envelope, raw_json
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.frames import build, is_frame, split
from mew.protocol.stream_references import reference
from mew.testing import Client, Message
from mew.view import SpaceView
from tests.requirements.transports.websocket import SocketClient, WebsocketSpace, _Loop

SAID = {"kind", "payload", "to", "correlation_id", "context"}
"""What `Space.send` can say."""
ID_BYTES = 64
"""What the id that `Space.send` gives takes."""
UNSAID = {"space/kick", "system/heartbeat"}
"""To these there may be no answer; the SDK then asks for another, which no test expects."""


def sayable(message: bytes) -> dict[str, Any] | None:
    """The arguments with which `Space.send` says just this, but for the id; None where it cannot."""
    try:
        fields = raw_json.decode(message)
    except raw_json.NotJSON:
        return None
    # 1.0, or a key that stands there twice, would not leave as it was said.
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
            async for each in self._received:
                if isinstance(each, Frame):
                    self._client.arrived(build(each.stream_id, each.data), text=each.text)
                else:
                    self._client.arrived(each.encode(), text=True)
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
        """Each in a task of its own: they write in the order in which they were made."""
        sending = self._send(message, text=text)
        self._sending.append(asyncio.create_task(sending, name=f"{self.space.participant_id} sends"))

    async def _send(self, message: bytes, *, text: bool) -> Envelope | None:
        envelope = sayable(message) if text and self._lab.has_room(message) else None
        if envelope is not None:
            return await self.space.send(**envelope)
        stream_id = self._writes(message)
        if stream_id is not None:
            data = split(message)[1]
            await self.space.stream(stream_id).send(data.decode() if text else data)
        elif self.space.connection is not None:
            self.space.connection.send_raw(message, text=text)
        return None

    def _writes(self, message: bytes) -> str | None:
        """The stream of a frame that the SDK lets pass."""
        if not is_frame(message):
            return None
        with suppress(InvalidEnvelope):
            route = self.space.router.route(split(message)[0])
            return None if route is None or not route.writable else route.stream_id
        return None

    def _check_answers(self) -> None:
        """What `send` gave back or raised is what the gateway said to it."""
        for each in [task for task in self._sending if task.done()]:
            self._sending.remove(each)
            error = each.exception()
            if error is None:
                answer = each.result()
                assert answer is None or self._client.has_heard(answer) or not self._echoes(answer)
            elif isinstance(error, ProtocolError):
                assert self._client.has_heard_error(error)
            else:
                assert isinstance(error, ConnectionLost | JoinRefused), error

    def _echoes(self, envelope: Envelope) -> bool:
        """Whether it was to come back: data for others alone do not."""
        route = self.space.router.route(str(reference(envelope)))
        return route is None or route.echoes

    async def leave(self) -> None:
        self._received.close()
        await self.space.close()
        await asyncio.gather(self._reading, *self._sending, return_exceptions=True)


class SdkClient(SocketClient):
    """A participant who uses the SDK."""

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
        """The SDK has its own."""

    def deliver(self, message: bytes) -> None:
        self._unread.append(Message(message))
        self._heard.append(message)

    def has_heard(self, envelope: Envelope) -> bool:
        return envelope.encode() in self._heard

    def has_heard_error(self, error: ProtocolError) -> bool:
        payload = {"error": error.code, "message": error.message, **error.parts}
        told = [Message(each) for each in self._heard]
        return any(each["kind"] == "system/error" and each["payload"] == payload for each in told)

    def turned_away(self, error: JoinRefused | ConnectionLost) -> None:
        """Not let in, and told why by the SDK alone."""
        self.closed = error.code
        self.peer = Outside()
        if error.refusal is not None and error.refusal.envelope is not None:
            self._unread.append(Message(error.refusal.envelope.encode()))


def member_of(client: Any) -> Member | None:
    """The SDK's end of a client's socket, if it came in by the SDK."""
    return client.peer if isinstance(client.peer, Member) else None


class Outside:
    """Nobody came in."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.gone.set()

    async def catch_up(self) -> None:
        """Nothing comes."""


class SdkSpace(WebsocketSpace):
    """A space whose participants use the SDK, used as a `MemorySpace` is."""

    by_hand = False
    """Whether envelopes too are sent as the bytes they are."""

    def has_room(self, message: bytes) -> bool:
        """Whether an envelope may have an id besides."""
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
            client.turned_away(error)
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
