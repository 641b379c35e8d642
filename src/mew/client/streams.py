"""`Stream`: a handle for reading and writing one stream.

The handle stores only the stream id. It reads everything else from the space, so it is never out of date.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mew.client.errors import SequenceOutOfOrder, StreamNotFound, StreamNotLive, UnauthorizedStreamWrite, UnknownFormat
from mew.client.frames import Frame, format_id
from mew.client.sender import OutgoingEnvelope
from mew.client.subscriptions import OnGap, Subscription
from mew.protocol import kinds
from mew.protocol.envelope import Envelope
from mew.protocol.frames import frame_header
from mew.view import StreamView

if TYPE_CHECKING:
    from mew.client.connection import Connection
    from mew.client.space import Space
    from mew.client.stream_router import StreamRoute


D = TypeVar("D")


class Stream:
    """One stream of a space."""

    def __init__(self, space: "Space", stream_id: str) -> None:
        """Create a handle for this id, whether or not the stream exists."""
        self._space = space
        self._header = frame_header(stream_id)
        self.stream_id = stream_id

    def __repr__(self) -> str:
        return f"<Stream {self.stream_id!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._space, self.stream_id) == (other._space, other.stream_id)

    def __hash__(self) -> int:
        return hash(self.stream_id)

    @property
    def view(self) -> StreamView | None:
        """The current state of the stream; None if it does not exist or has ended."""
        return self._space.view.streams.get(self.stream_id)

    def frames(self, form: Any = None, *, on_gap: OnGap | None = None) -> Subscription[Frame[Any]]:
        """Subscribe to the frames of this stream, from now on until it ends."""
        return self._space.frames(self.stream_id, format=form, on_gap=on_gap)

    # Writing

    async def send(self, data: Any, format: Any = None) -> None:  # noqa: A002
        """Write a frame: bytes and text unchanged, any other value as JSON. Waits while the socket is full.

        The frame is sent once. If this raises, the frame was not sent. The gateway does not confirm frames.
        """
        message, text = self._message(data, format)
        connection = await self._space.session.writable()
        self._write(connection, message, text=text)

    def try_send(self, data: D, format: Any = None) -> D | None:  # noqa: A002
        """Write a frame without waiting. Returns None if it was written.

        Returns `data` if the socket is full or disconnected. This never yields to the event loop, so no other task runs
        during the call.
        """
        message, text = self._message(data, format)
        session = self._space.session
        if session.connection is None and session.end_reason is None:
            return data
        connection = session.require()
        if connection.paused:
            return data
        self._write(connection, message, text=text)
        return None

    def _message(self, data: Any, form: Any) -> tuple[bytes, bool]:
        if form is not None:
            self._declared_id(form)
        if isinstance(data, bytes):
            return self._header + data, False
        if isinstance(data, str):
            return self._header + data.encode(), True
        if isinstance(data, bytearray | memoryview):
            return self._header + bytes(data), False
        return self._header + msgspec.json.encode(data), True

    def _write(self, connection: "Connection", message: bytes, *, text: bool) -> None:
        if not self._route().writable:
            raise self._write_error()
        connection.send_raw(message, text=text)

    def _route(self) -> "StreamRoute":
        route = self._space.router.find_route(self._header)
        if route is None:
            raise StreamNotFound(f"no stream {self.stream_id!r}", stream_id=self.stream_id)
        return route

    def _write_error(self) -> StreamNotLive | UnauthorizedStreamWrite:
        stream = self.view
        if stream is not None and stream.status != "live":
            return StreamNotLive(f"{self.stream_id!r} is announced but not started", stream_id=self.stream_id)
        message = f"{self._space.participant_id!r} is not a writer of {self.stream_id!r}"
        return UnauthorizedStreamWrite(message, stream_id=self.stream_id)

    def _declared_id(self, form: Any) -> str:
        """Return the id of a format; raise `UnknownFormat` if the stream declares formats and not this one."""
        selected, stream = format_id(form), self.view
        declared = [] if stream is None else [str(form["id"]) for form in stream.formats]
        if declared and selected not in declared:
            raise UnknownFormat(f"{self.stream_id!r} has no format {selected!r}", formats=declared)
        return selected

    async def send_data(self, value: Any, format: Any = None) -> Envelope:  # noqa: A002
        """Write a value as `stream/data` and wait until the gateway accepts it. The client numbers it.

        If the stream has targets and this participant is not one of them, the gateway sends no confirmation. Then this
        returns after sending.
        """
        try:
            return await self._post_data(value, format)
        except SequenceOutOfOrder as refusal:  # this id wrote here before; the value was rejected, so send it again
            sequences = self._space.sequences
            # Concurrent calls may have used higher numbers in the meantime: never lower the counter.
            sequences[self.stream_id] = max(sequences.get(self.stream_id, -1), int(refusal.parts["last_sequence"]))
            return await self._post_data(value, format)

    async def _post_data(self, value: Any, form: Any) -> Envelope:
        payload: dict[str, Any] = {"stream_id": self.stream_id, "sequence": 0}
        if form is not None:
            payload["format_id"] = self._declared_id(form)
        payload["content"] = value

        def numbered() -> dict[str, Any]:
            sequences = self._space.sequences
            sequences[self.stream_id] = payload["sequence"] = sequences.get(self.stream_id, -1) + 1
            return payload

        return await self._space.post(OutgoingEnvelope(kind=kinds.STREAM_DATA, payload=numbered))

    # Lifecycle

    async def start(self) -> Envelope:
        """Make an announced stream live."""
        return await self._send(kinds.STREAM_START)

    async def grant(self, who: str, reason: str | None = None) -> Envelope:
        """Allow a participant to write to the stream."""
        return await self._send(kinds.GRANT_WRITE, participant_id=who, reason=reason)

    async def revoke(self, who: str, reason: str | None = None) -> Envelope:
        """Withdraw a participant's permission to write to the stream."""
        return await self._send(kinds.REVOKE_WRITE, participant_id=who, reason=reason)

    async def transfer(self, who: str, reason: str | None = None) -> Envelope:
        """Transfer the stream to a new owner; you can no longer write to it."""
        return await self._send(kinds.TRANSFER_OWNERSHIP, new_owner=who, reason=reason)

    async def close(self, reason: str | None = None) -> Envelope:
        """Close the stream."""
        return await self._send(kinds.STREAM_CLOSE, reason=reason)

    async def complete(self) -> Envelope:
        """End the stream and report that everything was sent (`stream/complete`)."""
        return await self._send(kinds.STREAM_COMPLETE)

    async def fail(self, code: str, message: str) -> Envelope:
        """End the stream with an error (`stream/error`)."""
        return await self._send(kinds.STREAM_ERROR, code=code, message=message)

    async def _send(self, kind: str, **fields: Any) -> Envelope:
        payload = {name: value for name, value in fields.items() if value is not None}
        return await self._space.post(OutgoingEnvelope(kind=kind, payload={"stream_id": self.stream_id, **payload}))
