"""Which tests of the pipeline go to the same worker of a run with several, and which are begun first.

Must not decide what is run, nor what of it counts: with one worker, or none, the same tests pass.
"""

from typing import Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

HERE: Final = "tests/pipeline/"
SPARK: Final = "spark"
ON_SPARK: Final = (
    "jobs/test_killed_on_spark.py",
    "test_opening.py",
    "lookup/test_on_spark.py",
    "reference/test_reference.py",
    "jobs/test_typed_on_spark.py",
    "jobs/test_watching_on_spark.py",
    "spark/test_spread.py",
    "spark/test_session.py",
    "spark/test_class_archive.py",
    "lookup/test_exporting_on_spark.py",
)
"""They use the session that all share; one that is missing here has a worker start a second one."""
LONG: Final = (
    *ON_SPARK,
    "test_latency.py",
    "checks/test_planted_faults.py",
    "checks/test_sound_journals.py",
    "jobs/test_refresh.py",
    "lake/test_killed.py",
    "jobs/test_typed.py",
    "spark/test_drivers.py",
    "jobs/test_watching.py",
    "jobs/test_audit.py",
    "jobs/test_truth.py",
    "jobs/test_cut.py",
    "spark/test_jars.py",
    "jobs/test_killed.py",
    "lake/test_compaction.py",
    "lookup/test_exporting.py",
    "test_publishing.py",
    "jobs/test_days.py",
    "jobs/test_running.py",
    "control/test_slicing.py",
    "report/test_gathering.py",
)
"""What takes ten seconds or more, the longest first; the others are short, and fill what is left at the end."""


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types for it
    """A module goes to one worker, as with `loadscope`; all that need Spark are as one module."""

    def _split_scope(self, nodeid: str) -> str:
        """To which group a test belongs."""
        return SPARK if _module(nodeid) in ON_SPARK else str(super()._split_scope(nodeid))


def place_in_queue(nodeid: str) -> int:
    """Where a test's module stands; those that are not named stay as they were, behind all others."""
    module = _module(nodeid)
    return LONG.index(module) if module in LONG else len(LONG)


def _module(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix(HERE)
