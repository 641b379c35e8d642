"""Who shares a worker: every module that is named is there, and none that needs Spark is forgotten."""

from pathlib import Path

from tests.pipeline.sharing import LONG, ON_SPARK, SPARK, Sharing, place_in_queue

FOLDER = Path(__file__).parent
ASKS = ("spark: SparkSession", 'getfixturevalue("spark")')
"""How a test says that it needs the session that all share."""


def test_every_module_that_is_named_is_there_and_named_once() -> None:
    assert [name for name in LONG if not (FOLDER / name).is_file()] == []
    assert len(set(LONG)) == len(LONG)


def test_no_module_that_needs_spark_is_forgotten() -> None:
    modules = [path for path in FOLDER.rglob("test_*.py") if path != Path(__file__)]
    asking = {path for path in modules if any(words in path.read_text(encoding="utf-8") for words in ASKS)}
    assert {path.relative_to(FOLDER).as_posix() for path in asking} == set(ON_SPARK)


def test_all_that_need_spark_are_one_group_and_any_other_module_is_one() -> None:
    group = Sharing._split_scope
    spark = {group(Sharing.__new__(Sharing), f"tests/pipeline/{name}::test_x[a::b]") for name in ON_SPARK}
    assert spark == {SPARK}
    other = Sharing.__new__(Sharing)
    assert group(other, "tests/pipeline/lake/test_parts.py::test_x") == "tests/pipeline/lake/test_parts.py"


def test_what_takes_long_is_begun_first() -> None:
    names = ["tests/pipeline/lake/test_parts.py::test_x", *(f"tests/pipeline/{name}::test_y" for name in LONG)]
    assert [each.partition("::")[2] for each in sorted(names, key=place_in_queue)][-1] == "test_x"
    assert sorted(names, key=place_in_queue)[:-1] == names[1:]
