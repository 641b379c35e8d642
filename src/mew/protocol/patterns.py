"""The pattern language of capabilities: what a pattern stands for, and which pattern covers which.

Pure, bounded by the sizes of patterns multiplied, and free of regular expressions: patterns come from participants.
`covers_*` answer whether every thing the second pattern matches is matched by the first; in doubt, no.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from mew.protocol.work import UNBOUNDED, Work

MAX_LEAVES: Final = 1_024
"""A longer list in an envelope fits no pattern: each of its elements is tried against each choice."""
MAX_SCANNED_TEXT: Final = 64 * 2**10
"""A longer string is tried on no pattern with text between two stars."""
TRIAL: Final = 100
"""What trying any pattern on any value counts, in characters scanned."""
_PIECE_STEP: Final = 16
"""Searching for a long piece may take as many steps a character as the piece is long: each so many count once more."""

ValueTest: TypeAlias = Callable[[Any, Work], bool]


class TextTooLong(Exception):
    """A string in an envelope is too long for a pattern: the capability does not match, whatever else it says."""


_ANY_TEXT: Final = "\ud800"
"""Half a surrogate pair, put for the stars of a glob: no text of JSON's holds it, so nothing but a star matches it."""


class Glob(msgspec.Struct, frozen=True):
    """A string pattern in which `*` stands for any text, `/` included, and every other character for itself."""

    text: str
    pieces: tuple[str, ...]
    """The text between the stars: one piece is a literal."""

    @classmethod
    def parse(cls, text: str) -> "Glob":
        """Take the pattern apart once, however often it is used."""
        return cls(text, tuple(text.split("*")))

    def matches(self, value: str) -> bool:
        """Whether the whole value fits."""
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
        """Whether a value of an envelope fits; `TextTooLong` where finding out would take long."""
        middle = self.pieces[1:-1]
        if not any(middle):
            work.scan(TRIAL)
            return self.matches(value)
        if len(value) > MAX_SCANNED_TEXT:
            raise TextTooLong
        work.scan(TRIAL * len(self.pieces) + len(value) * (1 + max(map(len, middle)) // _PIECE_STEP))
        return self.matches(value)

    def covers(self, other: "Glob") -> bool:
        """Exact: a letter that neither pattern uses, put for the other's stars, is matched only by stars of ours."""
        return self.matches(_ANY_TEXT.join(other.pieces))

    def is_disjoint(self, other: "Glob") -> bool:
        """Whether surely no text fits both: exact where one is literal, else judged by their ends."""
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
    """A set of kinds: one (`exact`), everything below a prefix, or every kind; or all but such a set."""

    exact: str | None = None
    prefix: str | None = None
    negated: bool = False

    @classmethod
    def parse(cls, text: str) -> "KindPattern":
        """`chat`, `mcp/*`, `mcp/**`, `*`, `**`, and each after `!` (protocol §3)."""
        negated = text.startswith("!")
        body = text.removeprefix("!")
        if body in {"*", "**"}:
            return cls(prefix="", negated=negated)
        stem = body.removesuffix("**") if body.endswith("/**") else body.removesuffix("*")
        if stem != body and stem.endswith("/"):
            return cls(prefix=stem, negated=negated)
        return cls(exact=body, negated=negated)

    def matches(self, kind: str) -> bool:
        """Whether the kind belongs to the set."""
        if self.prefix is not None:
            return kind.startswith(self.prefix) is not self.negated
        return (kind == self.exact) is not self.negated

    def covers(self, other: "KindPattern") -> bool:
        """Whether every kind of the other belongs to this."""
        if not self.negated and not other.negated:
            return _within(other, self)
        if self.negated and other.negated:
            return _within(self, other)
        if self.negated:
            return _apart(self, other)
        return self.prefix == "" or other.prefix == ""


def _within(inner: KindPattern, outer: KindPattern) -> bool:
    """Whether the bodies nest; negation left aside."""
    if outer.prefix is not None:
        return (inner.prefix if inner.prefix is not None else str(inner.exact)).startswith(outer.prefix)
    return inner.exact is not None and inner.exact == outer.exact


def _apart(one: KindPattern, other: KindPattern) -> bool:
    """Whether no kind belongs to both bodies; negation left aside."""
    return not (_within(one, other) or _within(other, one))


class _Missing:
    """Stands for a key the envelope does not have."""


MISSING: Final = _Missing()


def _leaves(value: list[Any]) -> list[Any] | None:
    """The elements of a list and of the lists in it, without recursion; None where either are too many."""
    leaves: list[Any] = []
    stack, lists = [value], 1
    while stack:
        each = stack.pop()
        inner = [element for element in each if isinstance(element, list)]
        lists += len(inner)
        if len(leaves) + len(each) - len(inner) > MAX_LEAVES or lists > MAX_LEAVES:
            return None
        leaves += [element for element in each if not isinstance(element, list)] if inner else each
        stack += inner
    return leaves


def compile_value(pattern: Any) -> ValueTest:
    """The test of a payload value against a payload pattern (protocol §3): a list fits if every element does."""
    test = _compile_one(pattern)

    def fits(value: Any, work: Work) -> bool:
        if not isinstance(value, list):
            return test(value, work)
        if len(value) > MAX_LEAVES:
            return False
        work.scan(TRIAL + len(value))
        leaves = _leaves(value)
        return leaves is not None and all(test(leaf, work) for leaf in leaves)

    return fits


def _compile_one(pattern: Any) -> ValueTest:
    """The test of anything but a list."""
    if isinstance(pattern, list):
        choices = [_compile_one(each) for each in pattern]
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
    keys = [(key, compile_value(each)) for key, each in pattern.items()]

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
    """The test whether a rule that restricts a value holds: one element of a list suffices, and in doubt it does.

    Capabilities allow what surely fits; a rule must hold for all that a receiver could take for what the rule names.
    """
    choices = _choices(pattern)
    sorts, tests = {_sort(each) for each in choices}, [_compile_bound(each) for each in choices]

    def holds_for(value: Any, work: Work) -> bool:
        work.scan(TRIAL)
        if value is not None and _sort(value) not in sorts:
            # Of a type that the rule does not know: it could be another form of what the rule names.
            return bool(tests)
        return any(test(value, work) for test in tests)

    def holds(value: Any, work: Work) -> bool:
        if not isinstance(value, list):
            return holds_for(value, work)
        leaves = None if len(value) > MAX_LEAVES else _leaves(value)
        work.scan(TRIAL + len(leaves or ()))
        return not leaves or any(holds_for(leaf, work) for leaf in leaves)

    return holds


def _choices(pattern: Any) -> list[Any]:
    return [leaf for each in pattern for leaf in _choices(each)] if isinstance(pattern, list) else [pattern]


def _sort(value: Any) -> type:
    """Whole and other numbers are of one type."""
    return float if type(value) is int else type(value)


def _compile_bound(pattern: Any) -> ValueTest:
    """Of a choice: null and what is missing are equal, and as parameters they are `{}`."""
    if not isinstance(pattern, dict):
        return _compile_one(pattern)
    keys = [(key, compile_binding(each)) for key, each in pattern.items()]

    def holds(value: Any, work: Work) -> bool:
        held = {} if value is None else value
        return isinstance(held, dict) and all(test(held.get(key), work) for key, test in keys)

    return holds


def _same(one: Any, other: Any) -> bool:
    """Numbers, booleans and null compare by value; `true` is never 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def covers_value(held: Any, asked: Any, work: Work = UNBOUNDED) -> bool:
    """Whether every value that fits `asked` fits `held`. Sound, and complete but for unions and overlapping globs."""
    if isinstance(asked, list):
        return all(covers_value(held, each, work) for each in asked)
    if isinstance(held, list):
        return any(covers_value(each, asked, work) for each in held)
    work.scan(TRIAL)
    if isinstance(held, str):
        return _covers_text(held, asked, work)
    if isinstance(held, dict):
        return isinstance(asked, dict) and all(
            key in asked and covers_value(each, asked[key], work) for key, each in held.items()
        )
    return _same(held, asked)


def _covers_text(held: str, asked: Any, work: Work) -> bool:
    negated = held.startswith("!")
    if not isinstance(asked, str):
        return negated
    if "*" in held or "*" in asked:
        longest = max(map(len, held.split("*")[1:-1]), default=0)
        stars = held.count("*") + asked.count("*")
        work.scan(TRIAL * stars + (len(held) + len(asked)) * (1 + longest // _PIECE_STEP))
    ours, theirs = Glob.parse(held.removeprefix("!")), Glob.parse(asked.removeprefix("!"))
    if asked.startswith("!"):
        return negated and theirs.covers(ours)
    return ours.is_disjoint(theirs) if negated else ours.covers(theirs)
