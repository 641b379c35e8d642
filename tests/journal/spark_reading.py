"""Reads a journal with Spark, as it is, and writes down what Spark saw: a process of its own, because a JVM stays.

Must not help Spark with anything but its settings.
"""

import sys
from pathlib import Path

import msgspec
import pyarrow as pa
from pyarrow import feather
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    # So little work is done before a better compiler would have paid.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # A space called 007 is not 7.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


def main(root: str, rows: str, types: str) -> None:
    """What is under a folder: its rows into one file, the names of their types into another."""
    builder = SparkSession.builder.master("local[1]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frame = spark.read.parquet(root)
    table: pa.Table = frame.toArrow()
    feather.write_feather(table, rows)
    Path(types).write_bytes(msgspec.json.encode(dict(frame.dtypes)))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
