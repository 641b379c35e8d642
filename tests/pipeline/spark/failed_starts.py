"""A process in which Spark cannot start, for one reason after the other; it ends well only if each is explained."""

import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mew.pipeline import session as session_module
from mew.pipeline.session import UI_PORTS, SparkStartError, close_session, open_session
from mew.pipeline.settings import PipelineSettings, machine_memory
from tests.pipeline.sessions import SETTINGS, SHORT_LIVED


def occupy_ports(stack: ExitStack) -> None:
    """Listen on every port that Spark tries for its web page; another program may have some of them."""
    for port in UI_PORTS:
        listening = stack.enter_context(socket.socket())
        if listening.connect_ex(("127.0.0.1", port)) != 0:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))


def refused(lake: Path, settings: PipelineSettings = SETTINGS, *, ui: bool = False) -> str:
    with pytest.raises(SparkStartError) as failed:
        open_session(settings, lake=lake, ui=ui, java_options=SHORT_LIVED)
    assert "\n" not in str(failed.value)
    return str(failed.value)


def main(lake: Path) -> None:
    with ExitStack() as stack:
        occupy_ports(stack)
        assert refused(lake, ui=True) == (
            "Spark's web UI needs a free port, and all from 4040 to 4056 are occupied: "
            "end a program that uses one of them, or start without --ui"
        )

    memory = machine_memory() // 2**20
    too_much = PipelineSettings(master="local[2]", driver_memory=f"{memory + 1}m")
    assert refused(lake, too_much) == (
        f"too little memory: pipeline.driver_memory is {memory + 1}m, and this machine has {memory}m. "
        "Set pipeline.driver_memory to at most half of that in space.yaml"
    )

    addresses = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (addresses + 2**29, before[1]))
    everything = PipelineSettings(master="local[2]", driver_memory=f"{memory}m")
    reason = refused(lake, everything)
    assert reason.startswith(f"Spark did not start: too little memory for a driver with {memory}m ("), reason
    assert "): end other programs, or set pipeline.driver_memory to less in space.yaml" in reason
    resource.setrlimit(resource.RLIMIT_AS, before)

    session = open_session(SETTINGS, lake=lake, java_options=SHORT_LIVED)
    jvm: Any = session._jvm
    with pytest.raises(Exception, match="OutOfMemoryError") as exhausted:
        jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Long.TYPE, 2**31 - 1)
    assert session_module.one_line(exhausted.value).startswith("Spark has too little memory (")
    close_session(session)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
