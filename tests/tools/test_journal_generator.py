"""A generated journal: what a gateway would have written, everything in it, and the truth beside it.

The truth is the story's own. Here the journal is read by other means and held against it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import msgspec
import pytest

from mew.journal.layout import HOUR, JournalFolder, spaces_in
from mew.journal.reader import Journal
from mew.journal.recovery import recover
from mew.journal.wal import read_blocks
from mew.protocol import GATEWAY, Record, SpaceState, fold, snapshot
from tools.journal_generator import SpaceTruth, StreamTruth, Truth, actions, conversations, generate, read_truth
from tools.journal_generator.__main__ import main
from tools.journal_generator.ground_truth import Owner, ReaderGap, Skipped, Writers
from tools.journal_generator.output import JournalFiles, write_spaces_in_parallel
from tools.journal_generator.participants import BURST, HOST, PILOTS, PLANNERS, TOOLS, TokenTable
from tools.journal_generator.plan import InvalidPlan, Plan
from tools.journal_generator.simulation import Simulation, UnexpectedRecords

RECORDS: Final = 50_000
SHORT: Final = 3_000


class Generated(msgspec.Struct):
    """A journal that was read back, and its truth."""

    root: Path
    truth: Truth
    records: dict[str, list[Record]]

    def both(self) -> Iterator[tuple[SpaceTruth, list[Record]]]:
        return ((truth, self.records[name]) for name, truth in self.truth.spaces.items())


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    root = tmp_path_factory.mktemp("generated") / "journal"
    truth = generate(root, records=RECORDS, spaces=2, seed=7, segment_bytes=2**20)
    return Generated(root, truth, {name: list(Journal(root, name).records()) for name in truth.spaces})


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def read_json(record: Record) -> dict[str, Any]:
    read: dict[str, Any] = msgspec.json.decode(record.payload)
    return read


def is_data(record: Record) -> bool:
    return record.event == "envelope" and record.kind == "stream/data"


def carried(record: Record) -> bytes:
    """What a frame or `stream/data` brings for its stream."""
    if record.event == "frame":
        return record.payload
    payload = msgspec.json.decode(record.payload, type=dict[str, msgspec.Raw])["payload"]
    return bytes(msgspec.json.decode(payload, type=dict[str, msgspec.Raw])["content"])


def fits(stream: StreamTruth, data: bytes) -> bool:
    """Whether bytes are what the first format of a stream says they are."""
    descriptor = stream.formats[0]
    if descriptor["mime_type"] == "application/octet-stream":
        return len(data) % 12 == 0
    try:
        text = data.decode()
        if descriptor["mime_type"] == "text/plain":
            return True
        return jsonschema_rs.is_valid(descriptor["schema"], msgspec.json.decode(text))
    except (UnicodeDecodeError, msgspec.DecodeError):
        return False


# The journal


@pytest.mark.parametrize("seal", [True, False])
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, seal: bool) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        generate(tmp_path / name / "journal", records=SHORT, spaces=1, seed=seed, seal=seal)
    first, second, other = (contents(tmp_path / name) for name in "abc")
    assert first == second
    assert {name for name in first if first[name] != other.get(name)} >= {"truth.json"}
    assert len(first) > 4


def test_spaces_in_processes_of_their_own_have_the_same_bytes_and_the_same_truth(tmp_path: Path) -> None:
    truth = generate(tmp_path / "a", records=SHORT, spaces=2, seed=5, seal=False)
    progress: list[int] = []
    together = write_spaces_in_parallel(
        tmp_path / "b", Plan(records=SHORT, spaces=2, seed=5, seal=False), progress.append
    )
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert msgspec.json.encode(together) == msgspec.json.encode(list(truth.spaces.values()))
    assert progress[-1] == SHORT


def test_positions_begin_at_0_and_have_no_gap_and_time_never_goes_back(generated: Generated) -> None:
    assert sum(len(records) for records in generated.records.values()) == RECORDS
    for truth, records in generated.both():
        assert [record.position for record in records] == list(range(truth.records))
        assert (truth.first, truth.last) == (0, len(records) - 1)
        times = [record.time for record in records]
        assert times == sorted(times)
        assert (truth.first_time, truth.last_time) == (times[0], times[-1])


def test_a_sealed_journal_has_nothing_left_in_the_log_and_breaks_at_hours_at_crashes_and_when_full(
    generated: Generated,
) -> None:
    for truth, records in generated.both():
        folder = JournalFolder(generated.root, truth.space)
        assert folder.logs() == []
        assert len(folder.hours()) > 1
        segments = folder.segments()
        restart = max(truth.starts.values())
        assert restart in {segment.first for segment in segments}
        assert len(segments) > len(folder.hours()) + 1
        for segment in segments:
            hours = {record.time // HOUR for record in records[segment.first : segment.last + 1]}
            assert [folder.hour(hour * HOUR) for hour in hours] == [segment.hour]


def test_unsealed_the_log_has_every_record_and_says_that_it_is_synced(tmp_path: Path) -> None:
    root = tmp_path / "journal"
    truth = generate(root, records=SHORT, spaces=1, seed=7, seal=False)
    name = next(spaces_in(root))
    folder = JournalFolder(root, name)
    assert folder.segments() == []
    last = folder.logs()[-1]
    assert folder.synced.read_text().split() == [f"{last.stem:0>20}", f"{last.stat().st_size:020}"]
    positions = [record.position for log in folder.logs() for block in read_blocks(log) for record in block.records()]
    assert positions == list(range(truth.spaces[name].records))


def test_no_byte_of_it_is_of_a_token(generated: Generated, tmp_path: Path) -> None:
    mark = TokenTable.MARK.encode()
    assert not [record for _, records in generated.both() for record in records if mark in record.payload]
    generate(tmp_path / "journal", records=SHORT, seal=False)
    assert not [name for name, data in contents(tmp_path).items() if mark in data]
    joins = [
        record for records in generated.records.values() for record in records if record.reason == "invalid_request"
    ]
    assert joins, "no participant sent a token that could have been recorded"


# The truth, against the journal


def test_counts_by_event_kind_and_reason_are_those_of_the_journal(generated: Generated) -> None:
    for truth, records in generated.both():
        assert truth.events == Counter(record.event for record in records)
        assert truth.kinds == Counter(record.kind for record in records if record.event in {"envelope", "consumed"})
        assert truth.refused == Counter(record.reason for record in records if record.event == "rejected")
        assert truth.refused_frames == Counter(record.reason for record in records if record.event == "frame_rejected")
        assert truth.starts == {
            read_json(record)["epoch"]: record.position for record in records if record.event == "start"
        }
        assert truth.checkpoints == [record.position for record in records if record.event == "checkpoint"]


def test_what_each_writer_sent_to_each_stream_is_in_the_journal(generated: Generated) -> None:
    for truth, records in generated.both():
        sent: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        numbers: dict[str, list[int]] = defaultdict(list)
        refused: Counter[str] = Counter()
        for record in records:
            if record.event == "frame" or is_data(record):
                counts = sent[str(record.stream_id), record.participant]
                counts[int(is_data(record))] += 1
                counts[2] += record.size
                numbers[str(record.stream_id)].append(int(record.frame_number or 0))
            elif record.event == "frame_rejected":
                refused[str(record.stream_id)] += 1
        assert {
            (stream_id, writer): [written.frames, written.data, written.bytes]
            for stream_id, stream in truth.streams.items()
            for writer, written in stream.by_writer.items()
            if written.frames or written.data
        } == sent
        for stream_id, stream in truth.streams.items():
            assert numbers[stream_id] == list(range(1, stream.frames + stream.data + 1))
            assert stream.refused == refused[stream_id]


class Lives:
    """The streams of a journal, by folding it."""

    def __init__(self, space: str, records: list[Record]) -> None:
        self.state = SpaceState(space_id=space)
        self.owners: dict[str, list[Owner]] = defaultdict(list)
        self.writers: dict[str, list[Writers]] = defaultdict(list)
        self.started: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        for record in records:
            self.state = fold(self.state, record)
            if record.event not in {"frame", "rejected", "frame_rejected"}:
                self._look(record.position, record.time)

    def _look(self, position: int, time: int) -> None:
        for stream_id, stream in self.state.streams.items():
            owners, writers = self.owners[stream_id], self.writers[stream_id]
            if not owners or owners[-1].owner != stream.owner:
                owners.append(Owner(position, time, stream.owner))
            if not writers or writers[-1].writers != stream.writers:
                writers.append(Writers(position, time, stream.writers))
            if stream.status == "live":
                self.started.setdefault(stream_id, position)
        for stream_id in self.owners.keys() - self.state.streams.keys() - self.ended.keys():
            self.ended[stream_id] = position


def test_the_journal_folds_to_the_owners_and_writers_that_the_truth_has_at_every_time(generated: Generated) -> None:
    for truth, records in generated.both():
        lives = Lives(truth.space, records)
        assert lives.owners == {name: stream.owners for name, stream in truth.streams.items()}
        assert lives.writers == {name: stream.writers for name, stream in truth.streams.items()}
        assert lives.started == {
            name: stream.started for name, stream in truth.streams.items() if stream.started is not None
        }
        assert lives.ended == {name: stream.ended.position for name, stream in truth.streams.items() if stream.ended}
        state = lives.state
        assert state.frames == {stream.stream_id: stream.frames + stream.data for stream in truth.open_streams}
        assert sorted(state.kicked) == truth.kicked
        assert sorted(state.present) == sorted(truth.present)
        assert sorted(state.invited) == sorted(truth.invited)
        assert snapshot(recover(JournalFolder(generated.root, truth.space)).state) == snapshot(state)
        open_grants = {grant.grant_id for grants in state.grants.values() for grant in grants}
        assert open_grants <= {grant.grant_id for grant in truth.grants if grant.revoked is None}


def test_stays_are_the_joins_and_leaves_of_the_journal(generated: Generated) -> None:
    for truth, records in generated.both():
        present: dict[str, tuple[int, int]] = {}
        stays: set[tuple[str, int, int, int | None, str | None]] = set()
        for record in records:
            if record.event == "join" and record.reason is None:
                present[record.participant] = (record.position, record.time)
            elif record.event == "leave":
                stays.add((record.participant, *present.pop(record.participant), record.position, record.reason))
            elif record.event == "start":
                stays |= {(name, *joined, record.position, "restart") for name, joined in present.items()}
                present.clear()
        stays |= {(name, *joined, None, None) for name, joined in present.items()}
        assert {(stay.participant, stay.position, stay.time, stay.left, stay.reason) for stay in truth.stays} == stays
        takeovers = [record.position for record in records if record.event == "join" and record.reason == "takeover"]
        assert sorted(position for stay in truth.stays for position in stay.takeovers) == takeovers


def test_every_welcome_says_who_and_what_was_there(generated: Generated) -> None:
    for truth, records in generated.both():
        welcomes = []
        for record in records:
            if record.event == "welcome":
                payload = read_json(record)["payload"]
                others = [participant["id"] for participant in payload["participants"]]
                welcomes.append(
                    (record.position, record.participant, others, [e["stream_id"] for e in payload["active_streams"]])
                )
        assert [
            (welcome.position, welcome.participant, welcome.others, welcome.streams) for welcome in truth.welcomes
        ] == welcomes


def test_what_is_malformed_does_not_fit_its_format_and_everything_else_does(generated: Generated) -> None:
    for truth, records in generated.both():
        wrong: dict[str, list[tuple[int | None, int]]] = defaultdict(list)
        for record in records:
            stream = truth.streams.get(str(record.stream_id))
            if stream is None or len(stream.formats) != 1 or not (record.event == "frame" or is_data(record)):
                continue
            if not fits(stream, carried(record)):
                wrong[stream.stream_id].append((record.frame_number, record.position))
        assert wrong == {
            name: [(frame.frame_number, frame.position) for frame in stream.malformed]
            for name, stream in truth.streams.items()
            if len(stream.formats) == 1 and stream.malformed
        }


def test_gaps_of_writers_and_of_readers_are_those_of_the_journal(generated: Generated) -> None:
    for truth, records in generated.both():
        skipped, lost = [], []
        for record in records:
            if record.event != "gap":
                continue
            payload = read_json(record)
            if record.reason == "skipped":
                skipped.append(
                    (record.stream_id, Skipped(record.position, record.participant, payload["from"], payload["to"]))
                )
            else:
                gap = payload["payload"]
                numbers = (gap["from"], gap["to"], gap["dropped"])
                lost.append(
                    ReaderGap(record.position, record.participant, str(record.stream_id), *numbers, record.reason)
                )
        assert truth.reader_gaps == lost
        truth_skipped = [(name, gap) for name, stream in truth.streams.items() for gap in stream.skipped]
        assert sorted(truth_skipped, key=lambda entry: entry[1].position) == skipped


def test_conversations_are_envelopes_that_answer_one_another(generated: Generated) -> None:
    for truth, records in generated.both():
        for conversation in truth.conversations:
            envelopes = [records[position] for position in conversation.positions]
            assert [record.kind for record in envelopes] == conversation.kinds
            assert [record.time for record in envelopes] == conversation.times
            ids = [str(record.envelope_id) for record in envelopes]
            assert ids[0] == conversation.root
            for index, record in enumerate(envelopes[1:], 1):
                envelope = read_json(record)
                assert {*envelope.get("correlation_id", []), envelope.get("context")} & set(ids[:index])
        assert {conversation.outcome for conversation in truth.conversations} > {"fulfilled", "rejected", "open"}


def test_the_truth_can_be_read_back_from_its_file(generated: Generated) -> None:
    assert read_truth(generated.root.with_name("truth.json")) == generated.truth
    assert generated.truth.records == RECORDS


# What is in it


def test_most_of_it_is_frames_of_ordinary_size(generated: Generated) -> None:
    for truth, records in generated.both():
        sizes = [record.size for record in records if record.event == "frame"]
        assert len(sizes) > 0.9 * truth.records
        assert 100 <= sum(sizes) / len(sizes) <= 200


def test_every_sort_of_thing_happens(generated: Generated) -> None:
    for truth, records in generated.both():
        streams = truth.streams.values()
        assert {stream.way for stream in streams} == {"request", "announce"}
        assert {stream.policy for stream in streams} == {"close", "keep", "transfer"}
        assert [stream for stream in streams if stream.targets and stream.frames and stream.data]
        assert [stream for stream in streams if not stream.formats and stream.frames]
        assert [stream for stream in streams if len(stream.formats) > 1]
        assert {"movement/2d", "binary-vector3", "console/line", "reading"} <= {
            i for s in streams for i in s.format_ids
        }
        assert {why.why for stream in streams for why in stream.malformed} >= {
            "not_json",
            "schema",
            "not_utf8",
            "length",
        }
        assert [stream for stream in streams if len(stream.by_writer) > 2]
        assert [stream for stream in streams if stream.skipped]
        ends = {(stream.ended.kind, stream.ended.by == GATEWAY) for stream in streams if stream.ended}
        assert {("stream/complete", False), ("stream/close", False), ("stream/close", True)} <= ends
        assert len(truth.starts) > 1 and truth.checkpoints and "troll" in truth.kicked
        assert {gap.reason for gap in truth.reader_gaps} == {None, "disconnected"}
        assert {welcome.why for welcome in truth.welcomes} == {"join", "takeover", "rejoin", "capabilities", "observer"}
        assert {stay.reason for stay in truth.stays} >= {
            None,
            "restart",
            "kicked",
            "shutdown",
            "timeout",
            "connection lost",
        }
        assert {stay.transport for stay in truth.stays} == {"websocket", "http", "virtual"}
        assert [stay for stay in truth.stays if stay.anonymous]
        assert [grant for grant in truth.grants if grant.revoked is not None]
        transfers = {record.reason for record in records if record.kind == "stream/ownership-transferred"}
        assert "owner_disconnected" in transfers and len(transfers) > 1
        revoked = {record.reason for record in records if record.kind == "stream/write-revoked"}
        assert "disconnected" in revoked


REFUSALS: Final = {
    "capability_violation", "invalid_envelope", "invalid_format", "invalid_operation", "invalid_request",
    "participant_not_found", "paused", "rate_limited", "reserved_kind", "schema_violation", "sequence_out_of_order",
    "stream_not_found", "target_not_found", "unauthorized", "unauthorized_stream_write", "unknown_format",
}  # fmt: skip


def test_every_reason_to_refuse_occurs(generated: Generated) -> None:
    for truth, _ in generated.both():
        assert set(truth.refused) == REFUSALS
        assert set(truth.refused_frames) == {
            "invalid_envelope", "paused", "stream_not_live", "unauthorized_stream_write",
        }  # fmt: skip
        assert truth.refused["rate_limited"] < BURST


def test_a_closed_stream_comes_back_under_a_new_id_with_another_schema_in_the_same_segment(
    generated: Generated,
) -> None:
    for truth, _ in generated.both():
        segments = JournalFolder(generated.root, truth.space).segments()
        moves = [stream for stream in truth.streams.values() if stream.format_ids == ["movement/2d"]]
        assert {"moves", "moves_2"} <= {stream.stream_id for stream in moves}
        assert len({msgspec.json.encode(stream.formats) for stream in moves}) == 2
        for segment in segments:
            began = [stream for stream in moves if segment.first <= stream.position <= segment.last]
            if len({msgspec.json.encode(stream.formats) for stream in began}) == 2:
                break
        else:
            pytest.fail("no segment has both schemas")


def test_two_spaces_mean_different_things_by_one_format_id(generated: Generated) -> None:
    schemas = [
        {
            msgspec.json.encode(f["schema"])
            for s in truth.streams.values()
            for f in s.formats
            if f["id"] == "movement/2d"
        }
        for truth, _ in generated.both()
    ]
    assert schemas[0] and schemas[1] and not schemas[0] & schemas[1]


# What holds it to that


def test_a_message_with_another_outcome_than_intended_ends_the_generation(tmp_path: Path) -> None:
    simulation = Simulation(
        0, 1, 0, JournalFiles(JournalFolder(tmp_path, "harbour"), segment_bytes=2**20, sealed=False)
    )
    actions.join(simulation, HOST)
    with pytest.raises(UnexpectedRecords, match="expected rejected of host, paused"):
        actions.send_rejected(simulation, HOST, "chat", {"text": "accepted"}, "paused")
    with pytest.raises(UnexpectedRecords, match="expected envelope of host"):
        actions.send(simulation, HOST, "chat", {"text": ""})


def test_an_open_proposal_expires_before_the_next_command(tmp_path: Path) -> None:
    simulation = Simulation(
        0, 1, 0, JournalFiles(JournalFolder(tmp_path, "harbour"), segment_bytes=2**20, sealed=False)
    )
    for name in (*PLANNERS, *PILOTS, *TOOLS):
        actions.join(simulation, name)
    next(conversations.proposal(simulation))
    simulation.pass_time(301)
    actions.join(simulation, HOST)
    (conversation,) = simulation.finish().conversations
    assert (conversation.kinds, conversation.outcome) == (["mcp/proposal", "mcp/proposal-closed"], "expired")
    assert conversation.times[1] - conversation.times[0] > 300_000_000


def test_a_root_that_has_a_journal_or_a_story_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlan, match="at least"):
        generate(tmp_path / "journal", records=1_999, spaces=2)
    generate(tmp_path / "journal", records=2_000, spaces=2)
    with pytest.raises(InvalidPlan, match="already"):
        generate(tmp_path / "journal", records=2_000, spaces=2)


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(tmp_path / "journal"), "--records", "3_000", "--spaces", "1", "--truth", str(tmp_path / "t.json")]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "harbour: 3,000 records" in shown.out
    assert "3,000 of 3,000 records (100%)" in shown.err
    assert read_truth(tmp_path / "t.json").records == 3_000
    assert main(arguments) == 1
    assert "already" in capsys.readouterr().err
