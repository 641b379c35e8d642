"""What a test needs from the machine it runs on, said so that nothing is left out in silence.

Must not be used to leave out what is merely slow or broken.
"""

import os

import pytest


def in_ci() -> bool:
    """Whether this run is the one that decides: there, nothing may be missing."""
    return os.environ.get("CI", "").lower() == "true"


def requires(present: object, why_not: str) -> None:
    """Go on if what the test needs is present; else skip, saying why, or fail where CI=true.

    Call it first in a test or a fixture: `requires(shutil.which("java"), "Java is not installed")`.
    """
    if present:
        return
    if in_ci():
        pytest.fail(f"cannot run here, and CI leaves nothing out: {why_not}", pytrace=False)
    pytest.skip(why_not)
