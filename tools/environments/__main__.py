"""`python tools/environments`: nothing is installed yet, so the folder of this package is put on the path by hand."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # Not as `tools.environments`: a Python may have a package of its own that is called tools.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    sys.exit(importlib.import_module("environments.commands").main(sys.argv[1:]))
