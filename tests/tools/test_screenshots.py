"""The pictures of the documents are those that `make screenshots` takes, and small enough for a clone."""

import re
import struct
from pathlib import Path

import pytest

from tools import screenshots
from tools.demo.stories import Pace, stories

TAKEN = re.findall(r'camera\.take\("([^"]+)"\)', Path(screenshots.__file__).read_text(encoding="utf-8"))


def test_every_picture_is_taken_once_and_no_other_is_there() -> None:
    assert sorted(TAKEN) == sorted(path.stem for path in screenshots.IMAGES.glob("*.png"))


@pytest.mark.parametrize("name", TAKEN)
def test_a_picture_is_small_and_as_wide_as_the_screen_it_shows(name: str) -> None:
    content = (screenshots.IMAGES / f"{name}.png").read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    screen = screenshots.PHONE if name.endswith("phone") else screenshots.DESKTOP
    assert (width, height) == (screen["width"], screen["height"])
    assert len(content) <= screenshots.LARGEST


def test_in_the_picture_of_approvals_the_human_sits_at_the_browser() -> None:
    (approval,) = (story for story in stories(Pace(), Path("somewhere")) if story.name == "approval")
    played = screenshots.without_the_human(approval)
    assert {part.participant for part in approval.parts} - {part.participant for part in played.parts} == {"human"}
    assert all(cue.part != "human" for part in played.parts for cue in part.cues)


def test_errors_of_every_task_are_reported() -> None:
    first, second = ValueError("a"), ValueError("b")
    assert list(screenshots.leaves(ExceptionGroup("all", [ExceptionGroup("some", [first]), second]))) == [first, second]
