"""Refused connections are recorded once per source and reason, and counted after that."""

from mew.protocol.handlers.administration import OTHERS, REPEATED_SECONDS, RefusedConnections
from mew.protocol.timestamps import SECOND

DUE = REPEATED_SECONDS * SECOND


def test_a_quiet_source_is_forgotten() -> None:
    refused = RefusedConnections()
    assert refused.admit("192.0.2.1", "unauthorized", 0)
    assert not refused.admit("192.0.2.1", "unauthorized", 1)
    assert len(refused) == 1
    assert list(refused.due(DUE)) == [("192.0.2.1", "unauthorized", 1)]
    assert len(refused) == 1
    assert list(refused.due(2 * DUE)) == []
    assert len(refused) == 0
    assert refused.admit("192.0.2.1", "unauthorized", 2 * DUE)


def test_sources_over_the_limit_are_counted_together() -> None:
    refused = RefusedConnections(2)
    assert [refused.admit(source, "unauthorized", 0) for source in ("a", "b", "c", "d")] == [True, True, False, False]
    assert list(refused.due(0, early=True)) == [(OTHERS, "unauthorized", 2)]
