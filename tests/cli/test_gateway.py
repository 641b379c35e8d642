"""`mew gateway start` as a user meets it: a process that serves a folder, says what is wrong, and stops when told."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
    """The exit code and what was said on standard error."""
    ran = subprocess.run(
        command(*arguments), cwd=folder, capture_output=True, text=True, timeout=30, check=False, env=environment()
    )
    assert ran.stdout == ""
    return ran.returncode, ran.stderr


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MEW_")}


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway that listens, and its address for HTTP."""
    process = subprocess.Popen(
        command("--port", "0", *arguments),
        cwd=folder,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said.startswith("listening on ws://localhost:"), said
    try:
        yield process, f"http://127.0.0.1:{said.split(':')[2].split()[0]}"
    finally:
        process.kill()
        process.communicate()


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
def test_it_stops_when_told_and_says_that_all_is_well(lab: Path, number: signal.Signals) -> None:
    with running(lab) as (process, _):
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
        assert (process.returncode, output, errors) == (0, "", "")


def test_a_port_that_is_taken_is_named(lab: Path) -> None:
    with running(lab) as (_, url):
        port = url.rpartition(":")[2]
        assert fails(lab, "--port", port) == (2, f"mew: cannot listen on 127.0.0.1:{port}: Address already in use\n")


def test_without_a_configuration_it_says_where_it_looked(tmp_path: Path) -> None:
    code, said = fails(tmp_path)
    assert code == 2
    assert said == f"mew: no space.yaml here: looked for {tmp_path}/.mew/space.yaml and {tmp_path}/space.yaml\n"


def test_what_is_wrong_is_said_in_one_line_with_file_line_and_path(lab: Path) -> None:
    (lab / "space.yaml").write_text(SPACE + "  carol: {capabilities: chat}\n", encoding="utf-8")
    code, said = fails(lab)
    assert code == 2
    assert said.count("\n") == 1
    assert said.startswith(f"mew: {lab}/space.yaml:6: participants.carol.capabilities: expected ")


def test_two_spaces_are_served_side_by_side(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    game = tmp_path_factory.mktemp("game") / "space.yaml"
    game.write_text("space: {id: game, name: A game}\nparticipants: {alice: {}}\n", encoding="utf-8")
    with running(lab, "-s", "space.yaml", "-s", str(game)) as (_, url):
        token = (game.parent / ".mew" / "tokens" / "alice.token").read_text(encoding="utf-8")
        chat = {"kind": "chat", "payload": {"text": "hello"}}
        assert ask(f"{url}/participants/alice/messages?space=game", token, chat)[0] == 200
        assert ask(f"{url}/participants/alice/messages", token, chat)[0] == 403
        assert ask(f"{url}/participants/alice/messages?space=other", token, chat)[0] == 404
