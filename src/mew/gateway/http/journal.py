"""The journal over HTTP: a page of records, or a live stream of them (`GET /spaces/{id}/journal`).

Threads read the files, never the event loop. `journal_access` decides which records the caller may see.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mew._internal.logging import log
from mew.gateway.gateway import Gateway
from mew.gateway.http.exchange import Exchange, admit, credentials, exchange_of
from mew.gateway.http.responses import JournalPageBody
from mew.gateway.hub import Hub
from mew.gateway.journal_access import JournalAccess, StreamAudiences
from mew.gateway.journaling import OpenJournal
from mew.journal import JournalError
from mew.journal.export import RecordBody, record_body, without_line_breaks
from mew.journal.reader import JournalCursor
from mew.protocol import Identity, JoinRequest, ProtocolError, Record, raw_json, records
from mew.protocol.errors import InternalError, InvalidRequest, NotFound, QuotaExceeded
from mew.protocol.timestamps import SECOND, rfc3339
from mew.protocol.work import BYTES_PER_UNIT, MESSAGE_UNITS

JOURNAL_PATH: Final = "/spaces/{id}/journal"
EVENT_STREAM: Final = "text/event-stream"
USUAL_LIMIT: Final = 1_000
MOST_LIMIT: Final = 10_000
POSITION_DIGITS: Final = 18
STEP_RECORDS: Final = 1_000
STEP_BYTES: Final = 128 * 2**10
"""Bytes read and sent in one step of the live stream."""
READERS: Final = 2
"""Number of threads that read concurrently; further requests wait."""
_LOOK_SECONDS: Final = 0.05
MOST_WAIT_SECONDS: Final = 1.0
"""Longest wait of a reader over budget, in seconds: its token is checked again after that."""
MOST_CHECKED: Final = 10_000
_HEADERS: Final = {"cache-control": "no-store"}
_REFUSALS: Final = frozenset({records.REJECTED, records.FRAME_REJECTED})
"""All callers may see that a message was rejected and why, but not its content."""


class JournalQuery(msgspec.Struct, frozen=True):
    """The parameters of a request."""

    start: int
    limit: int
    control: bool


class _Known:
    """Data about the journal of a space that is cached between requests."""

    def __init__(self) -> None:
        self.targets = StreamAudiences()
        self.checked: set[tuple[object, ...]] = set()
        """Files whose checksums have been verified."""


class JournalApi:
    """The journal endpoint of one gateway. Requires a token."""

    def __init__(self, gateway: Gateway) -> None:
        """Serve this gateway."""
        self._gateway = gateway
        self._options = gateway.options.journal_api
        self._reading = asyncio.Semaphore(READERS)
        self._live: Counter[Identity] = Counter()
        """Number of live readers by the identity of their token."""
        self._known: dict[str, _Known] = {}

    async def read(self, request: Request) -> Response:
        """Return a page of records, or the live stream if the `Accept` header requests it."""
        join = _credentials(request)
        journal, identity = self._admitted(join)
        admit(request)
        query = _asked(request)
        hub, payer = self._hub_of(journal), self._gateway.lobby.payer(join)
        hub.space.budgets.require(payer, hub.space.settings.limits, hub.clock())
        if EVENT_STREAM not in request.headers.get("accept", ""):
            page = await self._page(journal, identity, query)
            _charge(hub, payer, len(page.body))
            return page
        query = _resumed(request, query)
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM, headers=_HEADERS)
        self._require_room(hub, identity)
        reader = LiveReader(join, identity, exchange_of(request.scope))
        return _Events(self._events(reader, journal, query), media_type=EVENT_STREAM, headers=_HEADERS)

    def _require_room(self, hub: Hub, identity: Identity) -> None:
        """Raise `QuotaExceeded` if the gateway or the participant already has the maximum number of live readers."""
        own, most = self._live[identity], hub.space.settings.limits.live_readers_per_participant
        if own >= most:
            raise QuotaExceeded(
                f"{identity.participant!r} follows {own} live journals, which is the limit: end one first",
                quota="live_readers_per_participant",
                limit=most,
                value=own + 1,
            )
        live = self._live.total()
        if live >= self._options.live_readers:
            raise QuotaExceeded(
                f"{live} readers follow a live journal of this gateway, the most that may: try again later",
                quota="live_readers",
                limit=self._options.live_readers,
                value=live + 1,
            )

    def _admitted(self, join: JoinRequest) -> tuple[OpenJournal, Identity]:
        """Return the requested journal and the identity of the caller."""
        name = self._gateway.lobby.look_in(join).settings.space_id
        identity = self._gateway.tokens.identify(str(join.token))
        journal = self._gateway.journals.open_journals.get(name)
        if journal is None or identity is None:
            raise NotFound(f"the space {name!r} keeps no journal")
        return journal, identity

    def _hub_of(self, journal: OpenJournal) -> Hub:
        return self._gateway.hubs[journal.folder.space]

    def _steps(
        self, journal: OpenJournal, identity: Identity, query: JournalQuery
    ) -> tuple[JournalCursor, JournalAccess]:
        folder = journal.folder
        cache = self._known.setdefault(folder.space, _Known())
        if len(cache.checked) > MOST_CHECKED:
            cache.checked = set()
        steps = JournalCursor(folder.root, folder.space, query.start, control=query.control, checked=cache.checked)
        return steps, JournalAccess(identity, cache.targets, steps)

    # A page

    async def _page(self, journal: OpenJournal, identity: Identity, query: JournalQuery) -> Response:
        steps, onlooker = self._steps(journal, identity, query)

        def read() -> bytes:
            first = steps.first
            taken = steps.read(query.limit, self._options.page_bytes)
            steps.release()
            last = max([journal.writer.written, *(record.position for record in taken[-1:])])
            listed = msgspec.Raw(raw_json.array(record_as_json(record, onlooker) for record in taken))
            return raw_json.encode_json(
                JournalPageBody(journal.folder.space, first, None if last < 0 else last, listed, steps.position)
            )

        try:
            async with self._reading:
                body = await run_in_threadpool(read)
        except JournalError as problem:
            raise _unreadable(journal, steps, problem) from None
        return Response(body, media_type="application/json", headers=_HEADERS)

    # The live stream

    async def _events(
        self, reader: "LiveReader", journal: OpenJournal, query: JournalQuery
    ) -> AsyncGenerator[bytes, None]:
        """Yield events while the client is connected, its token is valid and the gateway serves."""
        loop, payer = asyncio.get_running_loop(), self._gateway.lobby.payer(reader.join)
        identity, hub = reader.identity, self._hub_of(journal)
        steps, onlooker = self._steps(journal, identity, query)
        self._live[identity] += 1
        heard = loop.time()
        try:
            while True:
                before, chunk = steps.position, b""
                if journal.writer.written >= steps.position:
                    async with self._reading:
                        chunk = await run_in_threadpool(_step, steps, onlooker)
                elif loop.time() - heard >= self._options.heartbeat_seconds:
                    chunk = b":\n\n"
                # Check after the read: a participant removed in the meantime must not see later records.
                if not self._goes_on(reader):
                    return
                if chunk:
                    _charge(hub, payer, len(chunk))
                    slow = loop.call_later(self._options.slow_seconds, steps.release)
                    try:
                        yield chunk
                    finally:
                        slow.cancel()
                    heard = loop.time()
                elif steps.position == before:
                    await reader.wait(_LOOK_SECONDS)
                await self._settled(reader, hub, payer)
        except JournalError as problem:
            _unreadable(journal, steps, problem)
        finally:
            self._live[identity] -= 1
            if not self._live[identity]:
                del self._live[identity]
            steps.release()

    async def _settled(self, reader: "LiveReader", hub: Hub, payer: str) -> None:
        """Delay a reader that is over its budget, by at most `MOST_WAIT_SECONDS`. It loses no records."""
        space = hub.space
        wait = space.budgets.owed(payer, hub.clock())
        if wait:
            await reader.wait(min(wait / SECOND, MOST_WAIT_SECONDS))

    def _goes_on(self, reader: "LiveReader") -> bool:
        """Return whether the client is connected, the gateway serves and the token is valid."""
        if reader.gone or self._gateway.readiness.phase != "ready":
            return False
        try:
            self._gateway.lobby.look_in(reader.join)
        except ProtocolError:
            return False
        return True


def _charge(hub: Hub, payer: str, size: int) -> None:
    """Charge the caller for the data returned."""
    work = MESSAGE_UNITS + size // BYTES_PER_UNIT
    hub.space.charge(payer, hub.clock(), work=work, size=size)


class LiveReader(msgspec.Struct, frozen=True):
    """A client that follows a live journal, and its connection."""

    join: JoinRequest
    identity: Identity
    exchange: Exchange | None

    @property
    def gone(self) -> bool:
        """Whether the client has disconnected."""
        return self.exchange is not None and self.exchange.lost

    async def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the client disconnects."""
        await (asyncio.sleep(seconds) if self.exchange is None else self.exchange.wait(seconds))


class _Events(StreamingResponse):
    """A streaming response that always closes its iterator, however the response ends.

    It does not use a task group as Starlette does: when the peer disconnects, the cancelled group would leave a
    reference cycle that includes the connection.
    """

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await self.stream_response(send)

    async def stream_response(self, send: Send) -> None:
        iterator = self.body_iterator
        assert isinstance(iterator, AsyncGenerator)
        async with aclosing(iterator):
            await super().stream_response(send)


def _credentials(request: Request) -> JoinRequest:
    """Return the caller's credentials. The path names the space."""
    request_credentials = credentials("", request.headers.get("authorization"))
    return JoinRequest(space=request.path_params["id"], token=request_credentials.token)


def _asked(request: Request) -> JournalQuery:
    query = request.query_params
    limit = _number("limit", query.get("limit", str(USUAL_LIMIT)), MOST_LIMIT)
    if not limit:
        raise InvalidRequest("`limit` must be at least 1")
    start = _number("from", query.get("from", "0"))
    return JournalQuery(start, limit, bool(_number("control", query.get("control", "0"), 1)))


def _resumed(request: Request, query: JournalQuery) -> JournalQuery:
    """Start after the last event that the reader has seen, if it sends `Last-Event-ID`."""
    last = request.headers.get("last-event-id")
    if not last:
        return query
    return msgspec.structs.replace(query, start=_number("Last-Event-ID", last) + 1)


def _number(name: str, text: str, most: int | None = None) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= POSITION_DIGITS):
        raise InvalidRequest(f"`{name}` must be a whole number")
    if most is not None and int(text) > most:
        raise InvalidRequest(f"`{name}` may be {most} at most")
    return int(text)


def _step(steps: JournalCursor, onlooker: JournalAccess) -> bytes:
    """Return the next events, encoded. Empty if only frames arrived and the reader does not want them."""
    return b"".join(
        b"id: %d\nevent: %b\ndata: %b\n\n"
        % (record.position, record.event.encode(), without_line_breaks(record_as_json(record, onlooker)))
        for record in steps.read(STEP_RECORDS, STEP_BYTES)
    )


def record_as_json(record: Record, onlooker: JournalAccess) -> bytes:
    """Return a record as JSON, reduced to what the caller may see."""
    if not onlooker.sees(record):
        body = RecordBody(record.position, rfc3339(record.time), record.event, withheld=True)
        if record.frame_number is not None:
            body.kind, body.stream_id, body.frame_number = record.kind, record.stream_id, record.frame_number
        elif record.event in _REFUSALS:
            body.participant, body.kind, body.reason = record.participant, record.kind, record.reason
            body.stream_id, body.size = record.stream_id, record.size
        return raw_json.encode_json(body)
    body = record_body(record)
    if record.event == records.FRAME:
        body.payload_base64 = record.payload
    else:
        body.payload = msgspec.Raw(record.payload) if record.payload else None
    return raw_json.encode_json(body)


def _unreadable(journal: OpenJournal, steps: JournalCursor, problem: Exception) -> InternalError:
    """Log the problem for the operator and return an error that contains only the position."""
    log.error("journal unreadable", space=journal.folder.space, position=steps.position, error=str(problem))
    return InternalError(f"the journal cannot be read at position {steps.position}; the gateway's log says more")
