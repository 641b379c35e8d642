"""Sends the blocks of one space to a topic, in transactions: what was committed is there, and nothing else is.

Reads no journal and keeps no position. Whoever opens a sender for a space ends the one before: what that one had
begun is undone, and it can commit nothing more (a zombie is fenced).
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
from mew.journal.kafka.address import Address
from mew.journal.kafka.messages import Label

PATIENCE_SECONDS: Final = 5.0
"""How long a broker may take before it is said to be away."""
PARTING_SECONDS: Final = 2.0
MESSAGE_BYTES: Final = 20 * 2**20
"""What a topic that we make takes: the largest record that a gateway takes by default, and something around it."""
_TURN_SECONDS: Final = 0.5
"""How long a call of Kafka's client lasts before we look whether to stop."""
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
    KafkaError.INVALID_REPLICATION_FACTOR,  # said of a new topic while no broker is ready yet
)
"""What Kafka's client does not say of itself that it may be asked again."""
QUIET: Final = logging.getLogger("mew.journal.kafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
"""Where Kafka's client says what it does, to nobody: what matters is said by us, once."""


class Away(MewError):
    """The broker does not take anything just now."""


class Fenced(MewError):
    """Somebody else sends this space's blocks from now on."""


class TooLarge(Away):
    """A message that the topic does not take; all later ones wait behind it."""


class Stopped(MewError):
    """It was to stop while it waited."""


class Sender:
    """One space's way into a topic, as long as nobody else takes it."""

    def __init__(self, address: Address, space: str, stop: Callable[[], bool]) -> None:
        """Asks nobody yet. `stop` says whether waiting is to be broken off."""
        self._address = address
        self._space = space
        self._stop = stop
        self._why = ""
        """What the client last complained of."""
        self._failed: KafkaError | None = None
        """Why a message of this transaction was not taken."""
        self._open = False
        self.waiting = 0
        """Bytes that were sent and not committed."""
        self._producer = Producer(
            {
                **client_settings(address, self._complain),
                "transactional.id": f"mew/{address.topic}/{space}",
                "message.max.bytes": _LARGEST,
                "compression.type": "lz4",
                "linger.ms": 5,
            },
            logger=QUIET,
        )

    def __enter__(self) -> "Sender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo what was not committed, if the broker answers soon; else the next sender does."""
        if self._open:
            with suppress(KafkaException):
                self._producer.abort_transaction(PARTING_SECONDS if self._failed is None else _TURN_SECONDS)
        with suppress(KafkaException):
            self._producer.purge()

    def begin(self) -> None:
        """Make the topic where there is none, and be the one who sends to it; `Away` where nobody answers."""
        self._patiently(self._find_topic)
        self._patiently(lambda: self._producer.init_transactions(_TURN_SECONDS))

    def send(self, data: bytes, label: Label) -> None:
        """Put a block on its way; nobody sees it before `commit`."""
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
            raise self._told(problem.args[0]) from None
        except BufferError:
            raise Away(f"{self._address}: nothing more can wait for the broker") from None
        self.waiting += len(data)

    def commit(self) -> None:
        """Wait until everything that was sent is there, for all to see."""
        if not self._open:
            return
        self._patiently(lambda: self._producer.commit_transaction(_TURN_SECONDS))
        self._open = False
        self.waiting = 0

    # How it goes

    def _patiently(self, call: Callable[[], None]) -> None:
        """Ask again while that may help, for a while."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if self._stop():
                deadline = min(deadline, time.monotonic() + PARTING_SECONDS)
            try:
                call()
                return
            except KafkaException as problem:
                error = problem.args[0]
                self._producer.poll(0)
                # What was tried for so long is tried anew, from what was committed.
                if not _may_pass(error) or time.monotonic() >= deadline:
                    raise self._told(error) from None
                if self._stop() and not self._open:
                    raise Stopped("stopped before the broker answered") from None
                if not _has_waited(error):
                    time.sleep(_TURN_SECONDS / 5)

    def _find_topic(self) -> None:
        found = self._producer.list_topics(timeout=_TURN_SECONDS)
        if self._address.topic in found.topics:
            return
        # Never compacted: of all blocks of a space, which have one key, only the last would stay.
        settings = {"max.message.bytes": str(MESSAGE_BYTES), "cleanup.policy": "delete"}
        wanted = NewTopic(self._address.topic, num_partitions=-1, replication_factor=-1, config=settings)
        admin = AdminClient(client_settings(self._address, self._complain), logger=QUIET)
        made: Any = admin.create_topics([wanted], request_timeout=PATIENCE_SECONDS)[self._address.topic]
        try:
            made.result(PATIENCE_SECONDS)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _complain(self, error: KafkaError) -> None:
        self._why = error.str()

    def _told(self, error: KafkaError) -> MewError:
        code = error.code()
        failed = self._failed
        if code in _FENCED or (failed is not None and failed.code() in _FENCED):
            return Fenced(
                f"{self._address}: another process sends the blocks of {self._space!r} now, so this one has ended"
            )
        if failed is not None and failed.code() in _TOO_LARGE:
            return TooLarge(
                f"{self._address}: the topic does not take a message of {self.waiting:,} bytes or less: "
                "raise its max.message.bytes"
            )
        return Away(f"{self._address}: {self._why or error.str()}")


def client_settings(address: Address, complain: Callable[[KafkaError], None]) -> dict[str, Any]:
    """What each of Kafka's clients of ours is made with: it is quiet, and gives up soon."""
    return {
        "bootstrap.servers": address.bootstrap,
        "client.id": "mew-journal",
        "error_cb": complain,
        "socket.timeout.ms": int(PATIENCE_SECONDS * 1000),
        "reconnect.backoff.max.ms": 1000,
        "log_level": 0,
    }


def _may_pass(error: KafkaError) -> bool:
    return error.retriable() or error.code() in _PASSING


def _has_waited(error: KafkaError) -> bool:
    return error.code() in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE)
