"""The built page in the package is what its sources come to, and its fold is the core's."""

import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.inspector.building import BUILT, INSTALL_SECONDS, LOCK, ROOT, SOURCES, installed, ran
from tools.inspector_vectors import write

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 60)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_built_page_is_what_its_sources_come_to_byte_by_byte(tmp_path: Path) -> None:
    installed()
    done = ran("npm", "run", "build", seconds=120, MEW_INSPECTOR_OUT=str(tmp_path / "built"))
    assert done.returncode == 0, done.stdout + done.stderr
    built, committed = contents(tmp_path / "built"), contents(BUILT)
    assert built.keys() == committed.keys()
    assert [name for name in built if built[name] != committed[name]] == []


def test_the_pages_fold_is_that_of_the_view(tmp_path: Path) -> None:
    installed()
    vectors = tmp_path / "fold.json"
    count = write(vectors)
    done = ran("node", "vectors/compare.mjs", str(vectors))
    assert (done.returncode, done.stdout) == (0, f"{count} steps, 0 wrong\n"), done.stderr


def test_a_fold_that_differs_is_noticed(tmp_path: Path) -> None:
    installed()
    vectors = tmp_path / "fold.json"
    write(vectors)
    vector_list = json.loads(vectors.read_bytes())
    vector_list[0]["steps"][3]["view"]["position"] += 1
    vectors.write_text(json.dumps(vector_list), encoding="utf-8")
    done = ran("node", "vectors/compare.mjs", str(vectors))
    assert done.returncode == 1
    assert "open and end, as seen by an observer, step 3" in done.stderr


def test_versions_are_exact_and_the_lock_names_no_registry() -> None:
    package = json.loads((SOURCES / "package.json").read_text(encoding="utf-8"))
    dependencies = {**package["dependencies"], **package["devDependencies"]}
    assert all(version[0].isdigit() for version in dependencies.values())
    locked = json.loads(LOCK.read_text(encoding="utf-8"))["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in dependencies} == dependencies
    assert not [name for name, package_entry in locked.items() if {"resolved", "funding"} & package_entry.keys()]


def test_the_report_draws_with_the_same_version_of_uplot() -> None:
    report = ROOT / "src" / "mew" / "pipeline" / "report" / "assets" / "package.json"
    uplot = [
        json.loads(manifest.read_text())["dependencies"]["uplot"] for manifest in (report, SOURCES / "package.json")
    ]
    assert uplot[0] == uplot[1]


def test_the_wheel_has_every_file_of_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        shipped = {name: archive.read(name) for name in archive.namelist() if name.startswith("mew/inspector/static/")}
    assert {name.removeprefix("mew/inspector/static/"): content for name, content in shipped.items()} == contents(BUILT)


def test_the_licenses_of_what_is_in_the_page_come_with_it() -> None:
    licenses = (BUILT / "licenses.md").read_text(encoding="utf-8")
    for name in ("preact", "uplot"):
        assert name in licenses.lower()
