"""Orders to others: pause, resume, forget, compact, clear, restart, shut down; and asking how they are.

The functions here are methods of `Space`. Each sends one envelope; the gateway decides whether we may (protocol §3).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mew.client.calling import ANSWER_SECONDS, present
from mew.client.controls import COMPACT, RESTART
from mew.client.sending import Draft, Names
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

if TYPE_CHECKING:
    from mew.client.space import Space


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
