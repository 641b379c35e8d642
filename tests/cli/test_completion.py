"""`mew --install-completion`: a shell completes commands and options."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.running_space import run
from tests.support.host_requirements import requires

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_mew
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    file = folder / "mew.bash"
    ran = run(folder, "--install-completion", "--shell", "bash", "--output", str(file))
    assert (ran.code, ran.out) == (0, f"wrote {file}; open a new shell, or load the file with `source`\n")
    return file


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sen",), {"send"}),
        (("stream", ""), {"ls", "open", "send", "grant", "revoke", "transfer", "close", "tail"}),
        (("stream", "send", "--bin"), {"--binary"}),
        (("tail", "--fra"), {"--frames"}),
        (("doctor", "--d"), {"--deep"}),
    ],
)
def test_bash_completes_commands_and_options(script: Path, words: tuple[str, ...], offered: set[str]) -> None:
    bash = shutil.which("bash")
    requires(bash, "bash is not installed")
    command = [str(bash), "-c", ASK, "bash", str(script), "mew", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert set(ran.stdout.split()) == offered


def test_the_script_can_be_printed_without_writing_a_file(tmp_path: Path, script: Path) -> None:
    screen = run(tmp_path, "--install-completion", "--shell", "bash", "--show", HOME=str(tmp_path))
    assert screen.out.rstrip("\n") == script.read_text(encoding="utf-8").rstrip("\n")
    assert list(tmp_path.iterdir()) == []


def test_by_default_the_script_is_written_where_the_shell_loads_it(tmp_path: Path) -> None:
    ran = run(tmp_path, "--install-completion", "--shell", "fish", HOME=str(tmp_path), XDG_CONFIG_HOME="")
    assert ran.code == 0
    assert [path.name for path in tmp_path.rglob("*.fish")] == ["mew.fish"]


def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run(tmp_path, "--install-completion", "--shell", "bash", "--output", str(tmp_path / "file" / "x"))
    assert (ran.code, ran.err.count("\n")) == (1, 1)
