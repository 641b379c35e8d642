"""Which messages become records, and in which segments: a rule for each space, applied to what is known of the blocks.

Pure. A block is taken if it continues the landed records, without records that are landed; at a gap a space stops
until the missing records come (pipeline, Kafka is transport).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from mew.journal.layout import HOUR
from mew.pipeline.landing.values import IngestPosition, IngestStopped, LandingPlan, SegmentPlan, Taken, TopicMessage


class Judged(msgspec.Struct, frozen=True):
    """What came of the messages of a plan."""

    spaces: dict[str, IngestPosition]
    pieces: list[SegmentPlan]
    repeats: int
    """Messages of which everything was landed already."""
    strangers: list[TopicMessage]
    """Those that are no blocks."""


def select_messages(plan: LandingPlan, known: Mapping[str, IngestPosition], messages: Iterable[TopicMessage]) -> Judged:
    """Apply the rule to each space's messages, in the journal's order, however often and in which order they came."""
    by_space: dict[str, list[TopicMessage]] = {}
    strangers = []
    for message in messages:
        if message.problem is None:
            by_space.setdefault(message.space, []).append(message)
        else:
            strangers.append(message)
    spaces, pieces, repeats = dict(known), list[SegmentPlan](), 0
    for space in sorted(by_space):
        line = _Line(space, known.get(space, IngestPosition()))
        for message in sorted(by_space[space], key=_order):
            if not line.take(message):
                break
        spaces[space] = line.landed()
        pieces += _pieces(plan, space, line.taken)
        repeats += line.repeats
    strangers.sort(key=lambda each: (each.partition, each.offset))
    return Judged(spaces, pieces, repeats, strangers)


def _order(message: TopicMessage) -> tuple[int, int, int, int]:
    return message.first, -message.last, message.partition, message.offset


class _Line:
    """The records of a space, one behind the other."""

    def __init__(self, space: str, before: IngestPosition) -> None:
        self._space = space
        self._before = before
        self._last = before.last
        self._time = before.time
        self._epochs = dict.fromkeys(before.epochs)
        self._stopped: IngestStopped | None = None
        self.taken: list[tuple[TopicMessage, int]] = []
        """What goes into segments, and from which position on."""
        self.repeats = 0

    def take(self, message: TopicMessage) -> bool:
        """Whether it continues after this one."""
        if message.first <= self._last and self._is_foreign(message):
            self._stop(
                f"records came again in an epoch that is not known, {message.epoch!r}: "
                "another journal is sent under the same name"
            )
            return False
        if message.last <= self._last:
            self.repeats += 1
            return True
        if message.first > self._last + 1 and not self._goes_on(message):
            # The same words however much later what came is: it is one alarm.
            self._stop(f"record {self._last + 1} did not come, and later ones did")
            return False
        self.taken.append((message, max(message.first, self._last + 1)))
        self._last, self._time = message.last, message.time
        self._epochs.update(dict.fromkeys((message.epoch, *message.told)))
        return True

    def _is_foreign(self, message: TopicMessage) -> bool:
        return bool(message.epoch and self._epochs and message.epoch not in self._epochs)

    def _goes_on(self, message: TopicMessage) -> bool:
        """Whether the journal itself has nothing between: it begins here, or a checkpoint replaces a gap."""
        if self._last < 0:
            return message.after < 0
        return 0 <= message.after <= self._last

    def _stop(self, what: str) -> None:
        self._stopped = IngestStopped(self._last + 1, what)

    def landed(self) -> IngestPosition:
        """How far it is now. One that had stopped and got nothing new has still stopped."""
        stopped = self._stopped or (None if self.taken else self._before.stopped)
        epochs = tuple(each for each in self._epochs if each)
        return IngestPosition(self._last, self._time, epochs, stopped)


def _pieces(plan: LandingPlan, space: str, taken: Sequence[tuple[TopicMessage, int]]) -> Iterator[SegmentPlan]:
    waiting: list[tuple[TopicMessage, int]] = []
    records = size = 0
    for message, start in taken:
        if waiting and (_breaks(waiting[-1][0], message) or records >= plan.records or size >= plan.bytes):
            yield _piece(space, waiting)
            waiting, records, size = [], 0, 0
        waiting.append((message, start))
        records += message.last - start + 1
        size += message.size
    if waiting:
        yield _piece(space, waiting)


def _breaks(last: TopicMessage, message: TopicMessage) -> bool:
    """A segment has one hour, and no hole."""
    return message.time // HOUR != last.time // HOUR or message.first > last.last + 1


def _piece(space: str, taken: Sequence[tuple[TopicMessage, int]]) -> SegmentPlan:
    blocks = tuple(Taken(each.file, each.at, each.size, start) for each, start in taken)
    last = taken[-1][0]
    return SegmentPlan(space, last.time, taken[0][1], last.last, blocks)
