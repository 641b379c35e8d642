"""The pattern language: matching, and that covering never claims too much."""

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol.patterns import (
    MAX_LEAVES,
    MAX_SCANNED_TEXT,
    TRIAL,
    Glob,
    KindPattern,
    TextTooLong,
    compile_binding,
    compile_value,
    covers_value,
)
from mew.protocol.work import Work
from tests.protocol.generated_patterns import ABSENT, fitting, narrowed, value_patterns, values
from tests.support.hypothesis_settings import examples


def words(letters: str, longest: int) -> list[str]:
    """Every text of these letters up to a length, including the empty one."""
    return ["".join(characters) for length in range(longest + 1) for characters in product(letters, repeat=length)]


def fits(pattern: Any, value: Any) -> bool:
    """Whether `value` or its absence under a key matches."""
    return compile_value({"k": pattern})({} if value is ABSENT else {"k": value}, Work())


def members(matches: Any, universe: list[str]) -> int:
    """The matching texts, as the bits of a number."""
    return sum(1 << place for place, text in enumerate(universe) if matches(text))


def test_a_glob_matches_like_its_regular_expression() -> None:
    for pattern in words("ab*", 4):
        expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        for text in words("ab", 5):
            assert Glob.parse(pattern).matches(text) == bool(expression.fullmatch(text)), (pattern, text)


def test_a_glob_covers_another_exactly_if_it_matches_all_its_texts() -> None:
    """Short texts suffice: they include the text of the other glob with `c`, which no pattern has, for its stars."""
    universe = words("abc", 4)
    matched = {glob: members(glob.matches, universe) for glob in map(Glob.parse, words("ab*", 4))}
    for pattern, other in product(matched, repeat=2):
        assert pattern.covers(other) == (matched[other] & ~matched[pattern] == 0), (pattern.text, other.text)


def test_globs_are_disjoint_only_if_no_text_matches_both() -> None:
    universe = words("ab", 7)
    matched = {glob: members(glob.matches, universe) for glob in map(Glob.parse, words("ab*", 3))}
    for one, other in product(matched, repeat=2):
        apart = matched[one] & matched[other] == 0
        literal = "*" not in one.text or "*" not in other.text
        assert one.is_disjoint(other) == apart if literal else one.is_disjoint(other) <= apart, (one.text, other.text)


def test_globs_with_a_star_are_disjoint_by_either_end() -> None:
    assert Glob.parse("a*").is_disjoint(Glob.parse("b*"))
    assert Glob.parse("*a").is_disjoint(Glob.parse("*b"))
    assert not Glob.parse("ab*a").is_disjoint(Glob.parse("a*ba"))


def test_covering_does_not_depend_on_a_reserved_letter() -> None:
    every_private_letter = "".join(map(chr, range(0xE000, 0x10000)))
    assert Glob.parse("*").covers(Glob.parse(every_private_letter + "*"))
    assert not Glob.parse(every_private_letter).covers(Glob.parse("*"))


def test_a_glob_with_many_stars_is_compared_quickly() -> None:
    assert not Glob.parse("*a" * 5_000 + "b*").matches("a" * 100_000)
    assert Glob.parse("*a" * 5_000).covers(Glob.parse("*a" * 5_001))


def test_a_kind_covers_another_exactly_if_it_matches_all_its_kinds() -> None:
    """Every pattern of three characters and some longer ones, with every kind and a letter that no pattern has."""
    texts = [*words("a/*!", 3), "a/**", "!a/*", "!a/**", "!!a/*", "a/a/*", "!a/a", "!a/a/*", "a/*a", "a/***", "!**"]
    universe = [*words("ab/*!", 4), "a/a/b", "a/a/a", "!a/b", "a/***", "a/*a", "a/**b"]
    matched = {kind: members(kind.matches, universe) for kind in map(KindPattern.parse, texts)}
    for pattern, other in product(matched, repeat=2):
        assert pattern.covers(other) == (matched[other] & ~matched[pattern] == 0), (pattern, other)


@examples(100)
@given(pattern=value_patterns, value=values)
def test_values_match_according_to_each_rule(pattern: Any, value: Any) -> None:
    """The same rules again, in their simplest form."""

    def plainly(pattern: Any, value: Any) -> bool:
        if isinstance(value, list):
            return all(plainly(pattern, element) for element in value)
        if isinstance(pattern, list):
            return any(plainly(choice, value) for choice in pattern)
        if isinstance(pattern, dict):
            return isinstance(value, dict) and all(plainly(pattern[key], value.get(key, ABSENT)) for key in pattern)
        if isinstance(pattern, str) and pattern.startswith("!"):
            return not plainly_text(pattern[1:], value)
        if isinstance(pattern, str):
            return plainly_text(pattern, value)
        return sort(value) == sort(pattern) and bool(value == pattern)

    def sort(value: Any) -> str:
        return "number" if type(value) in {int, float} else type(value).__name__

    def plainly_text(glob: str, value: Any) -> bool:
        return isinstance(value, str) and bool(re.fullmatch(".*".join(map(re.escape, glob.split("*"))), value))

    assert fits(pattern, value) == plainly(pattern, value)


@st.composite
def held_and_asked(draw: st.DrawFn) -> tuple[Any, Any, list[Any]]:
    """A pattern, one that mostly narrows it, and a value that is likely to match that."""
    pattern = draw(value_patterns)
    other = draw(narrowed(pattern) | value_patterns)
    return pattern, other, draw(st.lists(fitting(other), min_size=5, max_size=10))


@examples(40)
@given(case=held_and_asked())
def test_the_covering_pattern_matches_everything_that_the_covered_one_matches(case: tuple[Any, Any, list[Any]]) -> None:
    pattern, other, likely = case
    if covers_value(pattern, other):
        for value in likely:
            assert fits(pattern, value) or not fits(other, value), value


@examples(40)
@given(case=value_patterns.flatmap(lambda pattern: st.tuples(st.just(pattern), narrowed(pattern))))
def test_a_pattern_with_narrower_parts_is_covered(case: tuple[Any, Any]) -> None:
    pattern, tighter = case
    assert covers_value(pattern, tighter)


EVERY_SORT: list[Any] = ["", "a", "b", "!a", 0, 1, True, False, None, 2.5, {}, {"x": 1}, {"x": "a"}, {"y": None}]
VALUES: list[Any] = [
    ABSENT,
    *EVERY_SORT,
    [],
    [[]],
    ["a", "b"],
    ["a", ["a"]],
    [1, True],
    [{}, "a"],
    [None, [1]],
    {"x": []},
]
PATTERNS: list[Any] = [
    *EVERY_SORT,
    *["*", "**", "!*", "!**", "!", "!!a", "a*", "!a*", "*b", "!*b"],
    *[[], [[]], ["a"], ["a", "b"], ["a", ["b", 1]], ["!a", "a"], ["!a", "!b"], ["!*", "*"], [{"x": 1}, {"x": True}]],
    *[{"x": "!a"}, {"x": "!*"}, {"x": "*"}, {"x": []}, {"x": {}}, {"x": [1, "a"]}, {"x": 1, "y": "!a"}],
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_covering_is_defined_for_every_type_of_pattern_and_value(pattern: Any) -> None:
    for other in PATTERNS:
        if covers_value(pattern, other):
            assert [value for value in VALUES if fits(other, value) and not fits(pattern, value)] == [], other


def test_a_key_that_is_missing_is_not_null() -> None:
    assert fits(None, None)
    assert not fits(None, ABSENT)


def binds(pattern: Any, value: Any) -> bool:
    return compile_binding({"k": pattern})({} if value is ABSENT else {"k": value}, Work())


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_a_rule_applies_to_a_value_that_matches_alone_or_in_a_list(pattern: Any) -> None:
    for value in VALUES:
        if fits(pattern, value):
            assert binds(pattern, value), value
            assert value in (ABSENT, [], [[]]) or binds(pattern, ["zzz", [value], 7, False, {"z": 1}]), value


@examples(40)
@given(case=value_patterns.flatmap(lambda pattern: st.tuples(st.just(pattern), fitting(pattern))))
def test_a_rule_matches_more_than_a_capability(case: tuple[Any, Any]) -> None:
    pattern, value = case
    assert binds(pattern, value) or not fits(pattern, value)


@pytest.mark.parametrize(
    ("pattern", "value", "bound"),
    [
        ("a*", "ab", True),
        ("a*", "b", False),
        ("a*", ["b", ["c"]], False),
        ("a*", ["b", ["c", ["a"]]], True),
        ("a*", [], True),
        ("a*", ["b"] * (MAX_LEAVES + 1), True),
        ("a*", [[[]]] * MAX_LEAVES, True),
        *(("a*", value, True) for value in (1, True, {}, {"x": "b"})),
        *(("a*", value, False) for value in (None, ABSENT, ["b", None])),
        ("!a*", None, True),
        (1, 1.0, True),
        (1, 2, False),
        (1, 2.0, False),
        (1.5, 2, False),
        (1, True, True),
        (True, "true", True),
        (False, True, False),
        (None, ABSENT, True),
        (["a", 1], "b", False),
        ([["a"], 1], "a", True),
        ([], "a", False),
        ({"x": "!a"}, ABSENT, True),
        ({"x": "a"}, ABSENT, False),
        ({"x": "a"}, {"x": "b"}, False),
        ({"x": "a"}, "b", True),
        ([{"x": "a"}, "b"], "c", False),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_rule_applies_in_doubt(pattern: Any, value: Any, bound: bool) -> None:
    assert binds(pattern, value) is bound


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_every_pattern_covers_itself(pattern: Any) -> None:
    assert covers_value(pattern, pattern)


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (1, True),
        (True, 1),
        (0, None),
        (None, "!*"),
        ("*", "!a"),
        ("*", 1),
        ("*", ["a", 1]),
        ("!a", "*"),
        ("!a", ["b", "a"]),
        ("!a", "!b"),
        ("!*", "!a"),
        ([], "a"),
        ({}, "!*"),
        ({}, [{}, None]),
        ({"x": "!a"}, {}),
        ({"x": "*"}, {"x": "!a"}),
        ({"x": []}, {"x": "a"}),
        ([{"x": 1}, {"y": 1}], {"x": [1, 2], "y": 2}),
    ],
    ids=repr,
)
def test_a_wider_pattern_is_not_covered(pattern: Any, other: Any) -> None:
    assert not covers_value(pattern, other)


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (1, 1.0),
        ("*", "a*"),
        ("!a", "b*"),
        ("!a", ["b", 1, None, {"x": 1}]),
        ("!a", "!a*"),
        ("!a", "!*"),
        ("a", []),
        ({}, {"x": 1}),
        ({"x": "!a"}, {"x": "!*", "y": 1}),
        (["a", "b"], ["b", ["a"]]),
        ([["a"], 1], 1),
    ],
    ids=repr,
)
def test_a_narrower_pattern_is_covered(pattern: Any, other: Any) -> None:
    assert covers_value(pattern, other)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [("*", True), ("x*", True), ("*x", True), ("x*x", True), ("!y*", True), ("y", False), (["*y", "x*"], True)],
)
def test_texts_of_any_length_are_matched_if_nothing_is_between_stars(pattern: Any, fits: bool) -> None:
    assert compile_value(pattern)("x" * (MAX_SCANNED_TEXT + 1), Work()) is fits


@pytest.mark.parametrize("pattern", ["*x*", "x*x*", "!*y*", ["y", "*x*"]])
def test_texts_over_64_kib_are_not_matched_if_text_is_between_stars(pattern: Any) -> None:
    test = compile_value(pattern)
    assert test("x" * MAX_SCANNED_TEXT, Work())
    with pytest.raises(TextTooLong):
        test("x" * (MAX_SCANNED_TEXT + 1), Work())


def test_every_match_is_counted_and_long_pieces_more() -> None:
    def scanned(pattern: Any, value: Any) -> int:
        work = Work()
        compile_value(pattern)(value, work)
        return work._scanned

    assert scanned("x*", "x" * 5_000) == scanned(1, 2) == scanned("x", 7) == TRIAL
    assert scanned("*x*", "y" * 5_000) == 3 * TRIAL + 5_000
    assert scanned("*" + "x" * 16 + "*", "y" * 5_000) == 3 * TRIAL + 2 * 5_000
    assert scanned({"a": 1, "b": 2}, {"a": 1, "b": 2}) == 3 * TRIAL
    assert scanned("x", ["x", "x"]) == TRIAL + 2 + 2 * TRIAL


def test_every_comparison_of_patterns_is_counted_and_long_pieces_more() -> None:
    def scanned(pattern: Any, other: Any) -> int:
        work = Work()
        covers_value(pattern, other, work)
        return work._scanned

    assert scanned(1, 2) == scanned("abc", "a") == scanned("!abc", "!a") == scanned("a*", 7) == TRIAL
    assert scanned("ab*", "c") == scanned("c", "ab*") == TRIAL + TRIAL + 4
    assert scanned("a*b*c", "d*") == TRIAL + 3 * TRIAL + 7
    long = "x" * 16
    assert scanned(f"{long}*{long}", "y") == TRIAL + TRIAL + 34
    assert scanned(f"*{long}*a*", "y") == scanned(f"*a*{long}*", "y") == TRIAL + 3 * TRIAL + 2 * 21
    assert scanned(["a", "b"], "c") == scanned("c", ["c", "c"]) == 2 * TRIAL


def test_every_match_of_a_rule_is_counted() -> None:
    work = Work()
    compile_binding("x")(["y", "y"], work)
    assert work._scanned == TRIAL + 2 + 4 * TRIAL


def test_a_list_of_too_many_lists_matches_nothing() -> None:
    test = compile_value("x")
    assert test([[]] * (MAX_LEAVES - 1), Work())
    assert not test([[]] * MAX_LEAVES, Work())
    assert not test([["x"] * 600, ["x"] * 600], Work())
    assert test(["x"] * MAX_LEAVES, Work())
    assert not test(["y", ["x"]], Work())
    assert not test(["x"] * (MAX_LEAVES + 1), Work())
    assert not test(["x"] * (MAX_LEAVES - 1) + [[], []], Work())
