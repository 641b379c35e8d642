"""The regular expressions in a JSON Schema: which they are, and what each may cost to compile and to run.

Pure. Both are bounds found from the text of a pattern, or by compiling it small, and never from a clock.
"""

import re
from typing import Any, Final

import jsonschema_rs

COMPILED_BYTES: Final = 64 * 2**10
"""What one compiled pattern may take."""
CACHE_BYTES: Final = 256 * 2**10
"""What running one may keep for the next time."""
PER_SCHEMA: Final = 32
COMPILE_UNITS: Final = 5_000
"""What compiling one pattern may cost, in about a microsecond each."""

_BASE_UNITS: Final = 300
_CLASS: Final = re.compile(r"\\[dDsSwW]")
_IGNORES_CASE: Final = re.compile(r"\(\?[a-zA-Z-]*i")
_LARGE_CLASS: Final = re.compile(r"\\[DSWpPxu]|[^\x00-\x7f]")
_SMALL_BYTES: Final = 4 * 2**10
_SMALL_WEIGHT: Final = 64
_LARGE_WEIGHT: Final = 512
"""Steps for a character of content; a subschema is one."""


def patterns_in(schema: Any) -> list[str]:
    """Every pattern in a schema, wherever it stands; one that stands twice is compiled twice."""
    found: list[str] = []
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            found += own_patterns(value)
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return found


def own_patterns(schema: dict[str, Any]) -> list[str]:
    """The patterns of one subschema itself."""
    pattern, members = schema.get("pattern"), schema.get("patternProperties")
    own = [pattern] if isinstance(pattern, str) else []
    return own + (list(members) if isinstance(members, dict) else [])


def compile_units(pattern: str) -> int:
    """At most so many microseconds to compile it: classes are rewritten one by one, each over the whole text."""
    classes = len(_CLASS.findall(pattern))
    units = _BASE_UNITS + len(pattern) // 2 + 5 * classes * classes // 2
    if _IGNORES_CASE.search(pattern):
        # Every letter of a class is looked up in Unicode's table of cases.
        units += 3_000 * len(_LARGE_CLASS.findall(pattern)) + 20 * pattern.count("[")
    return units


def weight(pattern: str) -> int:
    """How many steps a character of content may take: as many as the compiled pattern has states, in the worst case."""
    try:
        jsonschema_rs.Draft202012Validator(
            {"pattern": pattern}, offline=True, pattern_options=jsonschema_rs.RegexOptions(size_limit=_SMALL_BYTES)
        )
    except jsonschema_rs.ValidationError:
        return _LARGE_WEIGHT
    return _SMALL_WEIGHT
