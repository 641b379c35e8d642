"""Reads ranges of a Kafka topic as records: each message is a block of a journal, and its key is the space.

Messages without the headers of a block are of another program, and are skipped. A damaged block is an error.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from mew.errors import MewError
from mew.journal.arrow import SCHEMA_VERSION, to_batches
from mew.journal.block_format import CorruptData
from mew.journal.kafka import TopicUrl, parse_topic_url
from mew.journal.kafka.messages import InvalidHeaders, checked_head, parse_headers

POLL_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 30.0


class TopicUnreadable(MewError):
    """A range of a topic cannot be read: a broker is away, a message is gone, a block is damaged or too new."""


class TopicRange(msgspec.Struct, frozen=True):
    """Offsets of a partition that one task reads; `end` is not included."""

    partition: int
    start: int
    end: int


def topic_offsets(address: str) -> dict[str, tuple[int, int]]:
    """By partition, the first offset and the offset after the last committed message."""
    from mew.pipeline.landing.topic import TopicSource  # noqa: PLC0415 - the extra `kafka`

    source = TopicSource(parse_topic_url(address))
    try:
        return {str(partition): (item.start, item.to) for partition, item in source.look().partitions.items()}
    finally:
        source.close()


def read_topic(address: str, part: TopicRange) -> Iterator[tuple[str, pa.Table]]:
    """The records of each block of a range, with their space."""
    topic = parse_topic_url(address)
    for offset, key, headers, value in _messages(topic, part):
        try:
            schema = parse_headers(headers).schema
        except InvalidHeaders:
            continue
        where = f"{address}: offset {offset} of partition {part.partition}"
        if schema != SCHEMA_VERSION:
            raise TopicUnreadable(
                f"{where} has a block of schema version {schema}; this program reads version {SCHEMA_VERSION}"
            )
        try:
            checked_head(value)
        except CorruptData as problem:
            raise TopicUnreadable(f"{where} has a damaged block: {problem}") from None
        yield key.decode(), pa.Table.from_batches(to_batches(value))


def _messages(topic: TopicUrl, part: TopicRange) -> Iterator[tuple[int, bytes, list[tuple[str, bytes]], bytes]]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition  # noqa: PLC0415 - the extra `kafka`

    from mew.journal.kafka.producer import SILENT_LOGGER, client_settings  # noqa: PLC0415 - as above

    settings = {
        "group.id": "mew-format",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    consumer = Consumer({**client_settings(topic, lambda _error: None), **settings}, logger=SILENT_LOGGER)
    try:
        consumer.assign([TopicPartition(topic.topic, part.partition, part.start)])
        heard = time.monotonic()
        while True:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                if time.monotonic() - heard > SILENT_SECONDS:
                    raise TopicUnreadable(f"{topic}: no answer for {SILENT_SECONDS:.0f} s")
                continue
            heard, error = time.monotonic(), message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return
            if error is not None:
                raise TopicUnreadable(f"{topic}: partition {part.partition}: {error.str()}")
            offset = message.offset()
            if offset is None or offset >= part.end:
                return
            headers: Any = message.headers() or []
            yield offset, message.key() or b"", headers, message.value() or b""
    finally:
        consumer.close()
