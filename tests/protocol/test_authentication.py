"""Who is behind a connection, and what a token says."""

from mew.protocol import Identity, Session, Tokens
from mew.testing import MemoryTokens


def test_a_token_says_whose_it_is_and_in_which_space() -> None:
    tokens: Tokens = MemoryTokens()
    token = tokens.issue("lab", "alice")
    assert tokens.identify(token) == Identity("lab", "alice")
    assert tokens.issue("lab", "alice") == token
    assert tokens.identify("of nobody") is None


def test_an_identity_is_not_that_of_an_observer_of_the_same_name() -> None:
    assert Identity("lab", "alice") != Identity("lab", "alice", observer=True)
    assert Identity("lab", "alice") != Identity("elsewhere", "alice")


def test_a_session_is_a_participants_unless_it_says_otherwise() -> None:
    session = Session(connection="c1", participant="alice", transport="websocket")
    assert not session.observer
    assert not session.anonymous
