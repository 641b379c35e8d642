"""What one member can do to make others wait: a list of attempts, and the worst echo of another member at each.

`MEW_BENCH=globs,explain` runs the attempts only whose names hold one of the words.
"""

import os

from bench._gateway import members


def main() -> int:
    """Try them all, or the chosen ones."""
    return members.main(os.environ.get("MEW_BENCH", "").replace(",", " ").split())
