"""On generated journals the tables are what the story says that happened."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mew.pipeline.control.folding import Folded
from mew.pipeline.kernel.formats import fingerprint
from tests.pipeline.control.folded import CONTROL_TABLES, Told, rows, tell, violations

SEEDS = tuple(range(8))


@pytest.fixture(scope="module", params=SEEDS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Told, Folded]]:
    seed = request.param
    records, spaces = (60_000, 2) if seed % 2 else (2_000, 1)
    told = tell(tmp_path_factory.mktemp("journals"), records=records, seed=seed, spaces=spaces)
    return [(each, each.fold()) for each in told]


def test_every_table_has_its_declared_columns_and_a_clean_journal_has_nothing_wrong(
    told: list[tuple[Told, Folded]],
) -> None:
    for story, folded in told:
        assert tuple(folded.tables) == CONTROL_TABLES
        for name in CONTROL_TABLES:
            assert all(row["space"] == story.truth.space for row in rows(folded, name))
        assert violations(folded) == {}
        assert folded.checks.positions.checked == len(story.control)
        assert folded.checks.folded.checked == len(story.control)
        assert folded.checks.unseeded == 0
        assert folded.checks.welcomes.checked == len(story.truth.welcomes) > 0


def test_envelopes_are_all_that_were_accepted_and_refused(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        table = rows(folded, "envelopes")
        said = Counter(row["kind"] for row in table if row["accepted"])
        assert said == {kind: count for kind, count in story.truth.kinds.items() if kind != "stream/data"}
        assert Counter(row["reason"] for row in table if not row["accepted"]) == story.truth.refused
        positions = [row["position"] for row in table]
        assert positions == sorted(set(positions))


def test_participants_are_the_stays(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        found = {
            (row["participant"], row["joined_position"]): (
                row["transport"],
                row["anonymous"],
                row["joined_time"],
                row["takeovers"],
                row["left_position"],
                row["left_time"],
                row["reason"],
                row["open"],
            )
            for row in rows(folded, "participants")
        }
        assert found == {
            (stay.participant, stay.position): (
                stay.transport,
                stay.anonymous,
                stay.time,
                stay.takeovers,
                stay.left,
                stay.left_time,
                stay.reason,
                stay.left is None,
            )
            for stay in story.truth.stays
        }


def test_streams_have_their_whole_life(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        found = {row["stream_id"]: row for row in rows(folded, "streams")}
        assert found.keys() == story.truth.streams.keys()
        for stream_id, truth in story.truth.streams.items():
            row, ended = found[stream_id], truth.ended
            assert row["namespace"] == f"{story.truth.space}/{stream_id}"
            assert (row["creator"], row["way"]) == (truth.creator, truth.way)
            assert (row["position"], row["time"], row["started_position"]) == (
                truth.position,
                truth.time,
                truth.started,
            )
            assert row["owner"] == truth.owners[-1].owner
            assert row["owners"] == _owners(truth)
            assert row["writers"] == list(dict.fromkeys(name for each in truth.writers for name in each.writers))
            assert row["formats"] == [fingerprint(each) for each in truth.formats or _meant(row)]
            assert row["targets"] == (None if truth.targets is None else list(truth.targets))
            assert row["policy"] == (None if truth.policy == "transfer" else f'"{truth.policy}"')
            assert (row["frames"], row["data"], row["bytes"]) == (0, 0, 0)
            assert row["refused"] == truth.refused
            assert row["open"] == (ended is None)
            if ended is not None:
                assert (row["ended_position"], row["ended_time"]) == (ended.position, ended.time)
                assert (row["ended_kind"], row["ended_by"], row["reason"]) == (ended.kind, ended.by, ended.reason)


def _meant(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The format that a stream without formats means, as the generator makes such streams."""
    asked = json.loads(row["request"])
    if asked.get("format") == "binary-vector3":
        return [{"id": "binary-vector3"}]
    return [{"mime_type": "application/json"}] if asked.get("content_type") == "application/json" else []


def _owners(truth: Any) -> list[dict[str, Any]]:
    """The time of a nested column stays a time."""
    start = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        {"owner": each.owner, "position": each.position, "time": start + timedelta(microseconds=each.time)}
        for each in truth.owners
    ]


def test_access_says_who_could_write_from_where_to_where(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        found = {
            (row["stream_id"], row["participant"], row["role"], row["from_position"], row["to_position"])
            for row in rows(folded, "stream_access")
        }
        expected: set[tuple[str, str, str, int, int | None]] = set()
        for stream in story.truth.streams.values():
            changes = sorted({each.position for each in stream.owners} | {each.position for each in stream.writers})
            ends = None if stream.ended is None else stream.ended.position
            held: dict[str, tuple[str, int]] = {}
            for position in changes:
                owner = [each.owner for each in stream.owners if each.position <= position][-1]
                writers = [each.writers for each in stream.writers if each.position <= position][-1]
                roles = {name: "owner" if name == owner else "writer" for name in writers}
                for name, (role, since) in list(held.items()):
                    if roles.get(name) != role:
                        expected.add((stream.stream_id, name, role, since, position))
                        del held[name]
                for name, role in roles.items():
                    held.setdefault(name, (role, position))
            expected |= {(stream.stream_id, name, role, since, ends) for name, (role, since) in held.items()}
        assert found == expected
        assert len(found) == folded.tables["stream_access"].num_rows


def test_the_catalogue_has_the_same_access_and_formats(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        catalogue = folded.catalogue
        assert catalogue.space == story.truth.space
        assert catalogue.streams.keys() == catalogue.access.keys() == story.truth.streams.keys()
        found = {
            (stream_id, each.participant, each.from_position, each.to_position)
            for stream_id, access in catalogue.access.items()
            for each in access
        }
        assert found == {
            (row["stream_id"], row["participant"], row["from_position"], row["to_position"])
            for row in rows(folded, "stream_access")
        }
        for stream_id, truth in story.truth.streams.items():
            formats = catalogue.streams[stream_id].formats
            assert [(each.format_id, each.fingerprint) for each in formats] == [
                (each["id"], fingerprint(each)) for each in truth.formats
            ]
        welcomes = [each.position for each in story.truth.welcomes]
        assert list(catalogue.probes) == sorted([*welcomes, *(each.position for each in story.truth.reader_gaps)])


def test_formats_are_announced_once_by_each_stream_and_v04_streams_mean_theirs(
    told: list[tuple[Told, Folded]],
) -> None:
    meant = 0
    for story, folded in told:
        asked = {row["stream_id"]: row for row in rows(folded, "streams")}
        assert [(row["stream_id"], row["format_id"], row["position"]) for row in rows(folded, "formats")] == [
            (stream.stream_id, each.get("id") or each["mime_type"], stream.position)
            for stream in story.truth.streams.values()
            for each in stream.formats or _meant(asked[stream.stream_id])
        ]
        v04 = [row for row in rows(folded, "formats") if not story.truth.streams[row["stream_id"]].formats]
        assert all(row["columns"] and row["schema"] is None for row in v04)
        meant += len(v04)
    assert meant


def test_reader_gaps_are_what_readers_lost(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        assert [
            tuple(row[name] for name in ("position", "reader", "stream_id", "first", "last", "dropped", "reason"))
            for row in rows(folded, "reader_gaps")
        ] == [
            (gap.position, gap.reader, gap.stream_id, gap.first, gap.last, gap.dropped, gap.reason)
            for gap in story.truth.reader_gaps
        ]


def test_grants_are_held_until_they_are_revoked_or_their_holder_is_kicked(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        kicks = [row for row in rows(folded, "envelopes") if row["kind"] == "space/kick" and row["accepted"]]
        found = {row["source"]: row for row in rows(folded, "capabilities") if row["source"].startswith("grant:")}
        assert found.keys() == {f"grant:{each.grant_id}" for each in story.truth.grants}
        for granted in story.truth.grants:
            row = found[f"grant:{granted.grant_id}"]
            assert (row["participant"], row["granted_by"]) == (granted.recipient, granted.granter)
            assert row["from_position"] == granted.position
            kicked = [
                kick["position"]
                for kick in kicks
                if f'"participant_id":"{granted.recipient}"' in kick["payload"] and kick["position"] > granted.position
            ]
            assert row["to_position"] == min((each for each in (granted.revoked, *kicked) if each), default=None)


def test_conversations_are_the_threads_of_the_story(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        found = {row["root"]: row for row in rows(folded, "conversations")}
        for thread in story.truth.conversations:
            row = found[thread.root]
            assert (row["positions"], row["kinds"]) == (thread.positions, thread.kinds)
            assert row["outcome"] == thread.outcome or (row["outcome"], thread.outcome) == ("expired", "open")
            assert row["root_kind"] == thread.kinds[0]
            assert (row["position"], row["last_position"]) == (thread.positions[0], thread.positions[-1])
            assert (row["time"], row["last_time"]) == (thread.times[0], thread.times[-1])
            decided = row["outcome"] in {"fulfilled", "rejected", "withdrawn", "cancelled"}
            assert row["answered_after"] == (thread.times[-1] - thread.times[0] if decided else None)
        assert all(
            row["root_kind"] in {"chat", "mcp/request", "mcp/proposal", "reasoning/start"} for row in found.values()
        )


def test_activity_counts_what_everybody_said_and_was_refused(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        minutes = folded.activity.minutes
        assert len({(each.participant, each.start) for each in minutes}) == len(minutes)
        assert all(each.start % 60_000_000 == 0 for each in minutes)
        said: Counter[str] = Counter()
        for each in minutes:
            said.update(each.kinds)
        assert said == {kind: count for kind, count in story.truth.kinds.items() if kind != "stream/data"}
        refused = sum(story.truth.refused.values()) + sum(story.truth.refused_frames.values())
        assert sum(each.refusals for each in minutes) == refused


def test_what_welcomes_claim_is_how_many_frames_there_were(told: list[tuple[Told, Folded]]) -> None:
    for story, folded in told:
        claims = {(position, stream_id): frames for position, stream_id, frames in folded.checks.welcomes.claims}
        assert len(claims) == len(folded.checks.welcomes.claims) == sum(len(w.streams) for w in story.truth.welcomes)
        counted: dict[str, int] = {}
        for record in story.records:
            if record.event == "welcome":
                for stream_id in [name for position, name in claims if position == record.position]:
                    assert claims[record.position, stream_id] == counted.get(stream_id, 0)
            elif record.frame_number is not None:
                counted[str(record.stream_id)] = record.frame_number
