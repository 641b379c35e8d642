"""Who holds which token: every source of one, what files it is kept in, and that its text is never shown."""

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

SECRET = "s3cret-of-somebody"
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
    """A file in the folder of tokens, as a person or another program would have put it there."""
    folder = tokens_of(directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(mode)
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ------------------------------------------------------------------------------------------------- the sources


def test_a_participant_without_a_token_is_given_one_in_its_file(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    stored = (tokens_of(tmp_path) / "alice.token").read_text(encoding="utf-8")
    assert len(stored) >= 43
    assert stored == stored.strip()
    assert tokens.token_for("lab", "alice") == stored
    assert tokens.identify(stored) == ALICE
    assert tokens.warnings == ()


def test_the_folder_and_its_files_are_the_owners_alone_and_out_of_git(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store(tmp_path)
    finally:
        os.umask(before)
    folder = tokens_of(tmp_path)
    assert (mode(folder.parent), mode(folder), mode(folder / "alice.token")) == (0o700, 0o700, 0o600)
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "alice.token"]


def test_a_generated_token_can_be_given_on_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter(["-looks-like-an-option", "--so-does-this", "good-one"])
    monkeypatch.setattr("mew.config.tokens.secrets.token_urlsafe", lambda _: next(values))
    assert auth.new_token() == "good-one"


def test_a_generated_token_survives_a_restart(tmp_path: Path) -> None:
    assert store(tmp_path).token_for("lab", "alice") == store(tmp_path).token_for("lab", "alice")


def test_two_participants_are_given_two_tokens(tmp_path: Path) -> None:
    tokens = store(tmp_path, "{alice: {}, bob: }")
    assert tokens.token_for("lab", "alice") != tokens.token_for("lab", "bob")
    assert tokens.identify(tokens.token_for("lab", "bob")) == Identity("lab", "bob")


def test_the_tokens_of_every_source_are_valid_together_and_a_child_is_given_the_first(tmp_path: Path) -> None:
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


def test_an_empty_variable_is_no_token(tmp_path: Path) -> None:
    tokens = store(tmp_path, MEW_TOKEN_ALICE=" ")
    assert tokens.identify(" ") is None
    assert tokens.identify("") is None
    assert (tokens_of(tmp_path) / "alice.token").exists()


def test_one_token_in_two_sources_of_one_participant_is_no_fault(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", "same")
    tokens = store(tmp_path, "{alice: {tokens: [same]}}", MEW_TOKEN_ALICE="same")
    assert tokens.identify("same") == ALICE


def test_an_unknown_token_is_nobodys(tmp_path: Path) -> None:
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
def test_a_participants_variable_has_its_id_in_capitals(tmp_path: Path, participant: str, variable: str) -> None:
    assert environment_variable(participant) == variable
    tokens = store(tmp_path, f"{{'{participant}': {{}}}}", **{variable: "exported"})
    assert tokens.identify("exported") == Identity("lab", participant)


def test_a_variable_that_is_two_participants_is_refused_and_names_both(tmp_path: Path) -> None:
    people = "{a-b: {tokens: [x]}, a_b: {tokens: [y]}}"
    assert store(tmp_path, people).identify("x") == Identity("lab", "a-b")
    with pytest.raises(ConfigError) as caught:
        store(tmp_path, people, MEW_TOKEN_A_B=SECRET)
    assert str(caught.value) == (
        "environment variable MEW_TOKEN_A_B: would be the token of both 'a-b' of space 'lab' and 'a_b' of space 'lab'"
    )


def test_a_variable_for_the_same_id_in_two_spaces_is_refused(tmp_path: Path) -> None:
    spaces = [space(tmp_path / name, space_id=name) for name in ("one", "two")]
    with pytest.raises(ConfigError, match="'alice' of space 'one' and 'alice' of space 'two'"):
        TokenStore(spaces, environ={"MEW_TOKEN_ALICE": SECRET})


def test_a_token_belongs_to_one_space(tmp_path: Path) -> None:
    spaces = [space(tmp_path / name, space_id=name) for name in ("one", "two")]
    tokens = TokenStore(spaces, environ={})
    for name in ("one", "two"):
        assert tokens.identify(tokens.token_for(name, "alice")) == Identity(name, "alice")
    assert (tokens_of(tmp_path / "two") / "alice.token").exists()


def test_the_token_of_nobody_cannot_be_asked_for(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    with pytest.raises(ConfigError, match="'zoe' has no token in space 'lab'"):
        tokens.token_for("lab", "zoe")


@pytest.mark.parametrize("other", ["bob.token", "eve.observer", "alice.observer"])
def test_a_token_of_two_holders_is_refused_by_its_sources(tmp_path: Path, other: str) -> None:
    file = keep(tmp_path, other, SECRET)
    with pytest.raises(ConfigError) as caught:
        store(tmp_path, f"{{alice: {{tokens: [{SECRET}]}}}}")
    assert SECRET not in str(caught.value)
    assert f"{tmp_path}/space.yaml: participants.alice.tokens" in str(caught.value)
    assert str(file) in str(caught.value)


# ------------------------------------------------------------------------------------------ observers and guests


def test_an_observers_file_makes_an_observer(tmp_path: Path) -> None:
    keep(tmp_path, "alice.observer", "looking")
    tokens = store(tmp_path, "{alice: {tokens: [written]}}")
    assert tokens.identify("looking") == Identity("lab", "alice", observer=True)
    assert tokens.token_for("lab", "alice") == "written"


def test_an_observers_token_is_made_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder = TokenFolder(tmp_path)
    token = folder.obtain("screen", observer=True)
    assert mode(tokens_of(tmp_path) / "screen.observer") == 0o600
    assert folder.obtain("screen", observer=True) == token
    assert store(tmp_path).identify(token) == Identity("lab", "screen", observer=True)


def test_an_invited_participant_is_issued_the_same_token_each_time(tmp_path: Path) -> None:
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


def test_a_configured_participant_is_issued_what_its_child_would_get(tmp_path: Path) -> None:
    tokens = store(tmp_path, "{alice: {tokens: [written]}}", MEW_TOKEN_ALICE="exported")
    assert tokens.issue("lab", "alice") == "exported"


def test_a_file_that_another_process_made_meanwhile_is_taken_over(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    keep(tmp_path, "guest.token", "others")
    assert tokens.issue("lab", "guest") == "others"
    assert tokens.identify("others") == Identity("lab", "guest")


def test_a_file_made_meanwhile_with_somebody_elses_token_is_refused(tmp_path: Path) -> None:
    tokens = store(tmp_path, f"{{alice: {{tokens: [{SECRET}]}}}}")
    keep(tmp_path, "guest.token", SECRET)
    with pytest.raises(InternalError) as caught:
        tokens.issue("lab", "guest")
    assert SECRET not in f"{caught.value} {caught.value.__cause__} {caught.value.payload()}"
    assert tokens.identify(SECRET) == ALICE


@pytest.mark.parametrize("name", ["../alice", "a/b", "", ".hidden", "system", "a b", "a" * 129])
def test_no_file_is_made_for_what_is_no_id(tmp_path: Path, name: str) -> None:
    tokens = store(tmp_path, "{alice: {tokens: [x]}}")
    with pytest.raises(InternalError):
        tokens.issue("lab", name)
    assert not (tmp_path / ".mew").exists()


def test_where_no_token_can_be_kept_an_invitation_fails_as_a_refusal(tmp_path: Path) -> None:
    tokens = store(tmp_path, "{alice: {tokens: [x]}}")
    (tmp_path / ".mew").write_text("in the way", encoding="utf-8")
    with pytest.raises(InternalError) as caught:
        tokens.issue("lab", "guest")
    assert caught.value.payload() == {"error": "internal_error", "message": "no token can be kept for 'guest'"}
    assert str(caught.value.__cause__).startswith(f"{tmp_path}/.mew/tokens/guest.token: the token cannot be written")


def test_where_no_token_can_be_kept_the_start_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    tokens_of(tmp_path).write_text("in the way", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        store(tmp_path)
    assert str(caught.value) == f"{tokens_of(tmp_path)}: cannot be read: Not a directory"


def test_of_many_that_make_a_token_at_once_one_does_and_all_have_it(tmp_path: Path) -> None:
    count = 16
    together = Barrier(count)

    def obtain(_: int) -> str:
        together.wait()
        return TokenFolder(tmp_path).obtain("alice")

    with ThreadPoolExecutor(count) as pool:
        created = list(pool.map(obtain, range(count)))
    assert set(created) == {(tokens_of(tmp_path) / "alice.token").read_text(encoding="utf-8")}
    assert sorted(path.name for path in tokens_of(tmp_path).iterdir()) == [".gitignore", "alice.token"]


# ----------------------------------------------------------------------------------------------- odd files


@pytest.mark.parametrize("text", ["", "\n", "two words", "a\nb\n", b"\xff\xfe", "x" * (MAX_TOKEN_BYTES + 1)])
def test_a_file_without_one_token_is_ignored_and_warned_about(tmp_path: Path, text: str | bytes) -> None:
    file = keep(tmp_path, "guest.token", text)
    tokens = store(tmp_path)
    assert tokens.warnings == (f"{file}: ignored: expected exactly one token",)
    assert tokens.identify("") is None


def test_a_token_may_be_as_long_as_its_file_may(tmp_path: Path) -> None:
    keep(tmp_path, "guest.token", "x" * MAX_TOKEN_BYTES)
    assert store(tmp_path).identify("x" * MAX_TOKEN_BYTES) == Identity("lab", "guest")


def test_an_empty_file_of_a_participant_that_needs_it_is_refused(tmp_path: Path) -> None:
    file = keep(tmp_path, "alice.token", "")
    with pytest.raises(ConfigError) as caught:
        store(tmp_path)
    assert str(caught.value) == f"{file}: contains no token: write one to the file, or delete the file"


@pytest.mark.parametrize("name", ["-x.token", "system.token", "gateway.observer", "a b.token"])
def test_a_file_whose_name_is_no_id_is_ignored_and_warned_about(tmp_path: Path, name: str) -> None:
    file = keep(tmp_path, name, SECRET)
    tokens = store(tmp_path)
    assert tokens.identify(SECRET) is None
    assert tokens.warnings == (f"{file}: ignored: {file.stem!r} is not a valid participant or observer id",)


def test_other_files_in_the_folder_are_none_of_our_business(tmp_path: Path) -> None:
    for name in ("README", ".token", "alice.token.bak", "notes.txt"):
        keep(tmp_path, name, SECRET, mode=0o644)
    tokens = store(tmp_path)
    assert (tokens.identify(SECRET), tokens.warnings) == (None, ())


def test_an_id_with_dots_is_not_cut_short(tmp_path: Path) -> None:
    keep(tmp_path, "a.token.observer.token", "odd")
    assert store(tmp_path).identify("odd") == Identity("lab", "a.token.observer")


def test_a_pipe_or_a_folder_in_a_tokens_place_does_not_stop_the_gateway(tmp_path: Path) -> None:
    file = keep(tmp_path, "x.token", "")
    file.unlink()
    os.mkfifo(file)
    (tokens_of(tmp_path) / "y.token").mkdir()
    tokens = store(tmp_path)
    assert tokens.warnings == tuple(
        f"{tokens_of(tmp_path)}/{name}.token: ignored: not a regular file" for name in ("x", "y")
    )


def test_a_token_may_be_a_link_to_where_secrets_are_mounted(tmp_path: Path) -> None:
    tokens_of(tmp_path).mkdir(mode=0o700, parents=True)
    mounted = tmp_path / "mounted"
    mounted.write_text("secret\n", encoding="utf-8")
    mounted.chmod(0o400)
    (tokens_of(tmp_path) / "alice.token").symlink_to(mounted)
    assert store(tmp_path).token_for("lab", "alice") == "secret"


@pytest.mark.parametrize("open_mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_is_warned_about_by_name(tmp_path: Path, open_mode: int) -> None:
    file = keep(tmp_path, "alice.token", SECRET, mode=open_mode)
    tokens = store(tmp_path)
    assert tokens.warnings == (f"{file}: other users can read it: run `chmod 600` on it",)
    assert tokens.identify(SECRET) == ALICE
    assert mode(file) == open_mode


def test_a_folder_that_others_can_look_into_is_warned_about_by_name(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", SECRET)
    tokens_of(tmp_path).chmod(0o755)
    assert store(tmp_path).warnings == (f"{tokens_of(tmp_path)}: other users can read it: run `chmod 700` on it",)


# --------------------------------------------------------------------------------------------------- reloading


def test_a_rotated_token_is_lost_and_the_new_one_valid(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", "old")
    tokens = store(tmp_path)
    keep(tmp_path, "alice.token", "new")
    assert tokens.identify("new") is None
    assert tokens.reload() == {ALICE}
    assert (tokens.identify("old"), tokens.identify("new")) == (None, ALICE)
    assert tokens.token_for("lab", "alice") == "new"


def test_a_revoked_token_is_lost_and_none_is_made_in_its_place(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    token = tokens.token_for("lab", "alice")
    file = tokens_of(tmp_path) / "alice.token"
    file.unlink()
    assert tokens.reload() == {ALICE}
    assert tokens.identify(token) is None
    assert not file.exists()
    with pytest.raises(ConfigError, match="'alice' has no token"):
        tokens.token_for("lab", "alice")


def test_who_loses_one_of_several_tokens_is_told_of_and_keeps_the_others(tmp_path: Path) -> None:
    file = keep(tmp_path, "alice.token", "kept")
    tokens = store(tmp_path, "{alice: {tokens: [written]}}")
    file.unlink()
    assert tokens.reload() == {ALICE}
    assert tokens.identify("written") == ALICE


def test_a_token_that_changes_hands_is_lost_to_its_first_holder(tmp_path: Path) -> None:
    file = keep(tmp_path, "guest.token", "passed-on")
    tokens = store(tmp_path)
    file.rename(tokens_of(tmp_path) / "guest.observer")
    assert tokens.reload() == {Identity("lab", "guest")}
    assert tokens.identify("passed-on") == Identity("lab", "guest", observer=True)


def test_a_new_file_costs_nobody_a_token(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    keep(tmp_path, "eye.observer", "looking")
    assert tokens.reload() == frozenset()
    assert tokens.identify("looking") == Identity("lab", "eye", observer=True)


def test_a_reading_again_forgets_old_warnings(tmp_path: Path) -> None:
    file = keep(tmp_path, "alice.token", SECRET, mode=0o644)
    tokens = store(tmp_path)
    file.chmod(0o600)
    tokens.reload()
    assert tokens.warnings == ()


def test_when_reading_again_fails_everything_stays_as_it_was(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", "hers")
    tokens = store(tmp_path)
    keep(tmp_path, "bob.token", "hers")
    with pytest.raises(ConfigError, match="two holders have the same token"):
        tokens.reload()
    assert tokens.identify("hers") == ALICE
    assert tokens.token_for("lab", "alice") == "hers"
    tokens_of(tmp_path).rename(tmp_path / "aside")
    tokens_of(tmp_path).write_text("in the way", encoding="utf-8")
    with pytest.raises(ConfigError, match="Not a directory"):
        tokens.reload()
    assert tokens.identify("hers") == ALICE


# ----------------------------------------------------------------------------------------------------- secrecy


def test_neither_the_store_nor_a_warning_shows_a_token(tmp_path: Path) -> None:
    keep(tmp_path, "alice.token", SECRET, mode=0o644)
    keep(tmp_path, "guest.token", f"{SECRET}1 {SECRET}2")
    tokens = store(tmp_path, "{alice: {tokens: [s3cret-written]}}", MEW_TOKEN_ALICE="s3cret-exported")
    assert len(tokens.warnings) == 2
    assert "s3cret" not in f"{tokens!r} {tokens} {tokens.warnings}"
