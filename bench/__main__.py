"""`python -m bench [name …]` runs every measurement, or the named ones.

It measures nothing itself.
"""

import importlib
import pkgutil
import sys
from pathlib import Path


def names() -> list[str]:
    """Return the names of all measurements, in alphabetical order."""
    modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in modules if not name.startswith("_"))


def main(selected: list[str]) -> int:
    """Run the selected measurements, or all. Returns a non-zero exit code if one fails or is unknown."""
    available = names()
    unknown = [name for name in selected if name not in available]
    if unknown or not available:
        print(
            f"bench: no measurement {', '.join(unknown) or 'at all'}; there are: {', '.join(available)}",
            file=sys.stderr,
        )
        return 2
    worst = 0
    for name in selected or available:
        print(f"\n── {name}", flush=True)
        worst = max(worst, int(importlib.import_module(f"bench.{name}").main() or 0))
    return worst


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
