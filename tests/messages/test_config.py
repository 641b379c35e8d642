"""The sentences of errors and warnings about the configuration, as an operator reads them.

Other tests check the file, the line and the path that an error names. Review a change here like a translation: the
sentence says which value is wrong, and what is expected.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from mew.config import ConfigError, find_config
from mew.config.loader import load_config
from mew.config.tokens import TokenFolder, TokenStore

SPACE: Final = "space: {id: lab}\n"


def written(folder: Path, text: str, name: str = "space.yaml") -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


FILES: Final = {
    "": "1: the file is empty",
    "space: {id: lab\nparticipants: {}\n": "2: not YAML: expected ',' or '}', but got ':'",
    "space:\n  id: lab\n name: x\n": "3: not YAML: expected <block end>, but found '<block mapping start>'",
    "space: lab: x\n": "1: not YAML: mapping values are not allowed here",
    "space:\n\t id: x\n": "2: not YAML: found character '\\t' that cannot start any token",
    "space:\n  id: 'lab\n": "3: not YAML: found unexpected end of stream",
    "space:\n  id: \x07\n": "2: the line contains a character that YAML does not allow",
    "space: {id: a}\n---\nspace: {id: b}\n": "2: a second YAML document: use one file for each space",
    "space: {id: a}\nspace: {id: b}\n": "2: space: duplicate key, first used in line 1",
    f"{SPACE}participants: {{17: {{}}}}\n": (
        "2: participants: expected a string as key, got a number; put it in quotes"
    ),
    f"{SPACE}participants:\n  a: {{<<: [x]}}\n": "3: participants.a: expected a mapping after <<, got a string",
    "\n".join(["a: &a [x, x, x, x, x, x, x, x]", *(f"b{n}: &a [{'*a, ' * 10}]" for n in range(9))]): (
        "6: b4: more than 100000 values, aliases counted"
    ),
    f"a: {'[' * 70}": "1: a[0][0]: nested deeper than 64 levels",
    "a: &a [*a]": "1: a[0]: an alias without its anchor; put a string that begins with * in quotes",
    "space\n": "1: expected a mapping, got a string",
    "participants: {}\n": "1: space: `id` is missing",
    "space: {id: a/b}\n": (
        "1: space.id: expected 1 to 128 letters, digits, `.`, `_`, `@` or `-`, the first a letter or digit"
    ),
}


@pytest.mark.parametrize(("text", "sentence"), FILES.items(), ids=FILES.values())
def test_an_error_of_a_file_says_what_is_wrong(tmp_path: Path, text: str, sentence: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config([file], environ={})
    assert str(caught.value) == f"{file}:{sentence}"


VALUES: Final = {
    "participants: [alice]": "participants: expected a mapping, got a list",
    "participants: {alice: {capabilities: chat}}": (
        "participants.alice.capabilities: expected a list of capabilities, got a string"
    ),
    "participants: {alice: {capabilities: [chat]}}": (
        "participants.alice.capabilities[0]: expected a capability such as `kind: chat`, got a string"
    ),
    "participants: {alice: {capabilities: [{kind: 3}]}}": (
        "participants.alice.capabilities[0]: `capability.kind` must be a non-empty string"
    ),
    "participants: {alice: {tokens: abc}}": "participants.alice.tokens: expected a list of tokens, got a string",
    "participants: {alice: {tokens: [17]}}": (
        "participants.alice.tokens[0]: expected a string, got a number; put it in quotes"
    ),
    "participants: {alice: {tokens: ['']}}": "participants.alice.tokens[0]: expected a string, got an empty one",
    "participants: {alice: {tokens: [~]}}": "participants.alice.tokens[0]: expected a string, got nothing",
    "participants: {alice: {args: --verbose}}": "participants.alice.args: expected a list of strings, got a string",
    "participants: {alice: {auto_start: 1}}": "participants.alice.auto_start: expected true or false, got a number",
    "participants: {alice: {auto_start: Yes}}": (
        "participants.alice.auto_start: expected true or false, got 'Yes', which is only a string in YAML 1.2"
    ),
    "participants: {alice: {restart_policy: sometimes}}": (
        "participants.alice.restart_policy: expected one of never, on-failure, always, got 'sometimes'"
    ),
    "participants: {alice: {restart_policy: true}}": (
        "participants.alice.restart_policy: expected one of never, on-failure, always, got a boolean; put it in quotes"
    ),
    "participants: {alice: {output_log: true}}": (
        "participants.alice.output_log: expected a path, got a boolean; put it in quotes"
    ),
    "participants: {alice: {mcp_server: {args: [a]}}}": "participants.alice.mcp_server: `command` is missing",
    "participants: {alice: {bridge_config: {init_timeout: 30s}}}": (
        "participants.alice.bridge_config.init_timeout: expected a number above 0, got a string"
    ),
    "participants: {alice: {bridge_config: {max_reconnects: -1}}}": (
        "participants.alice.bridge_config.max_reconnects: expected a whole number of at least 0, got -1"
    ),
    "participants: {a/b: {}}": (
        "participants.a/b: not a valid participant id: expected 1 to 128 letters, digits, `.`, `_`, `@`, `:` or `-`"
    ),
    "participants: {gateway: {}}": "participants.gateway: the id is reserved for the gateway",
    "participants: {a: {tokens: [x]}, b: {tokens: [x]}}": (
        "participants.b.tokens[0]: the same token as {file}:2: participants.a.tokens[0]: each participant needs its own"
    ),
    "gateway: {host: 127}": "gateway.host: expected a host name or address, got a number; put it in quotes",
    "gateway: {port: 65536}": "gateway.port: expected a whole number from 0 to 65535, got 65536",
    "gateway: {port: 80.5}": "gateway.port: expected a whole number from 0 to 65535, got a number",
    "gateway: {tls: {certificate: c.pem}}": "gateway.tls: `key` is missing",
    "gateway: {tls: {certificate: c.pem, key: k.pem}}": "gateway.tls.certificate: no such file: {folder}/c.pem",
    "gateway: {timeouts: {idle_seconds: 0}}": "gateway.timeouts.idle_seconds: expected a number above 0, got 0",
    "gateway: {trusted_proxies: [proxy.example.org]}": (
        "gateway.trusted_proxies[0]: expected an address or a network such as 10.0.0.0/8"
    ),
    "gateway: {limits: {streams: 0}}": "gateway.limits.streams: expected a whole number of at least 1, got 0",
    "gateway: {limits: {frames_per_second: .inf}}": (
        "gateway.limits.frames_per_second: expected a number above 0, got .inf"
    ),
    "streams: {on_owner_disconnect: drop}": (
        "streams.on_owner_disconnect: expected one of close, keep, transfer, got 'drop'"
    ),
    "streams: {owner_grace_seconds: -1}": "streams.owner_grace_seconds: expected a number of at least 0, got -1",
    "journal: {sync: never}": (
        "journal.sync: expected always, os, or interval:<milliseconds, 1 to 60000>, got 'never'"
    ),
    "journal: {segment_bytes: 1}": "journal.segment_bytes: expected a whole number of at least 65536, got 1",
    "journal: {retention: 0d}": "journal.retention: expected all, or a time such as 30d, 12h, 90m, got '0d'",
    "approvals: [{deciders: [a]}]": "approvals[0]: `match` is missing",
    "approvals: [{match: {}, deciders: []}]": "approvals[0].deciders: expected at least one participant",
    "approvals: [{match: {}, deciders: [a], quorum: 2}]": (
        "approvals[0].quorum: expected a whole number from 1 to 1, got 2"
    ),
    "approvals: [{match: {kind: chat}, deciders: [a]}]": ("approvals[0].match.kind: unknown key; expected payload, to"),
    "approvals: [{match: {payload: x}, deciders: [a]}]": "approvals[0].match: `match.payload` must be an object",
}


@pytest.mark.parametrize(("section", "sentence"), VALUES.items(), ids=VALUES)
def test_an_error_of_a_value_says_what_is_expected(tmp_path: Path, section: str, sentence: str) -> None:
    file = written(tmp_path, f"{SPACE}{section}\n")
    with pytest.raises(ConfigError) as caught:
        load_config([file], environ={})
    assert str(caught.value) == f"{file}:2: {sentence.replace('{file}', str(file)).replace('{folder}', str(tmp_path))}"


def no_file(folder: Path) -> None:
    load_config([folder / "none.yaml"], environ={})


def a_folder(folder: Path) -> None:
    load_config([folder], environ={})


def not_utf_8(folder: Path) -> None:
    (folder / "space.yaml").write_bytes(b"space:\n  id: caf\xe9\n")
    load_config([folder / "space.yaml"], environ={})


def an_environment_variable(folder: Path) -> None:
    load_config([written(folder, SPACE)], environ={"GATEWAY_LOGGING": "perhaps"})


def two_spaces_with_one_id(folder: Path) -> None:
    load_config([written(folder, SPACE, f"{name}/space.yaml") for name in ("a", "b")], environ={})


def tokens_of(folder: Path, participants: str, **environ: str) -> TokenStore:
    config = load_config([written(folder, f"{SPACE}participants: {participants}\n")], environ={})
    return TokenStore(config.spaces, environ=environ)


def an_unknown_participant(folder: Path) -> None:
    tokens_of(folder, "{alice: {tokens: [x]}}").token_for("lab", "zoe")


def an_ambiguous_variable(folder: Path) -> None:
    tokens_of(folder, "{a-b: {}, a_b: {}}", MEW_TOKEN_A_B="x")


def an_empty_token_file(folder: Path) -> None:
    (folder / ".mew" / "tokens").mkdir(parents=True)
    (folder / ".mew" / "tokens" / "alice.token").touch(0o600)
    tokens_of(folder, "{alice: {}}")


def two_holders_of_one_token(folder: Path) -> None:
    (folder / ".mew" / "tokens").mkdir(parents=True)
    written(folder / ".mew" / "tokens", "x", "eve.observer").chmod(0o600)
    tokens_of(folder, "{alice: {tokens: [x]}}")


def an_invalid_id(folder: Path) -> None:
    TokenFolder(folder).obtain("../eve")


def a_file_instead_of_the_folder(folder: Path) -> None:
    (folder / ".mew").mkdir()
    written(folder / ".mew", "", "tokens")
    tokens_of(folder, "{alice: {}}")


OTHERS: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "no file": (no_file, "{folder}/none.yaml: no such file"),
    "a folder": (a_folder, "{folder}: cannot be read: Is a directory"),
    "no UTF-8": (not_utf_8, "{folder}/space.yaml:2: not UTF-8"),
    "no files": (lambda _: load_config([], environ={}), "no configuration given: a gateway needs a space.yaml"),
    "no space": (
        find_config,
        "no space.yaml found: looked for {folder}/.mew/space.yaml and {folder}/space.yaml; create a space with "
        "`mew init`",
    ),
    "an environment variable": (
        an_environment_variable,
        "environment variable GATEWAY_LOGGING: expected true, 1, yes, on, false, 0, no or off",
    ),
    "two spaces with one id": (
        two_spaces_with_one_id,
        "{folder}/b/space.yaml:1: space.id: the space has the same id as that of {folder}/a/space.yaml: "
        "each needs its own",
    ),
    "an unknown participant": (an_unknown_participant, "'zoe' has no token in space 'lab'"),
    "an ambiguous variable": (
        an_ambiguous_variable,
        "environment variable MEW_TOKEN_A_B: would be the token of both 'a-b' of space 'lab' and 'a_b' of space 'lab'",
    ),
    "an empty token file": (
        an_empty_token_file,
        "{folder}/.mew/tokens/alice.token: contains no token: write one to the file, or delete the file",
    ),
    "two holders of one token": (
        two_holders_of_one_token,
        "two holders have the same token: 'alice' of space 'lab' ({folder}/space.yaml: participants.alice.tokens) and "
        "observer 'eve' of space 'lab' ({folder}/.mew/tokens/eve.observer). Give each its own token",
    ),
    "an invalid id": (an_invalid_id, "{folder}/.mew/tokens: '../eve' is not a valid participant or observer id"),
    "a file instead of the folder": (
        a_file_instead_of_the_folder,
        "{folder}/.mew/tokens: cannot be read: Not a directory",
    ),
}


@pytest.mark.parametrize(("provoke", "sentence"), OTHERS.values(), ids=OTHERS)
def test_an_error_of_a_file_or_a_token_says_what_is_wrong(
    tmp_path: Path, provoke: Callable[[Path], object], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        provoke(tmp_path)
    assert str(caught.value) == sentence.replace("{folder}", str(tmp_path))


WARNINGS: Final = """\
space: {id: lab, default_participant: zoe, ui_theme: dark}
participants:
  alice: {type: human, capabilites: []}
approvals: [{match: {}, deciders: [dave]}]
"""


def test_a_warning_says_what_is_ignored(tmp_path: Path) -> None:
    file = written(tmp_path, WARNINGS)
    second = written(tmp_path, "space: {id: second}\ngateway: {port: 2}\n", "second/space.yaml")
    config = load_config([file, second], environ={})
    assert sorted(config.warnings) == sorted(
        [
            f"{file}:1: space: default_participant 'zoe' is not among the participants",
            f"{file}:1: space.ui_theme: has no effect",
            f"{file}:3: participants.alice: unknown type 'human': expected local or mcp-bridge",
            f"{file}:3: participants.alice.capabilites: unknown key, ignored",
            f"{file}:4: approvals: decider 'dave' is not among the participants",
            f"{second}:2: gateway.port: ignored: gateway settings come only from the first configuration, {file}",
        ]
    )


def test_a_warning_about_a_token_file_says_why(tmp_path: Path) -> None:
    folder = tmp_path / ".mew" / "tokens"
    folder.mkdir(mode=0o700, parents=True)
    for name, text in (("alice.token", "x"), ("guest.token", "two words"), ("-x.token", "y")):
        written(folder, text, name).chmod(0o600)
    (folder / "alice.token").chmod(0o644)
    os.mkfifo(folder / "pipe.token")
    assert sorted(tokens_of(tmp_path, "{alice: {}}").warnings) == [
        f"{folder}/-x.token: ignored: '-x' is not a valid participant or observer id",
        f"{folder}/alice.token: other users can read it: run `chmod 600` on it",
        f"{folder}/guest.token: ignored: expected exactly one token",
        f"{folder}/pipe.token: ignored: not a regular file",
    ]
