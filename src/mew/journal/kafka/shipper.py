"""Ships the journal of a space to Kafka: follows fsynced data, sends it block by block, and stores its position.

It is independent of the gateway, and no other process waits for it. The position is stored after each commit, so a
crash sends some blocks twice but skips none. Retention keeps blocks until then (architecture, Journal).
"""

import hashlib
import re
import threading
import time
from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

import msgspec

from mew._internal.backoff import Backoff
from mew.journal import JournalError
from mew.journal.block_format import read_block_head
from mew.journal.kafka import TopicUrl
from mew.journal.kafka.messages import epochs_in, headers_of, message_blocks
from mew.journal.kafka.producer import BrokerUnavailable, KafkaProducer, ProducerStopped
from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.journal.retention import register_reader, registered_reader, unregister_reader
from mew.journal.tail import TAIL_POLL_SECONDS
from mew.journal.wal import Block

COMMIT_BYTES: Final = 8 * 2**20
"""A transaction is committed once it has this many bytes, or when there is nothing more to send."""
COMMIT_SECONDS: Final = 1.0
FIRST_RETRY_SECONDS: Final = 0.5
"""Delay before an unavailable broker is retried, in seconds. It doubles each time, up to `LAST_RETRY_SECONDS`."""
LAST_RETRY_SECONDS: Final = 15.0
_OTHERS: Final = re.compile(r"[^A-Za-z0-9]+")
_LETTERS: Final = 60


class ShippedJournalMismatch(JournalError):
    """More of a space was sent than its journal contains: it is a different journal."""


class ShippingStats(msgspec.Struct):
    """Metrics of the shipping of one space."""

    position: int = 0
    """The first position that was not shipped."""
    records: int = 0
    messages: int = 0
    bytes: int = 0


class ShippingError(msgspec.Struct, frozen=True):
    """Why a space is currently not shipped."""

    event: ClassVar = "trouble"
    """Name of the event in JSON output."""

    space: str
    problem: str


class Resumed(msgspec.Struct, frozen=True):
    """Shipping has resumed."""

    event: ClassVar = "resumed"

    space: str


ShippingNotice: TypeAlias = ShippingError | Resumed


def reader_name(address: TopicUrl) -> str:
    """Name of a shipper among the readers of a journal; each address has its own."""
    topic = _OTHERS.sub("-", address.topic).strip("-")[-_LETTERS:].strip("-")
    return f"kafka-{topic}-{hashlib.sha256(str(address).encode()).hexdigest()[:8]}"


def forget_shipper(folder: JournalFolder, address: TopicUrl) -> None:
    """Unregister a shipper that is no longer used, so that retention does not wait for it."""
    unregister_reader(folder, reader_name(address))


class Shipping:
    """Ships the journal of one space to a topic."""

    def __init__(
        self,
        folder: JournalFolder,
        address: TopicUrl,
        stop: threading.Event,
        tell: Callable[[ShippingNotice], None],
        *,
        once: bool,
    ) -> None:
        """`tell` receives `ShippingError` when the broker becomes unavailable, and `Resumed` when it is back.

        Each is sent once per outage. With `once`, shipping ends when everything is sent.
        """
        self.stats = ShippingStats()
        self.backlog = 0
        """Number of records to ship at the start."""
        self._folder = folder
        self._address = address
        self._name = reader_name(address)
        self._stop = stop
        self._tell = tell
        self._once = once
        self._away: str | None = None
        self._backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)

    def begin(self, *, from_start: bool = False) -> None:
        """Register as a reader, so that retention waits. With `from_start`, everything is sent again.

        Raises `ShippedJournalMismatch` if the journal ends before the stored position.
        """
        registration = registered_reader(self._folder, self._name)
        if registration is None or from_start:
            register_reader(self._folder, self._name, 0)
        last = Journal(self._folder.root, self._folder.space).last
        end = 0 if last is None else last + 1
        self.backlog = end
        if registration is None or from_start:
            return
        if registration.position > end:
            raise ShippedJournalMismatch(
                f"{self._folder.root}: the journal of {self._folder.space!r} ends before position "
                f"{registration.position}, up to which it was sent to {self._address}: it is another one, and "
                "--from-start would send all of it"
            )
        self.backlog -= registration.position
        self.stats.position = registration.position

    def run(self) -> None:
        """Ship until stopped, or with `once` until everything is sent.

        With `once`, an unavailable broker raises `BrokerUnavailable`; otherwise it is retried.
        """
        while not self._stop.is_set():
            try:
                with KafkaProducer(self._address, self._folder.space, self._stop.is_set) as sender:
                    sender.begin()
                    _Trip(self._folder, self._name, sender, self).run(once=self._once)
                return
            except ProducerStopped:
                return
            except BrokerUnavailable as problem:
                if self._once:
                    raise
                self._wait_for(problem)

    def _wait_for(self, problem: BrokerUnavailable) -> None:
        if self._away is None:
            self._away = str(problem)
            self._tell(ShippingError(self._folder.space, f"{problem}; it is tried again and again"))
        self._stop.wait(self._backoff.next_delay())

    def transaction_committed(self) -> None:
        """Reset the retry delay after a commit, and report that shipping has resumed."""
        self._backoff.reset()
        if self._away is not None:
            self._away = None
            self._tell(Resumed(self._folder.space))

    def pause(self) -> None:
        """Wait for new records."""
        self._stop.wait(TAIL_POLL_SECONDS)

    @property
    def is_to_stop(self) -> bool:
        """Whether a stop was requested."""
        return self._stop.is_set()


class _Trip:
    """Ships from the stored position on, until the sender fails."""

    def __init__(self, folder: JournalFolder, name: str, sender: KafkaProducer, shipping: Shipping) -> None:
        registration = registered_reader(folder, name)
        self._folder = folder
        self._name = name
        self._sender = sender
        self._shipping = shipping
        self._at = 0 if registration is None else registration.position
        self._epoch = "" if registration is None else registration.epoch
        self._sent = ShippingStats()
        self._since = time.monotonic()
        self._all_there = False

    def run(self, *, once: bool) -> None:
        def idle() -> None:
            self._commit()
            self._all_there = once
            if not once:
                self._shipping.pause()

        def is_over() -> bool:
            return self._all_there or self._shipping.is_to_stop

        journal = Journal(self._folder.root, self._folder.space)
        for block in journal.follow_blocks(self._at, wait=idle, stop=is_over):
            self._send(block)
            late = time.monotonic() - self._since >= COMMIT_SECONDS
            if late or self._sender.uncommitted_bytes >= COMMIT_BYTES:
                self._commit()
        self._commit()

    def _send(self, block: Block) -> None:
        if not self._sender.uncommitted_bytes:
            self._since = time.monotonic()
        for data in message_blocks(block):
            head = read_block_head(data)
            epochs = epochs_in(data)
            after = min(self._at, head.first) - 1
            self._sender.send(data, headers_of(head, self._epoch if epochs.first is None else epochs.first, after))
            self._epoch = epochs.all[-1] if epochs.all else self._epoch
            self._sent.records += head.last + 1 - max(self._at, head.first)
            self._at = head.last + 1
            self._sent.messages += 1
            self._sent.bytes += len(data)

    def _commit(self) -> None:
        if not self._sender.uncommitted_bytes:
            return
        self._sender.commit()
        registration = registered_reader(self._folder, self._name)
        # A sender that was suspended here and replaced must not reset the position stored by its successor.
        if registration is None or registration.position <= self._at:
            register_reader(self._folder, self._name, self._at, self._epoch)
        total = self._shipping.stats
        total.position = self._at
        total.records += self._sent.records
        total.messages += self._sent.messages
        total.bytes += self._sent.bytes
        self._sent = ShippingStats()
        self._shipping.transaction_committed()
