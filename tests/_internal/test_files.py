"""Files that survive a crash, atomic writes, and locks between processes."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mew._internal.files import (
    FileLock,
    FileUnavailable,
    LockHeld,
    ensure_space_folder,
    make_folder,
    replace_file,
    replacing,
    write_if_absent,
)

HOLD = """
import sys
from pathlib import Path
from mew._internal.files import FileLock
with FileLock(Path(sys.argv[1]), owner='the other process'):
    print(1, flush=True)
    sys.stdin.read()
"""


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fsynced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are fsynced from now on."""
    paths: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_a_replaced_file_is_complete_and_leaves_no_other_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    replace_file(file, b"old")
    replace_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert names_in(tmp_path) == ["file"]


def test_a_failed_replacement_keeps_the_old_contents(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(file) as draft:
        draft.write(b"new")
        raise KeyboardInterrupt
    assert (file.read_bytes(), names_in(tmp_path)) == (b"old", ["file"])


def test_a_durable_replacement_fsyncs_contents_then_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = fsynced(monkeypatch)
    with replacing(tmp_path / "file", mode=0o600) as draft:
        draft.write(b"new")
    assert [Path(path).parent for path in paths] == [tmp_path, tmp_path.parent]
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    with replacing(tmp_path / "file", durable=False) as draft:
        draft.write(b"newer")
    assert len(paths) == 2


def test_a_file_that_cannot_be_replaced_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileUnavailable, match="missing/file"):
        replace_file(tmp_path / "missing" / "file", b"")


def test_of_many_writers_one_creates_the_file_and_all_read_its_contents(tmp_path: Path) -> None:
    file = tmp_path / "made" / "file"
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda text: results.append(write_if_absent(file, text)), args=(b"%d" % number * 999,))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]
    assert len(set(file.read_bytes())) == 1
    assert names_in(file.parent) == ["file"]


def test_the_name_of_an_existing_file_is_fsynced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_if_absent(tmp_path / "file", b"first")
    paths = fsynced(monkeypatch)
    assert not write_if_absent(tmp_path / "file", b"second")
    assert paths[-1] == str(tmp_path)


def test_a_made_folder_has_fsynced_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = fsynced(monkeypatch)
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert paths == [str(tmp_path), str(tmp_path / "a")]


def test_the_folder_of_a_space_is_private_and_ignored_by_git(tmp_path: Path) -> None:
    folder = ensure_space_folder(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / ".gitignore").write_text("mine", encoding="utf-8")
    ensure_space_folder(tmp_path)
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "mine"


@contextmanager
def held(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process holds the lock until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process


def test_a_lock_of_another_process_is_reported_with_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held(path):
        with pytest.raises(LockHeld, match=r"^the other process$"):
            FileLock(path)
        with pytest.raises(LockHeld):
            FileLock(path, wait=0.05)
    with FileLock(path, owner="us"):
        assert path.read_bytes() == b"us\n"


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held(path) as process:
        process.kill()
        with FileLock(path, wait=None):
            pass


def test_a_released_lock_can_be_taken_by_a_waiting_thread(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock(path)
    locks: list[FileLock] = []
    thread = threading.Thread(target=lambda: locks.append(FileLock(path, wait=20)))
    thread.start()
    assert not locks
    first.release()
    thread.join()
    assert len(locks) == 1
    locks[0].release()
