"""`mew journal ship` as a process, and what a topic has of it.

Must not know how blocks are sent: what is in the topic is read with Kafka's own client.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from mew.journal.folder import Folder
from mew.journal.kafka.address import read_address
from mew.journal.kafka.messages import Label, read_label
from mew.journal.kafka.shipping import Figures, Shipping, Told

SECONDS: Final = 60.0


def command(journal: Path, to: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "mew", "journal", "ship", "--journal", str(journal), "--to", to, "--json", *options]


def ship_once(journal: Path, to: str, *options: str) -> dict[str, Any]:
    """Ship what is there; the summary."""
    ran = subprocess.run(
        command(journal, to, "--once", *options), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout.splitlines()[-1])["shipped"]["spaces"])


def ship_here(folder: Folder, to: str, *, anew: bool = False) -> Figures:
    """The same in this process, of one space."""
    shipping = Shipping(folder, read_address(to), threading.Event(), _must_not_be, once=True)
    shipping.begin(anew=anew)
    shipping.run()
    return shipping.figures


def _must_not_be(told: Told) -> None:
    raise AssertionError(told)


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
        self.told: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(json.loads(line))

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
        self.label: Label = read_label(message.headers())
        self.data: bytes = message.value()
        self.partition: int = message.partition()


def sent(to: str) -> list[Sent]:
    """All committed messages of a topic, partition by partition."""
    address = read_address(to)
    settings = {"bootstrap.servers": address.bootstrap, "group.id": "test", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0})
    found: list[Sent] = []
    try:
        partitions = consumer.list_topics(address.topic, timeout=20).topics[address.topic].partitions
        consumer.assign([TopicPartition(address.topic, each, 0) for each in partitions])
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(20)
            assert message is not None, "the topic does not end"
            if message.error() is not None:
                ended += 1  # this partition has no more
            else:
                found.append(Sent(message))
    finally:
        consumer.close()
    return found
