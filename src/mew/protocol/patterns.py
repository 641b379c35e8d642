"""The pattern language of capabilities: which values a pattern matches, and which patterns it covers.

Pure. Patterns come from participants, so no regular expressions are used. The cost is bounded by the product of the
pattern sizes. `covers` and `covers_value` return whether the first pattern matches everything that the second one
matches. If that is uncertain, they return False.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from mew.protocol.work import UNBOUNDED, Work

MAX_LEAVES: Final = 1_024
"""Maximum elements of a list in an envelope. A longer list matches no pattern.

Each element is tried against each choice of a pattern, so long lists would be slow."""
MAX_SCANNED_TEXT: Final = 64 * 2**10
"""Maximum characters of a string that is tried on a pattern with text between two stars."""
TRIAL: Final = 100
"""Base cost of trying a pattern on a value, in scanned characters."""
_PIECE_STEP: Final = 16
"""Number of piece characters that adds the length of the value to the cost once more.

Searching for a long piece may take as many steps per character of the value as the piece has characters."""

ValueTest: TypeAlias = Callable[[Any, Work], bool]


class TextTooLong(Exception):
    """A string in an envelope is too long for a pattern. The capability does not match, whatever its other patterns."""


_ANY_TEXT: Final = "\ud800"
"""Half a surrogate pair that replaces the stars of a glob. JSON text never contains it, so only a star matches it."""


class Glob(msgspec.Struct, frozen=True):
    """A string pattern. `*` matches any text, including `/`. Every other character matches itself."""

    text: str
    pieces: tuple[str, ...]
    """The text between the stars. A single piece means a literal."""

    @classmethod
    def parse(cls, text: str) -> "Glob":
        """Split the pattern once, so that it can be used many times."""
        return cls(text, tuple(text.split("*")))

    def matches(self, value: str) -> bool:
        """Return whether the pattern matches the whole value."""
        if len(self.pieces) == 1:
            return value == self.text
        first, *middle, last = self.pieces
        if len(value) < len(first) + len(last) or not value.startswith(first) or not value.endswith(last):
            return False
        at, end = len(first), len(value) - len(last)
        for piece in middle:
            at = value.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    def tried_on(self, value: str, work: Work) -> bool:
        """Return whether a value of an envelope matches. Raises `TextTooLong` if the check would be slow."""
        if not any(self.pieces[1:-1]):
            work.scan(TRIAL)
            return self.matches(value)
        if len(value) > MAX_SCANNED_TEXT:
            raise TextTooLong
        work.scan(TRIAL * len(self.pieces) + len(value) * self.searches)
        return self.matches(value)

    @property
    def searches(self) -> int:
        """How often searching for the pieces between stars may read a value, at most."""
        return 1 + max((len(piece) // _PIECE_STEP for piece in self.pieces[1:-1]), default=0)

    def covers(self, other: "Glob") -> bool:
        """Return whether every text that the other glob matches matches this one.

        Exact: the other's stars are replaced by a character that no pattern contains, so only our stars match it.
        """
        return self.matches(_ANY_TEXT.join(other.pieces))

    def is_disjoint(self, other: "Glob") -> bool:
        """Return whether certainly no text matches both. Exact if one is a literal, else based on their ends only."""
        if len(self.pieces) == 1:
            return not other.matches(self.text)
        if len(other.pieces) == 1:
            return not self.matches(other.text)
        heads = self.pieces[0], other.pieces[0]
        tails = self.pieces[-1], other.pieces[-1]
        return not (
            (heads[0].startswith(heads[1]) or heads[1].startswith(heads[0]))
            and (tails[0].endswith(tails[1]) or tails[1].endswith(tails[0]))
        )


class KindPattern(msgspec.Struct, frozen=True):
    """A set of kinds: one kind (`exact`), all kinds below a prefix, or every kind. `negated` means all other kinds."""

    exact: str | None = None
    prefix: str | None = None
    negated: bool = False

    @classmethod
    def parse(cls, text: str) -> "KindPattern":
        """Parse `chat`, `mcp/*`, `mcp/**`, `*` or `**`, each optionally after `!` (protocol §3)."""
        negated = text.startswith("!")
        body = text.removeprefix("!")
        if body in {"*", "**"}:
            return cls(prefix="", negated=negated)
        stem = body.removesuffix("**") if body.endswith("/**") else body.removesuffix("*")
        if stem != body and stem.endswith("/"):
            return cls(prefix=stem, negated=negated)
        return cls(exact=body, negated=negated)

    def matches(self, kind: str) -> bool:
        """Return whether the kind belongs to the set."""
        if self.prefix is not None:
            return kind.startswith(self.prefix) is not self.negated
        return (kind == self.exact) is not self.negated

    def covers(self, other: "KindPattern") -> bool:
        """Return whether every kind of the other set belongs to this set."""
        if not self.negated and not other.negated:
            return _within(other, self)
        if self.negated and other.negated:
            return _within(self, other)
        if self.negated:
            return _apart(self, other)
        return self.prefix == "" or other.prefix == ""


def _within(inner: KindPattern, outer: KindPattern) -> bool:
    """Return whether `inner` is a subset of `outer`. Negation is ignored."""
    if outer.prefix is not None:
        return (inner.prefix if inner.prefix is not None else str(inner.exact)).startswith(outer.prefix)
    return inner.exact is not None and inner.exact == outer.exact


def _apart(one: KindPattern, other: KindPattern) -> bool:
    """Return whether no kind belongs to both sets. Negation is ignored."""
    return not (_within(one, other) or _within(other, one))


class _Missing:
    """Placeholder for a key that the envelope does not have."""


MISSING: Final = _Missing()


def _leaves(value: list[Any]) -> list[Any] | None:
    """Return the elements of a list and its nested lists. None if there are too many elements or lists.

    Iterative, not recursive.
    """
    leaves: list[Any] = []
    stack, lists = [value], 1
    while stack:
        current = stack.pop()
        if len(current) > MAX_LEAVES:  # It is not read: it may be very long.
            return None
        inner = [element for element in current if isinstance(element, list)]
        lists += len(inner)
        if len(leaves) + len(current) - len(inner) > MAX_LEAVES or lists > MAX_LEAVES:
            return None
        leaves += [element for element in current if not isinstance(element, list)]
        stack += inner
    return leaves


def compile_value(pattern: Any) -> ValueTest:
    """Return the test of a payload value against a pattern (protocol §3). A list matches if every element matches."""
    test = _compile_one(pattern)

    def fits(value: Any, work: Work) -> bool:
        if not isinstance(value, list):
            return test(value, work)
        leaves = _leaves(value)
        work.scan(TRIAL + len(leaves or ()))
        return leaves is not None and all(test(leaf, work) for leaf in leaves)

    return fits


def _compile_one(pattern: Any) -> ValueTest:
    """Return the test for values that are not lists."""
    if isinstance(pattern, list):
        choices = [_compile_one(choice) for choice in pattern]
        return lambda value, work: any(choice(value, work) for choice in choices)
    if isinstance(pattern, dict):
        return _compile_object(pattern)
    if isinstance(pattern, str):
        return _compile_text(pattern)

    def equals(value: Any, work: Work) -> bool:
        work.scan(TRIAL)
        return _same(pattern, value)

    return equals


def _compile_object(pattern: dict[str, Any]) -> ValueTest:
    keys = [(key, compile_value(subpattern)) for key, subpattern in pattern.items()]

    def fits(value: Any, work: Work) -> bool:
        work.scan(TRIAL)
        return isinstance(value, dict) and all(test(value.get(key, MISSING), work) for key, test in keys)

    return fits


def _compile_text(pattern: str) -> ValueTest:
    negated = pattern.startswith("!")
    glob = Glob.parse(pattern.removeprefix("!"))

    def fits(value: Any, work: Work) -> bool:
        if not isinstance(value, str):
            work.scan(TRIAL)
            return negated
        return glob.tried_on(value, work) is not negated

    return fits


def compile_binding(pattern: Any) -> ValueTest:
    """Return the test whether a restricting rule applies to a value. One matching list element suffices.

    If it is uncertain, the rule applies. Capabilities allow only what certainly matches. A rule must apply to every
    value that a receiver could interpret as what the rule names.
    """
    choices = _choices(pattern)
    sorts, tests = {_sort(choice) for choice in choices}, [_compile_bound(choice) for choice in choices]

    def holds_for(value: Any, work: Work) -> bool:
        work.scan(TRIAL)
        if value is not None and _sort(value) not in sorts:
            # The rule does not know this type: the value could be another form of what the rule names.
            return bool(tests)
        return any(test(value, work) for test in tests)

    def holds(value: Any, work: Work) -> bool:
        if not isinstance(value, list):
            return holds_for(value, work)
        leaves = _leaves(value)
        work.scan(TRIAL + len(leaves or ()))
        return not leaves or any(holds_for(leaf, work) for leaf in leaves)

    return holds


def _choices(pattern: Any) -> list[Any]:
    return [leaf for element in pattern for leaf in _choices(element)] if isinstance(pattern, list) else [pattern]


def _sort(value: Any) -> type:
    """Return the type of a value. Integers count as floats."""
    return float if type(value) is int else type(value)


def _compile_bound(pattern: Any) -> ValueTest:
    """Return the test for one choice. Null equals a missing value, and both equal `{}` if an object is expected."""
    if not isinstance(pattern, dict):
        return _compile_one(pattern)
    keys = [(key, compile_binding(subpattern)) for key, subpattern in pattern.items()]

    def holds(value: Any, work: Work) -> bool:
        members = {} if value is None else value
        return isinstance(members, dict) and all(test(members.get(key), work) for key, test in keys)

    return holds


def _same(one: Any, other: Any) -> bool:
    """Compare numbers, booleans and null by value. `true` never equals 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def covers_value(pattern: Any, other: Any, work: Work = UNBOUNDED) -> bool:
    """Return whether every value that matches `other` matches `pattern`.

    True is always correct. False may be wrong for unions and overlapping globs.
    """
    if isinstance(other, list):
        return all(covers_value(pattern, element, work) for element in other)
    if isinstance(pattern, list):
        return any(covers_value(element, other, work) for element in pattern)
    work.scan(TRIAL)
    if isinstance(pattern, str):
        return _covers_text(pattern, other, work)
    if isinstance(pattern, dict):
        return isinstance(other, dict) and all(
            key in other and covers_value(subpattern, other[key], work) for key, subpattern in pattern.items()
        )
    return _same(pattern, other)


def _covers_text(pattern: str, other: Any, work: Work) -> bool:
    negated = pattern.startswith("!")
    if not isinstance(other, str):
        return negated
    ours, theirs = Glob.parse(pattern.removeprefix("!")), Glob.parse(other.removeprefix("!"))
    stars = len(ours.pieces) - 1 + len(theirs.pieces) - 1
    if stars:
        work.scan(TRIAL * stars + (len(pattern) + len(other)) * ours.searches)
    if other.startswith("!"):
        return negated and theirs.covers(ours)
    return ours.is_disjoint(theirs) if negated else ours.covers(theirs)
