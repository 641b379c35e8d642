"""The identity of a connection, and the meaning of a token."""

from mew.protocol import Identity, Session, Tokens
from mew.testing import MemoryTokens


def test_a_token_identifies_participant_and_space() -> None:
    tokens: Tokens = MemoryTokens()
    token = tokens.issue("lab", "alice")
    assert tokens.identify(token) == Identity("lab", "alice")
    assert tokens.issue("lab", "alice") == token
    assert tokens.identify("unknown-token") is None


def test_an_identity_differs_from_an_observer_of_the_same_name() -> None:
    assert Identity("lab", "alice") != Identity("lab", "alice", observer=True)
    assert Identity("lab", "alice") != Identity("elsewhere", "alice")


def test_a_session_is_by_default_that_of_a_participant() -> None:
    session = Session(connection="c1", participant="alice", transport="websocket")
    assert not session.observer
    assert not session.anonymous
