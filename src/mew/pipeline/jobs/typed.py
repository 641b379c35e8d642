"""Which formats have a table of their own in a batch, and the rows that such a table lacks when it begins.

A format has one from the batch on in which it is first named in the settings (`BatchPlan.typed`), or by whose end it
has had more than 100,000 frames; there are at most 64, those that were named first, then the busiest. That is decided
by the plan, by the journal up to the plan's positions and by what the batch before remembered: any run of the batch
decides the same. What a table lacks is made of the rows of `frames`, whose contents are there to the byte, so
that it is the same as if the table had been there all along.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.compute as pc

from mew.pipeline.arrow import typed_of_file
from mew.pipeline.kernel import formats
from mew.pipeline.kernel.catalogue import CatalogFormat, Catalogue, StreamFormats
from mew.pipeline.kernel.typed import typed_schema, typed_table
from mew.pipeline.kernel.units import Unit, read
from mew.pipeline.lake import BatchPlan, Lake, ParquetPart, Progress, parts
from mew.pipeline.lookup.asking import query
from mew.pipeline.schemas import FRAMES, Table
from mew.protocol.records import FRAME

MOST_TABLES: Final = 64
HOT_FRAMES: Final = 100_000
"""Who has more has a table."""
REMEMBERED: Final = "/typed"
"""The part of a state that has it; no space has an empty name."""
COUNTS: Final = "/formats"
"""Behind a space's name: the part that has its frames by format."""
_decode_counts: Final = msgspec.json.Decoder(dict[str, int]).decode


class Remembered(msgspec.Struct, frozen=True):
    """What one batch tells the next."""

    asked: tuple[str, ...] = ()
    """As the plan had it: what is asked for later is looked for among all formats there ever were."""
    formats: tuple[CatalogFormat, ...] = ()
    """Those that have a table."""


class FillTask(msgspec.Struct, frozen=True):
    """Make typed rows of one file of `frames`."""

    batch: int
    tables: str
    """The folder of the lake's tables."""
    path: str
    formats: list[CatalogFormat]


class Filled(msgspec.Struct, frozen=True):
    """What was made, by table."""

    parts: dict[str, list[ParquetPart]]


def fill_tables(task: bytes) -> bytes:
    """`FillTask` to `Filled`."""
    asked = msgspec.msgpack.decode(task, type=FillTask)
    written: dict[str, list[ParquetPart]] = {}
    for format_, rows in typed_of_file(Path(asked.path), asked.formats):
        table = table_of(format_)
        folder = f"{asked.tables}/{table.name}"
        written.setdefault(table.name, []).extend(parts.write(table, rows, folder, name=f"{asked.batch}-typed"))
    return msgspec.msgpack.encode(Filled(written))


def table_of(format_: CatalogFormat) -> Table:
    """A format's own table."""
    return typed_table(formats.table_name(format_), typed_schema(format_))


def remembered(lake: Lake, last: Progress | None) -> Remembered:
    """What the last batch told; nothing where it was of a version that told it otherwise, or not at all."""
    told = None if last is None else lake.read_state(last.state, [REMEMBERED]).get(REMEMBERED)
    try:
        return Remembered() if told is None else msgspec.json.decode(told, type=Remembered)
    except msgspec.DecodeError:
        return Remembered()


class TypedTables:
    """The typed tables of one batch."""

    def __init__(
        self, lake: Lake, plan: BatchPlan, last: Progress | None, state: Mapping[str, bytes], *, from_scratch: bool
    ) -> None:
        """`state` is the state before the batch. If no row stays, all of it is decided again."""
        self._lake = lake
        self._plan = plan
        self._last = None if from_scratch else last
        before = remembered(lake, self._last)
        self._asked_before = before.asked
        self._chosen = {each.fingerprint: each for each in before.formats}
        self._begun = frozenset(self._chosen)
        self._passing = self._begun
        """Those whose rows the kernel makes as it passes."""
        self._known: dict[str, CatalogFormat] = {}
        self._counts = {
            name.removesuffix(COUNTS): Counter(_decode_counts(part))
            for name, part in state.items()
            if name.endswith(COUNTS)
        }

    @property
    def names(self) -> dict[str, str]:
        """By fingerprint, what the tables are called whose rows the kernel makes as it passes."""
        return {each: formats.table_name(self._chosen[each]) for each in self._passing}

    def look_ahead(self, catalogues: Iterable[Catalogue], units: Sequence[Unit]) -> None:
        """Before the frames are read: let the kernel make the rows of those that will have a table for sure.

        Nothing depends on it but the time that is saved.
        """
        of_space = {each.space: each.streams for each in catalogues}
        self._learn(of_space)
        self._add_hot(self._ahead(units, of_space))
        self._passing = frozenset(self._chosen)

    def settle(self, catalogues: Iterable[Catalogue], frames: Mapping[str, Mapping[str, int]]) -> None:
        """The frames were read: `frames` says by space how many there are of each format."""
        self._learn({each.space: each.streams for each in catalogues})
        for space, counts in frames.items():
            self._counts.setdefault(space, Counter()).update(counts)
        self._add_hot(Counter())

    def to_fill(self, passed: Sequence[ParquetPart], kept: Sequence[ParquetPart]) -> list[FillTask]:
        """What is to be made of rows of `frames`: those that the batch made, and those that it kept in a refresh.

        In an ordinary batch old rows are all there, and only tables that begin lack them.
        """
        chosen = self._chosen.values()
        late = [each for each in chosen if each.fingerprint not in self._passing]
        new = [each for each in chosen if each.fingerprint not in self._begun]
        folder = self._lake.table_folder(FRAMES.name).absolute()
        wanted = [(str(folder / part.path), late) for part in passed]
        wanted += [(str(folder / part.path), list(chosen)) for part in kept]
        if new and self._last is not None and not self._plan.refresh:
            wanted += [(file.path, new) for file in self._lake.reader().parts(FRAMES.name)]
        tables = str(self._lake.folder.absolute())
        return [FillTask(self._plan.batch, tables, path, of) for path, of in wanted if of]

    def commit(self, written: Mapping[str, Sequence[ParquetPart]]) -> dict[str, int]:
        """Commit every one of them, with its parts by table; the versions that have the batch."""
        versions = {}
        for format_ in sorted(self._chosen.values(), key=formats.table_name):
            table = table_of(format_)
            if format_.fingerprint not in self._begun:
                commit = self._lake.begin
            else:
                commit = self._lake.replace if self._plan.refresh else self._lake.commit
            versions[table.name] = commit(table, self._plan.batch, written.get(table.name, ()))
        return versions

    def kept(self) -> dict[str, bytes]:
        """The state of the next batch, in parts."""
        told = Remembered(self._plan.typed, tuple(self._chosen.values()))
        counts = {f"{space}{COUNTS}": msgspec.json.encode(each, order="sorted") for space, each in self._counts.items()}
        return {REMEMBERED: msgspec.json.encode(told), **counts}

    # In parts

    def _learn(self, of_space: Mapping[str, Mapping[str, StreamFormats]]) -> None:
        """Which formats there are, and which of these are asked for."""
        announced = {format_ for streams in of_space.values() for each in streams.values() for format_ in _of(each)}
        if self._plan.typed != self._asked_before:
            announced |= self._ever_announced()
        for format_ in sorted(announced, key=_order):
            if formats.typed_columns(format_):
                self._known.setdefault(format_.fingerprint, format_)
        for wanted in self._plan.typed:
            slug = formats.slug(wanted)
            self._add(each for each in self._known.values() if wanted == each.fingerprint or slug == each.slug)

    def _add(self, some: Iterable[CatalogFormat]) -> None:
        for each in some:
            if len(self._chosen) < MOST_TABLES:
                self._chosen.setdefault(each.fingerprint, each)

    def _add_hot(self, ahead: Counter[str]) -> None:
        """Those with many frames, the busiest first."""
        counts = sum(self._counts.values(), Counter(ahead))
        hot = sorted((-count, each) for each, count in counts.items() if count > HOT_FRAMES and each in self._known)
        self._add(self._known[fingerprint] for _, fingerprint in hot)

    def _ahead(self, units: Sequence[Unit], of_space: Mapping[str, Mapping[str, StreamFormats]]) -> Counter[str]:
        """By format, how many frames are to come at least: raw ones of streams with one format, by their ids alone."""
        most = max(sum(self._counts.values(), Counter[str]()).values(), default=0)
        found: Counter[str] = Counter()
        if most + sum(unit.last - unit.first + 1 for unit in units) <= HOT_FRAMES:
            return found  # None of them can get so far.
        for unit in units:
            streams = of_space[unit.space]
            for stream_id, count in _frames_by_stream(unit):
                known = _of(streams.get(stream_id, StreamFormats()))
                if len(known) == 1:
                    found[known[0].fingerprint] += count
        return found

    def _ever_announced(self) -> set[CatalogFormat]:
        """Formats of earlier batches that are asked for."""
        if self._last is None or not self._plan.typed:
            return set()
        listed = ", ".join(_text(word) for each in self._plan.typed for word in (each, formats.slug(each)))
        columns = "format_id, fingerprint, slug, mime_type, encode(schema)"
        sql = f"select distinct {columns} from formats where slug in ({listed}) or fingerprint in ({listed})"
        with query(self._lake, sql) as answer:
            return {CatalogFormat(*each) for each in answer}


def _of(stream: StreamFormats) -> tuple[CatalogFormat, ...]:
    """The formats of a stream, or the one that it means."""
    meant = None if stream.formats else formats.implied(stream)
    return stream.formats if meant is None else (meant,)


def _order(format_: CatalogFormat) -> tuple[str, str, str]:
    return format_.fingerprint, format_.format_id, format_.mime_type or ""


def _frames_by_stream(unit: Unit) -> Iterator[tuple[str, int]]:
    for rows in read(unit, ["event", "stream_id"]):
        frames = rows.filter(pc.equal(rows["event"], FRAME))
        for each in pc.value_counts(frames["stream_id"]).to_pylist():
            yield each["values"], each["counts"]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
