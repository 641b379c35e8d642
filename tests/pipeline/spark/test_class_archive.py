"""The class archive: for one build of Java, used if it exists, not needed if it does not."""

import sys
from pathlib import Path

import msgspec
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mew.pipeline import class_archive
from mew.pipeline.class_archive import (
    ClassArchiveError,
    find_archive,
    make_archive,
    make_option,
    use_option,
)
from mew.pipeline.java import Java, find_java
from mew.pipeline.session import SessionOptions, spark_settings
from tests.pipeline.sessions import SETTINGS
from tests.support.host_requirements import requires


def test_an_archive_is_for_one_build_of_java() -> None:
    found = find_java()
    requires(find_archive(found), "`mew pipeline setup` has not been run")
    assert find_archive(msgspec.structs.replace(found, build="99")) is None
    assert find_archive(msgspec.structs.replace(found, home=Path("/elsewhere"))) is None


def test_a_session_starts_from_the_archive(spark: SparkSession) -> None:
    found = find_java()
    classes = find_archive(found)
    requires(classes, "`mew pipeline setup` has not been run")
    assert classes is not None
    options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions")
    assert f'"{use_option(found, classes)}"' in (options or "")
    assert SparkContext._gateway is not None
    mapped = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps")
    requires(mapped.exists(), "this system does not show what a process has mapped")
    assert str(classes) in mapped.read_text(encoding="utf-8")


def test_without_an_archive_a_session_starts_as_well(tmp_path: Path) -> None:
    nobodys = msgspec.structs.replace(find_java(), version=17, build="99")
    told = spark_settings(SessionOptions(SETTINGS, "local[1]"), tmp_path, nobodys)
    assert "-XX:SharedArchiveFile" not in told["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("version", "made", "used"),
    [
        (17, "-XX:ArchiveClassesAtExit=a", "-XX:SharedArchiveFile=a"),
        (24, "-XX:ArchiveClassesAtExit=a", "-XX:SharedArchiveFile=a"),
        (25, "-XX:AOTCacheOutput=a", "-XX:AOTCache=a"),
    ],
)
def test_each_java_has_its_own_words_for_it(version: int, made: str, used: str) -> None:
    some = Java(Path(), version, "PATH", "")
    assert (make_option(some, Path("a")), use_option(some, Path("a"))) == (made, used)


def test_an_archive_that_takes_too_long_is_given_up_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_java()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(class_archive, "MAKING_SECONDS", 0.01)
    with pytest.raises(ClassArchiveError, match=r"took more than 0\.01 s"):
        make_archive(found, say=lambda line: None)
    assert [path.suffix for path in (tmp_path / "share" / "mew").iterdir()] == [".lock"]
