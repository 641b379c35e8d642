"""The `mew` command as a user runs it: a process with arguments, output and an exit code."""

import importlib.metadata
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import mew
from mew.cli import main
from tests.support.host_requirements import requires

MEW = Path(sysconfig.get_path("scripts")) / "mew"
START_SECONDS = 0.3
# A busy machine is slower than an idle one; a command that imports too much is slower than both.
PATIENCE = 3


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    requires(MEW.exists(), "the mew command is not installed beside this Python: run make setup")
    return subprocess.run([str(MEW), *arguments], capture_output=True, text=True, timeout=30, check=False)


def test_version_prints_name_and_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"mew {mew.__version__}\n", "")


def test_the_distribution_mew_protocol_has_the_version_of_the_module() -> None:
    requires(MEW.exists(), "mew-protocol is not installed for this Python: run make setup")
    assert importlib.metadata.version("mew-protocol") == mew.__version__


def test_python_dash_m_mew_is_the_same_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "mew", "--version"], capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout == run("--version").stdout


def test_help_shows_examples() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "Examples:" in result.stdout
    assert "mew --version" in result.stdout


def test_no_arguments_show_the_help() -> None:
    result = run()
    assert result.returncode == 0
    assert result.stdout == run("--help").stdout


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["snd", "hello"], "mew: there is no command 'snd'. Did you mean 'send'? See 'mew --help'.\n"),
        (["xyzzy"], "mew: there is no command 'xyzzy'. See 'mew --help'.\n"),
        (["init", "default", "again"], "mew: unexpected argument 'again'. See 'mew init --help'.\n"),
        (["up", "--prot", "1"], "mew: Unknown option: --prot. Did you mean --port? See 'mew up --help'.\n"),
    ],
)
def test_a_typing_error_is_named_with_a_suggestion(
    typed: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("words", [["space"], ["up"], ["token"], ["stream"], ["journal"], ["gateway"], ["agent"]])
def test_the_help_of_a_command_has_only_its_own_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    assert "mew --version" not in capsys.readouterr().out


@pytest.mark.parametrize("word", ["nonsense", "--nonsense", "two words", "line\nbreak"])
def test_an_unknown_argument_is_one_line_on_stderr_and_exit_code_2(word: str) -> None:
    result = run(word)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("mew: ")
    assert result.stderr.count("\n") == 1
    assert word.split(maxsplit=1)[0] in result.stderr


def test_main_returns_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["nonsense"]) == 2
    assert capsys.readouterr().out == f"mew {mew.__version__}\n"


def test_version_is_fast() -> None:
    took = []
    for _ in range(3):
        started = time.perf_counter()
        run("--version")
        took.append(time.perf_counter() - started)
    assert min(took) < PATIENCE * START_SECONDS


def test_importing_mew_imports_no_other_library() -> None:
    script = "import sys, mew; print(*{'cyclopts', 'msgspec', 'jsonschema_rs'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout == "\n"


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [("uvloop", ["gateway", "start"], "server"), ("deltalake", ["pipeline", "tables", "--lake", "lake"], "pipeline")],
)
def test_a_command_whose_library_is_missing_names_what_to_install(
    missing: str, command: list[str], extra: str, tmp_path: Path
) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from mew.cli import main; sys.exit(main({command!r}))"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.endswith(f"install mew-protocol[{extra}]\n")
    assert result.stderr.count("\n") == 1
