"""Lines of `mew client connect` in flight when the network fails, and more lines than a gateway accepts at a time."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import mew
from mew.cli.participate.client_io import LineSender
from tests.cli.live_gateway import at_work, lab, run_command, token_of, url_of
from tests.client.harness import begun, ended, played, until
from tests.client.proxy import proxied
from tests.gateway.raw import Running

SECONDS = 15


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with lab(tmp_path) as running:
        yield running


@played
async def test_lines_in_flight_when_the_connection_broke_are_named_and_the_exit_code_is_1(
    gateway: Running, tmp_path: Path
) -> None:
    async with proxied(gateway.port) as (proxy, url):
        with at_work(tmp_path, "client", "connect", "-g", url, "-p", "bob") as client:
            assert client.stdin is not None
            assert client.stdout is not None
            assert b"system/welcome" in await asyncio.to_thread(client.stdout.readline)
            proxy.left["up"] = 0
            client.stdin.write(b"one\n\ntwo\n")
            client.stdin.flush()
            assert b"system/welcome" in await asyncio.to_thread(client.stdout.readline)
            errors = (await asyncio.to_thread(client.communicate, b"three\n", SECONDS))[1]
            assert b"mew: the connection broke: lines 1 to 3 may be lost\n" in errors
            assert client.returncode == 1


@played
async def test_at_the_end_of_the_input_the_command_waits_until_an_outage_ends(gateway: Running, tmp_path: Path) -> None:
    async with proxied(gateway.port) as (proxy, url):
        with at_work(tmp_path, "client", "connect", "-g", url, "-p", "bob") as client:
            assert client.stdout is not None
            assert b"system/welcome" in await asyncio.to_thread(client.stdout.readline)
            proxy.refusing = True
            proxy.cut()
            await until(lambda: proxy.connections > 1)
            ending = asyncio.create_task(asyncio.to_thread(client.communicate, None, SECONDS))
            await until(lambda: proxy.connections > 3 or ending.done())
            assert not ending.done()
            proxy.refusing = False
            assert b"may be lost" not in (await ending)[1]
            assert client.returncode == 0


@played
async def test_accepted_lines_are_not_reported_when_the_connection_breaks_later(
    gateway: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        proxied(gateway.port) as (proxy, url),
        mew.connect(url, token=token_of(tmp_path, "bob")) as bob,
    ):
        sender = LineSender(bob)
        confirming = await begun(sender.confirm_delivery())
        await sender.send(1, b'{"kind":"chat","payload":{"text":"one"}}')
        assert sender.in_flight == [1]
        await until(lambda: sender.in_flight == [])
        proxy.cut()
        await until(lambda: bob.connection is None)
        await sender.send(2, b'{"kind":"chat","payload":{"text":"two"}}')
        await sender.wait_until_accepted()
        await ended(confirming)
        assert not sender.uncertain
    assert capsys.readouterr().err == ""


def test_many_lines_in_one_write_are_all_accepted_and_internal_messages_are_not_shown(
    gateway: Running, tmp_path: Path
) -> None:
    text = [f"line {number}" for number in range(8_000)]
    lines = "\n".join(text).encode()
    code, output, errors = run_command(tmp_path, "client", "connect", "-g", url_of(gateway), stdin=lines)
    assert code == 0, errors
    welcome, *received = map(json.loads, output.splitlines())
    assert welcome["kind"] == "system/welcome"
    assert [item["payload"].get("text") for item in received] == text
