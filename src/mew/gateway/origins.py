"""From which pages, and under which names, the gateway may be addressed: what `Origin` and `Host` say.

Pure. A browser sends `Origin` for whatever page asks; programs send none, and pass. `Host` keeps out pages that have
their own name resolved to this machine (DNS rebinding). Tokens are another matter.
"""

from collections.abc import Iterable
from typing import Final

from mew.gateway.config import GatewayConfig
from mew.gateway.exposure import ANY, EVERY_PAGE, as_browsers_write, is_loopback
from mew.protocol.errors import Unauthorized


def allowed_origins(config: GatewayConfig) -> frozenset[str]:
    """`gateway.allowed_origins` as browsers write them."""
    return frozenset(map(as_browsers_write, config.allowed_origins))


class Origins:
    """Which requests one gateway takes."""

    def __init__(self, config: GatewayConfig) -> None:
        """By `gateway.allowed_origins` and `gateway.allowed_hosts`; names of this very machine always pass."""
        self._origins = allowed_origins(config)
        self._hosts = {each.lower() for each in config.allowed_hosts}
        if any(space.settings.allow_anonymous for space in config.spaces):
            # A page could join without a token, so its name alone decides: no wildcard (`exposure.require_safe`).
            self._hosts.discard(ANY)
            self._origins -= EVERY_PAGE

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Unauthorized | None:
        """Why a request with these headers, names in lower case, is not taken; None if it is."""
        given = [(name, value.decode("latin-1").strip().lower()) for name, value in headers if name in _READ]
        hosts = [value for name, value in given if name == b"host"]
        for host in hosts:
            if not self._takes_host(host):
                return Unauthorized(f"nothing is served here as {host!r}: see `gateway.allowed_hosts`")
        for name, origin in given:
            if name == b"origin" and not self._takes_origin(origin, hosts):
                return Unauthorized(f"pages of {origin!r} are not served here: see `gateway.allowed_origins`")
        return None

    def _takes_host(self, host: str) -> bool:
        if ANY in self._hosts or host in self._hosts:
            return True
        name = _without_port(host)
        if name in self._hosts:
            return True
        # No other website can have a loopback name: health checks and commands on this machine use them.
        return is_loopback(name.strip("[]"))

    def _takes_origin(self, origin: str, hosts: list[str]) -> bool:
        """A page of this very gateway, or one that is allowed; `null` is nobody's."""
        if ANY in self._origins or origin in self._origins:
            return True
        authority = origin.partition("://")[2]
        return bool(authority) and authority in hosts


_READ: Final = frozenset((b"host", b"origin"))


def _without_port(host: str) -> str:
    """`example.org` of `example.org:8080`, `[::1]` of `[::1]:8080`."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host
