"""Mutation testing of the core: `python -m tools.mutants` fails if a change to `mew.protocol` goes unnoticed.

mutmut makes the mutants, in `mutants/`, and runs the tests on each. Which may survive, and why, stands in
`tests/torture/survivors.toml`; changed wording of a sentence for people may, too. Must not judge a mutant otherwise.
"""

import io
import os
import shutil
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_module_from_key, orig_function_and_class_names_from_key

ROOT = Path(__file__).resolve().parent.parent
MUTATED = Path("src/mew/protocol")
SURVIVORS = ROOT / "tests" / "torture" / "survivors.toml"
KILLED, BY_TYPES, ARGUED, WORDING, NEW = "killed", "caught by types", "argued", "wording", "NEW"
VERDICTS = {
    "killed": KILLED,
    "timeout": KILLED,
    "segfault": KILLED,
    "caught by type check": BY_TYPES,
    "survived": NEW,
    "no tests": NEW,
}
"""By mutmut's word for the outcome of a mutant; any other word means that it was not tried."""


@dataclass(frozen=True)
class Mutant:
    """One change of one function: the lines that are taken away (`-`) and put in (`+`), without their indentation."""

    function: str
    change: str

    def __str__(self) -> str:
        return f"{self.function}\n{self.change}\n"


def read_argued(text: str) -> set[Mutant]:
    """The mutants that may survive."""
    return {
        Mutant(entry["function"], change.strip())
        for entry in tomllib.loads(text).get("survivor", [])
        for change in entry["changes"]
    }


def run_mutmut() -> int:
    """Create all mutants again and try each. Returns mutmut's exit code."""
    shutil.rmtree(ROOT / "mutants", ignore_errors=True)
    tools = Path(sys.executable).parent
    command = [str(tools / "mutmut"), "run", "--max-children", str(os.cpu_count() or 2)]
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


def outcomes() -> Iterator[tuple[str, Mutant | None]]:
    """The verdict on each mutant; the mutant itself where it lives."""
    for path in sorted(MUTATED.rglob("*.py")):
        results = SourceFileMutationData(path=path)
        results.load()
        for name, exit_code in results.exit_code_by_key.items():
            status = status_by_exit_code[exit_code]
            verdict = VERDICTS.get(status, status)
            yield verdict, mutant(name, path) if verdict == NEW else None


def mutant(name: str, path: Path) -> Mutant:
    """What mutmut calls by a number, by what it changes."""
    function, owner = orig_function_and_class_names_from_key(name)
    lines = get_diff_for_mutant(name, path=path).splitlines()[2:]
    change = "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if line.startswith(("-", "+")))
    return Mutant(".".join(filter(None, (get_module_from_key(name), owner, function))), change)


def is_wording(change: str) -> bool:
    """Whether only a sentence changes. It has a space: no code, kind or field name does."""
    old, new = (_tokens(change, sign) for sign in "-+")
    changed = [(before, after) for before, after in zip(old, new, strict=False) if before != after]
    if len(old) != len(new) or len(changed) != 1:
        return False
    (kind, before), (_, after) = changed[0]
    text = before[1:-1]
    sentence = kind == tokenize.STRING and before.startswith(("'", '"')) and " " in text
    return sentence and after[1:-1] in (f"XX{text}XX", text.lower(), text.upper())


def _tokens(change: str, sign: str) -> list[tuple[int, str]]:
    """The tokens of one side, which may end in the middle of an expression."""
    text = " ".join(line[2:] for line in change.splitlines() if line.startswith(sign))
    tokens = []
    with suppress(tokenize.TokenError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            tokens.append((token.type, token.string))
    return tokens


def judged(survivors: Iterable[tuple[str, Mutant | None]], argued: set[Mutant]) -> Iterator[tuple[str, Mutant | None]]:
    """Survivors that are argued for or only words are no news."""
    for verdict, mutant in survivors:
        if mutant in argued:
            yield ARGUED, mutant
        elif mutant is not None and is_wording(mutant.change):
            yield WORDING, mutant
        else:
            yield verdict, mutant


def report(results: Sequence[tuple[str, Mutant | None]], argued: set[Mutant]) -> bool:
    """Print the outcome of the mutants. Returns whether every one was tried and none is news."""
    news = [mutant for verdict, mutant in results if verdict == NEW]
    for mutant in news:
        print(f"NEW: {mutant}")
    for mutant in sorted(argued - {mutant for _, mutant in results if mutant}, key=str):
        print(f"warning: argued for, but does not survive: {mutant}")
    counts = Counter(verdict for verdict, _ in results)
    print(", ".join(f"{counts.pop(verdict, 0)} {verdict}" for verdict in (KILLED, BY_TYPES, ARGUED, WORDING, NEW)))
    for verdict, count in counts.items():
        print(f"not tried: {count} ({verdict})")
    return bool(results) and not news and not counts


def main() -> int:
    """0 if every mutant was noticed, or may go unnoticed."""
    argued = read_argued(SURVIVORS.read_text(encoding="utf-8"))
    with chdir(ROOT):
        exit_code = run_mutmut()
        done = report(list(judged(outcomes(), argued)), argued)
    return exit_code or int(not done)


if __name__ == "__main__":
    sys.exit(main())
