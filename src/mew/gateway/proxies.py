"""Where a connection really comes from, when it comes through a reverse proxy.

Pure. `X-Forwarded-For` is believed only from the addresses in `gateway.trusted_proxies`: anybody can write it.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class TrustedProxies:
    """The addresses and networks whose `X-Forwarded-For` is believed."""

    def __init__(self, networks: Sequence[str]) -> None:
        """As written in the configuration, which has checked them."""
        self._networks = tuple(ip_network(each, strict=False) for each in networks)
        self._known = lru_cache(maxsize=1024)(self._look_up)

    def trusts(self, address: str) -> bool:
        """Whether this is the address of a trusted proxy."""
        return bool(self._networks) and self._known(address)

    def client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The address of the client: the last one named that is no trusted proxy itself; else the peer's own."""
        if not self.trusts(peer):
            return peer
        given = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        client = peer
        for written in reversed(given.split(",")):
            address = _address(written.strip())
            if address is None:
                break
            client = str(address)
            if not self.trusts(client):
                break
        return client

    def _look_up(self, address: str) -> bool:
        known = _address(address)
        return known is not None and any(known in network for network in self._networks)


def _address(written: str) -> Address | None:
    """`203.0.113.7`, `203.0.113.7:4711`, `[2001:db8::1]:4711` and `::ffff:203.0.113.7` are written too."""
    if written.startswith("["):
        written = written[1:].partition("]")[0]
    elif written.count(":") == 1:
        written = written.partition(":")[0]
    try:
        address = ip_address(written)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
