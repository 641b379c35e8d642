"""`mew space up`, `down` and `status` as a user runs them: processes that start, are listed, and stop."""

import json
import os
import pty
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mew._internal.processes import process_start_id
from tests.cli.space_processes import LEAVING_ONE_BEHIND, PATIENCE, WAITING, Home, gone, python, until, worked


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    try:
        yield home
    finally:
        home.clear()


def healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE) as answer:
        return bool(json.load(answer)["status"] == "ok")


def test_a_space_starts_in_the_background_is_listed_and_stops(home: Home) -> None:
    lab = home.space("lab", worker=python(WAITING), other={"command": "false"})
    ran = home.mew("space", "up", "--detach", "--space-dir", str(lab), "--port", "0")
    pids = home.pids(lab)
    assert ran.code == 0
    assert pids is not None
    gateway, port, worker = pids["gateway"], pids["port"], pids["agents"]["worker"]
    assert healthy(port)
    assert f"space 'lab' runs at ws://localhost:{port} (gateway {gateway})" in ran.out
    assert (pids["spaceId"], pids["spaceDir"], list(pids["agents"]), pids["clients"]) == (
        "lab",
        str(lab),
        ["worker"],
        {},
    )
    assert pids["births"] == {str(pid): process_start_id(pid) for pid in (gateway, worker)}
    assert "listening" in (lab / "logs" / "gateway.log").read_text(encoding="utf-8")
    until(lambda: (lab / "logs" / "worker.log").read_text(encoding="utf-8") == "here\n")
    listed = json.loads((home.folder / ".mew" / "running-spaces.json").read_text(encoding="utf-8"))
    assert [(place, entry["port"], entry["gateway"]) for place, entry in listed.items()] == [(str(lab), port, gateway)]

    result = home.mew("space", "status", "--json", at=lab).json
    assert (result["running"], result["port"], result["gateway"]["pid"]) == (True, port, gateway)
    assert result["participants"] == [
        {"id": "worker", "pid": worker, "running": True, "present": False, "ended": None, "givenUp": None}
    ]
    assert [item["spaceId"] for item in home.mew("space", "status", "--json").json] == ["lab"]

    again = home.mew("up", "--detach", at=lab)
    assert (again.code, again.out) == (0, f"space 'lab' already runs at ws://localhost:{port} (gateway {gateway})\n")
    elsewhere = home.mew("up", "--detach", "--port", "1", at=lab)
    assert (elsewhere.code, elsewhere.err) == (
        1,
        f"mew: the space listens on port {port}, not on 1: stop it first with `mew space down`\n",
    )

    down = home.mew("space", "down", "--space-dir", str(lab))
    assert (down.code, down.out) == (0, "stopped gateway, worker\n")
    assert gone(gateway, worker)
    assert not (lab / ".mew" / "pids.json").exists()
    assert not (lab / ".mew" / "admin.sock").exists()
    assert json.loads((home.folder / ".mew" / "running-spaces.json").read_text(encoding="utf-8")) == {}
    nothing = home.mew("down", at=lab)
    assert (nothing.code, nothing.out) == (0, "the space is not running\n")


def test_a_port_in_use_is_skipped_and_reported(home: Home) -> None:
    lab = home.space("lab")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        ran = home.mew("space", "up", "--detach", "--port", str(port), at=lab)
        pids = home.pids(lab)
        assert pids is not None
        assert port < pids["port"] <= port + 9
        assert ran.code == 0
        assert f"port {port} is taken: listening on {pids['port']} instead" in ran.out


def test_after_a_kill_down_stops_all_processes_of_the_space_and_no_others(home: Home) -> None:
    lab = home.space("lab", worker=python(LEAVING_ONE_BEHIND), again=python(WAITING, restart_policy="always"))
    game = home.space("game", worker=python(LEAVING_ONE_BEHIND))
    beside = home.up(game)
    until(lambda: "behind" in (game / "logs" / "worker.log").read_text(encoding="utf-8"))
    theirs = home.remaining()
    assert len(theirs) == 2
    for victim in ("gateway", "worker"):
        pids = home.up(lab)
        until(lambda: "behind" in (lab / "logs" / "worker.log").read_text(encoding="utf-8"))
        killed = pids["gateway"] if victim == "gateway" else pids["agents"]["worker"]
        os.kill(killed, signal.SIGKILL)
        until(partial(gone, killed))
        ours = [pid for pid in home.remaining() if pid not in theirs]
        assert len(ours) == (3 if victim == "gateway" else 2)
        assert home.mew("space", "down", at=lab).code == 0
        assert gone(pids["gateway"], *pids["agents"].values(), *ours)
        (lab / "logs" / "worker.log").write_text("", encoding="utf-8")
    assert home.remaining() == theirs
    assert healthy(beside["port"])
    assert home.mew("space", "down", at=game).code == 0
    assert gone(beside["gateway"], *theirs)


def test_processes_of_a_killed_gateway_are_stopped_before_the_space_starts_again(home: Home) -> None:
    lab = home.space("lab", worker=python(WAITING))
    first = home.up(lab)
    os.kill(first["gateway"], signal.SIGKILL)
    until(lambda: gone(first["gateway"]))
    assert home.mew("space", "status", at=lab).out.startswith("the gateway of space 'lab' has died")
    ran = home.mew("up", "--detach", at=lab)
    second = home.pids(lab)
    assert second is not None
    assert (ran.code, ran.err) == (0, "stopped processes that a dead gateway left behind: worker\n")
    assert gone(first["agents"]["worker"])
    assert not gone(second["gateway"], second["agents"]["worker"])


def test_a_reused_process_id_is_not_stopped(home: Home) -> None:
    lab = home.space("lab")
    foreign = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, start_new_session=True)
    try:
        written = {"spaceId": "lab", "gateway": foreign.pid, "agents": {"worker": foreign.pid}, "startedBy": "space up"}
        (lab / ".mew").mkdir()
        file = lab / ".mew" / "pids.json"
        file.write_text(json.dumps(written), encoding="utf-8")
        unsure = home.mew("down", at=lab)
        assert unsure.code == 1
        assert f"no start time for process {foreign.pid}, so it is not stopped" in unsure.err
        file.write_text(json.dumps({**written, "births": {str(foreign.pid): "another/1"}}), encoding="utf-8")
        stale = home.mew("down", at=lab)
        assert (stale.code, stale.out) == (0, "the space is not running\n")
        assert not file.exists()
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.communicate()


def test_gateway_start_stops_the_processes_of_a_killed_gateway(home: Home) -> None:
    lab = home.space("lab", worker=python(WAITING))
    first = home.up(lab)
    os.kill(first["gateway"], signal.SIGKILL)
    until(partial(gone, first["gateway"]))
    command = home.command("gateway", "start")
    second = subprocess.Popen(
        command, cwd=lab, env=home.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert second.stdout is not None
        assert second.stdout.readline().startswith("listening on ")
        assert gone(first["agents"]["worker"])
        (worker,) = (home.pids(lab) or {})["agents"].values()
        assert not gone(worker)
        second.terminate()
        assert second.wait(PATIENCE) == 0
        assert gone(worker)
    finally:
        second.kill()
        second.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_in_the_foreground_up_shows_the_logs_and_stops_all_processes_at_its_end(
    home: Home, number: signal.Signals, code: int
) -> None:
    lab = home.space("lab", worker=python("print('at', flush=True); print('work', flush=True);" + WAITING))
    command = home.command("space", "up")
    process = subprocess.Popen(command, cwd=lab, env=home.environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("space 'lab' runs at ")
        pids = home.pids(lab)
        assert pids is not None
        until(lambda: (lab / "logs" / "worker.log").read_text(encoding="utf-8").endswith("here\n"))
        output = "".join(iter(process.stdout.readline, "stop it with Ctrl-C\n"))
        assert "worker" in output
        assert "worker       | at" in iter(lambda: process.stdout.readline().rstrip(), None)  # type: ignore[union-attr]
        (lab / "logs" / "late.log").write_text("something else\n", encoding="utf-8")
        assert "late         | something else" in iter(lambda: process.stdout.readline().rstrip(), None)  # type: ignore[union-attr]
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == code
    assert gone(pids["gateway"], pids["agents"]["worker"])
    assert home.pids(lab) is None


def test_the_foreground_command_ends_when_another_command_stops_the_space(home: Home) -> None:
    lab = home.space("lab")
    process = subprocess.Popen(home.command("up"), cwd=lab, env=home.environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "stop it with Ctrl-C\n" in iter(process.stdout.readline, "")
        assert home.mew("down", at=lab).out == "stopped gateway\n"
        output = process.communicate(timeout=PATIENCE)[0]
    finally:
        process.kill()
        process.communicate()
    assert output.endswith("stopped by another command\n")
    assert process.returncode == 0


def test_the_foreground_command_does_not_stop_a_space_that_was_restarted_since(home: Home) -> None:
    lab = home.space("lab")
    process = subprocess.Popen(home.command("up"), cwd=lab, env=home.environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "stop it with Ctrl-C\n" in iter(process.stdout.readline, "")
        process.send_signal(signal.SIGSTOP)  # it is suspended while the space is restarted
        assert home.mew("down", at=lab).out == "stopped gateway\n"
        theirs = home.up(lab)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert home.pids(lab) == theirs
    assert healthy(theirs["port"])


def test_when_the_gateway_is_killed_the_foreground_command_reports_it_and_cleans_up(home: Home) -> None:
    lab = home.space("lab", worker=python(WAITING))
    process = subprocess.Popen(
        home.command("up"), cwd=lab, env=home.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "stop it with Ctrl-C\n" in iter(process.stdout.readline, "")
        pids = home.pids(lab)
        assert pids is not None
        os.kill(pids["gateway"], signal.SIGKILL)
        output = process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, output) == (1, "mew: the gateway ended unexpectedly: see logs/gateway.log\n")
    assert gone(pids["agents"]["worker"])


def test_an_error_of_the_configuration_is_one_line_with_exit_code_2(home: Home) -> None:
    lab = home.space("lab")
    (lab / "space.yaml").write_text("space: {id: lab}\nparticipants: {alice: {tokens: 5}}\n", encoding="utf-8")
    ran = home.mew("space", "up", "--detach", at=lab)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"mew: {lab}/space.yaml:2: participants.alice.tokens: expected a list of tokens, got a number\n"
    assert not (lab / ".mew" / "pids.json").exists()


def test_a_log_file_that_cannot_be_written_is_reported(home: Home) -> None:
    lab = home.space("lab")
    (lab / "logs").write_text("in the way", encoding="utf-8")
    ran = home.mew("up", "--detach", at=lab)
    assert (ran.code, ran.err) == (1, f"mew: {lab}/logs/gateway.log: cannot be written: File exists\n")


def test_a_participant_that_cannot_be_started_is_named_and_the_others_run(home: Home) -> None:
    lab = home.space("lab", absent={"command": "./no-such-agent", "auto_start": True}, worker=python(WAITING))
    ran = home.mew("space", "up", "--detach", at=lab)
    assert ran.code == 1
    assert "absent               could not be started: ./no-such-agent: No such file or directory" in ran.out
    assert list((home.pids(lab) or {})["agents"]) == ["worker"]


def test_a_configuration_in_another_folder_serves_the_given_directory(home: Home) -> None:
    lab = home.space("lab", worker=python("import os; print(os.getcwd(), os.environ['SPACE'], flush=True)"))
    (lab / "configs").mkdir()
    (lab / "space.yaml").rename(lab / "configs" / "dev.yaml")
    pids = home.mew("up", "--detach", "--json", "-d", str(lab), "-c", "configs/dev.yaml").json
    assert (pids["spaceDir"], pids["running"]) == (str(lab), True)
    until(lambda: (lab / "logs" / "worker.log").read_text(encoding="utf-8") == f"{lab} lab\n")
    assert home.mew("down", at=lab).code == 0


def test_a_gateway_of_another_command_is_found_and_not_stopped(home: Home) -> None:
    lab = home.space("lab", worker=python(WAITING))
    command = home.command("gateway", "start", "--no-auto-start")
    gateway = subprocess.Popen(
        command, cwd=lab, env=home.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert gateway.stdout is not None
        assert gateway.stdout.readline().startswith("listening on ")
        result = home.mew("space", "status", "--json", at=lab).json
        assert (result["running"], result["gateway"]["pid"], result["participants"]) == (True, gateway.pid, [])
        down = home.mew("down", at=lab)
        assert (down.code, down.err) == (
            1,
            f"mew: space 'lab' was started by `mew gateway start` (process {gateway.pid}): stop that command instead\n",
        )
        second = home.mew("gateway", "start", at=lab)
        assert second.code == 2
        assert f"space 'lab' already runs at ws://localhost:{result['port']} (process {gateway.pid})" in second.err
        gateway.send_signal(signal.SIGHUP)  # its terminal was closed
        assert gateway.wait(PATIENCE) == 0
    finally:
        gateway.kill()
        gateway.communicate()
    assert home.pids(lab) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_before_the_space_runs_also_ends_the_gateway(home: Home, number: signal.Signals) -> None:
    lab = home.space("lab", worker=python(WAITING))
    command = home.command("up", "--detach")
    starting = subprocess.Popen(command, cwd=lab, env=home.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with starting:
        until(lambda: children(starting.pid) != [])
        (gateway,) = children(starting.pid)
        starting.send_signal(number)
        assert starting.wait(PATIENCE) == 130
    assert gone(gateway)
    assert home.pids(lab) is None


def children(pid: int) -> list[int]:
    return [int(item) for item in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_two_concurrent_starts_of_a_space_start_it_once(home: Home) -> None:
    lab = home.space("lab")
    command = home.command("up", "--detach", "--json")
    starts = [subprocess.Popen(command, cwd=lab, env=home.environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    result = [json.loads(item.communicate(timeout=PATIENCE)[0]) for item in starts]
    assert [item.returncode for item in starts] == [0, 0]
    assert result[0]["gateway"] == result[1]["gateway"]


def test_a_start_takes_less_than_two_seconds_of_work(home: Home) -> None:
    """Only one process works at a time, so on an idle machine the start takes no longer than that."""
    times = []
    for name in ("first", "second", "third"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        pids = home.up(home.space(name))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        times.append(command + worked(pids["gateway"]))
    assert min(times) < 2


@pytest.mark.parametrize("words", [("space", "up"), ("up", "-d", "nowhere"), ("down", "-d", "nowhere")])
def test_without_a_space_nothing_is_created(home: Home, words: tuple[str, ...]) -> None:
    ran = home.mew(*words)
    assert ran.code == 2
    assert ran.err.startswith("mew: no s")
    assert list(home.folder.iterdir()) == []


def test_mew_without_a_command_suggests_to_create_or_start_a_space(home: Home) -> None:
    ran = home.mew()
    assert (ran.code, ran.out) == (0, home.mew("--help").out)
    assert "`mew init` creates one" in ran.err
    assert "`mew up` starts it" in home.mew(at=home.space("lab")).err


@pytest.mark.parametrize("answer", [b"n\n", b"\x04"], ids=["no", "end of input"])
def test_at_a_terminal_mew_without_a_command_asks_and_accepts_no(home: Home, answer: bytes) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        home.command(), cwd=home.folder, env=home.environ, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        screen = b""
        while b"Create one now? [Y/n]" not in screen:
            screen += os.read(ours, 4096)
        os.write(ours, answer)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
    assert list(home.folder.iterdir()) == []
