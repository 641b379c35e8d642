"""A report as PDF, printed by a headless Chromium of this machine. It brings no browser."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mew.errors import MewError

BROWSERS: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
PRINT_SECONDS: Final = 120
_DRAW_MILLISECONDS: Final = 10_000
"""Time of the page, not of the clock, in which its plots are drawn."""


class CannotPrint(MewError):
    """There is no Chromium, or it printed nothing."""


def find_browser(environment: Mapping[str, str] = os.environ) -> Path:
    """The browser that prints. Raises `CannotPrint`."""
    for name in BROWSERS:
        program = shutil.which(name, path=environment.get("PATH", os.defpath))
        if program:
            return Path(program)
    raise CannotPrint(
        "--pdf needs Chromium or Chrome, and neither is on the path: install one, "
        "or open the HTML report in a browser and print it"
    )


def print_page(browser: Path, page: str) -> bytes:
    """The pages of a report as PDF. Raises `CannotPrint`."""
    with tempfile.TemporaryDirectory(prefix="mew-report-") as name:
        folder = Path(name)
        source, target = folder / "report.html", folder / "report.pdf"
        source.write_text(page, encoding="utf-8")
        command = [
            str(browser),
            "--headless",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder / 'profile'}",
            f"--virtual-time-budget={_DRAW_MILLISECONDS}",
            f"--print-to-pdf={target}",
            # The page may run only its own two scripts; and root has no sandbox in Chromium.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            source.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PRINT_SECONDS)
        except subprocess.TimeoutExpired:
            raise CannotPrint(f"{browser} did not print the report within {PRINT_SECONDS} s") from None
        if done.returncode or not target.is_file():
            lines = done.stderr.strip().splitlines()
            raise CannotPrint(f"{browser} did not print the report: {lines[-1] if lines else 'no reason given'}")
        return target.read_bytes()
