"""Waiting for what another thread or process does: until it is so, and not much longer."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
PATIENCE: Final = 45.0
GLANCE: Final = 0.002


def until(question: Callable[[], T], what: str = "it") -> T:
    """Ask until the answer is yes; that answer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} never came to be"
        time.sleep(GLANCE)
