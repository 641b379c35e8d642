"""`python -m tools.reference`: writes the reference pages; with `--check` it only compares them."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tools.reference import command_line, configuration, sdk, tables

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "sdk.md": sdk.page,
    "command-line.md": command_line.page,
    "configuration.md": configuration.page,
    "tables.md": tables.page,
}
FAILED: Final = 1


def stale(folder: Path) -> list[str]:
    """Return the pages that are out of date, and files that are not pages."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    wrong = [name for name, page in PAGES.items() if name not in names or page() != _text(folder / name)]
    return [*wrong, *sorted(names - PAGES.keys())]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them. Returns 1 if a checked page is out of date."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description="Write the pages of docs/reference.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if there is something to write")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pages are (docs/reference)")
    options = parser.parse_args(arguments)
    if options.check:
        names = stale(options.folder)
        for name in names:
            print(f"reference: {options.folder / name} is not up to date: python -m tools.reference", file=sys.stderr)
        return FAILED if names else 0
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (options.folder / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
