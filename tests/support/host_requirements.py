"""Requirements of a test on the machine: `requires(...)` skips the test with a reason, or fails it with CI=true.

It is not for tests that are slow or broken.
"""

import os

import pytest


def in_ci() -> bool:
    """Whether this run is the one in CI, where every requirement must be met."""
    return os.environ.get("CI", "").lower() == "true"


def requires(present: object, why_not: str) -> None:
    """Return if the requirement is met; else skip the test with the reason, or fail it with CI=true.

    Call it first in a test or a fixture: `requires(shutil.which("java"), "Java is not installed")`.
    """
    if present:
        return
    if in_ci():
        pytest.fail(f"cannot run here, and CI leaves nothing out: {why_not}", pytrace=False)
    pytest.skip(why_not)
