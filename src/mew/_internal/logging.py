"""The gateway's operational log: readable on a terminal, one line of JSON each elsewhere.

No line shows a token or a payload. A thread writes; lines that cannot be written in time are counted instead.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec
import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter

if TYPE_CHECKING:
    from structlog.typing import Processor


WAITING_LINES: Final = 10_000
CLOSE_SECONDS: Final = 2.0
SOCKETS: Final = "mew.sockets"
"""What picows says of one socket."""
FAULT_SECONDS: Final = 10.0
_PEERS_FAULTS: Final = ("WS parser error", "on_ws_frame raised WSProtocolError")

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
"""Says nothing below a warning until `set_up` was called: libraries and tests hear of no start and stop."""


def address(peer: Any) -> str:
    """Where a connection comes from, by what its socket says."""
    if isinstance(peer, str) and peer:
        return peer  # a Unix socket's, see `unix_listener`
    return "{}:{}".format(*peer[:2]) if peer else "unknown"


def set_up(level: str, stream: TextIO) -> None:
    """Write what the gateway and its libraries have to say, from this level on."""
    handler = _Writer(stream)
    handler.setFormatter(_formatter(coloured=stream.isatty() and "NO_COLOR" not in os.environ, people=stream.isatty()))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Set on its own, or uvicorn makes a line of its most talkative level for every connection, to be thrown away.
    logging.getLogger("uvicorn.error").setLevel(level.upper())
    logging.getLogger(SOCKETS).addFilter(Weigher())


def _formatter(*, people: bool, coloured: bool) -> logging.Formatter:
    shared: list[Processor] = [ProcessorFormatter.remove_processors_meta, structlog.processors.TimeStamper("iso")]
    rendering: list[Processor] = [structlog.processors.format_exc_info, _ordered, _as_json]
    if people:
        # Never the traceback that shows the values of variables: tokens are among them.
        rendering = [structlog.dev.ConsoleRenderer(colors=coloured, exception_formatter=structlog.dev.plain_traceback)]
    foreign: list[Processor] = [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name]
    return ProcessorFormatter(processors=[*shared, *rendering], foreign_pre_chain=foreign)


def _ordered(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    first = {name: event.pop(name) for name in ("timestamp", "level", "logger", "event") if name in event}
    return {**first, **event}


def _as_json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """Compact and not ASCII-escaped, as all JSON of ours (protocol §1)."""
    return _encode(dict(event)).decode()


class Weigher(logging.Filter):
    """A peer's fault is no error of ours, and that somebody came or went is a detail."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """No fault yet; `clock` tells seconds."""
        super().__init__()
        self._clock = clock
        self._next_fault = 0.0
        """Peers may make faults without end: after one line the others are counted until then."""
        self._faults = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written, at the level that fits it."""
        if str(record.msg).startswith(_PEERS_FAULTS):
            level, record.exc_info, record.exc_text = self._weigh_fault(record), None, None
        elif record.levelno == logging.INFO:
            level = logging.DEBUG
        else:
            return True
        record.levelno, record.levelname = level, logging.getLevelName(level)
        return logging.getLogger(record.name).isEnabledFor(level)

    def _weigh_fault(self, record: logging.LogRecord) -> int:
        now = self._clock()
        if now < self._next_fault:
            self._faults += 1
            return logging.DEBUG
        if self._faults:
            record.msg = f"{record.msg} ({self._faults} such faults of peers since the last line)"
        self._next_fault, self._faults = now + FAULT_SECONDS, 0
        return logging.INFO


class _Writer(logging.Handler):
    """Hands lines to a thread that may wait, so that the loop need not."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_on, name="operator log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Whatever is wrong with a line must not reach the one who logs."""
        try:
            line = self.format(record)
        except Exception:  # a library's arguments may not fit its own format
            line = f"{record.levelname} {record.name}: this line could not be made"
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _write_on(self) -> None:
        while (line := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                line = f'{line}\n{{"event":"dropped","count":{dropped}}}'
            with suppress(OSError, ValueError):  # nobody reads it any more
                self._stream.write(line + "\n")
                self._stream.flush()

    def close(self) -> None:
        """Write what is left, if somebody takes it soon."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)
        super().close()
