"""`mew journal …` as a user runs it: it shows the contents of a journal, and reports each error in one line.

It runs as a separate process if signals, pipes or a terminal are involved.
"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from mcap.reader import make_reader

from mew.journal.block_format import FrameBatch
from mew.protocol.records import Record
from tests.cli import running_space as verbs
from tests.cli.space.test_gateway import SPACE, ask, environment, running, stop, token_of
from tests.journal.journal_fixture import NOON, JournalFixture, varied

SECONDS = 30


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mew", "journal", *arguments]


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error."""
    ran = verbs.run(folder, "journal", *arguments)
    return ran.code, ran.out, ran.err


def succeeds(folder: Path, *arguments: str) -> str:
    code, output, errors = run(folder, *arguments)
    assert (code, errors) == (0, "")
    return output


def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def fixture(tmp_path: Path) -> JournalFixture:
    """A journal in the folder `journal`."""
    return varied(tmp_path)


IN = ("--journal", "journal")


# Which journal


def test_the_journal_of_a_space_is_found_from_its_directory(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    with running(tmp_path) as (process, url):
        chat = {"kind": "chat", "payload": {"text": "hello"}}
        assert ask(f"{url}/participants/alice/messages", token_of(tmp_path, "alice"), chat)[0] == 200
        stop(process)
    lines = [json.loads(line) for line in succeeds(tmp_path, "tail", "-n", "99", "--json").splitlines()]
    assert [line["position"] for line in lines] == list(range(len(lines)))
    assert lines[0]["event"] == "start"
    assert "hello" in [line["payload"]["payload"]["text"] for line in lines if line["kind"] == "chat"]
    info = json.loads(succeeds(tmp_path, "info", "--json"))
    assert (info["space"], info["records"], len(info["epochs"])) == ("lab", len(lines), 1)
    assert "lab: intact: " in succeeds(tmp_path, "verify")


def test_a_missing_journal_is_reported_in_one_line(tmp_path: Path) -> None:
    looked = f"{tmp_path}/.mew/space.yaml and {tmp_path}/space.yaml"
    yaml = f"mew: no space.yaml found: looked for {looked}; create a space with `mew init`\n"
    assert run(tmp_path, "info") == (2, "", yaml)
    assert run(tmp_path, "verify", *IN) == (2, "", "mew: no journal at journal\n")
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    assert run(tmp_path, "tail") == (2, "", f"mew: no journal at {tmp_path}/.mew/journal\n")


def test_of_several_spaces_one_must_be_chosen(tmp_path: Path, fixture: JournalFixture) -> None:
    assert "space       lab\n" in succeeds(tmp_path, "info", *IN)
    (tmp_path / "journal" / "space=game").mkdir()
    both = "mew: journal contains the journals of 'game', 'lab': choose one with --space\n"
    assert run(tmp_path, "info", *IN) == (2, "", both)
    assert "space       lab\n" in succeeds(tmp_path, "info", *IN, "--space", "lab")
    wrong = "mew: journal has no journal of space 'elsewhere', only of 'game', 'lab'\n"
    assert run(tmp_path, "info", *IN, "--space", "elsewhere") == (2, "", wrong)


# The contents


def test_info_summarizes_a_journal_as_text_or_json(tmp_path: Path, fixture: JournalFixture) -> None:
    fixture.checkpoint()
    start = b'{"epoch":"first","participants":{},"defaults":[]}'
    fixture.write([Record(fixture.next, fixture.time, "start", "system:gateway", size=len(start), payload=start)])
    info = json.loads(succeeds(tmp_path, "info", *IN, "--json"))
    files = [path for path in (tmp_path / "journal").rglob("*") if path.is_file()]
    logs = [path for path in files if path.suffix == ".log"]
    size = {path: path.stat().st_size for path in files}
    assert info == {
        "space": "lab",
        "journal": "journal",
        "first": 0,
        "last": 61,
        "records": 62,
        "since": "2025-11-15T12:00:00.000000Z",
        "until": "2025-11-15T13:00:00.000010Z",
        "events": {"envelope": 20, "frame": 30, "frame_rejected": 10, "checkpoint": 1, "start": 1},
        "streams": {"moves": 40},
        "segments": {"count": 3, "bytes": sum(size.values()) - sum(size[path] for path in logs)},
        "compacted": 0,
        "logs": {"count": 3, "bytes": sum(size[path] for path in logs)},
        "last_checkpoint": 60,
        "epochs": ["first"],
    }
    lines = succeeds(tmp_path, "info", *IN)
    for line in (
        "records     62 (positions 0 to 61)",
        "events      frame 30, envelope 20, frame_rejected 10, checkpoint 1, start 1",
        "checkpoints 1, the last at position 60",
        "epochs      1, the last first",
    ):
        assert line in lines.splitlines()


def test_verify_names_the_damage_and_its_place_and_fails(tmp_path: Path, fixture: JournalFixture) -> None:
    assert succeeds(tmp_path, "verify", *IN).startswith("lab: intact: 60 records from position 0 to 59 in 3 segments ")
    assert json.loads(succeeds(tmp_path, "verify", *IN, "--json"))["problems"] == []
    log = fixture.folder.logs()[-1]
    os.truncate(log, log.stat().st_size - 1)
    torn = succeeds(tmp_path, "verify", *IN)
    assert torn.startswith(f"truncated end: {log.relative_to(tmp_path)}: byte ")
    assert "lab: intact: 54 records" in torn
    frames = fixture.folder.segments()[1].frames
    data = frames.read_bytes()
    frames.write_bytes(data[:100] + b"!" + data[101:])
    code, output, errors = run(tmp_path, "verify", *IN)
    assert (code, errors) == (1, "")
    assert output.startswith(f"damaged: {frames.relative_to(tmp_path)}: row group 0: its checksum is wrong")
    assert "lab: damaged: 36 records" in output
    code, output, errors = run(tmp_path, "verify", *IN, "--json")
    assert [problem["sort"] for problem in json.loads(output)["problems"]] == ["damage", "torn"]
    code, output, errors = run(tmp_path, "export", *IN)
    assert (code, len(output.splitlines())) == (1, 12)
    wrong = f"mew: {frames.relative_to(tmp_path)}: its checksum is wrong"
    assert errors == f"{wrong}\n"
    code, _, errors = run(tmp_path, "export", *IN, "-o", "out.jsonl")
    assert (code, errors) == (1, f"{wrong}; use --through 11 to export the records before it\n")
    assert run(tmp_path, "export", *IN, "-o", "out.jsonl", "--through", "11")[0] == 0
    assert run(tmp_path, "export", *IN, "-o", "rest.jsonl", "--from", "30")[0] == 0


def test_tail_shows_the_last_records_one_per_line(tmp_path: Path, fixture: JournalFixture) -> None:
    lines = succeeds(tmp_path, "tail", *IN, "-n", "3").splitlines()
    assert lines[0] == "      57 2025-11-15T13:00:00.000009Z frame     bob              moves#57 \\x00\\xff"
    assert lines[1].startswith("      58 2025-11-15T13:00:00.000009Z envelope  bob              stream/data moves#58 {")
    assert lines[2] == "      59 2025-11-15T13:00:00.000010Z frame_rejected carol            moves not_a_writer x"
    assert len(succeeds(tmp_path, "tail", *IN).splitlines()) == 10


def test_tail_finds_matching_records_however_old_they_are(tmp_path: Path, fixture: JournalFixture) -> None:
    def positions(*filters: str) -> list[int]:
        lines = succeeds(tmp_path, "tail", *IN, "--json", *filters).splitlines()
        return [json.loads(line)["position"] for line in lines]

    assert positions("-n", "3", "--event", "frame_rejected", "--participant", "carol") == [47, 53, 59]
    assert positions("-n", "99", "--stream", "moves", "--control") == list(range(5, 60, 6))
    assert positions("--from", "3", "--through", "7") == [3, 4, 5, 6, 7]
    assert positions("-n", "2", "--until", "2025-11-15T13:00:00Z") == [28, 29]
    assert positions("--since", "2025-11-15T13:00:00.000010Z") == [59]
    assert positions("--since", "1m") == []
    wrong = "mew: --since: expected a time such as 2026-03-01T10:00:00Z, or 15m for 15 minutes ago, not 'noon'\n"
    assert run(tmp_path, "tail", *IN, "--since", "noon") == (2, "", wrong)


def test_messages_of_participants_cannot_control_the_terminal(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    text = b'{"text":"\x1b[2J\r\n"}'
    fixture.write([Record(0, NOON, "envelope", "al\x1bice", "chat\n", size=len(text), payload=text)])
    output = succeeds(tmp_path, "tail", *IN)
    assert output.count("\n") == 1
    assert output.rstrip("\n").isprintable()
    assert "al\\x1bice" in output


def test_tail_follows_new_records_until_it_is_interrupted(tmp_path: Path, fixture: JournalFixture) -> None:
    process = subprocess.Popen(
        command("tail", *IN, "-n", "1", "--follow", "--control"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("      59 ")
        fixture.append()
        assert process.stdout.readline().startswith("      60 ")
        fixture.seal()
        fixture.append()
        assert [process.stdout.readline()[:8] for _ in range(3)] == ["      65", "      66", "      71"]
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, output, errors) == (130, "", "")
    finally:
        process.kill()
        process.communicate()


# On a terminal


def seen_on_terminal(folder: Path, stream: str, *arguments: str) -> bytes:
    """The output of a command on standard output or standard error, if that is a terminal."""
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in environment().items() if name not in ("NO_COLOR", "CI")}
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
    process = subprocess.Popen(command(*arguments), cwd=folder, env={**environ, "TERM": "xterm"}, **streams)
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], SECONDS)[0]:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # the process has closed it
                break
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
    return shown


def test_colours_and_progress_are_shown_on_terminals_only(tmp_path: Path, fixture: JournalFixture) -> None:
    assert b"\x1b[31mframe_rejected" in seen_on_terminal(tmp_path, "stdout", "tail", *IN)
    assert "\x1b" not in succeeds(tmp_path, "tail", *IN)
    assert b"verifying" in seen_on_terminal(tmp_path, "stderr", "verify", *IN)
    assert b"verifying" not in seen_on_terminal(tmp_path, "stdout", "verify", *IN)


# For other programs


def test_files_lists_the_parquet_files_for_other_engines(tmp_path: Path, fixture: JournalFixture) -> None:
    segments = fixture.folder.segments()
    control, frames = ([str(getattr(segment, part)) for segment in segments] for part in ("control", "frames"))
    both = [path for pair in zip(control, frames, strict=True) for path in pair]
    assert succeeds(tmp_path, "files", *IN).splitlines() == both
    assert succeeds(tmp_path, "files", *IN, "--control").splitlines() == control
    assert succeeds(tmp_path, "files", *IN, "--frames").splitlines() == frames


def test_the_statement_for_duckdb_runs_unchanged(tmp_path: Path) -> None:
    odd = tmp_path / "it's [odd]*"
    odd.mkdir()
    fixture = varied(odd)
    for options, expected in (((), fixture.records), (("--control",), fixture.control)):
        rows = duckdb.sql(succeeds(odd, "files", *IN, "--sql", *options))
        assert rows is not None
        positions = [row[rows.columns.index("position")] for row in rows.fetchall()]
        assert positions == [record.position for record in expected if record.position < 42]
        assert {"space", "date", "hour"} <= set(rows.columns)


def test_records_that_are_not_sealed_have_no_files(tmp_path: Path) -> None:
    JournalFixture(tmp_path).append()
    code, output, errors = run(tmp_path, "files", *IN)
    assert (code, output) == (0, "")
    assert errors == "mew: nothing is sealed yet in space 'lab': its records are in journal/.log/lab\n"


def test_records_are_exported_as_lines_to_a_file_or_to_standard_output(tmp_path: Path, fixture: JournalFixture) -> None:
    lines = succeeds(tmp_path, "export", *IN).splitlines()
    assert [json.loads(line)["position"] for line in lines] == list(range(60))
    assert succeeds(tmp_path, "export", *IN, "-o", "-").splitlines() == lines
    code, output, errors = run(tmp_path, "export", *IN, "--to", "jsonl", "-o", "out.jsonl", "--event", "frame")
    assert (code, output, errors) == (0, "", "wrote 30 records to out.jsonl\n")
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert written == [line for line in lines if json.loads(line)["event"] == "frame"]


def test_records_are_exported_as_mcap(tmp_path: Path, fixture: JournalFixture) -> None:
    arguments = ("export", *IN, "--to", "mcap")
    code, output, errors = run(tmp_path, *arguments, "-o", "out.mcap", "--stream", "moves")
    assert (code, output, errors) == (0, "", "wrote 50 records to out.mcap\n")
    with (tmp_path / "out.mcap").open("rb") as file:
        topics = [channel.topic for _, channel, _ in make_reader(file).iter_messages()]
    assert {topic: topics.count(topic) for topic in topics} == {"lab/moves/bob": 40, "lab/events": 10}
    code, output, errors = run(tmp_path, *arguments)
    assert (code, output) == (2, "")
    assert errors == "mew: an MCAP file cannot be written to standard output: give a file with --output\n"


def test_without_the_mcap_library_the_error_names_the_extra_and_no_file_is_left(
    tmp_path: Path, fixture: JournalFixture
) -> None:
    arguments = ["journal", "export", *IN, "--to", "mcap", "-o", "out.mcap"]
    script = f"import sys; sys.modules['mcap'] = None; from mew.cli import main; sys.exit(main({arguments!r}))"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("mew: this command requires mcap")
    assert ran.stderr.endswith("install mew-protocol[mcap]\n")
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_an_interrupted_export_leaves_no_file(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    for first in range(0, 400_000, 20_000):
        fixture.write([FrameBatch(first, NOON, "bob", "moves", first + 1, 7, [b"#moves#x"] * 20_000)])
    process = subprocess.Popen(
        command("export", *IN, "-o", "out.jsonl"), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: [path for path in tmp_path.iterdir() if path.name.startswith(".out.jsonl.")])
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, errors) == (130, "")
    finally:
        process.kill()
        process.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_a_closed_output_pipe_ends_the_command_without_an_error(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.write([FrameBatch(0, NOON, "bob", "moves", 1, 7, [b"#moves#x"] * 20_000)])
    for arguments in (("export", *IN), ("tail", *IN, "-n", "20000")):
        process = subprocess.Popen(
            command(*arguments), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(SECONDS) == 0


# Compaction


def test_finished_hours_are_compacted(tmp_path: Path, fixture: JournalFixture) -> None:
    assert succeeds(tmp_path, "compact", *IN) == "date=2025-11-15/hour=12: compacted 2 segments into 1\n"
    assert succeeds(tmp_path, "compact", *IN) == "nothing to compact\n"
    assert len(succeeds(tmp_path, "export", *IN).splitlines()) == 60
    assert json.loads(succeeds(tmp_path, "info", *IN, "--json"))["compacted"] == 1


def test_a_damaged_hour_is_left_unchanged(tmp_path: Path, fixture: JournalFixture) -> None:
    control = fixture.folder.segments()[0].control
    data = control.read_bytes()
    control.write_bytes(data[:100] + b"!" + data[101:])
    code, output, errors = run(tmp_path, "compact", *IN)
    assert (code, output) == (1, "")
    assert errors == f"mew: {control.relative_to(tmp_path)}: its checksum is wrong\n"
    assert len(fixture.folder.segments()) == 3


@pytest.mark.parametrize("name", ["info", "verify", "tail", "files", "export", "compact"])
def test_the_help_of_each_command_has_examples(tmp_path: Path, name: str) -> None:
    output = succeeds(tmp_path, name, "--help")
    assert f"  mew journal {name}" in output
    assert "--journal" in output
