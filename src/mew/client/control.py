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
from mew.client.mcp.calls import ANSWER_SECONDS, present
from mew.client.sender import Draft, Names
from mew.client.subscriptions import Subscription
from mew.client.tasks import Crew
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

if TYPE_CHECKING:
    from mew.client.space import Space


Hook = Callable[..., Any]
"""Takes an `Order`, or nothing; may be a coroutine function. A mapping that it returns is told with the answer."""
H = TypeVar("H", bound=Hook)
COMPACT: Final = "participant/compact"
RESTART: Final = "participant/restart"
GRACE: Final = 4.0
"""Seconds that a shutdown's hook may take: after 5 the gateway closes (protocol §3)."""
_DONE: Final = {
    kinds.PAUSE: "paused",
    kinds.RESUME: "active",
    kinds.FORGET: "forgotten",
    kinds.CLEAR: "cleared",
    RESTART: "restarted",
    kinds.SHUTDOWN: "shutting_down",
}
"""What a participant is once it has obeyed."""
_log = logging.getLogger("mew.client")


class Order(msgspec.Struct, frozen=True):
    """What a hook is told: what is wanted, by whom and why."""

    kind: str
    """`participant/pause` and so on."""
    by: str
    """Who wants it."""
    reason: str | None
    """Why, where it is said."""
    payload: dict[str, Any]
    """Everything that was said, such as `timeout_seconds`, `direction`, `entries`, `mode`, `fields`."""


class Controls:
    """How one participant obeys. Each hook is set by its decorator, `@controls.on_pause`, and may be left out.

    While paused no MCP request is begun, and the answers of those that were wait; status and other orders go on. Who
    was away may have missed the end of a pause, and goes on: a pause that has not ended is the gateway's to enforce.
    """

    def __init__(self) -> None:
        """Not paused, no hooks."""
        self._hooks: dict[str, Hook] = {}
        self._going = asyncio.Event()
        self._going.set()
        self._timer: asyncio.TimerHandle | None = None

    # Hooks

    def on_pause(self, hook: H) -> H:
        """Called when we are paused; from then on the gateway refuses nearly everything of ours."""
        return self._set(kinds.PAUSE, hook)

    def on_resume(self, hook: H) -> H:
        """Called when somebody ends the pause; not when its time is up."""
        return self._set(kinds.RESUME, hook)

    def on_status(self, hook: H) -> H:
        """Called when somebody asks how we are; the mapping it returns is part of the answer."""
        return self._set(kinds.REQUEST_STATUS, hook)

    def on_forget(self, hook: H) -> H:
        """Called when we are to forget some entries: `payload` may say `direction` and how many `entries`."""
        return self._set(kinds.FORGET, hook)

    def on_compact(self, hook: H) -> H:
        """Called when we are to make what we remember smaller; `participant/compact-done` tells what it returns."""
        return self._set(COMPACT, hook)

    def on_clear(self, hook: H) -> H:
        """Called when we are to forget everything."""
        return self._set(kinds.CLEAR, hook)

    def on_restart(self, hook: H) -> H:
        """Called when we are to begin anew; `payload` may say a `mode`."""
        return self._set(RESTART, hook)

    def on_shutdown(self, hook: H) -> H:
        """Called before serving ends. It has four seconds."""
        return self._set(kinds.SHUTDOWN, hook)

    def _set(self, kind: str, hook: H) -> H:
        self._hooks[kind] = hook
        return hook

    # The pause

    @property
    def paused(self) -> bool:
        """Whether we have been paused, as far as we were told."""
        return not self._going.is_set()

    async def resumed(self) -> None:
        """Wait while we are paused."""
        await self._going.wait()

    def _pause(self, seconds: Any) -> None:
        self._resume()
        self._going.clear()
        if isinstance(seconds, int | float):
            self._timer = asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._going.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Obeying

    async def obey(self, space: "Space", orders: Subscription[Envelope]) -> None:
        """Follow orders until a shutdown, or until none can come any more."""
        self._going = asyncio.Event()  # of this loop
        self._going.set()
        crew = Crew(f"mew client: {space.me} obeys")
        crew.start(self._go_on_when_back(space))
        try:
            async for envelope in orders:
                if envelope.kind == kinds.SHUTDOWN:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(GRACE):
                            await self._carry_out(space, envelope)
                    return
                self._note(envelope, space.me)
                crew.start(self._carry_out(space, envelope))
        finally:
            self._resume()
            await crew.dismiss()

    async def _go_on_when_back(self, space: "Space") -> None:
        """A pause that we were told of before a break may be over: the gateway refuses what comes too early."""
        with suppress(MewError):  # a space that is over is told by whoever reads the orders
            async with space.events(on_missed=lambda _: self._resume()) as events:
                async for event in events:
                    if isinstance(event, Reconnected):
                        self._resume()

    def _note(self, envelope: Envelope, me: str) -> None:
        """A pause counts from the moment it comes, whatever the hooks do. Nobody lifts their own (protocol §3)."""
        if envelope.kind == kinds.PAUSE:
            self._pause(envelope.payload.get("timeout_seconds"))
        elif envelope.kind == kinds.RESUME and envelope.sender != me:
            self._resume()

    async def _carry_out(self, space: "Space", envelope: Envelope) -> None:
        kind = envelope.kind
        if kind == kinds.REQUEST_STATUS:
            await self._answer(space, envelope, kinds.STATUS, await self._status(envelope))
        elif kind == COMPACT:
            told = await self._call(envelope)
            done = {"status": "compacted"} if COMPACT in self._hooks else {"status": "skipped", "skipped": True}
            await self._answer(space, envelope, kinds.COMPACT_DONE, {**done, **told})
        elif kind in _DONE:
            told = await self._call(envelope)
            await self._answer(space, envelope, kinds.STATUS, {"status": _DONE[kind], **told})

    async def _status(self, envelope: Envelope) -> dict[str, Any]:
        told = {"status": "paused" if self.paused else "active", **await self._call(envelope)}
        wanted = envelope.payload.get("fields")
        if not isinstance(wanted, list):
            return told
        return {name: value for name, value in told.items() if name == "status" or name in wanted}

    async def _call(self, envelope: Envelope) -> Mapping[str, Any]:
        """What the hook returns, if there is one and it returns a mapping; if it fails, that."""
        hook = self._hooks.get(envelope.kind)
        if hook is None:
            return {}
        try:
            outcome = hook(*_arguments(hook, envelope))
            if inspect.isawaitable(outcome):
                outcome = await outcome
        except Exception as error:  # of the program's: the next order must be obeyed all the same
            _log.warning("the hook for %s failed", envelope.kind, exc_info=True)
            return {"status": "failed", "reason": str(error) or type(error).__name__}
        return outcome if isinstance(outcome, Mapping) else {}

    async def _answer(self, space: "Space", envelope: Envelope, kind: str, payload: Mapping[str, Any]) -> None:
        """Tell whoever gave the order, where we may."""
        draft = {"kind": kind, "to": [envelope.sender], "payload": payload}
        if not space.can(draft):
            return
        try:
            await space.send(kind, payload, to=envelope.sender, correlation_id=envelope.id)
        except MewError as error:
            _log.info("%s for %s was not sent: %s", kind, envelope.sender, error)


def _arguments(hook: Hook, envelope: Envelope) -> tuple[Order, ...]:
    """An order, for a hook that takes one."""
    if not inspect.signature(hook).parameters:
        return ()
    reason = envelope.payload.get("reason")
    return (Order(envelope.kind, envelope.sender, reason if isinstance(reason, str) else None, envelope.payload),)


class Status(msgspec.Struct, frozen=True):
    """How somebody is, in its own words."""

    by: str
    """Who says so."""
    status: str
    """`active`, `paused`, or whatever it calls it."""
    payload: dict[str, Any]
    """Everything it said."""


async def pause(space: "Space", who: Names, *, seconds: float | None = None, reason: str | None = None) -> Envelope:
    """Have somebody stop sending, for so long or until it is resumed; the gateway sees to it."""
    return await _order(space, kinds.PAUSE, who, timeout_seconds=seconds, reason=reason)


async def resume(space: "Space", who: Names, *, reason: str | None = None) -> Envelope:
    """End a pause; nobody's own."""
    return await _order(space, kinds.RESUME, who, reason=reason)


async def status(
    space: "Space", who: str, fields: Sequence[str] = (), *, timeout: float | None = ANSWER_SECONDS
) -> Status:
    """Ask somebody how it is, of some fields only where they are named; waits for its `participant/status`.

    `ParticipantNotFound` where it is not there, `RequestTimeout` where it does not say.
    """
    payload = {"fields": list(fields)} if fields else {}
    told = await _ask(space, Draft(kind=kinds.REQUEST_STATUS, payload=payload, to=who), kinds.STATUS, timeout)
    return Status(told.sender, str(told.payload.get("status", "")), told.payload)


async def forget(
    space: "Space", who: Names, *, direction: str | None = None, entries: int | None = None, reason: str | None = None
) -> Envelope:
    """Have somebody forget so many entries, the `oldest` or the `newest` first."""
    return await _order(space, kinds.FORGET, who, direction=direction, entries=entries, reason=reason)


async def compact(
    space: "Space", who: str, *, reason: str | None = None, timeout: float | None = ANSWER_SECONDS
) -> dict[str, Any]:
    """Have somebody make what it remembers smaller; waits for its `participant/compact-done`, and gives what that says.

    `ParticipantNotFound` where it is not there, `RequestTimeout` where it does not say.
    """
    payload = {} if reason is None else {"reason": reason}
    done = await _ask(space, Draft(kind=COMPACT, payload=payload, to=who), kinds.COMPACT_DONE, timeout)
    return done.payload


async def clear(space: "Space", who: Names, *, reason: str | None = None) -> Envelope:
    """Have somebody forget everything."""
    return await _order(space, kinds.CLEAR, who, reason=reason)


async def restart(space: "Space", who: Names, *, mode: str | None = None, reason: str | None = None) -> Envelope:
    """Have somebody begin anew."""
    return await _order(space, RESTART, who, mode=mode, reason=reason)


async def shutdown(space: "Space", who: Names, *, reason: str | None = None) -> Envelope:
    """Have somebody end in good order; after five seconds the gateway closes its connection."""
    return await _order(space, kinds.SHUTDOWN, who, reason=reason)


async def _order(space: "Space", kind: str, who: Names, **fields: Any) -> Envelope:
    payload = {name: value for name, value in fields.items() if value is not None}
    return await space.send(kind, payload, to=who)


async def _ask(space: "Space", draft: Draft, kind: str, timeout: float | None) -> Envelope:
    """Send an order and wait for the answer of the one it is for."""
    who = str(draft.to)

    def is_answer(envelope: Envelope) -> bool:
        return (envelope.kind, envelope.sender) == (kind, who)

    async with present(space, [who], timeout):
        return await space.post(draft, is_answer)
