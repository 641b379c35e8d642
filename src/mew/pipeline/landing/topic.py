"""What a topic has: its partitions, and which messages of each can be read.

Reads no message.
"""

from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from mew.journal.kafka import TopicUrl
from mew.journal.kafka.producer import SILENT_LOGGER, client_settings
from mew.pipeline.landing.values import LandingError, Offsets

ANSWER_SECONDS: Final = 10.0


class SourceAway(LandingError):
    """No broker answers."""


class NoTopic(LandingError):
    """The broker knows no such topic."""


class Topic(msgspec.Struct, frozen=True):
    """A topic at one moment."""

    cluster: str
    partitions: dict[int, Offsets]
    """What is there, up to the last message that nothing can undo any more."""


class TopicSource:
    """A topic that is read repeatedly, over one connection."""

    def __init__(self, address: TopicUrl) -> None:
        """Nothing is requested yet."""
        self._address = address
        self._consumer: Consumer | None = None

    def look(self) -> Topic:
        """What is there now; `SourceAway` or `NoTopic` where that cannot be said."""
        address = self._address
        try:
            consumer = self._consumer = self._consumer or _consumer(address)
            found: Any = consumer.list_topics(address.topic, timeout=ANSWER_SECONDS)
            topic = found.topics[address.topic]
            if topic.error is not None or not topic.partitions:
                raise NoTopic(f"{address}: there is no such topic, so nothing was shipped to it yet")
            partitions = {each: _offsets(consumer, address, each) for each in sorted(topic.partitions)}
        except KafkaException as problem:
            self.close()
            raise SourceAway(f"{address}: {problem.args[0].str()}") from None
        return Topic(found.cluster_id, partitions)

    def close(self) -> None:
        """Close the connection for now."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _consumer(address: TopicUrl) -> Consumer:
    settings = client_settings(address, lambda _error: None)
    # Only what is committed: an open transaction's messages may yet be undone.
    wanted = {"group.id": "mew-landing", "enable.auto.commit": False, "isolation.level": "read_committed"}
    return Consumer({**settings, **wanted}, logger=SILENT_LOGGER)


def _offsets(consumer: Consumer, address: TopicUrl, partition: int) -> Offsets:
    low, high = consumer.get_watermark_offsets(TopicPartition(address.topic, partition), timeout=ANSWER_SECONDS)
    return Offsets(low, high)
