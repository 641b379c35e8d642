"""Which modules are begun first: every module that is named is there, and they keep their order."""

from pathlib import Path

from tests.pipeline.sharing import LONG, place_in_queue

FOLDER = Path(__file__).parent


def test_every_module_that_is_named_is_there_and_named_once() -> None:
    assert [name for name in LONG if not (FOLDER / name).is_file()] == []
    assert len(set(LONG)) == len(LONG)


def test_what_takes_long_is_begun_first() -> None:
    names = ["tests/pipeline/lake/test_parts.py::test_x", *(f"tests/pipeline/{name}::test_y" for name in LONG)]
    assert [each.partition("::")[2] for each in sorted(names, key=place_in_queue)][-1] == "test_x"
    assert sorted(names, key=place_in_queue)[:-1] == names[1:]
