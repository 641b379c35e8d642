"""Whether frames are what their format says: the verdict on each, and what is wrong with those that are not.

Pure. Most frames are taken by a quick decoder; what it does not take is read again and put to the core's own validator,
so that both agree with what the gateway would have said (protocol §4).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import length_hint
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline.kernel import formats
from mew.pipeline.kernel.catalogue import CatalogFormat
from mew.pipeline.kernel.columns import Column
from mew.pipeline.kernel.quick import QuickDecoder, quick
from mew.pipeline.kernel.reading import LONGEST, SHALLOW, read_json
from mew.protocol.errors import ProtocolError
from mew.protocol.formats import FormatDescriptor as Schema
from mew.protocol.formats import check_fits, read_formats
from mew.protocol.raw_json import MAX_NESTING, NotJSON

NOT_JSON: Final = "not_json"
SCHEMA: Final = "schema"
NOT_UTF8: Final = "not_utf8"
LENGTH: Final = "length"
UNKNOWN_FORMAT: Final = "unknown_format"
BAD_RECORD: Final = "bad_record"
_MANY_DIGITS: Final = "[0-9]{1000}"
_ANY_JSON: Final = QuickDecoder(msgspec.json.Decoder(msgspec.Raw).decode, None)


@dataclass
class ValidationResult:
    """What is true of contents, one by one."""

    valid: Any
    """Whether each is what its format says."""
    text: Any
    """Whether each is text, and can be shown as such."""
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    """Index, reason and detail of each that is not valid, in order."""
    decoded: list[Any] | None = None
    """Where asked for: what the quick decoder made of each, None of those it did not take."""
    untaken: Any = None
    """Which these are."""

    def of(self, places: Any) -> "ValidationResult":
        """The verdict on some of them, all of which are valid."""
        decoded = None if self.decoded is None else [self.decoded[place] for place in places.tolist()]
        untaken = None if self.untaken is None else self.untaken[places]
        return ValidationResult(self.valid[places], self.text[places], [], decoded, untaken)


@lru_cache(maxsize=1024)
def judge_of(format_: CatalogFormat) -> "FrameValidator":
    """The judge of a format, ready-made where it was needed before."""
    return FrameValidator(format_)


class FrameValidator:
    """Knows one format."""

    def __init__(self, format_: CatalogFormat) -> None:
        """Its schema, if it has one, is compiled here; an unusable schema counts as none."""
        value = formats.schema_of(format_)
        self.format = format_
        self.nature = formats.nature_of(format_.format_id, format_.mime_type, value)
        self._schema = None if value is None else _compiled(format_.format_id, value)
        self.quick = _ANY_JSON if self._schema is None else quick(value)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its typed columns."""
        return formats.typed_columns(self.format)

    def frames(self, contents: pa.Array, *, keep: bool = False) -> ValidationResult:
        """The verdict on raw frames; with `keep` it holds what they decode to."""
        match self.nature.sort:
            case formats.JSON:
                return self._json(contents, keep=keep)
            case formats.TEXT:
                return self._text(contents)
            case formats.VECTORS:
                return self._vectors(contents)
            case _:
                return ValidationResult(np.ones(len(contents), bool), np.zeros(len(contents), bool))

    def data(self, contents: pa.Array, *, keep: bool = False) -> ValidationResult:
        """The verdict on what `stream/data` carried, which is JSON."""
        return self._json(contents, keep=keep)

    def _json(self, contents: pa.Array, *, keep: bool) -> ValidationResult:
        texts: Sequence[bytes] = contents.to_pylist()
        untaken = np.zeros(len(texts), bool)
        decoded, failed = _decode(self.quick, texts, keep=keep)
        untaken[failed] = True
        doubtful = untaken | ~is_utf8(contents) | _may_be_odd(contents)
        verdict = ValidationResult(
            np.ones(len(texts), bool), np.ones(len(texts), bool), decoded=decoded, untaken=untaken
        )
        for index in np.flatnonzero(doubtful).tolist():
            fault = self._fault(texts[index])
            if fault is not None:
                verdict.valid[index] = False
                verdict.text[index] = fault[0] != NOT_JSON
                verdict.faults.append((index, *fault))
        return verdict

    def _fault(self, text: bytes) -> tuple[str, str] | None:
        """What is wrong with a JSON text."""
        try:
            value = read_json(text)
        except NotJSON as problem:
            return NOT_JSON, str(problem)
        return self._misfit(value, len(text))

    def _misfit(self, value: Any, size: int) -> tuple[str, str] | None:
        if self._schema is None:
            return None
        try:
            check_fits(self._schema, value, size)
        except ProtocolError as refusal:
            return SCHEMA, refusal.message
        except ValueError as problem:  # A value that the validator cannot take, such as a number it cannot hold.
            return SCHEMA, str(problem)
        return None

    def _text(self, contents: pa.Array) -> ValidationResult:
        valid = is_utf8(contents)
        verdict = ValidationResult(valid, valid.copy())
        for index in np.flatnonzero(~valid).tolist():
            verdict.faults.append((index, NOT_UTF8, _first_problem(contents[index].as_py())))
        if self._schema is not None:
            for index in np.flatnonzero(valid).tolist():
                text = contents[index].as_py()
                fault = self._misfit(text.decode(), len(text))
                if fault is not None:
                    verdict.valid[index] = False
                    verdict.faults.append((index, *fault))
            verdict.faults.sort()
        return verdict

    def _vectors(self, contents: pa.Array) -> ValidationResult:
        layout = self.nature.layout
        assert layout is not None
        sizes = pc.binary_length(contents).to_numpy(zero_copy_only=False)
        valid = sizes % layout.width == 0
        verdict = ValidationResult(valid, np.zeros(len(contents), bool))
        for index in np.flatnonzero(~valid).tolist():
            detail = f"{sizes[index]} bytes are not whole vectors: a {layout.name} has {layout.width}"
            verdict.faults.append((index, LENGTH, detail))
        return verdict


def _compiled(format_id: str, schema: Any) -> Schema | None:
    """As the core has it; None where the core would not have taken it, so that it stops nothing."""
    try:
        return read_formats([{"id": format_id or "format", "schema": schema}], 1).by_id[format_id or "format"]
    except ProtocolError:
        return None


def _decode(decoder: QuickDecoder | None, texts: Sequence[bytes], *, keep: bool) -> tuple[list[Any] | None, list[int]]:
    """What the decoder makes of texts, if that is wanted, and which it did not take: the one loop over rows."""
    if decoder is None:
        return ([None] * len(texts) if keep else None), list(range(len(texts)))
    failed: list[int] = []
    kept: list[Any] = []
    remaining = iter(texts)
    decoded = map(decoder.decode, remaining)
    while True:
        try:
            deque(map(kept.append, decoded) if keep else decoded, maxlen=0)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            failed.append(len(texts) - length_hint(remaining) - 1)
            if keep:
                kept.append(None)
        else:
            return (kept if keep else None), failed


def is_utf8(contents: pa.Array) -> Any:
    """Whether each is UTF-8."""
    try:
        contents.cast(pa.string())
    except pa.ArrowInvalid:
        return np.fromiter((_first_problem(text) == "" for text in contents.to_pylist()), bool, len(contents))
    return np.ones(len(contents), bool)


def _first_problem(text: bytes) -> str:
    """Where it stops being UTF-8; empty where it does not."""
    try:
        text.decode()
    except UnicodeDecodeError as problem:
        return f"{problem.reason} (byte {problem.start})"
    return ""


def _may_be_odd(contents: pa.Array) -> Any:
    """Whether each may hold what a decoder skips and a reader does not: very long integers, very deep nesting."""
    sizes = pc.binary_length(contents).to_numpy(zero_copy_only=False)
    odd = np.zeros(len(contents), bool)
    large = np.flatnonzero(sizes > SHALLOW)
    if len(large):
        some = contents.take(pa.array(large))
        brackets = pc.add(pc.count_substring(some, "["), pc.count_substring(some, "{"))
        odd[large] = brackets.to_numpy(zero_copy_only=False) > MAX_NESTING
    long = np.flatnonzero(sizes > LONGEST)
    if len(long):
        found = pc.match_substring_regex(contents.take(pa.array(long)), _MANY_DIGITS)
        odd[long] |= found.to_numpy(zero_copy_only=False)
    return odd
