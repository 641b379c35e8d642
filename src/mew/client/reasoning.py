"""Published reasoning: a start, thoughts and a conclusion, all in one context.

The context is the id of the `reasoning/start`. Every envelope sent within it carries the context, except `stream/*`,
whose context is the namespace of the stream, and `system/*`.
"""

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.client.errors import MewError
from mew.client.sender import CLEANUP_SECONDS, Names, OutgoingEnvelope
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

if TYPE_CHECKING:
    from mew.client.space import Space


REASONING_START: Final = "reasoning/start"
REASONING_THOUGHT: Final = "reasoning/thought"
REASONING_CONCLUSION: Final = "reasoning/conclusion"
_OTHER_CONTEXTS: Final = ("stream/", "system/")


class Reasoning:
    """A reasoning context: `async with space.reasoning("why is the build red?") as thought`.

    Leaving the block concludes it. An exception or a cancellation cancels it (`reasoning/cancel`, with the reason).
    Tasks that are started within the block send in its context too.
    """

    def __init__(self, space: "Space", message: str | None, to: Names) -> None:
        """Prepare a reasoning; `async with` starts it."""
        self.space = space
        self._message = message
        self._to = to
        self._outer: Reasoning | None = None
        self.id: str | None = None
        """The context, which is the id of the `reasoning/start`; None before the start."""
        self.is_open = False
        """Whether it has started and not ended."""

    async def __aenter__(self) -> "Reasoning":
        started = await self._send(REASONING_START, self._message)
        self.id = started.id
        self.is_open = True
        self._outer = _current.get()
        _current.set(self)
        return self

    async def say(self, message: str, **fields: Any) -> Envelope:
        """Send a thought; `fields` are added to its payload."""
        self._require_open()
        return await self._send(REASONING_THOUGHT, message, **fields)

    async def conclude(self, message: str, **fields: Any) -> Envelope:
        """Send the conclusion and end the reasoning; `fields` are added to its payload.

        Without this call, leaving the block sends a conclusion without a message.
        """
        self._require_open()
        self.is_open = False
        return await self._send(REASONING_CONCLUSION, message, **fields)

    async def cancel(self, reason: str | None = None) -> Envelope:
        """Cancel the reasoning (`reasoning/cancel`) and end it."""
        self._require_open()
        self.is_open = False
        payload = {} if reason is None else {"reason": reason}
        return await self.space.send(kinds.REASONING_CANCEL, payload, to=self._to, context=self.id)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.set(self._outer)
        if not self.is_open:
            return
        if error is None:
            self.is_open = False
            await self._send(REASONING_CONCLUSION, None)
            return
        with suppress(MewError, TimeoutError):  # the original exception is the one to raise
            async with asyncio.timeout(CLEANUP_SECONDS):
                await self.cancel(_error_text(error))

    def _require_open(self) -> None:
        if not self.is_open:
            raise RuntimeError("this reasoning has ended" if self.id else "`async with` begins a reasoning")

    async def _send(self, kind: str, message: str | None, **fields: Any) -> Envelope:
        payload = fields if message is None else {"message": message, **fields}
        return await self.space.send(kind, payload, to=self._to, context=self.id)


_current: ContextVar[Reasoning | None] = ContextVar("mew reasoning", default=None)


def _error_text(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    message = str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def in_context(space: "Space", draft: OutgoingEnvelope) -> OutgoingEnvelope:
    """Return the draft with the context of the current reasoning, unless the draft has its own context."""
    thought = _current.get()
    while thought is not None and not thought.is_open:
        thought = thought._outer
    if thought is None or thought.space is not space:
        return draft
    if draft.context is not None or draft.kind.startswith(_OTHER_CONTEXTS):
        return draft
    return msgspec.structs.replace(draft, context=thought.id)


# A method of `Space`


def reasoning(space: "Space", message: str | None = None, *, to: Names = ()) -> Reasoning:
    """Publish reasoning: use `async with`, `say` thoughts, and `conclude`.

    Envelopes that are sent within carry its context, except `stream/*`, `system/*` and those with their own context.
    """
    return Reasoning(space, message, to)
