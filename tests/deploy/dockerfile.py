"""A Dockerfile as instructions, stage by stage, and what its .dockerignore lets through; enough for ours."""

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction: `COPY`, its `--flags`, and the rest."""

    word: str
    flags: dict[str, str]
    rest: str

    @property
    def words(self) -> list[str]:
        """The rest as the exec form says it, which is JSON."""
        return [str(word) for word in json.loads(self.rest)]


class Stage(NamedTuple):
    """From one `FROM` to the next."""

    name: str
    origin: str
    instructions: list[Instruction]

    def all(self, word: str) -> list[Instruction]:
        return [instruction for instruction in self.instructions if instruction.word == word]


def read(file: Path) -> dict[str, Stage]:
    """The stages by name, in order; each has the instructions of the stage that it begins with, too."""
    text = "\n".join(line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    stages: dict[str, Stage] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip() or line.startswith("ARG "):
            continue
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            origin, _, name = rest.split()
            inherited = list(stages[origin].instructions) if origin in stages else []
            stages[name] = Stage(name, origin, inherited)
        else:
            list(stages.values())[-1].instructions.append(_instruction(word, rest))
    return stages


def _instruction(word: str, rest: str) -> Instruction:
    flags: dict[str, str] = {}
    while (match := re.match(r"--([a-z-]+)=(\S+)\s+", rest)) and word != "RUN":
        flags[match[1]] = match[2]
        rest = rest[match.end() :]
    return Instruction(word, flags, rest)


def lets_through(ignored: Path, path: str) -> bool:
    """Whether a file is in the build's context: the last line that fits it, or a folder it is in, decides."""
    through = True
    parents = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
    for line in ignored.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        patterns = {pattern, pattern.removeprefix("**/")} | (
            {f"*/{pattern.removeprefix('**/')}"} if pattern.startswith("**/") else set()
        )
        if any(_fits(alternative, parent) for alternative in patterns for parent in parents):
            through = line.startswith("!")
    return through


def _fits(pattern: str, path: str) -> bool:
    # A single * stays within one folder.
    return fnmatchcase(path, pattern) and (pattern.startswith("*/") or pattern.count("/") == path.count("/"))
