"""Which participant each token belongs to: tokens from the environment, space.yaml and `.mew/tokens` (protocol §2).

All of them are valid together. No error, warning, `repr` or log shows a token; each names the source of one instead.
"""

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from mew.config.loader import ConfigError, SpaceConfig
from mew.protocol.authentication import Identity
from mew.protocol.errors import InternalError
from mew.protocol.handlers.administration import token_changes
from mew.protocol.ids import is_participant_id, is_reserved_id

MAX_TOKEN_BYTES: Final = 4096
"""A longer file is not a token's."""
_PARTICIPANT: Final = ".token"
_OBSERVER: Final = ".observer"
_AS_UNDERSCORE: Final = str.maketrans("-.@:", "____")


def environment_variable(participant: str) -> str:
    """The variable that may hold a participant's token: `MEW_TOKEN_<ID>`."""
    return "MEW_TOKEN_" + participant.upper().translate(_AS_UNDERSCORE)


class TokenFolder:
    """The folder `.mew/tokens` of one space: `<id>.token` for participants, `<name>.observer` for observers."""

    def __init__(self, space_directory: Path) -> None:
        """Nothing is made before a token has to be kept."""
        self.path = space_directory / ".mew" / "tokens"

    def file(self, name: str, *, observer: bool = False) -> Path:
        """Where the token of a participant or an observer is kept."""
        if not _may_bear(name):
            raise ConfigError(f"{name!r} cannot be the id of a token's holder", file=self.path)
        return self.path / f"{name}{_OBSERVER if observer else _PARTICIPANT}"

    def read(self, warnings: list[str]) -> dict[tuple[str, bool], str]:
        """Every token in the folder by name and whether it is an observer's; what cannot be used is warned about."""
        try:
            paths = sorted(path for path in self.path.iterdir() if path.suffix in {_PARTICIPANT, _OBSERVER})
            if paths:
                _warn_if_open(self.path, self.path.stat().st_mode, warnings)
        except FileNotFoundError:
            return {}
        except OSError as error:
            # Not the same as an empty folder: that would take everybody's token away.
            raise ConfigError(f"cannot be read: {error.strerror}", file=self.path) from None
        found: dict[tuple[str, bool], str] = {}
        for path in paths:
            if not _may_bear(path.stem):
                warnings.append(f"{path}: ignored: {path.stem!r} cannot be the id of a token's holder")
            elif (token := _read_token(path, warnings)) is not None:
                found[path.stem, path.suffix == _OBSERVER] = token
        return found

    def kept(self, name: str, *, observer: bool = False) -> str | None:
        """The token in the file of this name, if there is one to be used."""
        path = self.file(name, observer=observer)
        return _read_token(path, []) if path.exists() else None

    def obtain(self, name: str, *, observer: bool = False) -> str:
        """The token in the file of this name, made first where there is none; of two processes one makes it."""
        path = self.file(name, observer=observer)
        try:
            self._prepare()
            if not path.exists():
                _write(path, new_token(), anew=True)
        except OSError as error:
            raise ConfigError(f"a token cannot be kept there: {error.strerror}", file=path) from None
        token = _read_token(path, [])
        if token is None:
            raise ConfigError("holds no token; write one into it or delete it", file=path)
        return token

    def replace(self, name: str, *, observer: bool = False) -> str:
        """A new token in the file of this name; whoever reads it meanwhile has the old one or the new."""
        path, token = self.file(name, observer=observer), new_token()
        try:
            self._prepare()
            _write(path, token, anew=False)
        except OSError as error:
            raise ConfigError(f"a token cannot be kept there: {error.strerror}", file=path) from None
        return token

    def remove(self, name: str, *, observer: bool = False) -> bool:
        """Take a token away; whether there was one."""
        path = self.file(name, observer=observer)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"cannot be removed: {error.strerror}", file=path) from None
        return True

    @property
    def known(self) -> Path:
        """What a gateway last knew (`gateway.configuration_changes`)."""
        return self.path / ".known"

    def remembered(self) -> str | None:
        """What was kept there."""
        try:
            return self.known.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", file=self.known) from None

    def remember(self, text: str) -> None:
        """Keep it there."""
        try:
            self._prepare()
            _write(self.known, text, anew=False)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=self.known) from None

    def _prepare(self) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError), (self.path / ".gitignore").open("x", encoding="utf-8") as file:
            file.write("*\n")


class TokenStore:
    """The tokens of every space of a gateway; `mew.protocol.authentication.Tokens` for the core."""

    def __init__(self, spaces: Iterable[SpaceConfig], *, environ: Mapping[str, str], generate: bool = True) -> None:
        """Read every source; a configured participant that has no token is given one, unless we only look."""
        spaces = tuple(spaces)
        self._folders = {space.settings.space_id: TokenFolder(space.directory) for space in spaces}
        self._given = _given(spaces, environ)
        self._holders: dict[bytes, Identity] = {}
        self._tokens: dict[Identity, tuple[str, ...]] = {}
        self.sources: dict[Identity, tuple[str, ...]] = {}
        """Where each holder's tokens come from: a variable, a place in space.yaml, a file."""
        self.lost: frozenset[bytes] = frozenset()
        """The fingerprints of tokens that the last reading took from their holders."""
        self.changes: dict[Identity, str] = {}
        """What became of whose tokens at the last reading, as `mew.protocol.handlers.administration` names it."""
        self.warnings: tuple[str, ...] = ()
        """What was odd at the last reading, without any token's text."""
        self.reload()
        self.generated = tuple(identity for identity in self._given if generate and identity not in self._tokens)
        """Those for whom a token was made just now."""
        for identity in self.generated:
            self._obtain(identity)

    def identify(self, token: str) -> Identity | None:
        """Whose token this is."""
        # The time of this look-up depends on the digest alone. Who guesses cannot choose a digest without
        # finding a SHA-256 preimage, so how far a comparison got says nothing about any token's characters.
        return self._holders.get(fingerprint(token))

    def issue(self, space_id: str, participant: str) -> str:
        """The participant's token, made and kept where it has none: an invitation survives a restart (protocol §3)."""
        identity = Identity(space_id, participant)
        try:
            return self._tokens[identity][0] if identity in self._tokens else self._obtain(identity)
        except ConfigError as error:
            raise InternalError(f"no token can be kept for {participant!r}") from error

    def token_for(self, space_id: str, participant: str) -> str:
        """The token that a participant's process is given: the environment's, else space.yaml's, else the file's."""
        held = self._tokens.get(Identity(space_id, participant))
        if held is None:
            raise ConfigError(f"{participant!r} has no token in space {space_id!r}")
        return held[0]

    def reload(self) -> frozenset[Identity]:
        """Read the folders again, and say who lost a token; with two holders of one token nothing changes."""
        warnings: list[str] = []
        sourced = {identity: list(given) for identity, given in self._given.items()}
        for space_id, folder in self._folders.items():
            for (name, observer), token in folder.read(warnings).items():
                source = str(folder.file(name, observer=observer))
                sourced.setdefault(Identity(space_id, name, observer), []).append((token, source))
        before, self._holders = self._holders, _index(sourced)
        self._tokens = {
            identity: tuple(dict.fromkeys(token for token, _ in held)) for identity, held in sourced.items() if held
        }
        self.sources = {identity: tuple(source for _, source in held) for identity, held in sourced.items() if held}
        self.warnings = tuple(warnings)
        self.lost = frozenset(digest for digest, holder in before.items() if self._holders.get(digest) != holder)
        self.changes = token_changes(_by_holder(before), _by_holder(self._holders))
        return frozenset(before[digest] for digest in self.lost)

    def digests(self, space_id: str) -> dict[Identity, frozenset[str]]:
        """The fingerprints of every token of a space, as text, by holder."""
        held = _by_holder(self._holders)
        return {each: frozenset(map(bytes.hex, held[each])) for each in held if each.space_id == space_id}

    def sources_of(self, condition: Callable[[str], bool]) -> Iterator[str]:
        """Where the tokens that meet a condition come from."""
        for identity, held in self._tokens.items():
            if any(map(condition, held)):
                yield ", ".join(self.sources[identity])

    def _obtain(self, identity: Identity) -> str:
        token = self._folders[identity.space_id].obtain(identity.participant)
        file = self._folders[identity.space_id].file(identity.participant)
        if self._holders.setdefault(fingerprint(token), identity) != identity:
            raise ConfigError(f"the same token as {_named(self._holders[fingerprint(token)])}'s", file=file)
        self._tokens[identity] = (token,)
        self.sources[identity] = (str(file),)
        return token


def _given(spaces: Iterable[SpaceConfig], environ: Mapping[str, str]) -> dict[Identity, list[tuple[str, str]]]:
    """What environment and files say of each configured participant: tokens, each with its source, in their order."""
    given: dict[Identity, list[tuple[str, str]]] = {}
    holders: dict[str, Identity] = {}
    for space in spaces:
        for name, participant in space.participants.items():
            identity = Identity(space.settings.space_id, name)
            given[identity] = [(token, f"{space.file}: participants.{name}.tokens") for token in participant.tokens]
            variable = environment_variable(name)
            if token := environ.get(variable, "").strip():
                if variable in holders:
                    both = f"{_named(holders[variable])} and {_named(identity)}"
                    raise ConfigError(f"would be the token of both {both}", where=f"environment variable {variable}")
                holders[variable] = identity
                given[identity].insert(0, (token, f"environment variable {variable}"))
    return given


def _index(sourced: Mapping[Identity, Iterable[tuple[str, str]]]) -> dict[bytes, Identity]:
    """Digest to holder; a token of two holders is refused, because it would not say who has come."""
    holders: dict[bytes, Identity] = {}
    sources: dict[bytes, str] = {}
    for identity, held in sourced.items():
        for token, source in held:
            digest = fingerprint(token)
            if holders.setdefault(digest, identity) != identity:
                both = f"{_named(holders[digest])} ({sources[digest]}) and {_named(identity)} ({source})"
                raise ConfigError(f"one token for two: {both}; each needs its own")
            sources[digest] = source
    return holders


def _by_holder(holders: Mapping[bytes, Identity]) -> dict[Identity, frozenset[bytes]]:
    found: dict[Identity, set[bytes]] = {}
    for digest, holder in holders.items():
        found.setdefault(holder, set()).add(digest)
    return {holder: frozenset(digests) for holder, digests in found.items()}


def _named(identity: Identity) -> str:
    kind = "observer " if identity.observer else ""
    return f"{kind}{identity.participant!r} of space {identity.space_id!r}"


def fingerprint(token: str) -> bytes:
    """What is kept of a token that somebody came with: enough to know it again, and no way back."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _may_bear(name: str) -> bool:
    return is_participant_id(name) and not is_reserved_id(name)


def _read_token(path: Path, warnings: list[str]) -> str | None:
    """The one word in a token's file, else a warning that does not quote it."""
    try:
        # A pipe of that name would keep the gateway waiting for a writer.
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
        warnings.append(f"{path}: ignored: expected one token and nothing else")
        return None
    return words[0]


def _warn_if_open(path: Path, mode: int, warnings: list[str]) -> None:
    if stat.S_IMODE(mode) & 0o077:
        right = "700" if stat.S_ISDIR(mode) else "600"
        warnings.append(f"{path}: open to others than its owner; chmod {right} it")


def new_token() -> str:
    """256 random bits as text. It never begins with a hyphen: a command line would take it for an option."""
    while (token := secrets.token_urlsafe(32)).startswith("-"):
        pass
    return token


def _write(path: Path, token: str, *, anew: bool) -> None:
    """Put a token into a file: complete or not at all, and never over another's where it is to be made anew."""
    draft = path.parent / f".{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            # No line break: some read the file as it is.
            file.write(token)
            file.flush()
            os.fsync(file.fileno())
        if not anew:
            draft.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                # Unlike a rename, a link refuses a name that is taken: who comes second reads the first one's.
                path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
