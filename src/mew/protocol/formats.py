"""Formats of a stream: what its data look like, said in advance as JSON Schema (ADR-STR, format descriptors).

Pure: a schema is compiled and applied here, and nothing it refers to is ever fetched.
"""

from typing import Any, Final

import jsonschema_rs
import msgspec

from mew.protocol import raw_json, schema_cost
from mew.protocol.errors import InvalidEnvelope, InvalidFormat, SchemaViolation, UnknownFormat
from mew.protocol.schema_cost import (
    HASHED_WEIGHT,
    MOST_STEPS,
    TooCostly,
    is_remote,
    measure,
    text_outside_arrays,
    unique_weight,
    values_in,
)
from mew.protocol.work import CHECKED_PER_UNIT, Work

SCHEMA_BYTES: Final = 64 * 2**10
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
SUBSCHEMAS_PER_VALUE: Final = 1_024
"""How many subschemas of a format may apply to one value of the content: what bounds the work of validating it."""

APPLICATIONS: Final = 2**23
"""How many steps of validating: bytes of content, each by what it may meet there. Some hundredths of a second."""
PATTERN_UNITS: Final = 50_000
"""What compiling all patterns of one request may cost, in about a microsecond each."""

_DESCRIBED: Final = 2**24
"""How far it is worth saying where content does not fit, in bytes copied: some tenths of a second.

That it does not fit is found out at once; to say where, the validator makes an error at every turn, each with copies of
content and schema."""
_SCHEMA_BYTES_PER_UNIT: Final = 16
_NO_REGEX: Final = 'is not a "regex"'
_REGEX: Final = f" no larger than {schema_cost.COMPILED_BYTES} bytes compiled, without look-around and back-references"
_ERROR_BYTES: Final = 512
"""What an error costs besides."""


class Format(msgspec.Struct, frozen=True):
    """One format descriptor; `validator` is None where it has no schema."""

    id: str
    validator: jsonschema_rs.Draft202012Validator | None
    schema_bytes: int = 0
    subschemas: int = 0
    """How many of them a value of the content can meet."""
    weight: int = 0
    """How many steps a byte of the content can take."""
    remote_weight: int = 0
    """The same where the content holds numbers that are near to nothing, or very large."""
    unique: int = 0
    """How often the items of one value must all differ."""

    def steps_on(self, content: Any, size: int) -> int:
        """How many steps this content can take; it is not looked at where there would be too many anyway."""
        least, compared = self.weight * size, 0
        if self.unique and least <= APPLICATIONS:
            compared = self.unique * max(0, size - text_outside_arrays(content))
            least += HASHED_WEIGHT * compared
        if least > APPLICATIONS or (self.weight >= self.remote_weight and not self.unique):
            return least
        values = values_in(content)
        weight = self.remote_weight if any(map(is_remote, values)) else self.weight
        return weight * size + (compared * unique_weight(values) if compared else 0)

    def describes(self, size: int) -> bool:
        """Whether it can be said in good time where content of this size does not fit."""
        return self.subschemas * size * (self.schema_bytes + size + _ERROR_BYTES) <= _DESCRIBED


class Formats(msgspec.Struct, frozen=True):
    """The formats of one stream."""

    by_id: dict[str, Format] = {}

    def choose(self, format_id: Any) -> Format | None:
        """The format that a `stream/data` names; None on a stream without formats (protocol §4)."""
        if not self.by_id:
            return None
        if format_id is None and len(self.by_id) == 1:
            return next(iter(self.by_id.values()))
        if not isinstance(format_id, str) or format_id not in self.by_id:
            known = list(self.by_id)
            raise UnknownFormat(f"`format_id` {format_id!r} is none of {known}", formats=known)
        return self.by_id[format_id]


def check_fits(format_: Format, content: Any, size: int, work: Work | None = None) -> None:
    """Refuse content, so many bytes of it, that does not fit; it is said where, unless that would take long."""
    validator = format_.validator
    if validator is None:
        return
    steps = format_.steps_on(content, size)
    if steps > APPLICATIONS:
        message = f"{size} bytes are more than can be checked against {format_.id!r} in good time"
        raise SchemaViolation(message, format_id=format_.id)
    if work is not None:
        work.add(steps // CHECKED_PER_UNIT)
    if validator.is_valid(content):
        return
    if format_.describes(size):
        try:
            validator.validate(content)
        except jsonschema_rs.ValidationError as error:
            path = "/".join(str(step) for step in error.instance_path)
            raise SchemaViolation(
                f"content does not fit {format_.id!r} at {'/' + path!r}: {error.message[:200]}",
                format_id=format_.id,
                path=path,
            ) from None
    raise SchemaViolation(f"content does not fit {format_.id!r}", format_id=format_.id)


def read_formats(value: Any, most: int, work: Work | None = None) -> Formats:
    """Format descriptors of a request or announce, each checked, else `InvalidFormat`; `work` is what that takes."""
    if not isinstance(value, list):
        raise InvalidEnvelope("`payload.formats` must be an array of format descriptors")
    if not value:
        raise InvalidFormat("`payload.formats` must name at least one format")
    if len(value) > most:
        raise InvalidFormat(f"`payload.formats` has {len(value)} formats; at most {most} are allowed")
    by_id: dict[str, Format] = {}
    compiler = _Compiler(work or Work())
    for index, each in enumerate(value):
        format_ = _read_format(each, f"payload.formats[{index}]", compiler)
        if format_.id in by_id:
            raise InvalidFormat(f"format id {format_.id!r} is given twice")
        by_id[format_.id] = format_
    return Formats(by_id)


def count_patterns(formats: Any) -> int:
    """How many patterns the schemas of format descriptors have; what is no descriptor has none."""
    return len(schema_cost.patterns_in(formats))


def _read_format(value: Any, where: str, compiler: "_Compiler") -> Format:
    if not isinstance(value, dict):
        raise InvalidFormat(f"`{where}` must be an object")
    format_id = value.get("id")
    if not isinstance(format_id, str) or not format_id:
        raise InvalidFormat(f"`{where}.id` must be a non-empty string")
    for name in ("description", "mime_type"):
        if not isinstance(value.get(name, ""), str):
            raise InvalidFormat(f"`{where}.{name}` must be a string")
    if value.get("schema") is None:
        return Format(format_id, None)
    return compiler.compile(format_id, value["schema"], f"{where}.schema")


class _Compiler:
    """Compiles the schemas of one request, which together may cost so much and no more."""

    def __init__(self, work: Work) -> None:
        """Nothing has been spent."""
        self._work = work
        self._units = 0
        self._steps = 0

    def compile(self, format_id: str, schema: Any, where: str) -> Format:
        """The format with its validator, else `InvalidFormat`."""
        size = len(raw_json.encode(schema))
        self._work.add(size // _SCHEMA_BYTES_PER_UNIT)
        if size > SCHEMA_BYTES:
            raise InvalidFormat(f"`{where}` is over {SCHEMA_BYTES} bytes")
        if isinstance(schema, dict) and schema.get("$schema", DIALECT) != DIALECT:
            raise InvalidFormat(f"`{where}.$schema` must be {DIALECT!r}")
        try:
            self._check_patterns(schema)
            # `offline` is what keeps it from fetching; the plain engine refuses patterns that could backtrack.
            options = jsonschema_rs.RegexOptions(
                size_limit=schema_cost.COMPILED_BYTES, dfa_size_limit=schema_cost.CACHE_BYTES
            )
            validator = jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=options)
            cost = measure(schema, SUBSCHEMAS_PER_VALUE, MOST_STEPS - self._steps)
        except TooCostly as error:
            raise InvalidFormat(f"`{where}` cannot be used: {error}") from None
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise InvalidFormat(f"`{where}` is not a usable JSON Schema 2020-12: {_first_line(error)}") from None
        self._work.add(cost.steps)
        self._steps += cost.steps
        return Format(format_id, validator, size, cost.subschemas, cost.weight, cost.remote_weight, cost.unique)

    def _check_patterns(self, schema: Any) -> None:
        """Refuse patterns by their number and by what it takes to compile them, before that is tried."""
        patterns = schema_cost.patterns_in(schema)
        if len(patterns) > schema_cost.PER_SCHEMA:
            raise TooCostly(f"it has {len(patterns)} patterns; at most {schema_cost.PER_SCHEMA} are allowed")
        for pattern in patterns:
            units = schema_cost.compile_units(pattern)
            self._units += units
            if units > schema_cost.COMPILE_UNITS or self._units > PATTERN_UNITS:
                raise TooCostly(f"the pattern {pattern[:80]!r} takes too long to compile; use fewer or simpler classes")
            self._work.add(units)


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0][:200]
    return line + _REGEX if _NO_REGEX in str(error) else line
