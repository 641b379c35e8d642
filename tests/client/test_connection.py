"""Messages as they arrive: in fragments, malformed, or after a close."""

import asyncio
import logging

import pytest

import mew
from mew.client import ConnectionLost, Gap, JoinRefused, connection
from tests.client.fake_gateway import CHAT, WELCOME, await_close, faking, pieces, whole
from tests.client.harness import played, until
from tests.gateway.raw import CLOSE, PING

FRAME = b"#stream-1#data"


@played
async def test_a_message_can_arrive_in_fragments(caplog: pytest.LogCaptureFixture) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(pieces(WELCOME, 1, 100, between=whole(b"are you there", PING)))
        await reader.read(10_000)
        writer.write(pieces(FRAME, 5) + pieces(CHAT, 0, 50))
        await await_close(reader)

    async with faking(script) as url, mew.connect(url, token="any") as space:
        chats, frames = space.envelopes("chat"), space.frames("stream-1")
        assert (space.participant_id, space.view.position) == ("alice", 7)
        assert (await anext(chats)).payload["text"] == "hello"
        assert (await anext(frames)).data == b"data"


@pytest.mark.parametrize(
    "malformed",
    [
        whole(b"no json"),
        whole(b"[]"),
        whole(b'{"kind":5}'),
        whole(b'{"from":"system:gateway","kind":"system/presence","payload":{}}'),
        whole(b"#"),
        b"\xff\xff\xff\xff",
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
        whole(b"\xff\xff", CLOSE),
    ],
)
@played
async def test_after_a_malformed_message_the_client_reconnects(
    malformed: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    gaps: list[Gap] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(whole(WELCOME))
        await reader.read(10_000)
        writer.write(malformed if number == 1 else whole(CHAT))
        await await_close(reader)

    async with faking(script) as url, mew.connect(url, token="any", on_reconnected=gaps.append) as space:
        chats = space.envelopes("chat")
        assert (await anext(chats)).payload["text"] == "hello"
        assert gaps == [Gap(7, 7, {})]


@played
async def test_a_welcome_that_cannot_be_read_fails_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(whole(WELCOME.replace(b'"position":7', b'"place":7')))
        await await_close(reader)

    async with faking(script) as url:
        with pytest.raises(ConnectionLost):
            await mew.connect(url, token="any")
    assert "could not be handled" in caplog.text


@pytest.mark.parametrize("code", [4401, 1013])
@played
async def test_a_close_before_the_welcome_fails_with_its_reason(code: int) -> None:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(whole(code.to_bytes(2, "big") + b"go away", CLOSE))

    async with faking(script) as url:
        with pytest.raises(JoinRefused if code == 4401 else ConnectionLost, match="go away"):
            await mew.connect(url, token="any")


@played
async def test_after_a_close_without_a_code_the_client_reconnects() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(whole(WELCOME))
        await reader.read(10_000)
        writer.write(whole(b"", CLOSE) if number == 1 else whole(CHAT))
        await await_close(reader)

    async with faking(script) as url, mew.connect(url, token="any") as space:
        assert (await anext(space.envelopes("chat"))).payload["text"] == "hello"


@played
async def test_a_gateway_that_does_not_answer_a_close_is_not_awaited_longer_than_the_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CLOSE_TIMEOUT", 0.2)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(whole(WELCOME))
        await reader.read()

    async with faking(script) as url:
        space = await mew.connect(url, token="any")
        began = asyncio.get_running_loop().time()
        await space.close()
        assert 0.1 < asyncio.get_running_loop().time() - began < 1.9


@played
async def test_a_gateway_that_closes_and_stops_reading_is_not_awaited_longer_than_the_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CLOSE_TIMEOUT", 0.2)
    closing, disconnected = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(whole(WELCOME))
        await closing.wait()
        writer.write(whole(b"\x03\xe9", CLOSE))  # code 1001
        await disconnected.wait()

    async with faking(script) as url:
        async with mew.connect(url, token="any", reconnect=False) as space:
            socket = space.connection
            assert socket is not None
            while not socket.paused:
                socket.send_raw(bytes(1 << 20))
            closing.set()
            with pytest.raises(ConnectionLost):
                await anext(space.envelopes())
        disconnected.set()
        await until(lambda: socket.closed)
        assert str(socket.closed) == "closed with 1001"


@played
async def test_a_ping_and_a_pending_write_fail_when_the_connection_breaks() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(whole(WELCOME))
        await await_close(reader)

    async with faking(script) as url, mew.connect(url, token="any", reconnect=False) as space:
        socket = space.connection
        assert socket is not None
        asking = asyncio.create_task(socket.ping())
        await asyncio.sleep(0)
        socket.abort("gone")
        with pytest.raises(ConnectionLost, match="gone"):
            await asking
        for late in (socket.ping(), socket.wait_writable()):
            with pytest.raises(ConnectionLost):
                await late
        socket.send_raw(b"into the void")
