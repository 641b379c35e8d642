"""States to compare: one with entries in every table, and a form of plain values."""

from typing import Any

import msgspec

from mew.protocol import SpaceState
from mew.testing import MemorySpace
from tests.support.histories import CONFIGURATION, History, Step


def rich_state() -> SpaceState:
    """A state with entries in every table."""
    lab = MemorySpace(**CONFIGURATION)
    history = History(lab)
    names = {"join": ("alice", "bob", "carol", "guest"), "announce": ("alice",)}
    for verb, actors in names.items():
        history.play_all([Step(verb, actor, "bob", 1) for actor in actors])
    history.play_all([Step("request", "alice", "bob", 1), Step("grant write", "alice", "bob", 1)])
    history.play_all([Step("data", "bob", "x", 1), Step("frame", "alice", "x", 1), Step("leave", "carol", "carol", 1)])
    history.play_all([Step(verb, "alice", "bob", 1) for verb in ("grant", "revoke", "grant", "pause", "shutdown")])
    history.play(Step("pause", "alice", "carol", 3))
    alice = history.clients["alice"]
    for name, kind in (("p-1", "mcp/proposal"), ("p-2", "mcp/proposal"), ("w-1", "mcp/withdraw")):
        alice.send(id=name, kind=kind, to=["bob"], correlation_id=["p-1"], payload={"method": "tools/call"})
    timed = {"recipient": "bob", "capabilities": [{"kind": "memo"}], "timeout_seconds": 60}
    alice.send(id="g-1", kind="capability/grant", payload=timed)
    history.play_all([Step("invite", "alice", "dave", 1), Step("kick", "alice", "carol", 1)])
    return lab.state


def plain(state: SpaceState) -> dict[str, Any]:
    """A state as plain values: capabilities by their patterns, and ordered tables as lists."""
    value: dict[str, Any] = msgspec.to_builtins(state, enc_hook=lambda _compiled: None)
    return {**value, "order": [list(state.present), list(state.streams)]}
