"""HTTP client for the gateway's API: JSON requests and streams of server-sent events.

It must not wait forever, must not import modules that slow down the start of a command, and must not put a token into
an address.
"""

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from mew._internal.unix_sockets import connect_to_socket, path_of
from mew.cli.common.errors import CommandFailed, RequestRefused, Unreachable, UsageError, one_line

_ANSWER_SECONDS: Final = 10.0
"""Timeout for an answer."""
EVENT_TIMEOUT: Final = 40.0
"""Timeout for an event: the gateway sends a comment after 15 seconds without one."""
MAX_ANSWER_BYTES: Final = 256 * 2**20
SCHEMES: Final = {"ws": "http", "http": "http", "wss": "https", "https": "https"}
_READ: Final = 64 * 2**10
_OK: Final = 200


class ApiError(RequestRefused):
    """A rejection by the gateway, with its error code and its fields."""

    def __init__(self, error: str, message: str, parts: dict[str, Any]) -> None:
        """Build a one-line message, for any text from the gateway."""
        self.error = error
        self.parts = parts
        super().__init__(f"{one_line(message)} ({one_line(error)})")


class _Local(http.client.HTTPConnection):
    """HTTP over the Unix socket of a space."""

    def __init__(self, file: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._file, self._seconds = file, seconds

    def connect(self) -> None:
        self.sock = connect_to_socket(self._file, self._seconds)


class GatewayClient:
    """Client for one gateway with one token. Requests are sent one after another on one connection."""

    def __init__(self, url: str, token: str | None, space: str | None = None) -> None:
        """Parse the address without connecting, or raise `UsageError`. Some requests name the `space`."""
        self._file = path_of(url)
        if self._file is not None:
            url = "http://localhost"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError(f"{url!r} is not a valid gateway address: the port is not a number") from None
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise UsageError(
                f"{url!r} is not a valid gateway address: it must start with ws://, wss://, http://, https:// or unix:/"
            )
        self.scheme = SCHEMES[parts.scheme]
        self.host, self.port = parts.hostname, port
        self.authority = parts.netloc.rpartition("@")[2]
        self.space = space
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None

    @property
    def address(self) -> str:
        """Address of the gateway, for messages."""
        return f"{self.scheme}://{self.authority}" if self._file is None else str(self._file)

    def ask(self, method: str, path: str, body: object = None, *, form: Any = Any, **query: object) -> Any:
        """Return the answer, decoded as `form`. Raises `RequestRefused` with the gateway's reason, or `Unreachable`."""
        data = None if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        answer = self._request(method, self._target(path, query), data, {}, _ANSWER_SECONDS)
        try:
            text = answer.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        return self._read(answer.status, text, form)

    def post(self, participant: str, envelope: object) -> dict[str, Any]:
        """Post an envelope as a participant. Returns the gateway's answer."""
        path = f"/participants/{quote(participant, safe=':@')}/messages"
        answer = self.ask("POST", path, envelope, space=self.space)
        return dict(answer)

    def events(self, path: str, last: int | None = None, **query: object) -> Iterator[bytes]:
        """Yield the data of server-sent events, empty for a comment; at the end raise `Unreachable`."""
        headers = {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        answer = self._request("GET", self._target(path, query), None, headers, EVENT_TIMEOUT)
        if answer.status != _OK:
            self._read(answer.status, answer.read(MAX_ANSWER_BYTES), Any)
        rest = b""
        while True:
            try:
                part = answer.read1(_READ)
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(str(error)) from None
            if not part:
                raise Unreachable("the gateway ended the stream of events")
            *events, rest = (rest + part).split(b"\n\n")
            for event in events:
                lines = event.split(b"\n")
                data = [line[6:] for line in lines if line.startswith(b"data: ")]
                # A comment means that nothing has happened. The caller can use it to check timeouts.
                yield data[0] if data else b""

    def __enter__(self) -> "GatewayClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _target(self, path: str, query: dict[str, object]) -> str:
        parameters = {name: value for name, value in query.items() if value is not None}
        return f"{path}?{urlencode(parameters)}" if parameters else path

    def _request(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], seconds: float
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._open(seconds)
        try:
            self._connection.request(method, target, body, {**self._headers, **headers})
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None
        except ValueError:
            # The header is not valid in HTTP. Only the token comes from outside.
            raise UsageError("the token contains characters that are not allowed in an HTTP header") from None

    def _open(self, seconds: float) -> http.client.HTTPConnection:
        if self._file is not None:
            return _Local(self._file, seconds)
        if self.scheme == "https":
            return http.client.HTTPSConnection(
                self.host, self.port, timeout=seconds, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=seconds)

    def _unreachable(self, error: Exception) -> Unreachable:
        self.close()
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unreachable(f"no gateway answers at {self.address}: {one_line(str(why))}. Start one with `mew space up`")

    def _read(self, status: int, text: bytes, form: Any) -> Any:
        try:
            answer = msgspec.json.decode(text, type=form if status == _OK else Any)
        except msgspec.MsgspecError:
            raise CommandFailed(
                f"{self.address} returned HTTP {status} with a body that is not JSON. Is this a mew gateway?"
            ) from None
        if status == _OK:
            return answer
        fields = answer if isinstance(answer, dict) else {}
        error, message = str(fields.get("error", status)), str(fields.get("message", "refused"))
        raise ApiError(error, message, fields)
