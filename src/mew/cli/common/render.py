"""Formats a journal as text for people: one line per record, and a summary of its contents.

Writes nothing. Text of participants is shown without characters that could move the cursor.
"""

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from mew.protocol.raw_json import split_json
from mew.protocol.records import CHECKPOINT, Record
from mew.protocol.timestamps import rfc3339

if TYPE_CHECKING:
    from mew.journal.stats import JournalStats
    from mew.journal.verify import VerificationReport


_SHOWN_BYTES: Final = 200
_SHOWN_NAMES: Final = 10
_RESET, _FAINT = "\x1b[0m", "\x1b[2m"
_COLOURS: Final = {
    "envelope": "\x1b[32m",
    "consumed": "\x1b[32m",
    "frame": "\x1b[36m",
    "rejected": "\x1b[31m",
    "frame_rejected": "\x1b[31m",
    "gap": "\x1b[33m",
}
"""Colors by event. Events about the space itself are blue."""
_OTHER: Final = "\x1b[34m"
_SORTS: Final = {"damage": "damaged", "torn": "truncated end", "unrecorded": "unrecorded"}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_THOUSAND: Final = 1000
_TIME_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def record_line(record: Record, *, colours: bool) -> str:
    """Return one line for a record."""
    about = [
        record.kind,
        record.stream_id if record.frame_number is None else f"{record.stream_id}#{record.frame_number}",
        record.reason,
    ]
    text = " ".join(printable(part) for part in about if part)
    event = f"{record.event:<9}"
    position, time = f"{record.position:>8}", rfc3339(record.time)
    if colours:
        event = f"{_COLOURS.get(record.event, _OTHER)}{event}{_RESET}"
        position, time = f"{_FAINT}{position}{_RESET}", f"{_FAINT}{time}{_RESET}"
    line = f"{position} {time} {event} {printable(record.participant):<16} {text}"
    excerpt = _excerpt(record)
    return f"{line} {excerpt}".rstrip()


def _excerpt(record: Record) -> str:
    """Return the beginning of the contents; for an envelope only its payload, as the columns show the rest."""
    payload = record.payload if record.envelope_id is None else _payload(record.payload)
    text = printable(payload[:_SHOWN_BYTES].decode(errors="backslashreplace"))
    return f"{text}… ({human_size(len(payload))})" if len(payload) > _SHOWN_BYTES else text


def _payload(envelope: bytes) -> bytes:
    try:
        return split_json(envelope).get("payload", b"")
    except msgspec.MsgspecError:
        return envelope


def printable(text: str) -> str:
    """Return the text with each unprintable character replaced by its escape sequence."""
    return (
        text
        if text.isprintable()
        else "".join(character if character.isprintable() else _escaped(character) for character in text)
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def human_size(count: int) -> str:
    """Return a number of bytes in a readable unit."""
    amount, unit = float(count), 0
    while amount >= _THOUSAND and unit < len(_UNITS) - 1:
        amount, unit = amount / _THOUSAND, unit + 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def human_duration(seconds: float) -> str:
    """Return a time span in its two largest units: `0.41 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    count = round(seconds)
    for (large, large_unit), (small, small_unit) in pairwise(_TIME_UNITS):
        if count >= large:
            more = (count % large) // small
            return f"{count // large} {large_unit}" + (f" {more} {small_unit}" if more else "")
    return f"{count} s"


def journal_summary(info: "JournalStats") -> str:
    """Return a summary of a journal, one line per item."""
    lines = [("space", info.space), ("journal", str(info.journal))]
    if info.since is None or info.until is None:
        lines.append(("records", "none"))
    else:
        lines += [
            ("records", f"{info.records:,} (positions {info.first:,} to {info.last:,})"),
            ("from", info.since),
            ("to", info.until),
            ("events", _named(info.events)),
            ("streams", _named(info.streams)),
        ]
    lines += [
        (
            "segments",
            f"{info.segments.count:,}, {info.compacted:,} of them compacted, {human_size(info.segments.bytes)}",
        ),
        ("logs", f"{info.logs.count:,}, {human_size(info.logs.bytes)}"),
        ("checkpoints", _checkpoints(info)),
        ("epochs", f"{len(info.epochs):,}" + (f", the last {printable(info.epochs[-1])}" if info.epochs else "")),
    ]
    return "\n".join(f"{name:<12}{text}" for name, text in lines)


def _named(counts: Counter[str]) -> str:
    """Return names and counts as text, the most frequent first."""
    names = [f"{printable(name)} {count:,}" for name, count in counts.most_common(_SHOWN_NAMES)]
    more = len(counts) - len(names)
    return ", ".join([*names, f"and {more:,} more"] if more else names) or "none"


def _checkpoints(info: "JournalStats") -> str:
    count = info.events[CHECKPOINT]
    return "none" if info.last_checkpoint is None else f"{count:,}, the last at position {info.last_checkpoint:,}"


def verification_text(report: "VerificationReport") -> str:
    """Return the result of a verification as text, the problems first."""
    lines = [f"{_SORTS[problem.sort]}: {problem}" for problem in report.problems]
    if report.first is None or report.last is None:
        lines.append(f"{report.space}: no records")
        return "\n".join(lines)
    files = f"{report.segments:,} segments and {report.logs:,} logs ({human_size(report.bytes)})"
    word = "damaged" if report.damaged else "intact"
    records = f"{report.records:,} records from position {report.first:,} to {report.last:,} in {files}"
    return "\n".join([*lines, f"{report.space}: {word}: {records}"])
