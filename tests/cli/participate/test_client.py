"""`mew client connect` as a script uses it: lines in, lines out, through pipes, FIFOs and files."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mew
from tests.cli.live_gateway import at_work, command, environment, lab, run_command, token_of, url_of
from tests.client.harness import close_all, played, until
from tests.gateway.raw import Running


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with lab(tmp_path) as running:
        yield running


def lines_of(text: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def written(file: Path) -> list[dict[str, Any]]:
    """The complete lines of a file that is being written."""
    text = file.read_bytes() if file.exists() else b""
    return lines_of(text[: text.rfind(b"\n") + 1])


def test_lines_are_sent_and_messages_written_until_all_lines_are_accepted(gateway: Running, tmp_path: Path) -> None:
    text = b'hello\n\n{"id":"mine","kind":"stream/request","payload":{"n":1.0}}\n{"text":"no kind"}\n'
    text += b'{"kind":"space/kick","payload":{"participant_id":"zoe"}}\nthe last line'
    code, output, errors = run_command(tmp_path, "client", "connect", "--gateway", url_of(gateway), stdin=text)
    assert code == 0, errors
    received = lines_of(output)
    kinds = ["system/welcome", "chat", "stream/request", "stream/open", "system/error", "chat"]
    assert [item["kind"] for item in received] == kinds
    assert received[0]["payload"]["you"]["id"] == "alice"
    assert [received[1]["payload"]["text"], received[-1]["payload"]["text"]] == ["hello", "the last line"]
    assert received[2]["id"] == "mine"
    assert '"n":1.0' in output
    assert "line 4: not an envelope: the object has no `kind`" in errors


def test_a_closed_output_pipe_ends_the_command_with_0(gateway: Running, tmp_path: Path) -> None:
    with subprocess.Popen(
        command("client", "connect", "-g", url_of(gateway), "-t", token_of(tmp_path, "bob")),
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stderr is not None
        assert b"system/welcome" in client.stdout.readline()
        client.stdout.close()
        client.stdin.write(b"hello\n")
        client.stdin.flush()
        assert client.wait(10) == 0
        assert b"Traceback" not in client.stderr.read()


@played
async def test_fifos_stay_open_and_frames_are_sent_and_received_until_a_signal(
    gateway: Running, tmp_path: Path
) -> None:
    fifo, output = tmp_path / "in", tmp_path / "logs" / "out.jsonl"
    flags = ["-g", url_of(gateway), "-p", "bob", "--fifo-in", str(fifo), "--output-file", str(output)]
    async with mew.connect(url_of(gateway), token=token_of(tmp_path, "alice")) as alice:
        messages = alice.envelopes("chat", sender="bob")
        with at_work(tmp_path, "client", "connect", *flags) as client:
            await alice.wait_until(lambda view: "bob" in view.participants)
            for text in ("one", "two"):
                with fifo.open("w", encoding="utf-8") as writer:
                    writer.write(f"{text}\n")
                assert (await anext(messages)).payload["text"] == text
            stream = await alice.open_stream()
            await stream.send("to read")
            await stream.send(b"\xff")
            await stream.grant("bob")
            await alice.wait_until(lambda view: "bob" in view.streams[stream.stream_id].writers)
            frames = alice.frames(stream.stream_id)
            await until(lambda: any(item.get("kind") == "stream/write-granted" for item in written(output)))
            with fifo.open("w", encoding="utf-8") as writer:
                writer.write(f"#{stream.stream_id}#to write\n")
            assert (await anext(frames)).data == b"to write"
            client.send_signal(signal.SIGTERM)
            assert client.wait(10) == 0
    received = written(output)
    assert received[0]["kind"] == "system/welcome"
    sent = [item["frame"] for item in received if "frame" in item]
    assert [(item["encoding"], item["data"]) for item in sent] == [
        ("text", "to read"),
        ("base64", "/w=="),
        ("text", "to write"),
    ]


@played
async def test_the_command_reconnects_and_an_output_fifo_waits_for_its_reader(gateway: Running, tmp_path: Path) -> None:
    ways = [tmp_path / "in", tmp_path / "out"]
    for item in ways:
        os.mkfifo(item)
    flags = ["-g", url_of(gateway), "-p", "bob", "--fifo-in", "in", "--fifo-out", "out"]
    async with mew.connect(url_of(gateway), token=token_of(tmp_path, "alice")) as alice:
        messages = alice.envelopes("chat", sender="bob")
        with at_work(tmp_path, "client", "connect", *flags) as client:
            await alice.wait_until(lambda view: "bob" in view.participants)
            close_all(gateway, 1011, "something broke", "bob")
            await alice.wait_until(lambda view: "bob" not in view.participants)
            with ways[0].open("w", encoding="utf-8") as writer:
                writer.write("again\n")
            assert (await anext(messages)).payload["text"] == "again"
            with ways[1].open("rb", buffering=0) as reader:
                text = b""
                while b"again" not in text:
                    text += reader.read(4096)
            kinds = [item["kind"] for item in lines_of(text)]
            assert kinds.count("system/welcome") == 2
            assert kinds[-1] == "chat"
            client.send_signal(signal.SIGINT)
            assert client.wait(10) == 130


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--fifo-in", "space.yaml"], 2, "space.yaml is not a FIFO: create one with `mkfifo`"),
        (["--output-file", "space.yaml/out"], 2, "space.yaml/out: "),
        (["--token", "wrong"], 4, "the token is not known here"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    gateway: Running, tmp_path: Path, flags: list[str], code: int, words: str
) -> None:
    exit_code, output, errors = run_command(tmp_path, "client", "connect", "-g", url_of(gateway), *flags)
    assert (exit_code, output) == (code, "")
    assert words in errors
    assert errors.count("\n") == 1
