"""What a batch covers: per space the sealed records that no batch has had, up to the first gap; or all records.

A space that cannot be continued is left out and reported, so that the others are not delayed. Looks at the journal
and changes nothing. A range is of positions, never of files: those may be gone tomorrow.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from mew.errors import MewError
from mew.journal.layout import JournalFolder, Segment, first_position, spaces_in
from mew.journal.segment_reader import read_control, read_footer, starts_with_checkpoint
from mew.pipeline.jobs.soundness import damage, same_past
from mew.pipeline.lake.values import Progress
from mew.protocol.records import CHECKPOINT


class SourceJournalMissing(MewError):
    """There is no journal where one was looked for."""


class JournalGap(MewError):
    """Records that no batch has had are gone, and nothing stands for them."""

    def __init__(self, folder: JournalFolder, first: int, last: int) -> None:
        """Of a space, from one position to another."""
        self.what = (
            f"the journal of {folder.space!r} has lost the records {first} to {last} before the pipeline had them"
        )
        super().__init__(f"{folder.root}: {self.what}; `mew pipeline run` continues after them")
        self.space = folder.space
        self.first = first
        self.last = last


class Range(msgspec.Struct, frozen=True):
    """Positions of one space, both ends included."""

    start: int
    to: int


class New(msgspec.Struct, frozen=True):
    """The records for the next batch."""

    ranges: dict[str, Range]
    """By space."""
    problems: dict[str, Exception]
    """By space that cannot be continued, or not to the end of its journal."""


def spaces_of(journal: Path) -> list[str]:
    """The spaces that a journal knows, by name; `SourceJournalMissing` where there is none."""
    if not journal.is_dir():
        raise SourceJournalMissing(f"{journal}: there is no journal here; `--journal` says where it is")
    return sorted(spaces_in(journal))


def what_is_new(journal: Path, last: Progress | None, *, most: int | None = None) -> New:
    """What is sealed behind what the last batch had; no more than `most` records of each space.

    `JournalGap` where records are lost and later records exist.
    """
    new = New({}, {})
    for space in spaces_of(journal):
        folder = JournalFolder(journal, space)
        try:
            if last is not None and space in last.times:
                same_past(folder, last.positions[space], last.times[space])
            covered = next_range(folder, None if last is None else last.positions.get(space), most)
        except JournalGap as hole:
            covered = None
            if (problem := _hole_s(folder, hole)) is None:
                raise
            new.problems[space] = problem
        except (MewError, OSError) as problem:
            covered = None
            new.problems[space] = problem
        if covered is not None:
            _put(new, folder, covered)
    return new


def _hole_s(folder: JournalFolder, hole: JournalGap) -> Exception | None:
    """What is wrong with the first segment behind a hole."""
    return damage(folder.segments(hole.last + 1)[0])


def _put(new: New, folder: JournalFolder, covered: Range) -> None:
    """As much of a range as is sound."""
    to = covered.to
    for segment in folder.segments(covered.start):
        if segment.first > to:
            break
        if (problem := damage(segment)) is not None:
            new.problems[folder.space] = problem
            to = segment.first - 1
    if to >= covered.start:
        new.ranges[folder.space] = Range(covered.start, to)


def next_range(folder: JournalFolder, done: int | None, most: int | None = None) -> Range | None:
    """What comes behind the last position done, None where nothing does; `JournalGap` where it cannot be gone on."""
    start = 0 if done is None else done + 1
    logs = folder.logs()  # before the segments: what is sealed between the two looks is seen, not missed
    segments = folder.segments(start)
    if not segments:
        return None
    if segments[0].first > start:
        if any(first_position(path) < segments[0].first for path in logs):
            return None  # It is late, and not lost.
        start = _begin_anew(folder, segments[0], start, is_first=done is None)
    to = _cover(segments, start)
    return Range(start, to if most is None else min(to, start + most - 1))


def from_the_floor(journal: Path, done: Mapping[str, int]) -> dict[str, Range]:
    """By space, everything that there is, up to the first hole; `done` is what the lake has had of each.

    A segment that is damaged is as good as lost.
    """
    found = {}
    for space in spaces_of(journal):
        segments = _sound(JournalFolder(journal, space), 0)
        if segments:
            start = _floor(segments, done.get(space, -1))
            found[space] = Range(start, _cover(segments, start))
    return found


def behind(journal: Path, hole: JournalGap) -> Range:
    """The records after a gap, up to the next gap."""
    start = hole.last + 1
    return Range(start, _cover(_sound(JournalFolder(journal, hole.space), start), start))


def is_there(folder: JournalFolder, wanted: Range) -> bool:
    """Whether the journal has all of a range, and it is sound."""
    segments = _sound(folder, wanted.start, wanted.to)
    return bool(segments and segments[0].first <= wanted.start and _cover(segments, wanted.start) >= wanted.to)


def begins(folder: JournalFolder, start: int) -> bool:
    """Whether the journal still has a record, sound or not."""
    segments = folder.segments(start)
    return bool(segments) and segments[0].first <= start


def _sound(folder: JournalFolder, start: int, to: int | None = None) -> list[Segment]:
    """The segments from a position on, or up to another, without those that are damaged."""
    segments = folder.segments(start)
    return [each for each in segments if (to is None or each.first <= to) and damage(each) is None]


def _floor(segments: Sequence[Segment], done: int) -> int:
    """Where to begin with what is left: at the checkpoint that retention left, if the lake has all before it.

    Retention takes from the front. Where something of what the lake has is missing further behind, it is begun behind
    that: what is in no journal any more stays in the lake.
    """
    left = _behind_what_is_lost(segments, done)
    first = left[0].first
    checkpoint = None if first == 0 else _first_checkpoint(left)
    return first if checkpoint is None or checkpoint > done + 1 else checkpoint


def _behind_what_is_lost(segments: Sequence[Segment], done: int) -> Sequence[Segment]:
    begin, to = 0, segments[0].last
    for index, segment in enumerate(segments):
        if to < done and segment.first > to + 1:
            begin = index
        to = max(to, segment.last)
    return segments[begin:]


def _first_checkpoint(segments: Sequence[Segment]) -> int | None:
    for segment in segments:
        if read_footer(segment).checkpoint is not None:
            rows = read_control(segment, ["position", "event"])
            place = rows["event"].index(CHECKPOINT).as_py()
            if place >= 0:
                return int(rows["position"][place].as_py())
    return None


def _cover(segments: Sequence[Segment], start: int) -> int:
    """The last position that is there together with all before it, from a start on."""
    to = start - 1
    for segment in segments:
        if segment.first > to + 1:
            break
        to = max(to, segment.last)
    return to


def _begin_anew(folder: JournalFolder, segment: Segment, wanted: int, *, is_first: bool) -> int:
    """The records before this segment are gone: a checkpoint at its front stands for them, and so does a beginning."""
    if segment.first == 0 or starts_with_checkpoint(segment):
        return segment.first
    if is_first:
        return segment.first  # the floor that retention left: the first checkpoint behind it is begun with
    raise JournalGap(folder, wanted, segment.first - 1)
