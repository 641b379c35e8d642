"""The rules of CONTRIBUTING.md for modules and names that a machine can check, and no text of another place.

Each list of exceptions gives the reason for each entry. An entry that is no longer needed fails too.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.docs.sources import MODULES, OUTSIDE_FOLDERS, ROOT, module_path, repository_files, settled_modules

MODULE_LINES: Final = 500
FUNCTION_LINES: Final = 60
MOST_MODULES: Final = 200
"""Modules outside the pipeline. A new subject may need a module; splitting a subject does not."""
MOST_SINGLE_IMPORTERS: Final = 45

# Patterns, not plain words: this file must pass its own test.
FOREIGN = {
    "a registry's host": re.compile(r"pypi\.org|files\.pythonhosted|registry\.npmjs|repo1\.maven"),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root|home|Users|opt/wheels)/\w"),
    "another project's package": re.compile(r"pip\s+install\s+(?:-\S+\s+)*['\"]?mew(?!-protocol)\b"),
}

LONG: dict[str, str] = {}
"""Modules (`journal/writer.py`) and functions (`journal/writer.py:commit`) above the soft limits, with the reason."""

SUBJECT = "a subject of its own over 100 lines"
OPTIONAL = "imported only with an optional dependency"
ENTRY = "the entry point of a process"
PURE = "pure: tested without the effects of its importer"
SINGLE_IMPORTERS = {
    "agents/calculator.py": ENTRY,
    "agents/echo.py": ENTRY,
    "agents/fulfiller.py": ENTRY,
    "agents/runner.py": SUBJECT,
    "bridge/bridge.py": SUBJECT,
    "bridge/mcp_session.py": SUBJECT,
    "bridge/stdio.py": SUBJECT,
    "cli/observe/feed.py": SUBJECT,
    "cli/observe/tail.py": SUBJECT,
    "cli/participate/client_io.py": SUBJECT,
    "cli/participate/stream.py": SUBJECT,
    "cli/participate/stream_tail.py": SUBJECT,
    "cli/pipeline/watch.py": OPTIONAL,
    "cli/space/render.py": SUBJECT,
    "cli/space/templates.py": SUBJECT,
    "cli/terminal/app.py": OPTIONAL,
    "cli/terminal/slash_commands.py": OPTIONAL,
    "cli/terminal/widgets.py": OPTIONAL,
    "client/mcp/functions.py": SUBJECT,
    "client/mcp/participant.py": SUBJECT,
    "client/permissions.py": PURE,
    "gateway/fanout/delivery.py": SUBJECT,
    "gateway/http/openapi.py": SUBJECT,
    "gateway/http_protocol.py": "the only subclass of uvicorn's protocol",
    "gateway/journal_access.py": PURE,
    "gateway/server.py": SUBJECT,
    "gateway/websocket_protocol.py": SUBJECT,
    "journal/export_mcap.py": OPTIONAL,
    "journal/kafka/shipper.py": OPTIONAL,
    "journal/recovery.py": SUBJECT,
    "journal/sealing.py": SUBJECT,
    "journal/writer.py": SUBJECT,
    "protocol/admission.py": SUBJECT,
    "protocol/canonical_json.py": PURE,
    "protocol/handlers/streams.py": SUBJECT,
    "protocol/schema_cost.py": PURE,
    "supervisor/supervisor.py": SUBJECT,
}
"""Modules outside the pipeline that exactly one other module imports, with the reason for each."""

SHARED_CLASSES = {
    "Position": "two templates that users copy; the name of the class is the id of the format that both use",
}
"""Public classes that two modules outside the pipeline define, with the reason for each."""
SHARED_FUNCTIONS = {
    "agent": "the function that `mew agent` runs, in each template that users copy",
}
"""Public functions that two modules outside the pipeline define, with the reason for each.

Commands have the name of the command, and handlers the name of the kind: neither counts.
"""
SHARED_CONSTANTS = {
    "app": "a command group of cyclopts: each module of commands has one, as cyclopts documents it",
}
"""Public constants that two modules outside the pipeline define, with the reason for each.

A type variable is `T` wherever one is enough: it does not count.
"""
HANDLERS: Final = "protocol/handlers/"

VAGUE_NAMES: Final = frozenset(
    {
        "asked",
        "each",
        "found",
        "given",
        "held",
        "here",
        "kept",
        "known",
        "made",
        "named",
        "said",
        "seen",
        "there",
        "told",
    }
    | {"wanted"}
)
"""Names of variables that do not say what the value is."""


def long_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and length of each function that is too long, from its `def` to its last line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield node.name, lines


def broken_limits(name: str, source: str) -> dict[str, int]:
    """What in a module is longer than a limit, and its lines."""
    lines = len(source.splitlines())
    functions = {f"{name}:{function}": length for function, length in long_functions(ast.parse(source))}
    return functions | ({name: lines} if lines > MODULE_LINES else {})


def foreign_texts(text: str) -> list[str]:
    """What in a text belongs to another place."""
    return [f"{what}: {match.group()}" for what, pattern in FOREIGN.items() if (match := pattern.search(text))]


def importers(modules: Iterable[Path]) -> dict[Path, set[Path]]:
    """The modules that import each module, anywhere in their code."""
    by_name = {_dotted(module): module for module in modules}
    users: dict[Path, set[Path]] = {module: set() for module in by_name.values()}
    for module in by_name.values():
        for target in _imported_names(ast.parse(module.read_text(encoding="utf-8"))):
            if (imported := by_name.get(target, module)) != module:
                users[imported].add(module)
    return users


def _dotted(module: Path) -> str:
    return ".".join(module.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def _imported_names(tree: ast.Module) -> Iterator[str]:
    """Every dotted name that a module imports: `from a import b` is `a.b` and `a`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str() as base, names=names):
                yield base
                yield from (f"{base}.{alias.name}" for alias in names)


def shared_names(sources: Mapping[str, str], name_of: Callable[[str, ast.stmt], str | None]) -> dict[str, list[str]]:
    """The modules that define each public name, for names that several modules define. Sources are by path."""
    definitions = defaultdict(set)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            name = name_of(path, node)
            if name is not None and not name.startswith("_"):
                definitions[name].add(path)
    return {name: sorted(paths) for name, paths in definitions.items() if len(paths) > 1}


def class_name(_path: str, node: ast.stmt) -> str | None:
    """The name of a class at the top of a module."""
    return node.name if isinstance(node, ast.ClassDef) else None


def function_name(path: str, node: ast.stmt) -> str | None:
    """The name of a function at the top of a module, unless it is a command or a handler."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or path.startswith(HANDLERS):
        return None
    decorators = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
    is_command = any(decorator.endswith((".command", ".default")) for decorator in decorators)
    return None if is_command else node.name


def constant_name(_path: str, node: ast.stmt) -> str | None:
    """The name of a constant or a type alias at the top of a module, unless it is a type variable."""
    match node:
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
            return None
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return None


@pytest.mark.parametrize("module", MODULES, ids=module_path)
def test_a_module_says_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))


def test_modules_and_functions_are_within_the_limits_or_have_a_reason() -> None:
    broken: dict[str, int] = {}
    for module in MODULES:
        broken |= broken_limits(module_path(module), module.read_text(encoding="utf-8"))
    assert sorted(broken) == sorted(LONG)


def test_a_module_that_only_one_other_imports_has_a_reason() -> None:
    users = importers(MODULES)
    single = {
        module_path(module) for module in settled_modules() if len(users[module]) == 1 and module.name != "__init__.py"
    }
    assert sorted(single) == sorted(SINGLE_IMPORTERS)
    assert len(SINGLE_IMPORTERS) <= MOST_SINGLE_IMPORTERS


def test_a_subject_of_its_own_has_over_100_lines() -> None:
    subjects = [name for name, reason in SINGLE_IMPORTERS.items() if reason == SUBJECT]
    lengths = {name: len((ROOT / "src" / "mew" / name).read_text(encoding="utf-8").splitlines()) for name in subjects}
    assert {name: lines for name, lines in lengths.items() if lines <= 100} == {}


def test_there_are_not_more_modules_than_subjects() -> None:
    assert len(settled_modules()) <= MOST_MODULES


@pytest.mark.parametrize(
    ("name_of", "exceptions"),
    [(class_name, SHARED_CLASSES), (function_name, SHARED_FUNCTIONS), (constant_name, SHARED_CONSTANTS)],
    ids=["classes", "functions", "constants"],
)
def test_a_public_name_is_unique(name_of: Callable[[str, ast.stmt], str | None], exceptions: dict[str, str]) -> None:
    sources = {module_path(module): module.read_text(encoding="utf-8") for module in settled_modules()}
    shared = shared_names(sources, name_of)
    assert sorted(shared) == sorted(exceptions), shared


def test_names_that_two_modules_define_are_recognized() -> None:
    source = "A: Final = 1\nB = 2\n_C = 3\nT = TypeVar('T')\nclass F: ...\ndef g(): ...\n"
    sources = {"x.py": source, "y.py": source + "A = 6\n", "z.py": "A.b = 1\nC = 3\n"}
    both = ["x.py", "y.py"]
    assert shared_names(sources, constant_name) == {"A": both, "B": both}
    assert shared_names(sources, class_name) == {"F": both}
    assert shared_names(sources, function_name) == {"g": both}
    assert shared_names({"x.py": source + source}, constant_name) == {}


def vague_variables(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each variable and parameter whose name does not say what the value is."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in VAGUE_NAMES:
                yield node.lineno, name


@pytest.mark.parametrize("module", settled_modules(), ids=module_path)
def test_a_variable_says_what_its_value_is(module: Path) -> None:
    assert list(vague_variables(ast.parse(module.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("folder", OUTSIDE_FOLDERS)
def test_a_variable_outside_the_package_says_what_its_value_is(folder: str) -> None:
    vague = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (names := list(vague_variables(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert vague == {}


def test_vague_names_of_variables_and_parameters_are_recognized() -> None:
    tree = ast.parse("def f(told, *, x):\n    for each in told:\n        found = given.found = each\n")
    assert sorted(vague_variables(tree)) == [(1, "told"), (2, "each"), (3, "found")]


def test_no_file_holds_what_belongs_to_another_place() -> None:
    offenders = {}
    for path in repository_files():
        # Bytes that are not text become replacement characters, which match nothing.
        foreign = foreign_texts(path.read_text(encoding="utf-8", errors="replace"))
        if foreign:
            offenders[str(path.relative_to(ROOT))] = foreign
    assert offenders == {}


def test_the_limit_of_a_module_is_exact() -> None:
    source = '"""Says what it is."""\n' + "x = 1\n" * (MODULE_LINES - 1)
    assert broken_limits("a.py", source) == {}
    assert broken_limits("a.py", source + "x = 1\n") == {"a.py": MODULE_LINES + 1}


@pytest.mark.parametrize("word", ["def", "async def"])
def test_the_limit_of_a_function_is_exact(word: str) -> None:
    source = f'"""Says what it is."""\n\n@decorated\n{word} long():\n' + "    x = 1\n" * (FUNCTION_LINES - 1)
    assert broken_limits("a.py", source) == {}
    assert broken_limits("a.py", source + "    x = 1\n") == {"a.py:long": FUNCTION_LINES + 1}


def test_imports_within_functions_and_of_modules_by_name_count() -> None:
    tree = ast.parse("import a.b\nfrom c import d\n\ndef f():\n    from e.g import h\n")
    assert sorted(_imported_names(tree)) == ["a.b", "c", "c.d", "e.g", "e.g.h"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("see https://{}/simple".format("pypi" + ".org"), "a registry's host"),
        ("ls {}you/mew".format("/" + "home/"), "a path of one machine"),
        ("pip {}".format("install mew"), "another project's package"),
        ("pip {}".format("install 'mew[server]'"), "another project's package"),
    ],
)
def test_texts_of_another_place_are_recognized(text: str, what: str) -> None:
    assert [foreign.partition(":")[0] for foreign in foreign_texts(text)] == [what]


def test_our_own_texts_are_not_foreign() -> None:
    assert foreign_texts("pip install mew-protocol; GET /spaces/home/x; frame{0}/x; .{0}/x".format("/work")) == []
