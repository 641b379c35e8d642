"""`mew explain`: what somebody may send and why not, by the gateway's word, or the configuration's where none runs."""

import json
from pathlib import Path

import pytest

from tests.cli.running_space import Lab, configure, run


@pytest.fixture(params=["running", "configured"])
def asked(request: pytest.FixtureRequest, shared_lab: Lab, tmp_path: Path) -> Path:
    """A directory whose space runs, and one whose space does not."""
    return shared_lab.directory if request.param == "running" else configure(tmp_path)


def told(directory: Path, *arguments: str) -> list[str]:
    ran = run(directory, "explain", *arguments)
    assert (ran.code, ran.err) == (0, "")
    heading, *lines = ran.lines
    return [heading.removesuffix(" (according to the configuration)"), *lines]


def test_what_is_allowed_is_told_with_its_capability(asked: Path) -> None:
    assert told(asked, "bob", "chat") == ["bob may send chat", '  allowed by {"kind":"chat"} [configured]']
    complete = json.dumps({"kind": "mcp/request", "payload": {"method": "tools/list"}})
    assert told(asked, "bob", complete)[0] == "bob may send mcp/request"


def test_what_depends_on_the_envelope_is_told_with_what_it_must_fit(asked: Path) -> None:
    pattern = '{"kind":"mcp/*","payload":{"method":"tools/list"}}'
    assert told(asked, "bob", "mcp/request") == [
        "bob may send mcp/request",
        f"  allowed if the envelope matches {pattern} [configured]",
    ]


def test_what_is_not_allowed_is_told_with_the_nearest_and_what_differs(asked: Path, tmp_path: Path) -> None:
    envelope = tmp_path / "envelope.json"
    envelope.write_text('{"kind":"mcp/request","payload":{"method":"tools/call"}}', encoding="utf-8")
    for values in (f"@{envelope}", envelope.read_text(encoding="utf-8")):
        assert told(asked, "bob", values) == [
            "bob may not send mcp/request",
            '  the nearest capability is {"kind":"mcp/*","payload":{"method":"tools/list"}} [configured]',
            "  but payload.method: 'tools/call' is not 'tools/list'",
            "  the error would be capability_violation",
        ]
    ran = run(asked, "explain", "bob", "-", given=b'{"kind":"space/kick"}')
    assert ran.lines[0].startswith("bob may not send space/kick")


@pytest.mark.parametrize(
    ("participant", "kind", "why"),
    [
        ("carol", "game/move", "  but kind: 'game/move' is not 'chat'"),
        ("carol", "system/welcome", "  'system/welcome' is sent by the gateway alone"),
        ("alice", "stream/grant-write", "  there is no open stream for which it may send this now"),
    ],
)
def test_a_kind_that_cannot_pass_is_told_why(tmp_path: Path, participant: str, kind: str, why: str) -> None:
    assert why in [line.partition(" [")[0] for line in told(configure(tmp_path), participant, kind)]


def test_everything_that_may_be_sent_is_listed(asked: Path) -> None:
    assert told(asked, "watcher")[:2] == [
        'chat          by {"kind":"chat"} [default]',
        'mcp/response  by {"kind":"mcp/response"} [baseline]',
    ]
    kinds = [item["kind"] for item in run(asked, "explain", "bob", "--json").json["kinds"]]
    assert kinds == ["chat", "mcp/proposal", "mcp/reject", "mcp/request", "mcp/response", "mcp/withdraw"]


def test_rights_over_streams_are_told_where_a_gateway_knows_them(shared_lab: Lab) -> None:
    stream = shared_lab.says("stream", "open")
    answer = shared_lab.mew("explain", "alice", "stream/transfer-ownership", "--json").json
    assert (answer["allowed"], stream in answer["streams"]) == (True, True)
    assert stream in shared_lab.says("explain", "alice", "stream/data")
    assert f"on {stream}: " in shared_lab.says("explain", "alice")
    assert shared_lab.says("explain", "alice", "stream/data", "--offline").startswith("alice may not send stream/data")


def test_a_script_can_ask_by_the_exit_code(asked: Path) -> None:
    assert run(asked, "explain", "bob", "chat", "--check").code == 0
    assert run(asked, "explain", "bob", "space/kick", "--check").code == 4
    assert run(asked, "explain", "bob", "space/kick").code == 0


def test_the_answer_can_be_had_as_json(asked: Path) -> None:
    envelope = '{"kind":"chat","payload":{"text":"hi"}}'
    answer = run(asked, "explain", "bob", envelope, "--json").json
    assert (answer["allowed"], answer["capability"], answer["source"]) == (True, {"kind": "chat"}, "configured")


def test_nobody_cannot_be_asked_about(asked: Path) -> None:
    ran = run(asked, "explain", "nobody", "chat")
    assert (ran.code, ran.err) == (4, "mew: no participant 'nobody' (participant_not_found)\n")


def test_a_gateway_that_was_named_and_is_gone_is_not_replaced_by_a_guess(tmp_path: Path) -> None:
    assert run(configure(tmp_path), "explain", "bob", "chat", "--gateway", "ws://127.0.0.1:1").code == 3
    assert run(tmp_path, "explain", "bob", "").code == 2


def test_asking_a_configuration_makes_no_file(tmp_path: Path) -> None:
    told(configure(tmp_path), "bob", "chat")
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]


def test_asking_sends_nothing(shared_lab: Lab) -> None:
    shared_lab.says("send", "before")
    shared_lab.says("explain", "bob", '{"kind":"chat","payload":{"text":"only asked"}}')
    assert shared_lab.said()[-1]["payload"] == {"text": "before"}
