"""Patterns over a small alphabet, patterns that narrow them, and envelopes that are likely to match them.

Nothing here decides whether something matches: the tests check that.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from mew.protocol.capabilities import Capability, read_capability

KEYS = "xy"


class Absent(Enum):
    """Drawn instead of a value that the envelope omits."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT

KINDS = ["a", "a/b", "a/b/c", "b", "b/c", "a*", "!a", "capability/grant", "stream/manage", "stream/request"]
_BODIES = [*KINDS, "*", "**", "a/*", "a/**", "a/b/*", "b/**", "*/a", "a/*/b", "stream/*"]

kind_patterns = st.sampled_from([*_BODIES, *(f"!{body}" for body in _BODIES)])
texts = st.text("ab", max_size=3)
globs = st.text("ab*", max_size=4)
text_patterns = globs | globs.map("!{}".format) | st.sampled_from(["*", "**", "!*", "!", "!!", "!!*", ""])
scalars: st.SearchStrategy[Any] = st.sampled_from([None, True, False, 0, 1, 0.0, 1.0, -1, 2**53, 2**53 + 1, 2.0**53])
_ALIKE: list[Any] = [0, False, 0.0, 1, True, 1.0]
value_patterns: st.SearchStrategy[Any] = st.recursive(
    text_patterns | scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=5,
)
payload_patterns = st.dictionaries(st.sampled_from(KEYS), value_patterns, max_size=2)
recipient_patterns = text_patterns | st.lists(text_patterns, max_size=3)
values: st.SearchStrategy[Any] = st.recursive(
    texts | scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)


def capability_of(kind: str, payload: Any, to: Any) -> Capability:
    parts = {"kind": kind, "payload": payload, "to": to}
    return read_capability({name: part for name, part in parts.items() if part is not None}, "generated")


capabilities = st.builds(capability_of, kind_patterns, st.none() | payload_patterns, st.none() | recipient_patterns)


def narrowed_text(pattern: str) -> st.SearchStrategy[Any]:
    """Text patterns that match at most the texts of this one."""
    if pattern.startswith("!"):
        return st.just(pattern) | st.sampled_from(["!*", "!**"]) | scalars
    return _filled(pattern, ["", "a", "b", "ab", "*", "a*", "**"])


def narrowed(pattern: Any) -> st.SearchStrategy[Any]:
    """Patterns of which each part is at least as narrow."""
    if isinstance(pattern, str):
        tighter = narrowed_text(pattern)
    elif isinstance(pattern, list):
        tighter = st.lists(st.one_of(*map(narrowed, pattern)), max_size=3) if pattern else st.just([])
    elif isinstance(pattern, dict):
        more = st.dictionaries(st.sampled_from(KEYS), value_patterns, max_size=1)
        members = st.fixed_dictionaries({key: narrowed(subpattern) for key, subpattern in pattern.items()})
        tighter = st.builds(lambda extra, own: {**extra, **own}, more, members)
    else:
        tighter = st.just(pattern)
    return tighter | st.lists(tighter, max_size=2)


def narrowed_capability(capability: Capability) -> st.SearchStrategy[Capability]:
    """Capabilities of the same kind or of any kind, with parts that are at least as narrow."""
    payload, to = capability.pattern.get("payload"), capability.pattern.get("to")
    keys = {key: narrowed(subpattern) for key, subpattern in (payload or {}).items()}
    return st.builds(
        capability_of,
        st.just(capability.pattern["kind"]) | kind_patterns,
        payload_patterns | st.none() if not keys else st.fixed_dictionaries(keys),
        recipient_patterns | st.none() if to is None else _narrowed_recipients(to),
    )


def _narrowed_recipients(to: Any) -> st.SearchStrategy[Any]:
    choices = [to] if isinstance(to, str) else to
    tighter = [_filled(choice, ["", "a", "b", "*"]) for choice in choices if not choice.startswith("!")]
    return st.lists(st.one_of(*tighter, *map(st.just, choices)), max_size=3) if choices else st.just([])


@st.composite
def related_capabilities(draw: st.DrawFn) -> tuple[Capability, Capability, Capability]:
    """Three capabilities, each of which mostly narrows the previous one."""
    first = draw(capabilities)
    second = draw(narrowed_capability(first) | capabilities)
    return first, second, draw(narrowed_capability(second) | capabilities)


def fitting(pattern: Any) -> st.SearchStrategy[Any]:
    """Values that are likely to match, or `ABSENT`."""
    if isinstance(pattern, str):
        likely = _unlike() if pattern.startswith("!") else _filled(pattern, ["", "a", "b", "ab"])
    elif isinstance(pattern, list):
        likely = st.one_of(*map(fitting, pattern)) if pattern else st.just([])
    elif isinstance(pattern, dict):
        likely = fitting_object(pattern)
    else:
        likely = st.sampled_from([pattern, *(text for text in _ALIKE if text == pattern)])
    return likely | st.lists(likely, max_size=3).map(_present) | values


def fitting_object(pattern: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that are likely to match an object of patterns, some with an additional key."""
    own = st.fixed_dictionaries({key: fitting(subpattern) for key, subpattern in pattern.items()})
    more = st.dictionaries(st.sampled_from(KEYS), values, max_size=1)
    return st.builds(lambda extra, members: _without_absent({**extra, **members}), more, own)


Sent = tuple[str, dict[str, Any], tuple[str, ...]]


def sent_to_fit(capability: Capability) -> st.SearchStrategy[Sent]:
    """Kind, payload and `to` of an envelope that is likely to match."""
    to = capability.pattern.get("to")
    choices = [to] if isinstance(to, str) else to or []
    names = [_filled(choice, ["", "a", "b"]) for choice in choices if not choice.startswith("!")]
    matching = [kind for kind in KINDS if capability.kind.matches(kind)]
    return st.tuples(
        st.sampled_from(matching or KINDS),
        fitting_object(capability.pattern.get("payload") or {}),
        st.lists(st.one_of(*names, texts), max_size=3).map(tuple),
    )


def allows(capability: Capability, sent: Sent) -> bool:
    """Whether the capability matches the envelope."""
    return capability.miss(*sent) is None


def _filled(glob: str, fillings: list[str]) -> st.SearchStrategy[str]:
    """The glob with a text in place of each star."""
    first, *rest = glob.split("*")
    stars = st.tuples(*(st.sampled_from(fillings) for _ in rest))
    return stars.map(lambda chosen: first + "".join(map(str.__add__, chosen, rest)))


def _unlike() -> st.SearchStrategy[Any]:
    return st.just(ABSENT) | texts | scalars


def _present(items: list[Any]) -> list[Any]:
    return [item for item in items if item is not ABSENT]


def _without_absent(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not ABSENT}
