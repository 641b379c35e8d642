"""The demo plays real stories, tells what came of them as it was, and leaves nothing behind that was not asked for."""

import asyncio
import io
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from tools.demo.children import Failed
from tools.demo.playing import play
from tools.demo.showing import Show
from tools.demo.stage import ROOT, new_folder, stage
from tools.demo.stories import PICTURE, QUICK, RECEIVED, Cue, Part, Story
from tools.demo.tables import answers

SECONDS: Final = 300
"""Spark and twenty processes on whatever machine this is."""
END_SECONDS: Final = 30.0
pytestmark = pytest.mark.timeout(SECONDS + 30)
LISTENS: Final = re.compile(r"inspector\s+(http://localhost:\d+/)")
NOT_OF_THE_SERVER: Final = ["deltalake", "duckdb", "matplotlib", "pandas", "playwright", "polars", "pyspark", "pytest"]
TOKEN: Final = re.compile(r"token\s+(\S{40,})")


def environment(home: Path) -> dict[str, str]:
    """Ours, with another home: which spaces run is listed there."""
    return {**os.environ, "HOME": str(home), "PYTHONUNBUFFERED": "1"}


def words(below: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "tools.demo", "--below", str(below), *options]


@contextmanager
def begun(below: Path, *options: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A demo that runs; killed in the end, if it still does."""
    pipe, environ = subprocess.PIPE, {**environment(below), **more}
    command = words(below, *options)
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=pipe, stderr=pipe, text=True) as demo:
        try:
            yield demo
        finally:
            demo.kill()


def heard(demo: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The first line that it prints from now on that has this in it."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"it never said {pattern}: {demo.stderr and demo.stderr.read()}")


def running(below: Path) -> dict[int, str]:
    """Processes that have their place below a folder: those that a demo started, and what these did."""
    commands = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(below):
                commands[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return commands


def until(question: Callable[[], bool]) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_the_end(processes: dict[int, str]) -> list[str]:
    """Which of them have not ended in time."""
    left, deadline = [], time.monotonic() + END_SECONDS
    for pid, command in processes.items():
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            ended, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
            os.close(handle)
            left += [] if ended else [command]
    return left


class EndedDemo:
    """A demo that came to its end, and the gateway that it left running."""

    def __init__(self, below: Path) -> None:
        command = words(below, "--quick", "--keep")
        self.result = subprocess.run(
            command, cwd=ROOT, env=environment(below), capture_output=True, text=True, check=False, timeout=SECONDS
        )
        self.printed = self.result.stdout
        self.lines = self.printed.splitlines()

    @property
    def folder(self) -> Path:
        return Path(self.lines[-1]).parent

    def rows_of(self, title: str) -> list[dict[str, Any]]:
        """The rows that the lake gives to one of the demo's questions."""
        (answer,) = (answer for answer in answers(self.folder / ".mew" / "lake") if answer.question.title == title)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]

    def stop(self) -> None:
        """By the command that it printed."""
        command = shlex.split(self.lines[self.lines.index("The gateway keeps running. This stops it:") + 1])
        subprocess.run(command, env=environment(self.folder), check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def ended_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndedDemo]:
    below = tmp_path_factory.mktemp("demos")
    try:
        yield EndedDemo(below)
    finally:
        for pid in running(below):
            os.kill(pid, signal.SIGKILL)


def test_it_ends_by_itself_and_its_last_line_is_the_report(ended_demo: EndedDemo) -> None:
    assert (ended_demo.result.returncode, ended_demo.result.stderr) == (0, "")
    report = Path(ended_demo.lines[-1])
    assert report.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_where_to_look_comes_before_anything_else(ended_demo: EndedDemo) -> None:
    assert LISTENS.match(ended_demo.lines[0])
    assert TOKEN.match(ended_demo.lines[1])


def test_spark_made_the_tables(ended_demo: EndedDemo) -> None:
    log = (ended_demo.folder / "logs" / "commands.log").read_text(encoding="utf-8").splitlines()
    batches = [json.loads(line) for line in log if line.startswith('{"batch"')]
    assert batches[0]["seconds"]["start"] > 0
    assert "── the pipeline: Spark makes tables" in ended_demo.printed


def test_every_stream_of_the_stories_is_there(ended_demo: EndedDemo) -> None:
    streams = {row["opened by"]: row for row in ended_demo.rows_of("Streams")}
    openers = ["character-server", "boss", "assistant", "speaker", "thinker", "sender", "camera"]
    assert sorted(streams) == sorted(openers)
    assert {row["ended"] for row in streams.values()} == {"complete"}
    assert (streams["boss"]["writers"], streams["boss"]["frames"]) == (4, QUICK.jobs)
    assert streams["sender"]["bytes"] == PICTURE.stat().st_size
    assert (ended_demo.folder / RECEIVED / PICTURE.name).read_bytes() == PICTURE.read_bytes()
    assert "7 streams, opened by 7 participants, carried" in ended_demo.printed


def test_the_cat_went_from_the_server_to_the_agent_and_a_player_had_it_for_a_while(ended_demo: EndedDemo) -> None:
    cat = [row for row in ended_demo.rows_of("Ownership history") if row["stream"] == "cat"]
    hands = [("character-server", "owner"), ("player1", "writer"), ("ai-agent", "owner")]
    assert [(row["participant"], row["role"]) for row in cat] == hands
    assert cat[0]["to"] == cat[2]["from"] > cat[1]["to"] > cat[1]["from"]
    assert "(cat: character-server → ai-agent)" in ended_demo.printed


def test_only_the_second_player_was_refused(ended_demo: EndedDemo) -> None:
    refused = {(row["participant"], row["what"]): row["reason"] for row in ended_demo.rows_of("Refused")}
    assert refused == {
        ("player2", "stream/data"): "unauthorized_stream_write",
        ("player2", "stream/grant-write"): "unauthorized",
        ("player2", "a raw frame"): "unauthorized_stream_write",
    }
    assert re.search(r"player2 +a raw frame +unauthorized_stream_write +1", ended_demo.printed)


def test_what_was_lost_on_purpose_is_counted(ended_demo: EndedDemo) -> None:
    gaps = {(row["gap"], row["who"]): row["frames"] for row in ended_demo.rows_of("Gaps")}
    assert {who: frames for (gap, who), frames in gaps.items() if gap == "never sent"} == {"ai-agent": QUICK.lose}
    (slow,) = (frames for (gap, who), frames in gaps.items() if (gap, who) == ("too slow", "slow-reader"))
    assert re.search(rf"slow-reader  .*\b{slow}\b", ended_demo.printed)
    assert f"{QUICK.lose} frames of those that writers numbered never arrived; " in ended_demo.printed


def test_what_was_malformed_is_in_quarantine(ended_demo: EndedDemo) -> None:
    quarantined = ended_demo.rows_of("Quarantined frames")
    assert [(row["stream"], row["writer"]) for row in quarantined] == [("cat", "player1")] * QUICK.malformed
    assert {row["reason"] for row in quarantined} == {"not_json", "schema"}
    assert re.search(r"cat +\d+ +player1 +not_json .*meow", ended_demo.printed)


def test_bandwidth_has_a_bar_for_every_second_of_every_stream(ended_demo: EndedDemo) -> None:
    rows = ended_demo.rows_of("Bandwidth")
    assert len(rows) == len(ended_demo.rows_of("Streams"))
    assert len({len(row["second by second"]) for row in rows}) == 1
    assert all(sum(row["second by second"]) == row["bytes"] for row in rows)


def test_the_audit_is_clean(ended_demo: EndedDemo) -> None:
    verdicts = ended_demo.rows_of("Audit")
    assert len(verdicts) >= 10
    assert {(row["violations"], row["verdict"]) for row in verdicts} == {(0, "holds")}
    assert re.search(r"things were checked in \d+ ways, and nothing was wrong", ended_demo.printed)


def test_a_gateway_that_is_kept_answers_the_token_and_stops_by_the_command_that_was_printed(
    ended_demo: EndedDemo,
) -> None:
    (url,) = set(LISTENS.findall(ended_demo.printed))
    (token,) = set(TOKEN.findall(ended_demo.printed))
    asking = urllib.request.Request(f"{url}participants", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asking, timeout=20) as answer:
        assert answer.status == 200
    processes = running(ended_demo.folder)
    assert any("gateway start" in command for command in processes.values())
    ended_demo.stop()
    assert wait_for_the_end(processes) == []


@pytest.mark.parametrize(
    ("moment", "options", "many"),
    [(r"movement +player1 ", (), 5), ("── the pipeline", ("--quick",), 0)],
    ids=["stories", "Spark"],
)
def test_ctrl_c_ends_every_process_removes_the_folder_and_says_so(
    tmp_path: Path, moment: str, options: tuple[str, ...], many: int
) -> None:
    with begun(tmp_path, *options) as demo:
        heard(demo, moment)
        until(lambda: len(running(tmp_path)) > many)
        processes = running(tmp_path)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert re.fullmatch(r"demo: interrupted; every process has ended, and \S+ is gone\n", errors)
    assert wait_for_the_end(processes) == []
    assert (running(tmp_path), list(tmp_path.glob("2*"))) == ({}, [])


def test_a_look_at_the_stories_needs_nothing_but_the_gateways_libraries(tmp_path: Path) -> None:
    """What `make try` installs; here the others are as if they were not there, for every process of it."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({NOT_OF_THE_SERVER}))\n", encoding="utf-8"
    )
    with begun(tmp_path, "--endless", "--quick", PYTHONPATH=str(tmp_path / "without")) as demo:
        heard(demo, LISTENS.pattern)
        heard(demo, r"movement +player1 ")
        demo.send_signal(signal.SIGINT)
        assert demo.wait(END_SECONDS) == 130


def test_what_the_others_need_is_not_of_the_server() -> None:
    pins = (ROOT / "requirements" / "server.txt").read_text(encoding="utf-8")
    assert [name for name in NOT_OF_THE_SERVER if re.search(rf"^{name}==", pins, re.MULTILINE)] == []


def test_two_demos_have_ports_of_their_own_and_a_killed_one_leaves_no_process(tmp_path: Path) -> None:
    with closing(socket.socket()) as taken, begun(tmp_path, "--endless") as one, begun(tmp_path, "--endless") as two:
        with suppress(OSError):  # if another process has the usual port, that serves as well
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        assert heard(one, LISTENS.pattern)[1] != heard(two, LISTENS.pattern)[1]
        heard(one, r"movement +player1 ")
        heard(two, r"movement +player1 ")
        processes = running(tmp_path)
        one.kill()
        two.kill()
        assert wait_for_the_end(processes) == []


def test_a_failed_process_stops_the_demo_with_its_last_lines(tmp_path: Path) -> None:
    lost = Part("player1", "movement.py", ("nobody",))
    patient = Part("player2", "movement.py", ("player2",))
    never = Part("spectator", "movement.py", ("spectator",), (Cue("player1"),))
    story = Story("broken", "A part that there is not", (patient, lost, never))

    async def played() -> None:
        async with stage(new_folder(tmp_path)) as running_stage:
            viewer = Show(Console(file=io.StringIO()))
            with viewer.playing([story]):
                await play(running_stage, [story], viewer)

    with pytest.raises(Failed, match=r"(?s)player1 in 'A part that there is not' ended with 2; .*the roles are server"):
        asyncio.run(played())
    assert running(tmp_path) == {}


def test_an_endless_demo_has_nothing_to_keep(tmp_path: Path) -> None:
    command = words(tmp_path, "--endless", "--keep")
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--keep is for a demo that ends" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = words(tmp_path / "file")
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"demo: \S+ cannot be made: .+\n", result.stderr)


def test_demos_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    assert len({new_folder(tmp_path) for _ in range(5)}) == 5
