"""Controls who can reach a gateway: checks its address, keys and folders, and `Origin` and `Host` of each request.

Browsers send `Origin` for every page; other programs send none and are admitted. The `Host` check blocks pages whose
own name resolves to this machine (DNS rebinding). No message contains a token.
"""

import stat
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mew._internal import SPACE_FOLDER
from mew.config import ConfigError
from mew.config.models import GatewayConfig
from mew.protocol.errors import Unauthorized

if TYPE_CHECKING:
    from mew.config.tokens import TokenStore


ANY: Final = "*"
"""In `allowed_origins` and `allowed_hosts`: allows all."""
EVERY_PAGE: Final = frozenset((ANY, "null"))
"""Entries of `allowed_origins` that admit every website. Any site can send `null`, from a sandboxed frame."""
SHORTEST_TOKEN: Final = 22
"""In characters. This many random base64 characters hold 128 bits; tokens that mew creates have 43."""
FEWEST_DIFFERENT: Final = 8
"""Minimum number of different characters in a random token."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def is_loopback(host: str) -> bool:
    """Return whether this name or address is a loopback address, which other machines cannot reach."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def as_browsers_write(origin: str) -> str:
    """Convert an entry of `allowed_origins` to the form of the `Origin` header."""
    return origin.lower().removesuffix("/")


def require_safe(config: GatewayConfig) -> None:
    """Raise `ConfigError` if any website could join without a token, directly or by DNS rebinding."""
    file = config.spaces[0].file if config.spaces else None
    if not is_loopback(config.host) and not config.allowed_hosts:
        raise ConfigError(
            f"required, because the gateway listens on {config.host!r}, which other machines reach: list the names"
            ' by which it is addressed, such as [lab.example.org], or ["*"] for any',
            file=file,
            where="gateway.allowed_hosts",
        )
    anonymous = [space.settings.space_id for space in config.spaces if space.settings.allow_anonymous]
    if anonymous and ANY in config.allowed_hosts:
        raise ConfigError(
            f'"*" cannot be combined with gateway.allow_anonymous (space {anonymous[0]!r}): any website could let its'
            " own name point to this machine and join without a token; list the names instead",
            file=file,
            where="gateway.allowed_hosts",
        )
    if anonymous and (every := _every_page(config)):
        raise ConfigError(
            f'"{every}" cannot be combined with gateway.allow_anonymous (space {anonymous[0]!r}): a page of any website'
            " could join without a token, from the browser of anyone who reaches the gateway; list the pages instead",
            file=file,
            where="gateway.allowed_origins",
        )


def warnings_of(config: GatewayConfig, tokens: "TokenStore") -> Iterator[str]:
    """Yield a warning for each setting that puts tokens at risk: one sentence that says what to do."""
    if config.tls is not None and _mode(config.tls.key) & _OTHERS:
        yield f"{config.tls.key}: other users of this machine, or its group, can read the private key: chmod 600 it"
    for space in config.spaces:
        if _mode(folder := space.directory / SPACE_FOLDER) & _OTHERS:
            yield f"{folder}: other users of this machine, or its group, can look into it: chmod 700 it"
    if every := _every_page(config):
        yield (
            f'gateway.allowed_origins has "{every}", so a page of any website can use the gateway with a token that it'
            " gets: list the pages that you trust"
        )
    if not is_reached_by_others(config):
        return
    if config.tls is None and not is_loopback(config.host):
        yield (
            f"gateway.host {config.host!r} is reached by other machines without TLS, so tokens can be read on the"
            " network: set gateway.tls, or listen on localhost behind a proxy that has a certificate"
        )
    if ANY in config.allowed_hosts:
        yield (
            'gateway.allowed_hosts has "*", so a page of any website can let its own name point to the gateway:'
            " list the names by which it is addressed"
        )
    for space in config.spaces:
        if _mode(space.file) & (stat.S_IROTH | stat.S_IWOTH):
            yield f"{space.file}: other users of this machine can read it, and tokens in it: chmod 600 it"
    for source in tokens.sources_of(is_weak):
        yield f"{source}: the token can be guessed: use `mew token create`, or {SHORTEST_TOKEN} random characters"


def is_reached_by_others(config: GatewayConfig) -> bool:
    """Return whether other machines can use the gateway, directly or through a proxy with its own host name."""
    return not is_loopback(config.host) or bool(config.allowed_hosts or config.trusted_proxies)


def is_weak(token: str) -> bool:
    """Return whether a token is too short or has too few different characters to be random."""
    return len(token) < SHORTEST_TOKEN or len(set(token)) < FEWEST_DIFFERENT


def _every_page(config: GatewayConfig) -> str | None:
    """Return the entry of `allowed_origins` that admits every website, or None."""
    return next((origin for origin in map(as_browsers_write, config.allowed_origins) if origin in EVERY_PAGE), None)


def _mode(path: Path) -> int:
    """Return the permission bits of a file; 0 if they cannot be read."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0


def allowed_origins(config: GatewayConfig) -> frozenset[str]:
    """Return `gateway.allowed_origins` in the form that browsers send."""
    return frozenset(map(as_browsers_write, config.allowed_origins))


class Origins:
    """Decides which requests one gateway accepts."""

    def __init__(self, config: GatewayConfig) -> None:
        """Use `gateway.allowed_origins` and `gateway.allowed_hosts`; loopback names are always accepted."""
        self._origins = allowed_origins(config)
        self._hosts = {host.lower() for host in config.allowed_hosts}
        if any(space.settings.allow_anonymous for space in config.spaces):
            # Pages could join without a token, so only their name is checked: allow no wildcard (`require_safe`).
            self._hosts.discard(ANY)
            self._origins -= EVERY_PAGE

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Unauthorized | None:
        """Return the error for a request with these headers (lower-case names); None if the request is accepted."""
        fields = [(name, value.decode("latin-1").strip().lower()) for name, value in headers if name in _READ]
        hosts = [value for name, value in fields if name == b"host"]
        for host in hosts:
            if not self._takes_host(host):
                return Unauthorized(f"nothing is served here as {host!r}: see `gateway.allowed_hosts`")
        for name, origin in fields:
            if name == b"origin" and not self._takes_origin(origin, hosts):
                return Unauthorized(f"pages of {origin!r} are not served here: see `gateway.allowed_origins`")
        return None

    def _takes_host(self, host: str) -> bool:
        if ANY in self._hosts or host in self._hosts:
            return True
        name = _without_port(host)
        if name in self._hosts:
            return True
        # No other website can have a loopback name. Health checks and commands on this machine use such names.
        return is_loopback(name.strip("[]"))

    def _takes_origin(self, origin: str, hosts: list[str]) -> bool:
        """Accept pages of this gateway and pages that are allowed. `null` belongs to no page."""
        if ANY in self._origins or origin in self._origins:
            return True
        authority = origin.partition("://")[2]
        return bool(authority) and authority in hosts


_READ: Final = frozenset((b"host", b"origin"))


def _without_port(host: str) -> str:
    """Remove the port: `example.org` from `example.org:8080`, `[::1]` from `[::1]:8080`."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host
