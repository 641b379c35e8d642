"""`make setup`: it says how far it is, repairs what is broken, and does nothing where all is there."""

import ast
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final
from zipfile import ZipFile

import pytest

from tests.tools.wheels import FUTURE, empty_wheel, pin_of, wheel_name
from tools.environments import ENVIRONMENTS, INSTALL_OPTIONS, STAMP, Setup, SetupError, children, setup_seconds
from tools.environments.children import clean_environment
from tools.environments.display import InstallerOutput
from tools.environments.failures import explain

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 120
PATH: Final = os.environ["PATH"]

pytestmark = pytest.mark.timeout(2 * SECONDS)


class Tree:
    """A repository with one small environment, `.venv-core`, whose packages come from a folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        self.index = root / "index"
        self.index.mkdir()
        (self.environment,) = (environment for environment in ENVIRONMENTS if environment.folder == ".venv-core")
        self.pins = root / self.environment.pins[0]
        self.pins.parent.mkdir()
        shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        self.log = root / "build" / "setup" / "venv-core.log"
        self.pin("1.0")

    @property
    def setup(self) -> Setup:
        return Setup(self.environment, root=self.root)

    @property
    def site_packages(self) -> Path:
        (folder,) = self.setup.folder.glob("lib/python3*/site-packages")
        return folder

    def use_as_uv(self, script: str) -> None:
        """Put a program of the name uv on the path."""
        uv = self.root / "bin" / "uv"
        uv.parent.mkdir(exist_ok=True)
        uv.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        uv.chmod(0o755)

    def pin(self, version: str) -> None:
        """Pin `one` and `two`. An installer that resolves also wants `three`, and later versions of all."""
        for version_of_wheel in (version, FUTURE):
            empty_wheel(self.index, "one", version_of_wheel, ["two[more]>=1"])
            empty_wheel(self.index, "two", version_of_wheel, ['three>=1; extra == "more"'], ["more"])
            empty_wheel(self.index, "three", version_of_wheel)
        lines = [pin_of(self.index / wheel_name(name, version), name, version) for name in ("one", "two")]
        self.pins.write_text("\n".join(lines), encoding="utf-8")

    def installed(self) -> dict[str, str]:
        code = "import importlib.metadata as m; print({d.name: d.version for d in m.distributions()})"
        ran = subprocess.run([self.setup.python, "-c", code], capture_output=True, text=True, check=True)
        versions = ast.literal_eval(ran.stdout)
        return {name: versions[name] for name in ("one", "two", "three") if name in versions}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    new_tree = Tree(tmp_path, monkeypatch)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(new_tree.index))
    monkeypatch.setenv("PATH", str(new_tree.root / "bin"))  # a folder without uv, wherever this machine has one
    return new_tree


def with_the_index() -> dict[str, str]:
    """The process's environment without the settings that hide the package index."""
    return {name: value for name, value in os.environ.items() if name not in ("PIP_NO_INDEX", "PIP_FIND_LINKS")}


def test_an_environment_is_made_once_and_its_second_run_is_silent_and_quick(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    tree.setup.make()
    first = time.monotonic() - began
    output = capsys.readouterr().out
    assert "── .venv-core: making it with Python" in output
    assert "installing the 2 packages of requirements/core.txt, hashes checked" in output
    assert "── .venv-core: ready after" in output
    assert len(output.splitlines()) < 6
    assert "Successfully installed one-1.0 two-1.0" in tree.log.read_text(encoding="utf-8")
    assert tree.installed() == {"one": "1.0", "two": "1.0"}
    assert (setup_seconds(tree.setup.folder) or 0) > 0
    log = tree.log.read_text(encoding="utf-8")
    began = time.monotonic()
    tree.setup.make()
    assert time.monotonic() - began < first / 4
    assert tree.log.read_text(encoding="utf-8") == log, "no program was run"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "name",
    [
        *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN", "PIP_CONSTRAINT", "PIP_REQUIRE_HASHES"),
        *("PIP_ONLY_BINARY", "PIP_NO_BINARY", "PIP_PYTHON", "PIP_REQUIREMENT", "UV_CONSTRAINT", "UV_NO_BINARY"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS", "VIRTUAL_ENV"),
    ],
)
def test_what_a_caller_set_for_other_work_reaches_no_installer(name: str) -> None:
    assert clean_environment({name: "1", "HOME": "here"}) == {"HOME": "here", "PIP_USER": "0"}


@pytest.mark.parametrize(
    "name",
    [
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_PROXY", "PIP_CERT"),
        *("PIP_CLIENT_CERT", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_CACHE_DIR"),
        *("PIP_CONFIG_FILE", "UV_DEFAULT_INDEX", "UV_INDEX_OURS_PASSWORD", "UV_FIND_LINKS", "UV_NATIVE_TLS"),
        *("HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "PATH", "HOME"),
    ],
)
def test_what_says_where_packages_come_from_reaches_the_installer(name: str) -> None:
    assert clean_environment({name: "1", "PIP_USER": "1"}) == {name: "1", "PIP_USER": "0"}


def test_a_caller_with_settings_for_other_work_gets_the_same_environment(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_CONSTRAINT", "PYTHONPATH", "PYTHONHOME"):
        monkeypatch.setenv(name, str(elsewhere))
    for name in ("PIP_DRY_RUN", "PIP_USER", "PIP_REQUIRE_HASHES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    for wheel in tree.index.glob("*-1.0-*.whl"):  # a package on PYTHONPATH counts as installed
        with ZipFile(wheel) as archive:
            archive.extractall(elsewhere)
    tree.setup.make()
    assert sorted(path.name for path in tree.site_packages.glob("*-1.0.dist-info")) == [
        "one-1.0.dist-info",
        "two-1.0.dist-info",
    ]


def test_the_silence_of_a_program_is_heard_and_is_none_of_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program prints its second line when its silence has been heard."""
    monkeypatch.setattr(children, "QUIET_SECONDS", 0.0001)
    silence = tmp_path / "silence"
    program = f"import os\nprint(1, flush=True)\nwhile not os.path.exists({str(silence)!r}): pass\nprint(2)"

    def hear(line: str) -> None:
        if not line:
            silence.touch()

    with (tmp_path / "lock").open("w") as lock:
        desk = children.Desk(tmp_path, tmp_path / "log", lock)
        assert desk.run([sys.executable, "-c", program], hear) == (0, ["1\n", "2\n"])
    assert silence.exists()


def test_an_environment_that_does_not_hold_its_pins_is_not_finished(tree: Tree) -> None:
    """`pip check` has nothing against what an installer left out: it looks at what is there."""
    tree.use_as_uv("exit 0")
    with pytest.raises(SetupError) as refused:
        tree.setup.make()
    assert str(refused.value) == (
        ".venv-core does not hold what is pinned: one 1.0 is missing; two 1.0 is missing. "
        "The log is build/setup/venv-core.log."
    )
    assert tree.setup.defect() == "it was never finished"


def test_a_broken_environment_is_found_and_made_again(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.setup.make()
    (site_packages,) = tree.setup.folder.glob("lib/python3*/site-packages")
    stamp, package = tree.setup.folder / STAMP, site_packages / "two-1.0.dist-info"
    for lost, defect in (
        (package, "1 of its files are gone, two-1.0.dist-info among them"),
        (site_packages / "pip", "1 of its files are gone, pip among them"),
        (site_packages / "pip" / "__main__.py", "1 of its files are gone, __main__.py among them"),
        (tree.setup.folder / "bin" / "pip", "1 of its files are gone, pip among them"),
        (tree.setup.folder / "lib", "its packages are gone"),
        (stamp, "it was never finished"),
        (tree.setup.python, "its Python does not start"),
    ):
        hidden = lost.rename(lost.with_name(f"{lost.name}.hidden"))
        assert tree.setup.defect() == defect
        hidden.rename(lost)
        assert tree.setup.defect() == ""
    installer = package / "INSTALLER"
    installer.write_text("pip\npip\n", encoding="utf-8")
    assert tree.setup.defect() == f"1 of its files have changed, {installer.relative_to(tree.setup.folder)} among them"
    installer.write_text("pip\n", encoding="utf-8")
    moved = tree.root.rename(tree.root.with_name("moved"))
    assert Setup(tree.environment, root=moved).defect() == "its folder has moved"
    moved.rename(tree.root)
    assert tree.setup.defect() == ""
    whole = stamp.read_text(encoding="utf-8")
    stamp.write_text(whole[:20], encoding="utf-8")
    assert tree.setup.defect() == "it was never finished"
    stamp.write_text(whole, encoding="utf-8")
    tree.pin("2.0")
    capsys.readouterr()
    tree.setup.make()
    assert "because its pins have changed" in capsys.readouterr().out
    assert tree.installed() == {"one": "2.0", "two": "2.0"}
    assert tree.setup.defect() == ""


BACKEND: Final = """
import zipfile
from pathlib import Path

def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(Path(folder) / "project-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("project.pth", str(Path("src").resolve()))
        wheel.writestr("project-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: project\\nVersion: 1\\n")
        wheel.writestr("project-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("project-1.dist-info/RECORD", "project.pth,,\\n")
    return "project-1-py3-none-any.whl"
"""
SPARK_SETUP: Final = """
import sys
from pathlib import Path

jar = Path(sys.prefix, "share", "mew", "a.jar")
jar.parent.mkdir(parents=True, exist_ok=True)
jar.exists() or jar.write_bytes(b"jar")
"""


def test_what_the_project_brought_is_brought_again_without_the_packages(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, text in {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND,
        "src/mew/__main__.py": SPARK_SETUP,
        "src/mew/pipeline/jars.py": "",
        "src/mew/pipeline/class_archive.py": "",
    }.items():
        (tree.root / file).parent.mkdir(parents=True, exist_ok=True)
        (tree.root / file).write_text(text, encoding="utf-8")
    project = Setup(replace(tree.environment, project=True), root=tree.root)
    project.make()
    jar = project.folder / "share" / "mew" / "a.jar"
    steps = {
        tree.site_packages / "project.pth": "installing the project itself, editable",
        jar: "fetching the jars that Spark needs, checksums checked, and making its archive of classes",
    }
    for lost, step in steps.items():
        lost.unlink()
        capsys.readouterr()
        project.make()
        assert capsys.readouterr().out.splitlines()[0] == f"── .venv-core: {step}"
        assert lost.exists()
        assert project.defect() == ""
    jar.write_bytes(b"half a jar")
    project.make()
    assert jar.read_bytes() == b"jar"
    capsys.readouterr()
    project.make()
    assert capsys.readouterr().out == ""


def test_another_python_makes_it_again_only_if_it_was_asked_for(tree: Tree) -> None:
    tree.setup.make()
    assert tree.setup.defect() == ""
    assert tree.setup.defect(sys.version) == ""
    assert tree.setup.defect("3.99.0 (another)") == "another Python was asked for"


def test_a_wrong_hash_is_refused_and_the_log_is_named(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.pins.write_text(f"one==1.0 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    with pytest.raises(SetupError) as refused:
        tree.setup.make()
    assert "installing the package of requirements/core.txt, hashes checked" in capsys.readouterr().out
    message = str(refused.value)
    assert message.startswith("Installing requirements/core.txt failed:")
    assert "a file does not have the hash of its pin. docs/supply-chain.md says what to do." in message
    assert "DO NOT MATCH THE HASHES" in message
    assert f"Expected sha256 {'0' * 64}" in message
    assert message.endswith("The log is build/setup/venv-core.log.")
    assert "Expected sha256" in tree.log.read_text(encoding="utf-8")
    assert tree.setup.defect() == "it was never finished"


def test_without_a_network_there_is_one_clear_sentence(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        with pytest.raises(SetupError) as failed:
            tree.setup.make()
    assert str(failed.value) == (
        "Installing requirements/core.txt failed: the package index or repository cannot be reached. "
        "Check the network, the proxy and your pip settings, then run the same command again. "
        "The log is build/setup/venv-core.log."
    )


class Gate(BaseHTTPRequestHandler):
    """An index that wants a login."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="packages"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_an_index_that_wants_a_login_is_not_waited_for(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    with ThreadingHTTPServer(("127.0.0.1", 0), Gate) as gate:
        Thread(target=gate.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{gate.server_port}/simple")
        with pytest.raises(SetupError, match=r"wants a login, or does not accept yours \(HTTP 401\)"):
            tree.setup.make()
        gate.shutdown()


RETRYING: Final = "WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError()': /simple/one/"
NOTHING: Final = "ERROR: Could not find a version that satisfies the requirement one==1.0 (from versions: none)"
CANNOT_BE_REACHED: Final = "the package index or repository cannot be reached"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ((RETRYING, "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"), "a file does not have the hash of its pin"),
        ((RETRYING, "error: Hash mismatch for `one==1.0`"), "a file does not have the hash of its pin"),
        ((RETRYING, "ERROR: No space left on device"), "  ERROR: No space left on device"),
        ((RETRYING, NOTHING), CANNOT_BE_REACHED),
        ((NOTHING,), "neither the package index nor your find-links have a file of one==1.0"),
        (("ERROR: Could not install: HTTPSConnectionPool: NewConnectionError",), CANNOT_BE_REACHED),
        ((NOTHING, "  Could not fetch URL x: 403 Client Error: Forbidden for url: x - skipping"), "(HTTP 403)"),
        (("ERROR: HTTP error 403 while getting one-1.0.whl",), "(HTTP 403)"),
        (("  Caused by: HTTP status client error (401 Unauthorized) for url (x)",), "(HTTP 401)"),
    ],
)
def test_the_last_failure_is_the_reason_not_a_warning_before_it(printed: Sequence[str], expected: str) -> None:
    message = explain("Installing", printed, "The log is x.")
    assert expected in message
    assert (CANNOT_BE_REACHED in message) == (expected == CANNOT_BE_REACHED)
    assert message.endswith("The log is x.")


def test_what_debian_says_of_a_python_without_venv_is_said_in_full() -> None:
    paragraph = """
The virtual environment was not created successfully because ensurepip is not
available.  On Debian/Ubuntu systems, you need to install the python3-venv
package using the following command.

    apt install python3.11-venv

You may need to use sudo with that command.  After installing the python3-venv
package, recreate your virtual environment.

Failing command: /tmp/x/.venv/bin/python3
"""
    message = explain("Making the environment", paragraph.splitlines(keepends=True), "The log is x.")
    assert [line.strip() for line in message.splitlines()[1:-1]] == [
        line.strip() for line in paragraph.splitlines() if line
    ]


def started(tree: Tree, environ: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Set-up as make starts it, with its children in a group of processes of their own."""
    return subprocess.Popen(
        [sys.executable, "-I", tree.root / "tools" / "environments", tree.environment.folder],
        env=environ,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_set_up_that_was_killed_is_waited_for_until_its_last_process_ends(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        with started(tree, {**with_the_index(), "PIP_INDEX_URL": url}) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()  # pip waits for an answer now
            process.kill()
    with connection, started(tree) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "── .venv-core: another command is making it; waiting\n"
        connection.close()  # now pip has nothing to wait for
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    assert tree.installed() == {"one": "1.0", "two": "1.0"}


def test_make_clean_leaves_the_lock_of_a_set_up_that_is_at_work(tree: Tree) -> None:
    shutil.copy(ROOT / "Makefile", tree.root)
    lock = tree.root / ".locks" / tree.log.stem
    lock.parent.mkdir()
    with lock.open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        subprocess.run(
            ["make", "clean"], cwd=tree.root, env={**os.environ, "PATH": PATH}, check=True, capture_output=True
        )
        with started(tree) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "── .venv-core: another command is making it; waiting\n"
            process.kill()
    assert "/.locks/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_ctrl_c_leaves_no_process_and_the_next_run_repairs(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        with started(tree, with_the_index()) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()  # pip waits for an answer now
            with connection:
                # Ctrl-C reaches every process of the terminal; a service or a container ends the first one only.
                send = os.killpg if number == signal.SIGINT else os.kill
                send(process.pid, number)
                output, _ = process.communicate(timeout=20)
        assert process.returncode == 130, output
        assert "interrupted; the same command makes it again" in output
        assert "Traceback" not in output
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    tree.setup.make()
    assert set(tree.installed()) == {"one", "two"}


@pytest.mark.parametrize("way", ["file", "link"])
def test_a_file_or_a_dangling_link_in_the_place_of_an_environment_is_replaced(tree: Tree, way: str) -> None:
    folder = tree.setup.folder
    if way == "file":
        folder.write_text("a file", encoding="utf-8")
    else:
        folder.symlink_to(tree.root / "nowhere")
    tree.setup.make()
    assert folder.is_dir()
    assert not folder.is_symlink()


@pytest.mark.parametrize(
    ("file", "folder", "reason"),
    [
        ("build", "", "build/setup/venv-core.log: not a directory"),
        ("", "build/setup/venv-core.log", "build/setup/venv-core.log: is a directory"),
        (".locks", "", ".locks: file exists"),
    ],
)
def test_what_is_in_the_way_of_a_log_or_lock_is_named(tree: Tree, file: str, folder: str, reason: str) -> None:
    if file:
        (tree.root / file).write_text("a file", encoding="utf-8")
    if folder:
        (tree.root / folder).mkdir(parents=True)
    with started(tree) as process:
        output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert output.splitlines()[-1] == f"set-up of .venv-core: cannot use {tree.root}/{reason}"
    assert "Traceback" not in output


def test_uv_and_pip_install_the_same(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.setup.make()
    by_pip = tree.installed()
    folder = tmp_path / "uv"
    options = ("--quiet", "--disable-pip-version-check", *INSTALL_OPTIONS, "--target", folder)
    command = (sys.executable, "-m", "pip", "install", *options, "-r", ROOT / "requirements" / "lock.txt")
    subprocess.run([*map(str, command)], check=True, env=with_the_index(), timeout=SECONDS)
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tree.index))
    shutil.rmtree(tree.setup.folder)
    tree.setup.make()
    assert f"$ {folder}/bin/uv pip install" in tree.log.read_text(encoding="utf-8")
    assert "-m pip install" not in tree.log.read_text(encoding="utf-8")
    assert tree.installed() == by_pip


PIP_SAYS: Final = """
Collecting one==1.0 (from -r requirements/core.txt (line 1)) → downloading 1 of 2: one
  Downloading one-1.0-py3-none-any.whl (1.2 kB) → downloading 1 of 2: one (1.2 kB)
WARNING: Retrying (Retry(total=4)) after connection broken by x → the package index does not answer; trying again
Collecting two==1.0 → downloading 2 of 2: two
Building wheels for collected packages: two → building two from source
Installing collected packages: one, two → installing 0 of 2
"""
UV_SAYS: Final = """
Using Python 3.11.7 environment at: .venv-core → starting
Resolved 3 packages in 424ms → downloading 3
Downloading one (1.2MiB) → downloading 3, now one (1.2MiB)
   Building two==1.0 → building two==1.0 from source
 Downloaded one → building two==1.0 from source
Prepared 2 packages in 430ms → installing 0 of 2
Installed 2 packages in 128ms → installed 2
 + one==1.0 → installed 2
"""


@pytest.mark.parametrize("lines", [PIP_SAYS, UV_SAYS], ids=["pip", "uv"])
def test_each_installer_is_understood(lines: str, tmp_path: Path) -> None:
    output = InstallerOutput(2, tmp_path)
    for line in lines.strip("\n").splitlines():
        line_read, state = line.split(" → ")
        output.read(line_read + "\n")
        assert output.text == state


def test_where_uv_fails_pip_is_tried(tree: Tree) -> None:
    tree.use_as_uv("echo 'error: dns error' >&2; exit 2")
    tree.setup.make()
    assert tree.installed() == {"one": "1.0", "two": "1.0"}
