"""A gateway in a process of its own, which a test can kill and start again on the same port.

It starts and stops the gateway. The test checks what a client makes of that.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port

SPACE = """\
space: {{id: lab}}
journal: {journal}
gateway_logging: {{enabled: false}}
participants:
  alice: {{tokens: [token-of-alice], capabilities: [{{kind: "*"}}]}}
  bob: {{tokens: [token-of-bob], capabilities: [{{kind: "*"}}]}}
"""


class GatewayProcess:
    """Runs one gateway after another, in one folder and on one port."""

    def __init__(self, folder: Path, journal: str, python: str | Path = sys.executable) -> None:
        (folder / "space.yaml").write_text(SPACE.format(journal=journal), encoding="utf-8")
        self._folder, self._python = folder, str(python)
        self._process: subprocess.Popen[str] | None = None
        self.port = free_port()

    def start(self) -> None:
        """Start the gateway; it listens when this returns."""
        command = [self._python, "-m", "mew", "gateway", "start", "--port", str(self.port), "--log-level", "error"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MEW_")}
        self._process = subprocess.Popen(command, cwd=self._folder, env=environment, text=True, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening"), line

    def kill(self) -> None:
        """Kill the gateway with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the gateway gracefully."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.communicate(timeout=20)
            self._process = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"


@contextmanager
def gateway_process(folder: Path, journal: str, python: str | Path = sys.executable) -> Iterator[GatewayProcess]:
    """Run a gateway process that listens; kill it at the end."""
    gateway = GatewayProcess(folder, journal, python)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.kill()
