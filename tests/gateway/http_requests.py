"""HTTP requests over a raw connection, one call each, and connections that are closed together."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from mew.testing import MemoryTokens
from tests.gateway.raw import Answer, Raw, Running, head, joined


class Clients:
    """Connections to gateways, closed together."""

    def __init__(self) -> None:
        self._opened: list[Raw] = []

    def raw(self, gateway: Running, **options: Any) -> Raw:
        self._opened.append(Raw(gateway.port, **options))
        return self._opened[-1]

    def joined(self, gateway: Running, participant: str = "alice", **options: Any) -> Raw:
        self._opened.append(joined(gateway, participant, **options))
        return self._opened[-1]

    def close(self) -> None:
        for client in self._opened:
            client.close()


def tokens_of(gateway: Running) -> MemoryTokens:
    """The tokens of a gateway that was not started from a file."""
    assert isinstance(gateway.tokens, MemoryTokens)
    return gateway.tokens


@contextmanager
def connecting() -> Iterator[Clients]:
    """Connections for a fixture, which closes them at its end."""
    clients = Clients()
    try:
        yield clients
    finally:
        clients.close()


def ask(
    client: Raw, method: str, path: str, token: str | None = None, body: Any = None, **headers: str | None
) -> Answer:
    """Send a request and read the answer. A body that is not bytes is sent as JSON; `Some_Header` is a header."""
    data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
    all_headers: dict[str, str | None] = {
        "Host": "localhost",
        "Authorization": None if token is None else f"Bearer {token}",
    }
    if data is not None:
        all_headers["Content-Length"] = str(len(data))
    all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
    client.send(head(path, all_headers, method), data or b"")
    return client.answer()
