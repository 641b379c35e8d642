"""Making one environment from its pins.

The pins are complete, so the installer never resolves: it takes each pin, checks its hash, and installs it.
"""

import contextlib
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from .children import Desk
from .contents import census, losses
from .display import InstallerOutput, Progress
from .failures import SetupError, explain, unexplained
from .table import INSTALL_OPTIONS, PROJECT_SOURCES, ROOT, SPARK_SOURCES, Environment

STAMP: Final = ".ready"
"""In an environment: what it was made of. An environment without it was never finished."""
PIP: Final[tuple[str, ...]] = ("-I", "-m", "pip", "--disable-pip-version-check", "--no-input")


class Setup:
    """Making one environment."""

    def __init__(self, environment: Environment, *, root: Path = ROOT, base_python: str = sys.executable) -> None:
        self._environment = environment
        self._root = root
        self._base_python = base_python
        self.folder = root / environment.folder
        self.python = self.folder / "bin" / "python"
        self._log = root / "build" / "setup" / f"{environment.folder.lstrip('.')}.log"
        self._progress = Progress(environment.folder)
        self._uv = shutil.which("uv")
        self._desk: Desk | None = None

    # ------------------------------------------------------------------------------------------- what is there

    @property
    def _site_packages(self) -> Path:
        return next(self.folder.glob("lib/python3*/site-packages"), self.folder / "lib" / "site-packages")

    def _digest(self, names: Sequence[str], *more: str) -> str:
        digest = hashlib.sha256()
        for name in names:
            digest.update((self._root / name).read_bytes())
        digest.update("\0".join(more).encode())
        return digest.hexdigest()

    def _python_version(self) -> str:
        """The version of the environment's Python; empty if it does not start."""
        command = (str(self.python), "-I", "-c", "import sys; print(sys.version)")
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""

    def _stamp(self) -> dict[str, Any]:
        try:
            stamp = json.loads((self.folder / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def _save(self, stamp: dict[str, Any]) -> None:
        draft = self.folder / f"{STAMP}.new"
        draft.write_text(json.dumps(stamp), encoding="utf-8")
        draft.replace(self.folder / STAMP)

    def defect(self, wanted_python: str = "") -> str:
        """Why the environment cannot be used as it is; empty if it can."""
        if not self.folder.exists():
            return "it does not exist yet"
        stamp = self._stamp()
        if not stamp:
            return "it was never finished"
        if not {"packages", "python", "folder", "files"} <= stamp.keys():
            return "an earlier version of set-up made it"
        if stamp["folder"] != str(self.folder):
            return "its folder has moved"
        if stamp["packages"] != self._digest(self._environment.pins, *INSTALL_OPTIONS):
            return "its pins have changed"
        version = self._python_version()
        if version != stamp.get("python"):
            return "its Python has changed" if version else "its Python does not start"
        if wanted_python and wanted_python != stamp.get("python"):
            return "another Python was asked for"
        if not self._site_packages.is_dir():
            return "its packages are gone"
        return losses(self.folder, stamp["files"]["packages"])

    # ------------------------------------------------------------------------------------------------ running

    def _run(self, command: Sequence[str | Path], what: str, output: InstallerOutput | None = None) -> list[str]:
        """Run a command, its whole output into the log: its lines; `SetupError` if it fails."""

        def heard(line: str) -> None:
            if output is not None:
                output.read(line)
                self._progress.update(output.text)

        assert self._desk is not None, "make() opens it"
        exit_code, printed = self._desk.run(command, heard)
        if exit_code:
            raise SetupError(explain(what, [*printed, *self._asked_again(printed)], self._where_the_log_is))
        return printed

    def _asked_again(self, printed: Sequence[str]) -> list[str]:
        """What pip says of a package that it found nowhere when it is asked for that one alone, verbosely.

        Only this shows whether the index wants a login, does not answer, or does not have the package.
        """
        requirement = unexplained(printed)
        if not requirement or self._desk is None:
            return []
        options = ("-vv", "--dry-run", "--no-deps", "--ignore-installed")
        command: list[str | Path] = [self.python, *PIP, "install", *options, requirement]
        return self._desk.run(command, lambda _: None)[1]

    @property
    def _where_the_log_is(self) -> str:
        return f"The log is {self._log.relative_to(self._root)}."

    # -------------------------------------------------------------------------------------------------- steps

    def _create(self) -> None:
        if not self.folder.is_dir():  # a file or a dangling link is in the way
            self.folder.unlink(missing_ok=True)
        self._run([self._base_python, "-I", "-m", "venv", "--clear", self.folder], "Making the environment")

    def _install(self, pins: str, count: int) -> None:
        packages = "the package" if count == 1 else f"the {count} packages"
        self._progress.step(f"installing {packages} of {pins}, hashes checked")
        output = InstallerOutput(count, self._site_packages)
        what = f"Installing {pins}"
        if self._uv:
            uv: list[str | Path] = [self._uv, "pip", "install", "--python", self.python, *INSTALL_OPTIONS, "-r", pins]
            try:
                self._run(uv, what, output)
                return
            except SetupError:
                # uv does not read pip's settings; pip may reach an index that uv does not know of.
                self._progress.step("uv could not install them; trying pip")
        pip: list[str | Path] = [
            self.python,
            *PIP,
            "install",
            "--no-compile",
            "--progress-bar",
            "off",
            *INSTALL_OPTIONS,
            "-r",
            pins,
        ]
        self._run(pip, what, output)

    def _compile(self) -> None:
        """All processors compile, where pip would use one. Templates that are no Python are passed over, as by pip."""
        command: list[str | Path] = [self.python, "-I", "-m", "compileall", "-qq", "-j", "0", self.folder / "lib"]
        with contextlib.suppress(SetupError):
            self._run(command, "Compiling")

    def _check(self) -> None:
        command: list[str | Path] = [self.python, *PIP, "check"]
        self._run(command, "Checking that the packages fit each other")

    def _probe(self) -> dict[str, Any]:
        """What is pinned for the environment's Python, and what is installed in it."""
        script = Path(__file__).with_name("pins.py")
        command: list[str | Path] = [self.python, "-I", script, self._site_packages, *self._environment.pins]
        printed = self._run(command, "Comparing the packages with the pins")
        result: dict[str, Any] = json.loads(next(line for line in reversed(printed) if line.startswith("{")))
        return result

    def _compare(self, before: Mapping[str, Any]) -> None:
        """`pip check` finds nothing wrong in an empty environment: each pin must be there, and nothing else."""
        after = self._probe()
        pinned = {name for pins in after["pins"].values() for name in pins}
        strangers = sorted({*after["installed"]} - pinned - {*before["installed"]})
        wrong = [*after["wrong"], *(f"{name} is not pinned" for name in strangers)]
        if wrong:
            raise SetupError(
                f"{self._environment.folder} does not hold what is pinned: {'; '.join(wrong[:3])}"
                f"{f'; and {len(wrong) - 3} more' if len(wrong) > 3 else ''}. {self._where_the_log_is}"
            )

    def _make_packages(self) -> None:
        if self.folder.is_dir():
            (self.folder / STAMP).unlink(missing_ok=True)
        self._create()
        before = self._probe()
        for pins in self._environment.pins:
            self._install(pins, len(before["pins"][pins]))
        self._progress.step("compiling them")
        self._compile()
        self._check()
        self._compare(before)

    def _install_project(self) -> None:
        self._progress.step("installing the project itself, editable")
        pip: list[str | Path] = [self.python, *PIP, "install", "--quiet"]
        self._run([*pip, "--no-deps", "--no-build-isolation", "--editable", "."], "Installing the project")
        self._check()

    def _fetch_spark(self) -> None:
        self._progress.step("fetching the jars that Spark needs, checksums checked, and making its archive of classes")
        self._run([self.python, "-I", "-m", "mew", "pipeline", "setup"], "Setting up Spark")

    def make(self, wanted_python: str = "") -> None:
        """Bring the environment to what it must be. Nothing happens if it is that already."""
        # Outside of what `make clean` removes: a second set-up must not begin beside the first.
        locks = self._root / ".locks"
        locks.mkdir(exist_ok=True)
        with (locks / self._log.stem).open("w") as lock:
            self._desk = Desk(self._root, self._log, lock)
            try:
                self._wait_for(lock)
                self._make(wanted_python)
            finally:
                self._progress.close()

    def _wait_for(self, lock: IO[str]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._progress.step("another command is making it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)

    def _make(self, wanted_python: str) -> None:
        began = time.monotonic()
        if defect := self.defect(wanted_python):
            self._progress.step(f"making it with Python {sys.version.split()[0]}, because {defect}")
            self._log.unlink(missing_ok=True)
            self._make_packages()
            self._save(
                {
                    "packages": self._digest(self._environment.pins, *INSTALL_OPTIONS),
                    "python": self._python_version(),
                    "folder": str(self.folder),
                    "files": {"packages": census(self.folder)},
                    "seconds": {"packages": time.monotonic() - began},
                }
            )
            stale = ["packages"]
        else:
            stale = []
        stale += self._project_steps()
        if stale:
            self._progress.step(f"ready after {time.monotonic() - began:.0f} s")

    def _project_steps(self) -> list[str]:
        """Run the steps behind the packages whose sources have changed, or whose files are lost; their names."""
        if not self._environment.project:
            return []
        stale = []
        for name, sources, run_step in (
            ("project", PROJECT_SOURCES, self._install_project),
            ("spark", SPARK_SOURCES, self._fetch_spark),
        ):
            stamp, digest, began = self._stamp(), self._digest(sources), time.monotonic()
            lost = losses(self.folder, stamp["files"].get(name, {}))
            if lost and name == "spark":  # a jar with other content would be taken for the one that is wanted
                shutil.rmtree(self.folder / "share" / "mew", ignore_errors=True)
            if lost or stamp.get(name) != digest:
                run_step()
                stamp[name] = digest
                others = {file for step, names in stamp["files"].items() if step != name for file in names}
                stamp["files"][name] = {file: size for file, size in census(self.folder).items() if file not in others}
                stamp["seconds"][name] = time.monotonic() - began
                self._save(stamp)
                stale.append(name)
        return stale


def setup_seconds(folder: Path) -> float | None:
    """What it took to make an environment; None if that is not known."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        return float(sum(stamp["seconds"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
