"""Which tests of the pipeline are begun first, in a run with several workers.

Must not decide what is run, nor what of it counts: with one worker, or none, the same tests pass.
"""

from typing import Final

HERE: Final = "tests/pipeline/"
LONG: Final = (
    "jobs/test_killed_on_spark.py",
    "jobs/test_refresh.py",
    "jobs/test_typed.py",
    "gold/test_histories.py",
    "jobs/test_truth.py",
    "jobs/test_killed.py",
    "jobs/test_watching.py",
    "test_latency.py",
    "jobs/test_audit.py",
    "jobs/test_cut.py",
    "reference/test_reference.py",
    "test_opening.py",
    "lookup/test_on_spark.py",
    "bronze/test_datasource.py",
    "jobs/test_typed_on_spark.py",
    "jobs/test_running.py",
    "test_publishing.py",
    "jobs/test_watching_on_spark.py",
    "spark/test_spread.py",
    "spark/test_session.py",
    "spark/test_class_archive.py",
    "checks/test_planted_faults.py",
    "checks/test_sound_journals.py",
    "lake/test_killed.py",
    "spark/test_drivers.py",
    "lookup/test_exporting_on_spark.py",
    "lake/test_compaction.py",
    "lookup/test_exporting.py",
    "jobs/test_days.py",
    "control/test_slicing.py",
    "report/test_gathering.py",
)
"""What takes ten seconds or more, the longest first; the others are short, and fill what is left at the end."""


def place_in_queue(nodeid: str) -> int:
    """Where a test's module stands; those that are not named stay as they were, behind all others."""
    module = _module(nodeid)
    return LONG.index(module) if module in LONG else len(LONG)


def _module(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix(HERE)
