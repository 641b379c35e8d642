"""Who had which capability, from where to where, and granted by whom."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import SpaceState, fold
from mew.testing import MemorySpace
from mew.testing import settings as configured
from tests.pipeline.control.folded import fold_lab, rows, violations
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples

ANY = '{"kind":"*"}'
DEEP = '{"kind":"**"}'
CHAT = '{"kind":"chat"}'
ANSWER = '{"kind":"mcp/response"}'


def history(lab: MemorySpace, participant: str) -> list[tuple[Any, ...]]:
    """Source, capability, granter, from and to, in order."""
    folded = fold_lab(lab)
    assert violations(folded) == {}
    found = [row for row in rows(folded, "capabilities") if row["participant"] == participant]
    assert all(row["open"] == (row["to_position"] is None) for row in found)
    names = ("from_position", "to_position", "source", "capability", "granted_by")
    found.sort(key=lambda row: (row["from_position"], row["source"], row["capability"]))
    return [tuple(row[name] for name in names) for row in found]


def last(lab: MemorySpace, kind: str) -> int:
    return [each.position for each in lab.records if each.kind == kind][-1]


def test_whoever_is_configured_can_do_something_from_the_start_present_or_not() -> None:
    lab = MemorySpace(**CONFIGURATION)
    assert history(lab, "alice") == [
        (0, None, "baseline", ANSWER, None),
        (0, None, "configured", ANY, None),
        (0, None, "configured", DEEP, None),
    ]
    assert history(lab, "carol") == [(0, None, "baseline", ANSWER, None), (0, None, "default", CHAT, None)]


def test_another_configuration_counts_from_the_start_that_brought_it() -> None:
    lab = MemorySpace(**CONFIGURATION)
    lab.join("bob")
    lab.settings = configured(participants={"bob": [{"kind": "chat"}, {"kind": "mcp/*"}], "dora": None})
    lab.restart()
    at = next(record.position for record in reversed(lab.records) if record.event == "start")
    assert history(lab, "alice") == [
        (0, at, "baseline", ANSWER, None),
        (0, at, "configured", ANY, None),
        (0, at, "configured", DEEP, None),
    ]
    assert history(lab, "bob") == [
        (0, None, "baseline", ANSWER, None),
        (0, None, "configured", CHAT, None),
        (0, at, "configured", '{"kind":"stream/*"}', None),
        (at, None, "configured", '{"kind":"mcp/*"}', None),
    ]
    assert history(lab, "dora") == [(at, None, "baseline", ANSWER, None), (at, None, "default", CHAT, None)]


def test_a_grant_is_held_until_it_is_revoked() -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    alice.send(kind="capability/grant", id="g1", payload={"recipient": "carol", "capabilities": [{"kind": "mcp/*"}]})
    granted = last(lab, "capability/grant")
    alice.send(kind="capability/revoke", payload={"recipient": "carol", "grant_id": "g1"})
    revoked = last(lab, "capability/revoke")
    assert (granted, revoked, "grant:g1", '{"kind":"mcp/*"}', "alice") in history(lab, "carol")
    assert granted < revoked


def test_what_is_configured_can_be_revoked_too() -> None:
    lab = MemorySpace(**CONFIGURATION)
    lab.join("alice").send(
        kind="capability/revoke", payload={"recipient": "bob", "capabilities": [{"kind": "stream/*"}]}
    )
    revoked = last(lab, "capability/revoke")
    assert (0, revoked, "configured", '{"kind":"stream/*"}', None) in history(lab, "bob")
    assert (0, None, "configured", CHAT, None) in history(lab, "bob")


def test_a_kick_takes_everything_and_an_invitation_gives_it_by_the_inviters_word() -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    lab.join("carol")
    alice.send(kind="space/kick", payload={"participant_id": "carol"})
    kicked = last(lab, "space/kick")
    alice.send(kind="space/invite", payload={"participant_id": "carol", "initial_capabilities": [{"kind": "stream/*"}]})
    invited = last(lab, "space/invite")
    assert history(lab, "carol") == [
        (0, kicked, "baseline", ANSWER, None),
        (0, kicked, "default", CHAT, None),
        (invited, None, "baseline", ANSWER, "alice"),
        (invited, None, "invited", '{"kind":"stream/*"}', "alice"),
    ]


def test_whoever_has_no_token_can_do_something_only_while_it_is_here() -> None:
    lab = MemorySpace(**CONFIGURATION)
    guest = lab.connect()
    guest.send(type="join", participantId="guest")
    joined = next(each.position for each in lab.records if each.event == "join")
    guest.leave()
    left = next(each.position for each in lab.records if each.event == "leave")
    assert history(lab, "guest") == [(joined, left, "baseline", ANSWER, None), (joined, left, "default", CHAT, None)]


@examples(60)
@given(steps=histories(), where=st.floats(0, 1))
def test_at_any_position_the_rows_are_the_capabilities_of_the_state(steps: list[Step], where: float) -> None:
    lab = MemorySpace(**CONFIGURATION)
    History(lab).play_all(steps)
    at = round(where * (len(lab.records) - 1))
    state = SpaceState(space_id="lab")
    for record in lab.records[: at + 1]:
        state = fold(state, record)
    found: dict[str, set[tuple[str, str]]] = {}
    for row in rows(fold_lab(lab), "capabilities"):
        if row["from_position"] <= at and (row["to_position"] is None or at < row["to_position"]):
            found.setdefault(row["participant"], set()).add((row["source"], row["capability"]))
    known = {*state.configured, *state.invited, *state.present} - state.kicked.keys()
    assert found == {
        name: {(source, held.text.decode()) for source, held in state.capabilities(name).sourced} for name in known
    }
