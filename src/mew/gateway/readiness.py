"""Whether the gateway takes work: its phase, and what it needs, asked each time (`GET /ready`).

Knows nobody whom it asks: whoever is needed adds a check. That the process answers at all is what `/health` says.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from mew.protocol.errors import JournalUnavailable

Phase: TypeAlias = Literal["starting", "ready", "stopping"]
Check: TypeAlias = Callable[[], str | None]
"""What is wrong, in a few words; None: nothing."""


class Readiness:
    """The phase of one gateway, and the checks that it has to pass while it serves."""

    def __init__(self) -> None:
        """Starting; nothing is needed yet."""
        self.phase: Phase = "starting"
        self._checks: dict[str, Check] = {}

    def need(self, name: str, check: Check) -> None:
        """From now on not ready while this check finds something wrong: the place for a journal's, and the like."""
        self._checks[name] = check

    def report(self) -> tuple[bool, dict[str, Any]]:
        """Whether work is taken, and what to answer whoever asks."""
        if self.phase != "ready":
            return False, {"status": self.phase}
        wrong = {name: check() for name, check in self._checks.items()}
        ready = not any(wrong.values())
        checks = {name: fault or "ok" for name, fault in wrong.items()}
        return ready, {"status": "ready" if ready else "not_ready", "checks": checks}

    def require(self) -> None:
        """Refuse work before the start has finished and after the stop has begun: none of it would be recorded."""
        if self.phase != "ready":
            raise JournalUnavailable(f"the gateway is {self.phase}")
