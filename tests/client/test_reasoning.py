"""A reasoning is a start, thoughts and an end in one context, however it ends."""

import asyncio
import json
from typing import Any

import pytest

from mew.client import Subscription
from mew.protocol import Envelope
from tests.client.harness import joining, played
from tests.gateway.raw import Running


def summary(envelope: Envelope) -> tuple[str, Any, Any]:
    """Kind, payload and context of an envelope."""
    context = envelope.fields.get("context")
    return envelope.kind, envelope.payload, None if context is None else json.loads(context)


async def summaries(envelopes: Subscription[Envelope], count: int) -> list[tuple[str, Any, Any]]:
    return [summary(await anext(envelopes)) for _ in range(count)]


@played
async def test_thoughts_and_conclusion_are_in_the_context_of_the_start(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        envelopes = alice.envelopes(sender="bob")
        async with bob.reasoning("why is it red?") as thought:
            await thought.say("a test fails", confidence=0.5)
            await thought.conclude("the test is right")
        assert await summaries(envelopes, 3) == [
            ("reasoning/start", {"message": "why is it red?"}, None),
            ("reasoning/thought", {"message": "a test fails", "confidence": 0.5}, thought.id),
            ("reasoning/conclusion", {"message": "the test is right"}, thought.id),
        ]


@played
async def test_the_context_is_the_id_of_the_start(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        starts = alice.envelopes("reasoning/start")
        async with bob.reasoning() as thought:
            start = await anext(starts)
            assert (start.id, start.payload) == (thought.id, {})


@played
async def test_leaving_the_block_concludes(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        envelopes = alice.envelopes(sender="bob")
        async with bob.reasoning("hm") as thought:
            pass
        await bob.chat("after it")
        assert await summaries(envelopes, 3) == [
            ("reasoning/start", {"message": "hm"}, None),
            ("reasoning/conclusion", {}, thought.id),
            ("chat", {"text": "after it"}, None),
        ]


@played
async def test_envelopes_sent_within_have_the_context(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        stream = await bob.open_stream()
        await alice.wait_until(lambda view: stream.stream_id in view.streams)
        envelopes = alice.envelopes(sender="bob")
        async with bob.reasoning("hm", to="alice") as thought:
            await bob.chat("within")
            await asyncio.create_task(bob.chat("in a task"))
            await bob.send("chat", {"text": "elsewhere"}, context="elsewhere")
            await stream.send_data(1)
            await alice.chat("not bob's")
            await thought.cancel("enough")
            await bob.chat("after it")
        kinds = [(kind, context) for kind, _, context in await summaries(envelopes, 7)]
        assert kinds == [
            ("reasoning/start", None),
            ("chat", thought.id),
            ("chat", thought.id),
            ("chat", "elsewhere"),
            ("stream/data", f"lab/{stream.stream_id}"),
            ("reasoning/cancel", thought.id),
            ("chat", None),
        ]


@played
async def test_requests_within_have_the_context(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        requests = alice.envelopes("mcp/request")
        async with bob.reasoning() as thought:
            calling = asyncio.create_task(bob.call("alice", "m"))
            request = await anext(requests)
            assert summary(request)[2] == thought.id
            await alice.send("mcp/response", {"result": {}}, to="bob", correlation_id=request.id)
            await calling


@played
async def test_envelopes_of_another_participant_are_not_in_the_context(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob, bob.reasoning():
        assert summary(await alice.chat("of alice"))[2] is None


@played
async def test_an_inner_reasoning_is_in_the_context_of_the_outer(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        envelopes = alice.envelopes(sender="bob")
        async with bob.reasoning("outer") as outer:
            async with bob.reasoning("inner") as inner:
                await inner.say("deep")
            await bob.chat("shallow")
        assert [(kind, context) for kind, _, context in await summaries(envelopes, 6)] == [
            ("reasoning/start", None),
            ("reasoning/start", outer.id),
            ("reasoning/thought", inner.id),
            ("reasoning/conclusion", inner.id),
            ("chat", outer.id),
            ("reasoning/conclusion", outer.id),
        ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError("no such thing"), "ValueError: no such thing"), (KeyError(), "KeyError")],
)
@played
async def test_an_exception_cancels_it_with_the_reason(gateway: Running, error: Exception, reason: str) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        envelopes = alice.envelopes(sender="bob")
        with pytest.raises(type(error)):
            async with bob.reasoning() as thought:
                raise error
        assert (await summaries(envelopes, 2))[1] == ("reasoning/cancel", {"reason": reason}, thought.id)


@played
async def test_a_cancellation_cancels_it(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        envelopes = alice.envelopes(sender="bob")

        async def brood() -> None:
            async with bob.reasoning("forever"):
                await asyncio.Event().wait()

        brooding = asyncio.create_task(brood())
        start = await anext(envelopes)
        brooding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await brooding
        assert summary(await anext(envelopes)) == ("reasoning/cancel", {"reason": "cancelled"}, start.id)


@played
async def test_a_cancel_that_cannot_be_sent_hides_no_error(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob:
        with pytest.raises(ValueError, match="the first"):
            async with bob.reasoning():
                await bob.close()
                raise ValueError("the first")


@played
async def test_sending_before_the_start_or_after_the_end_is_an_error(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob:
        thought = bob.reasoning()
        with pytest.raises(RuntimeError):
            await thought.say("too early")
        async with thought:
            await thought.conclude("so be it")
            for speak in (thought.say("too late"), thought.conclude("again"), thought.cancel()):
                with pytest.raises(RuntimeError):
                    await speak
