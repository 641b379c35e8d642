"""A cancelled task leaves nothing behind: every public coroutine, cancelled at every place where it waits.

The test finds the coroutines itself: it fails if one of them has no call in `RECIPES`.
"""

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

import mew.client
from mew.client import (
    ConnectContext,
    Connection,
    ControlHandler,
    IncomingProposal,
    McpHandler,
    Participant,
    Proposal,
    Proposals,
    Reasoning,
    Space,
    Stream,
    Subscription,
    notify,
    serve,
)
from mew.client.errors import Paused
from mew.client.sender import OutgoingEnvelope
from mew.protocol import Envelope
from tests.client.harness import begun, ended, joining, played, until, url_of
from tests.gateway.raw import Running

MOST = 40
"""More than the number of places where any coroutine waits."""


def public_coroutines() -> list[str]:
    """Every coroutine that a program can await, as `Class.name`; a dunder is awaited by `async with` or `async for`."""
    public = [
        public_object for public_object in map(mew.client.__dict__.get, mew.client.__all__) if public_object is not None
    ]
    classes = [public_object for public_object in public if inspect.isclass(public_object)]
    functions = [public_object.__name__ for public_object in public if inspect.iscoroutinefunction(public_object)]
    methods = [
        f"{cls.__name__}.{name}"
        for cls in classes
        for name, member in inspect.getmembers(cls)
        if (inspect.iscoroutinefunction(member) or name == "__await__")
        and (name.startswith("__") or not name.startswith("_"))
    ]
    return sorted(functions + methods)


class Scene:
    """Two participants in a space, and two streams of the first."""

    def __init__(self, gateway: Running, alice: Space, bob: Space) -> None:
        self.gateway = gateway
        self.alice, self.bob = alice, bob
        self.live: Stream
        self.ready: Stream

    @property
    def connection(self) -> Connection:
        assert self.alice.connection is not None
        return self.alice.connection

    def full(self) -> None:
        """Let the socket be full for a moment."""
        connection = self.connection
        connection.pause_writing()
        asyncio.get_running_loop().call_later(0.002, connection.resume_writing)

    def chat(self) -> None:
        """Let bob send a chat in a moment."""
        connection = self.bob.connection
        assert connection is not None
        asyncio.get_running_loop().call_later(
            0.002, connection.send_raw, b'{"kind":"chat","payload":{"text":"x"},"correlation_id":["q"]}'
        )


Recipe = Callable[[Scene], Awaitable[Any]]


def sending(speak: Recipe) -> Recipe:
    """The call, made while the socket is full."""

    def full(scene: Scene) -> Awaitable[Any]:
        scene.full()
        return speak(scene)

    return full


def hearing(listen: Recipe) -> Recipe:
    """The call, with a chat of bob while it waits."""

    def heard(scene: Scene) -> Awaitable[Any]:
        scene.chat()
        return listen(scene)

    return heard


def lost(scene: Scene) -> Awaitable[Any]:
    async def wait() -> None:
        scene.connection.abort("as if the network were gone")
        await until(lambda: scene.alice.connection is None)
        await scene.alice.connected()

    return wait()


async def entering(scene: Scene) -> None:
    async with joining(scene.gateway, "carol"):
        pass


async def awaiting(scene: Scene) -> None:
    space = await joining(scene.gateway, "carol")
    await space.close()


async def leaving(scene: Scene) -> None:
    connecting = joining(scene.gateway, "carol")
    await connecting.__aenter__()
    await connecting.__aexit__(None, None, None)


async def reading(scene: Scene) -> None:
    async with scene.alice.envelopes("chat") as chats, scene.alice.frames(), scene.alice.events():
        await anext(chats)


async def closing_while_away(scene: Scene) -> None:
    scene.connection.abort("as if the network were gone")
    await until(lambda: scene.alice.connection is None)
    await scene.alice.close()


def asked(scene: Scene) -> Awaitable[Any]:
    """A request that the gateway answers."""

    def answer(envelope: Envelope) -> bool:
        return envelope.kind == "space/invite-ack"

    return scene.alice.request("space/invite", {"participant_id": "dora"}, answer=answer, timeout=5)


async def until_gone(scene: Scene) -> None:
    connection = scene.connection
    timer = asyncio.get_running_loop().call_later(0.002, connection.abort, "as if the network were gone")
    try:
        await connection.wait_closed()
    finally:
        timer.cancel()  # it also ended for the cancelled task


# Participants


class Slow:
    """A server that answers after a moment."""

    async def answer(self, method: str, params: Any) -> Any:
        await asyncio.sleep(0.002)
        return {"method": method}


def offered() -> Participant:
    """A participant with a tool and hooks that take a moment."""
    participant = Participant()

    @participant.tool
    async def slow() -> str:
        await asyncio.sleep(0.002)
        return "done"

    @participant.on_compact
    @participant.on_shutdown
    async def brood() -> None:
        await asyncio.sleep(0.002)

    return participant


class Beside:
    """A call of alice while bob does `work`, which starts before the call and ends after it."""

    def __init__(self, work: Callable[[Scene], Coroutine[Any, Any, Any]], recipe: Recipe) -> None:
        self.work = work
        self._recipe = recipe

    def __call__(self, scene: Scene) -> Awaitable[Any]:
        return self._recipe(scene)


def bob_does(work: Callable[[Scene], Coroutine[Any, Any, Any]]) -> Callable[[Recipe], Recipe]:
    return lambda recipe: Beside(work, recipe)


bob_serves = bob_does(lambda scene: offered().run(scene.bob))


async def bob_asks(scene: Scene) -> None:
    """When alice listens: call her tool, compact her, and shut her down."""
    await until(lambda: scene.alice._dispatcher._envelopes)
    await scene.bob.call_tool("alice", "slow")
    await scene.bob.compact("alice")
    await scene.bob.shutdown("alice")


async def bob_orders(scene: Scene) -> None:
    """When alice listens: pause her, compact her, and shut her down."""
    await until(lambda: scene.alice._dispatcher._envelopes)
    await scene.bob.pause("alice", seconds=0.002)
    await scene.bob.compact("alice")
    await scene.bob.shutdown("alice")


async def bob_sends_carol_away(scene: Scene) -> None:
    await scene.bob.wait_until(lambda view: "carol" in view.participants)
    await scene.bob.shutdown("carol")


async def approve_all(scene: Scene) -> None:
    async for proposal in scene.bob.proposals():
        await scene.bob.send("mcp/response", {"result": {}}, correlation_id=(await proposal.approve("bob")).id)


async def propose_now(scene: Scene) -> None:
    while True:
        await scene.bob.propose("bob", "m")
        await asyncio.sleep(0.002)


async def proposed(scene: Scene) -> IncomingProposal:
    async with scene.alice.proposals() as proposals:
        await scene.bob.send("mcp/proposal", {"method": "m"}, to="bob")
        return await anext(proposals)


async def proposing(scene: Scene) -> Proposal:
    return await scene.alice.propose("bob", "m")


def with_a_proposal(use: Callable[[Proposal], Awaitable[Any]]) -> Recipe:
    async def recipe(scene: Scene) -> None:
        proposal = await proposing(scene)
        try:
            await use(proposal)
        finally:
            proposal.close()

    return recipe


def with_what_was_proposed(use: Callable[[IncomingProposal], Awaitable[Any]]) -> Recipe:
    async def recipe(scene: Scene) -> None:
        await use(await proposed(scene))

    return recipe


async def fulfilled(proposal: IncomingProposal) -> None:
    with suppress(mew.client.McpError):  # bob has no method `m`; that is an answer too
        await proposal.fulfil()


async def voted(proposal: IncomingProposal) -> None:
    with suppress(mew.client.errors.InvalidOperation):  # no rule asks for votes
        await proposal.vote()


async def nothing(_: Proposal) -> None:
    """Only create the proposal."""


async def answer_all(scene: Scene) -> None:
    """Answer every request of alice with a result that has none of what she expects."""
    await serve(scene.bob, Slow())


async def proposals_read(scene: Scene) -> None:
    async with scene.alice.proposals() as proposals:
        await anext(proposals)


def thinking(use: Callable[[Reasoning], Awaitable[Any]]) -> Recipe:
    async def recipe(scene: Scene) -> None:
        async with scene.alice.reasoning("why") as thought:
            await use(thought)

    return recipe


async def obeying(scene: Scene) -> None:
    async with scene.alice.envelopes("participant/*", to="alice") as orders:
        await offered().handle_requests(scene.alice, orders)


def serving(scene: Scene) -> Awaitable[None]:
    participant = offered()
    return serve(scene.alice, participant, controls=participant)


async def resumed(scene: Scene) -> None:
    """A pause that ends by itself."""
    participant = Participant()
    participant._pause(0.002)
    try:
        await participant.wait_until_resumed()
    finally:
        participant._resume()


def forever(scene: Scene) -> Awaitable[None]:
    return offered().run_forever(url_of(scene.gateway), space="lab", token=scene.gateway.token("carol"))


RECIPES: Final[dict[str, list[Recipe]]] = {
    "ConnectContext.__aenter__": [entering],
    "ConnectContext.__aexit__": [leaving],
    "ConnectContext.__await__": [awaiting],
    "Connection.close": [lambda scene: scene.connection.close()],
    "Connection.wait_writable": [sending(lambda scene: scene.connection.wait_writable())],
    "Connection.wait_closed": [until_gone],
    "Connection.ping": [lambda scene: scene.connection.ping()],
    "ControlHandler.handle_requests": [bob_does(bob_orders)(obeying)],
    "ControlHandler.wait_until_resumed": [resumed],
    "McpHandler.answer": [lambda scene: Slow().answer("m", {})],
    "Participant.answer": [lambda scene: offered().answer("tools/call", {"name": "slow"})],
    "Participant.handle_requests": [bob_does(bob_orders)(obeying)],
    "Participant.wait_until_resumed": [resumed],
    "Participant.run": [bob_does(bob_asks)(lambda scene: offered().run(scene.alice))],
    "Participant.run_forever": [bob_does(bob_sends_carol_away)(forever)],
    "Proposal.abandon": [with_a_proposal(lambda proposal: proposal.abandon("no more"))],
    "Proposal.result": [bob_does(approve_all)(with_a_proposal(lambda proposal: proposal.result()))],
    "Proposal.withdraw": [with_a_proposal(lambda proposal: proposal.withdraw())],
    "Proposals.__aenter__": [bob_does(propose_now)(proposals_read)],
    "Proposals.__aexit__": [bob_does(propose_now)(proposals_read)],
    "Proposals.__anext__": [bob_does(propose_now)(lambda scene: anext(scene.alice.proposals()))],
    "IncomingProposal.approve": [with_what_was_proposed(lambda proposal: proposal.approve())],
    "IncomingProposal.fulfil": [bob_serves(with_what_was_proposed(fulfilled))],
    "IncomingProposal.grant": [with_what_was_proposed(lambda proposal: proposal.grant())],
    "IncomingProposal.reject": [with_what_was_proposed(lambda proposal: proposal.reject("no"))],
    "IncomingProposal.vote": [with_what_was_proposed(voted)],
    "Reasoning.__aenter__": [sending(thinking(lambda thought: thought.say("hm")))],
    "Reasoning.__aexit__": [thinking(lambda thought: thought.space.chat("within"))],
    "Reasoning.cancel": [thinking(lambda thought: thought.cancel("enough"))],
    "Reasoning.conclude": [thinking(lambda thought: thought.conclude("so"))],
    "Reasoning.say": [thinking(lambda thought: thought.say("hm"))],
    "Space.announce_stream": [sending(lambda scene: scene.alice.announce_stream(["text"]))],
    "Space.call": [bob_serves(lambda scene: scene.alice.call("bob", "ping"))],
    "Space.call_tool": [
        bob_serves(sending(lambda scene: scene.alice.call_tool("bob", "slow"))),
        bob_does(approve_all)(lambda scene: scene.alice.call_tool("bob", "slow", propose=True)),
    ],
    "Space.chat": [sending(lambda scene: scene.alice.chat("hello"))],
    "Space.clear": [sending(lambda scene: scene.alice.clear("bob"))],
    "Space.close": [lambda scene: scene.alice.close(), closing_while_away],
    "Space.compact": [bob_serves(lambda scene: scene.alice.compact("bob"))],
    "Space.connected": [lost],
    "Space.flush": [sending(lambda scene: scene.alice.flush())],
    "Space.forget": [sending(lambda scene: scene.alice.forget("bob"))],
    "Space.get_prompt": [bob_does(answer_all)(lambda scene: scene.alice.get_prompt("bob", "p"))],
    "Space.list_prompts": [bob_serves(lambda scene: scene.alice.list_prompts("bob"))],
    "Space.list_resource_templates": [bob_serves(lambda scene: scene.alice.list_resource_templates("bob"))],
    "Space.list_resources": [bob_serves(lambda scene: scene.alice.list_resources("bob"))],
    "Space.list_tools": [bob_serves(lambda scene: scene.alice.list_tools("bob"))],
    "Space.open_stream": [sending(lambda scene: scene.alice.open_stream())],
    "Space.pause": [sending(lambda scene: scene.alice.pause("bob", seconds=0.01))],
    "Space.post": [sending(lambda scene: scene.alice.post(OutgoingEnvelope(kind="chat", payload={"text": "x"})))],
    "Space.propose": [sending(with_a_proposal(nothing))],
    "Space.read_resource": [bob_does(answer_all)(lambda scene: scene.alice.read_resource("bob", "a:"))],
    "Space.request": [sending(asked)],
    "Space.restart": [sending(lambda scene: scene.alice.restart("bob"))],
    "Space.resume": [sending(lambda scene: scene.alice.resume("bob"))],
    "Space.send": [sending(lambda scene: scene.alice.send("reasoning/start"))],
    "Space.shutdown": [sending(lambda scene: scene.alice.shutdown("carol"))],
    "Space.status": [bob_serves(lambda scene: scene.alice.status("bob"))],
    "Space.wait_until": [lambda scene: scene.alice.wait_until(lambda view: "carol" in view.participants, timeout=0.01)],
    "Space.wait_for": [hearing(lambda scene: scene.alice.wait_for(lambda envelope: envelope.kind == "chat"))],
    "Stream.close": [sending(lambda scene: scene.live.close())],
    "Stream.complete": [sending(lambda scene: scene.live.complete())],
    "Stream.fail": [sending(lambda scene: scene.live.fail("bug", "it broke"))],
    "Stream.grant": [sending(lambda scene: scene.live.grant("bob"))],
    "Stream.revoke": [sending(lambda scene: scene.live.revoke("bob"))],
    "Stream.send": [sending(lambda scene: scene.live.send("frame"))],
    "Stream.send_data": [sending(lambda scene: scene.live.send_data("data"))],
    "Stream.start": [sending(lambda scene: scene.ready.start())],
    "Stream.transfer": [sending(lambda scene: scene.live.transfer("bob"))],
    "Subscription.__aenter__": [hearing(reading)],
    "Subscription.__aexit__": [hearing(reading)],
    "Subscription.__anext__": [hearing(lambda scene: anext(scene.alice.envelopes("chat")))],
    "notify": [sending(lambda scene: notify(scene.alice, "notifications/tools/list_changed"))],
    "serve": [bob_does(bob_asks)(serving)],
}


class Interrupted:
    """Awaits `work`, and cancels its own task when `work` waits for the n-th time."""

    def __init__(self, work: Awaitable[Any], at: int) -> None:
        self._work = work
        self._at = at
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        error: Any = None
        while True:
            try:
                waited_for = steps.send(error) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
            self.waits += 1
            if self.waits == self._at:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited_for
                error = None
            except (asyncio.CancelledError, Exception) as raised:  # `work` must see the errors of what it awaits
                error = raised


@pytest.fixture(scope="module", autouse=True)
def only_what_is_new() -> Iterator[None]:
    """Leave objects from before the module out of every search: none of them is a future of a test's loop."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def pending() -> set[int]:
    """The ids of this loop's pending futures, tasks included."""
    loop = asyncio.get_running_loop()
    gc.collect()
    futures = [
        candidate for candidate in gc.get_objects() if issubclass(type(candidate), asyncio.Future | asyncio.Task)
    ]
    return {id(future) for future in futures if future.get_loop() is loop and not future.done()}


async def run(work: Awaitable[Any], at: int) -> bool:
    """Cancel the call at this place; returns whether it waited so often."""

    async def whole() -> None:
        await interrupted

    interrupted = Interrupted(work, at)
    task = asyncio.create_task(whole(), name="to be cancelled")
    with suppress(asyncio.CancelledError, mew.client.RequestTimeout):
        await task
    assert task.cancelled() == (interrupted.waits >= at), "a cancellation was ignored"
    return task.cancelled()


async def opened(scene: Scene) -> None:
    scene.live = await scene.alice.open_stream()
    scene.ready = await scene.alice.announce_stream(["text"])
    await scene.alice.wait_until(lambda view: "bob" in view.participants)


@pytest.mark.parametrize(
    ("name", "recipe"), [(name, recipe) for name, recipes in RECIPES.items() for recipe in recipes]
)
@played
async def test_a_cancelled_coroutine_leaves_no_task_and_no_future_behind(
    gateway: Running, name: str, recipe: Recipe
) -> None:
    for at in range(1, MOST):
        async with joining(gateway, "bob") as bob, joining(gateway, "alice") as alice:
            scene = Scene(gateway, alice, bob)
            await opened(scene)
            before = pending()
            beside = await begun(recipe.work(scene)) if isinstance(recipe, Beside) else None
            had = await run(recipe(scene), at)
            if beside is not None:
                await ended(beside)
            await settled(scene, before)
        await until(lambda: gateway.ask(lambda gateway: not gateway.sockets))
        if not had:
            assert at > 1, "it never waited"
            return
    raise AssertionError(f"{name} waits more than {MOST} times")


async def settled(scene: Scene, before: set[int]) -> None:
    """Fail unless the only pending futures are those from before and those of a new connection, and alice works."""
    if scene.alice.session.end_reason is None:
        await scene.alice.connected()
        with suppress(Paused):  # a paused participant gets an answer too
            await scene.alice.chat("still here")
        assert scene.alice._pending._requests == {}
        assert (scene.alice._dispatcher.waiters, scene.alice._dispatcher.view_waiters) == ((), ())
    kept_ids = {id(future) for future in living(scene)}
    for _ in range(4000):
        left = pending() - before - kept_ids
        if not left:
            return
        await asyncio.sleep(0.005)
    raise AssertionError([leftover for leftover in gc.get_objects() if id(leftover) in left])


def living(scene: Scene) -> list[Any]:
    """The future that picows keeps for each connection."""
    connections = [space.connection for space in (scene.alice, scene.bob) if space.connection is not None]
    return [
        future
        for connection in connections
        for future in gc.get_referents(connection._transport)
        if isinstance(future, asyncio.Future)
    ]


def test_every_public_coroutine_is_cancelled() -> None:
    assert public_coroutines() == sorted(RECIPES)


def test_every_class_with_coroutines_is_searched() -> None:
    looked_at = {name.partition(".")[0] for name in public_coroutines()}
    awaited = (
        ConnectContext,
        Connection,
        ControlHandler,
        McpHandler,
        Participant,
        Proposal,
        Proposals,
        IncomingProposal,
        Reasoning,
    )
    assert looked_at == {cls.__name__ for cls in (*awaited, Space, Stream, Subscription)} | {"notify", "serve"}


@played
async def test_a_leaked_future_is_detected() -> None:
    before = pending()
    future = asyncio.get_running_loop().create_future()
    assert pending() - before == {id(future)}
    future.cancel()
    assert pending() - before == set()
