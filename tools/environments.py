"""Make the environments of this repository from their pins: `python tools/environments.py .venv`.

Any Python 3.11 runs this file, before a single package is installed: it must import nothing but the standard library.
The pins are complete, so the installer never resolves: it takes each pin, checks its hash, and installs it.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
STAMP: Final = ".ready"
"""In an environment: what it was made of. An environment without it was never finished."""
INSTALL_OPTIONS: Final[tuple[str, ...]] = ("--no-deps", "--require-hashes", "--no-build-isolation")
"""No resolution, no package without a hash, and no build tool but a pinned one."""
PIP: Final[tuple[str, ...]] = ("-m", "pip", "--disable-pip-version-check")
INTERRUPTED: Final = 130
LIFE_SIGN_SECONDS: Final = 15.0
"""How often a log file, which cannot be redrawn, gets a line of progress."""
UNREACHABLE: Final = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|connection broken by"
    r"|\(from versions: none\)|dns error|error sending request|Request failed after|Network is unreachable"
    r"|Connection refused"
)


@dataclass(frozen=True)
class Environment:
    """One virtual environment: its folder, and the pin files that go into it, in this order."""

    folder: str
    pins: tuple[str, ...]
    project: bool = field(default=False, kw_only=True)
    """Whether the project itself is installed into it, editable, with what Spark needs."""


ENVIRONMENTS: Final = (
    # The build tools come first: source packages are built with them.
    Environment(".venv", ("requirements/build.txt", "requirements/dev.txt"), project=True),
    Environment(".venv-core", ("requirements/core.txt",)),
    Environment(".venv-lock", ("requirements/lock.txt",)),
    Environment(".venv-try", ("requirements/server.txt",)),
)
PROJECT_SOURCES: Final = ("pyproject.toml",)
SPARK_SOURCES: Final = ("src/mew/pipeline/connectors.py", "src/mew/pipeline/archive.py")


class SetupError(Exception):
    """A step failed. The message says which, why, and where the log is."""


# ----------------------------------------------------------------------------------------------------- progress


class Progress:
    """Lines for a person: on a terminal one line that is redrawn, elsewhere a line now and then."""

    def __init__(self, environment: str, stream: IO[str] | None = None) -> None:
        self._environment = environment
        self._stream = stream or sys.stdout
        self._terminal = self._stream.isatty()
        self._drawn = False
        self._last_line = time.monotonic()

    def step(self, text: str) -> None:
        """Say which step begins."""
        self._clear()
        print(f"── {self._environment}: {text}", file=self._stream, flush=True)
        self._last_line = time.monotonic()

    def update(self, text: str) -> None:
        """Say how far the step is."""
        now = time.monotonic()
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K   {text}"[: width + 5], end="", file=self._stream, flush=True)
            self._drawn = True
        elif now - self._last_line >= LIFE_SIGN_SECONDS:
            print(f"   {text}", file=self._stream, flush=True)
            self._last_line = now

    def _clear(self) -> None:
        if self._drawn:
            print("\r\x1b[2K", end="", file=self._stream)
            self._drawn = False

    def close(self) -> None:
        """Leave the terminal's line empty."""
        self._clear()
        self._stream.flush()


class InstallerOutput:
    """What the lines of pip or uv say about how far the installation is."""

    def __init__(self, pin_count: int, site_packages: Path) -> None:
        self._pin_count = pin_count
        self._site_packages = site_packages
        self._before = self._installed()
        self._collected = 0
        self._state = "starting"

    def _installed(self) -> int:
        return sum(1 for _ in self._site_packages.glob("*.dist-info"))

    def read(self, line: str) -> None:
        """Take one line of output."""
        if match := re.match(r"Collecting ([A-Za-z0-9._-]+)", line):
            self._collected += 1
            # Pins of other platforms and Python versions count too: the last number may stay below the total.
            self._state = f"downloading {self._collected} of at most {self._pin_count}: {match[1]}"
        elif match := re.match(r"\s+Downloading \S+ (\([^)]*\))", line):
            self._state = f"{self._state.partition(' (')[0]} {match[1]}"
        elif match := re.match(r"Building wheels for collected packages: (.*)", line):
            self._state = f"building {match[1]} from source"
        elif line.startswith("Installing collected packages"):
            self._state = "installing"
        elif "Retrying (" in line:
            self._state = "the package index does not answer; trying again"

    @property
    def text(self) -> str:
        """How far it is."""
        if self._state == "installing":
            return f"installing {self._installed() - self._before} of {self._collected}"
        return self._state


def lines_of(process: "subprocess.Popen[str]", seconds: float = 0.3) -> Iterator[str]:
    """The output of a process line by line, and an empty text whenever it says nothing for some time."""
    received: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            received.put(line)
        received.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = received.get(timeout=seconds)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            return
        yield line


# -------------------------------------------------------------------------------------------------------- steps


class Setup:
    """Making one environment."""

    def __init__(self, environment: Environment, *, root: Path = ROOT, base_python: str = sys.executable) -> None:
        self._environment = environment
        self._root = root
        self._base_python = base_python
        self.folder = root / environment.folder
        self.python = self.folder / "bin" / "python"
        self._logs = root / "build" / "setup"
        self._log = self._logs / f"{environment.folder.lstrip('.')}.log"
        self._progress = Progress(environment.folder)
        self._uv = shutil.which("uv")

    # ------------------------------------------------------------------------------------------- what is there

    @property
    def _site_packages(self) -> Path:
        return next(self.folder.glob("lib/python3*/site-packages"), self.folder / "lib")

    def _digest(self, names: Sequence[str], *more: str) -> str:
        digest = hashlib.sha256()
        for name in names:
            digest.update((self._root / name).read_bytes())
        digest.update("\0".join(more).encode())
        return digest.hexdigest()

    def _python_version(self) -> str:
        """The version of the environment's Python; empty if it does not start."""
        command = (str(self.python), "-c", "import sys; print(sys.version)")
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
        if stamp.get("packages") != self._digest(self._environment.pins, *INSTALL_OPTIONS):
            return "its pins have changed"
        version = self._python_version()
        if version != stamp.get("python"):
            return "its Python has changed" if version else "its Python does not start"
        if wanted_python and wanted_python != stamp.get("python"):
            return "another Python was asked for"
        present = {path.name for path in self._site_packages.iterdir()}
        lost = sorted(set(stamp.get("entries", [])) - present)
        return f"{len(lost)} of its files are gone, {lost[0]} among them" if lost else ""

    # ------------------------------------------------------------------------------------------------ running

    def _run(self, command: Sequence[str | Path], what: str, output: InstallerOutput | None = None) -> None:
        """Run a command, its whole output into the log; `SetupError` if it fails."""
        printed: list[str] = []
        with self._log.open("a", encoding="utf-8") as log:
            print(f"$ {' '.join(map(str, command))}", file=log, flush=True)
            with subprocess.Popen(
                [*map(str, command)], cwd=self._root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as process:
                try:
                    for line in lines_of(process):
                        log.write(line)
                        printed.append(line)
                        if output is not None:
                            output.read(line)
                            self._progress.update(output.text)
                except BaseException:
                    process.terminate()
                    raise
        if process.returncode:
            raise SetupError(self._explain(what, printed))

    def _explain(self, what: str, printed: Sequence[str]) -> str:
        log = f"The log is {self._log.relative_to(self._root)}."
        if any(UNREACHABLE.search(line) for line in printed):
            return (
                f"{what} failed: the package index or repository cannot be reached. Check the network, the proxy and "
                f"your pip settings, then run the same command again. {log}"
            )
        errors = [line.strip() for line in printed if re.match(r"\s*(ERROR|error)\b", line)]
        reasons = errors or [line.strip() for line in printed if line.strip()][-3:]
        return "\n".join([f"{what} failed:", *(f"  {reason}" for reason in reasons), log])

    # -------------------------------------------------------------------------------------------------- steps

    def _create(self) -> None:
        self._run([self._base_python, "-m", "venv", "--clear", self.folder], "Making the environment")

    def _install(self, pins: str) -> None:
        count = sum(1 for line in (self._root / pins).read_text(encoding="utf-8").splitlines() if "==" in line[:80])
        self._progress.step(f"installing the {count} packages of {pins}, hashes checked")
        output = InstallerOutput(count, self._site_packages)
        what = f"Installing {pins}"
        if self._uv:
            uv: list[str | Path] = [self._uv, "pip", "install", "--python", self.python, *INSTALL_OPTIONS, "-r", pins]
            try:
                return self._run(uv, what, output)
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
        return self._run(pip, what, output)

    def _compile(self) -> None:
        """All processors compile, where pip would use one. Templates that are no Python are passed over, as by pip."""
        command: list[str | Path] = [self.python, "-m", "compileall", "-qq", "-j", "0", self.folder / "lib"]
        with contextlib.suppress(SetupError):
            self._run(command, "Compiling")

    def _check(self) -> None:
        command: list[str | Path] = [self.python, *PIP, "check"]
        self._run(command, "Checking that the packages fit each other")

    def _make_packages(self) -> None:
        (self.folder / STAMP).unlink(missing_ok=True)
        self._create()
        for pins in self._environment.pins:
            self._install(pins)
        self._progress.step("compiling them")
        self._compile()
        self._check()

    def _install_project(self) -> None:
        self._progress.step("installing the project itself, editable")
        pip: list[str | Path] = [self.python, *PIP, "install", "--quiet"]
        self._run([*pip, "--no-deps", "--no-build-isolation", "--editable", "."], "Installing the project")
        self._check()

    def _fetch_spark(self) -> None:
        self._progress.step("fetching the jars that Spark needs, checksums checked")
        self._run([self.python, "-m", "mew.pipeline.connectors"], "Fetching the jars for Spark")
        self._progress.step("making the archive of classes that lets Spark start faster")
        self._run([self.python, "-m", "mew.pipeline.archive"], "Making the archive of classes")

    def make(self, wanted_python: str = "") -> None:
        """Bring the environment to what it must be. Nothing happens if it is that already."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{self._log.stem}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._progress.step("another command is making it; waiting")
                fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self._make(wanted_python)
            finally:
                self._progress.close()

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
                    "entries": sorted(path.name for path in self._site_packages.iterdir()),
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
        """Run the steps behind the packages whose sources have changed; their names."""
        if not self._environment.project:
            return []
        stale = []
        for name, sources, run_step in (
            ("project", PROJECT_SOURCES, self._install_project),
            ("spark", SPARK_SOURCES, self._fetch_spark),
        ):
            stamp, digest, began = self._stamp(), self._digest(sources), time.monotonic()
            if stamp.get(name) != digest:
                run_step()
                stamp[name] = digest
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


def main(arguments: Sequence[str]) -> int:
    """Make the named environments: 0 if they can be used, 1 if not."""
    parser = argparse.ArgumentParser(
        description="Make environments of this repository from their pins, or leave them if they are complete.",
        epilog="example: python tools/environments.py .venv",
    )
    names = [environment.folder for environment in ENVIRONMENTS]
    parser.add_argument("folder", nargs="+", choices=names, help=f"one of {', '.join(names)}")
    parser.add_argument("--this-python", action="store_true", help="make it again if another Python made it")
    options = parser.parse_args(arguments)
    for environment in ENVIRONMENTS:
        if environment.folder in options.folder:
            try:
                Setup(environment).make(sys.version if options.this_python else "")
            except SetupError as error:
                print(f"set-up of {environment.folder}: {error}", file=sys.stderr)
                return 1
            except KeyboardInterrupt:
                print("\ninterrupted; the same command makes it again", file=sys.stderr)
                return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
