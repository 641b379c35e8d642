"""Clients that fetch their messages when a test looks: from a file, a mailbox or an unfinished iteration.

They decide and check nothing.
"""

from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mew.protocol.frames import build_frame
from mew.testing import Client, Message, ReceivedFrame
from mew.view import SpaceView


def received(shown: bytes) -> Message | ReceivedFrame:
    """A message as in logs and polls: a frame is an object without a kind (protocol §5)."""
    fields = msgspec.json.decode(shown, type=dict[str, msgspec.Raw])
    if "kind" in fields:
        return Message(shown)
    frame = msgspec.json.decode(fields["frame"], type=dict[str, str])
    text = frame["encoding"] == "text"
    data = frame["data"].encode() if text else b64decode(frame["data"])
    return ReceivedFrame(frame["stream_id"], data, text)


class Reader(Client):
    """A client that fetches new messages at each access."""

    _looking = False

    def __init__(self, name: str) -> None:
        super().__init__(None, name)  # type: ignore[arg-type]  # sending and leaving are the transport's

    def catch_up(self) -> None:
        """Fetch the messages since the last access."""
        raise NotImplementedError

    def _look(self) -> None:
        if not self._looking:
            with self.arriving():
                self.catch_up()

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """While it handles a message, it does not fetch more."""
        before, self._looking = self._looking, True
        try:
            yield
        finally:
            self._looking = before

    @property
    def view(self) -> SpaceView | None:
        self._look()
        return self._view

    @view.setter
    def view(self, view: SpaceView | None) -> None:
        self._view = view

    @property
    def closed(self) -> int | None:
        self._look()
        return self._closed

    @closed.setter
    def closed(self, code: int | None) -> None:
        self._closed = code

    @property
    def participant(self) -> str | None:
        self._look()
        return self._participant

    @participant.setter
    def participant(self, participant: str | None) -> None:
        self._participant = participant

    def inbox(self) -> list[Message | ReceivedFrame]:
        self._look()
        return super().inbox()

    def take(self, kind: str) -> Message:
        self._look()
        return super().take(kind)

    def take_frame(self) -> ReceivedFrame:
        self._look()
        return super().take_frame()

    def read(self, shown: bytes) -> None:
        """Handle a message in the form of logs and polls."""
        match received(shown):
            case ReceivedFrame(stream_id=stream_id, data=data, text=text):
                self.deliver_frame(build_frame(stream_id, data), text=text)
            case message:
                self.deliver(message.raw)


class LogReader(Reader):
    """Reads an `output_log` as a script does: the current content of the file."""

    def __init__(self, path: Path, settle: Callable[[], None]) -> None:
        super().__init__(path.name)
        self._path = path
        self._settle = settle
        self._lines = 0

    def catch_up(self) -> None:
        self._settle()
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        for line in lines[self._lines :]:
            self.read(line)
        self._lines = len(lines)
