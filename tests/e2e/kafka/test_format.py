"""`format("mew")` gives the records that a topic has, all in one read and as a stream."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from mew.journal.kafka import parse_topic_url
from mew.journal.layout import spaces_in
from mew.journal.reader import Journal
from mew.pipeline import register_journal_format
from mew.pipeline.bronze.datasource import COLUMNS
from tests.e2e.kafka.shipping import ship_once
from tools.journal_generator import generate

pytestmark = pytest.mark.timeout(240)


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by([("space", "ascending"), ("position", "ascending")]).to_pylist()
    return rows


def test_a_topic_has_the_records_of_the_journal_and_a_stream_continues(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    generate(journal, records=6_000, spaces=2, seed=3)
    ship_once(journal, topic)
    address = parse_topic_url(topic)
    stranger = Producer({"bootstrap.servers": address.bootstrap})
    stranger.produce(address.topic, key=b"another program", value=b"no block")
    assert stranger.flush(30) == 0
    expected = [
        {"space": space, **row}
        for space in spaces_in(journal)
        for batch in Journal(journal, space).batches()
        for row in batch.to_pylist()
    ]
    register_journal_format(spark)
    records_df = spark.read.format("mew").load(topic)
    assert in_order(records_df.toArrow()) == expected
    frames = [row for row in expected if row["space"] == "harbour" and row["event"] == "frame"]
    assert in_order(records_df.where("space = 'harbour' and event = 'frame'").toArrow()) == frames
    for _ in range(2):
        query = (
            spark.readStream.format("mew")
            .load(topic)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        rows_df = spark.read.parquet(str(tmp_path / "rows"))
        assert in_order(rows_df.toArrow().select(COLUMNS.names)) == expected
