"""The delay that one member can cause for others at a real gateway: each case once blocked everyone for seconds.

The limits are far above the measured times, which `python -m bench._gateway.members` prints.
"""

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench._gateway.attempts import ATTEMPTS
from mew.gateway.gateway import GatewayOptions
from mew.protocol.explain import explain_message
from mew.protocol.proposals import ClosedProposal
from mew.protocol.settings import Limits
from mew.testing import MemorySpace
from tests.gateway.raw import TEXT, Raw, frame, joined, length_of, running

MASK = b"\0\0\0\0"
"""A mask that changes nothing, because the messages have megabytes."""
SECONDS = 4.0
"""Limit on a busy machine. Before they were fixed, most cases took longer on an idle machine."""
BY_NAME = {attempt.name: attempt for attempt in ATTEMPTS}


def unmasked(message: bytes) -> bytes:
    """A client's frame with a mask that changes nothing, so that the message is not copied byte by byte."""
    return frame(TEXT, mask=MASK)[:1] + length_of(len(message)) + MASK + message


def echo_seconds(client: Raw) -> float:
    """Seconds until a participant receives its echo."""
    began = time.monotonic()
    client.say(kind="chat", payload={"text": "hello?"})
    while client.envelope("chat")["payload"]["text"] != "hello?":
        pass
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("5 million empty arrays", "invalid_envelope"),
        ("5 million empty arrays as a heartbeat", "invalid_envelope"),
        ("7 million numbers", "invalid_envelope"),
        ("400,000 numbers like 9e303", "invalid_envelope"),
        ("200,000 numbers like 9e303 as a heartbeat", "invalid_envelope"),
        ("900,000 numbers like 1e23", "invalid_envelope"),
        ("50,000 fractions of 320 digits", "invalid_envelope"),
        ("199,000 fields", "invalid_envelope"),
        ("a heartbeat of 15 MiB", "quota_exceeded"),
        ("a pattern of 20 letters of any script", "invalid_format"),
        ("a pattern of 1,000 white spaces", "invalid_format"),
        ("12 schemas that are long to measure", "invalid_format"),
    ],
)
def test_an_expensive_message_is_refused_quickly(tmp_path: Path, name: str, code: str) -> None:
    (message,) = BY_NAME[name].messages()
    with running(tmp_path) as gateway:
        mallory, bob = joined(gateway), joined(gateway, "bob")
        mallory.send(unmasked(message))
        assert echo_seconds(bob) < SECONDS
        assert mallory.envelope("system/error")["payload"]["error"] == code
        mallory.close()
        bob.close()


def test_a_burst_of_large_messages_closes_no_reader(tmp_path: Path) -> None:
    message = unmasked(b'{"kind":"chat","payload":{"text":"%b"}}' % (b"a" * (15 * 2**20)))
    with running(tmp_path) as gateway:
        mallory, bob = joined(gateway), joined(gateway, "bob")
        sender = threading.Thread(target=mallory.send, args=(*[message] * 4,), name="a burst of 60 MiB")
        sender.start()
        assert [len(bob.envelope("chat")["payload"]["text"]) for _ in range(4)] == [15 * 2**20] * 4
        sender.join()
        assert echo_seconds(bob) < SECONDS
        mallory.close()
        bob.close()


def test_globs_of_capabilities_are_not_matched_against_megabytes(tmp_path: Path) -> None:
    capabilities = [{"kind": "trial", "payload": {"a": f"*x{n}*y*"}} for n in range(1_000)]
    with running(tmp_path, {"participants": {"alice": capabilities, "bob": None}}) as gateway:
        mallory, bob = joined(gateway), joined(gateway, "bob")
        mallory.send(unmasked(b'{"kind":"trial","payload":{"a":"%b"}}' % (b"a" * 15 * 2**20)))
        assert echo_seconds(bob) < SECONDS
        assert mallory.envelope("system/error")["payload"]["error"] == "capability_violation"
        mallory.close()
        bob.close()


def test_explain_accepts_only_small_messages_and_costs_work(tmp_path: Path) -> None:
    with running(tmp_path, {"limits": Limits(work_per_second=1, work_burst=500)}) as gateway:
        token = gateway.token("alice")
        asking = Raw(gateway.port)
        answer = asking.ask(
            "POST", "/participants/alice/explain", token, {"kind": "chat", "payload": {"text": "x" * 2**18}}
        )
        assert (answer.status, answer.json["error"]) == (413, "message_too_large")
        asking.close()
        asking = Raw(gateway.port)
        statuses = []
        for _ in range(3):
            body: Any = {"kind": "chat", "payload": {"text": "x" * 2**16}}
            answer = asking.ask("POST", "/participants/alice/explain", token, body)
            statuses.append(answer.status)
        assert statuses == [200, 200, 429]
        error = answer.json
        assert (error["error"], error["budget"]) == ("rate_limited", "work")
        assert int(answer.headers["retry-after"]) == -(-error["retry_after_ms"] // 1_000)
        shown = Raw(gateway.port)
        text = shown.ask("GET", "/metrics").body.decode()
        assert 'mew_rate_limited_total{budget="work",space="lab"} 1.0' in text
        shown.close()
        asking.close()


def test_reading_the_participants_costs_work(tmp_path: Path) -> None:
    with running(tmp_path, {"limits": Limits(work_per_second=1, work_burst=30)}) as gateway:
        asking = Raw(gateway.port)
        answers = [asking.ask("GET", "/participants", gateway.token("alice")) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert msgspec.json.decode(answers[-1].body)["budget"] == "work"
        asking.close()


def test_reading_proposals_costs_work(tmp_path: Path) -> None:
    with running(tmp_path, {"limits": Limits(work_per_second=1, work_burst=2_500)}) as gateway:
        token = gateway.token("alice")
        asking = Raw(gateway.port)
        payload = {"method": "m", "params": "x" * 200_000}
        proposal = {"id": "p", "kind": "mcp/proposal", "to": ["bob"], "payload": payload}
        posted = asking.ask("POST", "/participants/alice/messages", token, proposal)
        position, reader = posted.json["proposal"]["position"], gateway.token("bob")
        answers = [asking.ask("GET", f"/spaces/lab/proposals/{position}", reader) for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 200, 429]
        asking.close()


def test_other_participants_are_served_between_the_messages_of_one_packet(tmp_path: Path) -> None:
    """Once, a packet with the budget of one second was handled without a pause."""
    with running(tmp_path, work=GatewayOptions(share_seconds=1e-9)) as gateway:
        mallory, bob = joined(gateway), joined(gateway, "bob")
        mallory.send(*(unmasked(b'{"kind":"chat","payload":{"text":"%d"}}' % number) for number in range(3_000)))
        bob.envelope("chat")
        bob.say(kind="chat", payload={"text": "between"})
        chats = 0
        while bob.envelope("chat")["payload"]["text"] != "between":
            chats += 1
        assert chats < 2_998
        mallory.close()
        bob.close()


def test_arithmetic_with_remote_numbers_is_refused_quickly(tmp_path: Path) -> None:
    """200,000 numbers took seconds: `1e-300` is a fraction of a thousand bits."""
    messages = BY_NAME["400 kB of numbers against a multiple of 1e-300"].messages()
    with running(tmp_path) as gateway:
        mallory, bob = joined(gateway), joined(gateway, "bob")
        for message in messages:
            mallory.send(unmasked(message))
        assert echo_seconds(bob) < SECONDS
        assert mallory.envelope("system/error")["payload"]["error"] == "schema_violation"
        mallory.close()
        bob.close()


@pytest.mark.parametrize(
    "name", ["600 kB of fractions that must differ", "13 kB of numbers like 1e-320 that must differ"]
)
def test_comparing_items_with_each_other_is_refused_quickly(tmp_path: Path, name: str) -> None:
    with running(tmp_path) as gateway:
        mallory, bob = joined(gateway), joined(gateway, "bob")
        for message in BY_NAME[name].messages():
            mallory.send(unmasked(message))
        assert echo_seconds(bob) < SECONDS
        assert mallory.envelope("system/error")["payload"]["error"] == "schema_violation"
        mallory.close()
        bob.close()


def test_matching_many_capabilities_costs_work() -> None:
    """Once, 1,000 globs of kinds took 0.26 ms for 47 units, and 512 patterns of payloads 0.63 ms for 205 units."""
    for capabilities, kind, least in (
        ([{"kind": f"k{n}/*"} for n in range(1_000)], "other", 300),
        ([{"kind": "x", "payload": {"a": f"v{n}"}} for n in range(512)], "x", 600),
    ):
        lab = MemorySpace(participants={"mallory": capabilities})
        lab.join("mallory")
        message = msgspec.json.encode({"kind": kind, "payload": {"a": "b"}})
        assert explain_message(lab.space, "mallory", message, lab.now).units > least


def test_a_list_of_all_allowed_actions_costs_work(tmp_path: Path) -> None:
    capabilities = [{"kind": f"k{n}/*"} for n in range(1_000)]
    limits = Limits(work_per_second=1, work_burst=3_000)
    with running(tmp_path, {"limits": limits, "participants": {"alice": capabilities}}) as gateway:
        asking = Raw(gateway.port)
        answers = [asking.ask("GET", "/participants/alice/explain", gateway.token("alice")) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 429]
        asking.close()


def test_a_proposal_is_found_quickly_by_its_position_among_many_remembered_ones() -> None:
    """Once, a reference to an unknown position took 20 ms with 100,000 proposals in memory."""
    lab = MemorySpace(participants={"mallory": [{"kind": "*"}]})
    for number in range(100_000):
        proposer, name = f"q{number % 1_000}", f"x{number}"
        closed = ClosedProposal(
            position=number,
            proposal_id=name,
            proposer=proposer,
            outcome="withdrawn",
            by=proposer,
            request=None,
            closed=lab.now,
        )
        lab.state.remember_proposal(closed)
    began = time.process_time()
    for _ in range(1_000):
        assert lab.state.proposal_at(10**9, lab.now) is None
    assert time.process_time() - began < 1
    proposal = lab.state.proposal_at(99_999, lab.now)
    assert isinstance(proposal, ClosedProposal)
    assert proposal.proposal_id == "x99999"
    assert lab.state.proposal_at(99_999, lab.now + 3_600_000_000) is None
