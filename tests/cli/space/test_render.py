"""Logs that are followed together, as readable text that cannot control the terminal."""

from pathlib import Path

import pytest

from mew.cli.space.render import LogLines, log_text


def test_new_lines_are_returned_with_the_name_of_their_log_when_complete(tmp_path: Path) -> None:
    old, new = tmp_path / "a.log", tmp_path / "b.log"
    old.write_text("before\n", encoding="utf-8")
    lines = LogLines(tmp_path)
    assert list(lines.new()) == []
    with old.open("a", encoding="utf-8") as file:
        file.write("one\nha")
    new.write_text("first\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not a log\n", encoding="utf-8")
    assert list(lines.new()) == [("a", "one"), ("b", "first")]
    with old.open("a", encoding="utf-8") as file:
        file.write("lf\n")
    assert list(lines.new()) == [("a", "half")]
    assert list(lines.new()) == []


def test_a_truncated_log_is_followed_from_its_new_beginning(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("long ago\n", encoding="utf-8")
    lines = LogLines(tmp_path)
    file.write_text("", encoding="utf-8")
    assert list(lines.new()) == []
    file.write_text("new\n", encoding="utf-8")
    assert list(lines.new()) == [("a", "new")]


def test_a_missing_folder_of_logs_has_no_lines(tmp_path: Path) -> None:
    assert list(LogLines(tmp_path / "nowhere").new()) == []


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain words", "plain words"),
        ('{"x":1}', '{"x":1}'),
        ("{broken", "{broken"),
        ("red \x1b[31m\x1b]0;title\x07", "red �[31m�]0;title�"),
        (
            '{"timestamp":"2026-11-16T09:17:57.46Z","level":"info","logger":"l","event":"listening","port":8080}',
            "09:17:57 info    listening port=8080",
        ),
        ('{"level":["odd"],"event":"x\\u001b[2J"}', "         ['odd'] x�[2J"),
    ],
)
def test_a_line_is_readable_and_cannot_control_the_terminal(line: str, shown: str) -> None:
    assert log_text(line) == shown
