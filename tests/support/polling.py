"""Wait until a condition holds that another thread or process brings about."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
PATIENCE: Final = 45.0
GLANCE: Final = 0.002


def until(question: Callable[[], T], what: str = "it") -> T:
    """Call `question` until its answer is true, and return the answer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} never came to be"
        time.sleep(GLANCE)
