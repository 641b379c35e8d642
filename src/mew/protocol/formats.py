"""Formats of a stream: its data are described in advance as JSON Schema (ADR-STR, format descriptors).

Pure: this module compiles and applies schemas. It never fetches anything that a schema refers to.
"""

from typing import Any, Final

import jsonschema_rs
import msgspec

from mew.protocol import raw_json, schema_cost
from mew.protocol.errors import InvalidEnvelope, InvalidFormat, SchemaViolation, UnknownFormat
from mew.protocol.schema_cost import (
    HASHED_WEIGHT,
    MAX_STEPS,
    SchemaTooComplex,
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
"""Maximum subschemas of a format that may apply to one value of the content. This limits the work of validation."""

APPLICATIONS: Final = 2**23
"""Maximum validation steps: bytes of content times the steps each may take. Some hundredths of a second."""
PATTERN_UNITS: Final = 50_000
"""Maximum cost of compiling all patterns of one request, in units of about a microsecond."""

_DESCRIBED: Final = 2**24
"""Maximum bytes copied to locate a mismatch: some tenths of a second.

Detecting a mismatch is fast. To locate it, the validator creates an error at each step, with copies of content and
schema."""
_SCHEMA_BYTES_PER_UNIT: Final = 16
_REGEX: Final = f" no larger than {schema_cost.COMPILED_BYTES} bytes compiled, without look-around and back-references"
_ERROR_BYTES: Final = 512
"""Bytes that each error costs in addition."""


class FormatDescriptor(msgspec.Struct, frozen=True):
    """One format descriptor. `validator` is None if it has no schema."""

    id: str
    validator: jsonschema_rs.Draft202012Validator | None
    schema_bytes: int = 0
    subschemas: int = 0
    """Maximum number of subschemas that can apply to one value of the content."""
    weight: int = 0
    """Maximum steps per byte of the content."""
    remote_weight: int = 0
    """Maximum steps per byte if the content contains numbers that are close to zero or very large."""
    unique: int = 0
    """Maximum number of `uniqueItems` checks that can apply to one value."""

    def steps_on(self, content: Any, size: int) -> int:
        """Return the maximum steps for this content. The content is not read if its size alone exceeds the limit."""
        least, compared = self.weight * size, 0
        if self.unique and least <= APPLICATIONS:
            compared = self.unique * (size - text_outside_arrays(content))
            least += HASHED_WEIGHT * compared
        if least > APPLICATIONS or (self.weight >= self.remote_weight and not self.unique):
            return least
        values = values_in(content)
        weight = self.remote_weight if any(map(is_remote, values)) else self.weight
        return weight * size + (compared * unique_weight(values) if compared else 0)

    def describes(self, size: int) -> bool:
        """Return whether a mismatch in content of this size can be located fast enough."""
        return self.subschemas * size * (self.schema_bytes + size + _ERROR_BYTES) <= _DESCRIBED


class Formats(msgspec.Struct, frozen=True):
    """The formats of one stream."""

    by_id: dict[str, FormatDescriptor] = {}

    def choose(self, format_id: Any) -> FormatDescriptor | None:
        """Return the format that a `stream/data` names; None on a stream without formats (protocol §4).

        If the stream has only one format, `format_id` may be None. Raises `UnknownFormat` for an unknown id.
        """
        if not self.by_id:
            return None
        if format_id is None and len(self.by_id) == 1:
            return next(iter(self.by_id.values()))
        if not isinstance(format_id, str) or format_id not in self.by_id:
            format_ids = list(self.by_id)
            raise UnknownFormat(f"`format_id` {format_id!r} is none of {format_ids}", formats=format_ids)
        return self.by_id[format_id]


def check_fits(format_: FormatDescriptor, content: Any, size: int, work: Work | None = None) -> None:
    """Raise `SchemaViolation` if content of `size` bytes does not match, or if the check would take too long.

    The error includes the path of the mismatch, unless locating it would take too long.
    """
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
    """Check and compile the format descriptors of a request or announce. Adds the cost to `work`.

    Raises `InvalidFormat` for an invalid descriptor, or `InvalidEnvelope` if `value` is not a list.
    """
    if not isinstance(value, list):
        raise InvalidEnvelope("`payload.formats` must be an array of format descriptors")
    if not value:
        raise InvalidFormat("`payload.formats` must name at least one format")
    if len(value) > most:
        raise InvalidFormat(f"`payload.formats` has {len(value)} formats; at most {most} are allowed")
    by_id: dict[str, FormatDescriptor] = {}
    compiler = _Compiler(work or Work())
    for index, descriptor in enumerate(value):
        format_ = _read_format(descriptor, f"payload.formats[{index}]", compiler)
        if format_.id in by_id:
            raise InvalidFormat(f"format id {format_.id!r} is given twice")
        by_id[format_.id] = format_
    return Formats(by_id)


def count_patterns(formats: Any) -> int:
    """Return the number of patterns in the schemas of format descriptors; 0 if `formats` is not an object or list."""
    return len(schema_cost.patterns_in(formats))


def _read_format(value: Any, where: str, compiler: "_Compiler") -> FormatDescriptor:
    if not isinstance(value, dict):
        raise InvalidFormat(f"`{where}` must be an object")
    format_id = value.get("id")
    if not isinstance(format_id, str) or not format_id:
        raise InvalidFormat(f"`{where}.id` must be a non-empty string")
    for name in ("description", "mime_type"):
        if not isinstance(value.get(name, ""), str):
            raise InvalidFormat(f"`{where}.{name}` must be a string")
    if value.get("schema") is None:
        return FormatDescriptor(format_id, None)
    return compiler.compile(format_id, value["schema"], f"{where}.schema")


class _Compiler:
    """Compiles the schemas of one request. The limits apply to all of them together."""

    def __init__(self, work: Work) -> None:
        """Start with no cost used. Costs are added to `work`."""
        self._work = work
        self._units = 0
        self._steps = 0

    def compile(self, format_id: str, schema: Any, where: str) -> FormatDescriptor:
        """Return the format with its validator. Raises `InvalidFormat` if the schema cannot be used."""
        size = len(raw_json.encode_json(schema))
        self._work.add(size // _SCHEMA_BYTES_PER_UNIT)
        if size > SCHEMA_BYTES:
            raise InvalidFormat(f"`{where}` is over {SCHEMA_BYTES} bytes")
        if isinstance(schema, dict) and schema.get("$schema", DIALECT) != DIALECT:
            raise InvalidFormat(f"`{where}.$schema` must be {DIALECT!r}")
        try:
            self._check_patterns(schema)
            # `offline` prevents fetching. The plain regex engine rejects patterns that could backtrack.
            options = jsonschema_rs.RegexOptions(
                size_limit=schema_cost.COMPILED_BYTES, dfa_size_limit=schema_cost.CACHE_BYTES
            )
            validator = jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=options)
            cost = measure(schema, SUBSCHEMAS_PER_VALUE, MAX_STEPS - self._steps)
        except SchemaTooComplex as error:
            raise InvalidFormat(f"`{where}` cannot be used: {error}") from None
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise InvalidFormat(f"`{where}` is not a usable JSON Schema 2020-12: {_first_line(error)}") from None
        self._work.add(cost.steps)
        self._steps += cost.steps
        return FormatDescriptor(
            format_id, validator, size, cost.subschemas, cost.weight, cost.remote_weight, cost.unique
        )

    def _check_patterns(self, schema: Any) -> None:
        """Raise `SchemaTooComplex` for too many patterns, or slow patterns. Nothing is compiled here."""
        patterns = schema_cost.patterns_in(schema)
        if len(patterns) > schema_cost.PER_SCHEMA:
            raise SchemaTooComplex(f"it has {len(patterns)} patterns; at most {schema_cost.PER_SCHEMA} are allowed")
        for pattern in patterns:
            units = schema_cost.compile_units(pattern)
            self._units += units
            if units > schema_cost.COMPILE_UNITS or self._units > PATTERN_UNITS:
                raise SchemaTooComplex(
                    f"the pattern {pattern[:80]!r} takes too long to compile; use fewer or simpler classes"
                )
            self._work.add(units)


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0][:200]
    match error:
        case jsonschema_rs.ValidationError(kind=jsonschema_rs.ValidationErrorKind.Format(format="regex")):
            return line + _REGEX
    return line
