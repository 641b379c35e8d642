"""Connecting and joining: addresses, tokens, and the error when one of them fails."""

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

import mew
from mew.client import ConnectionLost, JoinRefused, Space
from mew.client.connection import Connection, GatewayUrl
from mew.client.errors import SpaceNotFound, Unauthorized
from mew.client.session import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS, _Entrance, reconnect_backoff
from mew.protocol import Envelope
from tests.client.fake_gateway import CHAT, WELCOME, await_close, faking, whole
from tests.client.harness import joining, played, until, url_of
from tests.gateway.raw import Running, running, tls_of


@played
async def test_a_token_is_enough_to_join(gateway: Running) -> None:
    async with mew.connect(url_of(gateway), token=gateway.token("alice")) as space:
        assert space.participant_id == "alice"
        assert space.view.you.capabilities == [{"kind": "*"}, {"kind": "**"}, {"kind": "mcp/response"}]


@played
async def test_a_program_started_by_a_gateway_needs_no_address(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"GATEWAY": url_of(gateway), "SPACE": "lab", "TOKEN": gateway.token("alice")}.items():
        monkeypatch.setenv(f"MEW_{name}", value)
    async with mew.connect() as space:
        assert (space.participant_id, space.id) == ("alice", "lab")
    async with mew.connect(token=gateway.token("bob")) as space:
        assert space.participant_id == "bob"


def test_a_token_of_the_environment_goes_to_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEW_TOKEN", "secret")
    assert mew.connect("ws://elsewhere.example")._target.token is None


def test_the_error_without_an_address_names_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEW_GATEWAY", raising=False)
    with pytest.raises(ValueError, match="MEW_GATEWAY"):
        mew.connect()


@played
async def test_connecting_can_be_awaited_and_closed_explicitly(gateway: Running) -> None:
    space = await joining(gateway, "alice")
    assert (space.id, space.participant_id) == ("lab", "alice")
    await space.close()
    await space.close()
    assert space.connection is None
    await until(lambda: gateway.ask(lambda gateway: not gateway.sockets))


def test_the_sdk_runs_on_another_event_loop(gateway: Running) -> None:
    async def story() -> None:
        async with joining(gateway, "alice") as space:
            assert (await space.chat("hello")).sender == "alice"

    uvloop.run(story())


@pytest.mark.parametrize(
    ("options", "code", "refusal"),
    [
        ({"token": "unknown"}, 4401, Unauthorized),
        ({}, 4401, Unauthorized),
        ({"token": "token-of-alice@lab", "participant": "bob"}, 4401, Unauthorized),
        ({"token": "token-of-alice@lab", "space": "elsewhere"}, 4404, SpaceNotFound),
    ],
)
@played
async def test_a_refused_join_has_the_reason(
    gateway: Running, options: dict[str, str], code: int, refusal: type[Exception]
) -> None:
    with pytest.raises(JoinRefused) as raised:
        await mew.connect(url_of(gateway), **options)  # type: ignore[arg-type]
    assert raised.value.code == code
    assert isinstance(raised.value.refusal, refusal)


@played
async def test_an_anonymous_participant_needs_no_token(tmp_path: Path) -> None:
    with running(tmp_path, {"allow_anonymous": True}) as gateway:
        async with mew.connect(url_of(gateway), space="lab", participant="guest") as space:
            assert space.participant_id == "guest"


@played
async def test_a_space_has_the_id_that_was_requested(gateway: Running) -> None:
    async with mew.connect(f"{url_of(gateway)}/any/path?space=lab", token=gateway.token("alice")) as alice:
        assert alice.id == "lab"
    async with mew.connect(url_of(gateway), token=gateway.token("alice")) as alice:
        assert alice.id == "default"


@pytest.mark.parametrize("name", [None, "default"])
@played
async def test_the_default_space_learns_its_id_from_a_stream(gateway: Running, name: str | None) -> None:
    async with mew.connect(url_of(gateway), space=name, token=gateway.token("alice")) as alice:
        stream = await alice.open_stream()
        assert alice.id == "lab"
        async with mew.connect(url_of(gateway), space=name, token=gateway.token("bob")) as bob:
            assert bob.id == "lab"
            await stream.close()
            await bob.wait_until(lambda view: not view.streams)
            assert (alice.id, bob.id) == ("lab", "lab")


@played
async def test_the_address_can_have_the_id_of_the_space(gateway: Running) -> None:
    with pytest.raises(JoinRefused) as raised:
        await mew.connect(f"{url_of(gateway)}/any/path?space=elsewhere", token=gateway.token("alice"))
    assert raised.value.code == 4404


@played
async def test_a_gateway_is_reached_by_tls(tmp_path: Path) -> None:
    tls, trust = tls_of(tmp_path)
    with running(tmp_path, tls=tls) as gateway:
        url = f"wss://localhost:{gateway.port}"
        async with mew.connect(url, token=gateway.token("alice"), tls=trust) as space:
            await space.chat("in private")
        with pytest.raises(ConnectionLost, match="certificate"):
            await mew.connect(url, token=gateway.token("alice"))


@contextlib.asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[str]:
    """A server that is no gateway: it sends `answer` and closes; with None, it sends nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await until(lambda: len(asyncio.all_tasks()) == 1)


@pytest.mark.parametrize(
    "answer",
    [b"", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"],
)
@played
async def test_a_server_that_is_no_gateway_is_a_failed_connection(answer: bytes) -> None:
    async with answering(answer) as url:
        with pytest.raises(ConnectionLost):
            await mew.connect(url, token="any")


@played
async def test_a_server_that_never_answers_is_a_time_out(gateway: Running) -> None:
    async with answering(None) as url:
        with pytest.raises(ConnectionLost, match=r"0\.05 s"):
            await mew.connect(url, token="any", timeout=0.05)


@played
async def test_a_gateway_that_sends_no_welcome_is_disconnected() -> None:
    disconnected = asyncio.Event()

    async def script(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _: int) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        disconnected.set()

    async with faking(script) as url:
        with pytest.raises(ConnectionLost):
            await mew.connect(url, token="any", timeout=1)
        await disconnected.wait()


@played
async def test_a_welcome_after_the_time_out_is_dropped() -> None:
    connection, welcomes = Connection(), list[Envelope]()
    entrance = _Entrance(connection, lambda _, envelope: welcomes.append(envelope))
    entrance.forget()
    connection.deliver(WELCOME, text=True)
    assert welcomes == []


@played
async def test_a_port_without_a_listener_is_a_failed_connection() -> None:
    async with answering(b"") as url:
        pass
    with pytest.raises(ConnectionLost, match=url.removeprefix("ws://")):
        await mew.connect(url, token="any")


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://localhost", "ws://", ""])
def test_an_invalid_address_is_an_error(url: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(url))):
        mew.connect(url)


def test_invalid_options_are_errors() -> None:
    with pytest.raises(ValueError, match="0"):
        mew.connect("ws://localhost", queue=0)
    with pytest.raises(TypeError, match="cue"):
        mew.connect("ws://localhost", cue=1)  # type: ignore[call-arg]


def test_an_address_has_a_port_and_a_path() -> None:
    assert GatewayUrl.parse("ws://gateway").port == 80
    assert GatewayUrl.parse("https://gateway/a?space=b").port == 443
    assert GatewayUrl.parse("https://gateway/a?space=b").path == "/a?space=b"
    assert GatewayUrl.parse("ws://[::1]:8080").host == "::1"
    assert GatewayUrl.parse("ws://alice@gateway:1").authority == "gateway:1"


@played
async def test_a_subscription_before_the_first_await_misses_nothing_since_the_welcome(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob:
        stop = asyncio.Event()

        async def talk() -> None:
            while not stop.is_set():
                await bob.chat("one more")

        talking, total = asyncio.create_task(talk()), 0
        for _ in range(20):
            async with joining(gateway, "alice") as alice:
                envelopes, welcome = alice.envelopes(), alice.last_welcome
                assert welcome is not None
                second_welcome = await alice.send("system/join")
                chats = 0
                async for envelope in envelopes:
                    if envelope.id == second_welcome.id:
                        break
                    chats += envelope.kind == "chat"
                # Every envelope has a position; so have our first welcome and the presence message about us.
                assert chats == second_welcome.payload["position"] - welcome.payload["position"] - 2
                total += chats
            await bob.wait_until(lambda view: "alice" not in view.participants)
        assert total
        stop.set()
        await talking


def test_importing_the_package_loads_nothing() -> None:
    script = "import sys, mew; print(sorted(name for name in sys.modules if name.split('.')[0] in {'mew', 'msgspec'}))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "['mew']\n"


def test_the_sdk_loads_no_library_of_the_server() -> None:
    unwanted = ("starlette", "uvicorn", "uvloop", "pyarrow", "numpy", "pyspark", "structlog", "pydantic", "mcp")
    script = f"import sys, mew; mew.connect; print([name for name in {unwanted!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_package_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="'disconnect'"):
        mew.disconnect  # type: ignore[attr-defined]  # noqa: B018


def test_the_delay_before_each_attempt_grows_up_to_the_maximum() -> None:
    backoff = reconnect_backoff()
    waits = [backoff.next_delay() for _ in range(40)]
    for number, wait in enumerate(waits):
        longest = min(MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS * 2**number)
        assert longest / 2 <= wait <= longest
    assert len(set(waits)) > 30
    backoff.lasted(1.0)
    assert backoff.next_delay() > MAX_BACKOFF_SECONDS / 4
    backoff.lasted(60.0)
    assert backoff.next_delay() <= MIN_BACKOFF_SECONDS


@played
async def test_a_task_created_after_the_join_receives_what_arrived_with_the_welcome() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(whole(WELCOME) + whole(CHAT))
        await await_close(reader)

    async def first(space: Space) -> str:
        chat = await anext(space.envelopes("chat"))
        return str(chat.payload["text"])

    async with faking(script) as url, mew.connect(url, token="any") as space, asyncio.timeout(5):
        assert await asyncio.create_task(first(space)) == "hello"
