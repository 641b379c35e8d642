"""The sentences of the journal: its errors, and the problems that `mew journal verify` reports.

Other tests check classes, paths and positions. Review a change here like a translation: the sentence says what
happened, in which file, and what to do.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mew.errors import MewError
from mew.journal.arrow import to_arrow
from mew.journal.block_format import MAGIC, check_block, encode_block, read_block_head
from mew.journal.compaction import CannotExchange, compact_hour, exclusive_maintenance
from mew.journal.export import complete_file
from mew.journal.kafka import parse_topic_url
from mew.journal.layout import Segment
from mew.journal.reader import Journal
from mew.journal.recovery import recover
from mew.journal.retention import register_reader, registered_positions
from mew.journal.sealing import seal_log
from mew.journal.segment_reader import read_footer, verify_segment
from mew.journal.segments import write_segment
from mew.journal.verify import verify_journal
from tests.journal.journal_fixture import NOON, JournalFixture, entries

Provoke = Callable[[JournalFixture], Any]
HOUR: Final = "<root>/space=lab/date=2025-11-15/hour=12"
LOG: Final = "<root>/.log/lab/0.log"


def two_segments(journal: JournalFixture) -> list[Segment]:
    """Segments with the positions 0 to 5 and 6 to 11."""
    for _ in range(2):
        journal.append().seal()
    return journal.folder.segments()


def two_blocks(journal: JournalFixture) -> Path:
    """One complete log with the positions 0 to 11."""
    return journal.append(2).end()


def flip_byte(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    data[number] ^= 1
    path.write_bytes(data)


# Errors


def head_of_another_version(_journal: JournalFixture) -> None:
    block = bytearray(encode_block(entries(0, NOON)))
    block[8] += 1
    read_block_head(bytes(block))


def block_with_a_flipped_bit(_journal: JournalFixture) -> None:
    block = bytearray(encode_block(entries(0, NOON)))
    head = read_block_head(bytes(block))
    block[-1] ^= 1
    check_block(head, bytes(block))


def damaged_log(journal: JournalFixture) -> None:
    log = two_blocks(journal)
    journal.append()
    flip_byte(log, 100)
    list(Journal(journal.folder.root, "lab").records())


def log_under_another_name(journal: JournalFixture) -> None:
    log = two_blocks(journal).rename(journal.folder.log_file(3))
    seal_log(journal.folder, log)


def log_that_is_sealed_in_part(journal: JournalFixture) -> None:
    write_segment(journal.folder.hour(NOON), [to_arrow(encode_block(entries(6, NOON)))])
    seal_log(journal.folder, two_blocks(journal))


def damaged_segment(journal: JournalFixture) -> None:
    segment, _ = two_segments(journal)
    flip_byte(segment.frames, 50)
    verify_segment(segment)


def segment_without_its_frames(journal: JournalFixture) -> None:
    segment, _ = two_segments(journal)
    segment.frames.unlink()
    verify_segment(segment)


def frames_of_another_segment(journal: JournalFixture) -> None:
    segment = write_segment(journal.folder.hour(NOON), [to_arrow(encode_block(entries(0, NOON)[:1]))])
    other = write_segment(journal.folder.hour(NOON), [to_arrow(encode_block(entries(8, NOON)))])
    other.frames.rename(segment.frames)
    verify_segment(segment)


def segment_under_another_name(journal: JournalFixture) -> None:
    segment, _ = two_segments(journal)
    other = Segment(segment.hour, 0, 6)
    segment.control.rename(other.control)
    segment.frames.rename(other.frames)
    verify_segment(other)


def another_parquet_file(journal: JournalFixture) -> None:
    segment, _ = two_segments(journal)
    pq.write_table(pa.table({"position": [1]}), segment.control)
    read_footer(segment)


def missing_records(journal: JournalFixture) -> None:
    two_segments(journal)[0].control.unlink()
    list(Journal(journal.folder.root, "lab").records(5))


def damage_before_the_last_log(journal: JournalFixture) -> None:
    log = two_blocks(journal)
    journal.append().end()
    flip_byte(log, 100)
    recover(journal.folder)


def synced_log_that_was_cut_off(journal: JournalFixture) -> None:
    journal.append(2).sync()
    os.truncate(journal.end(), 100)
    recover(journal.folder)


def journal_that_begins_later(journal: JournalFixture) -> None:
    two_segments(journal)[0].control.unlink()
    recover(journal.folder)


def second_compaction(journal: JournalFixture) -> None:
    two_segments(journal)
    with exclusive_maintenance(journal.folder):
        compact_hour(journal.folder, journal.folder.hour(NOON))


def compaction_of_an_unsealed_hour(journal: JournalFixture) -> None:
    two_segments(journal)
    journal.append().end()
    compact_hour(journal.folder, journal.folder.hour(NOON))


def overlapping_segments(journal: JournalFixture) -> None:
    two_segments(journal)
    write_segment(journal.folder.hour(NOON), [to_arrow(encode_block(entries(8, NOON)))])
    compact_hour(journal.folder, journal.folder.hour(NOON))


def two_file_systems(_journal: JournalFixture) -> None:
    raise CannotExchange(Path("/one"), Path("/other"), "Invalid cross-device link")


def damaged_reader(journal: JournalFixture) -> None:
    register_reader(journal.folder, "pipeline", 3)
    (journal.folder.log / "readers" / "pipeline.json").write_bytes(b"{}")
    registered_positions(journal.folder)


def export_to_a_missing_folder(journal: JournalFixture) -> None:
    with complete_file(journal.folder.root / "nowhere" / "out"):
        pass


ERRORS: Final[dict[str, tuple[Provoke, str]]] = {
    "a block of another version": (head_of_another_version, "a block of version 2; this program reads version 1"),
    "no block": (lambda _: read_block_head(bytes(len(MAGIC)) * 30), "no block begins here"),
    "a flipped bit": (block_with_a_flipped_bit, "its checksum is wrong"),
    "a damaged log": (damaged_log, f"{LOG}: damaged at byte 0: its checksum is wrong"),
    "a log under another name": (
        log_under_another_name,
        "<root>/.log/lab/3.log: damaged at byte 0: position 3 is missing: the next one is 0",
    ),
    "a log that is sealed in part": (
        log_that_is_sealed_in_part,
        f"{LOG}: damaged at byte 0: of its positions 0 to 11 only some are sealed, in {HOUR}/6-11.control.parquet",
    ),
    "a damaged segment": (damaged_segment, f"{HOUR}/0-5.frames.parquet: its checksum is wrong"),
    "a segment without its frames": (segment_without_its_frames, f"{HOUR}/0-5.frames.parquet: it is missing"),
    "frames of another segment": (
        frames_of_another_segment,
        f"{HOUR}/0-0.frames.parquet: the control file knows of no frames",
    ),
    "a segment under another name": (
        segment_under_another_name,
        f"{HOUR}/0-6.control.parquet: its footer speaks of positions 0 to 5",
    ),
    "another Parquet file": (another_parquet_file, f"{HOUR}/0-5.control.parquet: its footer does not say what it is"),
    "missing records": (missing_records, "<root>: the journal of 'lab' has no records 5 to 5"),
    "damage before the last log": (
        damage_before_the_last_log,
        f"{LOG}: damaged at byte 0: its checksum is wrong; the blocks before it are whole: see mew journal verify",
    ),
    "a synced log that was cut off": (
        synced_log_that_was_cut_off,
        f"{LOG}: damaged at byte 0: a block of 657 bytes, of which 100 are here,"
        " which had been synced: see mew journal verify",
    ),
    "a journal that begins later": (
        journal_that_begins_later,
        "<root>: the journal of 'lab' has no record 0: the next one is 6",
    ),
    "a second compaction": (second_compaction, "another process maintains the journal of 'lab'"),
    "a compaction of an unsealed hour": (
        compaction_of_an_unsealed_hour,
        f"{HOUR} was left as it is: not all of its log is sealed",
    ),
    "overlapping segments": (
        overlapping_segments,
        f"{HOUR}/8-13.control.parquet: its range overlaps that of 6-11.control.parquet",
    ),
    "two file systems": (
        two_file_systems,
        "cannot exchange /one and /other: Invalid cross-device link; compaction needs it, and nothing was changed"
        " (both must lie on one file system, and it must know renameat2's RENAME_EXCHANGE)",
    ),
    "a damaged reader": (
        damaged_reader,
        "<root>/.log/lab/readers/pipeline.json: Object missing required field `position`;"
        " nothing is removed until this file is repaired or deleted",
    ),
    "a reader without a name": (
        lambda journal: register_reader(journal.folder, "../x", 0),
        "a reader's name has letters, digits, '.', '_' and '-', and no '.' first: not '../x'",
    ),
    "an export to a missing folder": (export_to_a_missing_folder, "<root>/nowhere/out: No such file or directory"),
    "an address without its scheme": (
        lambda _: parse_topic_url("a:9092/lab"),
        "expected kafka://host:port[,host:port]/topic, got 'a:9092/lab'",
    ),
    "an address without a port": (
        lambda _: parse_topic_url("kafka://a/lab"),
        "expected a host and a port such as broker:9092, got 'a'",
    ),
    "an address without a topic": (
        lambda _: parse_topic_url("kafka://a:9092"),
        "'kafka://a:9092' names no topic: expected kafka://host:port[,host:port]/topic",
    ),
    "an invalid topic": (
        lambda _: parse_topic_url("kafka://a:9092/lab/x"),
        "'lab/x' is no name of a topic: expected up to 249 letters, digits, `.`, `_` or `-`",
    ),
    "two topics": (
        lambda _: parse_topic_url("kafka://a:9092/lab", "den"),
        "the topic is 'lab' in 'kafka://a:9092/lab', and 'den' beside it",
    ),
}


def portable(text: str, journal: JournalFixture) -> str:
    """A sentence without the folder of the test and without the leading zeros of positions in file names."""
    return re.sub(r"\b0{10,}(?=\d)", "", text.replace(str(journal.folder.root), "<root>"))


@pytest.mark.parametrize(("provoke", "sentence"), ERRORS.values(), ids=ERRORS)
def test_an_error_of_the_journal_says_what_is_wrong(tmp_path: Path, provoke: Provoke, sentence: str) -> None:
    journal = JournalFixture(tmp_path)
    with pytest.raises(MewError) as raised:
        provoke(journal)
    assert portable(str(raised.value), journal) == sentence


# Problems that a verification reports


def torn_end(journal: JournalFixture) -> None:
    log = two_blocks(journal)
    os.truncate(log, log.stat().st_size - 1)


def damage_between_blocks(journal: JournalFixture) -> None:
    log = journal.append(3).end()
    flip_byte(log, log.stat().st_size // 2)


def renamed_log(journal: JournalFixture) -> None:
    two_blocks(journal).rename(journal.folder.log_file(3))


def missing_log(journal: JournalFixture) -> None:
    journal.append(2).sync()
    journal.end().unlink()


def hole(journal: JournalFixture) -> None:
    journal.append().seal()
    journal.next += 4
    journal.append().seal()


def unrecorded_positions(journal: JournalFixture) -> None:
    journal.append().seal()
    journal.next += 4
    journal.checkpoint()
    journal.seal()


def missing_beginning(journal: JournalFixture) -> None:
    two_segments(journal)[0].control.unlink()


def overlap(journal: JournalFixture) -> None:
    two_segments(journal)
    write_segment(journal.folder.hour(NOON), [to_arrow(encode_block(entries(8, NOON)))])


def time_that_decreases(journal: JournalFixture) -> None:
    journal.append()
    journal.time -= 10
    journal.append().end()


PROBLEMS: Final[dict[str, tuple[Provoke, tuple[str, ...]]]] = {
    "a torn end": (
        torn_end,
        (
            f"{LOG}: byte 657: the end of a block that was not written to its end:"
            " a block of 657 bytes, of which 656 are here",
        ),
    ),
    "damage between blocks": (
        damage_between_blocks,
        (
            f"{LOG}: byte 657: its checksum is wrong; records 6 to 11 are lost;"
            " 6 records after it are intact but cannot be read",
        ),
    ),
    "a renamed log": (renamed_log, ("<root>/.log/lab/3.log: byte 0: its first position is 0, and 3 should come here",)),
    "a missing log": (missing_log, (f"{LOG}: it is missing, and 1314 bytes of it had been synced",)),
    "a hole": (hole, (f"{HOUR}/10-15.control.parquet: records 6 to 9, which come before it, are missing",)),
    "unrecorded positions": (
        unrecorded_positions,
        (
            f"{HOUR}/10-10.control.parquet: records 6 to 9, which come before it, are missing;"
            " a checkpoint replaces them, because the gateway could not write them",
        ),
    ),
    "a missing beginning": (
        missing_beginning,
        ("<root>/space=lab: records 0 to 5 are missing, and no checkpoint replaces them",),
    ),
    "an overlap": (
        overlap,
        (
            f"{HOUR}/8-13.control.parquet: its positions 8 to 11 are in 6-11.control.parquet too",
            f"{HOUR}/8-13.frames.parquet: row 3: its time is before that of the record before it",
        ),
    ),
    "a time that decreases": (
        time_that_decreases,
        (f"{LOG}: byte 657: the time of record 6 is before that of the record before it",),
    ),
}


@pytest.mark.parametrize(("damage", "sentences"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_verification_says_what_is_damaged(tmp_path: Path, damage: Provoke, sentences: tuple[str, ...]) -> None:
    journal = JournalFixture(tmp_path)
    damage(journal)
    problems = verify_journal(journal.folder.root, "lab").problems
    assert tuple(portable(str(problem), journal) for problem in problems) == sentences
