"""The holders of tokens: the sources of a token, its file, and that its text is never shown."""

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from mew.config import ConfigError
from mew.config import tokens as auth
from mew.config.loader import load_config
from mew.config.models import SpaceConfig
from mew.config.tokens import MAX_TOKEN_BYTES, TokenFolder, TokenStore, environment_variable
from mew.protocol import Identity, Tokens
from mew.protocol.errors import InternalError

SECRET = "s3cret-of-a-participant"
ALICE = Identity("lab", "alice")


def space(directory: Path, participants: str = "{alice: {}}", space_id: str = "lab") -> SpaceConfig:
    directory.mkdir(exist_ok=True)
    file = directory / "space.yaml"
    file.write_text(f"space: {{id: {space_id}}}\nparticipants: {participants}\n", encoding="utf-8")
    return load_config([file], environ={}).spaces[0]


def store(directory: Path, participants: str = "{alice: {}}", **environ: str) -> TokenStore:
    return TokenStore([space(directory, participants)], environ=environ)


def tokens_of(directory: Path) -> Path:
    return directory / ".mew" / "tokens"


def keep(directory: Path, name: str, text: str | bytes, mode: int = 0o600) -> Path:
    """Write a file to the folder of tokens, as a person or another program could do."""
    folder = tokens_of(directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(mode)
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ------------------------------------------------------------------------------------------------- the sources


def test_a_participant_without_a_token_gets_one_in_its_file(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    stored = (tokens_of(tmp_path) / "alice.token").read_text(encoding="utf-8")
    assert len(stored) >= 43
    assert stored == stored.strip()
    assert tokens.token_for("lab", "alice") == stored
    assert tokens.identify(stored) == ALICE
    assert tokens.warnings == ()


def test_the_folder_and_its_files_are_private_and_ignored_by_git(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store(tmp_path)
    finally:
        os.umask(before)
    folder = tokens_of(tmp_path)
    assert (mode(folder.parent), mode(folder), mode(folder / "alice.token")) == (0o700, 0o700, 0o600)
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "alice.token"]


def test_a_generated_token_is_valid_on_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter(["-looks-like-an-option", "--so-does-this", "good-one"])
    monkeypatch.setattr("mew.config.tokens.secrets.token_urlsafe", lambda _: next(values))
    assert auth.new_token() == "good-one"


def test_a_generated_token_survives_a_restart(tmp_path: Path) -> None:
    assert store(tmp_path).token_for("lab", "alice") == store(tmp_path).token_for("lab", "alice")


def test_two_participants_get_different_tokens(tmp_path: Path) -> None:
    tokens = store(tmp_path, "{alice: {}, bob: }")
    assert tokens.token_for("lab", "alice") != tokens.token_for("lab", "bob")
    assert tokens.identify(tokens.token_for("lab", "bob")) == Identity("lab", "bob")


def test_the_tokens_of_all_sources_are_valid_and_a_child_gets_the_first(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", "kept\n")
    tokens = store(tmp_path, "{alice: {tokens: [written, also]}}", MEW_TOKEN_ALICE="exported")
    assert [tokens.identify(item) for item in ("exported", "written", "also", "kept")] == [ALICE] * 4
    assert tokens.token_for("lab", "alice") == "exported"
    assert store(tmp_path, "{alice: {tokens: [written, also]}}").token_for("lab", "alice") == "written"
    assert store(tmp_path).token_for("lab", "alice") == "kept"


@pytest.mark.parametrize("environ", [{}, {"MEW_TOKEN_ALICE": "exported"}])
def test_nothing_is_written_for_a_participant_that_has_a_token(tmp_path: Path, environ: dict[str, str]) -> None:
    store(tmp_path, "{alice: {tokens: [written]}}" if not environ else "{alice: {}}", **environ)
    assert not (tmp_path / ".mew").exists()


def test_an_empty_variable_is_not_a_token(tmp_path: Path) -> None:
    tokens = store(tmp_path, MEW_TOKEN_ALICE=" ")
    assert tokens.identify(" ") is None
    assert tokens.identify("") is None
    assert (tokens_of(tmp_path) / "alice.token").exists()


def test_the_same_token_in_two_sources_of_a_participant_is_allowed(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", "same")
    tokens = store(tmp_path, "{alice: {tokens: [same]}}", MEW_TOKEN_ALICE="same")
    assert tokens.identify("same") == ALICE


def test_an_unknown_token_has_no_holder(tmp_path: Path) -> None:
    tokens: Tokens = store(tmp_path, "{alice: {tokens: [written]}}")
    digest = hashlib.sha256(b"written").hexdigest()
    for token in ("", "writte", "writtenn", "WRITTEN", "é", "\ud800", digest):
        assert tokens.identify(token) is None


@pytest.mark.parametrize(
    ("participant", "variable"),
    [
        ("alice", "MEW_TOKEN_ALICE"),
        ("echo-agent", "MEW_TOKEN_ECHO_AGENT"),
        ("Al.ice@home:1", "MEW_TOKEN_AL_ICE_HOME_1"),
    ],
)
def test_the_variable_of_a_participant_has_its_id_in_capitals(tmp_path: Path, participant: str, variable: str) -> None:
    assert environment_variable(participant) == variable
    tokens = store(tmp_path, f"{{'{participant}': {{}}}}", **{variable: "exported"})
    assert tokens.identify("exported") == Identity("lab", participant)


def test_an_ambiguous_variable_is_refused_with_both_participants(tmp_path: Path) -> None:
    people = "{a-b: {tokens: [x]}, a_b: {tokens: [y]}}"
    assert store(tmp_path, people).identify("x") == Identity("lab", "a-b")
    with pytest.raises(ConfigError) as caught:
        store(tmp_path, people, MEW_TOKEN_A_B=SECRET)
    assert caught.value.where == "environment variable MEW_TOKEN_A_B"
    assert all(repr(name) in caught.value.problem for name in ("a-b", "a_b"))
    assert SECRET not in str(caught.value)


def test_a_variable_for_the_same_id_in_two_spaces_is_refused(tmp_path: Path) -> None:
    spaces = [space(tmp_path / name, space_id=name) for name in ("one", "two")]
    with pytest.raises(ConfigError) as caught:
        TokenStore(spaces, environ={"MEW_TOKEN_ALICE": SECRET})
    assert caught.value.where == "environment variable MEW_TOKEN_ALICE"
    assert all(repr(name) in caught.value.problem for name in ("one", "two"))


def test_a_token_belongs_to_one_space(tmp_path: Path) -> None:
    spaces = [space(tmp_path / name, space_id=name) for name in ("one", "two")]
    tokens = TokenStore(spaces, environ={})
    for name in ("one", "two"):
        assert tokens.identify(tokens.token_for(name, "alice")) == Identity(name, "alice")
    assert (tokens_of(tmp_path / "two") / "alice.token").exists()


def test_an_unknown_participant_has_no_token(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    with pytest.raises(ConfigError, match="'zoe'"):
        tokens.token_for("lab", "zoe")


@pytest.mark.parametrize("other", ["bob.token", "eve.observer", "alice.observer"])
def test_a_token_of_two_holders_is_refused_with_both_sources(tmp_path: Path, other: str) -> None:
    file = keep(tmp_path, other, SECRET)
    with pytest.raises(ConfigError) as caught:
        store(tmp_path, f"{{alice: {{tokens: [{SECRET}]}}}}")
    assert SECRET not in str(caught.value)
    assert f"{tmp_path}/space.yaml: participants.alice.tokens" in str(caught.value)
    assert str(file) in str(caught.value)


# ------------------------------------------------------------------------------------------ observers and guests


def test_the_file_of_an_observer_identifies_an_observer(tmp_path: Path) -> None:
    keep(tmp_path, "alice.observer", "looking")
    tokens = store(tmp_path, "{alice: {tokens: [written]}}")
    assert tokens.identify("looking") == Identity("lab", "alice", observer=True)
    assert tokens.token_for("lab", "alice") == "written"


def test_the_token_of_an_observer_is_created_in_a_separate_file(tmp_path: Path) -> None:
    folder = TokenFolder(tmp_path)
    token = folder.obtain("screen", observer=True)
    assert mode(tokens_of(tmp_path) / "screen.observer") == 0o600
    assert folder.obtain("screen", observer=True) == token
    assert store(tmp_path).identify(token) == Identity("lab", "screen", observer=True)


def test_an_invited_participant_gets_the_same_token_each_time(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    token = tokens.issue("lab", "guest:1")
    assert tokens.issue("lab", "guest:1") == token
    assert tokens.identify(token) == Identity("lab", "guest:1")
    assert mode(tokens_of(tmp_path) / "guest:1.token") == 0o600


def test_an_invitation_survives_a_restart(tmp_path: Path) -> None:
    token = store(tmp_path).issue("lab", "guest")
    again = store(tmp_path)
    assert again.identify(token) == Identity("lab", "guest")
    assert again.issue("lab", "guest") == token
    assert again.token_for("lab", "guest") == token


def test_a_configured_participant_is_issued_the_token_of_its_child(tmp_path: Path) -> None:
    tokens = store(tmp_path, "{alice: {tokens: [written]}}", MEW_TOKEN_ALICE="exported")
    assert tokens.issue("lab", "alice") == "exported"


def test_a_file_that_another_process_created_is_used(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    keep(tmp_path, "guest.token", "others")
    assert tokens.issue("lab", "guest") == "others"
    assert tokens.identify("others") == Identity("lab", "guest")


def test_a_new_file_with_the_token_of_another_holder_is_refused(tmp_path: Path) -> None:
    tokens = store(tmp_path, f"{{alice: {{tokens: [{SECRET}]}}}}")
    keep(tmp_path, "guest.token", SECRET)
    with pytest.raises(InternalError) as caught:
        tokens.issue("lab", "guest")
    assert SECRET not in f"{caught.value} {caught.value.__cause__} {caught.value.payload()}"
    assert tokens.identify(SECRET) == ALICE


@pytest.mark.parametrize("name", ["../alice", "a/b", "", ".hidden", "system", "a b", "a" * 129])
def test_an_invalid_id_creates_no_file(tmp_path: Path, name: str) -> None:
    tokens = store(tmp_path, "{alice: {tokens: [x]}}")
    with pytest.raises(InternalError):
        tokens.issue("lab", name)
    assert not (tmp_path / ".mew").exists()


def test_if_a_token_cannot_be_stored_an_invitation_is_refused(tmp_path: Path) -> None:
    tokens = store(tmp_path, "{alice: {tokens: [x]}}")
    (tmp_path / ".mew").write_text("in the way", encoding="utf-8")
    with pytest.raises(InternalError) as caught:
        tokens.issue("lab", "guest")
    assert isinstance(caught.value.__cause__, ConfigError)
    assert caught.value.__cause__.file == tokens_of(tmp_path) / "guest.token"
    assert str(tmp_path) not in str(caught.value)


def test_if_a_token_cannot_be_stored_the_start_fails(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    tokens_of(tmp_path).write_text("in the way", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        store(tmp_path)
    assert caught.value.file == tokens_of(tmp_path)


def test_concurrent_requests_create_one_token(tmp_path: Path) -> None:
    count = 16
    together = Barrier(count)

    def obtain(_: int) -> str:
        together.wait()
        return TokenFolder(tmp_path).obtain("alice")

    with ThreadPoolExecutor(count) as pool:
        created = list(pool.map(obtain, range(count)))
    assert set(created) == {(tokens_of(tmp_path) / "alice.token").read_text(encoding="utf-8")}
    assert sorted(path.name for path in tokens_of(tmp_path).iterdir()) == [".gitignore", "alice.token"]


# ----------------------------------------------------------------------------------------------- unusual files


@pytest.mark.parametrize("text", ["", "\n", "two words", "a\nb\n", b"\xff\xfe", "x" * (MAX_TOKEN_BYTES + 1)])
def test_a_file_without_exactly_one_token_is_ignored_with_a_warning(tmp_path: Path, text: str | bytes) -> None:
    file = keep(tmp_path, "guest.token", text)
    tokens = store(tmp_path)
    assert tokens.warnings == (f"{file}: ignored: expected exactly one token",)
    assert tokens.identify("") is None


def test_a_token_may_be_as_long_as_its_file_may(tmp_path: Path) -> None:
    keep(tmp_path, "guest.token", "x" * MAX_TOKEN_BYTES)
    assert store(tmp_path).identify("x" * MAX_TOKEN_BYTES) == Identity("lab", "guest")


def test_an_empty_file_of_a_participant_without_another_token_is_refused(tmp_path: Path) -> None:
    file = keep(tmp_path, "alice.token", "")
    with pytest.raises(ConfigError) as caught:
        store(tmp_path)
    assert caught.value.file == file


@pytest.mark.parametrize("name", ["-x.token", "system.token", "gateway.observer", "a b.token"])
def test_a_file_with_an_invalid_name_is_ignored_with_a_warning(tmp_path: Path, name: str) -> None:
    file = keep(tmp_path, name, SECRET)
    tokens = store(tmp_path)
    assert tokens.identify(SECRET) is None
    assert tokens.warnings == (f"{file}: ignored: {file.stem!r} is not a valid participant or observer id",)


def test_other_files_in_the_folder_are_ignored(tmp_path: Path) -> None:
    for name in ("README", ".token", "alice.token.bak", "notes.txt"):
        keep(tmp_path, name, SECRET, mode=0o644)
    tokens = store(tmp_path)
    assert (tokens.identify(SECRET), tokens.warnings) == (None, ())


def test_an_id_may_contain_dots(tmp_path: Path) -> None:
    keep(tmp_path, "a.token.observer.token", "odd")
    assert store(tmp_path).identify("odd") == Identity("lab", "a.token.observer")


def test_a_pipe_or_a_folder_instead_of_a_token_is_ignored(tmp_path: Path) -> None:
    file = keep(tmp_path, "x.token", "")
    file.unlink()
    os.mkfifo(file)
    (tokens_of(tmp_path) / "y.token").mkdir()
    tokens = store(tmp_path)
    assert tokens.warnings == tuple(
        f"{tokens_of(tmp_path)}/{name}.token: ignored: not a regular file" for name in ("x", "y")
    )


def test_a_token_may_be_a_link_to_a_mounted_secret(tmp_path: Path) -> None:
    tokens_of(tmp_path).mkdir(mode=0o700, parents=True)
    mounted = tmp_path / "mounted"
    mounted.write_text("secret\n", encoding="utf-8")
    mounted.chmod(0o400)
    (tokens_of(tmp_path) / "alice.token").symlink_to(mounted)
    assert store(tmp_path).token_for("lab", "alice") == "secret"


@pytest.mark.parametrize("open_mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_causes_a_warning(tmp_path: Path, open_mode: int) -> None:
    file = keep(tmp_path, "alice.token", SECRET, mode=open_mode)
    tokens = store(tmp_path)
    assert tokens.warnings == (f"{file}: other users can read it: run `chmod 600` on it",)
    assert tokens.identify(SECRET) == ALICE
    assert mode(file) == open_mode


def test_a_folder_that_others_can_read_causes_a_warning(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", SECRET)
    tokens_of(tmp_path).chmod(0o755)
    assert store(tmp_path).warnings == (f"{tokens_of(tmp_path)}: other users can read it: run `chmod 700` on it",)


# --------------------------------------------------------------------------------------------------- reloading


def test_a_rotated_token_is_invalid_and_the_new_one_is_valid(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", "old")
    tokens = store(tmp_path)
    keep(tmp_path, "alice.token", "new")
    assert tokens.identify("new") is None
    assert tokens.reload() == {ALICE}
    assert (tokens.identify("old"), tokens.identify("new")) == (None, ALICE)
    assert tokens.token_for("lab", "alice") == "new"


def test_a_revoked_token_is_invalid_and_not_replaced(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    token = tokens.token_for("lab", "alice")
    file = tokens_of(tmp_path) / "alice.token"
    file.unlink()
    assert tokens.reload() == {ALICE}
    assert tokens.identify(token) is None
    assert not file.exists()
    with pytest.raises(ConfigError, match="'alice'"):
        tokens.token_for("lab", "alice")


def test_a_holder_that_loses_one_of_several_tokens_keeps_the_others(tmp_path: Path) -> None:
    file = keep(tmp_path, "alice.token", "kept")
    tokens = store(tmp_path, "{alice: {tokens: [written]}}")
    file.unlink()
    assert tokens.reload() == {ALICE}
    assert tokens.identify("written") == ALICE


def test_a_token_that_moves_to_another_holder_is_lost_to_the_first(tmp_path: Path) -> None:
    file = keep(tmp_path, "guest.token", "passed-on")
    tokens = store(tmp_path)
    file.rename(tokens_of(tmp_path) / "guest.observer")
    assert tokens.reload() == {Identity("lab", "guest")}
    assert tokens.identify("passed-on") == Identity("lab", "guest", observer=True)


def test_a_new_file_revokes_no_token(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    keep(tmp_path, "eye.observer", "looking")
    assert tokens.reload() == frozenset()
    assert tokens.identify("looking") == Identity("lab", "eye", observer=True)


def test_a_reload_replaces_the_warnings(tmp_path: Path) -> None:
    file = keep(tmp_path, "alice.token", SECRET, mode=0o644)
    tokens = store(tmp_path)
    file.chmod(0o600)
    tokens.reload()
    assert tokens.warnings == ()


def test_a_reload_that_fails_changes_nothing(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", "hers")
    tokens = store(tmp_path)
    keep(tmp_path, "bob.token", "hers")
    with pytest.raises(ConfigError, match=r"bob\.token"):
        tokens.reload()
    assert tokens.identify("hers") == ALICE
    assert tokens.token_for("lab", "alice") == "hers"
    tokens_of(tmp_path).rename(tmp_path / "aside")
    tokens_of(tmp_path).write_text("in the way", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        tokens.reload()
    assert caught.value.file == tokens_of(tmp_path)
    assert tokens.identify("hers") == ALICE


# ----------------------------------------------------------------------------------------------------- secrecy


def test_neither_the_store_nor_a_warning_shows_a_token(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", SECRET, mode=0o644)
    keep(tmp_path, "guest.token", f"{SECRET}1 {SECRET}2")
    tokens = store(tmp_path, "{alice: {tokens: [s3cret-written]}}", MEW_TOKEN_ALICE="s3cret-exported")
    assert len(tokens.warnings) == 2
    assert "s3cret" not in f"{tokens!r} {tokens} {tokens.warnings}"
