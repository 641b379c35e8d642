"""The examples run as a user runs them: one process for each role, in the space of examples/space.yaml."""

import asyncio
import contextlib
import functools
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest

import mew
from mew.client import ConnectContext
from mew.config.loader import load_config
from tests.client.harness import played, url_of
from tests.gateway.raw import Running, running_from

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
STORIES: Final = (
    "approval",
    "file_transfer",
    "movement",
    "reasoning",
    "slow_reader",
    "tokens",
    "transcript",
    "workers",
)
ALONE: Final = {"echo": "agent.py", "calculator": "tool_server.py"}
"""Programs without roles, by their participant."""
LINES: Final = {"agent": 16, "tool_server": 15, "movement": 200}
SHORT: Final = 110
"""The limit of lines for the others."""
README: Final = (EXAMPLES / "README.md").read_text(encoding="utf-8")
ERRORS: Final = {
    "movement.py": "the following arguments are required: role",
    "tokens.py cook": "argument role: invalid choice: 'cook'",
    "workers.py boss --jobs many": "argument --jobs: invalid int value: 'many'",
    "file_transfer.py sender": "the following arguments are required: path",
    "approval.py human": "the human cannot answer without a terminal: give --yes or --no",
}
"""Wrong command lines, and the error of each."""


class Ended(NamedTuple):
    """The output of a role, and how it ended."""

    lines: list[str]
    errors: str = ""
    code: int | None = 0


class Actor:
    """A process that plays a role, with the token that the gateway wrote to its folder."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._lines: list[str] = []

    async def says(self) -> str:
        """The next line that the process prints."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode().removesuffix("\n")
        self._lines.append(line)
        return line

    async def end(self) -> Ended:
        """Wait for the end of the process; returns its whole output."""
        output, errors = await self.process.communicate()
        return Ended([*self._lines, *output.decode().splitlines()], errors.decode(), self.process.returncode)


class Stage:
    """A gateway with the space of the examples, and the folder that it was started in."""

    def __init__(self, folder: Path, gateway: Running) -> None:
        self.folder, self.gateway = folder, gateway
        self._actors: list[Actor] = []

    async def start(self, command: str, stdin: int = asyncio.subprocess.DEVNULL, **environment: str) -> Actor:
        """Start `movement.py player1 --seconds 1` as a user types it in that folder."""
        name, *arguments = command.split()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLES / name),
            *arguments,
            cwd=self.folder,
            env={**os.environ, "MEW_GATEWAY": url_of(self.gateway), **environment},
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self._actors.append(Actor(process))
        return self._actors[-1]

    async def play(self, *commands: str) -> list[Ended]:
        """Run these commands concurrently, to their ends."""
        actors = [await self.start(command) for command in commands]
        return await asyncio.gather(*(actor.end() for actor in actors))

    async def clear(self) -> None:
        """Kill the processes that still run."""
        for actor in self._actors:
            if actor.process.returncode is None:
                actor.process.kill()
                await actor.process.communicate()

    def join(self, participant: str) -> ConnectContext:
        """Join the space as one of its participants."""
        return mew.connect(url_of(self.gateway), space="seacat", token=self.gateway.token(participant))


@pytest.fixture
def seacat(tmp_path: Path) -> Iterator[Stage]:
    """What `cd examples && mew gateway start` starts, in a temporary folder."""
    shutil.copy(EXAMPLES / "space.yaml", tmp_path)
    with running_from(tmp_path / "space.yaml") as gateway:
        yield Stage(tmp_path, gateway)


@contextlib.asynccontextmanager
async def no_process_left(stage: Stage) -> AsyncIterator[None]:
    """Kill the examples' processes at the end, whatever happens."""
    try:
        yield
    finally:
        await stage.clear()


# The stories


@played
async def test_the_cat_is_lent_dropped_and_transferred_and_a_late_spectator_counts_its_frames(seacat: Stage) -> None:
    async with no_process_left(seacat):
        server = await seacat.start("movement.py server")
        await server.says()
        spectator = await seacat.start("movement.py spectator --frames 100000")
        owned = "cat is owned by character-server, written by character-server; "
        assert (await spectator.says()).startswith(owned)
        writers = ("movement.py player1 --seconds 0.5 --malformed 5", "movement.py ai-agent --seconds 0.5 --lose 20")
        player, agent = await seacat.play(*writers)
        assert player == Ended(["player1 may write to cat", "player1 disconnects; 5 frames were malformed"])
        assert agent == Ended(["ai-agent owns cat", "ai-agent skips 20 positions", "ai-agent ended the stream"])
        assert await server.end() == Ended(
            [
                "cat is live, 60 positions a second; waiting for player1",
                "cat may be written by character-server and player1",
                "player1 is disconnected; the server writes until ai-agent joins",
                "cat was transferred from character-server to ai-agent",
                "cat has ended",
            ]
        )
        (_, last, counted), *how = await spectator.end()
        assert how == ["", 0]
        assert re.fullmatch(r"the last position is Position\(x=\S+, y=\S+\)", last)
        assert counted.endswith(" frames read, 5 of them malformed; 20 lost before the gateway, 0 after it")


@played
async def test_a_player_without_a_grant_is_refused_whatever_it_tries(seacat: Stage) -> None:
    async with no_process_left(seacat):
        server = await seacat.start("movement.py server")
        await server.says()
        (player,) = await seacat.play("movement.py player2")
        assert player == Ended(
            [
                "cat may be written by character-server; player2 tries to write",
                "player2 is rejected: 'player2' is not an authorised writer of 'cat'",
                "player2 is rejected: only 'character-server' may send stream/grant-write for 'cat'",
                "player2 is rejected: 'player2' is not an authorised writer of 'cat'",
            ]
        )


@played
async def test_a_spectator_leaves_when_it_has_seen_enough(seacat: Stage) -> None:
    async with no_process_left(seacat):
        await seacat.start("movement.py server")
        for _ in range(2):
            (spectator,) = await seacat.play("movement.py spectator --frames 5")
            counted = "5 frames read, 0 of them malformed; 0 lost before the gateway, 0 after it"
            assert (spectator.lines[-1], spectator.errors, spectator.code) == (counted, "", 0)


@played
async def test_a_slow_reader_gets_the_number_of_pictures_that_it_missed(seacat: Stage) -> None:
    async with no_process_left(seacat):
        camera, reader = await seacat.play("slow_reader.py camera", "slow_reader.py reader --seconds 3")
        wrote = ["camera writes 64 pictures of 64 KiB", "camera is done: the slow reader did not delay it"]
        assert camera == Ended(wrote)
        busy, missed, saw = reader.lines
        assert (busy, reader.errors, reader.code) == ("slow-reader is busy for 3 s", "", 0)
        lost = re.fullmatch(r"slow-reader missed (\d+) pictures: the gateway dropped them", missed)
        assert lost is not None
        assert 0 < int(lost[1]) < 64
        assert saw == f"slow-reader received {64 - int(lost[1])} of 64 pictures"


@played
async def test_the_tokens_of_an_answer_become_one_message_with_the_same_text(seacat: Stage) -> None:
    async with no_process_left(seacat), seacat.join("human") as human:
        chats = human.envelopes("chat", sender="assistant")
        assistant, reader = await seacat.play("tokens.py assistant --rate 500", "tokens.py reader")
        answer = (await anext(chats)).payload
        count = len(answer["text"].split())
        assert answer["compacts"] == {"stream_id": "stream-1", "frames": count}
        compacted = f"{count} tokens on stream-1 became one message of {len(answer['text'])} characters"
        assert assistant == Ended(["reader asks: Why does a stream need an owner?", compacted])
        same = f"{count} tokens came on stream-1; the message has the same text"
        assert reader == Ended([answer["text"], same])


@played
async def test_a_message_that_differs_from_its_tokens_is_detected(seacat: Stage) -> None:
    async with no_process_left(seacat), seacat.join("assistant") as liar:
        questions = liar.envelopes("chat", to="assistant")
        reader = await seacat.start("tokens.py reader")
        question = await anext(questions)
        stream = await liar.open_stream(answers=question.id)
        await stream.send("yes ")
        await liar.send("chat", {"text": "no"}, to="reader", correlation_id=question.id)
        assert await reader.end() == Ended(["yes "], "the message differs from the tokens: no\n", 1)


@played
async def test_a_transcript_is_read_line_by_line(seacat: Stage) -> None:
    async with no_process_left(seacat):
        speaker, reader = await seacat.play("transcript.py speaker --rate 500", "transcript.py reader")
        announced = "call is announced; waiting for a reader"
        assert speaker == Ended([announced, "listener is ready", "27 words spoken"])
        assert reader == Ended(
            [
                "speaker (en-US): Can you hear me?",
                "speaker (en-US): The gate to the garden is open.",
                "speaker (en-US): I think the cat went out, and the dog went after it.",
                "speaker (en-US): I am going in.",
                "the call has ended",
            ]
        )


@played
async def test_a_chain_of_thought_is_read_up_to_its_conclusion(seacat: Stage) -> None:
    async with no_process_left(seacat):
        agent, reader = await seacat.play("reasoning.py agent --rate 500", "reasoning.py reader")
        thoughts = ["12 × 10 is 120", "12 × 2 is 24", "120 + 24 is 144"]
        aloud = [f"thinking: {thought}" for thought in thoughts]
        announced = "trace is announced; waiting for a reader"
        assert agent == Ended([announced, *aloud, "concluded: It is 144."])
        steps = [f"thinker, step {number}: {thought}" for number, thought in enumerate(thoughts, start=1)]
        reasoned = ["reasoning/start: How much is 12 × 12?", "reasoning/conclusion: It is 144."]
        assert reader == Ended([*steps, *reasoned])


@played
async def test_a_file_arrives_complete_and_only_at_its_receiver(seacat: Stage) -> None:
    picture = Random(1).randbytes(3_000_001)
    (seacat.folder / "screen.png").write_bytes(picture)
    async with no_process_left(seacat), seacat.join("human") as human:
        overheard = human.frames()
        roles = ("file_transfer.py sender screen.png", "file_transfer.py receiver received")
        sender, receiver = await seacat.play(*roles)
        checksum = sha256(picture).hexdigest()[:16]
        assert sender == Ended(
            [f"sending screen.png: 3000001 bytes, sha256 {checksum}…", "the receiver stored the file"]
        )
        assert receiver == Ended(["screen.png from sender: 3000001 bytes in 92 pieces, the checksum is correct"])
        assert (seacat.folder / "received" / "screen.png").read_bytes() == picture
        await human.close()
        assert [frame async for frame in overheard] == []


@pytest.mark.parametrize("size", [0, 70_000])
def test_a_file_of_any_size_is_stored(seacat: Stage, size: int) -> None:
    (seacat.folder / "some.bin").write_bytes(bytes(size))

    @played
    async def story() -> None:
        async with no_process_left(seacat):
            roles = ("file_transfer.py sender some.bin", "file_transfer.py receiver received")
            assert [ended.code for ended in await seacat.play(*roles)] == [0, 0]
            assert (seacat.folder / "received" / "some.bin").read_bytes() == bytes(size)

    story()


@played
async def test_a_file_with_another_checksum_than_announced_is_not_stored(seacat: Stage) -> None:
    (seacat.folder / "screen.png").write_bytes(b"a picture")
    async with no_process_left(seacat):
        roles = ("file_transfer.py sender screen.png --corrupt", "file_transfer.py receiver received")
        sender, receiver = await seacat.play(*roles)
        assert sender[1:] == ("the receiver rejected the file: its size or checksum is wrong\n", 1)
        assert receiver == Ended([], "screen.png of sender has another size or checksum than announced\n", 1)
        assert not (seacat.folder / "received").exists()


@played
async def test_a_file_cannot_be_written_outside_the_folder_of_the_receiver(seacat: Stage) -> None:
    async with no_process_left(seacat), seacat.join("sender") as sender:
        read = sender.envelopes("chat/acknowledge", sender="receiver")
        receiver = await seacat.start("file_transfer.py receiver received")
        await sender.wait_until(lambda view: "receiver" in view.participants)
        about = {"filename": "../out.txt", "checksum_sha256": sha256(b"out").hexdigest()}
        stream = await sender.open_stream(target=["receiver"], expected_size_bytes=3, metadata=about)
        await anext(read)
        await stream.send(b"out")
        await stream.complete()
        assert (await receiver.end()).code == 0
        assert [path.parent.name for path in seacat.folder.rglob("out.txt")] == ["received"]


@played
async def test_three_workers_write_one_stream_and_the_boss_adds_up_the_results(seacat: Stage) -> None:
    async with no_process_left(seacat):
        workers = [f"workers.py worker-{number}" for number in (1, 2, 3)]
        boss, *worker_outputs = await seacat.play("workers.py boss", *workers)
        opened, shares, total = boss.lines
        assert (boss.errors, boss.code, opened) == ("", 0, "results is open; waiting for 3 workers")
        assert total == "there are 1438 primes below 12000"
        job_counts = [len(ended.lines) - 1 for ended in worker_outputs]
        assert [ended[1:] for ended in worker_outputs] == [("", 0)] * 3
        assert [ended.lines[-1] for ended in worker_outputs] == [
            f"worker-{n} did {job_counts[n - 1]} jobs" for n in (1, 2, 3)
        ]
        assert (
            shares
            == f"12 results, {job_counts[0]} by worker-1, {job_counts[1]} by worker-2, {job_counts[2]} by worker-3"
        )
        assert sum(job_counts) == 12
        assert min(job_counts) > 0


@pytest.mark.parametrize(
    ("answer", "agent", "human", "left"),
    [
        ("yes", "human approved it: 9120336 bytes are free again", "approved and done", 2),
        ("no", "human rejected it: the file may still be needed", "rejected", 3),
    ],
)
def test_a_proposal_of_an_agent_is_carried_out_only_if_a_human_approves_it(
    seacat: Stage, answer: str, agent: str, human: str, left: int
) -> None:
    @played
    async def story() -> None:
        async with no_process_left(seacat):
            roles = ("approval.py tools", "approval.py agent", f"approval.py human --{answer}")
            tools, proposer, decider = await seacat.play(*roles)
            proposes = "the largest of 3 files is old.log: the agent proposes to delete it"
            assert proposer == Ended([proposes, agent])
            wants = "cleaner proposes delete_file of file-tools: {'name': 'old.log'}"
            assert decider == Ended(["waiting for a proposal", wants, human])
            deleted = ["old.log is deleted, requested by human"] if answer == "yes" else []
            assert tools == Ended(["3 files exist", *deleted, f"{left} files are left"])

    story()


@played
async def test_an_approved_call_that_fails_is_reported_as_failed(seacat: Stage) -> None:
    async with no_process_left(seacat):
        tools, human = [await seacat.start(f"approval.py {role}") for role in ("tools", "human --yes")]
        assert await human.says() == "waiting for a proposal"
        assert await tools.says() == "3 files exist"
        async with seacat.join("cleaner") as cleaner:
            await cleaner.wait_until(lambda view: view.participants.keys() >= {"file-tools", "human"})
            deleted = await cleaner.call_tool("file-tools", "delete_file", {"name": "cow.png"}, timeout=None)
        assert deleted.is_error
        assert (await human.end()).lines[-1] == "the tool failed"
        assert (await tools.end()).lines[-1] == "3 files are left"


@played
async def test_the_human_decides_on_the_terminal(seacat: Stage) -> None:
    keyboard, terminal = os.openpty()
    async with no_process_left(seacat):
        human = await seacat.start("approval.py human", stdin=terminal)
        os.close(terminal)
        others = [await seacat.start(f"approval.py {role}") for role in ("tools", "agent")]
        assert await human.says() == "waiting for a proposal"
        assert (await human.says()).startswith("cleaner proposes")
        os.write(keyboard, b"n\n")
        assert (await human.end()).lines[-1] == "Approve? [y/n] rejected"
        _, agent = [await actor.end() for actor in others]
        assert agent.lines[-1] == "human rejected it: the file may still be needed"
    os.close(keyboard)


# The programs without roles


@played
async def test_the_agent_answers_chats_to_it_until_it_is_interrupted(seacat: Stage) -> None:
    async with no_process_left(seacat), seacat.join("human") as human:
        agent = await seacat.start("agent.py", MEW_TOKEN=seacat.gateway.token("echo"))
        await human.wait_until(lambda view: "echo" in view.participants)
        chats = human.envelopes("chat", sender="echo", to="human")
        await human.chat("not to you")
        await human.chat("hello", to="echo")
        assert (await anext(chats)).payload["text"] == "You said: hello"
        agent.process.send_signal(signal.SIGINT)
        assert await agent.end() == Ended([])
        await human.wait_until(lambda view: "echo" not in view.participants)


@played
async def test_the_tool_server_adds_and_ends_on_sigterm(seacat: Stage) -> None:
    async with no_process_left(seacat), seacat.join("human") as human:
        server = await seacat.start("tool_server.py", MEW_TOKEN=seacat.gateway.token("calculator"))
        await human.wait_until(lambda view: "calculator" in view.participants)
        (tool,) = await human.list_tools("calculator")
        assert (tool.name, tool.description) == ("add", "The sum of two numbers.")
        assert (await human.call_tool("calculator", "add", {"a": 3, "b": 5.5})).text == "8.5"
        server.process.terminate()
        assert await server.end() == Ended([])
        await human.wait_until(lambda view: "calculator" not in view.participants)


# Start and end of a role


@pytest.mark.parametrize("command", ERRORS)
def test_a_usage_error_is_one_line_with_the_names_of_the_roles(command: str) -> None:
    name, *arguments = command.split()
    typed = [sys.executable, str(EXAMPLES / name), *arguments]
    ran = subprocess.run(typed, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30)
    roles_text = ", ".join(roles()[name.removesuffix(".py")])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"{name}: {ERRORS[command]}; the roles are {roles_text}\n"


@played
async def test_an_interrupted_role_ends_quietly_with_130(seacat: Stage) -> None:
    async with no_process_left(seacat):
        server = await seacat.start("movement.py server")
        await server.says()
        server.process.send_signal(signal.SIGINT)
        ended = await server.end()
        assert (len(ended.lines), ended.errors, ended.code) == (1, "", 130)


@played
async def test_a_role_that_cannot_continue_prints_the_reason(seacat: Stage) -> None:
    async with no_process_left(seacat):
        alone = await seacat.start("tokens.py reader --patience 0.5")
        stranger = await seacat.start("tokens.py reader", MEW_TOKEN="unknown")
        nowhere = await seacat.start("tokens.py reader", MEW_GATEWAY="ws://127.0.0.1:1")
        (nothing,) = await seacat.play("file_transfer.py sender nothing.png")
        assert await alone.end() == Ended([], "reader did not end within 0.5 s: do the other roles run?\n", 1)
        assert await stranger.end() == Ended(
            [], "reader: closed with 4401: unauthorized: the token is not known here\n", 4
        )
        ended = await nowhere.end()
        assert ended.code == 3
        assert ended.errors.startswith("reader: no connection to 127.0.0.1:1: ")
        assert nothing == Ended([], "sender: [Errno 2] No such file or directory: 'nothing.png'\n", 1)


@played
async def test_a_token_of_the_environment_has_precedence_over_one_of_the_folder(seacat: Stage) -> None:
    async with no_process_left(seacat):
        (seacat.folder / ".mew" / "tokens" / "spectator.token").write_text("an old one")
        await seacat.start("movement.py server")
        token = seacat.gateway.token("player2")
        spectator = await seacat.start("movement.py spectator --frames 1", MEW_TOKEN=token)
        assert (await spectator.end()).code == 0


# Programs, space and README


@functools.cache
def roles() -> dict[str, dict[str, str]]:
    """The roles of each program, and the participant of each role."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        roles_of_program = {name: runpy.run_path(str(EXAMPLES / f"{name}.py"))["ROLES"] for name in STORIES}
    finally:
        sys.path.remove(str(EXAMPLES))
    return {name: {role: participant for role, (participant, _) in roles_of_program[name].items()} for name in STORIES}


def test_every_participant_of_the_space_has_a_role_and_the_reverse() -> None:
    (space,) = load_config([EXAMPLES / "space.yaml"], environ={}).spaces
    parts = [participant for played_by in roles().values() for participant in played_by.values()]
    assert sorted([*parts, *ALONE]) == sorted(space.participants)


def test_the_readme_has_every_program_with_its_roles_and_a_command_for_each() -> None:
    rows = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \| (.+?) \|", README, re.MULTILINE)
    assert {name: re.findall(r"`(\S+)`", listed) for name, listed in rows} == {
        name: list(played_by) for name, played_by in roles().items()
    }
    typed = re.findall(r"^python (\w+)\.py (\S+)", README, re.MULTILINE)
    assert sorted(typed) == sorted((name, role) for name, played_by in roles().items() for role in played_by)


def test_every_option_in_the_readme_exists_in_its_program() -> None:
    for name, typed in re.findall(r"^python (\w+)\.py \S+(.*)$", README, re.MULTILINE):
        source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        assert [option for option in re.findall(r"--\w+", typed) if f'"{option}"' not in source] == []


@pytest.mark.parametrize("name", [*STORIES, "agent", "tool_server"])
def test_an_example_is_short(name: str) -> None:
    lines = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES.get(name, SHORT)


def test_every_example_that_needs_a_gateway_is_tested() -> None:
    connected = {path.stem for path in EXAMPLES.glob("*.py") if "import mew\n" in path.read_text(encoding="utf-8")}
    assert connected == {*STORIES, "agent", "tool_server"}
