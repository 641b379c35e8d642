"""The bridge: runs an MCP server as a participant, restarts it, and reports its changes to the space.

It uses one session with the server at a time. When that ends it opens another one, within the restart limit. The
contents of a session are handled by `mcp_session`.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from typing import Any, Final

import mew
from mew._internal.backoff import RestartBudget
from mew.bridge.mcp_session import LISTS, LOST, McpSession, open_mcp_session
from mew.bridge.settings import BridgeSettings, ServerStartError, TooManyRestarts
from mew.client import ConnectionLost, ProtocolError, Space
from mew.client.errors import McpError
from mew.client.mcp.server import notify, serve
from mew.errors import MewError

END_SECONDS: Final = 3.5
"""Seconds that each attempt to end the server may take."""
LAST_ANSWERS_SECONDS: Final = 0.5
"""Seconds to answer pending requests after the server was abandoned."""
TIMED_OUT: Final = -32001

_log = logging.getLogger("mew.bridge")


class Bridge:
    """An MCP server in a space. Call `run` once. Call `stop` from the same event loop."""

    def __init__(self, settings: BridgeSettings) -> None:
        """Store the settings. Nothing is started."""
        self._settings = settings
        limits = settings.timeouts
        self._budget = RestartBudget(
            limits.restarts, limits.window, first_delay=limits.backoff, longest_delay=limits.longest
        )
        self._stopping = asyncio.Event()
        self._session: asyncio.Future[McpSession] = asyncio.get_running_loop().create_future()
        self._changes: set[str] = set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """Shut down gracefully. `run` returns when that is done."""
        self._stopping.set()

    async def run(self) -> None:
        """Start the server, join the space and answer until stopped or shut down. Raises if it cannot continue."""
        server_task = asyncio.create_task(self._run_sessions(), name=f"mew bridge: {self._settings.server.name}")
        stop_task = asyncio.create_task(self._stopping.wait(), name="mew bridge: until stopped")
        try:
            await _wait_for_first(server_task, stop_task, self._session)
            if not (server_task.done() or stop_task.done()):
                await self._stay_in_space(server_task, stop_task)
            if server_task.done():
                await server_task
        finally:
            stop_task.cancel()
            await _cancel_twice(server_task)
            self._session.cancel()

    # The space

    async def _stay_in_space(self, server_task: "asyncio.Task[None]", stop_task: "asyncio.Task[Any]") -> None:
        """Stay in the space until it ends, the server is abandoned or the bridge is stopped; then leave."""
        space_task = asyncio.create_task(self._participate(), name="mew bridge: in the space")
        try:
            await _wait_for_first(space_task, server_task, stop_task)
            if server_task.done():
                await asyncio.wait({space_task}, timeout=LAST_ANSWERS_SECONDS)
        finally:
            if not space_task.done():
                space_task.cancel()
                await asyncio.wait({space_task})
        if not space_task.cancelled():
            space_task.result()

    async def _participate(self) -> None:
        """Answer until shut down. There is no await between the welcome and `serve`, so that no request is missed."""
        settings = self._settings
        connecting = mew.connect(
            settings.url, space=settings.space, token=settings.token, participant=settings.participant
        )
        async with connecting as space:
            report_task = asyncio.create_task(self._report_changes(space), name="mew bridge: changes")
            try:
                _log.info("%s is %s in space %s", settings.server.name, space.participant_id, space.id)
                await serve(space, self, concurrency=settings.concurrency)
            finally:
                report_task.cancel()
                await asyncio.gather(report_task, return_exceptions=True)

    async def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the MCP server's answer, waiting for a server that restarts. Raises `McpError`."""
        seconds = self._settings.timeouts.call
        try:
            async with asyncio.timeout(seconds):
                session = await asyncio.shield(self._session)
                return await session.ask(method, params)
        except TimeoutError:
            raise McpError(TIMED_OUT, f"the MCP server did not answer {method!r} in {seconds:g} s") from None
        except MewError as error:
            if isinstance(error, McpError):
                raise
            raise McpError(LOST, str(error)) from None

    async def _report_changes(self, space: Space) -> None:
        """Report changed lists to the space. After a lost connection, report them when it is connected again."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for name in [name for name in LISTS if name in self._changes]:
                self._changes.discard(name)
                try:
                    await self._report_change(space, name)
                except ConnectionLost:
                    self._mark_changed(name)
                    await space.connected()

    async def _report_change(self, space: Space, name: str) -> None:
        try:
            if not await notify(space, f"notifications/{name}/list_changed"):
                _log.info("the list of %s has changed, and %s may not report it", name, space.participant_id)
        except ProtocolError as error:
            _log.warning("the list of %s has changed, and the gateway rejected the notification: %s", name, error)

    def _mark_changed(self, name: str) -> None:
        self._changes.add(name)
        self._changed.set()

    # The server

    async def _run_sessions(self) -> None:
        """Hold one session after another, until the restart limit is reached."""
        while True:
            reason = await self._run_session()
            delay = self._budget.next_delay(asyncio.get_running_loop().time())
            if delay is None:
                limits = self._settings.timeouts
                raise self._fail(
                    TooManyRestarts(f"{reason}; abandoned after {limits.restarts} restarts within {limits.window:g} s")
                )
            _log.warning("%s; restarting in %.1f s", reason, delay)
            await asyncio.sleep(delay)

    async def _run_session(self) -> str:
        """Hold one session until it ends. Returns the reason."""
        settings = self._settings
        environment = inherited(os.environ, settings.token)
        try:
            async with open_mcp_session(
                settings.server, environment, self._mark_changed, settings.timeouts.initialize
            ) as session:
                self._session_started(session)
                try:
                    await session.finish()
                finally:
                    self._session = asyncio.get_running_loop().create_future()
                return await session.end_reason()
        except ServerStartError as error:
            raise self._fail(error) from None
        except Exception as error:  # any error of the library ends only this session
            _log.debug("the session failed", exc_info=True)
            return _error_text(error)

    def _session_started(self, session: McpSession) -> None:
        if self._restarted:
            for name in session.lists:  # the restarted server may have different lists
                self._mark_changed(name)
        self._restarted = True
        self._session.set_result(session)

    _restarted = False

    def _fail(self, error: MewError) -> MewError:
        """Fail all requests that wait for a session, because there will be none. Returns the error."""
        if not self._session.done():
            self._session.set_exception(error)
            self._session.exception()
        return error


async def run_bridge(settings: BridgeSettings) -> None:
    """Run a bridge until SIGINT or SIGTERM. Raises the error if it cannot continue."""
    bridge = Bridge(settings)
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, bridge.stop)
    try:
        await bridge.run()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def inherited(environ: Mapping[str, str], token: str | None) -> dict[str, str]:
    """Return the bridge's environment for the server, without the tokens of spaces under any variable name."""
    return {name: value for name, value in environ.items() if not name.startswith("MEW_TOKEN") and value != token}


async def _cancel_twice(task: "asyncio.Task[None]") -> None:
    """Cancel a task. If it does not end, cancel it once more, then abandon it."""
    for _ in range(2):
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=END_SECONDS)
        if done:
            break
    if task.done() and not task.cancelled():
        task.exception()


async def _wait_for_first(*awaited: "asyncio.Future[Any]") -> None:
    """Wait until one of these is done. None of them is canceled."""
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


def _error_text(error: BaseException) -> str:
    """Return the error on one line; for an exception group, the first error in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(f"{error}".split()) or type(error).__name__
