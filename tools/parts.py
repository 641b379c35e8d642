"""Run the tests part by part, then say what each took against its budget: `make test [PART=core]`.

Must not decide what a test means: a part is pytest over folders, and pytest's word on it is final.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tools.environments import setup_seconds

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
USAGE_ERROR = 2
INTERRUPTED = 130
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Part:
    """One slice of the tests: its folders, and the minutes it may take."""

    name: str
    minutes: float
    folders: tuple[str, ...]
    options: tuple[str, ...] = ()
    in_memory: bool = field(default=False, kw_only=True)
    """Whether its tests write to memory where there is room: they sync so often that they would wait for a disk."""
    memory_bytes: int = field(default=3 * 2**30, kw_only=True)
    """The free memory that its tests need."""


BOTH_CORES = ("-n", "2")
LIGHT = ("-p", "no:schemathesis")
"""Without a plugin that only the gateway's tests use: it costs each process of pytest a second."""
BY_MODULE = (*BOTH_CORES, "--dist", "loadscope")
"""What a module's tests share is made once, by one of the two."""
SDK_OPTIONS = (*BOTH_CORES, *LIGHT, "--transport", "sdk")
SET_UP = "set-up"
CORE = ("tests/protocol", "tests/model", "tests/messages", "tests/view", "tests/requirements", "tests/testing")
GATEWAY = ("tests/gateway", "tests/config", "tests/supervisor", "tests/compat", "tests/requirements")
PARTS = (
    Part("core", 0.5, CORE, (*BOTH_CORES, *LIGHT, "--cov")),
    Part("gateway", 2.5, GATEWAY, (*BOTH_CORES, "--transport", "websocket,memory,http")),
    Part("journal", 2.5, ("tests/journal",)),
    Part("sdk", 2, ("tests/client", "tests/bridge", "tests/_internal", "tests/requirements"), SDK_OPTIONS),
    Part("pipeline", 5, ("tests/pipeline",), (*BY_MODULE, *LIGHT, "--no-loadscope-reorder"), in_memory=True),
    Part("cluster", 2.5, ("tests/e2e/cluster", "tests/e2e/kafka"), (*BY_MODULE, *LIGHT)),
    Part("inspector", 2, ("tests/inspector", "tests/e2e/browser"), BOTH_CORES),
    Part("faults", 0.5, ("tests/faults",), BOTH_CORES),
    Part("command", 2.5, ("tests/cli", "tests/agents", "tests/e2e/scenarios"), (*BY_MODULE, *LIGHT)),
    Part("attacks", 2, ("tests/attacks",), (*BOTH_CORES, *LIGHT)),
    Part("tools", 2.5, ("tests/tools",), (*BY_MODULE, *LIGHT)),
    Part("docs", 2, ("tests/docs", "tests/deploy"), (*BY_MODULE, *LIGHT)),
)
SET_UP_MINUTES = 3.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of one part. A part fails by a failed test, or as a whole, for the reason in `broken`."""

    part: str
    minutes: float
    seconds: float | None = None
    passed: int = 0
    failed: int = 0
    not_run: tuple[str, ...] = ()
    broken: str = ""


def read_report(part: Part, seconds: float, exit_code: int, report: Path) -> Outcome:
    """The outcome of a finished pytest, by its JUnit report; pytest's exit code has the last word."""
    if not report.exists():
        broken = f"pytest ended with {exit_code}, no report"
        return Outcome(part.name, part.minutes, seconds, failed=1, broken=broken)
    passed = failed = 0
    not_run = []
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skipped is not None:
            not_run.append(f"{case.get('classname')}::{case.get('name')}: {skipped.get('message')}")
        else:
            passed += 1
    broken = "" if exit_code == 0 or failed else f"pytest ended with {exit_code}"
    failed = failed or int(bool(broken))
    return Outcome(part.name, part.minutes, seconds, passed, failed, tuple(not_run), broken)


def run(part: Part, root: Path = ROOT, memory: Path = MEMORY) -> Outcome:
    """Run one part. A folder that is not there is a failure: what was not tested has not passed."""
    missing = [folder for folder in part.folders if not (root / folder).is_dir()]
    if missing:
        return Outcome(part.name, part.minutes, failed=1, broken=f"no folder {', '.join(missing)}")
    place = place_in_memory(part, memory)
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as scratch:
        report = Path(scratch) / "report.xml"
        started = time.monotonic()
        own = () if place is None else (f"--basetemp={scratch}/tests",)
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *part.folders, *part.options, *own]
        exit_code = wait_for(command, root)
        return read_report(part, time.monotonic() - started, exit_code, report)


def place_in_memory(part: Part, memory: Path = MEMORY) -> Path | None:
    """Where a part that wants it can write to memory; None where there is no such place, or too little room."""
    if not part.in_memory or not memory.is_dir() or shutil.disk_usage(memory).free < part.memory_bytes:
        return None
    return memory


def wait_for(command: Sequence[str], root: Path) -> int:
    """Run a command to its end and return its exit code; on Ctrl-C let it finish its output first."""
    with subprocess.Popen(command, cwd=root) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


def set_up_outcome(environment: Path = ENVIRONMENT) -> Outcome:
    """What `make setup` took; unknown where the environment is not its own."""
    return Outcome(SET_UP, SET_UP_MINUTES, setup_seconds(environment))


def table_line(outcome: Outcome) -> str:
    """One line of the closing table: the part, its time, its budget, what stands out."""
    took = "not known" if outcome.seconds is None else f"{outcome.seconds:.1f} s"
    over = outcome.seconds is not None and outcome.seconds > outcome.minutes * 60
    counts = "" if outcome.part == SET_UP else f"{outcome.passed} passed, {outcome.failed} failed"
    remarks = [remark for remark in (counts, outcome.broken, "OVER BUDGET" if over else "") if remark]
    return f"{outcome.part:<10} {took:>10} of {outcome.minutes:g} min  {'; '.join(remarks)}".rstrip()


def closing_words(outcomes: Sequence[Outcome]) -> str:
    """The end of a run: time per part, what could not run and why, and the totals as the last line."""
    lines = ["", *(table_line(outcome) for outcome in outcomes)]
    not_run = [line for outcome in outcomes for line in outcome.not_run]
    if not_run:
        lines += ["", "not run: why", *(f"  {line}" for line in not_run)]
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    return "\n".join([*lines, "", f"{passed} passed, {failed} failed"])


def main(requested: Sequence[str]) -> int:
    """Run the wanted parts, or all: 0 if everything passed, 1 if not, 2 for an unknown part."""
    names = [SET_UP, *(part.name for part in PARTS)]
    unknown = [name for name in requested if name not in names]
    if unknown:
        print(f"no part {', '.join(map(repr, unknown))}; there are: {', '.join(names)}", file=sys.stderr)
        return USAGE_ERROR
    chosen = set(requested or names)
    outcomes = [set_up_outcome()] if SET_UP in chosen else []
    for part in PARTS:
        if part.name in chosen:
            print(f"\n── {part.name}: {' '.join(part.folders)}", flush=True)
            outcomes.append(run(part))
    print(closing_words(outcomes))
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
