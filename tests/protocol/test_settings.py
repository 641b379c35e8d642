"""The effective configuration of a space in its journal."""

from mew.protocol import raw_json
from mew.protocol.settings import Limits, SpaceSettings
from mew.testing import settings


def test_the_effective_configuration_is_plain_json_with_capabilities_as_written() -> None:
    space_settings = settings(
        participants={"alice": [{"kind": "chat", "note": "hers"}], "bob": None},
        defaults=[{"kind": "x/*"}],
        output_logs=frozenset({"z", "a"}),
        strict_from=True,
        limits=Limits(streams=3),
    )
    written = raw_json.decode_json(raw_json.encode_json(space_settings.effective()))
    assert written["participants"] == {"alice": [{"kind": "chat", "note": "hers"}], "bob": None}
    assert written["defaults"] == [{"kind": "x/*"}]
    assert written["output_logs"] == ["a", "z"]
    assert (written["allow_anonymous"], written["strict_from"]) == (False, True)
    assert written["streams"] == {"on_owner_disconnect": "transfer", "owner_grace_seconds": 60, "validate": False}
    assert written["limits"]["streams"] == 3


def test_the_default_capability_is_chat() -> None:
    assert SpaceSettings(space_id="lab").effective()["defaults"] == [{"kind": "chat"}]


def test_the_default_limits_are_those_of_the_protocol() -> None:
    limits = Limits()
    assert (limits.message_bytes, limits.stream_request_bytes) == (16 * 1024**2, 256 * 1024)
    assert (limits.grants, limits.invitations, limits.formats, limits.desired_ids) == (2_048, 10_000, 64, 100_000)
