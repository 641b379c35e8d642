"""`mew explain`: what a participant may send and why, according to the gateway, or else to the configuration."""

import json
from pathlib import Path

import pytest

from tests.cli.running_space import Lab, configure, run


@pytest.fixture(params=["running", "configured"])
def space(request: pytest.FixtureRequest, shared_lab: Lab, tmp_path: Path) -> Path:
    """The directory of a running space, or of a space that is only configured."""
    return shared_lab.directory if request.param == "running" else configure(tmp_path)


def explained(directory: Path, *arguments: str) -> list[str]:
    ran = run(directory, "explain", *arguments)
    assert (ran.code, ran.err) == (0, "")
    heading, *lines = ran.lines
    return [heading.removesuffix(" (according to the configuration)"), *lines]


def test_an_allowed_envelope_is_shown_with_its_capability(space: Path) -> None:
    assert explained(space, "bob", "chat") == ["bob may send chat", '  allowed by {"kind":"chat"} [configured]']
    complete = json.dumps({"kind": "mcp/request", "payload": {"method": "tools/list"}})
    assert explained(space, "bob", complete)[0] == "bob may send mcp/request"


def test_a_kind_that_depends_on_the_envelope_is_shown_with_its_pattern(space: Path) -> None:
    pattern = '{"kind":"mcp/*","payload":{"method":"tools/list"}}'
    assert explained(space, "bob", "mcp/request") == [
        "bob may send mcp/request",
        f"  allowed if the envelope matches {pattern} [configured]",
    ]


def test_a_denied_envelope_is_shown_with_the_nearest_capability_and_the_difference(space: Path, tmp_path: Path) -> None:
    envelope = tmp_path / "envelope.json"
    envelope.write_text('{"kind":"mcp/request","payload":{"method":"tools/call"}}', encoding="utf-8")
    for values in (f"@{envelope}", envelope.read_text(encoding="utf-8")):
        assert explained(space, "bob", values) == [
            "bob may not send mcp/request",
            '  the nearest capability is {"kind":"mcp/*","payload":{"method":"tools/list"}} [configured]',
            "  but payload.method: 'tools/call' is not 'tools/list'",
            "  the error would be capability_violation",
        ]
    ran = run(space, "explain", "bob", "-", stdin=b'{"kind":"space/kick"}')
    assert ran.lines[0].startswith("bob may not send space/kick")


@pytest.mark.parametrize(
    ("participant", "kind", "reason"),
    [
        ("carol", "game/move", "  but kind: 'game/move' is not 'chat'"),
        ("carol", "system/welcome", "  'system/welcome' is sent by the gateway alone"),
        ("alice", "stream/grant-write", "  there is no open stream for which it may send this now"),
    ],
)
def test_the_reason_for_a_denied_kind_is_shown(tmp_path: Path, participant: str, kind: str, reason: str) -> None:
    assert reason in [line.partition(" [")[0] for line in explained(configure(tmp_path), participant, kind)]


def test_all_allowed_kinds_are_listed(space: Path) -> None:
    assert explained(space, "watcher")[:2] == [
        'chat          by {"kind":"chat"} [default]',
        'mcp/response  by {"kind":"mcp/response"} [baseline]',
    ]
    kinds = [item["kind"] for item in run(space, "explain", "bob", "--json").json["kinds"]]
    assert kinds == ["chat", "mcp/proposal", "mcp/reject", "mcp/request", "mcp/response", "mcp/withdraw"]


def test_permissions_for_streams_are_shown_if_a_gateway_runs(shared_lab: Lab) -> None:
    stream = shared_lab.succeeds("stream", "open")
    answer = shared_lab.mew("explain", "alice", "stream/transfer-ownership", "--json").json
    assert (answer["allowed"], stream in answer["streams"]) == (True, True)
    assert stream in shared_lab.succeeds("explain", "alice", "stream/data")
    assert f"on {stream}: " in shared_lab.succeeds("explain", "alice")
    assert shared_lab.succeeds("explain", "alice", "stream/data", "--offline").startswith(
        "alice may not send stream/data"
    )


def test_with_check_the_exit_code_is_the_answer(space: Path) -> None:
    assert run(space, "explain", "bob", "chat", "--check").code == 0
    assert run(space, "explain", "bob", "space/kick", "--check").code == 4
    assert run(space, "explain", "bob", "space/kick").code == 0


def test_the_answer_is_available_as_json(space: Path) -> None:
    envelope = '{"kind":"chat","payload":{"text":"hi"}}'
    answer = run(space, "explain", "bob", envelope, "--json").json
    assert (answer["allowed"], answer["capability"], answer["source"]) == (True, {"kind": "chat"}, "configured")


def test_an_unknown_participant_is_an_error(space: Path) -> None:
    ran = run(space, "explain", "zoe", "chat")
    assert (ran.code, ran.err) == (4, "mew: no participant 'zoe' (participant_not_found)\n")


def test_an_explicit_gateway_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    assert run(configure(tmp_path), "explain", "bob", "chat", "--gateway", "ws://127.0.0.1:1").code == 3
    assert run(tmp_path, "explain", "bob", "").code == 2


def test_explaining_from_a_configuration_creates_no_file(tmp_path: Path) -> None:
    explained(configure(tmp_path), "bob", "chat")
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]


def test_explaining_sends_nothing(shared_lab: Lab) -> None:
    shared_lab.succeeds("send", "before")
    shared_lab.succeeds("explain", "bob", '{"kind":"chat","payload":{"text":"only explained"}}')
    assert shared_lab.sent()[-1]["payload"] == {"text": "before"}
