"""`mew gateway start` as a user runs it: a process that serves a folder, reports errors, and stops on a signal."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.gateway.raw import TEXT, Raw, closing, frame, head, unmasked, upgrade

SPACE = """\
space: {id: lab, name: A lab}
participants:
  alice: {capabilities: [{kind: "*"}]}
  bob: {}
  watcher: {output_log: logs/watcher.jsonl, auto_connect: true}
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mew", "gateway", "start", *arguments]


def fails(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and standard error."""
    ran = subprocess.run(
        command(*arguments), cwd=folder, capture_output=True, text=True, timeout=30, check=False, env=environment()
    )
    assert ran.stdout == ""
    return ran.returncode, ran.stderr


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MEW_")}


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway that listens, and its HTTP address."""
    process = subprocess.Popen(
        command("--port", "0", *arguments),
        cwd=folder,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on ws://localhost:"), line
    try:
        yield process, f"http://127.0.0.1:{line.split(':')[2].split()[0]}"
    finally:
        process.kill()
        process.communicate()


def logged(errors: str) -> list[dict[str, Any]]:
    """The lines of the log of the gateway."""
    return [json.loads(line) for line in errors.splitlines()]


def events_of(errors: str) -> list[str]:
    return [line["event"] for line in logged(errors)]


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Stop the gateway; return its standard output and standard error."""
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=20)


def token_of(folder: Path, participant: str) -> str:
    return (folder / ".mew" / "tokens" / f"{participant}.token").read_text(encoding="utf-8")


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def ask(url: str, token: str | None = None, body: object = None) -> tuple[int, dict[str, object]]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {} if token is None else {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    return tmp_path


def test_a_folder_is_served_and_a_script_can_post_with_the_token_in_its_file(lab: Path) -> None:
    with running(lab) as (_, url):
        assert ask(f"{url}/health")[1]["status"] == "ok"
        token = (lab / ".mew" / "tokens" / "alice.token").read_text(encoding="utf-8")
        chat = {"kind": "chat", "payload": {"text": "hello"}}
        status, answer = ask(f"{url}/participants/alice/messages", token, chat)
        assert (status, answer["status"]) == (200, "accepted")
        lines = [json.loads(line) for line in (lab / "logs" / "watcher.jsonl").read_text(encoding="utf-8").splitlines()]
        assert [line["kind"] for line in lines] == ["system/welcome", "system/presence", "chat"]


def test_an_invitation_names_the_port_that_was_free(lab: Path) -> None:
    with running(lab) as (_, url):
        token = (lab / ".mew" / "tokens" / "alice.token").read_text(encoding="utf-8")
        invite = {"kind": "space/invite", "payload": {"participant_id": "carol"}}
        status, answer = ask(f"{url}/participants/alice/messages", token, invite)
        assert (status, answer["status"]) == (200, "created")
        assert answer["connection_url"] == f"ws://localhost:{url.rpartition(':')[2]}"
        assert answer["token"] == (lab / ".mew" / "tokens" / "carol.token").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_gateway_with_exit_code_0(lab: Path, number: signal.Signals) -> None:
    with running(lab) as (process, _):
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
        assert (process.returncode, output) == (0, "")
        assert events_of(errors)[-2:] == ["stopping", "stopped"]


def test_a_port_in_use_is_named(lab: Path) -> None:
    with running(lab) as (_, url):
        port = url.rpartition(":")[2]
        assert fails(lab, "--port", port) == (2, f"mew: cannot listen on 127.0.0.1:{port}: Address already in use\n")


def test_without_a_configuration_the_error_lists_the_searched_places(tmp_path: Path) -> None:
    code, errors = fails(tmp_path)
    assert code == 2
    looked = f"{tmp_path}/.mew/space.yaml and {tmp_path}/space.yaml"
    assert errors == f"mew: no space.yaml found: looked for {looked}; create a space with `mew init`\n"


def test_an_error_of_the_configuration_is_one_line_with_file_line_and_path(lab: Path) -> None:
    (lab / "space.yaml").write_text(SPACE + "  carol: {capabilities: chat}\n", encoding="utf-8")
    code, errors = fails(lab)
    assert code == 2
    assert errors.count("\n") == 1
    assert errors.startswith(f"mew: {lab}/space.yaml:6: participants.carol.capabilities: expected ")


def test_two_spaces_are_served_side_by_side(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    game = tmp_path_factory.mktemp("game") / "space.yaml"
    game.write_text("space: {id: game, name: A game}\nparticipants: {alice: {}}\n", encoding="utf-8")
    with running(lab, "-s", "space.yaml", "-s", str(game)) as (_, url):
        token = (game.parent / ".mew" / "tokens" / "alice.token").read_text(encoding="utf-8")
        chat = {"kind": "chat", "payload": {"text": "hello"}}
        assert ask(f"{url}/participants/alice/messages?space=game", token, chat)[0] == 200
        assert ask(f"{url}/participants/alice/messages", token, chat)[0] == 403
        assert ask(f"{url}/participants/alice/messages?space=other", token, chat)[0] == 404


# The log


def test_the_log_has_lines_of_json_on_standard_error(lab: Path) -> None:
    (lab / "space.yaml").write_text(SPACE + "colour: red\n", encoding="utf-8")
    with running(lab) as (process, url):
        output, errors = stop(process)
    assert output == ""
    lines = logged(errors)
    assert [line["event"] for line in lines] == [
        "configuration",
        "starting",
        "space opened",
        "listening",
        "stopping",
        "stopped",
    ]
    assert lines[0]["level"] == "warning"
    assert "colour: unknown key" in lines[0]["error"]
    assert (lines[2]["space"], lines[2]["participants"]) == ("lab", 3)
    assert (lines[3]["host"], lines[3]["port"]) == ("localhost", port_of(url))


@pytest.mark.parametrize(("level", "events"), [("error", []), ("warning", ["configuration"])])
def test_the_log_level_limits_the_log(lab: Path, level: str, events: list[str]) -> None:
    (lab / "space.yaml").write_text(SPACE + "colour: red\n", encoding="utf-8")
    with running(lab, "--log-level", level) as (process, _):
        assert events_of(stop(process)[1]) == events


def test_on_a_terminal_the_log_is_text_with_colours(lab: Path) -> None:
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in environment().items() if name != "NO_COLOR"}
    process = subprocess.Popen(command("--port", "0"), cwd=lab, env=environ, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening on ")
        process.send_signal(signal.SIGTERM)
        shown = b""
        while b"stopped" not in shown:
            shown += os.read(ours, 4096)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
    assert b"\x1b[" in shown
    assert b"space opened" in shown
    assert b'{"' not in shown


def test_protocol_errors_of_peers_are_logged_as_info(lab: Path) -> None:
    with running(lab) as (process, url):
        peer, port = Raw(port_of(url)), port_of(url)
        peer.send(upgrade(), unmasked(TEXT, b"{}"))
        assert peer.answer().status == 101
        assert peer.closed() == 1002
        cut_off = Raw(port)
        cut_off.send(b"POST /participants/alice/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        cut_off.send(f"Authorization: Bearer {token_of(lab, 'alice')}\r\n\r\n".encode(), b'{"kind":')
        cut_off.close()
        nonsense = Raw(port)
        nonsense.send(b"nonsense\r\n\r\n")
        assert nonsense.answer().status == 400
        nonsense.close()
        foreign = Raw(port)
        foreign.send(head("/health", {"Host": "evil.example"}))
        assert foreign.answer().status == 403
        foreign.close()
        assert ask(f"{url}/health")[0] == 200
        errors = stop(process)[1]
    lines = logged(errors)
    assert "Traceback" not in errors
    assert {line["level"] for line in lines} == {"info"}
    refused = [line for line in lines if line["event"] == "request refused"]
    assert [(line["status"], line["peer"].partition(":")[0]) for line in refused] == [
        (400, "127.0.0.1"),
        (403, "127.0.0.1"),
    ]
    assert [line["logger"] for line in lines if line["event"].startswith("WS parser error")] == ["mew.sockets"]


@pytest.mark.parametrize(
    ("joining", "error"),
    [
        ({"kind": "system/join", "token": "a-wrong-token"}, "unauthorized"),
        ({"kind": "system/join", "space": "elsewhere"}, "space_not_found"),
        ({"kind": "chat", "payload": {"text": "hello"}}, "unauthorized"),
    ],
)
def test_a_rejected_connection_is_logged_with_code_and_address(lab: Path, joining: object, error: str) -> None:
    with running(lab) as (process, url):
        peer = Raw(port_of(url))
        peer.send(upgrade(), frame(TEXT, json.dumps(joining).encode()))
        assert peer.answer().status == 101
        assert peer.closed() in (4401, 4404)
        (line,) = [line for line in logged(stop(process)[1]) if line["event"] == "connection rejected"]
    assert (line["error"], line["peer"].partition(":")[0]) == (error, "127.0.0.1")


SECRETS = ("a-wrong-token", "what alice said", "frame-data", "a-configured-token")


def test_the_log_contains_no_token_and_no_payload(lab: Path) -> None:
    (lab / "space.yaml").write_text(SPACE + "  carol: {tokens: [a-configured-token]}\n", encoding="utf-8")
    with running(lab, "--log-level", "debug") as (process, url):
        port, alice = port_of(url), token_of(lab, "alice")
        secrets = [*SECRETS, alice, token_of(lab, "bob")]
        send_secrets_over_sockets(port, secrets)
        send_secrets_over_http(url, alice)
        secrets.append(token_of(lab, "dora"))
        output, errors = stop(process)
    assert len(logged(errors)) > 20
    assert "debug" in {line["level"] for line in logged(errors)}
    for secret in secrets:
        assert secret not in output + errors


def send_secrets_over_sockets(port: int, secrets: list[str]) -> None:
    """Send valid and invalid tokens in header, query and join message, and texts in envelopes and frames."""
    chat = json.dumps({"kind": "chat", "payload": {"text": "what alice said"}}).encode()
    for secret in secrets:
        for way in ("header", "query", "join", "first message", "close"):
            peer = Raw(port)
            header = {"Authorization": f"Bearer {secret}"} if way == "header" else {}
            query = f"/?token={quote(secret)}&space={quote(secret)}" if way == "query" else "/"
            peer.send(upgrade(query, **header))
            assert peer.answer().status == 101
            if way == "join":
                join = {"kind": "system/join", "payload": {"token": secret, "space": "lab"}}
                peer.send(frame(TEXT, json.dumps(join).encode()))
            elif way == "first message":
                peer.send(frame(TEXT, secret.encode()))
            elif way == "close":
                peer.send(closing(1000, secret[:100].encode()))
            with suppress(OSError):  # the gateway may have closed a rejected connection already
                peer.send(frame(TEXT, chat), frame(TEXT, b"#stream-1#frame-data"), unmasked(TEXT, secret.encode()))
                peer.socket.shutdown(socket.SHUT_WR)
            peer.rest()


def send_secrets_over_http(url: str, alice: str) -> None:
    mails = f"{url}/participants/alice/messages"
    for token in (alice, "a-wrong-token", None):
        ask(f"{mails}?token={alice}&space=a-wrong-token", token, {"kind": "chat"})
        ask(f"{mails}?since={alice}", token)
        ask(f"{url}/{alice}", token)
        for endpoint in (mails, f"{url}/participants/alice/explain"):
            for body in (
                {"kind": "chat", "payload": {"text": "what alice said"}},
                {"kind": "chat", "payload": {"text": 1, "what alice said": alice}},
                {"kind": "system/join", "payload": {"token": alice}},
                {"kind": "space/invite", "payload": {"participant_id": "dora"}},
                "what alice said",
            ):
                ask(endpoint, token, body)


def test_the_gateway_does_not_wait_for_the_reader_of_its_log(lab: Path) -> None:
    """A pipe holds 64 KiB; then a writer waits. Each refusal has a line at level `debug`."""
    with running(lab, "--log-level", "debug") as (process, url):
        client = Raw(port_of(url))
        evil = head("/health", {"Host": "evil.example"})
        for _ in range(100):
            client.send(evil * 10)
            assert [client.answer().status for _ in range(10)] == [403] * 10
        client.close()
        assert ask(f"{url}/health")[0] == 200
        assert events_of(stop(process)[1]).count("request refused") == 1000


@contextmanager
def starting(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[dict[str, Any]]]]:
    """A gateway that reports its start on a pipe, and its messages."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as messages:
        try:
            process = subprocess.Popen(
                command("--port", "0", "--status-fd", str(writer), *arguments),
                cwd=folder,
                env=environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writer,),
            )
        finally:
            os.close(writer)
        try:
            yield process, map(json.loads, messages)
        finally:
            process.terminate()
            process.wait()


def test_the_status_pipe_has_the_warnings_and_the_port_and_ends_while_participants_run(lab: Path) -> None:
    pause = [sys.executable, "-c", "import signal; signal.pause()"]
    participants = {"bob": {"auto_start": True, "command": pause[0], "args": pause[1:]}}
    settings = {"space": {"id": "lab"}, "participants": participants, "nonsense": 1}
    (lab / "space.yaml").write_text(json.dumps(settings), encoding="utf-8")
    with starting(lab) as (_, messages):
        *warnings, ready = messages
        assert ["nonsense" in message["warning"] for message in warnings] == [True]
        assert list(ready) == ["ready"]
        assert ask(f"http://127.0.0.1:{ready['ready']['port']}/health")[1]["status"] == "ok"
        pids = json.loads((lab / ".mew" / "pids.json").read_text(encoding="utf-8"))
        assert (pids["ready"], list(pids["agents"])) == (True, ["bob"])


def test_the_status_pipe_has_the_error_that_ended_the_start(lab: Path) -> None:
    (lab / "space.yaml").write_text("space: {id: 'no id'}", encoding="utf-8")
    with starting(lab) as (process, messages):
        (message,) = messages
        assert "space.yaml:1: space.id" in message["error"]
        assert process.wait(20) == 2


def test_a_status_descriptor_that_is_not_open_is_a_usage_error(lab: Path) -> None:
    assert fails(lab, "--status-fd", "99") == (2, "mew: --status-fd 99: Bad file descriptor\n")


def test_a_gateway_starts_although_the_waiting_command_has_ended(lab: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        command("--port", "0", "--status-fd", str(writer)),
        cwd=lab,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        pass_fds=(writer,),
    )
    os.close(writer)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("listening on")
    finally:
        process.terminate()
        process.communicate()
