"""Maps tokens to participants. Tokens come from the environment, space.yaml and `.mew/tokens` (protocol §2).

Tokens of all sources are valid at the same time. No error, warning, `repr` or log shows a token: they name its source.
"""

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from mew._internal.files import replacing, write_if_absent
from mew.config import ConfigError
from mew.config.models import SpaceConfig
from mew.protocol.authentication import Identity
from mew.protocol.errors import InternalError
from mew.protocol.handlers.administration import token_changes
from mew.protocol.ids import is_participant_id, is_reserved_id

MAX_TOKEN_BYTES: Final = 4096
"""Maximum size of a token file. Larger files are ignored."""
_PARTICIPANT: Final = ".token"
_OBSERVER: Final = ".observer"
_AS_UNDERSCORE: Final = str.maketrans("-.@:", "____")


def environment_variable(participant: str) -> str:
    """Return the name of the variable for a participant's token: `MEW_TOKEN_<ID>`."""
    return "MEW_TOKEN_" + participant.upper().translate(_AS_UNDERSCORE)


class TokenFolder:
    """The folder `.mew/tokens` of one space: `<id>.token` for participants, `<name>.observer` for observers."""

    def __init__(self, space_directory: Path) -> None:
        """Store the path. The folder is created when the first token is written."""
        self.path = space_directory / ".mew" / "tokens"

    def file(self, name: str, *, observer: bool = False) -> Path:
        """Return the token file of a participant or an observer. Raises `ConfigError` for an invalid id."""
        if not _may_bear(name):
            raise ConfigError(f"{name!r} is not a valid participant or observer id", file=self.path)
        return self.path / f"{name}{_OBSERVER if observer else _PARTICIPANT}"

    def read(self, warnings: list[str]) -> dict[tuple[str, bool], str]:
        """Return all tokens in the folder, by (name, is observer). Adds a warning for each unusable file."""
        try:
            paths = sorted(path for path in self.path.iterdir() if path.suffix in {_PARTICIPANT, _OBSERVER})
            if paths:
                _warn_if_open(self.path, self.path.stat().st_mode, warnings)
        except FileNotFoundError:
            return {}
        except OSError as error:
            # Do not treat this as an empty folder: that would revoke every token.
            raise ConfigError(f"cannot be read: {error.strerror}", file=self.path) from None
        tokens: dict[tuple[str, bool], str] = {}
        for path in paths:
            if not _may_bear(path.stem):
                warnings.append(f"{path}: ignored: {path.stem!r} is not a valid participant or observer id")
            elif (token := _read_token(path, warnings)) is not None:
                tokens[path.stem, path.suffix == _OBSERVER] = token
        return tokens

    def stored_token(self, name: str, *, observer: bool = False) -> str | None:
        """Return the token in the file of this name, or None if there is no usable one."""
        path = self.file(name, observer=observer)
        return _read_token(path, []) if path.exists() else None

    def obtain(self, name: str, *, observer: bool = False) -> str:
        """Return the token in the file of this name, created if missing. Concurrent processes get the same token."""
        path = self.file(name, observer=observer)
        try:
            self._prepare()
            if not path.exists():
                _write(path, new_token(), only_new=True)
        except OSError as error:
            raise ConfigError(f"the token cannot be written: {error.strerror}", file=path) from None
        token = _read_token(path, [])
        if token is None:
            raise ConfigError("contains no token: write one to the file, or delete the file", file=path)
        return token

    def replace(self, name: str, *, observer: bool = False) -> str:
        """Write a new token to the file of this name. A concurrent reader gets the old token or the new one."""
        path, token = self.file(name, observer=observer), new_token()
        try:
            self._prepare()
            _write(path, token, only_new=False)
        except OSError as error:
            raise ConfigError(f"the token cannot be written: {error.strerror}", file=path) from None
        return token

    def remove(self, name: str, *, observer: bool = False) -> bool:
        """Delete a token file. Returns whether it existed."""
        path = self.file(name, observer=observer)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"cannot be removed: {error.strerror}", file=path) from None
        return True

    @property
    def state_file(self) -> Path:
        """File with the configuration state that a gateway last stored (`gateway.configuration_changes`)."""
        return self.path / ".known"

    def remembered(self) -> str | None:
        """Return the contents of `known`, or None if the file does not exist."""
        try:
            return self.state_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", file=self.state_file) from None

    def remember(self, text: str) -> None:
        """Write `text` to `known`."""
        try:
            self._prepare()
            _write(self.state_file, text, only_new=False)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=self.state_file) from None

    def _prepare(self) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError), (self.path / ".gitignore").open("x", encoding="utf-8") as file:
            file.write("*\n")


class TokenStore:
    """The tokens of all spaces of a gateway. Implements `mew.protocol.authentication.Tokens` for the core."""

    def __init__(self, spaces: Iterable[SpaceConfig], *, environ: Mapping[str, str], generate: bool = True) -> None:
        """Read all sources. With `generate`, create a token for each configured participant that has none."""
        spaces = tuple(spaces)
        self._folders = {space.settings.space_id: TokenFolder(space.directory) for space in spaces}
        self._configured = _configured_tokens(spaces, environ)
        self._holders: dict[bytes, Identity] = {}
        self._tokens: dict[Identity, tuple[str, ...]] = {}
        self.sources: dict[Identity, tuple[str, ...]] = {}
        """Sources of each holder's tokens: a variable, a place in space.yaml, or a file."""
        self.lost: frozenset[bytes] = frozenset()
        """Fingerprints of the tokens that their holders lost at the last read."""
        self.changes: dict[Identity, str] = {}
        """Token changes of each holder at the last read, named as in `mew.protocol.handlers.administration`."""
        self.warnings: tuple[str, ...] = ()
        """Warnings of the last read. They contain no token."""
        self.reload()
        self.generated = tuple(identity for identity in self._configured if generate and identity not in self._tokens)
        """Participants for which this constructor created a token."""
        for identity in self.generated:
            self._obtain(identity)

    def identify(self, token: str) -> Identity | None:
        """Return the holder of this token, or None if the token is unknown."""
        # The lookup time depends only on the digest. An attacker cannot choose a digest without a SHA-256
        # preimage, so the time reveals nothing about the characters of a token.
        return self._holders.get(token_fingerprint(token))

    def issue(self, space_id: str, participant: str) -> str:
        """Return the participant's token, created and stored if missing: invitations survive restarts (protocol §3)."""
        identity = Identity(space_id, participant)
        try:
            return self._tokens[identity][0] if identity in self._tokens else self._obtain(identity)
        except ConfigError as error:
            raise InternalError(f"no token can be kept for {participant!r}") from error

    def token_for(self, space_id: str, participant: str) -> str:
        """Return the token for a participant's process: from the environment, else space.yaml, else the file."""
        tokens = self._tokens.get(Identity(space_id, participant))
        if tokens is None:
            raise ConfigError(f"{participant!r} has no token in space {space_id!r}")
        return tokens[0]

    def reload(self) -> frozenset[Identity]:
        """Read the folders again. Returns the holders that lost a token.

        If two holders share a token, it raises `ConfigError` and changes nothing.
        """
        warnings: list[str] = []
        sourced = {identity: list(entries) for identity, entries in self._configured.items()}
        for space_id, folder in self._folders.items():
            for (name, observer), token in folder.read(warnings).items():
                source = str(folder.file(name, observer=observer))
                sourced.setdefault(Identity(space_id, name, observer), []).append((token, source))
        before, self._holders = self._holders, _index(sourced)
        self._tokens = {
            identity: tuple(dict.fromkeys(token for token, _ in entries))
            for identity, entries in sourced.items()
            if entries
        }
        self.sources = {
            identity: tuple(source for _, source in entries) for identity, entries in sourced.items() if entries
        }
        self.warnings = tuple(warnings)
        self.lost = frozenset(digest for digest, holder in before.items() if self._holders.get(digest) != holder)
        self.changes = token_changes(_by_holder(before), _by_holder(self._holders))
        return frozenset(before[digest] for digest in self.lost)

    def digests(self, space_id: str) -> dict[Identity, frozenset[str]]:
        """Return the fingerprints of all tokens of a space as hex text, by holder."""
        digests = _by_holder(self._holders)
        return {holder: frozenset(map(bytes.hex, digests[holder])) for holder in digests if holder.space_id == space_id}

    def sources_of(self, condition: Callable[[str], bool]) -> Iterator[str]:
        """Yield the token sources of each holder that has a token meeting the condition."""
        for identity, tokens in self._tokens.items():
            if any(map(condition, tokens)):
                yield ", ".join(self.sources[identity])

    def _obtain(self, identity: Identity) -> str:
        token = self._folders[identity.space_id].obtain(identity.participant)
        file = self._folders[identity.space_id].file(identity.participant)
        if self._holders.setdefault(token_fingerprint(token), identity) != identity:
            raise ConfigError(f"the same token as {_holder_name(self._holders[token_fingerprint(token)])}'s", file=file)
        self._tokens[identity] = (token,)
        self.sources[identity] = (str(file),)
        return token


def _configured_tokens(
    spaces: Iterable[SpaceConfig], environ: Mapping[str, str]
) -> dict[Identity, list[tuple[str, str]]]:
    """Return each configured participant's tokens from the environment and space.yaml, with sources, by priority."""
    entries: dict[Identity, list[tuple[str, str]]] = {}
    holders: dict[str, Identity] = {}
    for space in spaces:
        for name, participant in space.participants.items():
            identity = Identity(space.settings.space_id, name)
            entries[identity] = [(token, f"{space.file}: participants.{name}.tokens") for token in participant.tokens]
            variable = environment_variable(name)
            if token := environ.get(variable, "").strip():
                if variable in holders:
                    both = f"{_holder_name(holders[variable])} and {_holder_name(identity)}"
                    raise ConfigError(f"would be the token of both {both}", where=f"environment variable {variable}")
                holders[variable] = identity
                entries[identity].insert(0, (token, f"environment variable {variable}"))
    return entries


def _index(sourced: Mapping[Identity, Iterable[tuple[str, str]]]) -> dict[bytes, Identity]:
    """Map digests to holders. Raises `ConfigError` if two holders share a token: it would not identify either."""
    holders: dict[bytes, Identity] = {}
    sources: dict[bytes, str] = {}
    for identity, entries in sourced.items():
        for token, source in entries:
            digest = token_fingerprint(token)
            if holders.setdefault(digest, identity) != identity:
                both = f"{_holder_name(holders[digest])} ({sources[digest]}) and {_holder_name(identity)} ({source})"
                raise ConfigError(f"two holders have the same token: {both}. Give each its own token")
            sources[digest] = source
    return holders


def _by_holder(holders: Mapping[bytes, Identity]) -> dict[Identity, frozenset[bytes]]:
    digests_by_holder: dict[Identity, set[bytes]] = {}
    for digest, holder in holders.items():
        digests_by_holder.setdefault(holder, set()).add(digest)
    return {holder: frozenset(digests) for holder, digests in digests_by_holder.items()}


def _holder_name(identity: Identity) -> str:
    kind = "observer " if identity.observer else ""
    return f"{kind}{identity.participant!r} of space {identity.space_id!r}"


def token_fingerprint(token: str) -> bytes:
    """Return the SHA-256 digest of a token. It identifies the token but does not reveal it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _may_bear(name: str) -> bool:
    return is_participant_id(name) and not is_reserved_id(name)


def _read_token(path: Path, warnings: list[str]) -> str | None:
    """Return the single word in a token file, else None. Adds a warning that does not quote the contents."""
    try:
        # Opening a FIFO would block the gateway until a writer opens it too.
        if not path.is_file():
            raise IsADirectoryError(None, "not a regular file")
        with path.open("rb") as file:
            _warn_if_open(path, os.fstat(file.fileno()).st_mode, warnings)
            words = file.read(MAX_TOKEN_BYTES + 1).decode("utf-8").split()
    except OSError as error:
        warnings.append(f"{path}: ignored: {error.strerror}")
        return None
    except UnicodeDecodeError:
        words = []
    if len(words) != 1 or len(words[0].encode()) > MAX_TOKEN_BYTES:
        warnings.append(f"{path}: ignored: expected exactly one token")
        return None
    return words[0]


def _warn_if_open(path: Path, mode: int, warnings: list[str]) -> None:
    if stat.S_IMODE(mode) & 0o077:
        right = "700" if stat.S_ISDIR(mode) else "600"
        warnings.append(f"{path}: other users can read it: run `chmod {right}` on it")


def new_token() -> str:
    """Return 256 random bits as text. It never begins with a hyphen: a command line would parse it as an option."""
    while (token := secrets.token_urlsafe(32)).startswith("-"):
        pass
    return token


def _write(path: Path, token: str, *, only_new: bool) -> None:
    """Write a token file atomically. With `only_new`, an existing file is not overwritten."""
    # No line break: some readers use the contents verbatim.
    if only_new:  # if two processes create a token, the second one uses the token of the first
        write_if_absent(path, token.encode(), mode=0o600)
        return
    with replacing(path, mode=0o600) as file:
        file.write(token.encode())
