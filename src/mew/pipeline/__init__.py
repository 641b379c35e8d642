"""The pipeline: everything that happened in a journal, as tables that people can query.

Spark spreads the work; what it spreads are pure functions (`kernel`, `control`) and plain DataFrames (`transforms`).
Reading and writing is `lake`'s alone. Nothing else of mew may import it. Importing it loads nothing: `open_lake` does
when it is called.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mew.pipeline.opening import OpenLake


__all__ = ["open_lake", "register_journal_format"]


def open_lake(
    path: "str | Path", *, journal: "str | Path | None" = None, session: "SparkSession | None" = None
) -> "OpenLake":
    """Open the lake in a folder as it is now: DataFrames, Arrow tables and SQL at one consistent version.

    `journal` is where `events` are read from, the folder `journal` beside the lake by default. `session` is a Spark of
    your own that knows Delta; without it one is started once a DataFrame is asked for.
    """
    from mew.pipeline.opening import OpenLake  # noqa: PLC0415 - see above

    return OpenLake(path, journal=journal, session=session)


def register_journal_format(spark: "SparkSession") -> None:
    """Make `spark.read.format("mew")` and `readStream` known to a Spark session of your own.

    They read the records of a journal folder, or of a Kafka topic: `load(".mew/journal")`. The session of `open_lake`
    knows them already.
    """
    from mew.pipeline.bronze import datasource  # noqa: PLC0415 - see above

    datasource.register_journal_format(spark)
