"""The bridge itself: an MCP server that is a participant, kept alive, its changes told to the space.

It answers through one conversation at a time and begins another when that ends, as often as it may. What is said in a
conversation is not its affair.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from typing import Any, Final

import mew
from mew._internal.backoff import RestartBudget
from mew.bridge.mcp_session import LISTS, LOST, Conversation, open_conversation
from mew.bridge.settings import BridgeSettings, CannotStart, TooManyRestarts
from mew.client import ConnectionLost, Refused, Space
from mew.client.errors import McpFailure
from mew.client.mcp.server import notify, serve
from mew.errors import MewError

END_SECONDS: Final = 3.5
"""For the server to be ended, after which nothing is waited for any more."""
LAST_WORDS: Final = 0.5
"""For the answers to those who still waited when the server was given up."""
TIMED_OUT: Final = -32001

log = logging.getLogger("mew.bridge")


class Bridge:
    """An MCP server in a space. `run` it once; `stop` it from the same loop."""

    def __init__(self, settings: BridgeSettings) -> None:
        """Nothing has been started yet."""
        self._settings = settings
        limits = settings.patience
        self._budget = RestartBudget(
            limits.restarts, limits.window, first_delay=limits.backoff, longest_delay=limits.longest
        )
        self._stopping = asyncio.Event()
        self._conversation: asyncio.Future[Conversation] = asyncio.get_running_loop().create_future()
        self._changes: set[str] = set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """End in good order; `run` returns when that is done."""
        self._stopping.set()

    async def run(self) -> None:
        """Start the server, join the space and answer, until stopped or told goodbye. Raises why it cannot go on."""
        keeping = asyncio.create_task(self._keep(), name=f"mew bridge: {self._settings.server.name}")
        stopping = asyncio.create_task(self._stopping.wait(), name="mew bridge: until stopped")
        try:
            await _first(keeping, stopping, self._conversation)
            if not (keeping.done() or stopping.done()):
                await self._be_present(keeping, stopping)
            if keeping.done():
                await keeping
        finally:
            stopping.cancel()
            await _ended(keeping)
            self._conversation.cancel()

    # The space

    async def _be_present(self, keeping: "asyncio.Task[None]", stopping: "asyncio.Task[Any]") -> None:
        """Be in the space as long as there is reason to, and then leave."""
        participating = asyncio.create_task(self._participate(), name="mew bridge: in the space")
        try:
            await _first(participating, keeping, stopping)
            if keeping.done():
                await asyncio.wait({participating}, timeout=LAST_WORDS)
        finally:
            if not participating.done():
                participating.cancel()
                await asyncio.wait({participating})
        if not participating.cancelled():
            participating.result()

    async def _participate(self) -> None:
        """Answer until we are shut down. In one step from the welcome on: nothing that is asked may be missed."""
        settings = self._settings
        joining = mew.connect(
            settings.url, space=settings.space, token=settings.token, participant=settings.participant
        )
        async with joining as space:
            telling = asyncio.create_task(self._tell(space), name="mew bridge: changes")
            try:
                log.info("%s is %s in space %s", settings.server.name, space.me, space.id)
                await serve(space, self, concurrency=settings.concurrency)
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    async def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the MCP server answers; one that is being started again is waited for."""
        seconds = self._settings.patience.call
        try:
            async with asyncio.timeout(seconds):
                conversation = await asyncio.shield(self._conversation)
                return await conversation.ask(method, params)
        except TimeoutError:
            raise McpFailure(TIMED_OUT, f"the MCP server did not answer {method!r} in {seconds:g} s") from None
        except MewError as error:
            if isinstance(error, McpFailure):
                raise
            raise McpFailure(LOST, str(error)) from None

    async def _tell(self, space: Space) -> None:
        """Tell the space which lists have changed, as soon as it can be told."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for name in [each for each in LISTS if each in self._changes]:
                self._changes.discard(name)
                try:
                    await self._tell_one(space, name)
                except ConnectionLost:
                    self._change(name)
                    await space.connected()

    async def _tell_one(self, space: Space, name: str) -> None:
        try:
            if not await notify(space, f"notifications/{name}/list_changed"):
                log.info("the list of %s has changed, and %s has no capability to say so", name, space.me)
        except Refused as error:
            log.warning("the list of %s has changed, and the gateway did not take it: %s", name, error)

    def _change(self, name: str) -> None:
        self._changes.add(name)
        self._changed.set()

    # The server

    async def _keep(self) -> None:
        """One conversation after another, until there have been too many."""
        while True:
            why = await self._converse()
            delay = self._budget.next_delay(asyncio.get_running_loop().time())
            if delay is None:
                patience = self._settings.patience
                raise self._fail(
                    TooManyRestarts(f"{why}; given up after {patience.restarts} restarts within {patience.window:g} s")
                )
            log.warning("%s; starting again in %.1f s", why, delay)
            await asyncio.sleep(delay)

    async def _converse(self) -> str:
        """Hold one conversation to its end, and say why it came."""
        settings = self._settings
        environment = inherited(os.environ, settings.token)
        try:
            async with open_conversation(
                settings.server, environment, self._change, settings.patience.initialize
            ) as conversation:
                self._begin(conversation)
                try:
                    await conversation.finish()
                finally:
                    self._conversation = asyncio.get_running_loop().create_future()
                return await conversation.why()
        except CannotStart as error:
            raise self._fail(error) from None
        except Exception as error:  # whatever the library fails with is the end of this conversation, and no more
            log.debug("the conversation failed", exc_info=True)
            return _sentence(error)

    def _begin(self, conversation: Conversation) -> None:
        if self._restarted:
            for name in conversation.lists:  # who knows what the new one has
                self._change(name)
        self._restarted = True
        self._conversation.set_result(conversation)

    _restarted = False

    def _fail(self, error: MewError) -> MewError:
        """There will be no other conversation: who waits for one is told."""
        if not self._conversation.done():
            self._conversation.set_exception(error)
            self._conversation.exception()
        return error


async def run(bridge: BridgeSettings) -> None:
    """Be a bridge until SIGINT or SIGTERM, or until it cannot go on, which is raised."""
    running = Bridge(bridge)
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, running.stop)
    try:
        await running.run()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def inherited(environ: Mapping[str, str], token: str | None) -> dict[str, str]:
    """Our environment as the server may see it: without tokens of spaces, whatever they are called."""
    return {name: value for name, value in environ.items() if not name.startswith("MEW_TOKEN") and value != token}


async def _ended(task: "asyncio.Task[None]") -> None:
    """End a task; what does not end when told is told once more, and then left."""
    for _ in range(2):
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=END_SECONDS)
        if done:
            break
    if task.done() and not task.cancelled():
        task.exception()


async def _first(*awaited: "asyncio.Future[Any]") -> None:
    """Wait until one of these is done, and leave them all as they are."""
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


def _sentence(error: BaseException) -> str:
    """The first thing that went wrong, in a group of such, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(f"{error}".split()) or type(error).__name__
