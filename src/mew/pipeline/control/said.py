"""Envelopes as rows: the parts of their text that have a column, kept to the byte.

No payload is encoded again: numbers of any length, the order of keys and whatever else its sender wrote stay.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline.control.verdicts import EnvelopeVerdict
from mew.pipeline.schemas import ENVELOPES, TEXTS
from mew.protocol.records import CONSUMED, ENVELOPE, REJECTED, Record

SPOKEN: Final = frozenset({ENVELOPE, CONSUMED, REJECTED})
"""The events that are envelopes."""
_EVENTS: Final = pa.array(sorted(SPOKEN), pa.string())
_NOTHING: Final = msgspec.Raw(b"")
_AS_RECORDED: Final = (
    "position",
    "time",
    "event",
    "participant",
    "kind",
    "envelope_id",
    "reason",
    "capability",
    "size",
    "stream_id",
)


class EnvelopeRow(msgspec.Struct, frozen=True, gc=False):
    """What an envelope says besides what its record has columns for."""

    to: list[str] | None = None
    correlation_id: list[str] | str | None = None
    context: msgspec.Raw = _NOTHING
    payload: msgspec.Raw = _NOTHING
    proposal: msgspec.Raw = _NOTHING
    """The gateway's stamp, on envelopes about proposals."""

    @property
    def answers(self) -> list[str]:
        """The ids that it names."""
        named = self.correlation_id
        return [named] if isinstance(named, str) else named or []


UNSAID: Final = EnvelopeRow()
"""Where a message was no envelope."""
_decoder = msgspec.json.Decoder(EnvelopeRow)


def read(record: Record) -> EnvelopeRow:
    """The parts of a recorded envelope; what is none has none, and `UNSAID` itself says so."""
    if not record.payload:
        return UNSAID
    try:
        return _decoder.decode(record.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return UNSAID


class Envelopes:
    """The table `envelopes`, batch by batch."""

    def __init__(self, space: str) -> None:
        """Without any rows."""
        self._space = space
        self._tables: list[pa.Table] = []
        self._to: list[list[str] | None] = []
        self._answers: list[list[str] | None] = []
        self._contexts: list[bytes | None] = []
        self._payloads: list[bytes | None] = []
        self._fits: list[bool | None] = []
        self._covered: list[bool | None] = []
        self.problems: dict[int, str] = {}
        """By position, why a record of this batch could not be applied."""

    def add(self, said: EnvelopeRow, verdict: EnvelopeVerdict) -> None:
        """The next one, in the order of its batch."""
        self._fits.append(verdict.fits)
        self._covered.append(verdict.covered)
        self._to.append(said.to)
        self._answers.append(said.answers or None)
        self._contexts.append(_text(said.context))
        self._payloads.append(bytes(said.payload) or None)

    def end_batch(self, batch: pa.RecordBatch) -> None:
        """All envelopes of this batch have been added."""
        rows = batch.filter(pc.is_in(batch.column("event"), _EVENTS))
        columns: dict[str, Any] = {name: rows.column(name) for name in _AS_RECORDED}
        columns["space"] = pa.repeat(pa.scalar(self._space, pa.string()), rows.num_rows)
        columns["accepted"] = pc.not_equal(rows.column("event"), REJECTED)
        columns["to"] = pa.array(self._to, TEXTS)
        columns["correlation_id"] = pa.array(self._answers, TEXTS)
        columns["context"] = as_texts(self._contexts)
        columns["payload"] = as_texts(self._payloads)
        columns["bytes"] = pc.binary_length(rows.column("payload"))
        columns["capability_fits"] = pa.array(self._fits, pa.bool_())
        columns["grant_covered"] = pa.array(self._covered, pa.bool_())
        columns["problem"] = problem_texts(rows, self.problems)
        for said in (self._to, self._answers, self._contexts, self._payloads, self._fits, self._covered):
            said.clear()
        self.problems.clear()
        arrays = [columns[field.name].cast(field.type) for field in ENVELOPES.schema]
        self._tables.append(pa.Table.from_arrays(arrays, schema=ENVELOPES.schema))

    def table(self) -> pa.Table:
        """All of them."""
        return pa.concat_tables([ENVELOPES.schema.empty_table(), *self._tables]).combine_chunks()


def problem_texts(rows: pa.RecordBatch, problems: Mapping[int, str]) -> pa.Array:
    """The problem of each row, by its position."""
    if not problems:
        return pa.nulls(rows.num_rows, pa.string())
    return pa.array([problems.get(position) for position in rows.column("position").to_pylist()], pa.string())


def _text(value: msgspec.Raw) -> bytes | None:
    text = bytes(value)
    return None if text in {b"", b"null"} else text


def as_texts(values: list[bytes | None]) -> pa.Array:
    """As strings; what is no UTF-8, which no gateway writes, has marks for what is not."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else each.decode("utf-8", "replace") for each in values], pa.string())
