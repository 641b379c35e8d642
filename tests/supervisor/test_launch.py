"""The command, environment and folder of a participant, made from its configuration."""

import os
import sys
from pathlib import Path

import pytest

from mew._internal.processes import MARK
from mew.config.loader import load_config
from mew.config.models import SpaceConfig
from mew.supervisor.launch import Launch, LaunchEnvironment, expand_variables, launch_problem, make_launch

TOKEN = "the-token"


def configured(directory: Path, participant: str) -> SpaceConfig:
    file = directory / "space.yaml"
    file.write_text(f"space: {{id: lab}}\nparticipants:\n  echo-agent: {participant}\n", encoding="utf-8")
    return load_config([file], environ={}).spaces[0]


def made(directory: Path, participant: str, **environ: str) -> Launch:
    environment = LaunchEnvironment(url="ws://localhost:8090", port=8090, run="r1", environ={"PATH": "/bin", **environ})
    return make_launch(configured(directory, participant), "echo-agent", TOKEN, environment)


def test_the_environment_has_the_gateway_the_space_and_the_participant(tmp_path: Path) -> None:
    env = made(tmp_path, "{command: agent}").env
    assert {name: env[name] for name in env if name != "PATH"} == {
        "PORT": "8090",
        "SPACE": "lab",
        "TOKEN": TOKEN,
        "MEW_GATEWAY": "ws://localhost:8090",
        "MEW_SOCKET": str(tmp_path / ".mew" / "gateway.sock"),
        "MEW_SPACE": "lab",
        "MEW_TOKEN": TOKEN,
        "MEW_PARTICIPANT_ID": "echo-agent",
        "MEW_TOKEN_ECHO_AGENT": TOKEN,
        MARK: "r1/echo-agent",
    }


def test_a_participant_runs_in_the_space_directory_and_has_a_log(tmp_path: Path) -> None:
    started = made(tmp_path, "{command: ./agent.sh, restart_policy: always}")
    assert (started.cwd, started.log) == (tmp_path, tmp_path / "logs" / "echo-agent.log")
    assert (started.argv, started.restart_policy) == (("./agent.sh",), "always")


def test_port_space_and_token_are_filled_into_arguments_and_environment(tmp_path: Path) -> None:
    args = '["${PORT}:${PORT}", "--at=${SPACE}", "${TOKEN}", "$PORT", "${HOME}"]'
    started = made(tmp_path, f'{{command: agent, args: {args}, env: {{AT: "${{SPACE}}/${{TOKEN}}"}}}}', HOME="there")
    assert started.argv[1:] == ("8090:8090", "--at=lab", TOKEN, "$PORT", "${HOME}")
    assert started.env["AT"] == f"lab/{TOKEN}"


def test_env_values_use_the_gateways_environment_after_our_variables(tmp_path: Path) -> None:
    env = '{KEY: "${API_KEY}", NONE: "<${MISSING}>", OURS: "${PORT}"}'
    started = made(tmp_path, f"{{command: agent, env: {env}}}", API_KEY="k", PORT="1")
    assert [started.env[name] for name in ("KEY", "NONE", "OURS", "API_KEY")] == ["k", "<>", "8090", "k"]


def test_inserted_values_are_not_expanded_again() -> None:
    assert expand_variables("${A}", {"A": "${B}", "B": "no"}) == "${B}"


def test_tokens_of_other_participants_are_not_passed_on(tmp_path: Path) -> None:
    started = made(tmp_path, "{command: agent}", MEW_TOKEN_ALICE="hers", MEW_TOKEN="somebody's", LANG="C")
    assert "hers" not in started.env.values()
    assert (started.env["MEW_TOKEN"], started.env["LANG"]) == (TOKEN, "C")


def test_the_folder_of_mew_is_the_last_entry_of_path(tmp_path: Path) -> None:
    assert made(tmp_path, "{command: mew}").env["PATH"].split(os.pathsep) == ["/bin", str(Path(sys.executable).parent)]


def test_a_bridge_runs_mew_bridge_start_and_secrets_are_only_in_its_environment(tmp_path: Path) -> None:
    server = '{command: npx, args: [files, "${SPACE}"], env: {API_KEY: "${SECRET}", PORT: "3000"}, cwd: data}'
    limits = "{init_timeout: 1500, max_reconnects: 3}"
    started = made(tmp_path, f"{{type: mcp-bridge, mcp_server: {server}, bridge_config: {limits}}}", SECRET="hush")
    assert started.argv[:6] == (sys.executable, "-P", "-m", "mew", "bridge", "start")
    target = ("--gateway", f"unix:{tmp_path}/.mew/gateway.sock", "--space", "lab", "--mcp-cwd", str(tmp_path / "data"))
    assert started.argv[6:12] == target
    assert started.argv[12:] == ("--init-timeout", "1500", "--max-reconnects", "3", "--", "npx", "files", "lab")
    assert (started.env["API_KEY"], started.env["PORT"], started.env["MEW_TOKEN"]) == ("hush", "3000", TOKEN)


def test_a_bridge_without_reconnect_never_restarts_its_server(tmp_path: Path) -> None:
    bridge = "{type: mcp-bridge, mcp_server: {command: x}, bridge_config: {reconnect: false, max_reconnects: 3}}"
    argv = made(tmp_path, bridge).argv
    assert argv[argv.index("--reconnect") + 1] == "false"
    assert "--max-reconnects" not in argv


@pytest.mark.parametrize(
    ("participant", "problem"),
    [
        ("{command: agent}", None),
        ("{}", "auto_start is set, but command is missing"),
        ("{type: mcp-bridge, command: agent}", "auto_start is set, but mcp_server is missing"),
        ("{type: mcp-bridge, mcp_server: {command: x}}", None),
    ],
)
def test_a_participant_without_a_program_cannot_be_started(
    tmp_path: Path, participant: str, problem: str | None
) -> None:
    assert launch_problem(configured(tmp_path, participant).participants["echo-agent"]) == problem


def test_a_launch_shows_only_its_name(tmp_path: Path) -> None:
    started = made(tmp_path, '{command: agent, args: ["${TOKEN}"]}')
    assert repr(started) == "<Launch 'echo-agent'>"
    assert TOKEN not in f"{started} {list(started.__rich_repr__())}"
