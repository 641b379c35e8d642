"""A client of the journal's live stream: it reads server-sent events from a raw connection."""

from typing import Any

import msgspec

from tests.gateway.raw import Raw, head

LIVE = {"Accept": "text/event-stream"}


class Event(msgspec.Struct, frozen=True):
    """One server-sent event."""

    id: int
    event: str
    data: Any


class Following:
    """Reads the live stream, chunk by chunk."""

    def __init__(self, client: Raw, path: str, token: str, **headers: str) -> None:
        """Request the live stream."""
        self.client = client
        client.send(head(path, {"Host": "localhost", "Authorization": f"Bearer {token}", **LIVE, **headers}))
        answer = client.answer()
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert answer.headers["transfer-encoding"] == "chunked"
        self._text = b""
        self.ended = False
        """Whether the answer has ended properly."""

    def _more(self) -> None:
        size = b""
        while not size.endswith(b"\r\n"):
            size += self.client._take(1)
        length = int(size, 16)
        self._text += self.client._take(length)
        assert self.client._take(2) == b"\r\n"
        self.ended = length == 0

    def next(self) -> Event | None:
        """The next event; None for a comment, and at the end."""
        while b"\n\n" not in self._text:
            if self.ended:
                return None
            self._more()
        text, _, self._text = self._text.partition(b"\n\n")
        if text.startswith(b":"):
            return None
        fields = dict(line.split(": ", 1) for line in text.decode().split("\n"))
        assert list(fields) == ["id", "event", "data"]
        return Event(int(fields["id"]), fields["event"], msgspec.json.decode(fields["data"]))

    def until(self, position: int) -> list[Event]:
        """The events up to this position."""
        events: list[Event] = []
        while not events or events[-1].id < position:
            event = self.next()
            assert not self.ended
            events += [] if event is None else [event]
        return events

    def to_the_end(self) -> list[Event]:
        """All events until the end of the stream."""
        events: list[Event] = []
        while not self.ended:
            event = self.next()
            events += [] if event is None else [event]
        return events
