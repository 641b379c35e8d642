"""Ids that look like the gateway's or like another participant's (docs/protocol.md, Reserved names)."""

from pathlib import Path

import msgspec
import pytest

from mew.cli.doctor import look
from mew.config import ConfigError
from mew.config.loader import load_config
from tests.gateway.raw import TEXT, Raw, frame, running, upgrade

SPACE = """\
space: {id: lab}
participants:
"""


@pytest.mark.parametrize("claimed", ["System:gateway", "SYSTEM", "Gateway", "gATEWAY", "Alice", "BOB"])
def test_nobody_without_a_token_takes_a_name_by_its_case(tmp_path: Path, claimed: str) -> None:
    with running(tmp_path, {"allow_anonymous": True}) as gateway:
        stranger = Raw(gateway.port)
        stranger.send(upgrade())
        assert stranger.answer().status == 101
        stranger.send(frame(TEXT, msgspec.json.encode({"type": "join", "participantId": claimed})))
        assert stranger.envelope("system/error")["payload"]["error"] == "unauthorized"
        assert stranger.closed() == 4401


def test_nobody_is_configured_under_the_gateways_name(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(SPACE + '  "System:admin": {}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="the id is reserved for the gateway"):
        load_config([file], environ={})


def test_the_doctor_warns_of_configured_ids_that_look_alike(tmp_path: Path) -> None:
    names = ("alice", "Alice", "agent-1", "agent_l", "bob")
    lines = "".join(f"  {name}: {{}}\n" for name in names)
    (tmp_path / "space.yaml").write_text(SPACE + lines, encoding="utf-8")
    noted = [each.line for each in look(tmp_path) if each.name == "participants"]
    assert noted == [
        "'alice' and 'Alice' look alike and could be confused: rename one",
        "'agent-1' and 'agent_l' look alike and could be confused: rename one",
    ]
