"""Journals that exist before a page begins.

The core writes them, so times and positions are the same in every run.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mew.journal.layout import JournalFolder
from mew.journal.sealing import seal_log
from mew.journal.wal import LogWriter
from mew.protocol import Checkpoint, RefuseConnection
from mew.testing import MemorySpace

START: Final = int(datetime(2026, 11, 15, 14, tzinfo=UTC).timestamp()) * 1_000_000
MOVE: Final = {"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}}


def talk() -> MemorySpace:
    """Two participants, two chats, and a stream that only one may write to."""
    lab = MemorySpace(now=START, participants={"alice": [{"kind": "*"}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    for text in ("hello", "how are you?"):
        alice.send(kind="chat", payload={"text": text})
    alice.send(kind="stream/request")
    for _ in range(3):
        alice.frame("stream-1", "x" * 10)
        bob.frame("stream-1", "not mine")
    lab.run(Checkpoint())
    return lab


def minutes() -> MemorySpace:
    """A few minutes in a space, with rows for every table of the pipeline."""
    lab = MemorySpace(now=START, participants={"alice": [{"kind": "*"}], "bob": [{"kind": "*"}], "carol": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    formats = [{"id": "move", "mime_type": "application/json", "schema": MOVE}]
    alice.send(kind="stream/announce", payload={"intent": "movement", "desired_id": "moves", "formats": formats})
    alice.send(kind="stream/start", payload={"stream_id": "moves"})
    for sequence in (1, 2, 5):
        payload = {"stream_id": "moves", "format_id": "move", "sequence": sequence, "content": {"x": sequence / 2}}
        alice.send(kind="stream/data", payload=payload)
    alice.frame("moves", '{"x": "far"}')
    lab.advance(60)
    lab.join("carol").send(kind="stream/request")  # without the capability
    lab.lose("carol", "moves", 2, 3)
    bob.send(id="ask", kind="mcp/request", to=["alice"], payload={"method": "tools/list"})
    lab.advance(1)
    alice.send(kind="mcp/response", to=["bob"], correlation_id=["ask"], payload={"result": {}})
    lab.advance(60)
    alice.send(kind="stream/transfer-ownership", payload={"stream_id": "moves", "new_owner": "bob"})
    lab.advance(120)
    bob.frame("moves", '{"x": 4}')
    bob.send(kind="stream/close", payload={"stream_id": "moves"})
    lab.advance(60)
    call = {"method": "tools/call", "params": {"name": "delete_file"}}
    bob.send(id="may-i", kind="mcp/proposal", to=["alice"], payload=call)
    lab.advance(7)
    alice.send(kind="mcp/reject", to=["bob"], correlation_id=["may-i"], payload={"reason": "no"})
    lab.run(RefuseConnection(error="unauthorized", peer="203.0.113.7:40000", transport="websocket", participant="bob"))
    lab.run(Checkpoint())
    return lab


HISTORIES: Final[dict[str, tuple[Callable[[], MemorySpace], int]]] = {
    "talk": (talk, 2),
    "minutes": (minutes, 0),
    "lab": (minutes, 0),
}
"""By name: the space, and the number of its records that are not sealed yet."""


def prepare(name: str, folder: Path) -> None:
    """Write the journal of a space called lab into a folder, as its gateway would; for `lab`, its space.yaml too."""
    if name not in HISTORIES:
        raise ValueError(f"no history is called {name!r}; there are: {', '.join(HISTORIES)}")
    history, unsealed = HISTORIES[name]
    records = history().records
    if name == "lab":
        (folder / "space.yaml").write_text("space: {id: lab}\n", encoding="utf-8")
    journal = JournalFolder(folder / ".mew" / "journal", "lab")
    journal.log.mkdir(parents=True)
    cut = len(records) - unsealed
    for part in (records[:cut], records[cut:]):
        if part:
            log = LogWriter(journal.log_file(part[0].position))
            log.append(part)
            log.close()
    seal_log(journal, journal.logs()[0])
