"""An HTTP client as in a script: one request after another on one connection. It returns answers unchanged."""

import select
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import msgspec

PATIENCE = 20


class Told(msgspec.Struct):
    """An error in an HTTP answer."""

    status: int
    code: str


class Mail(msgspec.Struct):
    """The answer to a poll, with the bytes of each message."""

    messages: list[msgspec.Raw]
    next: int
    dropped: int


@dataclass
class HttpAnswer:
    """The answer to a request."""

    status: int
    raw: bytes

    @cached_property
    def body(self) -> dict[str, Any]:
        return msgspec.json.decode(self.raw, type=dict[str, Any])

    @property
    def mail(self) -> Mail:
        return msgspec.json.decode(self.raw, type=Mail)

    @property
    def refusal(self) -> Told | None:
        return None if self.status == 200 else Told(self.status, self.body["error"])


def messages_of(participant: str) -> str:
    """The path at which a participant posts and polls."""
    return f"/participants/{quote(participant, safe='')}/messages"


class Asker:
    """A connection that stays open, and opens again if the gateway has closed it."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.requests = 0

    def ask(self, method: str, path: str, token: str | None, body: bytes | None = None) -> HttpAnswer:
        """The answer to a request."""
        self.requests += 1
        if self._connection.sock is not None and select.select([self._connection.sock], [], [], 0)[0]:
            self._connection.close()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return HttpAnswer(response.status, response.read())

    def close(self) -> None:
        self._connection.close()
