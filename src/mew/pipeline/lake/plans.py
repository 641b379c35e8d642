"""Plans: what each batch covers, written before it is begun, once.

Decides nothing about what a plan holds. A second caller gets the plan of the first (pipeline, Exactly once).
"""

from pathlib import Path
from typing import Final

import msgspec

from mew._internal.files import write_if_absent
from mew.pipeline.lake.values import BatchPlan, LakeDamaged

KEPT: Final = 10
"""Plans of finished batches that stay, for those who are slow."""
_ENDING: Final = ".json"
_GIVEN_UP: Final = ".given-up"


class Plans:
    """The folder `_plan` of a lake."""

    def __init__(self, folder: Path) -> None:
        """It need not exist yet."""
        self.folder = folder

    def read(self, batch: int) -> BatchPlan | None:
        """The plan of a batch, if there is one."""
        path = self._path(batch)
        try:
            return msgspec.json.decode(path.read_bytes(), type=BatchPlan)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as problem:
            raise LakeDamaged(f"{path}: this is no plan: {problem}") from None

    def put(self, plan: BatchPlan) -> BatchPlan:
        """Keep a plan; the one that is there already, if it is so, is returned instead."""
        write_if_absent(self._path(plan.batch), msgspec.json.encode(plan, order="sorted") + b"\n")
        return self.read(plan.batch) or plan

    def give_up(self, batch: int) -> None:
        """Keep that a batch is not to be done as it was planned: before any of it is done, and permanently."""
        write_if_absent(self._path(batch, _GIVEN_UP), b"")

    def is_given_up(self, batch: int) -> bool:
        """Whether that was said of a batch."""
        return self._path(batch, _GIVEN_UP).exists()

    def drop(self, finished: int) -> None:
        """Remove plans that are not needed after a finished batch."""
        for path in (*self.folder.glob(f"*{_ENDING}"), *self.folder.glob(f"*{_GIVEN_UP}")):
            if path.stem.isdecimal() and int(path.stem) <= finished - KEPT:
                path.unlink(missing_ok=True)

    def _path(self, batch: int, ending: str = _ENDING) -> Path:
        return self.folder / f"{batch}{ending}"
