"""What the journal costs: records of 150 bytes appended to a log, and sealed, per second of CPU, all threads counted.

Medians of interleaved rounds, so that a busy machine disturbs all parts alike. Disks are not measured: waiting for
one costs no CPU.
"""

import gc
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.layout import JournalFolder
from mew.journal.sealing import seal_log
from mew.journal.segment_reader import verify_segment
from mew.journal.wal import LogWriter
from mew.protocol.records import Record

ROUNDS = 7
BLOCK_RECORDS = 4_096
RECORDS = 64 * BLOCK_RECORDS
RECORD_BYTES = 150
WRITERS = 20
APPEND_GOAL = 4.0
SEAL_GOAL = 1.0
NOON = 1_767_268_800 * 10**6
SAMPLES = 20_000


def payloads() -> Iterator[bytes]:
    """Positions and joints of something that moves: what compresses like real data."""
    chance = random.Random(7)
    samples = []
    for number in range(SAMPLES):
        values = ",".join(f"{chance.gauss(0, 1):.5f}" for _ in range(12))
        samples.append(f'{{"t":{NOON // 1000 + number},"frame":"base_link","q":[{values}]}}'.encode())
    return itertools.cycle(samples)


def frames(position: int, writer: int, count: int, data: Iterator[bytes]) -> FrameBatch:
    """So many frames of one writer, each of 150 bytes with its header."""
    header = b"#stream-%d#" % writer
    messages = [(header + payload).ljust(RECORD_BYTES)[:RECORD_BYTES] for payload in itertools.islice(data, count)]
    return FrameBatch(
        position, NOON + position, f"writer-{writer}", f"stream-{writer}", position, len(header), messages
    )


def in_runs(length: int) -> list[list[JournalEntry]]:
    """Blocks of frames in runs of this length; the writers take turns."""
    data = payloads()
    blocks: list[list[JournalEntry]] = []
    for first in range(0, RECORDS, BLOCK_RECORDS):
        starts = range(first, first + BLOCK_RECORDS, length)
        blocks.append([frames(start, start // length % WRITERS, length, data) for start in starts])
    return blocks


def mixed() -> list[list[JournalEntry]]:
    """Blocks of runs of 31 frames, each with an envelope behind it: chats and stream data by turns."""
    data, blocks = payloads(), []
    for first in range(0, RECORDS, BLOCK_RECORDS):
        block: list[JournalEntry] = []
        for start in range(first, first + BLOCK_RECORDS, 32):
            block += [frames(start, start // 32 % WRITERS, 31, data), envelope(start + 31, next(data))]
        blocks.append(block)
    return blocks


def envelope(position: int, payload: bytes) -> Record:
    """A chat or stream data, of 150 bytes."""
    payload, time_, id_ = payload.ljust(RECORD_BYTES)[:RECORD_BYTES], NOON + position, f"e-{position:x}"
    if position // 32 % 2:
        return Record(
            position, time_, "envelope", "alice", "chat", id_, size=RECORD_BYTES, payload=payload, capability="{}"
        )
    return Record(
        position,
        time_,
        "envelope",
        "bob",
        "stream/data",
        id_,
        "stream-x",
        position,
        position,
        None,
        RECORD_BYTES,
        payload,
    )


def appending(blocks: list[list[JournalEntry]], folder: JournalFolder) -> float:
    """CPU-seconds to write a log of these blocks, which is left."""
    folder.log.mkdir(parents=True, exist_ok=True)
    gc.collect()
    started = time.process_time()
    with closing(LogWriter(folder.log_file(0))) as writer:
        for block in blocks:
            writer.append(block)
        writer.sync()
    return time.process_time() - started


def sealing(folder: JournalFolder) -> float:
    """CPU-seconds to seal that log."""
    gc.collect()
    started = time.process_time()
    segment = seal_log(folder, folder.log_file(0))
    spent = time.process_time() - started
    assert segment is not None
    verify_segment(segment)
    return spent


def speed() -> bool:
    """Measure and print; whether the goals are met."""
    kinds: dict[str, Callable[[], list[list[JournalEntry]]]] = {
        "runs of 64": lambda: in_runs(64),
        "runs of 31 and envelopes": mixed,
        "runs of 1": lambda: in_runs(1),
    }
    # As in the sealer.
    pa.set_cpu_count(1)
    works = {name: make() for name, make in kinds.items()}
    goals = {"raw append, runs of 64": APPEND_GOAL, **{f"sealing, {name}": SEAL_GOAL for name in kinds}}
    rounds: dict[str, list[float]] = {f"{part}, {name}": [] for part in ("raw append", "sealing") for name in works}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            for name, blocks in works.items():
                folder = JournalFolder(Path(scratch) / str(number), name.replace(" ", "-"))
                rounds[f"raw append, {name}"].append(RECORDS / appending(blocks, folder) / 1e6)
                rounds[f"sealing, {name}"].append(RECORDS / sealing(folder) / 1e6)
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    for name, values in rounds.items():
        print(f"{name:40} {medians[name]:6.2f} M records per CPU-second   ({min(values):.2f} to {max(values):.2f})")
    missed = [f"{name} below {goal:g} M" for name, goal in goals.items() if medians[name] < goal]
    print("missed: " + "; ".join(missed) if missed else f"goals met: append {APPEND_GOAL:g} M, seal {SEAL_GOAL:g} M")
    return not missed
