"""What the demo shows: a line a story while it plays, and tables whose sentences are made of their rows."""

import io

import pytest
from rich.console import Console

from tools.demo.showing import Show
from tools.demo.stories import Part, Story
from tools.demo.tables import QUESTIONS, Answer, bars, show, size

PART = Part("alice", "x.py", ("x",))
STORY = Story("one", "A story", (PART,))


def screen(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, highlight=False, color_system=None)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def question_of(title: str, rows: list[tuple[object, ...]]) -> Answer:
    (question,) = (question for question in QUESTIONS if question.title == title)
    return Answer(question, tuple("abcdefgh"[: len(rows[0])]) if rows else (), tuple(rows))


def test_without_a_terminal_everything_that_is_said_is_a_line() -> None:
    console = screen(terminal=False)
    viewer = Show(console)
    with viewer.playing([STORY]):
        viewer.begins(STORY)
        viewer.says(STORY, PART, "hello [bold]you")
        viewer.says(STORY, PART, "bye")
        viewer.ends(STORY, well=True)
    lines = [line.split() for line in shown(console).splitlines()]
    assert lines[:3] == [["one:", "A", "story"], ["one", "alice", "hello", "[bold]you"], ["one", "alice", "bye"]]
    assert shown(console).endswith("one is over after 0 s\n")


@pytest.mark.parametrize(("well", "mark"), [(True, "✓"), (False, "✗")])
def test_on_a_terminal_a_story_is_one_line_with_what_was_said_last(mark: str, *, well: bool) -> None:
    console = screen(terminal=True)
    viewer = Show(console)
    with viewer.playing([STORY]):
        viewer.begins(STORY)
        viewer.says(STORY, PART, "hello")
        viewer.says(STORY, PART, "bye " + "x" * 200)
        viewer.ends(STORY, well=well)
    last = [line for line in shown(console).splitlines() if "A story" in line][-1]
    assert f"{mark} A story" in last
    assert "alice bye xxx" in last
    assert "…" in last


def test_a_row_of_bars_shows_the_most_as_full_nothing_as_blank_and_little_as_something() -> None:
    assert bars([0, 1, 500, 1000]) == " ▁▅█"
    assert bars([0, 0]) == "  "
    assert bars([]) == ""


def test_bytes_are_shown_in_a_readable_unit() -> None:
    assert [size(count) for count in (0, 999, 1000, 84_159, 4_200_000)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "84.2 kB",
        "4.2 MB",
    ]


def test_a_violated_check_is_named() -> None:
    console = screen(terminal=False)
    show(question_of("Audit", [("owners", 3, 0, "holds"), ("positions", 4, 2, "violated")]), console)
    assert "7 things were checked in 2 ways; violated: positions." in shown(console)


def test_where_nothing_was_wrong_the_sentence_says_so_and_there_is_no_table() -> None:
    console = screen(terminal=False)
    show(question_of("Quarantined frames", []), console)
    assert shown(console) == "Quarantined frames\nEvery frame was what its format says.\n\n"


def test_a_long_table_is_cut_and_says_so() -> None:
    console = screen(terminal=False)
    show(question_of("Refused", [("bob", "chat", "unauthorized", reason) for reason in range(20)]), console)
    assert "\nand 4 more\n" in shown(console)
