"""Runs an MCP server as a child process: starts it, exchanges lines with it, and ends it.

It handles JSON-RPC lines and does not interpret them. The program's standard error goes to the log. The program has
its own process group, and no process of that group is left when `stop` returns or fails.
"""

import asyncio
import logging
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import jsonrpc_message_adapter

from mew._internal.processes import EXIT_POLL_SECONDS, child_is_running, signal_child, stop_child
from mew.bridge.settings import ServerDisconnected, ServerStartError, StdioServer
from mew.config.served_folders import served_folder_problem

CHUNK: Final = 2**16
LONGEST_LINE: Final = 64 * 2**20
"""Maximum bytes of a line. A server that writes more without a line end does not use MCP."""
LONGEST_LOG_LINE: Final = 4096
"""Maximum bytes of a standard error line that are logged."""
INPUT_SECONDS: Final = 1.0
"""Seconds for the program to end after its standard input is closed."""
TERMINATE_SECONDS: Final = 1.5
"""Seconds for it to end after SIGTERM. Then SIGKILL is sent."""
REAP_SECONDS: Final = 0.5
"""Seconds until its exit code is available, after it has ended."""

_log = logging.getLogger("mew.bridge.server")


class StdioTransport:
    """A started program."""

    def __init__(self, process: Process, name: str) -> None:
        """Start reading standard error and watching standard input."""
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process = process
        self._name = name
        self.ended = asyncio.Event()
        """Set when the program will send no more messages."""
        self.incoming = StdioMessages(process.stdout, self.ended)
        self.outgoing = StdioWriter(process.stdin)
        self._tasks = [
            asyncio.create_task(_log_lines(process.stderr, name), name=f"mew bridge: log of {name}"),
            asyncio.create_task(self._kill_if_input_closes(), name=f"mew bridge: input of {name}"),
        ]

    @classmethod
    async def start(cls, server: StdioServer, environment: Mapping[str, str]) -> Self:
        """Run the program. Raises `ServerStartError` if that fails or if it would serve a folder with tokens."""
        if (problem := served_folder_problem(server.command, server.cwd or Path.cwd(), Path.cwd())) is not None:
            raise ServerStartError(problem)
        try:
            process = await asyncio.create_subprocess_exec(
                *server.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env={**environment, **server.env},
                cwd=server.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            where = "" if server.cwd is None else f" in {str(server.cwd)!r}"
            raise ServerStartError(f"cannot start {server.name!r}{where}: {error}") from None
        return cls(process, server.name)

    # The end

    async def end_reason(self) -> str:
        """Return why the program sends no more messages, as text for people."""
        await _within(REAP_SECONDS, lambda: self._process.returncode is not None)
        code = self._process.returncode
        if code is None:
            return f"{self._name!r} closed its standard output"
        if code < 0:
            return f"{self._name!r} was ended by {signal.Signals(-code).name}"
        return f"{self._name!r} ended with exit code {code}"

    async def stop(self) -> None:
        """End the program and its process group: close its input, then send SIGTERM, then SIGKILL."""
        try:
            with suppress(OSError):
                self.outgoing.close()
            await _within(INPUT_SECONDS, lambda: not child_is_running(self._process))
        finally:
            try:
                await stop_child(self._process, TERMINATE_SECONDS)
            finally:
                for task in self._tasks:
                    task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A process that left the group may hold a pipe forever: asyncio would close the transport only after that.
        self._process._transport.close()  # type: ignore[attr-defined]

    async def _kill_if_input_closes(self) -> None:
        """Kill a program that has stopped reading its input: it will not answer pending requests."""
        await self.outgoing.closed()
        if not await _within(INPUT_SECONDS, self.ended.is_set):
            signal_child(self._process, signal.SIGKILL)


async def _within(seconds: float, is_done: Callable[[], bool]) -> bool:
    """Return whether this became true in time."""
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(EXIT_POLL_SECONDS)
    return True


class StdioMessages:
    """Messages from the program. An invalid line is returned as an exception."""

    def __init__(self, stdout: asyncio.StreamReader, ended: asyncio.Event) -> None:
        """Read messages from `stdout`. `ended` is set when there will be no more."""
        self._lines = read_lines(stdout, LONGEST_LINE)
        self._ended = ended

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await anext(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            line = await anext(self._lines)
        except BaseException:
            self._ended.set()
            raise
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            return ServerDisconnected(f"not a message of MCP: {_readable(line, 200)!r}")

    async def aclose(self) -> None:
        """Stop receiving. Sets `ended`."""
        self._ended.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class StdioWriter:
    """Messages to the program."""

    def __init__(self, stdin: asyncio.StreamWriter) -> None:
        """Write messages to the program's standard input."""
        self._stdin = stdin

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message as a line. If the program stopped reading, it is ended soon and pending requests fail."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        with suppress(OSError, RuntimeError):
            self._stdin.write(line)
            await self._stdin.drain()

    def close(self) -> None:
        """Close the program's standard input."""
        self._stdin.close()

    async def closed(self) -> None:
        """Wait until the program's standard input is closed."""
        with suppress(OSError):
            await self._stdin.wait_closed()

    async def aclose(self) -> None:
        """Do nothing: standard input stays open until the program is stopped."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def read_lines(stream: asyncio.StreamReader, longest: int) -> AsyncIterator[bytes]:
    """Yield the non-empty lines of a stream without line ends. The last line needs no line end."""
    unfinished = bytearray()
    while chunk := await stream.read(CHUNK):
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            line = bytes(unfinished + part).strip()
            unfinished.clear()
            if line:
                yield line
        unfinished += rest
        if len(unfinished) > longest:
            raise ServerDisconnected(f"a line of more than {longest} bytes")
    if unfinished.strip():
        yield bytes(unfinished)


async def _log_lines(stderr: asyncio.StreamReader, name: str) -> None:
    unfinished = b""
    while chunk := await stderr.read(CHUNK):
        *complete, unfinished = (unfinished + chunk).split(b"\n")
        for line in complete:
            _log_line(name, line)
        if len(unfinished) > LONGEST_LOG_LINE:
            _log_line(name, unfinished)
            unfinished = b""
    _log_line(name, unfinished)


def _log_line(name: str, line: bytes) -> None:
    if line.strip():
        _log.info("%s: %s", name, _readable(line, LONGEST_LOG_LINE))


def _readable(line: bytes, longest: int) -> str:
    """Return printable text for one line of a log, for any bytes."""
    text = line[:longest].decode(errors="replace").rstrip()
    return "".join(character if character.isprintable() else " " for character in text)
