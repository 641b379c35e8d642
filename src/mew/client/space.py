"""A space as a participant sees and uses it: everything a program needs, once it is in.

What is here is the public face; each thing is done by the module of its name. Some methods are functions of such a
module, whose first argument is the space.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from mew.client import approvals, control, reasoning
from mew.client import proposals as own_proposals
from mew.client.connection import Connection
from mew.client.dispatcher import Inbox, Message, Watcher
from mew.client.errors import RequestTimeout
from mew.client.events import Event
from mew.client.frames import Frame, decoder, descriptors, format_id
from mew.client.handshake import Settings, Target
from mew.client.mcp import calls
from mew.client.pending import Accepts, Answers
from mew.client.permissions import may_send
from mew.client.sender import Draft, Names, Sender
from mew.client.session import Link
from mew.client.stream_router import Interest, Lanes
from mew.client.streams import Stream
from mew.client.subscriptions import EnvelopeQueue, FrameQueue, ItemQueue, OnGap, OnMissed, Room, Subscription, Wanted
from mew.protocol import kinds
from mew.protocol.envelope import Envelope
from mew.protocol.patterns import KindPattern
from mew.view import SpaceView

T = TypeVar("T")
ANSWER_SECONDS = 60.0
"""How long a request waits for its answer, unless told otherwise."""


class Space:
    """A space that we are in. `connect` makes it; `close`, or the end of `async with`, ends it."""

    def __init__(self, target: Target, settings: Settings) -> None:
        """Not in yet."""
        self._answers = Answers(self._fence)
        self._inbox = Inbox(self._answers, self.stream)
        self.room = Room(settings.queue, settings.queue_bytes)
        """How much a subscription holds while it is not read."""
        self.link = Link(target, settings, self._inbox)
        self._sender = Sender(self.link, self._inbox, self._answers)
        self.sequences: dict[str, int] = {}
        """Our last number on each stream."""

    def _fence(self, fence_id: str) -> None:
        self._sender.fence(fence_id)

    def __repr__(self) -> str:
        return f"<Space {self.id!r} as {self.me!r}>"

    # What is known

    @property
    def view(self) -> SpaceView:
        """The space as it is now: who is present, what each may do, which streams there are."""
        return self._inbox.lanes.view

    @property
    def lanes(self) -> Lanes:
        """The streams and who reads them here."""
        return self._inbox.lanes

    @property
    def id(self) -> str:
        """What the space is called.

        A welcome does not say it (protocol, Welcome). Who asked for none by name is in the gateway's first, "default"
        to everybody (protocol, Join message), and learns its own name from the first stream there is.
        """
        return self._inbox.lanes.space or self.link.target.space_id

    @property
    def me(self) -> str:
        """Our participant id."""
        return self._inbox.me

    @property
    def latest_welcome(self) -> Envelope | None:
        """The last thing the gateway told us of everything."""
        return self._inbox.latest_welcome

    @property
    def connection(self) -> Connection | None:
        """The socket there is now; None while there is none."""
        return self.link.connection

    def now(self) -> float:
        """The gateway's time in seconds since 1970, as its latest welcome told it: what `expires_at` is measured by."""
        return asyncio.get_running_loop().time() + self._inbox.ahead

    async def connected(self) -> None:
        """Wait until there is a connection; raises why where there never will be one again."""
        await self.link.connected()

    def can(self, envelope: Mapping[str, Any]) -> bool:
        """Whether the gateway would let us send this: by our capabilities, or as owner or writer of a stream.

        By the gateway's own matcher. That we are paused, or too quick, it cannot know, nor whose votes a rule asks for.
        """
        return may_send(self._inbox.lanes.known, envelope)

    # Listening

    def envelopes(
        self,
        kind: str | None = None,
        *,
        sender: str | None = None,
        to: str | None = None,
        correlation_id: str | None = None,
        on_missed: OnMissed | None = None,
    ) -> Subscription[Envelope]:
        """Envelopes from now on, our own included; `kind` may be a pattern as in capabilities, `mcp/*`.

        Who reads too slowly finds the place where some are missing: `Missed` is raised there once, or `on_missed` is
        told how many.
        """
        pattern = None if kind is None else KindPattern.parse(kind)
        wanted = Wanted(pattern, sender, to, correlation_id)
        return self.subscribe(EnvelopeQueue(wanted, self.room, on_missed))

    def subscribe(self, queue: EnvelopeQueue) -> Subscription[Envelope]:
        """Envelopes from now on, into a queue that has its own mind about which."""
        return self._inbox.read_envelopes(queue)

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
        """Frames and data from now on: of one stream, of those below a namespace, of those with a format, or all.

        Who reads too slowly loses the oldest. `on_gap` is told what is missing, before the frame that comes after it.
        Reading one stream ends with the stream.
        """
        named = None if format is None else format_id(format)
        decode = None if format is None else decoder(format)
        queue = FrameQueue(self.room, format_id=named, decode=decode, on_gap=on_gap)
        return self._inbox.read_frames(queue, Interest(stream_id, namespace, named))

    def messages(self, *, on_missed: OnMissed | None = None) -> Subscription[Message]:
        """Envelopes and frames from now on, all of them, in the order in which they came."""
        return self._inbox.read_messages(ItemQueue(self.room, on_missed))

    def events(self, *, on_missed: OnMissed | None = None) -> Subscription[Event]:
        """What happens from now on: streams, participants, our connection; first, each stream there is."""
        return self._inbox.read_events(ItemQueue(self.room, on_missed))

    async def wait_for(self, predicate: Callable[[Envelope], bool], timeout: float | None = None) -> Envelope:
        """The first envelope from now on that the predicate says yes to; a broken connection is waited out."""
        watcher = self._watcher(predicate)
        self._inbox.watchers += (watcher,)
        try:
            return await _within(timeout, watcher.future)
        finally:
            self._inbox.watchers = tuple(each for each in self._inbox.watchers if each is not watcher)

    async def until(self, predicate: Callable[[SpaceView], bool], timeout: float | None = None) -> SpaceView:
        """Wait until the view is as the predicate wants it; counts of frames alone are no reason to look again."""
        if predicate(self.view):
            return self.view
        watcher = self.watch_view(predicate)
        try:
            return await _within(timeout, watcher.future)
        finally:
            self.unwatch_view(watcher)

    def watch_view(self, predicate: Callable[[SpaceView], bool]) -> Watcher:
        """Ask this at every change of the view, until it says yes or `unwatch_view` is called."""
        watcher = self._watcher(predicate)
        self._inbox.view_watchers += (watcher,)
        return watcher

    def unwatch_view(self, watcher: Watcher) -> None:
        """Ask it no more."""
        self._inbox.view_watchers = tuple(each for each in self._inbox.view_watchers if each is not watcher)
        watcher.forget()

    def _watcher(self, predicate: Callable[[Any], bool]) -> Watcher:
        if self.link.over is not None:
            self.link.require()
        return Watcher(predicate)

    # Speaking

    async def send(
        self, kind: str, payload: Any = None, *, to: Names = (), correlation_id: Names = (), context: Any = None
    ) -> Envelope:
        """Send an envelope, once, and wait until the gateway has taken it: its echo, or the gateway's answer.

        `Refused` where it is not taken. `ConnectionLost` where the connection breaks first; its `unconfirmed` says
        whether the envelope was on its way. A heartbeat is not answered, and not waited for.
        """
        return await self.post(Draft(kind=kind, payload=payload, to=to, correlation_id=correlation_id, context=context))

    async def post(self, draft: Draft, accepts: Accepts | None = None) -> Envelope:
        """Send a draft and wait for its echo, or for what `accepts` says yes to."""
        return await self._sender.post(reasoning.in_context(self, draft), accepts)

    async def chat(self, text: str, *, to: Names = ()) -> Envelope:
        """Say something."""
        return await self.send(kinds.CHAT, {"text": text}, to=to)

    async def request(
        self,
        kind: str,
        payload: Any = None,
        *,
        to: Names = (),
        answer: str | Accepts | None = None,
        timeout: float | None = ANSWER_SECONDS,
    ) -> Envelope:
        """Send an envelope and wait for what answers it: the first that names it in `correlation_id`.

        `answer` narrows that down: a kind or a pattern of kinds, or a predicate.
        """
        pending = self.post(Draft(kind=kind, payload=payload, to=to), _accepting(answer))
        return await _within(timeout, pending)

    # Streams

    def stream(self, stream_id: str) -> Stream:
        """The stream of this id."""
        return Stream(self, stream_id)

    async def open_stream(self, **request: Any) -> Stream:
        """Open a stream that is live at once (`stream/request`); `formats` may be types."""
        opened = await self._ask_for_stream(kinds.STREAM_REQUEST, kinds.STREAM_OPEN, request)
        return self.stream(opened.payload["stream_id"])

    async def announce_stream(self, formats: Iterable[Any], **fields: Any) -> Stream:
        """Announce a stream (`stream/announce`); `stream.start()` makes it live. A format may be a type."""
        readied = await self._ask_for_stream(kinds.STREAM_ANNOUNCE, kinds.STREAM_READY, {**fields, "formats": formats})
        return self.stream(readied.payload["stream"]["stream_id"])

    async def _ask_for_stream(self, kind: str, answer: str, fields: dict[str, Any]) -> Envelope:
        formats = fields.get("formats")
        payload = fields if formats is None else {**fields, "formats": descriptors(formats)}

        def is_answer(envelope: Envelope) -> bool:
            return envelope.kind == answer and envelope.sender == kinds.GATEWAY

        return await self.post(Draft(kind=kind, payload=payload), is_answer)

    # Asking others by MCP

    call = calls.call
    call_tool = calls.call_tool
    list_tools = calls.list_tools
    list_resources = calls.list_resources
    list_resource_templates = calls.list_resource_templates
    read_resource = calls.read_resource
    list_prompts = calls.list_prompts
    get_prompt = calls.get_prompt
    propose = own_proposals.propose
    proposals = approvals.proposals

    # Thinking aloud

    reasoning = reasoning.reasoning

    # Steering others

    pause = control.pause
    resume = control.resume
    status = control.status
    forget = control.forget
    compact = control.compact
    clear = control.clear
    restart = control.restart
    shutdown = control.shutdown

    # Leaving

    async def close(self) -> None:
        """Leave. Whoever reads stops, whoever waits is told."""
        await self.link.close()


def _accepting(answer: str | Accepts | None) -> Accepts:
    if answer is None:
        return lambda _: True
    if isinstance(answer, str):
        pattern = KindPattern.parse(answer)
        return lambda envelope: pattern.matches(envelope.kind)
    return answer


async def _within(seconds: float | None, waiting: Awaitable[T]) -> T:
    """Wait, but no longer than this."""
    if seconds is None:
        return await waiting
    try:
        async with asyncio.timeout(seconds) as limit:
            return await waiting
    except TimeoutError:
        if not limit.expired():
            raise
        raise RequestTimeout(f"nothing came within {seconds:g} s") from None
