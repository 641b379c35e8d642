"""Stopping processes: SIGTERM, then SIGKILL, for whole groups, and every child is reaped."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mew._internal.processes import (
    child_is_running,
    group_is_running,
    process_start_id,
    stop_child,
    stopping,
)

DEADLINE = 20
SLEEP = "import signal; print(1, flush=True); signal.pause()"
IGNORE_TERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)\nwhile True: signal.pause()"
)
PARENT = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
signal.pause()
"""


async def started(*arguments: str) -> tuple[Process, bytes]:
    """A Python process that leads its own group, and its first line of output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", *arguments, stdin=DEVNULL, stdout=PIPE, start_new_session=True
    )
    assert process.stdout is not None
    return process, await process.stdout.readline()


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not is_true():
            await asyncio.sleep(0.01)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def test_a_child_that_ends_on_sigterm_is_not_killed_and_is_reaped() -> None:
    async def test() -> None:
        process, _ = await started(SLEEP)
        assert await stop_child(process, DEADLINE)
        assert process.returncode == -signal.SIGTERM
        assert not child_is_running(process)

    run(test)


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace_time() -> None:
    async def test() -> None:
        process, _ = await started(IGNORE_TERM)
        assert not await stop_child(process, 0.2)
        assert process.returncode == -signal.SIGKILL

    run(test)


@pytest.mark.parametrize(("script", "in_time"), [(SLEEP, True), (IGNORE_TERM, False)])
def test_the_group_of_a_child_ends_with_it(script: str, *, in_time: bool) -> None:
    async def test() -> None:
        process, line = await started(PARENT, script)
        assert await stop_child(process, DEADLINE if in_time else 0.5) is in_time
        assert process.returncode == -signal.SIGTERM
        assert process_start_id(int(line)) is None
        assert not group_is_running(process.pid)

    run(test)


def test_stopping_a_child_that_has_ended_stops_the_rest_of_its_group() -> None:
    async def test() -> None:
        process, line = await started(PARENT, IGNORE_TERM)
        process.kill()
        await until(lambda: process.returncode is not None)
        assert child_is_running(process)
        assert not await stop_child(process, 0.2)
        assert process_start_id(int(line)) is None

    run(test)


def test_a_cancelled_stop_kills_the_group_immediately_and_reaps_the_child() -> None:
    async def test() -> None:
        process, line = await started(PARENT, IGNORE_TERM)
        task = asyncio.create_task(stop_child(process, DEADLINE), name="stop")
        await until(lambda: process.returncode is not None)
        begin = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begin < DEADLINE / 2
        assert process_start_id(int(line)) is None
        assert not child_is_running(process)

    run(test)


def test_a_stop_that_is_cancelled_twice_leaves_no_process() -> None:
    async def test() -> None:
        process, _ = await started(IGNORE_TERM)
        task = asyncio.create_task(stop_child(process, DEADLINE), name="stop")
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: process.returncode == -signal.SIGKILL)

    run(test)


def test_a_group_of_zombies_does_not_run(tmp_path: Path) -> None:
    """The zombie's parent is alive and never waits for it, like the first process of many containers."""
    script = f"import os, time; os.setpgid(0, 0); open({str(tmp_path / 'ready')!r}, 'w').close(); os._exit(0)"
    parent = "import subprocess, sys, signal; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); signal.pause()"

    async def test() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, script, start_new_session=True)
        await until((tmp_path / "ready").exists)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        zombie = int(children.read_text(encoding="ascii"))
        await until(lambda: process_start_id(zombie) is None)
        os.killpg(zombie, 0)  # the group exists
        assert not group_is_running(zombie)
        assert await stop_child(process, DEADLINE)

    run(test)


def test_processes_are_stopped_by_id_and_start_time_and_only_those() -> None:
    async def test() -> None:
        first, _ = await started(SLEEP)
        stubborn, _ = await started(IGNORE_TERM)
        stranger, _ = await started(SLEEP)
        unknown, _ = await started(SLEEP)
        processes = {
            first.pid: process_start_id(first.pid),
            stubborn.pid: process_start_id(stubborn.pid),
            stranger.pid: "the start time of another process",
            unknown.pid: None,
        }
        for seconds in stopping(processes, 0.3):
            await asyncio.sleep(seconds)
        assert process_start_id(first.pid) is None
        assert process_start_id(stubborn.pid) is None
        assert process_start_id(stranger.pid) is not None
        assert process_start_id(unknown.pid) is not None
        for process in (stranger, unknown):
            with contextlib.suppress(ProcessLookupError):
                await stop_child(process, DEADLINE)
        await until(lambda: (first.returncode, stubborn.returncode) == (-signal.SIGTERM, -signal.SIGKILL))

    run(test)


def test_stopping_nothing_waits_for_nothing() -> None:
    assert list(stopping({}, DEADLINE)) == []
    assert list(stopping({2**22 + 1: "ended long ago"}, DEADLINE)) == []
