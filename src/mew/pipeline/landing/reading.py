"""Reads the messages of a plan with Spark, each once: what it is comes back, its block goes to a file.

Judges nothing but whether a message is a block. One that is gone before it was read is an error, never a gap.
"""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mew.journal.arrow import SCHEMA_VERSION
from mew.journal.block_format import CorruptData
from mew.journal.kafka import TopicUrl
from mew.journal.kafka.messages import InvalidHeaders, checked_head, epochs_in, parse_headers
from mew.pipeline.landing.values import LandingError, LandingPlan, TopicMessage
from mew.pipeline.session import one_line
from mew.protocol.ids import is_space_id

BATCH_MESSAGES: Final = 32
"""Messages that go from Java to Python at a time; each may have a megabyte."""
POLL_SECONDS: Final = 30
_STAGED: Final = pa.schema([("message", pa.binary())])


def stage(session: SparkSession, address: TopicUrl, plan: LandingPlan, folder: Path) -> list[TopicMessage]:
    """What each message of a plan is; the blocks are then in files of a folder that all workers see."""
    # The same Spark with a setting of our own: what goes to Python at a time is counted in messages.
    own = session.newSession()
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_MESSAGES))
    work = _staging(str(folder.absolute()))
    try:
        found = messages(own, address, plan).mapInArrow(work, "message binary").toArrow()
    except Exception as error:  # of Spark's, Java's or a worker's making
        raise LandingError(f"{address}: the messages cannot be read: {one_line(error)}") from error
    seen = [msgspec.msgpack.decode(each, type=TopicMessage) for each in found.column("message").to_pylist()]
    for each in seen:
        if each.schema != SCHEMA_VERSION:
            # Left where it is: a program that can read it lands it.
            raise LandingError(
                f"offset {each.offset} of partition {each.partition} has a block of schema version {each.schema}; "
                f"this program reads version {SCHEMA_VERSION}"
            )
    return seen


def messages(session: SparkSession, address: TopicUrl, plan: LandingPlan) -> DataFrame:
    """The committed messages of a plan: partition, offset, key, value, headers."""
    starts = {str(partition): each.start for partition, each in plan.partitions.items()}
    ends = {str(partition): each.to for partition, each in plan.partitions.items()}
    options = {
        "kafka.bootstrap.servers": address.bootstrap,
        "kafka.isolation.level": "read_committed",
        # Behind the last message of a transaction is its mark, which is no message: that is not worth half a second.
        "kafka.fetch.max.wait.ms": "20",
        "assign": _json({plan.topic: list(plan.partitions)}),
        "startingOffsets": _json({plan.topic: starts}),
        "endingOffsets": _json({plan.topic: ends}),
        # With `false` Spark leaves out in silence what is not there any more.
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafkaConsumer.pollTimeoutMs": str(POLL_SECONDS * 1000),
        "minPartitions": str(session.sparkContext.defaultParallelism),
    }
    messages_df = session.read.format("kafka").options(**options).load()
    return messages_df.select("partition", "offset", "key", "value", "headers")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# On a worker


def _staging(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A task that is run twice writes two files, and only what came back of one of them counts.
        path = Path(folder) / uuid.uuid4().hex
        with path.open("wb") as file:
            for batch in batches:
                found = []
                for row in batch.to_pylist():
                    found.append(msgspec.structs.replace(_look_at(row), file=str(path), at=file.tell()))
                    file.write(row["value"] or b"")
                file.flush()
                packed = pa.array([msgspec.msgpack.encode(each) for each in found], pa.binary())
                yield pa.RecordBatch.from_arrays([packed], schema=_STAGED)

    return run


def _look_at(row: dict[str, Any]) -> TopicMessage:
    key, value = row["key"] or b"", row["value"] or b""
    seen = TopicMessage(row["partition"], row["offset"], key.decode(errors="replace"), len(value))
    try:
        label = parse_headers([(each["key"], each["value"]) for each in row["headers"] or ()])
    except InvalidHeaders as problem:
        return msgspec.structs.replace(seen, problem=str(problem))
    if label.schema != SCHEMA_VERSION:
        return msgspec.structs.replace(seen, schema=label.schema)
    try:
        head = checked_head(value)
        if not is_space_id(seen.space):
            raise CorruptData(f"its key {seen.space!r} is no space")
        if (head.first, head.last, head.records) != (label.first, label.last, label.count):
            raise CorruptData(f"its headers speak of {label.first} to {label.last}, its block has {head.first} on")
        told = epochs_in(value).all
    except (CorruptData, msgspec.DecodeError) as problem:
        return msgspec.structs.replace(seen, problem=str(problem))
    return msgspec.structs.replace(
        seen, first=head.first, last=head.last, time=head.time, epoch=label.epoch, after=label.after, told=told
    )
