"""Formats of a stream: what its data look like, said in advance as JSON Schema (ADR-STR, format descriptors).

Pure: a schema is compiled and applied here, and nothing it refers to is ever fetched.
"""

from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
import msgspec

from mew.protocol import jsontext
from mew.protocol.errors import InvalidEnvelope, InvalidFormat, SchemaViolation, UnknownFormat

SCHEMA_BYTES: Final = 64 * 2**10
_REFERENCES: Final = ("$ref", "$dynamicRef")
_BUNDLED: Final = ("http://json-schema.org/", "https://json-schema.org/")


class Format(msgspec.Struct, frozen=True):
    """One format descriptor; `validator` is None where it has no schema."""

    id: str
    validator: jsonschema_rs.Draft202012Validator | None


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


def check_fits(format_: Format, content: Any) -> None:
    """Refuse content that does not fit the format's schema."""
    if format_.validator is None:
        return
    error = next(iter(format_.validator.iter_errors(content)), None)
    if error is not None:
        path = "/".join(str(step) for step in error.instance_path)
        raise SchemaViolation(
            f"content does not fit {format_.id!r} at {'/' + path!r}: {error.message[:200]}",
            format_id=format_.id,
            path=path,
        )


def read_formats(value: Any, most: int) -> Formats:
    """Format descriptors of a request or announce, each checked, else `InvalidFormat`."""
    if not isinstance(value, list):
        raise InvalidEnvelope("`payload.formats` must be an array of format descriptors")
    if not value:
        raise InvalidFormat("`payload.formats` must name at least one format")
    if len(value) > most:
        raise InvalidFormat(f"`payload.formats` has {len(value)} formats; at most {most} are allowed")
    by_id: dict[str, Format] = {}
    for index, each in enumerate(value):
        format_ = _read_format(each, f"payload.formats[{index}]")
        if format_.id in by_id:
            raise InvalidFormat(f"format id {format_.id!r} is given twice")
        by_id[format_.id] = format_
    return Formats(by_id)


def _read_format(value: Any, where: str) -> Format:
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
    return Format(format_id, _compile(value["schema"], f"{where}.schema"))


def _compile(schema: Any, where: str) -> jsonschema_rs.Draft202012Validator:
    if len(jsontext.encode(schema)) > SCHEMA_BYTES:
        raise InvalidFormat(f"`{where}` is over {SCHEMA_BYTES} bytes")
    for reference in _references(schema):
        if reference.startswith(_BUNDLED):
            raise InvalidFormat(f"`{where}` refers outside itself, to {reference!r}")
    try:
        # `offline` is what keeps it from fetching; the plain engine refuses patterns that could backtrack.
        return jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise InvalidFormat(f"`{where}` is not a usable JSON Schema 2020-12: {_first_line(error)}") from None


def _references(schema: Any) -> Iterator[str]:
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield from (value[key] for key in _REFERENCES if isinstance(value.get(key), str))
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
