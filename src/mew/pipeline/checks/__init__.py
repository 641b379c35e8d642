"""The checks of the tables: each is a question in SQL, whose rows are violations; no row means that it holds.

A check proves what it says from the records themselves: presence, ownership, grants and capabilities. What the gateway
announced is never taken as proof. Reads one snapshot of a lake, changes nothing, and starts no Spark.
"""

from mew.pipeline.checks.runner import CheckResult, TableCheck, Violation, run_checks, table_checks

__all__ = ["CheckResult", "TableCheck", "Violation", "run_checks", "table_checks"]
