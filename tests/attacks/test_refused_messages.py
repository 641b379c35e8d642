"""A participant whose messages are rejected again and again must not grow the journal (docs/journal.md, Refusals)."""

from pathlib import Path

import msgspec

from mew.journal import JournalSettings
from mew.journal.reader import Journal
from mew.journal.verify import verify_journal
from mew.protocol import Identity, Record
from tests.gateway.raw import TEXT, Raw, frame, running, upgrade

MESSAGES, SIZE = 200, 100_000
SECRET = "a-token-in-the-wrong-place"


def records_in(directory: Path) -> list[Record]:
    root = directory / ".mew" / "journal"
    assert not verify_journal(root, "lab").damaged
    return list(Journal(root, "lab").records())


def test_an_observer_cannot_fill_the_journal_with_refused_messages(tmp_path: Path) -> None:
    """A hundred seconds of this once made a journal grow by 172 MiB. Every refusal is still counted."""
    with running(tmp_path, journal=JournalSettings()) as gateway:
        token = gateway.tokens.issue("lab", "screen", observer=True)  # type: ignore[call-arg]
        assert gateway.tokens.identify(token) == Identity("lab", "screen", observer=True)
        screen = Raw(gateway.port)
        screen.send(upgrade(Authorization=f"Bearer {token}"))
        assert screen.answer().status == 101
        screen.envelope("system/welcome")
        message = {"kind": "chat", "token": SECRET, "payload": {"text": "x" * SIZE}}
        for _ in range(MESSAGES):
            screen.send(frame(TEXT, msgspec.json.encode(message)))
            assert screen.envelope("system/error")["payload"]["error"] == "capability_violation"
        screen.send(frame(TEXT, b'{"token":"%b"' % SECRET.encode()))
        assert screen.envelope("system/error")["payload"]["error"] == "invalid_envelope"
        screen.close()
    refused = [record for record in records_in(tmp_path) if record.event == "rejected"]
    assert len(refused) == MESSAGES + 1
    assert sum(record.reason == "capability_violation" for record in refused) == MESSAGES
    assert sum(record.size for record in refused) > MESSAGES * SIZE
    assert sum(len(record.payload) for record in refused) < 150_000
    files = [file for file in (tmp_path / ".mew").rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in file.read_bytes() for file in files)
