"""`python -m bench [name …]` runs every measurement, or the named ones.

Measures nothing itself.
"""

import importlib
import pkgutil
import sys
from pathlib import Path


def names() -> list[str]:
    """The measurements there are, in alphabetical order."""
    found = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in found if not name.startswith("_"))


def main(wanted: list[str]) -> int:
    """Run the wanted measurements, all where none is named; non-zero if one says so or is unknown."""
    known = names()
    unknown = [name for name in wanted if name not in known]
    if unknown or not known:
        print(
            f"bench: no measurement {', '.join(unknown) or 'at all'}; there are: {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    worst = 0
    for name in wanted or known:
        print(f"\n── {name}", flush=True)
        worst = max(worst, int(importlib.import_module(f"bench.{name}").main() or 0))
    return worst


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
