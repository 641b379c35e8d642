"""Ids that resemble the id of the gateway or of another participant (docs/protocol.md, Reserved names)."""

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
def test_without_a_token_no_one_joins_as_a_name_in_another_letter_case(tmp_path: Path, claimed: str) -> None:
    with running(tmp_path, {"allow_anonymous": True}) as gateway:
        stranger = Raw(gateway.port)
        stranger.send(upgrade())
        assert stranger.answer().status == 101
        stranger.send(frame(TEXT, msgspec.json.encode({"type": "join", "participantId": claimed})))
        assert stranger.envelope("system/error")["payload"]["error"] == "unauthorized"
        assert stranger.closed() == 4401


def test_no_participant_is_configured_with_the_name_of_the_gateway(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(SPACE + '  "System:admin": {}\n', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config([file], environ={})
    assert caught.value.where == "participants.System:admin"


def test_the_doctor_warns_about_configured_ids_that_look_alike(tmp_path: Path) -> None:
    names = ("alice", "Alice", "agent-1", "agent_l", "bob")
    lines = "".join(f"  {name}: {{}}\n" for name in names)
    (tmp_path / "space.yaml").write_text(SPACE + lines, encoding="utf-8")
    noted = [check.line for check in look(tmp_path) if check.name == "participants"]
    assert noted == [
        "'alice' and 'Alice' look alike and could be confused: rename one",
        "'agent-1' and 'agent_l' look alike and could be confused: rename one",
    ]
