"""Answers the MCP requests that are addressed to this participant, with limited concurrency.

It passes each request to an `McpHandler` and sends the answer back. The server interprets the request. Each request is
answered once: if it is unknown whether the gateway accepted an answer, the answer is not sent again.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from mew.client.connection import Connection
from mew.client.control import ControlHandler
from mew.client.errors import (
    ConnectionLost,
    InvalidEnvelope,
    McpError,
    MessageTooLarge,
    MewError,
    Paused,
    RateLimited,
    RequestTimeout,
)
from mew.client.mcp import INTERNAL_ERROR, INVALID_PARAMS, Error
from mew.client.sender import OutgoingEnvelope
from mew.client.subscriptions import Subscription
from mew.client.tasks import TaskSet, first_completed
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

if TYPE_CHECKING:
    from mew.client.space import Space


__all__ = ["NOTIFICATION", "McpError", "McpHandler", "context_of", "current_request", "notify", "serve"]

NOTIFICATION: Final = "mcp/notification"
"""A kind that the gateway does not define; it relays the envelope if a capability allows it."""
ANSWER_RETRY_SECONDS: Final = 0.5
"""Retry delay in seconds for an answer that was rejected temporarily."""
CLOSE_WAIT_SECONDS: Final = 5.0
"""Timeout in seconds for the gateway to close the connection after a message that was too large."""
_request: ContextVar[Envelope] = ContextVar("mew request")
_log = logging.getLogger("mew.client")


class McpHandler(Protocol):
    """An object that answers MCP requests: your own tools, or a server behind a bridge."""

    async def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of a request, or raise `McpError`."""
        ...


def current_request() -> Envelope:
    """Return the `mcp/request` that is being answered, for example to find its sender in a tool.

    Raises `LookupError` outside of a request.
    """
    return _request.get()


async def serve(
    space: "Space", server: McpHandler, *, concurrency: int = 16, controls: ControlHandler | None = None
) -> None:
    """Answer every `mcp/request` addressed to this participant until the space ends or the participant is shut down.

    At most `concurrency` requests run concurrently; the others wait. `controls` has the hooks for pause, shutdown and
    other control requests, which are carried out even without hooks. An exception in the server is sent as an error and
    does not end this call. Cancelling this call cancels the requests that are running.
    """
    await McpService(space, server, concurrency=concurrency, controls=controls).run()


class McpService:
    """Serves requests. It subscribes when it is created; requests that arrive before `run` are queued."""

    def __init__(
        self, space: "Space", server: McpHandler, *, concurrency: int = 16, controls: ControlHandler | None = None
    ) -> None:
        """Subscribe to requests and control requests; the arguments are those of `serve`."""
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: a service needs at least 1 concurrent request")
        self._space = space
        self._controls = ControlHandler() if controls is None else controls
        self._queue = _RequestQueue(space, server, self._controls, concurrency)
        self._requests = space.envelopes(kinds.MCP_REQUEST, to=space.participant_id, on_overflow=_log_dropped)
        self._control_requests = space.envelopes("participant/*", to=space.participant_id, on_overflow=_log_dropped)

    async def run(self, *others: Coroutine[Any, Any, Any]) -> None:
        """Serve until the space ends, the participant is shut down, or one of the other coroutines ends."""
        answering = self._queue.answer_all(self._requests)
        handling = self._controls.handle_requests(self._space, self._control_requests)
        async with self._requests, self._control_requests:
            await first_completed(f"mew client: {self._space.participant_id} serves", answering, handling, *others)


async def notify(space: "Space", method: str, params: Mapping[str, Any] | None = None) -> bool:
    """Send an MCP notification to all participants, such as `notifications/tools/list_changed`.

    Returns False, and sends nothing, if this participant may not send it. The kind is `mcp/notification`. The protocol
    does not define it, but relays unknown kinds: it needs a separate capability.
    """
    payload = {"method": method} if params is None else {"method": method, "params": params}
    if not space.can({"kind": NOTIFICATION, "payload": payload}):
        return False
    await space.send(NOTIFICATION, payload)
    return True


def context_of(envelope: Envelope) -> Any:
    """Return the `context` of an envelope, to be sent on unchanged; None if it has none."""
    text = envelope.fields.get("context")
    return None if text is None or text == b"null" else msgspec.Raw(text)


def _log_dropped(count: int) -> None:
    _log.warning("%d requests came faster than they were taken, and were lost", count)


class _RequestQueue:
    """Takes requests from the queue and sends their answers."""

    def __init__(self, space: "Space", server: McpHandler, controls: ControlHandler, concurrency: int) -> None:
        self._space = space
        self._server = server
        self._controls = controls
        self._free = asyncio.Semaphore(concurrency)

    async def answer_all(self, requests: Subscription[Envelope]) -> None:
        """Answer requests until the subscription ends."""
        tasks = TaskSet(f"mew client: {self._space.participant_id} answers")
        try:
            async for request in requests:
                await self._free.acquire()
                await self._controls.wait_until_resumed()
                tasks.start(self._handle(request))
        finally:
            await tasks.cancel_all()

    async def _handle(self, request: Envelope) -> None:
        try:
            _request.set(request)
            await self._deliver(request, await self._payload(request))
        except MewError as error:
            _log.info("the answer to %r of %s was not sent: %s", request.id, request.sender, error)
        finally:
            self._free.release()

    async def _payload(self, request: Envelope) -> dict[str, Any]:
        """Return the payload of the answer: a result, or an error if the request fails in any way."""
        method, params = request.payload["method"], request.payload.get("params")
        try:
            if params is not None and not isinstance(params, dict):
                raise McpError(INVALID_PARAMS, "`params` must be an object")
            return {"result": await self._server.answer(method, params or {})}
        except McpError as failure:
            return _error_payload(failure)
        except Exception as error:  # an error in the server must not stop later requests
            _log.warning("%s failed", method, exc_info=True)
            return _error_payload(McpError(INTERNAL_ERROR, str(error) or type(error).__name__))

    async def _deliver(self, request: Envelope, payload: dict[str, Any]) -> None:
        """Send the answer. Retry only if the gateway has certainly not accepted it."""
        while True:
            connection = self._space.connection
            try:
                await self._space.post(_response(request, payload))
                return
            except (TypeError, ValueError, InvalidEnvelope):
                if payload is _NOT_SENDABLE:
                    raise
                _log.warning("the answer to %s cannot be sent", request.payload["method"], exc_info=True)
                payload = _NOT_SENDABLE
            except MessageTooLarge as error:
                payload = _error_payload(McpError(INTERNAL_ERROR, f"the result is too large: {error}"))
                await _wait_closed(connection)
                await self._space.connected()
            except Paused:
                await self._wait_for_resume()
            except RateLimited:
                await asyncio.sleep(ANSWER_RETRY_SECONDS)
            except ConnectionLost as lost:
                if lost.unconfirmed:
                    raise
                await self._space.connected()

    async def _wait_for_resume(self) -> None:
        """Wait for the end of a pause, including a pause that started before this participant joined."""
        if self._controls.paused:
            await self._controls.wait_until_resumed()
            return
        with suppress(RequestTimeout):
            await self._space.wait_for(self._is_our_resume, timeout=ANSWER_RETRY_SECONDS)

    def _is_our_resume(self, envelope: Envelope) -> bool:
        return envelope.kind == kinds.RESUME and self._space.participant_id in envelope.to


async def _wait_closed(connection: Connection | None) -> None:
    """Wait until the gateway has closed the connection (protocol §6): messages sent before that are lost."""
    if connection is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WAIT_SECONDS):
                await connection.wait_closed()


def _response(request: Envelope, payload: dict[str, Any]) -> OutgoingEnvelope:
    return OutgoingEnvelope(
        kind=kinds.MCP_RESPONSE,
        payload=payload,
        to=request.sender,
        correlation_id=request.id,
        context=context_of(request),
    )


def _error_payload(failure: McpError) -> dict[str, Any]:
    return {"error": Error.of(failure)}


_NOT_SENDABLE: Final = _error_payload(McpError(INTERNAL_ERROR, "the answer cannot be sent: it is no JSON"))
