"""The table `admin_events`, and what is left of a refused payload in `envelopes`."""

import msgspec

from mew.protocol import Administer, Checkpoint, Join, Limits, Record, RefuseConnection, Start
from mew.testing import MemorySpace, settings
from tests.pipeline.control.folded import fold_records, rows

PEOPLE = {"alice": [{"kind": "*"}], "bob": None}
PEER = "203.0.113.7:40000"


def space_with_a_history() -> MemorySpace:
    lab = MemorySpace(participants=PEOPLE)
    lab.run(Join(connection="w1", participant="alice", peer=PEER))
    for _ in range(3):
        lab.run(RefuseConnection(error="unauthorized", peer=PEER, transport="websocket", participant="bob"))
    lab.advance(60)
    lab.run(Administer(action="token_rotated", participant="screen", observer=True, uid=1000))
    lab.space.settings = settings(participants=PEOPLE, limits=Limits(streams=5))
    lab.run(Start("epoch-2"))
    return lab


def test_every_admin_record_is_a_row() -> None:
    lab = space_with_a_history()
    folded = fold_records("lab", lab.records, to=lab.records[-1].position)
    names = ("participant", "observer", "peer", "transport", "error", "uid", "changes")
    nothing: dict[str, object] = dict.fromkeys(names)
    found = rows(folded, "admin_events")
    positions = [each.position for each in lab.records if each.event == "admin"]
    assert [(each.pop("space"), each.pop("position")) for each in found] == [("lab", each) for each in positions]
    gateway = {"actor": "system:gateway", "count": 1}
    refused = {"action": "connection_refused", "error": "unauthorized"}
    changes = [{"key": "limits.streams", "before": 1_000, "after": 5}]
    expected: list[dict[str, object]] = [
        {"action": "connection_joined", "actor": "alice", "count": 1, "peer": PEER, "transport": "websocket"},
        {**gateway, **refused, "peer": PEER, "transport": "websocket", "participant": "bob"},
        {**gateway, **refused, "peer": "203.0.113.7", "count": 2},
        {**gateway, "action": "token_rotated", "participant": "screen", "observer": True, "uid": 1000},
        {**gateway, "action": "configuration_changed", "changes": msgspec.json.encode(changes).decode()},
    ]
    for row, told in zip(found, expected, strict=True):
        assert row.pop("time")
        assert row == {**nothing, **told}
    assert folded.checks.folded.violations == 0


def test_an_admin_record_that_no_gateway_wrote_is_counted_and_stops_nothing() -> None:
    lab = space_with_a_history()
    spoilt = [
        msgspec.structs.replace(each, payload=b"nonsense") if each.reason == "token_rotated" else each
        for each in lab.records
    ]
    folded = fold_records("lab", spoilt, to=spoilt[-1].position)
    assert len(rows(folded, "admin_events")) == 4
    assert folded.checks.folded.violations == 1


def test_a_refused_payload_is_its_digest() -> None:
    lab = MemorySpace(participants=PEOPLE)
    lab.join("bob").send(kind="custom/thing", payload={"a": "x" * 5_000})
    folded = fold_records("lab", lab.records, to=lab.records[-1].position)
    (row,) = [each for each in rows(folded, "envelopes") if not each["accepted"]]
    kept = msgspec.json.decode(row["payload"])
    assert (kept["bytes"], len(kept["head"]), row["kind"], row["reason"]) == (
        5_008,
        1_024,
        "custom/thing",
        "capability_violation",
    )


def test_a_checkpoint_of_the_first_fold_is_no_violation() -> None:
    """A journal of the previous version continues without a finding."""
    lab = space_with_a_history()
    lab.run(Checkpoint())
    last: Record = lab.records[-1]
    state = msgspec.json.decode(last.payload, type=dict[str, msgspec.Raw])
    del state["configuration"]
    state["fold_version"] = msgspec.Raw(b"1")
    old = msgspec.structs.replace(last, payload=msgspec.json.encode(state, order="sorted"))
    folded = fold_records("lab", [*lab.records[:-1], old], to=old.position)
    assert (folded.checks.checkpoints.checked, folded.checks.checkpoints.violations) == (1, 0)
