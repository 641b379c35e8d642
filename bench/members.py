"""How much one member can delay others: a list of attempts, and the slowest echo of another member during each.

`MEW_BENCH=globs,explain` runs only the attempts whose names contain one of the words.
"""

import os

from bench._gateway import members


def main() -> int:
    """Run all attempts, or the selected ones."""
    return members.main(os.environ.get("MEW_BENCH", "").replace(",", " ").split())
