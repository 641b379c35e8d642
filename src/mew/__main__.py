"""`python -m mew` is the `mew` command.

Decides nothing; `mew.cli` does.
"""

import sys

from mew.cli import main

if __name__ == "__main__":
    sys.exit(main())
