"""What a lake remembers of its landings: plans before the work, and what each came to, in `_landing`.

Decides nothing about what a plan holds. A second caller gets the plan of the first (pipeline, Exactly once).
"""

import re
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mew._internal.files import write_if_absent
from mew.pipeline.lake.values import LakeDamaged
from mew.pipeline.landing.values import LandingDone, LandingPlan

KEPT: Final = 10
"""Landings of which plan and outcome stay."""
_PLAN: Final = ".plan.json"
_DONE: Final = ".done.json"
_NAME: Final = re.compile(r"([0-9]+)\.(?:plan|done)\.json")
T = TypeVar("T", LandingPlan, LandingDone)


class Landings:
    """The folder `_landing` of a lake."""

    def __init__(self, lake: Path) -> None:
        """It need not exist yet."""
        self.folder = lake / "_landing"

    def last(self) -> LandingDone | None:
        """What the last landing came to."""
        numbers = [number for number, path in self._files() if path.name.endswith(_DONE)]
        return self._read(max(numbers), _DONE, LandingDone) if numbers else None

    def planned(self, number: int) -> LandingPlan | None:
        """The plan of a landing, if there is one."""
        return self._read(number, _PLAN, LandingPlan)

    def plan_file(self, number: int) -> Path:
        """Where the plan of a landing is."""
        return self.folder / f"{number}{_PLAN}"

    def plan(self, plan: LandingPlan) -> LandingPlan:
        """Keep a plan; the one that is there already, if it is so, is returned instead."""
        self._put(plan.number, _PLAN, plan)
        return self.planned(plan.number) or plan

    def finish(self, done: LandingDone) -> None:
        """Say what a landing came to, once; files of long ago go."""
        self._put(done.number, _DONE, done)
        for number, path in self._files():
            if number <= done.number - KEPT:
                path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[int, Path]]:
        if not self.folder.is_dir():
            return []
        named = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return sorted((int(name[1]), path) for name, path in named if name is not None)

    def _put(self, number: int, ending: str, value: LandingPlan | LandingDone) -> None:
        write_if_absent(self.folder / f"{number}{ending}", msgspec.json.encode(value) + b"\n")

    def _read(self, number: int, ending: str, kind: type[T]) -> T | None:
        path = self.folder / f"{number}{ending}"
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as problem:
            raise LakeDamaged(f"{path}: it says nothing about a landing: {problem}") from None
