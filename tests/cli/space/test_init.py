"""`mew init` as a user runs it: it creates a space in a folder from a template, and overwrites nothing."""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from zipfile import ZipFile

import pytest

import mew
from mew.cli import main
from mew.config.loader import load_config
from mew.config.models import GatewayConfig
from tests.gateway.raw import running_from
from tests.support.host_requirements import requires

BUILT_IN = ("agents", "coding", "default", "pipeline", "streams")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory of a user without templates, outside a terminal."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("AGENT_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    created = tmp_path / "my lab"
    created.mkdir()
    monkeypatch.chdir(created)
    return created


def template(folder: Path, name: str, space: str, **details: object) -> Path:
    """Create a template in a folder of templates."""
    created = folder / name
    (created / "agents").mkdir(parents=True)
    (created / "space.yaml").write_text(space, encoding="utf-8")
    (created / "agents" / "x.cjs").write_text("// {{SPACE_NAME}}\n", encoding="utf-8")
    if details:
        (created / "template.json").write_text(json.dumps({"name": name, **details}), encoding="utf-8")
    return created


def written(folder: Path) -> str:
    return (folder / ".mew" / "space.yaml").read_text(encoding="utf-8")


def configured(folder: Path) -> GatewayConfig:
    return load_config([folder / ".mew" / "space.yaml"], environ={})


OLD = """\
space:
  id: "{{SPACE_NAME}}"   # a comment
  name: "An old one"
participants:
  human: {capabilities: [{kind: "*"}]}
"""


# Built-in templates


def test_the_list_has_one_line_per_template(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template(folder / "templates", "mine", OLD, description="My own")
    assert main(["init", "--list-templates"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted([*BUILT_IN, "mine"])
    assert lines[3].endswith("My own (./templates)")


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_gateway_serves_the_space_of_each_template(folder: Path, name: str) -> None:
    assert main(["init", name]) == 0
    config = configured(folder)
    assert config.warnings == ()
    assert (config.spaces[0].settings.space_id, config.spaces[0].name) == ("my-lab", "my lab")
    assert config.spaces[0].default_participant == "human"
    for participant in config.spaces[0].participants.values():
        files = [item for item in participant.args if item.startswith("./.mew/")]
        assert all((folder / item).is_file() for item in files)
    with running_from(folder / ".mew" / "space.yaml") as gateway:
        assert gateway.ask(lambda running: list(running.hubs)) == ["my-lab"]


def test_each_template_starts_its_participants(folder: Path) -> None:
    for name in BUILT_IN:
        assert main(["init", name, "--force"]) == 0
        space = configured(folder).spaces[0]
        starting = {item for item, participant in space.participants.items() if participant.auto_start}
        expected = {
            "agents": {"echo", "calculator", "fulfiller"},
            "streams": {"walker", "watcher"},
            "pipeline": {"thermometer"},
            "coding": {"files"},
            "default": set(),
        }
        assert starting == expected[name]
        if name == "pipeline":
            assert space.journal.enabled
            assert space.pipeline == {"typed": ["measurement"]}


def test_the_info_of_a_template_lists_its_files_and_variables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--template-info", "coding"]) == 0
    result = capsys.readouterr().out
    assert result.startswith("coding (built in)\n")
    assert "{{AGENT_API_KEY}}" in result
    assert "# A space for coding" in result
    assert main(["init", "--template-info", "coding", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [".mew/README.md"]


def test_the_wheel_has_every_file_of_the_templates(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    requires(built.returncode == 0, f"the wheel cannot be built: {built.stderr.strip()}")
    (wheel,) = tmp_path.glob("*.whl")
    source = Path(str(mew.__file__)).parent / "templates"
    files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {f"mew/templates/{path.relative_to(source)}" for path in files}
    assert len(expected) > 10
    with ZipFile(wheel) as archive:
        assert expected <= set(archive.namelist())


# Options and variables


def test_name_description_and_port_are_written(folder: Path) -> None:
    assert main(["init", "--name", 'The "best" lab', "--description", "a: b # c", "--port", "9001"]) == 0
    config = configured(folder)
    space = config.spaces[0]
    assert (space.name, space.description, config.port) == ('The "best" lab', "a: b # c", 9001)
    assert space.settings.space_id == "The-best-lab"


def test_description_and_port_are_added_to_a_template_without_them(folder: Path) -> None:
    template(folder / "templates", "old", OLD)
    assert main(["init", "old", "--name", "lab", "--description", "for tests", "--port", "9001"]) == 0
    config = configured(folder)
    space = config.spaces[0]
    assert (space.settings.space_id, space.name, space.description, config.port) == (
        "lab",
        "An old one",
        "for tests",
        9001,
    )
    assert "# a comment" in written(folder)


def test_the_files_of_a_template_are_copied(folder: Path) -> None:
    created = template(folder / "templates", "old", OLD)
    (created / "package.json").write_text("{}", encoding="utf-8")
    (created / "node_modules").mkdir()
    (created / "node_modules" / "x.js").touch()
    assert main(["init", "old"]) == 0
    assert 'id: "my-lab"' in written(folder)
    matches = sorted(str(path.relative_to(folder)) for path in (folder / ".mew").rglob("*") if path.is_file())
    assert matches == [".mew/.gitignore", ".mew/agents/x.cjs", ".mew/package.json", ".mew/space.yaml"]
    assert (folder / ".mew" / "agents" / "x.cjs").read_text(encoding="utf-8") == "// {{SPACE_NAME}}\n"


def test_of_templates_with_the_same_name_the_nearest_is_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Path(os.environ["HOME"]) / ".mew" / "templates"
    for place in (folder / "templates", home):
        template(place, "agents", OLD.replace("An old one", place.parent.name))
    template(home, "other", OLD.replace("An old one", "other"))
    assert main(["init", "agents"]) == 0
    assert configured(folder).spaces[0].name == "my lab"
    assert main(["init", "other", "--force"]) == 0
    assert configured(folder).spaces[0].name == "other"
    assert main(["init", str(home / "agents"), "--force", "--json"]) == 0
    assert configured(folder).spaces[0].name == ".mew"
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["space"] == "my-lab"


VARIABLES = [
    {"name": "AGENT_MODEL", "default": "small", "env_sources": ["MODEL_NAME"], "prompt": True},
    {"name": "WHO", "default": "${username} in ${dirname} since ${date}"},
    {"name": "COUNT", "default": 3},
    {"name": "KEY", "sensitive": True, "env_sources": ["FIRST_KEY", "SECOND_KEY"]},
    {"name": "OTHER_KEY", "sensitive": True, "default": "never written"},
    {"name": "PROMPT", "default": 'say "hi"\nand go'},
]
OPEN = """\
space: {id: "{{SPACE_NAME}}"}
participants:
  agent:
    env:
      MODEL: {{AGENT_MODEL}}
      WHO: '{{WHO}}'
      COUNT: "{{ COUNT }}"
      KEY: "{{KEY}}"
      OTHER: "{{OTHER_KEY}}"
      PROMPT: "{{PROMPT}}"
      CONFIG: '{"prompt": {{PROMPT_JSON}}}'
      UNKNOWN: "{{UNKNOWN}}"
"""


def test_variables_come_from_flags_then_the_environment_then_defaults(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    template(folder / "templates", "open", OPEN, variables=VARIABLES)
    monkeypatch.setenv("SECOND_KEY", "very secret")
    monkeypatch.setenv("USER", "o'neill")
    monkeypatch.setenv("LOGNAME", "o'neill")
    assert main(["init", "open"]) == 0
    env = configured(folder).spaces[0].participants["agent"].env
    assert (env["MODEL"], env["COUNT"]) == ("small", "3")
    assert re.fullmatch(r"o'neill in my lab since \d{4}-\d\d-\d\d", env["WHO"])
    assert (env["KEY"], env["OTHER"]) == ("${SECOND_KEY}", "${OTHER_KEY}")
    assert env["PROMPT"] == 'say "hi"\nand go'
    assert json.loads(env["CONFIG"]) == {"prompt": 'say "hi"\nand go'}
    assert env["UNKNOWN"] == "{{UNKNOWN}}"
    result = capsys.readouterr()
    assert "{{UNKNOWN}} is not defined" in result.err
    assert "set OTHER_KEY in the environment" in result.out
    everything = "".join(path.read_text(encoding="utf-8") for path in (folder / ".mew").rglob("*") if path.is_file())
    assert "secret" not in everything
    assert "never written" not in everything
    monkeypatch.setenv("MODEL_NAME", "of: the environment")
    for flags, model in (([], "of: the environment"), (["--model", "as said"], "as said")):
        assert main(["init", "open", "--force", *flags]) == 0
        assert configured(folder).spaces[0].participants["agent"].env["MODEL"] == model


# Existing files


def test_an_existing_space_is_an_error_and_stays_unchanged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    before = written(folder)
    capsys.readouterr()
    assert main(["init", "agents"]) == 1
    assert "this directory already has a space" in capsys.readouterr().err
    assert written(folder) == before
    (folder / ".mew" / "space.yaml").rename(folder / "space.yaml")
    assert main(["init", "agents"]) == 1


def test_force_replaces_the_space_and_keeps_tokens_and_journal(folder: Path) -> None:
    assert main(["init"]) == 0
    stored = folder / ".mew" / "tokens" / "human.token"
    stored.parent.mkdir()
    stored.write_text("a-token", encoding="utf-8")
    assert main(["init", "agents", "--force"]) == 0
    assert "calculator" in written(folder)
    assert stored.read_text(encoding="utf-8") == "a-token"


def test_entries_are_added_to_gitignore_once(folder: Path) -> None:
    (folder / ".gitignore").write_text("*.pyc\n.mew/logs", encoding="utf-8")
    for flags in ([], ["--force"]):
        assert main(["init", *flags]) == 0
    lines = (folder / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["*.pyc", ".mew/logs"]
    assert {".mew/tokens/", ".mew/journal/", ".mew/pids.json"} <= set(lines)
    assert len(lines) == len(set(lines))
    assert ".mew/logs/" not in lines


# Errors


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nonsense"], 1, "there is no template 'nonsense'; the templates are: agents, broken, coding, default, "),
        (["../x"], 1, "there is no template '../x'"),
        (["broken"], 1, "the template 'broken' creates an invalid space: .mew/space.yaml:1: "),
        (["not-json"], 1, "template.json: "),
        (["--port", "70000"], 2, "--port: 70000 is not a valid port"),
        (["--template-info", "nonsense"], 1, "there is no template 'nonsense'"),
    ],
)
def test_an_error_is_one_line_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    template(folder / "templates", "broken", "space: {id: [1]}\n")
    if arguments == ["not-json"]:
        created = template(folder / "templates", "not-json", OLD)
        (created / "template.json").write_text("{", encoding="utf-8")
    assert main(["init", *arguments]) == code
    result = capsys.readouterr().err
    assert words in result
    assert result.count("\n") == 1
    assert not (folder / ".mew").exists()


# On a terminal


def on_a_terminal(folder: Path, answers: bytes, *arguments: str) -> tuple[int, str]:
    """The exit code and the screen of a user who types these answers."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mew", "init", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, answers)
    screen = b""
    try:
        with suppress(OSError):  # the other end is closed
            while True:
                screen += os.read(ours, 4096)
        return process.wait(20), screen.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_on_a_terminal_init_asks_for_the_template_and_its_variables(folder: Path) -> None:
    code, screen = on_a_terminal(folder, b"99\nagents\nA lab of mine\n")
    assert code == 0, screen
    assert "Enter a number from 1 to 5, or a name." in screen
    assert "The name of the space [my lab]" in screen
    assert configured(folder).spaces[0].name == "A lab of mine"


def test_on_a_terminal_given_options_are_not_asked_and_an_empty_answer_is_the_suggestion(folder: Path) -> None:
    code, screen = on_a_terminal(folder, b"\n", "coding", "--name", "lab")
    assert code == 0, screen
    assert "called" not in screen
    assert "The folder with the files [./workspace]" in screen
    server = configured(folder).spaces[0].participants["files"].mcp_server
    assert server is not None
    assert server.args[-1] == "./workspace"


def test_on_a_terminal_the_end_of_input_cancels(folder: Path) -> None:
    code, screen = on_a_terminal(folder, b"\x04")
    assert code == 130, screen
    assert "Traceback" not in screen
    assert not (folder / ".mew").exists()
