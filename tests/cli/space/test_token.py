"""`mew token …`: tokens are created, shown once, listed, rotated and revoked, with and without a gateway."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.space_processes import Home
from tests.gateway.raw import Raw, upgrade


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    try:
        yield home
    finally:
        home.clear()


def files(space: Path) -> list[str]:
    return sorted(path.name for path in (space / ".mew" / "tokens").iterdir() if path.name != ".gitignore")


def joined(port: int, token: str) -> Raw:
    client = Raw(port)
    client.send(upgrade(Authorization=f"Bearer {token}"))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    return client


def close_code_of(port: int, token: str) -> int | None:
    client = Raw(port)
    client.send(upgrade(Authorization=f"Bearer {token}"))
    assert client.answer().status == 101
    return client.closed()


def test_without_a_gateway_tokens_are_private_files_and_shown_once(home: Home) -> None:
    lab = home.space("lab", bob={"tokens": ["bobs-own"]})
    created = home.mew("token", "create", "alice", at=lab)
    file = lab / ".mew" / "tokens" / "alice.token"
    assert (created.code, created.out) == (0, file.read_text(encoding="utf-8") + "\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    again = home.mew("token", "create", "alice", at=lab)
    assert (again.code, again.out) == (1, "")
    assert again.err == f"mew: 'alice' already has a token in {file}; replace it with `mew token rotate`\n"

    result = home.mew("token", "create", "screen", "--observer", "--json", "-d", str(lab)).json
    assert result["token"] == (lab / ".mew" / "tokens" / "screen.observer").read_text(encoding="utf-8")
    listed = home.mew("token", "list", "--json", at=lab)
    assert {item["participant"]: item["observer"] for item in listed.json} == {
        "alice": False,
        "bob": False,
        "screen": True,
    }
    plain = home.mew("token", "list", at=lab)
    for secret in (created.out.strip(), result["token"], "bobs-own"):
        assert secret not in listed.out + plain.out

    new = home.mew("token", "rotate", "alice", at=lab)
    assert new.out == file.read_text(encoding="utf-8") + "\n"
    assert new.out != created.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert home.mew("token", "revoke", "alice", at=lab).out == "revoked the token of 'alice'\n"
    assert files(lab) == ["screen.observer"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("create", "zoe"),
            "'zoe' is not a participant of space 'lab' (alice, bob): add it to space.yaml, or invite it",
        ),
        (("rotate", "alice"), "there is no token for participant 'alice': see `mew token list`"),
        (("revoke", "eye", "--observer"), "there is no token for observer 'eye'"),
        (("revoke", "bob"), "change it there and restart the gateway"),
    ],
)
def test_an_error_names_the_remedy(home: Home, words: tuple[str, ...], problem: str) -> None:
    lab = home.space("lab", bob={"tokens": ["bobs-own"]})
    ran = home.mew("token", *words, at=lab)
    assert (ran.code, ran.out) == (1, "")
    assert problem in ran.err


def test_an_invalid_id_creates_no_file(home: Home) -> None:
    lab = home.space("lab")
    ran = home.mew("token", "create", "../eve", "--observer", at=lab)
    assert ran.code == 2
    assert "'../eve' is not a valid participant or observer id" in ran.err
    assert not (lab / ".mew").exists()


def test_a_running_gateway_applies_every_change_immediately(home: Home) -> None:
    lab = home.space("lab", bob={})
    port = home.up(lab)["port"]
    tokens = lab / ".mew" / "tokens"
    old = (tokens / "alice.token").read_text(encoding="utf-8")
    alice, bob = joined(port, old), joined(port, (tokens / "bob.token").read_text(encoding="utf-8"))

    eye = home.mew("token", "create", "eye", "--observer", at=lab).out.strip()
    looker = joined(port, eye)
    new = home.mew("token", "rotate", "alice", "--json", at=lab).json
    assert new["closed"] == 1
    assert alice.closed() == 4401
    assert close_code_of(port, old) == 4401
    joined(port, new["token"]).close()

    assert home.mew("token", "revoke", "eye", "--observer", at=lab).out == (
        "revoked the token of 'eye'; closed 1 connection\n"
    )
    assert looker.closed() == 4401
    revoked = home.mew("token", "revoke", "bob", at=lab)
    assert bob.closed() == 4401
    assert revoked.code == 0
    listed = home.mew("token", "list", "--json", at=lab).json
    assert [item["participant"] for item in listed] == ["alice"]
