"""The stitch's one function: summaries of units in order, and what was known before, become rows and a new state.

Pure (pipeline, Windows and gaps across edges). A gap, or the time between two frames, that reaches over the edge of a
unit belongs to the window of the frame that reveals it, like every other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from mew.errors import MewError
from mew.pipeline import schemas
from mew.pipeline.kernel.summary import (
    Probe,
    Stray,
    StreamEdge,
    Summary,
    UnexpectedFrames,
    WindowPartial,
    WriterTotals,
    unpack,
)
from mew.pipeline.kernel.windows import ROW_SCHEMA
from mew.pipeline.stitch.activity import ControlActivity
from mew.pipeline.stitch.minutes import Minutes
from mew.pipeline.stitch.state import STITCH_VERSION, State, StreamState, WriterState, decode_state, encode_state
from mew.pipeline.stitch.windows import ACTIVITY_SCHEMA, OpenWindows, window_rows, with_open

_GAP_SCHEMA = schemas.SEQUENCE_GAPS.schema


class OutOfOrder(MewError):
    """Summaries that do not follow each other, or what was stitched before."""


class MergeTarget(msgspec.Struct, frozen=True):
    """Where a batch ends: the position and the time of its last record, of whatever kind."""

    space: str
    position: int
    time: int
    floor: int = 0
    """The batch's first position: nothing is to be had between the batch before, or the beginning, and there."""


class Totals(msgspec.Struct, frozen=True):
    """What a stream carried, from its first frame to the end of the batch."""

    frames: int
    """Raw ones."""
    data: int
    """`stream/data`."""
    bytes: int
    invalid: int
    writers: tuple[str, ...]
    """Who wrote, in the order of their names."""
    last_number: int
    """The gateway's count."""
    last_time: int


@dataclass(frozen=True)
class Stitched:
    """What came of a batch."""

    state: bytes
    sequence_gaps: pa.Table
    stream_activity: pa.Table
    """The windows that are over since the last batch, and with `open` those that are not."""
    participant_activity: pa.Table
    """The same."""
    totals: dict[str, Totals]
    """Of every stream that had a frame, and was open at some time in the batch."""
    numbers: dict[str, int]
    """The last frame's number of each stream, before the batch; of none after which frames may be lost."""
    complete: bool
    """Whether every record of the space is known, so that a stream without a number had no frame."""
    probes: tuple[Probe, ...]
    """What changed of these numbers, from one probe to the next; in order."""
    unauthorised: UnexpectedFrames
    misnumbered: UnexpectedFrames


def merge(
    state: bytes | None,
    summaries: Sequence[Summary],
    control: ControlActivity,
    until: MergeTarget,
    ended: Collection[str] = (),
) -> Stitched:
    """The rows of a batch, whose units' summaries these are, in order; `OutOfOrder` where they are not.

    Streams that have `ended` in the batch are forgotten behind it: no stream gets their ids, and none of their frames
    is to come.
    """
    stitching = _Stitching(state, until)
    for summary in summaries:
        stitching.add(summary)
    return stitching.done(control, ended)


class _Stitching:
    """Goes through the units of a batch."""

    def __init__(self, state: bytes | None, until: MergeTarget) -> None:
        self._until = until
        known = State(STITCH_VERSION, until.floor - 1, 0, until.floor == 0) if state is None else decode_state(state)
        self._state = known
        self._at = known.position
        if until.floor > known.position + 1:
            self._pass_hole()
        if until.position < self._at:
            raise OutOfOrder(f"{until.space!r} is stitched up to {self._at}, which is behind {until.position}")
        self._numbers = {
            stream_id: stream.last_number for stream_id, stream in known.streams.items() if not stream.uncertain
        }
        self._complete = known.complete
        self._windows = OpenWindows(known.windows)
        self._minutes = Minutes(known.minutes)
        self._closed: list[WindowPartial] = []
        self._final: list[pa.Table] = []
        self._gaps: list[pa.Table] = []
        self._probes: dict[int, dict[str, int]] = {}
        self._unauthorised = self._misnumbered = UnexpectedFrames()

    def add(self, summary: Summary) -> None:
        """The next unit."""
        if summary.first <= self._at or summary.last > self._until.position:
            raise OutOfOrder(f"a unit from {summary.first} to {summary.last} cannot follow {self._at}")
        self._at = summary.last
        if summary.last_time is None:
            return
        self._final.append(unpack(summary.windows, ROW_SCHEMA))
        self._gaps.append(unpack(summary.gaps, _GAP_SCHEMA))
        for partial in summary.partials:
            self._windows.add(partial)
        for edge in summary.streams:
            self._join(edge)
        for totals in summary.writers:
            self._count(totals)
        self._minutes.add_frames(summary.minutes)
        for probe in summary.probes:
            self._probes.setdefault(probe.position, {}).update(probe.numbers)
        self._unauthorised = self._unauthorised.with_more(summary.unauthorised)
        self._misnumbered = self._misnumbered.with_more(summary.misnumbered)
        self._closed += self._windows.close(summary.last_time)

    def _pass_hole(self) -> None:
        """Records are lost: what comes behind them reveals nothing by what was before."""
        self._state.complete = False
        for stream in self._state.streams.values():
            stream.uncertain = True
            for writer in stream.writers.values():
                writer.sequence = None

    def _join(self, edge: StreamEdge) -> None:
        """What the first frame of a stream in a unit reveals."""
        known = self._state.streams.get(edge.stream_id)
        if known is not None and known.uncertain:
            expected = edge.first_number
        elif known is not None:
            wait = max(edge.first_time - known.last_time, 0)
            self._windows.add_wait(edge.stream_id, edge.first_time, wait)
            expected = known.last_number + 1
        else:
            expected = 1 if self._state.complete else edge.first_number
        if edge.first_number != expected:
            stray = Stray(edge.first_position, edge.stream_id, edge.first_writer, edge.first_number, expected)
            self._misnumbered = self._misnumbered.with_more(UnexpectedFrames(1, (stray,)))
        writers = {} if known is None else known.writers
        self._state.streams[edge.stream_id] = StreamState(edge.last_time, edge.last_number, writers)

    def _count(self, totals: WriterTotals) -> None:
        """What a writer sent to a stream, and what its first number reveals."""
        writer = self._state.streams[totals.stream_id].writers.setdefault(totals.writer, WriterState())
        writer.frames += totals.frames
        writer.data += totals.data
        writer.bytes += totals.bytes
        writer.invalid += totals.invalid
        if totals.first_sequence is None:
            return
        if writer.sequence is not None and totals.first_sequence > writer.sequence + 1:
            self._miss(totals, writer.sequence + 1)
        writer.sequence = totals.last_sequence

    def _miss(self, totals: WriterTotals, first: int) -> None:
        last, time = totals.first_sequence, totals.first_sequence_time
        assert last is not None
        assert time is not None
        row: list[Any] = [
            self._until.space,
            totals.stream_id,
            totals.writer,
            totals.first_sequence_position,
            time,
            first,
            last - 1,
            last - first,
        ]
        arrays = [pa.array([value], field.type) for value, field in zip(row, _GAP_SCHEMA, strict=True)]
        self._gaps.append(pa.Table.from_arrays(arrays, schema=_GAP_SCHEMA))
        self._windows.add_missing(totals.stream_id, time, last - first)

    def done(self, control: ControlActivity, ended: Collection[str]) -> Stitched:
        """All rows, and the state of the next batch."""
        until, state = self._until, self._state
        self._closed += self._windows.close(until.time)
        self._minutes.add_control(control)
        rest = self._windows.rest()
        final = pa.concat_tables([*self._final, window_rows(until.space, self._closed)])
        activity = [
            with_open(
                final.sort_by([("stream_id", "ascending"), ("seconds", "ascending"), ("start", "ascending")]),
                is_open=False,
                schema=ACTIVITY_SCHEMA,
            ),
            with_open(
                window_rows(until.space, sorted(rest, key=lambda each: (each.stream_id, each.seconds, each.start))),
                is_open=True,
                schema=ACTIVITY_SCHEMA,
            ),
        ]
        minutes = self._minutes.rows(until.space, until.time)
        new = State(
            STITCH_VERSION,
            until.position,
            until.time,
            state.complete,
            {stream_id: stream for stream_id, stream in state.streams.items() if stream_id not in ended},
            rest,
            self._minutes.rest(until.time),
        )
        return Stitched(
            state=encode_state(new),
            sequence_gaps=pa.concat_tables([_GAP_SCHEMA.empty_table(), *self._gaps]).sort_by("position"),
            stream_activity=pa.concat_tables(activity),
            participant_activity=minutes,
            totals={stream_id: _totals(state.streams[stream_id]) for stream_id in sorted(state.streams)},
            numbers=self._numbers,
            complete=self._complete,
            probes=tuple(Probe(position, self._probes[position]) for position in sorted(self._probes)),
            unauthorised=self._unauthorised,
            misnumbered=self._misnumbered,
        )


def _totals(stream: StreamState) -> Totals:
    writers = stream.writers.values()
    return Totals(
        sum(each.frames for each in writers),
        sum(each.data for each in writers),
        sum(each.bytes for each in writers),
        sum(each.invalid for each in writers),
        tuple(sorted(stream.writers)),
        stream.last_number,
        stream.last_time,
    )
