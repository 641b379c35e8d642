"""The outcome of a sent envelope: its echo, an answer, or an error."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.client import ConnectionLost, ProtocolError, RequestTimeout, Space, errors, pending
from mew.protocol import ERROR_CODES, Envelope, Limits
from tests.client.harness import begun, close_all, ended, joining, played
from tests.gateway.raw import Running, running


@played
async def test_an_accepted_envelope_is_returned_as_its_echo(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        sent = await alice.send(
            "mcp/proposal", {"method": "tools/call"}, to="bob", correlation_id=["a", "b"], context={"step": 1}
        )
        assert (sent.sender, sent.kind, sent.to, sent.correlation_id) == ("alice", "mcp/proposal", ("bob",), ("a", "b"))
        assert sent.payload == {"method": "tools/call"}
        assert msgspec.json.decode(sent.fields["context"]) == {"step": 1}


@played
async def test_a_payload_is_anything_that_is_an_object_in_json(gateway: Running) -> None:
    class Text(msgspec.Struct):
        text: str

    async with joining(gateway, "alice") as alice:
        assert (await alice.send("chat", Text("hello"))).payload == {"text": "hello"}
        assert (await alice.send("reasoning/start")).payload == {}


@played
async def test_concurrent_envelopes_each_get_their_own_echo(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        sent = await asyncio.gather(*(alice.chat(str(number), to=["bob"]) for number in range(500)))
        assert [envelope.payload["text"] for envelope in sent] == [str(number) for number in range(500)]
        assert len({envelope.id for envelope in sent}) == 500


@pytest.mark.parametrize(
    ("kind", "payload", "error"),
    [
        ("chat", {}, errors.InvalidEnvelope),
        ("chat", 5, errors.InvalidEnvelope),
        ("system/register", {}, errors.InvalidRequest),
        ("stream/ready", {}, errors.ReservedKind),
        ("mcp/request", {"method": "tools/list"}, errors.CapabilityViolation),
        ("stream/start", {"stream_id": "none"}, errors.StreamNotFound),
        ("stream/data", {"stream_id": "none", "sequence": 0, "content": 1}, errors.StreamNotFound),
    ],
)
@played
async def test_a_refusal_is_raised_as_the_class_of_its_code(
    tmp_path: Path, kind: str, payload: Any, error: type[ProtocolError]
) -> None:
    with running(tmp_path, {"participants": {"alice": [{"kind": "chat"}]}}) as gateway:
        async with joining(gateway, "alice") as alice:
            with pytest.raises(error) as raised:
                await alice.send(kind, payload)
            assert raised.value.code == error.code
            assert raised.value.message == str(raised.value) != ""
            assert raised.value.envelope is not None
            assert raised.value.envelope.kind == "system/error"


@played
async def test_a_refusal_has_its_parts(tmp_path: Path) -> None:
    with running(tmp_path, {"participants": {"alice": [{"kind": "chat"}]}}) as gateway:
        async with joining(gateway, "alice") as alice:
            with pytest.raises(errors.CapabilityViolation) as raised:
                await alice.send("mcp/proposal")
            assert raised.value.parts["attempted_kind"] == "mcp/proposal"
            assert {"kind": "chat"} in raised.value.parts["your_capabilities"]


def test_every_code_has_a_class_of_its_own() -> None:
    for code in ERROR_CODES:
        error = ProtocolError.from_payload({"error": code})
        assert (error.code, type(error) is ProtocolError) == (code, False)


def test_an_unknown_code_is_a_protocol_error() -> None:
    error = ProtocolError.from_payload({"error": "new_in_v5", "message": "no", "more": 1})
    assert type(error) is ProtocolError
    assert (error.code, error.message, error.parts) == ("new_in_v5", "no", {"more": 1})


@pytest.mark.parametrize("levels", [140, 100_000])
@played
async def test_a_too_deeply_nested_payload_is_not_sent(gateway: Running, levels: int) -> None:
    deep: Any = []
    for _ in range(min(levels, 900)):
        deep = [deep]
    async with joining(gateway, "alice") as alice:
        with pytest.raises(errors.InvalidEnvelope):
            await alice.send("chat", {"text": "x", "deep": deep})


# Envelopes that are carried out and have no echo


@played
async def test_an_envelope_without_an_echo_gets_the_answer_of_the_gateway(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        stream = await alice.open_stream()
        assert (await stream.grant("bob")).kind == "stream/write-granted"
        assert (await alice.send("space/invite", {"participant_id": "dora"})).payload["status"] == "created"
        assert (await alice.send("system/join")).kind == "system/welcome"
        assert (await alice.send("system/heartbeat")).kind == "system/heartbeat"
        assert (await alice.send("space/kick", {"participant_id": "bob"})).payload["event"] == "leave"
        with pytest.raises(errors.MewError):
            await bob.chat("still here?")


@played
async def test_a_kick_of_an_absent_participant_is_confirmed(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        kicked = await alice.send("space/kick", {"participant_id": "carol"})
        assert (kicked.kind, kicked.sender) == ("space/kick", "alice")
        with pytest.raises(errors.ParticipantNotFound):
            await alice.send("space/kick", {"participant_id": "unknown"})


@played
async def test_every_envelope_over_the_rate_fails_even_if_the_gateway_does_not_answer_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MARKER_SECONDS", 0.2)
    limits = Limits(envelopes_per_second=20, envelope_burst=20)
    with running(tmp_path, {"limits": limits}) as gateway:
        async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
            chats = bob.envelopes("chat", sender="alice")
            sent = await asyncio.gather(*(alice.chat(str(n)) for n in range(100)), return_exceptions=True)
            accepted = [outcome.payload["text"] for outcome in sent if isinstance(outcome, Envelope)]
            assert {type(outcome) for outcome in sent} == {Envelope, errors.RateLimited}
            assert 1 <= len(accepted) <= 50
            for text in accepted:
                assert (await anext(chats)).payload["text"] == text


@pytest.mark.parametrize("size", [3_000, 200_000])
@played
async def test_a_too_large_message_fails_and_the_client_reconnects(tmp_path: Path, size: int) -> None:
    with running(tmp_path, {"limits": Limits(message_bytes=2_000)}) as gateway:
        back = asyncio.Event()
        async with joining(gateway, "alice", on_reconnected=lambda _: back.set()) as alice:
            with pytest.raises(errors.MessageTooLarge):
                await alice.chat("x" * size)
            await back.wait()
            await alice.chat("small")


# Flushing


@played
async def test_a_flush_returns_when_all_frames_sent_before_are_handled(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        stream = await alice.open_stream()
        for number in range(100):
            await stream.send(str(number))
        await alice.flush()
        assert stream.view is not None
        assert stream.view.frames == 100


@played
async def test_the_welcome_for_a_flush_reaches_no_subscription(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        messages, welcomes = alice.messages(), alice.envelopes("system/welcome")
        await alice.flush()
        waiting = await begun(alice.flush())
        await ended(waiting)
        await alice.flush()
        chat = await alice.chat("after")
        joined_again = await alice.send("system/join")
        assert [(await anext(messages)), (await anext(messages))] == [chat, joined_again]
        assert await anext(welcomes) == joined_again


@played
async def test_a_flush_of_a_broken_connection_fails(gateway: Running) -> None:
    async with joining(gateway, "alice", reconnect=False) as alice:
        waiting = await begun(alice.flush())
        close_all(gateway, 1001, "restart")
        with pytest.raises(ConnectionLost):
            for _ in range(1_000):
                await waiting
                waiting = await begun(alice.flush())


@played
async def test_a_flush_over_the_rate_fails_with_rate_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MARKER_SECONDS", 0.2)
    limits = Limits(envelopes_per_second=20, envelope_burst=20)
    with running(tmp_path, {"limits": limits}) as gateway:
        async with joining(gateway, "alice") as alice:
            outcomes = await asyncio.gather(*(alice.flush() for _ in range(50)), return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {type(None), errors.RateLimited}


# Requests


async def answering(space: Space, **reply: Any) -> None:
    """Answer every request with `reply`."""
    async for request in space.envelopes("mcp/request"):
        await space.send("mcp/response", reply, to=request.sender, correlation_id=request.id)


@played
async def test_a_request_returns_the_envelope_that_answers_it(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        served = asyncio.create_task(answering(bob, result={"tools": []}))
        await asyncio.sleep(0)
        answer = await alice.request("mcp/request", {"method": "tools/list"}, to=["bob"])
        assert (answer.sender, answer.kind, answer.payload) == ("bob", "mcp/response", {"result": {"tools": []}})
        served.cancel()


@pytest.mark.parametrize("narrow", ["reasoning/*", lambda envelope: envelope.kind == "reasoning/start"])
@played
async def test_a_request_can_specify_its_answer(gateway: Running, narrow: Any) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        asking = asyncio.create_task(alice.request("chat", {"text": "why?"}, answer=narrow))
        question = await bob.wait_for(lambda envelope: envelope.kind == "chat")
        await bob.send("chat/acknowledge", correlation_id=question.id)
        thinking = await bob.send("reasoning/start", correlation_id=question.id)
        assert (await asking).id == thinking.id


@played
async def test_an_accepted_request_waits_for_its_answer_without_the_marker(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MARKER_SECONDS", 0.05)
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        welcomes = alice.envelopes("system/welcome")
        asking = asyncio.create_task(alice.request("space/invite", {"participant_id": "dora"}, answer="chat"))
        acknowledged = await alice.wait_for(lambda envelope: envelope.kind == "space/invite-ack")
        slow = asyncio.create_task(anext(welcomes))
        await asyncio.wait([slow], timeout=0.2)
        assert not asking.done()
        chat = await bob.send("chat", {"text": "who is that?"}, correlation_id=acknowledged.correlation_id)
        assert (await asking).id == chat.id
        slow.cancel()


@played
async def test_a_refused_request_raises_the_refusal(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        with pytest.raises(errors.InvalidEnvelope, match="method"):
            await alice.request("mcp/request", {})


@played
async def test_an_unanswered_request_times_out(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        with pytest.raises(RequestTimeout, match=r"0\.02 s"):
            await alice.request("mcp/request", {"method": "tools/list"}, timeout=0.02)


@played
async def test_an_error_of_the_predicate_is_raised_in_the_waiting_call(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        with pytest.raises(ZeroDivisionError):
            await alice.request("space/invite", {"participant_id": "dora"}, answer=lambda _: bool(1 / 0))
        waiting = asyncio.create_task(alice.wait_for(lambda _: bool(1 / 0)))
        await asyncio.sleep(0)
        await alice.chat("proceed")
        with pytest.raises(ZeroDivisionError):
            await waiting


@played
async def test_waiting_for_an_envelope_or_a_view_times_out(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        with pytest.raises(RequestTimeout):
            await alice.wait_for(lambda _: False, timeout=0.02)
        with pytest.raises(RequestTimeout):
            await alice.wait_until(lambda _: False, timeout=0.02)


@played
async def test_only_our_own_time_out_is_a_request_time_out(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await alice.wait_for(lambda _: False, timeout=10)

        def late(_: Envelope) -> bool:
            raise TimeoutError("of the predicate")

        waiting = asyncio.create_task(alice.wait_for(late, timeout=10))
        await asyncio.sleep(0)
        await alice.chat("proceed")
        with pytest.raises(TimeoutError, match="of the predicate"):
            await waiting


@played
async def test_waiting_for_a_view_returns_when_it_is_true(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        coming = asyncio.create_task(alice.wait_until(lambda view: "bob" in view.participants))
        async with joining(gateway, "bob"):
            assert "bob" in (await coming).participants
            assert (await alice.wait_until(lambda view: "bob" in view.participants)) is alice.view
        await alice.wait_until(lambda view: "bob" not in view.participants)


# The end


@played
async def test_closing_the_space_fails_every_waiting_call(gateway: Running) -> None:
    alice = await joining(gateway, "alice")
    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(alice.request("mcp/request", {"method": "tools/list"})),
        asyncio.create_task(alice.wait_for(lambda _: False)),
        asyncio.create_task(alice.wait_until(lambda _: False)),
    ]
    await asyncio.sleep(0)
    await alice.chat("they wait by now")
    await alice.close()
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, ConnectionLost), outcome
        assert not outcome.unconfirmed
    for late in (alice.chat("late"), alice.wait_for(lambda _: True), alice.connected(), alice.open_stream()):
        with pytest.raises(ConnectionLost):
            await late
