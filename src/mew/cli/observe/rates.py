"""Rates of participants and streams, counted from what an observer receives.

This module must not send or print anything. A raw frame does not name its sender: it counts for a participant only if
no other participant may write to the stream.
"""

import time
from collections import Counter
from typing import Any

import msgspec

from mew.client.dispatcher import Message
from mew.client.frames import Frame, receives
from mew.protocol import GATEWAY
from mew.view import SpaceView


class ParticipantRates(msgspec.Struct, frozen=True):
    """What one participant sends, per second."""

    id: str
    present: bool
    envelopes: float
    frames: float
    bytes: float
    last_kind: str | None


class StreamRates(msgspec.Struct, frozen=True):
    """What one stream carries, per second."""

    stream_id: str
    owner: str
    owner_connected: bool
    writers: tuple[str, ...]
    status: str
    total: int
    """Total number of frames and data envelopes so far."""
    frames: float | None
    """None if the stream is for other recipients: an observer cannot count it."""
    bytes: float | None


class Rates(msgspec.Struct, frozen=True):
    """The rates of one interval."""

    ts: str
    seconds: float
    participants: tuple[ParticipantRates, ...]
    streams: tuple[StreamRates, ...]
    bytes: float
    """Of everything received, per second."""
    missed: float
    """Messages that arrived too fast to be counted, per second."""


class RateCounter:
    """Counts the messages received since the last `look`."""

    def __init__(self, view: SpaceView) -> None:
        """Start from the current state of the view."""
        self._since = time.monotonic()
        self._totals = _totals(view)
        self._last_kinds: dict[str, str] = {}
        self.missed = 0
        self._clear()

    def _clear(self) -> None:
        self._everything = 0
        self._envelopes: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._frames: Counter[str] = Counter()
        self._stream_bytes: Counter[str] = Counter()

    def take(self, message: Message, view: SpaceView) -> None:
        """Count a received message."""
        if isinstance(message, Frame):
            stream = view.streams.get(message.stream_id)
            self._everything += len(message.data)
            self._stream_bytes[message.stream_id] += len(message.data)
            if stream is not None and len(stream.writers) == 1:
                self._frames[stream.owner] += 1
                self._bytes[stream.owner] += len(message.data)
            return
        size = sum(map(len, message.fields.values()))
        self._everything += size
        self._last_kinds[message.sender] = message.kind
        self._bytes[message.sender] += size
        if message.kind == "stream/data":
            self._frames[message.sender] += 1
            reference: Any = message.payload.get("stream")
            self._stream_bytes[str(reference["stream_id"]) if isinstance(reference, dict) else ""] += size
        else:
            self._envelopes[message.sender] += 1

    def look(self, view: SpaceView, ts: str) -> Rates:
        """Return the rates of the interval that ends now, and start the next interval."""
        now = time.monotonic()
        seconds = max(now - self._since, 1e-6)
        names = dict.fromkeys((*view.participants, *self._envelopes, *self._frames))
        names.pop(GATEWAY, None)
        rates = Rates(
            ts=ts,
            seconds=round(seconds, 3),
            participants=tuple(self._participant(name, view, seconds) for name in names),
            streams=tuple(self._stream(name, view, seconds) for name in view.streams),
            bytes=round(self._everything / seconds, 1),
            missed=round(self.missed / seconds, 2),
        )
        self._since, self._totals, self.missed = now, _totals(view), 0
        self._clear()
        return rates

    def _participant(self, name: str, view: SpaceView, seconds: float) -> ParticipantRates:
        return ParticipantRates(
            name,
            name in view.participants,
            round(self._envelopes[name] / seconds, 2),
            round(self._frames[name] / seconds, 2),
            round(self._bytes[name] / seconds, 1),
            self._last_kinds.get(name),
        )

    def _stream(self, name: str, view: SpaceView, seconds: float) -> StreamRates:
        stream = view.streams[name]
        counts = receives(view, stream)
        frames = stream.frames - self._totals.get(name, 0)
        return StreamRates(
            name,
            stream.owner,
            stream.owner_connected,
            stream.writers,
            stream.status,
            stream.frames,
            round(frames / seconds, 2) if counts else None,
            round(self._stream_bytes[name] / seconds, 1) if counts else None,
        )


def _totals(view: SpaceView) -> dict[str, int]:
    return {name: stream.frames for name, stream in view.streams.items()}
