"""The agents in the templates: what a new user sees of streams works."""

from pathlib import Path

import pytest

import mew
from mew.agents import load_agent
from mew.cli import main
from mew.client import NotPermitted, Space
from tests.agents.harness import propose, working
from tests.client.harness import begun, close_all, ended, joining, played, url_of
from tests.gateway.raw import Running, running_from

TEMPLATES = Path(mew.__file__).parent / "templates"


def source(name: str) -> str:
    (matches,) = TEMPLATES.rglob(f"{name}.py")
    return str(matches)


@pytest.mark.parametrize(
    ("name", "stream_id", "fields"),
    [("walker", "positions", {"x", "y"}), ("thermometer", "temperature", {"celsius", "at"})],
)
@played
async def test_a_sender_announces_its_format_and_writes_its_stream(
    gateway: Running, name: str, stream_id: str, fields: set[str]
) -> None:
    async with joining(gateway, "alice") as alice:
        frames = alice.frames()
        async with working(gateway, source(name), "walker"):
            frame = await anext(frames)
            assert frame.stream_id == stream_id
            assert isinstance(frame.value, dict)
            assert set(frame.value) == fields
            assert alice.view.streams[stream_id].formats[0]["mime_type"] == "application/json"


@played
async def test_a_sender_continues_its_stream_after_a_broken_connection(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, working(gateway, source("walker"), "walker"):
        frames = alice.frames()
        assert (await anext(frames)).stream_id == "positions"
        close_all(gateway, 1011, "something broke", "walker")
        await alice.wait_until(lambda view: "walker" not in view.participants)
        await alice.wait_until(lambda view: "walker" in view.participants)
        before = alice.view.streams["positions"].frames
        while alice.view.streams["positions"].frames == before:
            assert (await anext(frames)).stream_id == "positions"
        assert list(alice.view.streams) == ["positions"]


@played
async def test_a_sender_opens_another_stream_after_its_stream_was_closed(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, working(gateway, source("walker"), "walker"):
        frames = alice.frames()
        assert (await anext(frames)).stream_id == "positions"
        await alice.stream("positions").close()
        while (await anext(frames)).stream_id == "positions":
            pass
        assert list(alice.view.streams) == ["positions_2"]


@played
async def test_the_watcher_reports_positions_and_skips_frames_of_another_format(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, working(gateway, source("watcher"), "echo"):
        messages = alice.envelopes("chat", sender="echo")
        stream = await alice.announce_stream([{"id": "Position", "mime_type": "application/json"}], desired_id="cat")
        await stream.start()
        await stream.send("malformed")
        await stream.send('{"x":1.0,"y":2.0}')
        assert (await anext(messages)).payload["text"] == "cat: 1 seen, 0 missed, now at (1.0, 2.0)"


# Permissions in a template


def create_space(template: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a space from a template; returns its space.yaml."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder / "home"))
    assert main(["init", template, "--name", "lab"]) == 0
    return folder / ".mew" / "space.yaml"


@played
async def test_the_fulfiller_of_the_template_carries_out_proposals_of_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_from(create_space("agents", tmp_path, monkeypatch)) as gateway:
        agents = ("echo", "calculator", "fulfiller")
        spaces = {name: await mew.connect(url_of(gateway), token=gateway.token(name)) for name in (*agents, "guest")}
        tasks = [await begun(load_agent(name)(spaces[name])) for name in agents]
        guest = spaces["guest"]
        chats = guest.envelopes("chat", sender="fulfiller")
        await propose(guest, "add", a=10, b=5)
        assert (await anext(chats)).payload["text"] == "15"
        with pytest.raises(NotPermitted):
            await guest.call_tool("calculator", "add", {"a": 1, "b": 1}, propose=False)
        for task in tasks:
            await ended(task)
        for space in spaces.values():
            await space.close()


@played
async def test_a_coder_requests_reads_and_only_proposes_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def may(space: Space, kind: str, tool: str, to: str = "files") -> bool:
        return space.can({"kind": kind, "to": [to], "payload": {"method": "tools/call", "params": {"name": tool}}})

    with running_from(create_space("coding", tmp_path, monkeypatch)) as gateway:
        async with mew.connect(url_of(gateway), token=gateway.token("coder")) as coder:
            assert may(coder, "mcp/request", "read_text_file")
            assert not may(coder, "mcp/request", "read_text_file", "human")
            assert not may(coder, "mcp/request", "write_file")
            assert may(coder, "mcp/proposal", "write_file")
            assert coder.can({"kind": "mcp/request", "to": ["files"], "payload": {"method": "tools/list"}})
