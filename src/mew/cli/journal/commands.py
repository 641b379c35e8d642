"""`mew journal …`: inspects, verifies, exports and compacts the journal of a space.

This module only parses options and prints results. `mew.journal` does the work.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Annotated, Final, Literal, ParamSpec

import msgspec
from cyclopts import App, Parameter

from mew.cli.common.errors import FAILED, CommandFailed, UsageError
from mew.cli.common.io import Progress, bar
from mew.cli.journal.options import JournalLocation, RecordOptions, journal_folder
from mew.journal import JournalError
from mew.journal.block_format import CorruptData
from mew.journal.export import RecordFilter, complete_file, last_records, record_to_json, write_jsonl
from mew.journal.layout import CONTROL_SUFFIX, FRAMES_SUFFIX, HOUR, JournalFolder
from mew.journal.reader import Journal, RecordsMissing
from mew.protocol.records import Record
from mew.protocol.timestamps import SECOND

app = App(name="journal", help="Inspect, verify and export the event journal of a space.", help_epilogue="")

_STDOUT: Final = Path("-")
_P = ParamSpec("_P")
_TOLD_EVERY: Final = 1000
_here = JournalLocation()
_all = RecordOptions()
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def _examples(*lines: str) -> str:
    return "\n".join(["Examples:", "", *(f"  mew journal {line}" for line in lines)])


@app.command(name="info", help_epilogue=_examples("info", "info --journal backup/journal --space lab --json"))
def info_command(*, place: JournalLocation = _here, json: _Flag = False) -> int:
    """Show a summary of a journal: positions, times, events, streams and files.

    Parameters
    ----------
    json
        Print the result as one JSON object.
    """
    from mew.cli.common.render import journal_summary
    from mew.journal.stats import collect_stats

    with bar("reading") as progress:
        stats = collect_stats(journal_folder(place), progress)
    print(_encoded(stats) if json else journal_summary(stats))
    return 0


@app.command(name="verify", help_epilogue=_examples("verify", "verify --journal backup/journal --json"))
def verify_command(*, place: JournalLocation = _here, json: _Flag = False) -> int:
    """Check every byte of a journal and list damaged files. Exit code 1 if anything is damaged.

    An incomplete last block after a crash is reported, but does not count as damage.

    Parameters
    ----------
    json
        Print the result as one JSON object.
    """
    from mew.cli.common.render import verification_text
    from mew.journal.verify import verify_journal as check

    folder = journal_folder(place)
    with bar("verifying") as progress:
        report = check(folder.root, folder.space, progress)
    print(_encoded(report) if json else verification_text(report))
    return FAILED if report.damaged else 0


@app.command(
    name="tail", help_epilogue=_examples("tail -n 50", "tail --follow --control", "tail -f --stream stream-1 --json")
)
def journal_tail_command(
    *,
    place: JournalLocation = _here,
    filters: RecordOptions = _all,
    number: Annotated[int, Parameter(alias="-n")] = 10,
    follow: Annotated[_Flag, Parameter(alias="-f")] = False,
    json: _Flag = False,
) -> int:
    """Show the latest records, one per line.

    Parameters
    ----------
    number
        The number of records to show.
    follow
        Continue with new records as they are written, until interrupted.
    json
        Print lines of JSON, in the format of `export`.
    """
    from mew.cli.common.render import record_line

    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    folder, record_filter = journal_folder(place), filters.record_filter()
    journal = Journal(folder.root, folder.space)
    records, following = last_records(journal, record_filter, max(number, 0))

    def show(record: Record) -> None:
        print(record_to_json(record).decode() if json else record_line(record, colours=colours), flush=follow)

    for record in records:
        show(record)
    if follow:
        for record in _followed(journal, record_filter, following):
            show(record)
    return 0


def _followed(journal: Journal, record_filter: RecordFilter, start: int) -> Iterator[Record]:
    """Yield the matching records as they are written, even before they are durable on disk."""
    for record in journal.follow(start, control=record_filter.only_control, synced_only=False):
        if record_filter.is_after_end(record):
            return
        if record_filter.selects(record):
            yield record


@app.command(name="files", help_epilogue=_examples("files --control", "files --sql | duckdb"))
def files_command(
    *, place: JournalLocation = _here, control: _Flag = False, frames: _Flag = False, sql: _Flag = False
) -> int:
    """Print the paths of the sealed Parquet files, one per line, for use in other programs.

    Parameters
    ----------
    control
        Only files that contain no frames and no stream data.
    frames
        Only files that contain frames and stream data.
    sql
        Print a DuckDB statement that reads the files, instead of their paths.
    """
    folder = journal_folder(place)
    endings = [ending for ending, selected in ((CONTROL_SUFFIX, control), (FRAMES_SUFFIX, frames)) if selected] or [
        CONTROL_SUFFIX,
        FRAMES_SUFFIX,
    ]
    if sql:
        print(_statement(folder, endings))
        return 0
    sealed = folder.segments()
    for path in (path for segment in sealed for path in (segment.control, segment.frames)):
        if path.name.endswith(tuple(endings)) and path.exists():
            print(path.absolute())
    if not sealed:
        print(f"mew: nothing is sealed yet in space {folder.space!r}: its records are in {folder.log}", file=sys.stderr)
    return 0


def _statement(folder: JournalFolder, endings: list[str]) -> str:
    """Return a statement that reads every record once, even if files are sealed or compacted in the meantime."""
    # A path may contain special characters of glob patterns or SQL strings.
    sealed = "".join(
        f"[{character}]" if character in "[*?" else character for character in str(folder.sealed.absolute())
    )
    globs = ", ".join("'" + f"{sealed}/*/*/*{ending}".replace("'", "''") + "'" for ending in endings)
    return f"SELECT * FROM read_parquet([{globs}], hive_partitioning = true) ORDER BY position;"


@app.command(
    name="export",
    help_epilogue=_examples(
        "export -o lab.jsonl",
        "export --control --since 1h | jq .kind",
        "export --to mcap -o lab.mcap --stream stream-1",
    ),
)
def journal_export_command(
    *,
    to: Literal["jsonl", "mcap"] = "jsonl",
    output: Annotated[Path, Parameter(alias="-o", allow_leading_hyphen=True)] = _STDOUT,
    place: JournalLocation = _here,
    filters: RecordOptions = _all,
) -> int:
    """Export records to a file in another format.

    `jsonl` writes one line of JSON per record. `mcap` writes an MCAP file with one channel per stream and writer. The
    file appears when it is complete.

    Parameters
    ----------
    to
        The format; by default jsonl.
    output
        The file to write; by default -, standard output, which supports only jsonl.
    """
    folder, record_filter = journal_folder(place), filters.record_filter()
    journal = Journal(folder.root, folder.space)
    if to == "mcap" and output == _STDOUT:
        raise UsageError("an MCAP file cannot be written to standard output: give a file with --output")
    write = _mcap if to == "mcap" else _jsonl
    read: list[int] = []
    try:
        with bar("exporting") as progress, ExitStack() as stack:
            file = sys.stdout.buffer if output == _STDOUT else stack.enter_context(complete_file(output))
            count = write(journal, record_filter, _tracked(journal, record_filter, read, progress), file)
    except (CorruptData, RecordsMissing) as problem:
        before = f"; use --through {read[-1]} to export the records before it" if read and output != _STDOUT else ""
        raise CommandFailed(f"{problem}{before}") from None
    if output != _STDOUT:
        print(f"wrote {count:,} records to {output}", file=sys.stderr)
    return 0


def _jsonl(_journal: Journal, record_filter: RecordFilter, records: Iterable[Record], file: IO[bytes]) -> int:
    return write_jsonl(filter(record_filter.selects, records), file)


def _mcap(journal: Journal, record_filter: RecordFilter, records: Iterable[Record], file: IO[bytes]) -> int:
    from mew.journal.export_mcap import write_mcap

    return write_mcap(journal, record_filter, records, file)


def _tracked(journal: Journal, record_filter: RecordFilter, read: list[int], progress: Progress) -> Iterator[Record]:
    """Yield the records in the range. Stores the position of the last one in `read` and updates the progress bar."""
    begin = max(record_filter.start_position(journal), journal.first or 0)
    end = min(position for position in (journal.last or 0, record_filter.last) if position is not None)
    for number, record in enumerate(record_filter.candidates(journal)):
        if number % _TOLD_EVERY == 0:
            progress(record.position - begin, max(end - begin + 1, 1))
        read[:] = [record.position]
        yield record


@app.command(name="compact", help_epilogue=_examples("compact", "compact --journal backup/journal"))
def journal_compact_command(*, place: JournalLocation = _here) -> int:
    """Merge the small files of each finished hour into large ones. A gateway does this automatically."""
    from mew.journal.compaction import TRASH_HOURS, CompactionDeferred, compact_hour, empty_trash, hours_to_compact
    from mew.journal.layout import segments_in

    folder, now = journal_folder(place), int(time.time() * SECOND)
    hours = hours_to_compact(folder, now)
    failed = False
    with bar("compacting") as progress:
        for number, hour in enumerate(hours):
            progress(number, len(hours))
            before = len(segments_in(hour))
            try:
                after = len(compact_hour(folder, hour))
                print(f"{hour.parent.name}/{hour.name}: compacted {before} segments into {after}")
            except JournalError as problem:
                failed = True
                print(f"mew: {problem}", file=sys.stderr)
    with suppress(CompactionDeferred):
        empty_trash(folder, now - TRASH_HOURS * HOUR)
    if not hours:
        print("nothing to compact")
    return FAILED if failed else 0


def _encoded(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


app.command(
    "mew.cli.journal.ship:ship_command",
    name="ship",
    help="Ship the journal to a Kafka topic as it is written, until interrupted.",
    help_epilogue=_examples(
        "ship --to kafka://broker:9092/lab", "ship --journal backup/journal --to kafka://a:9092,b:9092/lab --once"
    ),
)
