"""The gateway's log: text or JSON, levels, and a writer that blocks no caller."""

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mew._internal.logging import WAITING_LINES, configure_logging, log

Written = Callable[[], list[dict[str, Any]]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Stuck(io.StringIO):
    """A stream that blocks until it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_on = threading.Event()

    def write(self, text: str) -> int:
        self.read_on.wait(10)
        return super().write(text)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, in the end as it was before."""
    logger, before = logging.getLogger(), list(logging.getLogger().handlers)
    levels = {name: logging.getLogger(name).level for name in ("", "uvicorn.error")}
    yield logger
    for handler in [handler for handler in logger.handlers if handler not in before]:
        logger.removeHandler(handler)
        handler.close()
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def output(root: logging.Logger, stream: io.StringIO) -> str:
    """Everything that was written."""
    root.handlers[-1].close()
    return stream.getvalue()


def lines(root: logging.Logger, stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output(root, stream).splitlines()]


def test_without_a_terminal_each_line_is_compact_json(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    log.info("listening", port=8080, host="ägäisch", odd={1, 2}.__class__)
    (line,) = output(root, stream).splitlines()
    fields = json.loads(line)
    assert list(fields) == ["timestamp", "level", "logger", "event", "port", "host", "odd"]
    assert (fields["level"], fields["logger"], fields["event"], fields["port"]) == (
        "info",
        "mew.gateway",
        "listening",
        8080,
    )
    assert '"event":"listening","port":8080,"host":"ägäisch"' in line


def test_on_a_terminal_lines_are_colored_text(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    configure_logging("info", stream)
    log.info("listening", port=8080)
    shown = output(root, stream)
    assert "listening" in shown
    assert "\x1b[" in shown
    assert not shown.startswith("{")


def test_no_color_disables_colors(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    configure_logging("info", stream)
    log.info("listening", port=8080)
    shown = output(root, stream)
    assert "port=8080" in shown
    assert "\x1b[" not in shown


@pytest.mark.parametrize(
    ("level", "heard"),
    [("debug", ["a", "b", "c", "d"]), ("info", ["b", "c", "d"]), ("warning", ["c", "d"]), ("error", ["d"])],
)
@pytest.mark.parametrize("name", ["mew.gateway", "uvicorn.error", "asyncio", "mew.sockets"])
def test_no_logger_writes_lines_below_the_level(root: logging.Logger, name: str, level: str, heard: list[str]) -> None:
    stream = io.StringIO()
    configure_logging(level, stream)
    logger: Any = log if name == "mew.gateway" else logging.getLogger(name)
    logger.debug("a")
    logger.info("b")
    logger.warning("c")
    logger.error("d")
    written = lines(root, stream)
    assert [line["event"] for line in written] == heard
    assert {line["logger"] for line in written} == {name}


def test_lines_of_libraries_have_the_same_format(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    logging.getLogger("uvicorn.error").warning("%d of %s", 3, "them")
    (line,) = lines(root, stream)
    assert (line["level"], line["logger"], line["event"]) == ("warning", "uvicorn.error", "3 of them")


def fail(secret: str) -> None:
    raise RuntimeError("it is broken")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["elsewhere", "on a terminal"])
def test_a_traceback_shows_no_values_of_variables(root: logging.Logger, stream: io.StringIO) -> None:
    configure_logging("info", stream)
    try:
        fail("a token")
    except RuntimeError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    shown = output(root, stream)
    assert "Traceback" in shown
    assert "RuntimeError: it is broken" in shown
    assert "a token" not in shown.replace('fail("a token")', "").replace('fail(\\"a token\\")', "")


def test_a_formatting_error_does_not_reach_the_caller(root: logging.Logger) -> None:
    root.handlers.clear()  # pytest's own would not take it
    stream = io.StringIO()
    configure_logging("info", stream)
    logging.getLogger("uvicorn.error").warning("%d", "no number, but a secret")
    shown = output(root, stream)
    assert "could not be formatted" in shown
    assert "secret" not in shown


def test_a_blocked_stream_blocks_no_caller_and_dropped_lines_are_counted(root: logging.Logger) -> None:
    stream = Stuck()
    configure_logging("info", stream)
    for number in range(WAITING_LINES + 500):
        log.info("line", number=number)
    stream.read_on.set()
    written = lines(root, stream)
    dropped = [line["count"] for line in written if line["event"] == "dropped"]
    assert sum(dropped) + len(written) - len(dropped) == WAITING_LINES + 500
    assert sum(dropped) >= 490


def test_a_closed_stream_raises_no_error(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    stream.close()
    log.info("line")
    root.handlers[-1].close()
