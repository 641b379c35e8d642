"""Where the SDK is tried: a real gateway on a real port, and a loop for each test, on which nothing may be left.

Decides nothing: what came of it is for the test to look at.
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
"""Less than the 60 seconds after which pytest ends everything: what hangs is told from here."""


def played(story: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine: nothing may go wrong unseen on its loop, and no task may outlive it."""

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
    """On the way into the gateway's space."""
    return mew.connect(url_of(gateway), space="lab", token=gateway.token(participant), **options)


async def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that has made its first step: it listens to whatever is said from now on."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    return task


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task; it is gone when this returns."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(question: Callable[[], Any]) -> Any:
    """Ask, turn by turn of the loop, until the answer is yes."""
    while not (answer := question()):
        await asyncio.sleep(0.001)
    return answer


async def shut_down(gateway: Running, space: Space, who: str | None = None) -> None:
    """Have somebody shut down as the gateway does it, but without the five seconds for one's last words."""
    participant_id = who or space.participant_id
    await space.send("participant/shutdown", to=participant_id)
    close_all(gateway, 1000, "shutdown", participant_id)


def close_all(gateway: Running, code: int, reason: str, who: str | None = None) -> None:
    """The gateway says goodbye, after everything that was said: to everybody, or to one."""

    def close(gateway: Gateway) -> None:
        for hub in gateway.hubs.values():
            hub.flush()
        for socket in list(gateway.sockets):
            if who is None or socket._participant == who:
                socket.sink.close(code, reason)

    gateway.ask(close)


async def gateways_view(space: Space) -> SpaceView:
    """What the gateway would tell us if we came in now."""
    return view_from_welcome(await space.send("system/join"))


def same(one: SpaceView, other: SpaceView) -> bool:
    """Whether two views show the same space; what only a welcome can say of us and of the journal is no matter."""
    own = [
        [capability for capability in view.you.capabilities if "stream/write:" not in capability["kind"]]
        for view in (one, other)
    ]
    return own[0] == own[1] and (one.participants, one.streams) == (other.participants, other.streams)
