"""What `mew.view` makes of envelopes, for the inspector's own fold: `python -m tools.inspector_vectors fold.json`.

Plays stories in a space in memory, as observers and a participant see them, and notes the view after every message.
Decides nothing about the fold: `mew.view` is right, and a test compares.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from mew.protocol import parse
from mew.protocol.frames import build_frame
from mew.testing import Client, MemorySpace, ReceivedFrame
from mew.view import SpaceView, apply_envelope, apply_frame, view_from_welcome

EVERYBODY: Final = {"alice": [{"kind": "*"}], "bob": [{"kind": "*"}], "carol": [{"kind": "chat"}, {"kind": "stream/*"}]}
STEPS: Final = 80
SEEDS: Final = (3, 14, 15)
Story: TypeAlias = Callable[[MemorySpace, Client, Client], None]
FORMATS: Final = [{"id": "json", "schema": {"type": "object"}}, {"id": "text", "mime_type": "text/plain"}]


def dumped(view: SpaceView) -> dict[str, Any]:
    """A view as JSON, in its own order."""
    return {
        "you": msgspec.to_builtins(view.you),
        "participants": [msgspec.to_builtins(item) for item in view.participants.values()],
        "streams": [item.entry for item in view.streams.values()],
        "position": view.position,
        "proposals": None if view.proposals is None else [_sizeless(item.entry) for item in view.proposals.values()],
    }


def _sizeless(entry: dict[str, Any]) -> dict[str, Any]:
    """The page reads envelopes and not their texts: it does not know how long a payload is."""
    return {name: value for name, value in entry.items() if name != "bytes"}


def followed(client: Client) -> list[dict[str, Any]]:
    """Everything that reached a client, each with the view it leaves."""
    view: SpaceView | None = None
    steps: list[dict[str, Any]] = []
    for received in client.inbox():
        if isinstance(received, ReceivedFrame):
            assert view is not None
            view = apply_frame(view, build_frame(received.stream_id, received.data))
            steps.append({"frame": received.stream_id, "view": dumped(view)})
            continue
        envelope = parse(received.raw)
        view = view_from_welcome(envelope) if view is None else apply_envelope(view, envelope)
        steps.append({"envelope": received.raw.decode(), "view": dumped(view)})
    return steps


def open_and_end(lab: MemorySpace, alice: Client, bob: Client) -> None:
    """Both ways to open, data and frames, every end, and forged `stream/open` and `stream/ready`."""
    alice.send(kind="stream/request", payload={"description": "positions", "direction": None, "meta": {"deep": [1]}})
    alice.send(kind="stream/announce", payload={"formats": FORMATS, "desired_id": "cat", "encoding": "binary"})
    bob.send(kind="stream/open", payload={"stream_id": "forged", "owner": "bob"})
    bob.send(kind="stream/ready", payload={"stream_id": "forged"})
    alice.frame("stream-1", "hello")
    alice.send(kind="stream/start", payload={"stream": {"stream_id": "cat"}})
    data = {"stream": {"stream_id": "cat"}, "sequence": 4, "content": {"x": 1}, "format_id": "json"}
    alice.send(kind="stream/data", payload=data)
    alice.send(kind="stream/close", payload={"stream_id": "stream-1", "reason": "done"})
    bob.send(kind="stream/close", payload={"stream_id": "nowhere"})
    bob.send(kind="stream/request", payload={})
    bob.send(kind="stream/complete", payload={"stream_id": "stream-2"})
    alice.send(kind="stream/error", payload={"stream_id": "cat", "code": "broken", "message": "it broke"})
    alice.send(kind="stream/request", payload={"target": ["bob"], "description": "for bob"})
    alice.frame("stream-3", b"\x00\xff", text=False)
    lab.lose("bob", "stream-3", 1, 1)


def change_hands(lab: MemorySpace, alice: Client, bob: Client) -> None:
    """Writers, owners, leaving and coming back."""
    carol = lab.join("carol")
    alice.send(kind="stream/request", payload={"description": "the cat"})
    alice.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "bob"})
    alice.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "carol"})
    carol.leave()
    alice.send(kind="stream/transfer-ownership", payload={"stream_id": "stream-1", "new_owner": "bob"})
    bob.send(kind="stream/revoke-write", payload={"stream_id": "stream-1", "participant_id": "alice"})
    lab.join("carol").leave()
    alice.send(kind="space/invite", payload={"participant_id": "dana", "initial_capabilities": [{"kind": "chat"}]})
    lab.join("dana")
    alice.send(kind="capability/grant", payload={"recipient": "dana", "capabilities": [{"kind": "mcp/*"}]})
    alice.send(kind="space/kick", payload={"participant_id": "dana"})
    bob.leave()
    lab.advance(61)


def propose(lab: MemorySpace, alice: Client, bob: Client) -> None:
    """Every end of a proposal, opinions that end none, and votes that come and go with a kick."""
    call = {"method": "tools/call", "params": {"name": "read"}}
    for number in range(7):
        fields = {"proposal": {"expires_in_seconds": 10}} if number == 6 else {}
        bob.send(fields, id=f"p-{number}", kind="mcp/proposal", to=["alice"] if number % 2 else None, payload=call)
    alice.send(kind="mcp/proposal", payload={"untracked": True})
    bob.send(kind="mcp/reject", correlation_id=["nowhere"], payload={})
    alice.send(kind="mcp/request", correlation_id=["p-1"], to=["alice"], payload=call)
    alice.send(kind="mcp/response", correlation_id=["p-3"], payload={"result": {}})
    alice.send(kind="mcp/reject", correlation_id=["p-2"], payload={})
    bob.send(kind="mcp/withdraw", correlation_id=["p-4"], payload={})
    alice.send(kind="chat", payload={"text": "no end"}, proposal={"position": 1, "digest": "0"})
    lab.advance(11)
    carol = lab.join("carol")
    open_ones = [proposal for proposal in lab.state.proposals.values() if proposal.proposal_id == "p-5"]
    for voter in (alice, carol):
        for proposal in open_ones:
            claim = {"position": proposal.position, "digest": proposal.digest}
            voter.send(kind="mcp/approve", correlation_id=["p-5"], proposal=claim, payload={})
    alice.send(kind="space/kick", payload={"participant_id": "carol"})
    lab.join("bob")
    alice.send(kind="space/kick", payload={"participant_id": "bob"})


def wander(seed: int) -> Story:
    """Anything, in any order; much of it is refused."""

    def story(lab: MemorySpace, alice: Client, bob: Client) -> None:
        chance = random.Random(seed)
        for step in range(STEPS):
            sender = chance.choice([alice, bob])
            stream = f"stream-{chance.randint(1, 4)}"
            other = chance.choice(["alice", "bob", "carol"])
            kind, payload = chance.choice(
                [
                    ("stream/request", {"n": step}),
                    ("stream/announce", {"formats": [{"id": "json"}], "n": step}),
                    ("stream/start", {"stream_id": stream}),
                    ("stream/close", {"stream_id": stream}),
                    ("stream/grant-write", {"stream_id": stream, "participant_id": other}),
                    ("stream/revoke-write", {"stream_id": stream, "participant_id": other}),
                    ("stream/transfer-ownership", {"stream_id": stream, "new_owner": other}),
                    ("stream/data", {"stream_id": stream, "sequence": step, "content": step}),
                    ("chat", {"text": "hello"}),
                    ("#", {}),
                ]
            )
            if kind == "#":
                sender.frame(stream, f"frame {step}")
            else:
                sender.send(kind=kind, payload=payload)
            if chance.random() < 0.05:
                lab.join("carol")

    return story


def vectors() -> list[dict[str, Any]]:
    """Every story, as seen by each of two observers."""
    stories: dict[str, Story] = {"open and end": open_and_end, "change hands": change_hands, "propose": propose}
    stories |= {f"wander {seed}": wander(seed) for seed in SEEDS}
    vector_list = []
    for name, story in stories.items():
        lab = MemorySpace(participants=EVERYBODY)
        observer, alice = lab.observe(), lab.join("alice")
        bob = lab.join("bob")
        story(lab, alice, bob)
        late = lab.observe("late")
        for whose, client in (("an observer", observer), ("alice", alice), ("who came late", late)):
            vector_list.append({"name": f"{name}, as seen by {whose}", "steps": followed(client)})
    return vector_list


def write(path: Path) -> int:
    """Write them to a file; how many messages there are."""
    vector_list = vectors()
    path.write_bytes(msgspec.json.encode(vector_list))
    return sum(len(vector["steps"]) for vector in vector_list)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.inspector_vectors <file>")
    print(f"{write(Path(sys.argv[1]))} messages")
