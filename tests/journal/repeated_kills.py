"""A gateway that is killed again and again under load, and what must be on record of it each time.

What is promised of each way of syncing is `missing`; the rest holds in all of them (architecture, Journal).
"""

import threading
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Final

import duckdb
import msgspec

from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.protocol import SpaceState, fold
from mew.protocol.records import FRAME, Record
from tests.gateway.raw import CLOSE
from tests.journal.gateway_process import SPACE, GatewayProcess, gateway, until_gone
from tests.journal.load import Load, Received, Seen

MANY = ("streams", "streams_per_participant")
UNLIMITED = (
    "envelopes_per_second",
    "envelope_burst",
    "work_per_second",
    "work_burst",
    "bytes_per_second",
    "byte_burst",
)
ALL: Final = {"capabilities": [{"kind": "*"}]}
PARTICIPANTS: Final = ("reader", "alice", "bob", "carol", "boss")
SCHEDULING: Final = 0.1
"""How much later than its interval the writer's thread may get to write, in seconds. It has to be woken and to get the
interpreter's lock, with twice as many busy threads and processes around it as there are CPUs; on an idle machine it
takes a millisecond."""
UNRECORDED: Final = frozenset({"system/error", "space/invite-ack"})
"""Of an error the refusal is on record, and of an invitation's answer all but its token."""


class Killed:
    """One journal, and everything that anybody has seen of it."""

    def __init__(self, process: GatewayProcess, sync: str, seed: int) -> None:
        self.gateway = process
        self.sync = sync
        self.chance = Random(seed)
        self.digests: list[bytes] = []
        """Of each record, by its position, as it was first read."""
        self.kicked: set[str] = set()
        self.revoked: dict[str, str] = {}
        self.opened: list[str] = []
        self.sealers: list[int] = []

    @property
    def folder(self) -> JournalFolder:
        return self.gateway.journal

    def configure(self) -> None:
        """All participants may do everything, and a file of the log is sealed after a fraction of a second."""
        self.gateway.configure(
            participants=dict.fromkeys(PARTICIPANTS, ALL),
            gateway={"limits": {**dict.fromkeys(UNLIMITED, 1_000_000_000), **dict.fromkeys(MANY, 100_000)}},
            journal={"sync": self.sync, "segment_seconds": 0.3},
        )

    def round(self, number: int) -> None:
        """From a start to a kill."""
        self.gateway.start()
        self.check_what_came_back()
        load = Load(self.gateway, number, self.chance)
        # Not earlier than the load has begun; else at any moment.
        _let_pass(self.chance.uniform(0.15, 0.8))
        if number % 2:
            load.only_frames()
            _let_pass(self.chance.uniform(0, 0.2))
        sealers = self.gateway.sealers()
        with_sealer = self.chance.random() < 0.4
        killed = self.gateway.kill(sealer=with_sealer)
        self.sealers += [] if with_sealer else sealers
        self.check(load.end(), killed)
        if with_sealer:
            self.check_sealed_once()

    # ------------------------------------------------------------------------------------------- after a kill

    def check(self, witness: Seen, killed: float) -> None:
        records = self.read()
        missing = self.missing(records, witness, killed)
        assert not missing, (
            f"{len(missing)} messages are missing, the first {killed - missing[0].time:.3f} s before: {missing[0]}"
        )
        recorded = {record.envelope_id for record in records}
        unknown = [stream_id for stream_id in witness.accepted if stream_id not in recorded]
        assert not unknown, f"answered with 200, and not on record: {unknown}"
        check_numbers(records)
        self.kicked |= witness.kicked
        self.revoked |= witness.revoked
        assert set(witness.opened).isdisjoint(self.opened), "the id of a stream was used again"
        self.opened += witness.opened
        state = folded(records)
        assert self.kicked <= set(state.kicked), "a kick was undone"
        undone = [stream_id for stream_id, helper in self.revoked.items() if helper in state.streams[stream_id].writers]
        assert not undone, f"revocations were undone: {undone}"

    def read(self) -> list[Record]:
        """The whole journal: each position once, and what was read before is as it was."""
        records = list(Journal(self.folder.root, SPACE).records())
        assert [record.position for record in records] == list(range(len(records))), "positions are not each there once"
        digests = [digest(record) for record in records]
        changed = [at for at, (one, other) in enumerate(zip(self.digests, digests, strict=False)) if one != other]
        assert not changed, f"records have changed: {changed}"
        assert len(digests) >= len(self.digests), "records are gone"
        self.digests = digests
        return records

    def missing(self, records: list[Record], witness: Seen, killed: float) -> list[Received]:
        """What a client has received, but is missing in the journal."""
        frames = Counter((str(record.stream_id), record.payload) for record in records if record.event == FRAME)
        payloads = {record.payload for record in records if record.event != FRAME}
        assert max(frames.values(), default=1) == 1, "a frame was recorded twice"
        due = {"always": killed + 60, "os": killed - 0.05 - SCHEDULING}.get(self.sync)
        if due is None:
            due = killed - int(self.sync.partition(":")[2]) / 1000 - SCHEDULING
        lost = [message for message in witness.frames if message.time <= due and split(message.data) not in frames]
        for message in witness.envelopes:
            kind = msgspec.json.decode(message.data)["kind"]
            may_be_lost = kind in UNRECORDED or (kind == "stream/data" and message.time > due)
            if not may_be_lost and message.data not in payloads:
                lost.append(message)
        return lost

    # ----------------------------------------------------------------------------------------- after a restart

    def check_what_came_back(self) -> None:
        """Nothing that was acknowledged is undone: asked of the gateway itself."""
        for victim in self.sample(sorted(self.kicked)):
            client = self.gateway.connect(victim)
            assert client.envelope("system/error")["payload"]["error"] == "unauthorized"
            assert (closed := client.frame()).opcode == CLOSE
            assert closed.code == 4403
            client.close()
        for stream_id in self.sample(sorted(self.revoked)):
            data = {"stream_id": stream_id, "sequence": 1, "content": 1}
            answer = self.gateway.post(self.revoked[stream_id], "stream/data", **data)
            assert (answer.status, answer.json["error"]) == (403, "unauthorized_stream_write")

    def sample(self, names: list[str]) -> list[str]:
        return self.chance.sample(names, min(4, len(names)))

    # -------------------------------------------------------------------------------------------- at the end

    def finish(self) -> int:
        """Start once more, stop in order: all is sealed, each record once, in the order and with the bytes it had."""
        self.gateway.start()
        self.check_what_came_back()
        assert self.gateway.stop() == 0, self.gateway.error_output()
        until_gone(self.sealers)
        records = self.read()
        assert self.folder.logs() == []
        check_numbers(records)
        self.check_sealed(len(records))
        return len(records)

    def check_sealed_once(self) -> None:
        """Whatever the sealer was at when it was killed, a glob shows no record twice, and all that is committed."""
        until_gone(self.sealers)
        rows, positions = count_in_glob(self.folder) if self.folder.segments() else (0, 0)
        assert rows == positions, f"{rows} rows for {positions} positions"
        assert positions >= sum(segment.last - segment.first + 1 for segment in self.folder.segments())

    def check_sealed(self, records: int) -> None:
        segments = self.folder.segments()
        assert [segment.first for segment in segments] == [0, *(segment.last + 1 for segment in segments[:-1])]
        assert segments[-1].last + 1 == records
        assert count_in_glob(self.folder) == (records, records)


def _let_pass(seconds: float) -> None:
    """Kills come at any time: nothing is waited for."""
    threading.Event().wait(seconds)


def count_in_glob(folder: JournalFolder) -> tuple[int, int]:
    """The number of rows, and of positions, in all Parquet files."""
    files = f"{folder.root}/**/*.parquet"
    query = "select count(*), count(distinct position) from read_parquet(?)"
    with duckdb.connect() as database:
        row = database.execute(query, [files]).fetchone()
    assert row is not None
    return row[0], row[1]


def check_numbers(records: list[Record]) -> None:
    """The frames of each stream are counted from 1 on, whatever happened between; no stream has another's name."""
    counts: Counter[str] = Counter()
    opened: Counter[str] = Counter()
    for record in records:
        if record.frame_number is not None:
            counts[str(record.stream_id)] += 1
            assert record.frame_number == counts[str(record.stream_id)], record
        if record.kind == "stream/open":
            opened[str(record.stream_id)] += 1
    assert set(opened.values()) <= {1}


def folded(records: list[Record]) -> SpaceState:
    state = SpaceState(space_id=SPACE)
    for record in records:
        state = fold(state, record)
    return state


def digest(record: Record) -> bytes:
    return blake2b(msgspec.msgpack.encode(record), digest_size=8).digest()


def split(message: bytes) -> tuple[str, bytes]:
    stream_id, _, payload = message[1:].partition(b"#")
    return stream_id.decode(), payload


def kill_often(folder: Path, sync: str, kills: int, seed: int) -> Killed:
    """Kill a gateway so often, then stop it in order; what was checked all the while."""
    with gateway(folder) as process:
        killed = Killed(process, sync, seed)
        killed.configure()
        for number in range(kills):
            killed.round(number)
        killed.finish()
        return killed
