"""`mew journal …`: look into the record of a space, check it, take it elsewhere, tidy it.

Must not know how any of that is done.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from typing import IO, Annotated, Final, Literal, ParamSpec

import msgspec
from cyclopts import App, Parameter

from mew.cli import FAILED
from mew.cli.common.io import Progress, bar
from mew.cli.journal.options import Filters, Place, folder_of
from mew.journal.block_format import Damaged
from mew.journal.export import CannotExport, Wanted, last_of, to_json, whole_file, write_jsonl
from mew.journal.layout import CONTROL, FRAMES, HOUR, SECOND, Folder
from mew.journal.reader import Journal, Missing
from mew.protocol.records import Record

app = App(
    name="journal", help="Look into the journal of a space: everything that happened in it, in order.", help_epilogue=""
)

STDOUT: Final = Path("-")
TRASH_HOURS: Final = 1
"""How long those that still read what compaction took away may go on."""
_P = ParamSpec("_P")
_TOLD_EVERY: Final = 1000
_here = Place()
_all = Filters()
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def _examples(*lines: str) -> str:
    return "\n".join(["Examples:", "", *(f"  mew journal {line}" for line in lines)])


def _damage_told(command: Callable[_P, int]) -> Callable[_P, int]:
    """A journal that cannot be read is no mistake of whoever asked: that is told in a line, and exit code 1."""

    @wraps(command)
    def told(*arguments: _P.args, **named: _P.kwargs) -> int:
        try:
            return command(*arguments, **named)
        except BrokenPipeError:
            raise
        except (Damaged, Missing) as problem:
            print(f"mew: {problem}", file=sys.stderr)
        except OSError as problem:
            where = "" if problem.filename is None else f"{problem.filename}: "
            print(f"mew: {where}{problem.strerror or problem}", file=sys.stderr)
        return FAILED

    return told


@app.command(help_epilogue=_examples("info", "info --journal backup/journal --space lab --json"))
@_damage_told
def info(*, place: Place = _here, json: _Flag = False) -> int:
    """Say what a journal holds: positions, times, events, streams, files.

    Parameters
    ----------
    json
        One object of JSON instead of lines to read.
    """
    from mew.cli.common.render import described
    from mew.journal.stats import look_into

    with bar("reading") as progress:
        found = look_into(folder_of(place), progress)
    print(_encoded(found) if json else described(found))
    return 0


@app.command(help_epilogue=_examples("verify", "verify --journal backup/journal --json"))
@_damage_told
def verify(*, place: Place = _here, json: _Flag = False) -> int:
    """Check every byte of a journal, and say what is damaged and where; exit code 1 if anything is.

    What a crash left of the last block is told, and is no damage.

    Parameters
    ----------
    json
        One object of JSON instead of lines to read.
    """
    from mew.cli.common.render import verdict
    from mew.journal.verify import verify as check

    folder = folder_of(place)
    with bar("verifying") as progress:
        report = check(folder.root, folder.space, progress)
    print(_encoded(report) if json else verdict(report))
    return FAILED if report.damaged else 0


@app.command(help_epilogue=_examples("tail -n 50", "tail --follow --control", "tail -f --stream stream-1 --json"))
@_damage_told
def tail(
    *,
    place: Place = _here,
    filters: Filters = _all,
    number: Annotated[int, Parameter(alias="-n")] = 10,
    follow: Annotated[_Flag, Parameter(alias="-f")] = False,
    json: _Flag = False,
) -> int:
    """Show the last records, one on a line.

    Parameters
    ----------
    number
        How many.
    follow
        Go on with each record as it is written, until interrupted.
    json
        Lines of JSON, as `export` writes them.
    """
    from mew.cli.common.render import readable

    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    folder, wanted = folder_of(place), filters.wanted()
    journal = Journal(folder.root, folder.space)
    found, following = last_of(journal, wanted, max(number, 0))

    def show(record: Record) -> None:
        print(to_json(record).decode() if json else readable(record, colours=colours), flush=follow)

    for record in found:
        show(record)
    if follow:
        for record in _followed(journal, wanted, following):
            show(record)
    return 0


def _followed(journal: Journal, wanted: Wanted, start: int) -> Iterator[Record]:
    """What is wanted of all that comes; what is shown to people need not be on the disk."""
    for record in journal.follow(start, control=wanted.only_control, synced_only=False):
        if wanted.is_over(record):
            return
        if wanted.has(record):
            yield record


@app.command(help_epilogue=_examples("files --control", "files --sql | duckdb"))
@_damage_told
def files(*, place: Place = _here, control: _Flag = False, frames: _Flag = False, sql: _Flag = False) -> int:
    """Name the Parquet files of what is sealed, one on a line, for other programs to read.

    Parameters
    ----------
    control
        Only files without frames and stream data.
    frames
        Only files of frames and stream data.
    sql
        A statement for DuckDB that reads them, instead of their names.
    """
    folder = folder_of(place)
    endings = [ending for ending, wanted in ((CONTROL, control), (FRAMES, frames)) if wanted] or [CONTROL, FRAMES]
    if sql:
        print(_statement(folder, endings))
        return 0
    sealed = folder.segments()
    for path in (path for segment in sealed for path in (segment.control, segment.frames)):
        if path.name.endswith(tuple(endings)) and path.exists():
            print(path.absolute())
    if not sealed:
        print(f"mew: nothing of {folder.space!r} is sealed yet: its records are in {folder.log}", file=sys.stderr)
    return 0


def _statement(folder: Folder, endings: list[str]) -> str:
    """Every record once, whatever is sealed or compacted meanwhile."""
    # A path may hold what a glob or a string of SQL takes for its own.
    sealed = "".join(f"[{each}]" if each in "[*?" else each for each in str(folder.sealed.absolute()))
    globs = ", ".join("'" + f"{sealed}/*/*/*{ending}".replace("'", "''") + "'" for ending in endings)
    return f"SELECT * FROM read_parquet([{globs}], hive_partitioning = true) ORDER BY position;"


@app.command(
    help_epilogue=_examples(
        "export -o lab.jsonl",
        "export --control --since 1h | jq .kind",
        "export --to mcap -o lab.mcap --stream stream-1",
    )
)
@_damage_told
def export(
    *,
    to: Literal["jsonl", "mcap"] = "jsonl",
    output: Annotated[Path, Parameter(alias="-o", allow_leading_hyphen=True)] = STDOUT,
    place: Place = _here,
    filters: Filters = _all,
) -> int:
    """Write records to a file of another format, which appears once it is whole.

    Lines of JSON, one for each record, or MCAP with a channel for each stream and writer.

    Parameters
    ----------
    to
        The format.
    output
        The file; - for standard output, which takes only lines of JSON.
    """
    folder, wanted = folder_of(place), filters.wanted()
    journal = Journal(folder.root, folder.space)
    if to == "mcap" and output == STDOUT:
        raise CannotExport("an MCAP file cannot be written to standard output: name one with --output")
    write = _mcap if to == "mcap" else _jsonl
    read: list[int] = []
    try:
        with bar("exporting") as progress, ExitStack() as stack:
            file = sys.stdout.buffer if output == STDOUT else stack.enter_context(whole_file(output))
            count = write(journal, wanted, _tracked(journal, wanted, read, progress), file)
    except (Damaged, Missing) as problem:
        before = f"; --through {read[-1]} exports what is before it" if read and output != STDOUT else ""
        print(f"mew: {problem}{before}", file=sys.stderr)
        return FAILED
    if output != STDOUT:
        print(f"{count:,} records in {output}", file=sys.stderr)
    return 0


def _jsonl(_journal: Journal, wanted: Wanted, records: Iterable[Record], file: IO[bytes]) -> int:
    return write_jsonl(filter(wanted.has, records), file)


def _mcap(journal: Journal, wanted: Wanted, records: Iterable[Record], file: IO[bytes]) -> int:
    from mew.journal.export_mcap import write_mcap

    return write_mcap(journal, wanted, records, file)


def _tracked(journal: Journal, wanted: Wanted, read: list[int], progress: Progress) -> Iterator[Record]:
    """All records that could be wanted; `read` gets the position of the last, and the bar follows them."""
    begin = max(wanted.begin(journal), journal.first or 0)
    end = min(each for each in (journal.last or 0, wanted.last) if each is not None)
    for number, record in enumerate(wanted.range_of(journal)):
        if number % _TOLD_EVERY == 0:
            progress(record.position - begin, max(end - begin + 1, 1))
        read[:] = [record.position]
        yield record


@app.command(help_epilogue=_examples("compact", "compact --journal backup/journal"))
@_damage_told
def compact(*, place: Place = _here) -> int:
    """Make few large files of the many small ones of every hour that is over, as the gateway does by itself."""
    from mew.journal.compaction import Postponed, closed_hours, compact, empty_trash
    from mew.journal.layout import segments_in

    folder, now = folder_of(place), int(time.time() * SECOND)
    hours = closed_hours(folder, now)
    failed = False
    with bar("compacting") as progress:
        for number, hour in enumerate(hours):
            progress(number, len(hours))
            before = len(segments_in(hour))
            try:
                after = len(compact(folder, hour))
                print(f"{hour.parent.name}/{hour.name}: {before} segments are now {after}")
            except (Damaged, Postponed) as problem:
                failed = True
                print(f"mew: {problem}", file=sys.stderr)
    with suppress(Postponed):
        empty_trash(folder, now - TRASH_HOURS * HOUR)
    if not hours:
        print("nothing to compact")
    return FAILED if failed else 0


def _encoded(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


app.command(
    "mew.cli.journal.ship:ship",
    name="ship",
    help="Send the journal to a topic of Kafka as it is written, until interrupted.",
    help_epilogue=_examples(
        "ship --to kafka://broker:9092/lab", "ship --journal backup/journal --to kafka://a:9092,b:9092/lab --once"
    ),
)
