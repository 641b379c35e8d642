"""Settings of every test run: Hypothesis, regression tests for failed properties, and the list of skipped tests.

Fixtures of one subject are in the folder of that subject.
"""

import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.requirements.transports import TRANSPORTS, transport_names
from tests.support.hypothesis_settings import FIXED
from tests.support.regressions import regression_tests

settings.load_profile(FIXED)  # `--hypothesis-profile` has the last word


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--transport",
        type=transport_names,
        default="core",
        help=f"where the requirements are tested, of {','.join(TRANSPORTS)}",
    )
    parser.addoption("--whole-matrix", action="store_true", help="test every requirement at each named transport")


def pytest_configure() -> None:
    """Let child processes receive SIGINT and SIGHUP, even if the tests themselves ignore them."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Property tests do not count for coverage: a line counts only if a test reaches it in every run.

    Tracing is switched off here: under xdist, the mark `no_cover` of pytest-cov stops only one of two measurements.
    """
    if not any(map(pyfuncitem.get_closest_marker, ("hypothesis", "no_cover"))):
        return (yield)
    tracing = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracing)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and call.excinfo is not None and isinstance(item, pytest.Function):
        report.sections += [
            ("to keep it from coming back", lines) for lines in regression_tests(item, call.excinfo.value)
        ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.getreports("skipped")
    if not skipped:
        return
    terminalreporter.section("not run: why")
    for report in skipped:
        # A skip's long form is (file, line, "Skipped: reason").
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}")
