"""`Space`: the public API of a joined space.

Other modules of this package do the work. Some methods are functions of those modules that take the space as their
first argument.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from mew.client import approvals, control, reasoning
from mew.client import proposals as own_proposals
from mew.client.connection import Connection
from mew.client.dispatcher import Dispatcher, Message, Waiter
from mew.client.errors import RequestTimeout
from mew.client.events import Event
from mew.client.frames import Frame, decoder, descriptors, format_id
from mew.client.mcp import calls
from mew.client.mcp.calls import ANSWER_TIMEOUT
from mew.client.pending import Accepts, PendingRequests
from mew.client.permissions import is_permitted
from mew.client.sender import EnvelopeSender, Names, OutgoingEnvelope
from mew.client.session import ConnectSettings, ConnectTarget, ReconnectingSession
from mew.client.stream_router import StreamFilter, StreamRouter
from mew.client.streams import Stream
from mew.client.subscriptions import (
    EnvelopeFilter,
    EnvelopeQueue,
    FrameQueue,
    ItemQueue,
    OnGap,
    OnOverflow,
    QueueLimits,
    Subscription,
)
from mew.protocol import kinds
from mew.protocol.envelope import Envelope
from mew.protocol.patterns import KindPattern
from mew.view import SpaceView

T = TypeVar("T")


class Space:
    """A joined space. `connect` creates it; `close`, or the end of `async with`, leaves it."""

    def __init__(self, target: ConnectTarget, settings: ConnectSettings) -> None:
        """Create the space without a connection; `connect` opens the connection."""
        self._pending = PendingRequests(self._send_marker)
        self._dispatcher = Dispatcher(self._pending, self.stream)
        self.queue_limits = QueueLimits(settings.queue, settings.queue_bytes)
        """Queue limits of each subscription."""
        self.session = ReconnectingSession(target, settings, self._dispatcher)
        self._sender = EnvelopeSender(self.session, self._dispatcher, self._pending)
        self.sequences: dict[str, int] = {}
        """The last sequence number that this participant used, by stream id."""

    def _send_marker(self, marker_id: str) -> None:
        self._sender.send_marker(marker_id)

    def __repr__(self) -> str:
        return f"<Space {self.id!r} as {self.participant_id!r}>"

    # State

    @property
    def view(self) -> SpaceView:
        """The current state of the space: participants, their capabilities, and streams."""
        return self._dispatcher.router.view

    @property
    def router(self) -> StreamRouter:
        """The streams and their local readers."""
        return self._dispatcher.router

    @property
    def id(self) -> str:
        """The id of the space.

        A welcome does not contain it (protocol, Welcome). A client that requested no space by name is in the gateway's
        first space, which all participants can call "default" (protocol, Join message). This property then returns
        "default" until the first stream of the space shows the real id.
        """
        return self._dispatcher.router.space or self.session.target.space_id

    @property
    def participant_id(self) -> str:
        """The id of this participant."""
        return self._dispatcher.participant_id

    @property
    def last_welcome(self) -> Envelope | None:
        """The last welcome, with the full state of the space; None before the first one."""
        return self._dispatcher.last_welcome

    @property
    def connection(self) -> Connection | None:
        """The current connection; None while disconnected."""
        return self.session.connection

    def now(self) -> float:
        """The gateway's time in seconds since 1970, estimated from its latest welcome. Compare `expires_at` with it."""
        return asyncio.get_running_loop().time() + self._dispatcher.clock_offset

    async def connected(self) -> None:
        """Wait until connected. If the client has stopped reconnecting, raise the reason."""
        await self.session.connected()

    def can(self, envelope: Mapping[str, Any]) -> bool:
        """Whether this participant may send an envelope, by its capabilities or as owner or writer of a stream.

        It uses the gateway's own matching code. It does not know whether this participant is paused or over the rate
        limit, nor whose votes an approval rule requires.
        """
        return is_permitted(self._dispatcher.router.uncounted_view, envelope)

    # Subscriptions

    def envelopes(
        self,
        kind: str | None = None,
        *,
        sender: str | None = None,
        to: str | None = None,
        correlation_id: str | None = None,
        on_overflow: OnOverflow | None = None,
    ) -> Subscription[Envelope]:
        """Subscribe to envelopes from now on, including your own. `kind` may be a pattern such as `mcp/*`.

        Patterns work as in capabilities. If the reader is too slow, envelopes are dropped. At the position of the gap
        the iterator raises `SubscriptionOverflow` once, or calls `on_overflow` with the number of missing envelopes.
        """
        pattern = None if kind is None else KindPattern.parse(kind)
        envelope_filter = EnvelopeFilter(pattern, sender, to, correlation_id)
        return self.subscribe(EnvelopeQueue(envelope_filter, self.queue_limits, on_overflow))

    def subscribe(self, queue: EnvelopeQueue) -> Subscription[Envelope]:
        """Subscribe to envelopes from now on with a queue that selects which ones it takes."""
        return self._dispatcher.read_envelopes(queue)

    @overload
    def frames(
        self,
        stream_id: str | None = None,
        *,
        namespace: str | None = None,
        format: type[T],
        on_gap: OnGap | None = None,
    ) -> Subscription[Frame[T]]: ...

    @overload
    def frames(
        self,
        stream_id: str | None = None,
        *,
        namespace: str | None = None,
        format: Any = None,
        on_gap: OnGap | None = None,
    ) -> Subscription[Frame[Any]]: ...

    def frames(
        self,
        stream_id: str | None = None,
        *,
        namespace: str | None = None,
        format: Any = None,  # noqa: A002
        on_gap: OnGap | None = None,
    ) -> Subscription[Frame[Any]]:
        """Subscribe to raw frames and `stream/data` from now on, of all streams or of those selected.

        Select one stream by id, the streams below a namespace, or the streams with a format. If the reader is too slow,
        the oldest frames are dropped. `on_gap` is called with each gap, before the frame that follows it. A
        subscription to one stream ends when the stream ends.
        """
        selected = None if format is None else format_id(format)
        decode = None if format is None else decoder(format)
        queue = FrameQueue(self.queue_limits, format_id=selected, decode=decode, on_gap=on_gap)
        return self._dispatcher.read_frames(queue, StreamFilter(stream_id, namespace, selected))

    def messages(self, *, on_overflow: OnOverflow | None = None) -> Subscription[Message]:
        """Subscribe to all envelopes and raw frames from now on, in the order received."""
        return self._dispatcher.read_messages(ItemQueue(self.queue_limits, on_overflow))

    def events(self, *, on_overflow: OnOverflow | None = None) -> Subscription[Event]:
        """Subscribe to events of streams, participants and the connection. Existing streams are reported first."""
        return self._dispatcher.read_events(ItemQueue(self.queue_limits, on_overflow))

    async def wait_for(self, predicate: Callable[[Envelope], bool], timeout: float | None = None) -> Envelope:
        """Return the first envelope from now on for which `predicate` returns true.

        It keeps waiting while the client reconnects. Raises `RequestTimeout` after `timeout` seconds.
        """
        waiter = self._waiter(predicate)
        self._dispatcher.waiters += (waiter,)
        try:
            return await _within(timeout, waiter.future)
        finally:
            self._dispatcher.waiters = tuple(other for other in self._dispatcher.waiters if other is not waiter)

    async def wait_until(self, predicate: Callable[[SpaceView], bool], timeout: float | None = None) -> SpaceView:
        """Wait until `predicate` returns true for the view, and return the view.

        The predicate is not called for changes of frame counts alone. Raises `RequestTimeout` after `timeout` seconds.
        """
        if predicate(self.view):
            return self.view
        waiter = self.watch_view(predicate)
        try:
            return await _within(timeout, waiter.future)
        finally:
            self.unwatch_view(waiter)

    def watch_view(self, predicate: Callable[[SpaceView], bool]) -> Waiter:
        """Call `predicate` at every change of the view until it returns true or `unwatch_view` is called."""
        waiter = self._waiter(predicate)
        self._dispatcher.view_waiters += (waiter,)
        return waiter

    def unwatch_view(self, waiter: Waiter) -> None:
        """Stop calling the predicate of this waiter."""
        self._dispatcher.view_waiters = tuple(other for other in self._dispatcher.view_waiters if other is not waiter)
        waiter.forget()

    def _waiter(self, predicate: Callable[[Any], bool]) -> Waiter:
        if self.session.end_reason is not None:
            self.session.require()
        return Waiter(predicate)

    # Sending

    async def send(
        self, kind: str, payload: Any = None, *, to: Names = (), correlation_id: Names = (), context: Any = None
    ) -> Envelope:
        """Send an envelope once and wait until the gateway accepts it, by its echo or the gateway's answer.

        Raises `Refused` if the gateway rejects it. Raises `ConnectionLost` if the connection breaks first; its
        `unconfirmed` is true if the envelope was in flight. The gateway does not answer a heartbeat, so this does not
        wait for one.
        """
        return await self.post(
            OutgoingEnvelope(kind=kind, payload=payload, to=to, correlation_id=correlation_id, context=context)
        )

    async def post(self, draft: OutgoingEnvelope, accepts: Accepts | None = None) -> Envelope:
        """Send a draft and wait for its echo, or for the answer for which `accepts` returns true."""
        return await self._sender.post(reasoning.in_context(self, draft), accepts)

    async def flush(self) -> None:
        """Wait until the gateway has handled everything that this client has sent, frames included.

        Frames have no confirmation of their own. Raises `ConnectionLost` if the connection breaks first, `RateLimited`
        if this client is over the rate limit: then the gateway may have dropped earlier messages without an answer.
        """
        await self._sender.flush()

    async def chat(self, text: str, *, to: Names = ()) -> Envelope:
        """Send a chat message."""
        return await self.send(kinds.CHAT, {"text": text}, to=to)

    async def request(
        self,
        kind: str,
        payload: Any = None,
        *,
        to: Names = (),
        answer: str | Accepts | None = None,
        timeout: float | None = ANSWER_TIMEOUT,
    ) -> Envelope:
        """Send an envelope and return its answer: the first envelope that has its id in `correlation_id`.

        `answer` limits which envelopes count as the answer: a kind, a pattern of kinds, or a predicate. Raises
        `RequestTimeout` after `timeout` seconds.
        """
        pending = self.post(OutgoingEnvelope(kind=kind, payload=payload, to=to), _accepting(answer))
        return await _within(timeout, pending)

    # Streams

    def stream(self, stream_id: str) -> Stream:
        """Return a handle for the stream with this id, whether or not the stream exists."""
        return Stream(self, stream_id)

    async def open_stream(self, **request: Any) -> Stream:
        """Open a stream that is live immediately (`stream/request`); `formats` may contain types."""
        opened = await self._ask_for_stream(kinds.STREAM_REQUEST, kinds.STREAM_OPEN, request)
        return self.stream(opened.payload["stream_id"])

    async def announce_stream(self, formats: Iterable[Any], **fields: Any) -> Stream:
        """Announce a stream (`stream/announce`); `stream.start()` makes it live. `formats` may contain types."""
        readied = await self._ask_for_stream(kinds.STREAM_ANNOUNCE, kinds.STREAM_READY, {**fields, "formats": formats})
        return self.stream(readied.payload["stream"]["stream_id"])

    async def _ask_for_stream(self, kind: str, answer: str, fields: dict[str, Any]) -> Envelope:
        formats = fields.get("formats")
        payload = fields if formats is None else {**fields, "formats": descriptors(formats)}

        def is_answer(envelope: Envelope) -> bool:
            return envelope.kind == answer and envelope.sender == kinds.GATEWAY

        return await self.post(OutgoingEnvelope(kind=kind, payload=payload), is_answer)

    # MCP requests to other participants

    call = calls.call
    call_tool = calls.call_tool
    list_tools = calls.fetch_tools
    list_resources = calls.fetch_resources
    list_resource_templates = calls.fetch_resource_templates
    read_resource = calls.read_resource
    list_prompts = calls.fetch_prompts
    get_prompt = calls.get_prompt
    propose = own_proposals.send_proposal
    proposals = approvals.proposals

    # Reasoning

    reasoning = reasoning.reasoning

    # Control of other participants

    pause = control.send_pause
    resume = control.send_resume
    status = control.request_status
    forget = control.send_forget
    compact = control.request_compact
    clear = control.send_clear
    restart = control.send_restart
    shutdown = control.send_shutdown

    # Closing

    async def close(self) -> None:
        """Leave the space. Subscriptions end, and calls that are still waiting raise `ConnectionLost`."""
        await self.session.close()


def _accepting(answer: str | Accepts | None) -> Accepts:
    if answer is None:
        return lambda _: True
    if isinstance(answer, str):
        pattern = KindPattern.parse(answer)
        return lambda envelope: pattern.matches(envelope.kind)
    return answer


async def _within(seconds: float | None, waiting: Awaitable[T]) -> T:
    """Wait at most `seconds`; then raise `RequestTimeout`. None: no limit."""
    if seconds is None:
        return await waiting
    try:
        async with asyncio.timeout(seconds) as limit:
            return await waiting
    except TimeoutError:
        if not limit.expired():
            raise
        raise RequestTimeout(f"no matching message or state within {seconds:g} s") from None
