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
from mew.protocol.frames import frame_header, split_frame
from mew.view import SpaceView, StreamView, apply_envelope

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
            and (self.format_id is None or self.format_id in {form["id"] for form in stream.formats})
        )


class StreamRoute:
    """The routing state of one stream: its readers, decoder and frame count."""

    __slots__ = ("decode", "echoes", "frames", "header", "queues", "stream", "stream_id", "writable")

    def __init__(self, stream_id: str) -> None:
        """Start without readers."""
        self.stream_id = stream_id
        self.header = frame_header(stream_id)
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
    """The view of a space and the routes of its streams."""

    def __init__(self, view: SpaceView) -> None:
        """Start with the view of a welcome."""
        self._view = view
        self._stale = False
        self._by_header: dict[bytes, StreamRoute] = {}
        self._not_received: set[str] = set()
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
    def uncounted_view(self) -> SpaceView:
        """The current state of the space, with frame counts that may be out of date."""
        return self._view

    def _counted(self, stream: StreamView) -> StreamView:
        route = self.route(stream.stream_id)
        if route is None or route.frames == stream.frames:
            return stream
        route.stream = stream.with_stream(frames=route.frames)
        return route.stream

    def welcome(self, view: SpaceView) -> None:
        """Replace the whole state with the view of a welcome."""
        self._view, self._stale = view, False
        for route in [*self._by_header.values()]:
            stream = view.streams.get(route.stream_id)
            if stream is None or not is_same(route.stream, stream):
                self._remove_route(route)
        self._not_received.clear()
        for stream in view.streams.values():
            self._update_route(stream).frames = stream.frames

    def apply_envelope(self, envelope: Envelope) -> bool:
        """Apply an envelope to the view. Returns whether the view changed, apart from frame counts."""
        before = self._view
        if envelope.kind in _COUNTED:
            self._count(envelope)
            return False
        self._view = after = apply_envelope(before, envelope)
        if after is before:
            return False
        if envelope.kind == kinds.WELCOME:
            self.welcome(after)
        elif after.streams is not before.streams:
            self._streams_changed(before.streams, after.streams)
        return True

    def _streams_changed(self, before: dict[str, StreamView], after: dict[str, StreamView]) -> None:
        for name in before.keys() - after.keys():
            route = self.route(name)
            if route is not None:
                self._remove_route(route)
        for name, stream in after.items():
            if before.get(name) is not stream:
                self._update_route(stream)

    # Routes

    def route(self, stream_id: str) -> StreamRoute | None:
        """Return the route of a known stream, or None."""
        return self._by_header.get(frame_header(stream_id))

    def find_route(self, prefix: bytes) -> StreamRoute | None:
        """Return the route of the frames that start with this header, or None."""
        return self._by_header.get(prefix)

    def _update_route(self, stream: StreamView) -> StreamRoute:
        """Create or update the route of a stream from its current state."""
        route = self.route(stream.stream_id)
        if route is None:
            route = self._add_route(stream.stream_id, stream)
            route.frames = stream.frames
        route.stream = stream
        self.space = stream.namespace.partition("/")[0]
        route.decode = declared_decoder(stream)
        route.writable = self._view.may_write(stream.stream_id) and not is_observer(self._view)
        route.echoes = receives(self._view, stream)
        (self._not_received.discard if route.echoes else self._not_received.add)(stream.stream_id)
        return route

    def _add_route(self, stream_id: str, stream: StreamView | None) -> StreamRoute:
        route = StreamRoute(stream_id)
        route.queues = [
            queue for queue, stream_filter in self._readers.items() if stream_filter.covers(stream_id, stream)
        ]
        self._by_header[route.header] = route
        return route

    def _remove_route(self, route: StreamRoute) -> None:
        """Remove the route of an ended stream, and end the subscriptions to this stream alone."""
        del self._by_header[route.header]
        self._not_received.discard(route.stream_id)
        for queue in route.queues:
            stream_filter = self._readers.get(queue)
            if stream_filter is not None and stream_filter.stream_id is not None:
                del self._readers[queue]
                queue.end()

    @property
    def has_targets(self) -> bool:
        """Whether there is a stream whose data this participant does not receive."""
        return bool(self._not_received)

    # Readers

    def add_reader(self, queue: FrameQueue, stream_filter: StreamFilter) -> Callable[[], None]:
        """Route matching frames to a queue from now on. Call the returned function to stop."""
        self._readers[queue] = stream_filter
        for route in self._by_header.values():
            if stream_filter.covers(route.stream_id, route.stream):
                route.queues = [*route.queues, queue]

        def forget() -> None:
            if self._readers.pop(queue, None) is not None:
                for route in self._by_header.values():
                    route.queues = [other for other in route.queues if other is not queue]

        return forget

    @property
    def queues(self) -> list[FrameQueue]:
        """The queues of all readers."""
        return [*self._readers]

    # Frames

    def frame(self, message: bytes, *, text: bool) -> StreamRoute:
        """Pass a raw frame to its readers, and return its route."""
        route = self._by_header.get(message[: message.find(b"#", 1) + 1])
        if route is None:
            route = self._unknown_route(message)
        route.frames += 1
        self._stale = True
        for queue in route.queues:
            queue.put(route, message, text=text)
        return route

    def _unknown_route(self, message: bytes) -> StreamRoute:
        """Return a temporary route for a stream that is not in the view; only readers of its id receive the frame."""
        stream_id, _ = split_frame(message)
        route = StreamRoute(stream_id)
        route.queues = [
            queue for queue, stream_filter in self._readers.items() if stream_filter.covers(stream_id, None)
        ]
        return route

    def _count(self, envelope: Envelope) -> None:
        """Count a `stream/data` as one frame, and a `stream/gap` as the frames that it reports; notify the readers."""
        payload = envelope.payload
        by_gateway = envelope.sender == kinds.GATEWAY
        stream_id = payload.get("stream_id") if by_gateway else _stream_id(payload)
        route = self.route(stream_id) if isinstance(stream_id, str) else None
        if route is None:
            return
        self._stale = True
        if envelope.kind == kinds.STREAM_GAP:
            route.frames += payload["dropped"]
            self.report_gap(route, payload["dropped"], "gateway")
            return
        route.frames += 1
        for queue in route.queues:
            queue.put_data(route, envelope)

    def report_gap(self, route: StreamRoute, frames: int, cause: Cause) -> None:
        """Report a gap at this position to the readers of a stream."""
        for queue in route.queues:
            queue.put_gap(route, frames, cause)


def _stream_id(payload: dict[str, Any]) -> Any:
    """Return the full stream id of a `stream/data`, as completed by the gateway (protocol §4)."""
    reference = payload.get("stream")
    return reference.get("stream_id") if isinstance(reference, dict) else None
