"""Budgets of work and bytes: nothing is refused without debt, and a reconnect does not cancel a debt."""

import pytest

from mew.protocol.errors import RateLimited
from mew.protocol.limits import RETENTION_SECONDS, Budgets
from mew.protocol.settings import Limits
from mew.protocol.timestamps import SECOND

LIMITS = Limits(work_per_second=100, work_burst=50, bytes_per_second=1_000, byte_burst=2_000)


def refused(accounts: Budgets, payer: str, now: int) -> dict[str, object]:
    with pytest.raises(RateLimited) as refusal:
        accounts.require(payer, LIMITS, now)
    return refusal.value.parts


def test_a_payer_without_charges_owes_nothing() -> None:
    accounts = Budgets()
    accounts.require("alice", LIMITS, 0)
    assert accounts.owed("alice", 0) == 0
    assert accounts.exceeded == {}


def test_work_is_charged_beyond_the_budget_and_owed_until_enough_time_has_passed() -> None:
    accounts = Budgets()
    accounts.charge("alice", LIMITS, 0, work=49, size=0)
    accounts.require("alice", LIMITS, 0)
    accounts.charge("alice", LIMITS, 0, work=101, size=0)
    assert refused(accounts, "alice", 0) == {"budget": "work", "retry_after_ms": 1_001}
    assert accounts.owed("alice", SECOND // 2) == SECOND // 2 + 1
    accounts.require("alice", LIMITS, SECOND + 1)
    accounts.require("bob", LIMITS, 0)
    assert accounts.exceeded == {"work": 1}


def test_bytes_are_a_separate_budget() -> None:
    accounts = Budgets()
    accounts.charge("alice", LIMITS, 0, work=0, size=2_500)
    assert refused(accounts, "alice", 0) == {"budget": "bytes", "retry_after_ms": 501}
    assert accounts.exceeded == {"bytes": 1}


def test_a_payer_is_forgotten_after_a_minute_without_charges() -> None:
    accounts = Budgets()
    for name in ("alice", "bob"):
        accounts.charge(name, LIMITS, 0, work=10**9, size=0)
    accounts.charge("bob", LIMITS, SECOND, work=1, size=0)
    accounts.charge("carol", LIMITS, RETENTION_SECONDS * SECOND, work=1, size=0)
    accounts.require("alice", LIMITS, RETENTION_SECONDS * SECOND)
    refused(accounts, "bob", RETENTION_SECONDS * SECOND)


def test_over_the_limit_the_longest_inactive_payers_are_forgotten() -> None:
    accounts = Budgets(max_payers=3)
    for name in ("a", "b", "c", "d"):
        accounts.charge(name, LIMITS, 0, work=200, size=0)
    accounts.require("a", LIMITS, 0)
    refused(accounts, "d", 0)
