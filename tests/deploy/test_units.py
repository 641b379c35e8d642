"""systemd takes the units as they are, and finds little that they leave open."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mew.cli.common.errors import USAGE_ERROR
from mew.gateway.journaling import SEALING_SECONDS
from mew.protocol.settings import Limits
from tests.support.host_requirements import requires

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
INSTALLED = "/opt/mew/bin/mew"
EXPOSURE = 20
"""Tenths of systemd's own scale, from 0 to 100: `systemd-analyze security` calls this OK."""
SECONDS = 50


def unit(name: str, section: str = "Service") -> configparser.SectionProxy:
    """A section of a unit, in which no key occurs twice."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / name, encoding="utf-8")
    return parser[section]


def analyze(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What systemd says of our units, with the command of this environment in place of the installed one."""
    requires(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    for path in UNITS:
        text = path.read_text(encoding="utf-8")
        assert INSTALLED in text
        (folder / path.name).write_text(text.replace(INSTALLED, str(Path(sys.executable).with_name("mew"))))
    command = ["systemd-analyze", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)


def test_there_is_one_for_the_gateway_and_one_for_the_pipeline() -> None:
    assert [path.name for path in UNITS] == ["mew-gateway@.service", "mew-pipeline@.service"]


@pytest.mark.parametrize("name", [path.name for path in UNITS])
def test_systemd_has_nothing_against_a_unit(name: str, tmp_path: Path) -> None:
    # A unit that names a key or a value that systemd does not know is still "verified": what it says of it counts.
    ran = analyze(tmp_path, "verify", "--man=no", f"./{name}")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("name", [path.name for path in UNITS])
def test_a_unit_leaves_little_open(name: str, tmp_path: Path) -> None:
    ran = analyze(tmp_path, "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", f"./{name}")
    assert ran.returncode == 0, ran.stdout


def test_the_gateway_has_the_time_to_seal_and_the_sockets_that_its_limits_allow() -> None:
    gateway = unit("mew-gateway@.service")
    assert int(gateway["TimeoutStopSec"]) > SEALING_SECONDS + 5
    assert int(gateway["LimitNOFILE"]) > 2 * Limits().connections


def test_no_unit_can_take_all_of_the_machine() -> None:
    for path in UNITS:
        assert int(unit(path.name)["MemoryMax"].removesuffix("%")) < 100
        assert int(unit(path.name)["TasksMax"]) >= 1024


def test_a_usage_error_is_not_restarted() -> None:
    for path in UNITS:
        assert (unit(path.name)["Restart"], int(unit(path.name)["RestartPreventExitStatus"])) == (
            "on-failure",
            USAGE_ERROR,
        )


def test_a_gateway_that_fails_again_and_again_is_not_restarted_forever() -> None:
    limits, gateway = unit("mew-gateway@.service", "Unit"), unit("mew-gateway@.service")
    start_seconds = 20  # a start that fails may first read a long journal
    shortest_interval = int(limits["StartLimitBurst"]) * (int(gateway["RestartSec"]) + start_seconds)
    assert int(limits["StartLimitIntervalSec"]) > shortest_interval


def test_both_work_as_the_same_user_in_the_same_folder() -> None:
    gateway, pipeline = (unit(path.name) for path in UNITS)
    for key in ("User", "Group", "StateDirectory", "StateDirectoryMode", "WorkingDirectory", "UMask"):
        assert gateway[key] == pipeline[key]
    assert gateway["User"] != "root"
    assert gateway["WorkingDirectory"] == f"%S/{gateway['StateDirectory']}"
