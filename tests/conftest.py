"""What every test run ends with: the tests that were not run, each with its reason.

Must not hold fixtures of one subject; those live in its own folder.
"""

import pytest

from tests.interaction.doors import DOORS, named


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--door", type=named, default="core", help=f"where the rules of the protocol are tried, of {','.join(DOORS)}"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.getreports("skipped")
    if not skipped:
        return
    terminalreporter.section("not run: why")
    for report in skipped:
        # A skip's long form is (file, line, "Skipped: reason").
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}")
