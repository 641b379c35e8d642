"""How long a start takes with ten million records behind it: what is read, and how long that takes, in a new process.

Two journals: one whose last checkpoint is some way back, as it comes; and the same with as much behind its checkpoint
as a writer ever lets there be, some of it sealed and some not. A process that has just started loads pyarrow too.
"""

import shutil
import subprocess
import sys
import tempfile
from itertools import count, cycle
from pathlib import Path
from typing import Final

import msgspec

from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.layout import HOUR, JournalFolder
from mew.journal.recovery import recover
from mew.journal.sealing import seal_log
from mew.journal.wal import LogWriter
from mew.journal.writer import ReplayBudget
from mew.protocol import SpaceState
from mew.protocol.frames import frame_header
from mew.protocol.records import Record
from mew.protocol.streams import LIVE
from tools.journal_generator import generate

RECORDS: Final = 10_000_000
GOAL_SECONDS: Final = 2.0
ROUNDS: Final = 5
FRAME_BYTES: Final = 1000
_SCRIPT: Final = """\
import time, sys
from pathlib import Path
from mew.journal.layout import JournalFolder
from mew.journal.recovery import recover
folder = JournalFolder(Path(sys.argv[1]), sys.argv[2])
started = time.perf_counter()
recovered = recover(folder)
print(time.perf_counter() - started, recovered.entries, recovered.state.position)
"""


class Recovery(msgspec.Struct, frozen=True):
    """What one start took."""

    name: str
    seconds: float
    """The median of some processes'."""
    entries: int
    """What was read behind the checkpoint."""
    position: int
    """The last of the journal."""

    def __str__(self) -> str:
        return f"{self.name:38} {self.seconds:6.2f} s for {self.entries:,} entries behind {self.position + 1:,} records"


def recoveries(records: int = RECORDS) -> list[Recovery]:
    """Measure both."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "journal"
        (space,) = generate(root, records=records, spaces=1).spaces
        folder = JournalFolder(root, space)
        recoveries_ = [_measured("as it comes", folder)]
        _let_fall_behind(folder)
        recoveries_.append(_measured("with as much behind as there may be", folder))
        shutil.rmtree(root)
        return recoveries_


def _measured(name: str, folder: JournalFolder) -> Recovery:
    outputs = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", _SCRIPT, str(folder.root), folder.space]
        outputs.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    seconds = sorted(float(measured[0]) for measured in outputs)[ROUNDS // 2]
    return Recovery(name, seconds, int(outputs[0][1]), int(outputs[0][2]))


def _let_fall_behind(folder: JournalFolder) -> None:
    """Write on until another checkpoint would be made: so many entries, bytes and files, half of the files sealed."""
    recovered = recover(folder)
    state = recovered.state
    # One hour, which a segment must not leave.
    position, moment = state.position + 1, (state.time // HOUR + 1) * HOUR
    stream = next((measured.stream_id for measured in state.streams.values() if measured.status == LIVE), None)
    entries = ReplayBudget.ENTRIES - recovered.entries
    files = ReplayBudget.FILES - 1
    for number in range(files):
        writer = LogWriter(folder.log_file(position))
        for _ in range(10):
            block = _block(position, moment, entries // files // 10, state, stream)
            writer.append(block)
            position = block[-1].position + (len(block[-1].messages) if isinstance(block[-1], FrameBatch) else 1)
        writer.close()
        if number < files // 2:
            seal_log(folder, writer.path)


def _block(position: int, moment: int, entries: int, state: SpaceState, stream: str | None) -> list[JournalEntry]:
    """Chats and grants, and between them frames, as many bytes as there may be in all."""
    entries_: list[JournalEntry] = []
    positions, people = count(position), cycle(state.configured)
    size = ReplayBudget.BYTES // (ReplayBudget.FILES * 10)
    while len(entries_) < entries - 1:
        entries_.append(_envelope(next(positions), moment, next(people)))
    if stream is not None:
        message = frame_header(stream) + b"x" * FRAME_BYTES
        entries_.append(
            FrameBatch(
                next(positions),
                moment,
                next(people),
                stream,
                1,
                len(frame_header(stream)),
                [message] * (size // FRAME_BYTES),
            )
        )
    return entries_


def _envelope(position: int, moment: int, sender: str) -> Record:
    kind = "chat" if position % 4 else "capability/grant"
    granted = {"recipient": sender, "capabilities": [{"kind": "stream/*"}]}
    envelope = {"id": f"e-{position}", "from": sender, "kind": kind, "payload": granted}
    text = msgspec.json.encode(envelope)
    return Record(position, moment, "envelope", sender, kind, f"e-{position}", size=len(text), payload=text)


def recovery(records: int = RECORDS) -> bool:
    """Measure and print; whether the goal is met."""
    recoveries_ = recoveries(records)
    for measured in recoveries_:
        print(f"recovery, {measured}")
    slowest = max(measured.seconds for measured in recoveries_)
    print(f"{'goal met' if slowest <= GOAL_SECONDS else 'missed'}: {GOAL_SECONDS:g} s")
    return slowest <= GOAL_SECONDS
