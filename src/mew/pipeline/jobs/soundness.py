"""Whether segments are, byte for byte, what was written, and whether a journal is the one that a lake was made of.

Reads and changes nothing. What records say is the audit's to judge.
"""

from contextlib import suppress

from mew.errors import MewError
from mew.journal.layout import JournalFolder, Segment
from mew.journal.segment_reader import check_segment_bytes, read_control, read_frames
from mew.journal.segments import SegmentDamaged


class LakeJournalMismatch(MewError):
    """The journal has another past than the tables: it was restored from a backup, or begun again."""

    def __init__(self, folder: JournalFolder, why: str) -> None:
        """Of a space, and how that is known."""
        super().__init__(
            f"{folder.root}: the journal of {folder.space!r} is not the one that the tables were made of: {why}; "
            "`mew pipeline run --full-refresh` rebuilds them from its records"
        )


def damage(segment: Segment) -> SegmentDamaged | None:
    """What is wrong with a segment; nothing if it was compacted meanwhile: a reader finds the new file."""
    try:
        check_segment_bytes(segment)
    except SegmentDamaged as problem:
        return problem
    except FileNotFoundError:
        return None
    return None


def same_past(folder: JournalFolder, done: int, time: int) -> None:
    """`LakeJournalMismatch` unless the last record that the tables have is there as it was, or gone with all before it.

    `time` is that record's, in microseconds since 1970. Whatever is recorded in its place later has a later one.
    """
    segments = folder.segments(done)
    if not segments:
        if there := folder.segments():
            raise LakeJournalMismatch(folder, f"they have record {done}, and it ends with {there[-1].last}")
        return
    if segments[0].first > done:
        return
    with suppress(SegmentDamaged, FileNotFoundError, LookupError):  # a reader of that record reports it
        if _time_in(segments[0], done) > time:
            raise LakeJournalMismatch(folder, f"its record {done} was written later than theirs")


def time_at(folder: JournalFolder, position: int) -> int:
    """When a record that is there was written, in microseconds since 1970."""
    return _time_in(folder.segments(position)[0], position)


def _time_in(segment: Segment, position: int) -> int:
    for read in (read_control, read_frames):
        rows = read(segment, ["position", "time"])
        place = rows["position"].index(position).as_py()
        if place >= 0:
            return int(rows["time"][place].value)
    raise LookupError(f"{segment.control}: there is no record {position}")
