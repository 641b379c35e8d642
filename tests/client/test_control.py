"""A participant carries out permitted control requests: pause, forget, shut down; and reports its status."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import mew
from mew.client import ControlRequest, Participant, RequestTimeout, Space, Status
from mew.client.errors import ParticipantNotFound
from tests.client.harness import begun, ended, joining, played, until
from tests.client.proxy import proxied
from tests.gateway.raw import Running, running


@asynccontextmanager
async def obeying(gateway: Running, participant: Participant) -> AsyncIterator[tuple[Space, Space, asyncio.Task[None]]]:
    """Connect alice, who sends control requests, and bob, who serves the participant; also gives bob's task."""
    async with joining(gateway, "bob") as bob, joining(gateway, "alice") as alice:
        task = await begun(participant.run(bob))
        await alice.wait_until(lambda view: "bob" in view.participants)
        try:
            yield alice, bob, task
        finally:
            await ended(task)


def counter() -> tuple[Participant, list[int]]:
    participant, counted = Participant(), [0]

    @participant.tool
    def count() -> int:
        counted[0] += 1
        return counted[0]

    return participant, counted


# Pausing


@played
async def test_a_paused_participant_starts_no_request_until_it_is_resumed(gateway: Running) -> None:
    participant, counted = counter()
    async with obeying(gateway, participant) as (alice, bob, _):
        requests = bob.envelopes("mcp/request")
        await alice.pause("bob", reason="lunch")
        calling = asyncio.create_task(alice.call_tool("bob", "count"))
        await anext(requests)
        assert await alice.status("bob") == Status("bob", "paused", {"status": "paused"})
        assert (participant.paused, counted, calling.done()) == (True, [0], False)
        await alice.resume("bob")
        assert (await calling).text == "1"
        assert await alice.status("bob") == Status("bob", "active", {"status": "active"})
        assert not participant.paused


@played
async def test_a_pause_ends_after_its_time(gateway: Running) -> None:
    participant, _ = counter()
    async with obeying(gateway, participant) as (alice, _, _):
        await alice.pause("bob", seconds=0.05)
        assert (await alice.call_tool("bob", "count")).text == "1"
        assert not participant.paused


@played
async def test_an_answer_that_is_ready_during_a_pause_is_sent_after_it(gateway: Running) -> None:
    participant, go = Participant(), asyncio.Event()

    @participant.tool
    async def slow() -> str:
        await go.wait()
        return "done"

    async with obeying(gateway, participant) as (alice, bob, _):
        requests = bob.envelopes("mcp/request")
        calling = asyncio.create_task(alice.call_tool("bob", "slow"))
        await anext(requests)
        await alice.pause("bob")
        await until(lambda: participant.paused)
        refusals = bob.envelopes("system/error")
        go.set()
        assert (await anext(refusals)).payload["error"] == "paused"
        assert not calling.done()
        await alice.resume("bob")
        assert (await calling).text == "done"


@played
async def test_a_pause_that_began_before_the_join_delays_answers(gateway: Running) -> None:
    participant, _ = counter()
    async with joining(gateway, "alice") as alice:
        await alice.pause("bob")
        async with joining(gateway, "bob") as bob:
            refusals = bob.envelopes("system/error")
            task = await begun(participant.run(bob))
            calling = asyncio.create_task(alice.call_tool("bob", "count"))
            assert (await anext(refusals)).payload["error"] == "paused"
            await alice.resume("bob")
            assert (await calling).text == "1"
            await ended(task)


@pytest.mark.parametrize("resumed", ["while we were away", "after we came back"])
@played
async def test_a_pause_from_before_a_break_ends_even_if_its_end_was_missed(gateway: Running, resumed: str) -> None:
    participant, _ = counter()
    async with (
        joining(gateway, "alice") as alice,
        proxied(gateway.port) as (proxy, url),
        mew.connect(url, token=gateway.token("bob")) as bob,
    ):
        task, refusals = await begun(participant.run(bob)), bob.envelopes("system/error")
        await alice.pause("bob")
        await until(lambda: participant.paused)
        proxy.refusing = True
        proxy.cut()
        await alice.wait_until(lambda view: "bob" not in view.participants)
        if resumed == "while we were away":
            await alice.resume("bob")
        proxy.behave()
        await alice.wait_until(lambda view: "bob" in view.participants)
        calling = asyncio.create_task(alice.call_tool("bob", "count"))
        if resumed == "after we came back":
            assert (await anext(refusals)).payload["error"] == "paused"
            await alice.resume("bob")
        assert (await calling).text == "1"
        assert not participant.paused
        await ended(task)


@played
async def test_a_pause_after_a_reconnect_is_carried_out(gateway: Running) -> None:
    participant, counted = counter()
    async with obeying(gateway, participant) as (alice, bob, _):
        assert bob.connection is not None
        bob.connection.abort("as if the network were gone")
        await until(lambda: bob.connection is None)
        await bob.connected()
        await alice.pause("bob")
        await until(lambda: participant.paused)
        assert ((await alice.status("bob")).status, counted) == ("paused", [0])


@played
async def test_a_participant_cannot_resume_itself(gateway: Running) -> None:
    participant, _ = counter()
    async with obeying(gateway, participant) as (alice, bob, _):
        await alice.pause("bob")
        await until(lambda: participant.paused)
        await bob.resume("bob")
        assert (await alice.status("bob")).status == "paused"
        assert participant.paused


@played
async def test_control_requests_to_others_are_ignored(gateway: Running) -> None:
    participant, _ = counter()
    async with obeying(gateway, participant) as (alice, _, task):
        await alice.pause("carol")
        await alice.shutdown("carol")
        assert (await alice.status("bob")).status == "active"
        assert not task.done()


# The hooks


Give = Callable[[Space], Any]
ORDERS: dict[str, tuple[Give, ControlRequest, str]] = {
    "pause": (
        lambda space: space.pause("bob", seconds=60, reason="why"),
        ControlRequest("participant/pause", "alice", "why", {"timeout_seconds": 60, "reason": "why"}),
        "paused",
    ),
    "resume": (
        lambda space: space.resume("bob", reason="why"),
        ControlRequest("participant/resume", "alice", "why", {"reason": "why"}),
        "active",
    ),
    "forget": (
        lambda space: space.forget("bob", direction="oldest", entries=3),
        ControlRequest("participant/forget", "alice", None, {"direction": "oldest", "entries": 3}),
        "forgotten",
    ),
    "clear": (
        lambda space: space.clear("bob", reason="why"),
        ControlRequest("participant/clear", "alice", "why", {"reason": "why"}),
        "cleared",
    ),
    "restart": (
        lambda space: space.restart("bob", mode="hard"),
        ControlRequest("participant/restart", "alice", None, {"mode": "hard"}),
        "restarted",
    ),
    "shutdown": (
        lambda space: space.shutdown("bob", reason="why"),
        ControlRequest("participant/shutdown", "alice", "why", {"reason": "why"}),
        "shutting_down",
    ),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("how", ["sync", "async", "without an argument", "none"])
@played
async def test_a_control_request_calls_its_hook_and_is_confirmed(gateway: Running, name: str, how: str) -> None:
    participant, arguments = Participant(), []
    give, order, status = ORDERS[name]

    def hook(order: ControlRequest) -> dict[str, Any]:
        arguments.append(order)
        return {"said": "so"}

    async def slow(order: ControlRequest) -> dict[str, Any]:
        await asyncio.sleep(0)
        return hook(order)

    hooks: dict[str, Any] = {"sync": hook, "async": slow, "without an argument": lambda: hook(order)}
    if how in hooks:
        decorate = getattr(participant, f"on_{name}")
        assert decorate(hooks[how]) is hooks[how]
    async with obeying(gateway, participant) as (alice, _, _):
        statuses = alice.envelopes("participant/status", sender="bob")
        sent = await give(alice)
        answer = await anext(statuses)
        assert (answer.to, answer.correlation_id) == (("alice",), (sent.id,))
        assert answer.payload == {"status": status, **({"said": "so"} if how in hooks else {})}
        assert arguments == ([order] if how in hooks else [])


@played
async def test_a_caller_of_compact_gets_its_result(gateway: Running) -> None:
    participant = Participant()
    async with obeying(gateway, participant) as (alice, _, _):
        assert await alice.compact("bob") == {"status": "skipped", "skipped": True}
        participant.on_compact(lambda order: {"freed_tokens": 100, "why": order.reason})
        assert await alice.compact("bob", reason="full") == {"status": "compacted", "freed_tokens": 100, "why": "full"}


@played
async def test_a_status_has_the_fields_of_the_hook_that_were_requested(gateway: Running) -> None:
    participant = Participant()
    participant.on_status(lambda: {"tokens": 7, "messages_in_context": 3})
    async with obeying(gateway, participant) as (alice, _, _):
        assert (await alice.status("bob")).payload == {"status": "active", "tokens": 7, "messages_in_context": 3}
        assert (await alice.status("bob", ["tokens"])).payload == {"status": "active", "tokens": 7}


@played
async def test_a_failed_hook_is_reported_and_the_next_request_is_carried_out(gateway: Running) -> None:
    participant = Participant()

    @participant.on_clear
    def fail() -> None:
        raise RuntimeError("cannot forget")

    async with obeying(gateway, participant) as (alice, _, _):
        statuses = alice.envelopes("participant/status", sender="bob")
        await alice.clear("bob")
        assert (await anext(statuses)).payload == {"status": "failed", "reason": "cannot forget"}
        assert (await alice.status("bob")).status == "active"


@played
async def test_a_slow_hook_does_not_delay_other_requests(gateway: Running) -> None:
    participant = Participant()

    @participant.on_compact
    async def brood() -> None:
        await asyncio.Event().wait()

    async with obeying(gateway, participant) as (alice, _, task):
        with pytest.raises(RequestTimeout):
            await alice.compact("bob", timeout=0.02)
        assert (await alice.status("bob")).status == "active"
        await alice.shutdown("bob")
        await task


# Ending


@played
async def test_a_shutdown_ends_the_run_and_the_calls_in_progress(gateway: Running) -> None:
    participant, ended_well = Participant(), []
    started = asyncio.Event()

    @participant.tool
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended_well.append(True)

    participant.on_shutdown(lambda order: ended_well.append(order.reason))
    async with obeying(gateway, participant) as (alice, _, task):
        await alice.send("mcp/request", {"method": "tools/call", "params": {"name": "hang"}}, to="bob")
        await started.wait()
        await alice.shutdown("bob", reason="night")
        await task
        assert ended_well == ["night", True]


@played
async def test_a_shutdown_waits_for_its_hook_only_until_the_time_out(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mew.client.control.SHUTDOWN_HOOK_SECONDS", 0.05)
    participant = Participant()

    @participant.on_shutdown
    async def never() -> None:
        await asyncio.Event().wait()

    async with obeying(gateway, participant) as (alice, _, task):
        await alice.shutdown("bob")
        await task


# Permission and presence


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[Running]:
    """A gateway where bob has no permission to send his status."""
    with running(tmp_path, {"participants": {"alice": [{"kind": "*"}], "bob": [{"kind": "chat"}]}}) as gateway:
        yield gateway


@played
async def test_a_participant_without_permission_for_status_obeys_without_an_answer(mute: Running) -> None:
    participant, _ = counter()
    async with obeying(mute, participant) as (alice, bob, task):
        refusals = bob.envelopes("system/error")
        with pytest.raises(RequestTimeout):
            await alice.status("bob", timeout=0.05)
        await alice.pause("bob")
        await until(lambda: participant.paused)
        await alice.resume("bob")
        assert (await alice.call_tool("bob", "count")).text == "1"
        await alice.shutdown("bob")
        await task
        refusals.close()
        assert [refusal async for refusal in refusals] == []


@played
async def test_a_request_to_an_absent_participant_fails(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        with pytest.raises(ParticipantNotFound, match="'bob'"):
            await alice.status("bob")
        with pytest.raises(ParticipantNotFound, match="'bob'"):
            await alice.compact("bob")
