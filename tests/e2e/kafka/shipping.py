"""`mew journal ship` as a process, and what a topic has of it.

Must not know how blocks are sent: what is in the topic is read with Kafka's own client.
"""

import json
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from mew.journal.kafka import parse_topic_url
from mew.journal.kafka.messages import MessageHeaders, parse_headers
from mew.journal.kafka.shipper import Shipping, ShippingNotice, ShippingStats
from mew.journal.layout import JournalFolder
from tests.support.polling import until

SECONDS: Final = 60.0


def command(journal: Path, to: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "mew", "journal", "ship", "--journal", str(journal), "--to", to, "--json", *options]


def ship_once(journal: Path, to: str, *options: str) -> dict[str, Any]:
    """Ship what is there; the summary."""
    ran = subprocess.run(
        command(journal, to, "--once", *options), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    _until_marked(to)
    return dict(json.loads(ran.stdout.splitlines()[-1])["shipped"]["spaces"])


def ship_here(folder: JournalFolder, to: str, *, anew: bool = False) -> ShippingStats:
    """The same in this process, of one space."""
    shipping = Shipping(folder, parse_topic_url(to), threading.Event(), _must_not_be, once=True)
    shipping.begin(from_start=anew)
    shipping.run()
    _until_marked(to)
    return shipping.stats


def _until_marked(to: str) -> None:
    """A commit is answered before its marks are in the topic: wait until who reads what is committed can see it all."""
    address = parse_topic_url(to)
    settings = {"bootstrap.servers": address.bootstrap, "group.id": "test", "log_level": 0}
    levels = ("read_committed", "read_uncommitted")
    readers = [Consumer({**settings, "isolation.level": level}) for level in levels]

    def ends(partition: TopicPartition) -> set[int]:
        return {reader.get_watermark_offsets(partition, timeout=20)[1] for reader in readers}

    try:
        partitions = readers[0].list_topics(address.topic, timeout=20).topics[address.topic].partitions
        for partition in partitions:
            until(
                partial(lambda at: len(ends(at)) == 1, TopicPartition(address.topic, partition)), "the end of a commit"
            )
    finally:
        for reader in readers:
            reader.close()


def _must_not_be(notice: ShippingNotice) -> None:
    raise AssertionError(notice)


class Shipper:
    """A shipper that runs."""

    def __init__(self, journal: Path, to: str, *options: str) -> None:
        self.process = subprocess.Popen(
            command(journal, to, *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> int:
        """Ask it to end, and wait for that; its exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(SECONDS)
        self._end()
        return code

    def complaint(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def _end(self) -> None:
        self.process.wait(SECONDS)
        self._thread.join(SECONDS)

    def close(self) -> None:
        """Whatever became of it, nothing is left."""
        self.process.kill()
        self._end()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class Sent:
    """A message of a topic."""

    def __init__(self, message: Any) -> None:
        self.space = message.key().decode()
        self.label: MessageHeaders = parse_headers(message.headers())
        self.data: bytes = message.value()
        self.partition: int = message.partition()


def sent(to: str) -> list[Sent]:
    """All committed messages of a topic, partition by partition."""
    address = parse_topic_url(to)
    settings = {"bootstrap.servers": address.bootstrap, "group.id": "test", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0})
    messages: list[Sent] = []
    try:
        partitions = consumer.list_topics(address.topic, timeout=20).topics[address.topic].partitions
        consumer.assign([TopicPartition(address.topic, partition, 0) for partition in partitions])
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(20)
            assert message is not None, "the topic does not end"
            problem = message.error()
            if problem is None:
                messages.append(Sent(message))
            else:
                assert problem.code() == KafkaError._PARTITION_EOF, problem
                ended += 1
    finally:
        consumer.close()
    return messages
