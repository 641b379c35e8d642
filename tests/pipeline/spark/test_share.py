"""What is made once for an environment: whole or not there at all."""

import sys
import threading
from pathlib import Path

import pytest

from mew.pipeline import share


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "environment"


def fill(folder: Path) -> None:
    (folder / "file").write_text("made", encoding="utf-8")


def is_whole(folder: Path) -> bool:
    return (folder / "file").is_file()


def refuse(folder: Path) -> None:
    (folder / "half").write_text("", encoding="utf-8")
    raise OSError("no more room")


def left(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if not path.name.endswith(".lock"))


def test_a_thing_is_made_once(prefix: Path) -> None:
    assert share.find_cached("thing") is None
    made = share.build_cached("thing", fill)
    assert made == prefix / "share" / "mew" / "thing"
    assert share.build_cached("thing", refuse) == share.find_cached("thing") == made


def test_a_thing_that_could_not_be_made_leaves_nothing_behind(prefix: Path) -> None:
    with pytest.raises(OSError, match="no more room"):
        share.build_cached("thing", refuse)
    assert left(prefix / "share" / "mew") == []


def test_a_thing_that_is_not_whole_is_replaced(prefix: Path) -> None:
    folder = prefix / "share" / "mew" / "thing"
    folder.mkdir(parents=True)
    (folder / "half").write_text("", encoding="utf-8")
    assert share.find_cached("thing", is_whole) is None
    assert share.build_cached("thing", fill, is_whole) == folder
    assert left(folder) == ["file"]
    assert left(folder.parent) == ["thing"]


def test_many_who_want_a_thing_at_once_make_it_once() -> None:
    made = []
    together = threading.Barrier(8, timeout=30)

    def slowly(folder: Path) -> None:
        made.append(folder)
        fill(folder)

    def want() -> None:
        together.wait()
        share.build_cached("thing", slowly, is_whole)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(made) == 1
    assert share.find_cached("thing", is_whole)


def test_what_is_made_may_need_another_thing_that_is_made() -> None:
    def fill_with_another(folder: Path) -> None:
        (folder / "file").write_bytes((share.build_cached("another", fill) / "file").read_bytes())

    assert is_whole(share.build_cached("thing", fill_with_another))


def test_an_environment_that_cannot_be_written_to_leaves_the_users_cache(prefix: Path, tmp_path: Path) -> None:
    prefix.write_text("not a folder", encoding="utf-8")
    assert share.build_cached("thing", fill) == tmp_path / "cache" / "mew" / "thing" == share.find_cached("thing")


def test_nowhere_to_write_is_said(prefix: Path, tmp_path: Path) -> None:
    prefix.write_text("not a folder", encoding="utf-8")
    (tmp_path / "cache").write_text("neither", encoding="utf-8")
    with pytest.raises(share.NowhereToKeep, match=r"cannot write to .*environment.* or .*cache"):
        share.build_cached("thing", fill)
