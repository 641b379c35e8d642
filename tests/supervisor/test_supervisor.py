"""Participants of a space as real processes: start, log, restart and stop."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mew._internal.processes import process_start_id
from mew.config import ConfigError
from mew.config.loader import load_config
from mew.config.models import RestartPolicy
from mew.supervisor.launch import LaunchEnvironment
from mew.supervisor.process import RestartLimits, should_restart
from mew.supervisor.supervisor import Supervisor

QUICK = RestartLimits(backoff=0.01, longest=0.05, restarts=3, window=60, grace=0.4)
PATIENCE = 20
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
PARENT = """
import os, signal, subprocess, sys
child = subprocess.Popen(
    [sys.executable, '-c', 'import signal; print(1, flush=True); signal.pause()'],
    stdout=subprocess.PIPE, start_new_session=True,
)
child.stdout.readline()
print(os.getpid(), child.pid, flush=True)
signal.pause()
"""


class Lab:
    """A space whose participants are small programs, and their supervisor."""

    def __init__(self, directory: Path, participants: dict[str, dict[str, Any]], limits: RestartLimits = QUICK) -> None:
        self.directory = directory
        self.tokens = {name: f"token-{name}" for name in participants}
        file = directory / "space.yaml"
        file.write_text(json.dumps({"space": {"id": "lab"}, "participants": participants}), encoding="utf-8")
        environment = LaunchEnvironment(
            url="ws://localhost:1", port=1, run=f"test-{os.getpid()}-{id(self)}", environ=os.environ
        )
        self.changes: list[dict[str, int]] = []
        self.supervisor = Supervisor(
            load_config([file], environ={}).spaces[0],
            environment,
            self.token_for,
            limits=limits,
            on_change=self.changed,
        )

    def token_for(self, name: str) -> str:
        if name not in self.tokens:
            raise ConfigError("no token")
        return self.tokens[name]

    def changed(self) -> None:
        self.changes.append(self.supervisor.agents)

    def log(self, name: str) -> str:
        return (self.directory / "logs" / f"{name}.log").read_text(encoding="utf-8")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.01)

    def play(self, scene: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            try:
                await self.supervisor.start()
                await scene()
            finally:
                await self.supervisor.stop()

        asyncio.run(whole())


def python(script: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", script], "auto_start": True, **more}


def test_participants_with_auto_start_run_in_groups_of_their_own_until_the_stop(tmp_path: Path) -> None:
    pause = "import signal; signal.pause()"
    lab = Lab(tmp_path, {"a": python(pause), "b": python(pause), "person": {}, "later": {"command": "false"}})
    pids: list[int] = []

    async def scene() -> None:
        pids.extend(lab.supervisor.agents.values())
        assert list(lab.supervisor.agents) == ["a", "b"]
        assert [os.getpgid(pid) for pid in pids] == pids
        assert [os.getsid(pid) for pid in pids] == pids

    lab.play(scene)
    assert [process_start_id(pid) for pid in pids] == [None, None]
    assert lab.supervisor.agents == {}
    assert lab.changes[-1] == {}


def test_output_is_appended_to_the_log_in_the_space_directory(tmp_path: Path) -> None:
    script = "import os, sys; print(os.getcwd(), os.environ['MEW_TOKEN']); print('oops', file=sys.stderr)"
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("before\n", encoding="utf-8")
    lab = Lab(tmp_path, {"a": python(script)})

    async def scene() -> None:
        await lab.until(lambda: not lab.supervisor.agents)

    lab.play(scene)
    assert sorted(lab.log("a").splitlines()) == sorted(["before", f"{tmp_path} token-a", "oops"])


def test_a_participant_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    lab = Lab(tmp_path, {"a": python(STUBBORN)})
    pids: list[int] = []

    async def scene() -> None:
        pids.extend(lab.supervisor.agents.values())
        await lab.until(lambda: "deaf" in lab.log("a"))

    lab.play(scene)
    assert process_start_id(pids[0]) is None


def test_descendants_in_other_sessions_end_with_a_killed_participant(tmp_path: Path) -> None:
    lab = Lab(tmp_path, {"a": python(PARENT)})
    pids: list[int] = []

    async def scene() -> None:
        await lab.until(lambda: lab.log("a").endswith("\n"))
        pids.extend(map(int, lab.log("a").split()))
        os.kill(pids[0], signal.SIGKILL)
        await lab.until(lambda: not lab.supervisor.agents)
        assert process_start_id(pids[1]) is not None

    lab.play(scene)
    assert [process_start_id(pid) for pid in pids] == [None, None]


@pytest.mark.parametrize(("policy", "code", "starts"), [("never", 1, 1), ("on-failure", 0, 1), ("always", 0, 4)])
def test_a_participant_that_ends_is_restarted_by_its_policy(
    tmp_path: Path, policy: str, code: int, starts: int
) -> None:
    lab = Lab(tmp_path, {"a": python(f"print('here', flush=True); raise SystemExit({code})", restart_policy=policy)})

    async def scene() -> None:
        await lab.until(lambda: bool(lab.supervisor.given_up) if starts > 1 else lab.changes[-1:] == [{}])

    lab.play(scene)
    assert lab.log("a").count("here") == starts
    assert lab.supervisor.ended == {"a": f"code {code}"}


def test_a_killed_participant_is_restarted(tmp_path: Path) -> None:
    lab = Lab(tmp_path, {"a": python("import signal; signal.pause()", restart_policy="on-failure")})

    async def scene() -> None:
        first = lab.supervisor.agents["a"]
        os.kill(first, signal.SIGKILL)
        await lab.until(lambda: lab.supervisor.agents.get("a", first) != first)
        assert {} in lab.changes

    lab.play(scene)


def test_a_participant_that_keeps_failing_is_abandoned_with_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path, {"a": python("raise SystemExit(3)", restart_policy="always")})

    async def scene() -> None:
        await lab.until(lambda: bool(lab.supervisor.given_up))

    lab.play(scene)
    assert lab.supervisor.given_up == {"a": "it ended again after 3 restarts within 60 s"}
    assert lab.log("a") == "mew: a is not restarted any more: it ended again after 3 restarts within 60 s\n"
    restarts = [record for record in caplog.records if "not restarted any more" in record.getMessage()]
    assert [record.levelname for record in restarts] == ["ERROR"]


def test_a_participant_that_cannot_be_started_does_not_stop_the_others(tmp_path: Path) -> None:
    absent = {"command": "no-such-program-of-ours", "auto_start": True, "restart_policy": "always"}
    pause = python("import signal; signal.pause()")
    lab = Lab(tmp_path, {"a": absent, "b": pause, "c": {"auto_start": True}})

    async def scene() -> None:
        assert list(lab.supervisor.agents) == ["b"]
        assert lab.supervisor.given_up == {
            "a": "no-such-program-of-ours: No such file or directory",
            "c": "auto_start is set, but command is missing",
        }

    lab.play(scene)


def test_a_participant_is_restarted_with_its_rotated_token(tmp_path: Path) -> None:
    script = "import os, signal; print(os.environ['MEW_TOKEN'], flush=True); signal.pause()"
    lab = Lab(tmp_path, {"a": python(script)})

    async def scene() -> None:
        first = lab.supervisor.agents["a"]
        await lab.supervisor.renew("a")
        assert lab.supervisor.agents["a"] == first  # the same token: nothing to do
        await lab.until(lambda: "token-a" in lab.log("a"))
        lab.tokens["a"] = "new"
        await lab.supervisor.renew("a")
        await lab.supervisor.renew("nobody")
        assert lab.supervisor.agents["a"] != first
        await lab.until(lambda: lab.log("a") == "token-a\nnew\n")
        del lab.tokens["a"]
        await lab.supervisor.renew("a")
        assert lab.supervisor.agents == {}
        assert lab.supervisor.given_up == {"a": "its token was revoked"}

    lab.play(scene)


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [("never", False, False), ("on-failure", False, True), ("always", True, True)],
)
def test_the_policy_decides_which_exit_codes_cause_a_restart(
    policy: RestartPolicy, after_success: bool, after_failure: bool
) -> None:
    assert [should_restart(policy, code) for code in (0, 1, -9)] == [after_success, after_failure, after_failure]
