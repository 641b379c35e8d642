"""What a client knows of the space now, and which readers get the frames of each stream.

Frames are counted outside the view. The counts are merged into the view when it is read, because rebuilding the view
for each of a hundred thousand frames per second is too slow. This module never waits and never sends.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.client.frames import Cause, declared_decoder, is_observer, is_same, receives
from mew.client.subscriptions import FrameQueue
from mew.protocol import kinds
from mew.protocol.envelope import Envelope
from mew.protocol.frames import header, split
from mew.view import SpaceView, StreamView, apply

if TYPE_CHECKING:
    from mew.client.frames import Decode


_COUNTED: Final = frozenset({kinds.STREAM_DATA, kinds.STREAM_GAP})


class StreamFilter(msgspec.Struct, frozen=True):
    """A filter that selects streams. A field that is None matches everything."""

    stream_id: str | None = None
    namespace: str | None = None
    format_id: str | None = None

    def covers(self, stream_id: str, stream: StreamView | None) -> bool:
        """Whether the filter selects this stream. If the stream is not in the view, only its id can match."""
        if self.stream_id is not None and self.stream_id != stream_id:
            return False
        if self.namespace is None and self.format_id is None:
            return True
        return (
            stream is not None
            and (self.namespace is None or stream.namespace.startswith(self.namespace))
            and (self.format_id is None or self.format_id in {each["id"] for each in stream.formats})
        )


class StreamRoute:
    """The routing state of one stream: its readers, decoder and frame count."""

    __slots__ = ("decode", "echoes", "frames", "header", "queues", "stream", "stream_id", "writable")

    def __init__(self, stream_id: str) -> None:
        """Start without readers."""
        self.stream_id = stream_id
        self.header = header(stream_id)
        self.frames = 0
        """The number of frames that the stream has carried."""
        self.queues: list[FrameQueue] = []
        self.stream: StreamView | None = None
        self.decode: Decode | None = None
        self.writable = False
        """Whether this participant may write now."""
        self.echoes = True
        """Whether this participant receives its data, including its own."""


class StreamRouter:
    """The view of a space and the lanes of its streams."""

    def __init__(self, view: SpaceView) -> None:
        """Start with the view of a welcome."""
        self._view = view
        self._stale = False
        self._by_header: dict[bytes, StreamRoute] = {}
        self._unheard: set[str] = set()
        """Ids of the streams whose data this participant does not receive."""
        self._readers: dict[FrameQueue, StreamFilter] = {}
        self.space: str | None = None
        """The id of the space. Only the namespaces of its streams contain it; None until a stream is known."""
        self.welcome(view)

    # The view

    @property
    def view(self) -> SpaceView:
        """The current state of the space."""
        if self._stale:
            self._stale = False
            streams = {name: self._counted(stream) for name, stream in self._view.streams.items()}
            self._view = msgspec.structs.replace(self._view, streams=streams)
        return self._view

    @property
    def known(self) -> SpaceView:
        """The current state of the space, with frame counts that may be out of date."""
        return self._view

    def _counted(self, stream: StreamView) -> StreamView:
        lane = self.lane(stream.stream_id)
        if lane is None or lane.frames == stream.frames:
            return stream
        lane.stream = stream.with_stream(frames=lane.frames)
        return lane.stream

    def welcome(self, view: SpaceView) -> None:
        """Replace the whole state with the view of a welcome."""
        self._view, self._stale = view, False
        for lane in [*self._by_header.values()]:
            stream = view.streams.get(lane.stream_id)
            if stream is None or not is_same(lane.stream, stream):
                self._close(lane)
        self._unheard.clear()
        for stream in view.streams.values():
            self._lay(stream).frames = stream.frames

    def follow(self, envelope: Envelope) -> bool:
        """Apply an envelope to the view. Returns whether the view changed, apart from frame counts."""
        before = self._view
        if envelope.kind in _COUNTED:
            self._count(envelope)
            return False
        self._view = after = apply(before, envelope)
        if after is before:
            return False
        if envelope.kind == kinds.WELCOME:
            self.welcome(after)
        elif after.streams is not before.streams:
            self._streams_changed(before.streams, after.streams)
        return True

    def _streams_changed(self, before: dict[str, StreamView], after: dict[str, StreamView]) -> None:
        for name in before.keys() - after.keys():
            lane = self.lane(name)
            if lane is not None:
                self._close(lane)
        for name, stream in after.items():
            if before.get(name) is not stream:
                self._lay(stream)

    # Lanes

    def lane(self, stream_id: str) -> StreamRoute | None:
        """Return the lane of a known stream, or None."""
        return self._by_header.get(header(stream_id))

    def find(self, prefix: bytes) -> StreamRoute | None:
        """Return the lane of the frames that start with this header, or None."""
        return self._by_header.get(prefix)

    def _lay(self, stream: StreamView) -> StreamRoute:
        """Create or update the lane of a stream from its current state."""
        lane = self.lane(stream.stream_id)
        if lane is None:
            lane = self._new(stream.stream_id, stream)
            lane.frames = stream.frames
        lane.stream = stream
        self.space = stream.namespace.partition("/")[0]
        lane.decode = declared_decoder(stream)
        lane.writable = self._view.may_write(stream.stream_id) and not is_observer(self._view)
        lane.echoes = receives(self._view, stream)
        (self._unheard.discard if lane.echoes else self._unheard.add)(stream.stream_id)
        return lane

    def _new(self, stream_id: str, stream: StreamView | None) -> StreamRoute:
        lane = StreamRoute(stream_id)
        lane.queues = [queue for queue, interest in self._readers.items() if interest.covers(stream_id, stream)]
        self._by_header[lane.header] = lane
        return lane

    def _close(self, lane: StreamRoute) -> None:
        """Remove the lane of an ended stream, and end the subscriptions to this stream alone."""
        del self._by_header[lane.header]
        self._unheard.discard(lane.stream_id)
        for queue in lane.queues:
            interest = self._readers.get(queue)
            if interest is not None and interest.stream_id is not None:
                del self._readers[queue]
                queue.end()

    @property
    def has_targets(self) -> bool:
        """Whether there is a stream whose data this participant does not receive."""
        return bool(self._unheard)

    # Readers

    def read(self, queue: FrameQueue, interest: StreamFilter) -> Callable[[], None]:
        """Route matching frames to a queue from now on. Call the returned function to stop."""
        self._readers[queue] = interest
        for lane in self._by_header.values():
            if interest.covers(lane.stream_id, lane.stream):
                lane.queues = [*lane.queues, queue]

        def forget() -> None:
            if self._readers.pop(queue, None) is not None:
                for lane in self._by_header.values():
                    lane.queues = [each for each in lane.queues if each is not queue]

        return forget

    @property
    def queues(self) -> list[FrameQueue]:
        """The queues of all readers."""
        return [*self._readers]

    # Frames

    def frame(self, message: bytes, *, text: bool) -> StreamRoute:
        """Pass a raw frame to its readers, and return its lane."""
        lane = self._by_header.get(message[: message.find(b"#", 1) + 1])
        if lane is None:
            lane = self._stray(message)
        lane.frames += 1
        self._stale = True
        for queue in lane.queues:
            queue.put(lane, message, text=text)
        return lane

    def _stray(self, message: bytes) -> StreamRoute:
        """Return a temporary lane for a stream that is not in the view; only readers of its id receive the frame."""
        stream_id, _ = split(message)
        lane = StreamRoute(stream_id)
        lane.queues = [queue for queue, interest in self._readers.items() if interest.covers(stream_id, None)]
        return lane

    def _count(self, envelope: Envelope) -> None:
        """Count a `stream/data` as one frame, and a `stream/gap` as the frames that it reports; notify the readers."""
        payload = envelope.payload
        by_gateway = envelope.sender == kinds.GATEWAY
        named = payload.get("stream_id") if by_gateway else _named(payload)
        lane = self.lane(named) if isinstance(named, str) else None
        if lane is None:
            return
        self._stale = True
        if envelope.kind == kinds.STREAM_GAP:
            lane.frames += payload["dropped"]
            self.tell_gap(lane, payload["dropped"], "gateway")
            return
        lane.frames += 1
        for queue in lane.queues:
            queue.put_data(lane, envelope)

    def tell_gap(self, lane: StreamRoute, frames: int, cause: Cause) -> None:
        """Report a gap at this position to the readers of a stream."""
        for queue in lane.queues:
            queue.put_gap(lane, frames, cause)


def _named(payload: dict[str, Any]) -> Any:
    """Return the full stream id of a `stream/data`, as completed by the gateway (protocol §4)."""
    reference = payload.get("stream")
    return reference.get("stream_id") if isinstance(reference, dict) else None
