"""Control of participants, in both directions: pause, resume, forget, compact, clear, restart, shut down, status.

Received requests call the program's hooks and are answered; the gateway has checked that the sender may send them
(protocol §3). The functions that send requests are methods of `Space`.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from mew.client.errors import MewError
from mew.client.events import Reconnected
from mew.client.mcp.calls import ANSWER_TIMEOUT, wait_until_present
from mew.client.sender import Names, OutgoingEnvelope
from mew.client.subscriptions import Subscription
from mew.client.tasks import TaskSet
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

if TYPE_CHECKING:
    from mew.client.space import Space


Hook = Callable[..., Any]
"""Takes a `ControlRequest` or no argument; may be a coroutine function. A returned mapping is added to the answer."""
H = TypeVar("H", bound=Hook)
COMPACT: Final = "participant/compact"
RESTART: Final = "participant/restart"
SHUTDOWN_HOOK_SECONDS: Final = 4.0
"""Timeout of the shutdown hook in seconds: the gateway closes the connection after 5 (protocol §3)."""
_DONE: Final = {
    kinds.PAUSE: "paused",
    kinds.RESUME: "active",
    kinds.FORGET: "forgotten",
    kinds.CLEAR: "cleared",
    RESTART: "restarted",
    kinds.SHUTDOWN: "shutting_down",
}
"""The status that a participant reports after it carried out the request."""
_log = logging.getLogger("mew.client")


class ControlRequest(msgspec.Struct, frozen=True):
    """A received control request, passed to its hook."""

    kind: str
    """The kind of the request, such as `participant/pause`."""
    by: str
    """The id of the participant that sent it."""
    reason: str | None
    """The reason, if one is given."""
    payload: dict[str, Any]
    """The full payload, with fields such as `timeout_seconds`, `direction`, `entries`, `mode`, `fields`."""


class ControlHandler:
    """Handles the control requests that a participant receives.

    Each hook is optional; set it with its decorator, such as `@controls.on_pause`. While paused, no new MCP request is
    started, and the answers of running ones wait; status and other control requests continue. After a reconnect the
    participant resumes, because it may have missed the end of the pause. If the pause still holds, the gateway enforces
    it.
    """

    def __init__(self) -> None:
        """Start without hooks, not paused."""
        self._hooks: dict[str, Hook] = {}
        self._running = asyncio.Event()
        self._running.set()
        self._timer: asyncio.TimerHandle | None = None

    # Hooks

    def on_pause(self, hook: H) -> H:
        """Set the hook for a pause. While paused, the gateway rejects nearly everything that this participant sends."""
        return self._set(kinds.PAUSE, hook)

    def on_resume(self, hook: H) -> H:
        """Set the hook for the end of a pause by another participant. It is not called when the pause times out."""
        return self._set(kinds.RESUME, hook)

    def on_status(self, hook: H) -> H:
        """Set the hook for a status request. The mapping that it returns is added to the answer."""
        return self._set(kinds.REQUEST_STATUS, hook)

    def on_forget(self, hook: H) -> H:
        """Set the hook for forgetting entries: `payload` may have `direction` and the number of `entries`."""
        return self._set(kinds.FORGET, hook)

    def on_compact(self, hook: H) -> H:
        """Set the hook for compacting memory. What it returns is added to `participant/compact-done`."""
        return self._set(COMPACT, hook)

    def on_clear(self, hook: H) -> H:
        """Set the hook for forgetting everything."""
        return self._set(kinds.CLEAR, hook)

    def on_restart(self, hook: H) -> H:
        """Set the hook for a restart; `payload` may have a `mode`."""
        return self._set(RESTART, hook)

    def on_shutdown(self, hook: H) -> H:
        """Set the hook for a shutdown, called before serving ends. It is cancelled after four seconds."""
        return self._set(kinds.SHUTDOWN, hook)

    def _set(self, kind: str, hook: H) -> H:
        self._hooks[kind] = hook
        return hook

    # The pause

    @property
    def paused(self) -> bool:
        """Whether this participant is paused, as far as this client knows."""
        return not self._running.is_set()

    async def wait_until_resumed(self) -> None:
        """Wait while we are paused."""
        await self._running.wait()

    def _pause(self, seconds: Any) -> None:
        self._resume()
        self._running.clear()
        if isinstance(seconds, int | float):
            self._timer = asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._running.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Handling control requests

    async def handle_requests(self, space: "Space", requests: Subscription[Envelope]) -> None:
        """Handle control requests until a shutdown or the end of the subscription."""
        self._running = asyncio.Event()  # bound to this event loop
        self._running.set()
        tasks = TaskSet(f"mew client: {space.participant_id} control requests")
        tasks.start(self._resume_after_reconnect(space))
        try:
            async for envelope in requests:
                if envelope.kind == kinds.SHUTDOWN:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(SHUTDOWN_HOOK_SECONDS):
                            await self._carry_out(space, envelope)
                    return
                self._apply_pause(envelope, space.participant_id)
                tasks.start(self._carry_out(space, envelope))
        finally:
            self._resume()
            await tasks.cancel_all()

    async def _resume_after_reconnect(self, space: "Space") -> None:
        """Resume after each reconnect: the pause may have ended. If not, the gateway rejects what is sent too early."""
        with suppress(MewError):  # the reader of the control requests reports the end of the space
            async with space.events(on_overflow=lambda _: self._resume()) as events:
                async for event in events:
                    if isinstance(event, Reconnected):
                        self._resume()

    def _apply_pause(self, envelope: Envelope, me: str) -> None:
        """Apply a pause or resume immediately, before any hook. No participant can end its own pause (protocol §3)."""
        if envelope.kind == kinds.PAUSE:
            self._pause(envelope.payload.get("timeout_seconds"))
        elif envelope.kind == kinds.RESUME and envelope.sender != me:
            self._resume()

    async def _carry_out(self, space: "Space", envelope: Envelope) -> None:
        kind = envelope.kind
        if kind == kinds.REQUEST_STATUS:
            await self._answer(space, envelope, kinds.STATUS, await self._status(envelope))
        elif kind == COMPACT:
            result = await self._call(envelope)
            done = {"status": "compacted"} if COMPACT in self._hooks else {"status": "skipped", "skipped": True}
            await self._answer(space, envelope, kinds.COMPACT_DONE, {**done, **result})
        elif kind in _DONE:
            result = await self._call(envelope)
            await self._answer(space, envelope, kinds.STATUS, {"status": _DONE[kind], **result})

    async def _status(self, envelope: Envelope) -> dict[str, Any]:
        status = {"status": "paused" if self.paused else "active", **await self._call(envelope)}
        names = envelope.payload.get("fields")
        if not isinstance(names, list):
            return status
        return {name: value for name, value in status.items() if name == "status" or name in names}

    async def _call(self, envelope: Envelope) -> Mapping[str, Any]:
        """Call the hook and return its mapping, or an empty one. If the hook fails, return that as the status."""
        hook = self._hooks.get(envelope.kind)
        if hook is None:
            return {}
        try:
            outcome = hook(*_arguments(hook, envelope))
            if inspect.isawaitable(outcome):
                outcome = await outcome
        except Exception as error:  # an error in the program's hook must not stop later control requests
            _log.warning("the hook for %s failed", envelope.kind, exc_info=True)
            return {"status": "failed", "reason": str(error) or type(error).__name__}
        return outcome if isinstance(outcome, Mapping) else {}

    async def _answer(self, space: "Space", envelope: Envelope, kind: str, payload: Mapping[str, Any]) -> None:
        """Send the answer to the requester, if this participant is allowed to send it."""
        draft = {"kind": kind, "to": [envelope.sender], "payload": payload}
        if not space.can(draft):
            return
        try:
            await space.send(kind, payload, to=envelope.sender, correlation_id=envelope.id)
        except MewError as error:
            _log.info("%s for %s was not sent: %s", kind, envelope.sender, error)


def _arguments(hook: Hook, envelope: Envelope) -> tuple[ControlRequest, ...]:
    """Return the hook's arguments: an `ControlRequest`, or none if the hook takes no parameters."""
    if not inspect.signature(hook).parameters:
        return ()
    reason = envelope.payload.get("reason")
    return (
        ControlRequest(envelope.kind, envelope.sender, reason if isinstance(reason, str) else None, envelope.payload),
    )


class Status(msgspec.Struct, frozen=True):
    """The status that a participant reports about itself."""

    by: str
    """The id of the participant."""
    status: str
    """`active`, `paused`, or another status that the participant chooses."""
    payload: dict[str, Any]
    """The full payload of its `participant/status`."""


async def send_pause(
    space: "Space", who: Names, *, seconds: float | None = None, reason: str | None = None
) -> Envelope:
    """Pause a participant for `seconds`, or until it is resumed. The gateway enforces the pause."""
    return await _send(space, kinds.PAUSE, who, timeout_seconds=seconds, reason=reason)


async def send_resume(space: "Space", who: Names, *, reason: str | None = None) -> Envelope:
    """End the pause of another participant. You cannot end your own pause."""
    return await _send(space, kinds.RESUME, who, reason=reason)


async def request_status(
    space: "Space", who: str, fields: Sequence[str] = (), *, timeout: float | None = ANSWER_TIMEOUT
) -> Status:
    """Request the status of a participant and wait for its `participant/status`. `fields` limits the answer.

    Raises `ParticipantNotFound` if the participant is not present, `RequestTimeout` if it does not answer in time.
    """
    payload = {"fields": list(fields)} if fields else {}
    answer = await _request(
        space, OutgoingEnvelope(kind=kinds.REQUEST_STATUS, payload=payload, to=who), kinds.STATUS, timeout
    )
    return Status(answer.sender, str(answer.payload.get("status", "")), answer.payload)


async def send_forget(
    space: "Space", who: Names, *, direction: str | None = None, entries: int | None = None, reason: str | None = None
) -> Envelope:
    """Ask a participant to forget a number of entries, the `oldest` or the `newest` first."""
    return await _send(space, kinds.FORGET, who, direction=direction, entries=entries, reason=reason)


async def request_compact(
    space: "Space", who: str, *, reason: str | None = None, timeout: float | None = ANSWER_TIMEOUT
) -> dict[str, Any]:
    """Ask a participant to compact its memory. Returns the payload of its `participant/compact-done`.

    Raises `ParticipantNotFound` if the participant is not present, `RequestTimeout` if it does not answer in time.
    """
    payload = {} if reason is None else {"reason": reason}
    done = await _request(space, OutgoingEnvelope(kind=COMPACT, payload=payload, to=who), kinds.COMPACT_DONE, timeout)
    return done.payload


async def send_clear(space: "Space", who: Names, *, reason: str | None = None) -> Envelope:
    """Ask a participant to forget everything."""
    return await _send(space, kinds.CLEAR, who, reason=reason)


async def send_restart(space: "Space", who: Names, *, mode: str | None = None, reason: str | None = None) -> Envelope:
    """Ask a participant to restart."""
    return await _send(space, RESTART, who, mode=mode, reason=reason)


async def send_shutdown(space: "Space", who: Names, *, reason: str | None = None) -> Envelope:
    """Ask a participant to shut down gracefully. The gateway closes its connection after five seconds."""
    return await _send(space, kinds.SHUTDOWN, who, reason=reason)


async def _send(space: "Space", kind: str, who: Names, **fields: Any) -> Envelope:
    payload = {name: value for name, value in fields.items() if value is not None}
    return await space.send(kind, payload, to=who)


async def _request(space: "Space", draft: OutgoingEnvelope, kind: str, timeout: float | None) -> Envelope:
    """Send a control request and wait for the answer of its recipient."""
    who = str(draft.to)

    def is_answer(envelope: Envelope) -> bool:
        return (envelope.kind, envelope.sender) == (kind, who)

    async with wait_until_present(space, [who], timeout):
        return await space.post(draft, is_answer)
