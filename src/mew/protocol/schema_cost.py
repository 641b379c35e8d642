"""An upper bound for the work that a JSON Schema and its patterns can cause.

A validator can apply the same subschema many times to one value. Thirty definitions, where each `anyOf` refers twice
to the next, cause 2^30 steps. `{"items":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}}` doubles the work with each level of the
content. So this module walks a declared schema like a validator walks content, for every possible content. A *state*
is the set of subschemas that apply to one value, with a count each. Each member name or index leads to a next state. A
tree or a linked list has a state that leads back to itself. A schema with a state over the limit is rejected.

The bound is never too low. It counts every alternative. It assumes that each pattern of `patternProperties` matches
every name. It counts the keywords next to `unevaluatedProperties` and `unevaluatedItems` three times, because a
validator visits them again. A schema is one document: `$id` is allowed at its root only, and references begin with `#`.

The cost of a regular expression is derived from its text, or from its compiled size. Pure: no clock is read.
"""

import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, TypeAlias

import jsonschema_rs
import msgspec

from mew.protocol.raw_json import MAX_NESTING

COMPILED_BYTES: Final = 64 * 2**10
"""Maximum size of one compiled pattern, in bytes."""
CACHE_BYTES: Final = 256 * 2**10
"""Maximum size of the cache that running one pattern keeps for the next run, in bytes."""
PER_SCHEMA: Final = 32
COMPILE_UNITS: Final = 5_000
"""Maximum cost of compiling one pattern, in units of about a microsecond."""

_BASE_UNITS: Final = 300
_CLASS: Final = re.compile(r"\\[dDsSwW]")
_IGNORES_CASE: Final = re.compile(r"\(\?[a-zA-Z-]*i")
_LARGE_CLASS: Final = re.compile(r"\\[DSWpPxu]|[^\x00-\x7f]")
_SMALL_BYTES: Final = 4 * 2**10
_SMALL_WEIGHT: Final = 64
_LARGE_WEIGHT: Final = 512
"""Steps per character of content for a large pattern; `_SMALL_WEIGHT` is for a small one. A subschema is one step."""


def patterns_in(schema: Any) -> list[str]:
    """Return every pattern in a schema, at any place. Duplicates are included, because each one is compiled."""
    patterns: list[str] = []
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            patterns += own_patterns(value)
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return patterns


def own_patterns(schema: dict[str, Any]) -> list[str]:
    """Return the patterns of one subschema, without those of nested subschemas."""
    pattern, members = schema.get("pattern"), schema.get("patternProperties")
    own = [pattern] if isinstance(pattern, str) else []
    return own + (list(members) if isinstance(members, dict) else [])


def compile_units(pattern: str) -> int:
    """Return the maximum cost of compiling a pattern, in units of about a microsecond.

    Character classes are rewritten one by one, and each rewrite processes the whole text.
    """
    classes = len(_CLASS.findall(pattern))
    units = _BASE_UNITS + len(pattern) // 2 + 5 * classes * classes // 2
    if _IGNORES_CASE.search(pattern):
        # Every letter of a class is looked up in the Unicode case table.
        units += 3_000 * len(_LARGE_CLASS.findall(pattern)) + 20 * pattern.count("[")
    return units


def weight(pattern: str) -> int:
    """Return the steps that a pattern may take per character of content: in the worst case, its number of states."""
    try:
        options = jsonschema_rs.RegexOptions(size_limit=_SMALL_BYTES)
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return _LARGE_WEIGHT
    return _SMALL_WEIGHT


MAX_STEPS: Final = 20_000
"""Maximum steps to walk all schemas of one request: some hundredths of a second. Usual schemas need far less."""

_ONE_SCHEMA: Final = ("not", "if", "then", "else")
_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_FOR_PARTS: Final = (
    *("properties", "patternProperties", "additionalProperties", "propertyNames"),
    *("items", "prefixItems", "contains"),
)
_COMPARED: Final = ("enum", "const", "required", "dependentRequired", "dependencies")
"""Keywords whose entries may be compared with a value one by one."""
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_NEAREST: Final = 1e-18
_FARTHEST: Final = 1e18
_FRACTION_WEIGHT: Final = 32
"""Steps per character of content if a value is compared with a number that is not an integer."""
_REMOTE_WEIGHT: Final = 512
"""The same if one of the two is remote: the comparison is exact, and `1e-300` is a fraction of a thousand bits."""
_UNIQUE_WEIGHTS: Final = (16, 7 * _FRACTION_WEIGHT, 7 * _REMOTE_WEIGHT)
"""Steps that `uniqueItems` adds for plain content, for fractions or long integers, and for remote numbers.

Up to 15 items are compared in pairs, with exact comparison of numbers: 7 comparisons per item."""
_MAX_COMPARED: Final = 15
HASHED_WEIGHT: Final = 4
"""Steps that `uniqueItems` adds if there are more items."""
_APPLICATORS: Final = frozenset((*_ONE_SCHEMA, *_SCHEMAS, *_REFERENCES, *_UNEVALUATED, *_FOR_PARTS))
_PERCENT: Final = re.compile(rb"%([0-9A-Fa-f]{2})")

_State: TypeAlias = dict[int, int]
"""Maps the `id()` of each subschema to the number of times it applies to one value."""


class SchemaTooComplex(ValueError):
    """The schema is too costly, or its cost cannot be determined. The message gives the reason."""


class SchemaCost(msgspec.Struct, frozen=True):
    """The maximum cost of a schema."""

    subschemas: int
    """Maximum number of subschemas that can apply to one value."""
    weight: int
    """Maximum steps for one value. A subschema is one step, and so is each list entry that is compared."""
    remote_weight: int
    """Maximum steps for one value that contains remote numbers (see `is_remote`)."""
    steps: int
    """Steps used to compute this cost."""
    unique: int = 0
    """Maximum number of `uniqueItems` checks that can apply to one value."""


class _Parts(msgspec.Struct, frozen=True):
    """The subschemas for one type of parts of a value: by name or index in `by_name`, and for all others in `rest`."""

    by_name: dict[Any, list[Any]]
    rest: list[Any]


class _Node(msgspec.Struct, frozen=True):
    """One subschema, and the subschemas it applies to the same value, its members, items and member names."""

    same_value: list[Any]
    parts: tuple[_Parts, ...] = ()
    weight: int = 1
    remote_weight: int = 1
    unique: int = 0


def count_subschemas(schema: Any, most: int) -> int:
    """Return the maximum number of subschemas that can apply to one value; `SchemaTooComplex` if over `most`."""
    return measure(schema, most).subschemas


def measure(schema: Any, most: int, steps: int = MAX_STEPS) -> SchemaCost:
    """Return the maximum cost of a schema.

    Raises `SchemaTooComplex` if more than `most` subschemas can apply to one value, or if that needs over `steps`.
    """
    walk = _Walk(schema, most, steps)
    level = [walk.applied[id(schema)]]
    visited = {frozenset(level[0].items())}
    states = [*level]
    for _ in range(MAX_NESTING):
        following = {frozenset(state.items()): state for current in level for state in walk.next_states(current)}
        level = [state for key, state in following.items() if key not in visited]
        visited.update(following)
        states += level
    heaviest = max(sum(count * walk.weights[key] for key, count in state.items()) for state in states)
    remote = max(sum(count * walk.remote_weights[key] for key, count in state.items()) for state in states)
    unique = max(sum(count * walk.unique[key] for key, count in state.items()) for state in states)
    return SchemaCost(max(sum(state.values()) for state in states), heaviest, remote, walk.steps, unique)


def is_remote(value: Any) -> bool:
    """Return whether a value is a float so close to zero, or so large, that arithmetic with it is slow."""
    return isinstance(value, float) and value != 0 and not _NEAREST < abs(value) < _FARTHEST


def text_outside_arrays(content: Any) -> int:
    """Return the number of characters in strings outside arrays. Comparisons of array items never read them."""
    values, characters = [content], 0
    for value in values:
        if isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, str):
            characters += len(value)
    return characters


def unique_weight(values: list[Any]) -> int:
    """Return the maximum steps per byte of content under `uniqueItems`. `values` is the `values_in` of the content."""
    numbers = [
        value for value in values if isinstance(value, float) or (isinstance(value, int) and abs(value) > _FARTHEST)
    ]
    plain, fractions, remote = _UNIQUE_WEIGHTS
    compared = remote if any(map(is_remote, numbers)) else fractions if numbers else plain
    weight, level = 0, values[:1]
    while level := [value for value in level if isinstance(value, dict | list)]:
        # A value is compared again for each array level above it.
        lengths = [len(value) for value in level if isinstance(value, list)]
        weight += compared * any(1 < length <= _MAX_COMPARED for length in lengths)
        weight += HASHED_WEIGHT * any(length > _MAX_COMPARED for length in lengths)
        level = [
            child for container in level for child in (container.values() if isinstance(container, dict) else container)
        ]
    return weight


class _Walk:
    """The reachable subschemas, and for each one all subschemas that apply to the same value because of it."""

    def __init__(self, schema: Any, most: int, steps: int) -> None:
        self._most = most
        self._most_steps = steps
        self.steps = 0
        self._nodes = _reachable(schema)
        self.weights = {key: node.weight for key, node in self._nodes.items()}
        self.remote_weights = {key: node.remote_weight for key, node in self._nodes.items()}
        self.unique = {key: node.unique for key, node in self._nodes.items()}
        self.applied: dict[int, _State] = {}
        graph = {key: [id(subschema) for subschema in node.same_value] for key, node in self._nodes.items()}
        try:
            order = list(TopologicalSorter(graph).static_order())
        except CycleError:
            raise SchemaTooComplex("a subschema applies itself to the same value again") from None
        for key in order:
            self.applied[key] = self._sum([({key: 1}, 1), *((self.applied[target], 1) for target in graph[key])])

    def next_states(self, state: _State) -> Iterator[_State]:
        """Return the states of the parts of a value to which this state applies."""
        nodes = [(self._nodes[key], count) for key, count in state.items()]
        for sort in range(3):
            yield from self._states_of([(node.parts[sort], count) for node, count in nodes if node.parts])

    def _states_of(self, parts: list[tuple[_Parts, int]]) -> Iterator[_State]:
        names: dict[Any, list[tuple[list[Any], int]]] = {}
        for part, count in parts:
            for name, schemas in part.by_name.items():
                names.setdefault(name, []).append((schemas, count))
        resting = [(part, count) for part, count in parts if part.rest]
        for name, applying in names.items():
            unnamed = [(part.rest, count) for part, count in resting if name not in part.by_name]
            yield self._state(applying + unnamed)
        if resting:
            yield self._state([(part.rest, count) for part, count in resting])

    def _state(self, applying: list[tuple[list[Any], int]]) -> _State:
        return self._sum((self.applied[id(schema)], count) for schemas, count in applying for schema in schemas)

    def _sum(self, states: Iterable[tuple[_State, int]]) -> _State:
        """Add up states, each multiplied by its count. Counts every step; raises `SchemaTooComplex` above a limit."""
        whole: _State = {}
        for state, count in states:
            self.steps += len(state) + 1
            for key, times in state.items():
                whole[key] = whole.get(key, 0) + times * count
            if self.steps > self._most_steps:
                raise SchemaTooComplex("its subschemas refer to one another too much")
        if sum(whole.values()) > self._most:
            raise SchemaTooComplex(f"over {self._most} subschemas can apply to one value")
        return whole


def _reachable(schema: Any) -> dict[int, _Node]:
    """Return every subschema that can apply to a value, by its `id()`."""
    anchors = _anchors(schema)
    nodes: dict[int, _Node] = {}
    stack = [schema]
    while stack:
        subschema = stack.pop()
        if id(subschema) not in nodes:
            node = nodes[id(subschema)] = _read(subschema, schema, anchors)
            stack += node.same_value
            for parts in node.parts:
                stack += parts.rest
                stack.extend(target for targets in parts.by_name.values() for target in targets)
    return nodes


def _read(schema: Any, document: Any, anchors: dict[str, Any]) -> _Node:
    if not isinstance(schema, dict) or _APPLICATORS.isdisjoint(schema):
        return _Node([], (), *_weights(schema), _unique(schema))
    references = [schema[keyword] for keyword in _REFERENCES if isinstance(schema.get(keyword), str)]
    same_value = [_resolve(reference, document, anchors) for reference in references]
    same_value += _given_schemas(schema, *_ONE_SCHEMA)
    same_value += [subschema for keyword in _SCHEMAS for subschema in _values(schema.get(keyword))]
    again = 3 if any(keyword in schema for keyword in _UNEVALUATED) else 1
    patterns = _values(schema.get("patternProperties"))
    contains = _given_schemas(schema, "contains") * again
    members = _parts(schema, "properties", patterns, ["additionalProperties", "unevaluatedProperties"])
    items = _parts(schema, "prefixItems", contains, ["items", "unevaluatedItems"])
    names = _Parts({}, _objects(_given_schemas(schema, "propertyNames")))
    weight, remote_weight = _weights(schema)
    return _Node(
        same_value * again, (members, items, names), weight * again, remote_weight * again, _unique(schema) * again
    )


def _unique(schema: Any) -> int:
    return int(isinstance(schema, dict) and schema.get("uniqueItems") is True)


def _weights(schema: Any) -> tuple[int, int]:
    """Return the steps of one value for this subschema alone: for a usual value, and for one with remote numbers."""
    if not isinstance(schema, dict):
        return 1, 1
    entries = [value for name in _COMPARED if name in schema for value in values_in(schema[name])[1:]]
    # For a keyword with a single number, the step of the subschema itself is the comparison.
    alone = [schema[name] for name in ("const", *_BOUNDS) if type(schema.get(name)) in {int, float}]
    numbers = [value for value in entries if type(value) in {int, float}] + alone
    patterns = sum(map(weight, own_patterns(schema)))
    others = 1 + len(entries) - len(numbers) + patterns
    return others + sum(map(_number_weight, numbers)), others + _REMOTE_WEIGHT * len(numbers)


def _number_weight(number: float) -> int:
    if is_remote(number):
        return _REMOTE_WEIGHT
    return 1 if isinstance(number, int) and abs(number) < _FARTHEST else _FRACTION_WEIGHT


def values_in(value: Any) -> list[Any]:
    """Return a value and all values nested in it. The value itself comes first."""
    values = [value]
    for nested in values:
        if isinstance(nested, dict | list):
            values.extend(nested.values() if isinstance(nested, dict) else nested)
    return values


def _parts(schema: dict[str, Any], keyword: str, to_all: list[Any], to_rest: list[str]) -> _Parts:
    """Return what applies to one type of parts.

    Boolean schemas are not counted: no other subschema follows from them, and there is one per keyword.
    """
    names = {name: _objects([subschema, *to_all]) for name, subschema in _items(schema.get(keyword))}
    return _Parts(names, _objects([*to_all, *_given_schemas(schema, *to_rest)]))


def _objects(schemas: list[Any]) -> list[Any]:
    return [subschema for subschema in schemas if isinstance(subschema, dict)]


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return the schemas in a list or an object, with their index or name. Other values are skipped, not reported."""
    places = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    return ((place, subschema) for place, subschema in places if isinstance(subschema, dict | bool))


def _values(value: Any) -> list[Any]:
    return [subschema for _, subschema in _items(value)]


def _given_schemas(schema: dict[str, Any], *keywords: str) -> list[Any]:
    """Return the schemas under these keywords."""
    return _values([schema[keyword] for keyword in keywords if keyword in schema])


def _resolve(reference: str, document: Any, anchors: dict[str, Any]) -> Any:
    """Return the subschema that a reference names. Raises `SchemaTooComplex` if it is not in this document."""
    if not reference.startswith("#"):
        raise SchemaTooComplex(f"it refers outside itself, to {reference!r}; references within begin with '#'")
    fragment = _PERCENT.sub(lambda match: bytes([int(match[1], 16)]), reference[1:].encode()).decode(errors="replace")
    place = document
    try:
        if fragment and not fragment.startswith("/"):
            return anchors[fragment]
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place[int(name) if isinstance(place, list) else name]
    except (KeyError, IndexError, ValueError, TypeError):
        raise SchemaTooComplex(f"{reference!r} leads nowhere") from None
    return place


def _anchors(document: Any) -> dict[str, Any]:
    """Return the subschemas that have an anchor. `SchemaTooComplex` for duplicates or a nested `$id`."""
    anchors: dict[str, Any] = {}
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value is not document and isinstance(value.get("$id"), str):
                raise SchemaTooComplex(f"`$id` is allowed at the root only, not for {value['$id']!r}")
            for name in {value[keyword] for keyword in _ANCHORS if isinstance(value.get(keyword), str)}:
                if name in anchors:
                    raise SchemaTooComplex(f"there are two anchors {name!r}")
                anchors[name] = value
        stack.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return anchors
