"""Helpers for tests of the SDK: a real gateway on a real port, and an event loop for each test.

They check nothing about the SDK, except that a test leaves no task and no unhandled error behind.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import mew
from mew.client import ConnectContext, Space
from mew.gateway.gateway import Gateway
from mew.view import SpaceView, view_from_welcome
from tests.gateway.raw import Running

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE = 45.0
"""Less than the 60 seconds after which pytest ends the process: a test that hangs fails here, with a traceback."""


def played(story: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine as a test. It fails on an unhandled error of the loop, and if a task outlives it."""

    @functools.wraps(story)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        faults: list[dict[str, Any]] = []

        async def scene() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
            async with asyncio.timeout(PATIENCE):
                await story(*args, **kwargs)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(scene())
        assert faults == []

    return test


def url_of(gateway: Running) -> str:
    return f"ws://127.0.0.1:{gateway.port}"


def joining(gateway: Running, participant: str, **options: Any) -> ConnectContext:
    """Connect as a participant of the gateway's space."""
    return mew.connect(url_of(gateway), space="lab", token=gateway.token(participant), **options)


async def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task and let it run its first step: it then receives everything that is sent from now on."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    return task


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(question: Callable[[], Any]) -> Any:
    """Wait until the answer is true; ask once in each iteration of the event loop."""
    while not (answer := question()):
        await asyncio.sleep(0.001)
    return answer


async def shut_down(gateway: Running, space: Space, who: str | None = None) -> None:
    """Shut a participant down as the gateway does, without the five seconds that it has for its last messages."""
    participant_id = who or space.participant_id
    await space.send("participant/shutdown", to=participant_id)
    close_all(gateway, 1000, "shutdown", participant_id)


def close_all(gateway: Running, code: int, reason: str, who: str | None = None) -> None:
    """Let the gateway close the connections after everything that it has sent: of one participant, or of all."""

    def close(gateway: Gateway) -> None:
        for hub in gateway.hubs.values():
            hub.flush()
        for socket in list(gateway.sockets):
            if who is None or socket._participant == who:
                socket.sink.close(code, reason)

    gateway.ask(close)


async def gateways_view(space: Space) -> SpaceView:
    """The view of a participant that joins now."""
    return view_from_welcome(await space.send("system/join"))


def same(one: SpaceView, other: SpaceView) -> bool:
    """Whether two views show the same space.

    What only a welcome tells about the participant itself and the journal is not compared.
    """
    own = [
        [capability for capability in view.you.capabilities if "stream/write:" not in capability["kind"]]
        for view in (one, other)
    ]
    return own[0] == own[1] and (one.participants, one.streams) == (other.participants, other.streams)
