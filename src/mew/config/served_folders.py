"""Finds which folders an MCP file server serves, and whether one of them contains a `.mew` with tokens.

It reads folder names only, never file contents. Gateway, bridge and command use this module. It imports none of them.
"""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mew._internal import SPACE_FOLDER

MAX_FOLDERS: Final = 20_000
"""Maximum number of folders searched below a served one. A `.mew` beyond that limit is not found."""
_SERVER: Final = re.compile(r"server[-_]filesystem(?![\w-])", re.IGNORECASE)
"""`@modelcontextprotocol/server-filesystem@1.2.3`, `mcp_server_filesystem`, `…/server-filesystem/dist/index.js`."""
_SHELL: Final = re.compile(r"[\s;&|()<>'\"`]+")
"""Word separators in a shell command line, as in `sh -c 'npx server-filesystem .'`."""
_PUNCTUATION: Final = ";&|()<>"
_EXPANDED: Final = re.compile(r"[$`*?\[{]|~(?=[^\s/'\";&|()<>])")
"""Shell expansions, whose result is not visible in the line: `$PWD`, `$(pwd)`, `.m*`, `{.mew,}`, `~+`."""
_ELSEWHERE: Final = frozenset(("cd", "chdir", "pushd", "popd", "xargs", "eval"))
"""Commands after which a path refers to another folder, or comes from outside the line."""
_ELSEWHERE_OPTION: Final = re.compile(
    r"-[A-Za-z0-9]*C|--(?:c|ch|chd|chdi|chdir|cwd|dir|directory|workdir|working-directory)(?:=|$)"
)
"""Options that start a program in another folder: `env -C ..`, `env --chdir=..`, `uv --directory ..`."""


def served_folders(command: Sequence[str]) -> tuple[str, ...]:
    """Return the folders in a file server's command line: the arguments after its name. Empty for other commands.

    `~` is the home folder of the user that runs the server, as the server itself resolves it.
    """
    for index, word in enumerate(command):
        if _SERVER.search(word):
            in_line = (folder for words in _lines(word) for folder in served_folders(words))
            return (*in_line, *filter(None, map(_folder, command[index + 1 :])))
    return ()


def _lines(word: str) -> Iterator[list[str]]:
    """Split a shell command line into words: once at every separator, and once with the shell's quoting rules."""
    parts = _SHELL.split(word)
    if len(parts) == 1:
        return
    yield parts
    lexer = shlex.shlex(word, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = [part for part in lexer if part.strip(_PUNCTUATION)]
    except ValueError:  # unterminated quote: a shell rejects the line
        return
    if words != [word]:
        yield words


def checking_problem(command: Sequence[str]) -> str | None:
    """Return why the folders that a file server in this command serves cannot be determined; None if they can."""
    for index, word in enumerate(command):
        if not _SERVER.search(word):
            continue
        parts = _SHELL.split(word)
        expansion = _EXPANDED.search(word) if len(parts) > 1 or "$" in word else None
        before = (part for earlier in command[:index] for part in _SHELL.split(earlier))
        if what := expansion[0] if expansion else next(filter(_leads_elsewhere, (*before, *parts)), None):
            return (
                f"the folders that the file server would serve cannot be checked, because of {what!r} in its command:"
                " write each folder literally, such as ./workspace, and set the folder in which it runs with `cwd`"
            )
    return None


def _leads_elsewhere(word: str) -> bool:
    """Whether this word makes a program start in another folder, or with arguments from outside the line."""
    return word in _ELSEWHERE or _ELSEWHERE_OPTION.match(word) is not None


def _folder(argument: str) -> str:
    """Return the folder in an argument: `folder` or `--option=folder`. Empty for an option without a value."""
    if argument.startswith("-"):
        argument = argument.partition("=")[2]
    return str(Path.home() / argument[2:]) if argument == "~" or argument.startswith("~/") else argument


def served_folder_problem(command: Sequence[str], working_folder: Path, space_directory: Path) -> str | None:
    """Return why a file server must not be started with this command; None if it may be started."""
    for text in served_folders(command):
        mew_folder = find_mew(working_folder / text, space_directory)
        if mew_folder is not None:
            return (
                f"the file server would serve {text!r}, which gives access to {mew_folder} and the tokens in it:"
                " name a folder that contains no .mew, such as ./workspace"
            )
    return checking_problem(command)


def find_mew(folder: Path, space_directory: Path) -> Path | None:
    """Return the `.mew` that is readable through this folder, including this space's own; None if there is none."""
    root, own = folder.resolve(), space_directory.resolve() / SPACE_FOLDER
    if own.is_relative_to(root) or own.resolve().is_relative_to(root):
        return own  # also before the gateway creates it, and if it is a link
    if root.is_relative_to(own.resolve()):
        return own
    for parent in (root, *root.parents):
        if parent.name == SPACE_FOLDER:
            return parent
    return next(_below(root), None)


def _below(root: Path) -> Iterator[Path]:
    """Yield each `.mew` below a folder; the number of searched folders is bounded.

    Links are not followed: a file server resolves them and rejects paths outside its folders.
    """
    for count, (place, folders, files) in enumerate(os.walk(root)):
        if SPACE_FOLDER in folders or SPACE_FOLDER in files:
            yield Path(place) / SPACE_FOLDER
        if count >= MAX_FOLDERS:
            return
