"""Sends the blocks of one space to a topic, in transactions: only committed blocks become visible.

It reads no journal and stores no position. Opening a sender for a space ends the previous one: its open transaction is
aborted, and it can commit nothing more (a zombie is fenced).
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mew.errors import MewError
from mew.journal import JournalError
from mew.journal.kafka import TopicUrl
from mew.journal.kafka.messages import MessageHeaders

BROKER_TIMEOUT_SECONDS: Final = 5.0
"""Timeout after which a broker counts as unavailable, in seconds."""
ABORT_SECONDS: Final = 2.0
MESSAGE_BYTES: Final = 20 * 2**20
"""Maximum message size of a topic created here: the largest record that a gateway accepts by default, and a reserve."""
_TURN_SECONDS: Final = 0.5
"""Maximum time of one call to the Kafka client before the stop condition is checked, in seconds."""
_LARGEST: Final = 512 * 2**20
_FENCED: Final = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
_TOO_LARGE: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_PASSING: Final = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.INVALID_REPLICATION_FACTOR,  # reported for a new topic while no broker is ready yet
)
"""Errors that can be retried, although the Kafka client does not mark them as retriable."""
SILENT_LOGGER: Final = logging.getLogger("mew.journal.kafka")
SILENT_LOGGER.addHandler(logging.NullHandler())
SILENT_LOGGER.propagate = False
"""Discards the Kafka client's log messages: relevant errors are reported once by this package."""


class BrokerUnavailable(JournalError):
    """The broker is currently unavailable."""


class ProducerFenced(JournalError):
    """Another process now sends the blocks of this space."""


class BlockTooLarge(BrokerUnavailable):
    """The topic rejects a message because of its size; all later ones must wait."""


class ProducerStopped(JournalError):
    """A stop was requested during a wait."""


class KafkaProducer:
    """Sends the blocks of one space to a topic, until another sender takes over."""

    def __init__(self, address: TopicUrl, space: str, stop: Callable[[], bool]) -> None:
        """Create the client; no request is made yet. `stop` returns whether to abort a wait."""
        self._address = address
        self._space = space
        self._stop = stop
        self._why = ""
        """Last error reported by the client."""
        self._failed: KafkaError | None = None
        """Why a message of this transaction was rejected."""
        self._open = False
        self.uncommitted_bytes = 0
        """Number of bytes sent but not committed."""
        self._producer = Producer(
            {
                **client_settings(address, self._on_error),
                "transactional.id": f"mew/{address.topic}/{space}",
                "message.max.bytes": _LARGEST,
                "compression.type": "lz4",
                "linger.ms": 5,
            },
            logger=SILENT_LOGGER,
        )

    def __enter__(self) -> "KafkaProducer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abort the open transaction if the broker answers soon; otherwise the next sender aborts it."""
        if self._open:
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_SECONDS if self._failed is None else _TURN_SECONDS)
        with suppress(KafkaException):
            self._producer.purge()

    def begin(self) -> None:
        """Create the topic if needed, and become the sender of this space, or raise `BrokerUnavailable`."""
        self._retrying(self._find_topic)
        self._retrying(lambda: self._producer.init_transactions(_TURN_SECONDS))

    def send(self, data: bytes, label: MessageHeaders) -> None:
        """Send a block; it is not visible before `commit`."""
        try:
            if not self._open:
                self._producer.begin_transaction()
                self._open = True
            self._producer.produce(
                self._address.topic,
                value=data,
                key=self._space.encode(),
                headers=label.headers(),
                on_delivery=self._delivered,
            )
            self._producer.poll(0)
        except KafkaException as problem:
            raise self._error_of(problem.args[0]) from None
        except BufferError:
            raise BrokerUnavailable(f"{self._address}: nothing more can wait for the broker") from None
        self.uncommitted_bytes += len(data)

    def commit(self) -> None:
        """Wait until everything that was sent is committed and visible."""
        if not self._open:
            return
        self._retrying(lambda: self._producer.commit_transaction(_TURN_SECONDS))
        self._open = False
        self.uncommitted_bytes = 0

    # Errors and retries

    def _retrying(self, call: Callable[[], None]) -> None:
        """Retry a call while the error is temporary, up to `BROKER_TIMEOUT_SECONDS`."""
        deadline = time.monotonic() + BROKER_TIMEOUT_SECONDS
        while True:
            if self._stop():
                deadline = min(deadline, time.monotonic() + ABORT_SECONDS)
            try:
                call()
                return
            except KafkaException as problem:
                error = problem.args[0]
                self._producer.poll(0)
                # After this timeout, the caller starts again from the last commit.
                if not _may_pass(error) or time.monotonic() >= deadline:
                    raise self._error_of(error) from None
                if self._stop() and not self._open:
                    raise ProducerStopped("stopped before the broker answered") from None
                if not _has_waited(error):
                    time.sleep(_TURN_SECONDS / 5)

    def _find_topic(self) -> None:
        metadata = self._producer.list_topics(timeout=_TURN_SECONDS)
        if self._address.topic in metadata.topics:
            return
        # Never compacted: all blocks of a space have the same key, so only the last one would remain.
        settings = {"max.message.bytes": str(MESSAGE_BYTES), "cleanup.policy": "delete"}
        topic = NewTopic(self._address.topic, num_partitions=-1, replication_factor=-1, config=settings)
        admin = AdminClient(client_settings(self._address, self._on_error), logger=SILENT_LOGGER)
        creation: Any = admin.create_topics([topic], request_timeout=BROKER_TIMEOUT_SECONDS)[self._address.topic]
        try:
            creation.result(BROKER_TIMEOUT_SECONDS)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _on_error(self, error: KafkaError) -> None:
        self._why = error.str()

    def _error_of(self, error: KafkaError) -> MewError:
        code = error.code()
        failed = self._failed
        if code in _FENCED or (failed is not None and failed.code() in _FENCED):
            return ProducerFenced(
                f"{self._address}: another process sends the blocks of {self._space!r} now, so this one has ended"
            )
        if failed is not None and failed.code() in _TOO_LARGE:
            return BlockTooLarge(
                f"{self._address}: the topic does not take a message of {self.uncommitted_bytes:,} bytes or less: "
                "raise its max.message.bytes"
            )
        return BrokerUnavailable(f"{self._address}: {self._why or error.str()}")


def client_settings(address: TopicUrl, complain: Callable[[KafkaError], None]) -> dict[str, Any]:
    """Return the common settings of our Kafka clients: quiet logging, short timeouts."""
    return {
        "bootstrap.servers": address.bootstrap,
        "client.id": "mew-journal",
        "error_cb": complain,
        "socket.timeout.ms": int(BROKER_TIMEOUT_SECONDS * 1000),
        "reconnect.backoff.max.ms": 1000,
        "log_level": 0,
    }


def _may_pass(error: KafkaError) -> bool:
    return error.retriable() or error.code() in _PASSING


def _has_waited(error: KafkaError) -> bool:
    return error.code() in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE)
