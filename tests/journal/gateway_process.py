"""The gateway as a process of its own, on a folder of its own: started, asked, killed, and started again.

Must not know what a test wants of it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from mew.journal.layout import JournalFolder
from tests.gateway.raw import Answer, Raw, upgrade
from tests.support.polling import until

SPACE: Final = "lab"
SOON: Final = 30.0


class GatewayProcess:
    """`mew gateway start` in a folder with a space.yaml, as often as need be."""

    def __init__(self, folder: Path, logs: Path | None = None) -> None:
        self.folder = folder
        self._logs = logs or folder
        self.journal = JournalFolder(folder / ".mew" / "journal", SPACE)
        self.port = 0
        self.starts = 0
        self._clients: list[Raw] = []
        self._process: subprocess.Popen[str] | None = None

    def configure(self, **sections: Any) -> None:
        """Write the space.yaml; JSON is YAML."""
        usual = {"space": {"id": SPACE, "name": "A lab"}, "gateway_logging": {"enabled": False}}
        (self.folder / "space.yaml").write_bytes(msgspec.json.encode({**usual, **sections}))

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it, and wait until it listens; what it logs goes to a file of its own."""
        self.starts += 1
        with self._log_file().open("w") as errors:
            self._process = launch(self.folder, errors)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on ws://localhost:"), self.error_output()
        self.port = int(line.split(":")[2].split()[0])

    def _log_file(self) -> Path:
        return self._logs / f"gateway-{self.starts}.log"

    def error_output(self) -> str:
        """What the gateway has logged since it was last started."""
        return self._log_file().read_text(encoding="utf-8")

    def events(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.error_output().rpartition("\n")[0].splitlines()]

    def sealers(self) -> list[int]:
        """The processes that it has started."""
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def kill(self, *, sealer: bool = False) -> float:
        """Kill it, and its sealer too if so wished; when, as `time.monotonic` counts."""
        process, sealers = self.process, self.sealers() if sealer else []
        when = time.monotonic()
        process.kill()
        for pid in sealers:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        self._forget()
        return when

    def stop(self) -> int:
        """Stop it gracefully; its exit code. Its clients disconnect when it closes their connections."""
        self.process.send_signal(signal.SIGTERM)
        until(lambda: any(event["event"] == "stopping" for event in self.events()), "the stop")
        self._hang_up()
        code = self.process.wait(SOON)
        self._forget()
        return code

    def _forget(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._process = None

    def end(self) -> None:
        """Whatever was started is gone, and every client."""
        if self._process is not None:
            self.kill(sealer=True)
        self._hang_up()

    def _hang_up(self) -> None:
        for client in self._clients:
            client.close()
        self._clients = []

    # As a client

    def token(self, participant: str) -> str:
        return (self.folder / ".mew" / "tokens" / f"{participant}.token").read_text(encoding="utf-8")

    def connect(self, participant: str, **options: Any) -> Raw:
        """A socket that asks to come in, and has been upgraded; its answer comes next.

        It is closed at the end at the latest.
        """
        client = Raw(self.port, **options)
        self._clients.append(client)
        client.send(upgrade("/", Authorization=f"Bearer {self.token(participant)}"))
        assert client.answer().status == 101
        return client

    def join(self, participant: str) -> tuple[Raw, dict[str, Any]]:
        """A client that was welcomed, and its welcome."""
        client = self.connect(participant)
        return client, client.envelope("system/welcome")["payload"]

    def post(self, participant: str, kind: str, **payload: Any) -> Answer:
        """A message over HTTP, on a connection of its own."""
        client = Raw(self.port)
        try:
            return post(client, participant, self.token(participant), kind, payload)
        finally:
            client.close()

    def get(self, path: str) -> Answer:
        client = Raw(self.port)
        try:
            return client.ask("GET", path)
        finally:
            client.close()


def post(client: Raw, participant: str, token: str, kind: str, payload: dict[str, Any]) -> Answer:
    """A message over HTTP."""
    return client.ask("POST", f"/participants/{participant}/messages", token, {"kind": kind, "payload": payload})


def launch(folder: Path, errors: IO[str]) -> subprocess.Popen[str]:
    """A gateway on any free port, in a group of its own: nothing but a test ends it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MEW_")}
    command = [sys.executable, "-m", "mew", "gateway", "start", "--port", "0"]
    return subprocess.Popen(
        command, cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
    )


@contextmanager
def gateway(folder: Path, logs: Path | None = None, **sections: Any) -> Iterator[GatewayProcess]:
    """A gateway that is configured, and gone at the end; it has not been started. Its logs may be elsewhere."""
    process = GatewayProcess(folder, logs)
    process.configure(**sections)
    try:
        yield process
    finally:
        process.end()


def until_gone(pids: list[int]) -> None:
    """Wait for the end of orphaned processes."""
    until(lambda: not any(_is_alive(pid) for pid in pids), "the end of a sealer")


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
