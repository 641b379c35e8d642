"""The effect of one member's attempts on another, on a real gateway: `python -m bench._gateway.members [words]`.

While an attempt lasts, another member says something small again and again. The worst time until it hears itself is
what the attempt costs the others. Where other programs use the machine, that time is theirs too: what the gateway's
loop has computed meanwhile stands beside it. Nothing here decides what is good enough.
"""

import http.client
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import msgspec

from bench._gateway.attempts import ATTEMPTS, Attempt
from bench._gateway.servers import await_port, free_port, server_environment, stop_server

USUAL: Final = (
    *("chat", "note", "stream/request", "stream/manage", "mcp/request", "mcp/proposal"),
    *("space/kick", "space/invite", "capability/grant", "participant/pause"),
)
CONNECTIONS: Final = 16
"""Number of connections of one member that reads over HTTP."""
PATIENCE: Final = 120.0
LARGE: Final = 10**6
_HEAD_BYTES: Final = 4_096
QUIET_SECONDS: Final = 0.3
ANSWER_SECONDS: Final = 10.0
STEP_SECONDS: Final = 0.002
_PROCESSES: Final = multiprocessing.get_context("fork")
MASK: Final = b"\0\0\0\0"
"""A valid mask that leaves the payload unchanged."""


class Echo(msgspec.Struct):
    """The effect on another member."""

    worst: float = 0.0
    median: float = 0.0
    busy: float = 0.0
    """The most that the gateway's loop has computed during one echo: the worst, where nothing else runs."""
    lost: bool = False
    """Whether the connection of the other member was closed."""


def main(words: list[str]) -> int:
    """Run each attempt whose name contains one of the words, or all."""
    chosen = [attempt for attempt in ATTEMPTS if not words or any(word in attempt.name for word in words)]
    print(f"{'one member tries':<66}{'others: worst':>14}{'median':>11}{'of it busy':>14}   what came of it")
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        tokens = {name: f"token-of-{name}" for name in ("alice", "bob", *(f"mallory-{n}" for n in range(len(chosen))))}
        (folder / "space.yaml").write_bytes(msgspec.json.encode(_space(tokens)))
        command = [str(Path(sys.executable).with_name("mew")), "gateway", "start", "--port", str(port)]
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(command, cwd=folder, env=server_environment(), stdout=output, stderr=output)
        try:
            await_port(process, port, folder)
            for number, attempt in enumerate(chosen):
                trial = Trial(attempt, port, process.pid, f"mallory-{number}")
                echo = trial.run()
                lost = ", AND THE OTHER WAS CLOSED" if echo.lost else ""
                figures = f"{echo.worst * 1e3:>11.1f} ms{echo.median * 1e3:>8.2f} ms{echo.busy * 1e3:>11.1f} ms"
                print(f"{attempt.name:<66}{figures}   {trial.answer}{lost}", flush=True)
        finally:
            stop_server(process)
    return 0


def _space(tokens: dict[str, str]) -> dict[str, object]:
    """Return two members that may do everything, and one for each attempt, so that no attempt uses another's budget."""
    everything = [{"kind": "*"}]
    usual = [{"kind": kind} for kind in USUAL]
    return {
        "space": {"id": "trial"},
        "participants": {
            name: {"tokens": [token], "capabilities": usual if name.startswith("mallory") else everything}
            for name, token in tokens.items()
        },
    }


def _busy(pid: int) -> float:
    """Return the CPU seconds of the first thread of a process, which runs its event loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


class Trial:
    """One attempt of one member, and another member that measures."""

    def __init__(self, attempt: Attempt, port: int, pid: int, name: str) -> None:
        self.attempt, self.port, self.pid, self.name = attempt, port, pid, name
        self.answer = ""
        # Built before, so that the time of building it is not measured.
        self.messages = [self._own(message) for message in attempt.messages()]
        self.framed = [] if attempt.explains else [framed(message) for message in self.messages]

    def _own(self, message: bytes) -> bytes:
        return message.replace(b'"mallory"', b'"%b"' % self.name.encode()) if len(message) < LARGE else message

    def run(self) -> Echo:
        """Measure the echo of the other member."""
        self._be_granted()
        bob = Member(self.port, "bob")
        for n in range(50):
            bob.echo(b"warm-%d" % n)
        # In a separate process: with threads, the two members would wait for each other instead of the gateway.
        answers, answer = _PROCESSES.Pipe(duplex=False)
        acting = _PROCESSES.Process(target=self._act, args=(answer,), name="the member that tries")
        acting.start()
        answer.close()
        echo = self._listen(bob, answers)
        acting.join()
        bob.close()
        return echo

    def _be_granted(self) -> None:
        if self.attempt.granted:
            alice = Member(self.port, "alice")
            for grant in self.attempt.granted:
                alice.send(framed(self._own(grant)))
            alice.echo(b"granted")
            alice.close()

    def _act(self, result: Connection) -> None:
        try:
            attempt = self._read if self.attempt.reads else self._ask if self.attempt.explains else self._say
            answer = attempt()
        except Exception as error:  # the bench prints any error as the answer
            answer = f"{type(error).__name__}: {error}"
        result.send(answer)

    def _listen(self, bob: "Member", answers: Connection) -> Echo:
        """Send and receive echoes until some time after the attempt has ended."""
        times: list[float] = []
        number, deadline, quiet = 0, time.monotonic() + PATIENCE, 0.0
        echo = Echo()
        while time.monotonic() < deadline:
            if answers.poll():
                quiet = quiet or time.monotonic()
                if time.monotonic() - quiet > QUIET_SECONDS:
                    break
            number += 1
            before = _busy(self.pid)
            try:
                times.append(bob.echo(b"echo-%d" % number))
                echo.busy = max(echo.busy, _busy(self.pid) - before)
            except EOFError:
                echo.lost = True
                break
            time.sleep(STEP_SECONDS)
        self.answer = answers.recv() if answers.poll(PATIENCE) else "no answer"
        if times:
            echo.worst, echo.median = max(times), statistics.median(times)
        return echo

    def _say(self) -> str:
        """Send the messages, and read until the gateway has handled the last one."""
        mallory = Member(self.port, self.name)
        reader = threading.Thread(target=mallory.read_on, name="what comes back")
        reader.start()
        with suppress(OSError):
            for _ in range(self.attempt.times):
                for message in self.framed:
                    mallory.send(message)
            # A ping is answered when everything before it has been handled.
            mallory.send(b"\x89\x84" + MASK + b"last")
        reader.join(ANSWER_SECONDS)
        with suppress(OSError):
            mallory.socket.shutdown(socket.SHUT_RDWR)
        reader.join()
        mallory.close()
        return mallory.outcome()

    def _read(self) -> str:
        path = self.attempt.reads.replace("mallory", self.name)
        counts: dict[str, int] = {}

        def read() -> None:
            door = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            for _ in range(self.attempt.times // CONNECTIONS):
                door.request("GET", path, headers={"Authorization": f"Bearer token-of-{self.name}"})
                answer = door.getresponse()
                answer.read()
                counts[str(answer.status)] = counts.get(str(answer.status), 0) + 1
            door.close()

        readers = [threading.Thread(target=read, name=f"reader {n}") for n in range(CONNECTIONS)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return ", ".join(f"{count} × {answer}" for answer, count in counts.items())

    def _ask(self) -> str:
        door = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        counts: dict[str, int] = {}
        headers = {"Authorization": f"Bearer token-of-{self.name}"}
        for _ in range(self.attempt.times):
            for message in self.messages:
                try:
                    door.request("POST", f"/participants/{self.name}/explain", body=message, headers=headers)
                    answer = msgspec.json.decode(door.getresponse().read())
                except (OSError, http.client.HTTPException) as error:
                    door.close()
                    answer = {"error": type(error).__name__}
                code = str(answer.get("error"))
                counts[code] = counts.get(code, 0) + 1
        door.close()
        return ", ".join(f"{count} × {code}" for code, count in counts.items())


def framed(message: bytes) -> bytes:
    """Return a text message of a client as a WebSocket frame."""
    size = len(message)
    if size < 126:
        head = bytes((0x81, 0x80 | size))
    elif size < 65_536:
        head = b"\x81\xfe" + size.to_bytes(2, "big")
    else:
        head = b"\x81\xff" + size.to_bytes(8, "big")
    return head + MASK + message


class Member:
    """A joined connection."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = bytearray()
        self._buffer = memoryview(bytearray(1 << 20))
        self.seen: dict[str, int] = {}
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        self.send(
            f"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"Authorization: Bearer token-of-{name}\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self.unread:
            self._more()
        del self.unread[: self.unread.index(b"\r\n\r\n") + 4]
        self.until(b'"system/welcome"')

    def send(self, data: bytes) -> None:
        """Send all data."""
        self.socket.sendall(data)

    def _more(self) -> None:
        size = self.socket.recv_into(self._buffer)
        if not size:
            raise EOFError("closed")
        self.unread += self._buffer[:size]

    def frame(self) -> tuple[int, bytes]:
        """Return the first byte of the next frame, and the first bytes of its payload."""
        while len(self.unread) < 2:
            self._more()
        first, size = self.unread[0], self.unread[1]
        start = {126: 4, 127: 10}.get(size, 2)
        while len(self.unread) < start:
            self._more()
        if start > 2:
            size = int.from_bytes(self.unread[2:start], "big")
        while len(self.unread) < start + min(size, _HEAD_BYTES):
            self._more()
        payload = bytes(self.unread[start : start + min(size, _HEAD_BYTES)])
        self._skip(start + size)
        return first, payload

    def _skip(self, size: int) -> None:
        """Read the rest of a frame and discard it: the time of a copy would count as the gateway's."""
        missing = size - len(self.unread)
        del self.unread[:size]
        while missing > 0:
            received = self.socket.recv_into(self._buffer[:missing])
            if not received:
                raise EOFError("closed")
            missing -= received

    def until(self, words: bytes) -> bytes:
        """Read until a frame contains this text."""
        while True:
            first, payload = self.frame()
            if words in payload:
                return payload
            if first == 0x88:
                raise EOFError("closed")

    def echo(self, word: bytes) -> float:
        """Send a small message. Returns the seconds until its echo."""
        began = time.perf_counter()
        self.send(framed(b'{"kind":"chat","payload":{"text":"%b"}}' % word))
        self.until(b'"%b"' % word)
        return time.perf_counter() - began

    def read_on(self) -> None:
        """Count the answers, until the pong or the end."""
        with suppress(EOFError, OSError):
            while True:
                first, payload = self.frame()
                if first == 0x8A:
                    # A pong overtakes messages that are not flushed yet.
                    self.socket.settimeout(QUIET_SECONDS)
                self._count(first, payload)

    def _count(self, first: int, payload: bytes) -> None:
        if first == 0x88:
            what = f"close {int.from_bytes(payload[:2], 'big')}"
        elif b'"system/error"' in payload:
            what = payload.partition(b'"error":"')[2].partition(b'"')[0].decode()
        elif b'"from":"mallory' in payload:
            what = "relayed"
        else:
            return
        self.seen[what] = self.seen.get(what, 0) + 1

    def outcome(self) -> str:
        """Return a summary of the answers."""
        return ", ".join(f"{count} × {outcome}" for outcome, count in self.seen.items()) or "nothing"

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
