"""The gateway's operational log: readable text on a terminal, one JSON object per line elsewhere.

No line shows a token or a payload. A thread writes the lines. When its queue is full, lines are dropped and counted.
"""

import logging
import os
import queue
import threading
from collections.abc import MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec
import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter

if TYPE_CHECKING:
    from structlog.typing import Processor


WAITING_LINES: Final = 10_000
CLOSE_SECONDS: Final = 2.0

_encode = msgspec.json.Encoder(enc_hook=repr).encode

log: BoundLogger = structlog.wrap_logger(
    logging.getLogger("mew.gateway"),
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        ProcessorFormatter.wrap_for_formatter,
    ],
    wrapper_class=BoundLogger,
)
"""Logs only warnings and errors until `configure_logging` is called: libraries and tests log no start or stop."""


def address(peer: Any) -> str:
    """Return the peer address of a connection as text, from the peer name of its socket."""
    if isinstance(peer, str) and peer:
        return peer  # a Unix socket, see `mew.gateway.server`
    return "{}:{}".format(*peer[:2]) if peer else "unknown"


def configure_logging(level: str, stream: TextIO) -> None:
    """Write log lines of the gateway and its libraries to `stream`, from this level up."""
    handler = _Writer(stream)
    handler.setFormatter(_formatter(coloured=stream.isatty() and "NO_COLOR" not in os.environ, people=stream.isatty()))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Set explicitly: otherwise uvicorn formats a trace line for every connection, only to discard it.
    logging.getLogger("uvicorn.error").setLevel(level.upper())


def _formatter(*, people: bool, coloured: bool) -> logging.Formatter:
    shared: list[Processor] = [ProcessorFormatter.remove_processors_meta, structlog.processors.TimeStamper("iso")]
    rendering: list[Processor] = [structlog.processors.format_exc_info, _ordered, _as_json]
    if people:
        # Never use a traceback that shows the values of variables: some are tokens.
        rendering = [structlog.dev.ConsoleRenderer(colors=coloured, exception_formatter=structlog.dev.plain_traceback)]
    foreign: list[Processor] = [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name]
    return ProcessorFormatter(processors=[*shared, *rendering], foreign_pre_chain=foreign)


def _ordered(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    first = {name: event.pop(name) for name in ("timestamp", "level", "logger", "event") if name in event}
    return {**first, **event}


def _as_json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """Return compact JSON without ASCII escapes, as everywhere in this project (protocol §1)."""
    return _encode(dict(event)).decode()


class _Writer(logging.Handler):
    """Passes lines to a writer thread, so that slow output does not block the event loop."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_on, name="operator log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line. A formatting error must not reach the caller that logs."""
        try:
            line = self.format(record)
        except Exception:  # a library's arguments may not match its format string
            line = f"{record.levelname} {record.name}: this line could not be formatted"
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _write_on(self) -> None:
        while (line := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                line = f'{line}\n{{"event":"dropped","count":{dropped}}}'
            with suppress(OSError, ValueError):  # the stream is closed
                self._stream.write(line + "\n")
                self._stream.flush()

    def close(self) -> None:
        """Write the remaining lines. Gives up if the stream blocks for longer than the timeout."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)
        super().close()
