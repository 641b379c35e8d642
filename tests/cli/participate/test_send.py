"""`mew send`: one envelope over HTTP, quickly, and without an effect on open connections."""

import asyncio
import json
import resource
import socket
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mew.client import connect
from tests.cli.running_space import Lab, command, environment, piped, run

SEND_SECONDS = 0.6


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    return shared_lab


def last(lab: Lab) -> dict[str, Any]:
    return lab.sent()[-1]


def test_arguments_are_a_chat_of_the_default_participant(lab: Lab) -> None:
    output = lab.succeeds("send", "hello", "all")
    messages = last(lab)
    assert (messages["kind"], messages["from"], messages["payload"]) == ("chat", "alice", {"text": "hello all"})
    assert output == f"accepted {messages['id']}"


def test_an_envelope_has_the_given_kind_payload_recipients_and_correlation(lab: Lab) -> None:
    payload = '{"method":"tools/list","id":10000000000000000000001}'
    lab.succeeds(
        "send",
        "-k",
        "mcp/request",
        "--payload",
        payload,
        "--to",
        "bob",
        "--to",
        "carol",
        "--correlation",
        "a",
        "-t",
        "x",
    )
    messages = last(lab)
    assert (messages["kind"], messages["to"], messages["correlation_id"]) == (
        "mcp/request",
        ["bob", "carol", "x"],
        ["a"],
    )
    assert messages["payload"] == json.loads(payload)


def test_a_payload_may_come_from_a_file_or_from_standard_input(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"text":"from a file"}', encoding="utf-8")
    lab.succeeds("send", "--payload", f"@{file}")
    assert last(lab)["payload"] == {"text": "from a file"}
    lab.succeeds("send", "--payload", "-", stdin=b'{"text":"from a pipe"}\n')
    assert last(lab)["payload"] == {"text": "from a pipe"}


@pytest.mark.parametrize("words", [("-",), ()])
def test_the_text_may_come_from_standard_input(lab: Lab, words: tuple[str, ...]) -> None:
    lab.succeeds("send", *words, stdin="two lines,\nand ümlauts\n".encode())
    assert last(lab)["payload"] == {"text": "two lines,\nand ümlauts"}


def test_the_sender_can_be_chosen(lab: Lab) -> None:
    lab.succeeds("send", "hello", "--as", "bob")
    assert last(lab)["from"] == "bob"


def test_the_answer_of_the_gateway_is_available_as_json(lab: Lab) -> None:
    answer = lab.mew("send", "--kind", "stream/request", "--json").json
    assert (answer["status"], answer["stream_id"].startswith("stream-")) == ("stream_opened", True)
    result = lab.succeeds("send", "-k", "stream/grant-write", "-p", json.dumps({**answer, "participant_id": "watcher"}))
    assert result.endswith(f"stream_id {answer['stream_id']} authorized_writers alice,watcher")


def test_a_refusal_is_one_line_with_the_reason_and_exit_code_4(lab: Lab) -> None:
    ran = lab.mew("send", "--as", "bob", "--kind", "space/kick", "--payload", '{"participant_id":"carol"}')
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("mew: 'bob' may not send 'space/kick': nearest is")
    assert ran.err.endswith("(capability_violation)\n")
    assert ran.err.count("\n") == 1


def test_an_address_without_a_gateway_is_one_line_and_exit_code_3(lab: Lab) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        ran = lab.mew("send", "hello", "--gateway", f"ws://127.0.0.1:{listener.getsockname()[1]}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)
    assert "no gateway answers at http://127.0.0.1:" in ran.err
    assert "mew space up" in ran.err


class _Stranger(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *_: Any) -> None:
        pass


def test_an_answer_of_another_server_is_reported(lab: Lab) -> None:
    with HTTPServer(("127.0.0.1", 0), _Stranger) as stranger:
        Thread(target=stranger.serve_forever, daemon=True).start()
        ran = lab.mew("send", "hello", "--gateway", f"http://127.0.0.1:{stranger.server_port}")
        stranger.shutdown()
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "with a body that is not JSON. Is this a mew gateway?" in ran.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("hello", "--payload", "{}"), "give a text or --payload"),
        (("hello", "--kind", "mcp/request"), "a text is only valid for a chat"),
        (("--payload", "{"), "--payload: not JSON"),
        (("--payload", "[]"), "--payload: expected a JSON object"),
        (("--payload", "@nowhere"), "--payload: nowhere: No such file"),
        (("hello", "--nonsense"), "no option --nonsense"),
        (("--gateway", "ftp://x", "hello"), "not a valid gateway address"),
        (("--gateway", "ws://x:port", "hello"), "not a valid gateway address"),
        (("--as", "zoe", "hello"), "'zoe' has no token"),
        (("--token-env", "NOWHERE", "hello"), "NOWHERE does not contain a token"),
        ((), "the text is empty"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(lab: Lab, arguments: tuple[str, ...], problem: str) -> None:
    ran = lab.mew("send", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert problem in ran.err


def test_a_child_of_the_supervisor_sends_with_its_environment(lab: Lab, tmp_path: Path) -> None:
    values: Any = {"MEW_GATEWAY": lab.url, "MEW_SPACE": "lab", "MEW_TOKEN": lab.token("bob")}
    assert run(tmp_path, "send", "hello", **values, MEW_PARTICIPANT_ID="bob").code == 0
    assert last(lab)["from"] == "bob"
    assert run(tmp_path, "send", "who am I?", **values).code == 0
    assert last(lab)["payload"] == {"text": "who am I?"}


def test_a_token_may_be_in_any_variable(lab: Lab, tmp_path: Path) -> None:
    ran = run(tmp_path, "send", "hi", "--gateway", lab.url, "--token-env", "MINE", MINE=lab.token("carol"))
    assert (ran.code, last(lab)["from"]) == (0, "carol")


def test_a_missing_token_or_space_is_reported(lab: Lab, tmp_path: Path) -> None:
    ran = run(tmp_path, "send", "hello", "--gateway", lab.url)
    assert (ran.code, "no token: set MEW_TOKEN, or give" in ran.err) == (2, True)
    assert run(tmp_path, "send", "hello").code == 2


def test_a_wrong_space_and_a_wrong_token_are_refused(lab: Lab, tmp_path: Path) -> None:
    assert "space_not_found" in lab.mew("send", "hello", "--space", "elsewhere").err
    ran = run(tmp_path, "send", "hello", "--as", "bob", "--gateway", lab.url, "--token-env", "T", T="wrong")
    assert (ran.code, "unauthorized" in ran.err, "wrong" in ran.err) == (4, True, False)


def test_a_connected_participant_stays_connected(lab: Lab) -> None:
    async def live() -> list[str]:
        async with connect(lab.url, token=lab.token("carol"), reconnect=False) as carol:
            messages = carol.envelopes("chat")
            ran = await asyncio.to_thread(piped, lab.directory, "send", "over HTTP", "--as", "carol")
            assert ran.returncode == 0
            await carol.chat("over the socket")
            return [(await anext(messages)).payload["text"] for _ in range(2)]

    assert asyncio.run(live()) == ["over HTTP", "over the socket"]


def test_a_send_uses_little_processor_time(lab: Lab) -> None:
    """Processor time, because elapsed time depends on other processes of this machine."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    times = []
    for _ in range(3):
        before = used()
        assert piped(lab.directory, "send", "quick").returncode == 0
        times.append(used() - before)
    assert min(times) < SEND_SECONDS


def test_a_send_imports_neither_the_client_nor_the_libraries_of_the_server(lab: Lab) -> None:
    script = (
        "import sys; from mew.cli import main; code = main(['send', 'light']); "
        "print(code, *{'asyncio', 'picows', 'pyarrow', 'uvloop', 'rich'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [command()[0], "-c", script], cwd=lab.directory, env=environment(), timeout=30, check=True, capture_output=True
    )
    assert ran.stdout.splitlines()[-1] == b"0"
