"""What picows logs about sockets: faults of peers are few lines of information, connects are details."""

import logging
from collections.abc import Iterator

import pytest
from picows import WSProtocolError

from mew.gateway.websocket_protocol import FAULT_SECONDS, SocketLog


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of this test alone."""
    logger = logging.Logger("mew.test_of_sockets", logging.INFO)
    yield logger
    logger.handlers.clear()


def lines_of(logger: logging.Logger) -> list[str]:
    """A list that receives each line of the logger: its level and text, and whether it has a traceback."""
    lines: list[str] = []
    handler = logging.Handler()

    def emit(record: logging.LogRecord) -> None:
        lines.append(f"{record.levelname} {record.getMessage()}" + (" with a traceback" if record.exc_info else ""))

    handler.emit = emit  # type: ignore[method-assign]
    logger.addHandler(handler)
    return lines


def report_fault(log: SocketLog, reason: str) -> None:
    """Log as picows does while it handles a protocol error of a peer."""
    try:
        raise WSProtocolError(1002, reason)
    except WSProtocolError as error:
        log.error("parser error: %s", error.args[1], exc_info=error)


def test_a_fault_of_a_peer_is_information_without_a_traceback(logger: logging.Logger) -> None:
    lines = lines_of(logger)
    report_fault(SocketLog(logger), "unmasked")
    assert lines == ["INFO parser error: unmasked"]


def test_an_error_of_our_own_is_an_error_with_its_traceback(logger: logging.Logger) -> None:
    lines, log = lines_of(logger), SocketLog(logger)
    try:
        raise ValueError("ours")
    except ValueError:
        log.error("a callback failed")
        log.exception("a callback failed")
    log.error("nothing is handled")
    assert lines == ["ERROR a callback failed", "ERROR a callback failed with a traceback", "ERROR nothing is handled"]


def test_repeated_faults_are_counted_and_logged_once_per_interval(logger: logging.Logger) -> None:
    now = 100.0
    lines, log = lines_of(logger), SocketLog(logger, lambda: now)
    for _ in range(100):
        report_fault(log, "the first")
    now += FAULT_SECONDS
    report_fault(log, "another")
    assert lines == [
        "INFO parser error: the first",
        "INFO parser error: another (99 such faults of peers since the last line)",
    ]


def test_connects_and_counted_faults_are_details(logger: logging.Logger) -> None:
    verbose = logging.Logger("mew.test_of_sockets", logging.DEBUG)
    lines, verbose_lines = lines_of(logger), lines_of(verbose)
    for log in (SocketLog(logger, lambda: 100.0), SocketLog(verbose, lambda: 100.0)):
        log.info("connected to %s", "a peer")
        report_fault(log, "the first")
        report_fault(log, "the second")
    fault = "INFO parser error: the first"
    assert lines == [fault]
    assert verbose_lines == ["DEBUG connected to a peer", fault, "DEBUG parser error: the second"]


def test_the_level_that_would_show_tokens_is_never_enabled() -> None:
    log = SocketLog(logging.Logger("mew.test_of_sockets", 1))
    assert not log.isEnabledFor(logging.DEBUG - 1)
    assert log.isEnabledFor(logging.DEBUG)
