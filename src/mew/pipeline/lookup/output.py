"""Answers as text: a table for people, lines of JSON or CSV for programs.

Asks nothing. In a table whatever could move a cursor is shown as its number: the words are other people's.
"""

import base64
import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from itertools import islice
from typing import Any, Final, Protocol, TextIO

SHOWN_ROWS: Final = 1000
SHOWN_LETTERS: Final = 500
_WIDEST: Final = 10_000
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")


class ResultColumns(Protocol):
    """An answer, whichever engine gave it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What its columns are called."""
        ...

    @property
    def types(self) -> tuple[str, ...]:
        """Their types, as DuckDB calls them."""
        ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Its rows, as they come."""
        ...


def write(answer: ResultColumns, out: TextIO, *, form: str = "table") -> int:
    """Write an answer in one of `FORMS`; how many rows there were to show."""
    if form not in FORMS:
        raise ValueError(f"{form!r} is no form of output: {', '.join(FORMS)}")
    return FORMS[form](answer, out)


def _json(answer: ResultColumns, out: TextIO) -> int:
    """A line a row, an object each; of columns with the same name the later ones are numbered."""
    names = different(answer.columns)
    count = 0
    for row in answer:
        line = {name: plain(value) for name, value in zip(names, row, strict=True)}
        out.write(json.dumps(line, ensure_ascii=False) + "\n")
        count += 1
    return count


def _csv(answer: ResultColumns, out: TextIO) -> int:
    """Nothing for what is absent; lists and structures as JSON."""
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(answer.columns)
    count = 0
    for row in answer:
        lines.writerow(["" if value is None else _flat(value) for value in row])
        count += 1
    return count


def _table(answer: ResultColumns, out: TextIO) -> int:
    """No more rows than anybody would read."""
    from rich.console import Console  # noqa: PLC0415 - programs do without
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table()
    for name, of in zip(answer.columns, answer.types, strict=True):
        is_number = of.partition("(")[0].removeprefix("U") in _NUMBERS
        table.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    rows: Iterator[tuple[Any, ...]] = iter(answer)
    count = 0
    for row in islice(rows, SHOWN_ROWS):
        table.add_row(*(Text(_shown(value)) for value in row))
        count += 1
    # Not a terminal: the natural width.
    console = Console(file=out, width=None if out.isatty() else _WIDEST)
    if answer.columns:
        console.print(table)
    if next(rows, None) is not None:
        console.print(f"the first {SHOWN_ROWS} rows; JSON and CSV give all", style="dim")
    return count


FORMS: Final[dict[str, Callable[[ResultColumns, TextIO], int]]] = {"table": _table, "json": _json, "csv": _csv}
"""By name."""


def plain(value: Any) -> Any:
    """A value as JSON has it; bytes in base 64, times in UTC."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, date | clock_time) else str(value)


def _instant(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _flat(value: Any) -> Any:
    if isinstance(value, float):
        return value
    said = plain(value)
    if isinstance(said, list | dict | bool):
        return json.dumps(said, ensure_ascii=False)
    return said


def _shown(value: Any) -> str:
    if value is None:
        return ""
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(_flat(value))
    cut = text if len(text) <= SHOWN_LETTERS else text[:SHOWN_LETTERS] + "…"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut)


def different(names: Sequence[str]) -> list[str]:
    """Names for columns that have the same: the later ones are numbered."""
    found: list[str] = []
    for name in names:
        number, new = 1, name
        while new in found:
            number += 1
            new = f"{name}_{number}"
        found.append(new)
    return found
