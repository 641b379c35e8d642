"""`mew agent start` as a user runs it: the agent joins its space, works, and leaves when it is stopped."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import mew
from mew.cli import main
from tests.cli.live_gateway import alone, at_work, lab, token_of, url_of
from tests.client.harness import played
from tests.gateway.raw import Running


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with lab(tmp_path) as running:
        yield running


def as_alice(gateway: Running, folder: Path) -> mew.client.ConnectContext:
    return mew.connect(url_of(gateway), token=token_of(folder, "alice"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@played
async def test_with_its_token_in_the_environment_an_agent_works_and_leaves_gracefully_on_a_signal(
    gateway: Running, tmp_path: Path, number: signal.Signals
) -> None:
    environ = {"MEW_TOKEN": token_of(tmp_path, "echo"), "MEW_GATEWAY": url_of(gateway), "MEW_SPACE": "lab"}
    async with as_alice(gateway, tmp_path) as alice:
        with at_work(tmp_path, "agent", "start", "-t", "echo", **environ) as process:
            await alice.wait_until(lambda view: "echo" in view.participants)
            answers = alice.envelopes("chat", sender="echo")
            await alice.chat("hello")
            assert (await anext(answers)).payload["text"] == "Echo: hello"
            process.send_signal(number)
            await alice.wait_until(lambda view: "echo" not in view.participants)
            output, errors = process.communicate(timeout=10)
            assert (process.returncode, output) == (0, b""), errors.decode()
            assert b"Traceback" not in errors
            assert environ["MEW_TOKEN"].encode() not in errors


@played
async def test_the_participant_comes_from_the_flags_of_old_scripts_or_the_files_of_the_space(
    gateway: Running, tmp_path: Path
) -> None:
    async with as_alice(gateway, tmp_path) as alice:
        flags = ("-g", url_of(gateway), "-s", "lab", "--token", token_of(tmp_path, "bob"))
        with at_work(tmp_path, "agent", "start", "--type", "fulfiller", *flags):
            await alice.wait_until(lambda view: "bob" in view.participants)
        with at_work(tmp_path, "agent", "start", "--type", "calculator", "--gateway", url_of(gateway)):
            await alice.wait_until(lambda view: "calculator-agent" in view.participants)
            assert (await alice.call_tool("calculator-agent", "add", {"a": 5, "b": 3})).text == "8"


OWN = '''\
"""An agent in a file of the user."""

from mew.client import Space


async def agent(space: Space) -> None:
    """Send a greeting, and end after the first answer."""
    chats = space.envelopes("chat", sender="alice")
    await space.chat("here I am")
    await anext(chats)
'''


@played
async def test_an_agent_can_be_a_function_in_a_file(gateway: Running, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(OWN, encoding="utf-8")
    async with as_alice(gateway, tmp_path) as alice:
        messages = alice.envelopes("chat", sender="tools")
        with at_work(tmp_path, "agent", "start", "-t", "./tools.py", "-g", url_of(gateway)) as process:
            assert (await anext(messages)).payload["text"] == "here I am"
            await alice.chat("good bye")
            await alice.wait_until(lambda view: "tools" not in view.participants)
            assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["-t", "juggler"],
            2,
            "there is no agent 'juggler': use echo, calculator, fulfiller, or the path of a Python file",
        ),
        (["-t", "nothing.py"], 2, "there is no file nothing.py"),
        (["-t", "empty.py"], 2, "empty.py has no `async def agent(space)`"),
        (["-t", "broken.py"], 2, "broken.py cannot be run: ZeroDivisionError: division by zero"),
        (["-t", "echo", "-g", "nowhere"], 2, "'nowhere' is not a valid gateway address"),
        (["-t", "echo", "-g", "ws://127.0.0.1:1", "--token", "x"], 3, "no connection to 127.0.0.1:1"),
        (["-t", "echo"], 3, "space 'lab' is not running: start it with `mew space up`"),
        (["-t", "echo", "-g", "URL", "--token", "wrong"], 4, "unauthorized: the token is not known here"),
        (["-t", "echo", "-g", "URL", "-p", "zoe"], 2, "'zoe' has no token in space 'lab'"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    gateway: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    alone(tmp_path, monkeypatch)
    (tmp_path / "empty.py").touch()
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    values = [url_of(gateway) if item == "URL" else item for item in arguments]
    assert main(["agent", "start", "-l", "error", *values]) == code
    output, errors = capsys.readouterr()
    assert output == ""
    assert words in errors
    assert errors.count("\n") == 1
