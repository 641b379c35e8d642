"""What a simulation observes of its space: the open streams, and the ground truth.

It contains no rule of the protocol: the ground truth comes from the records and the state of the core.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from mew.protocol import Record, SpaceState
from mew.protocol.frames import frame_header
from tools.journal_generator.ground_truth import (
    Conversation,
    Ended,
    Owner,
    ReaderGap,
    Skipped,
    SpaceTruth,
    Stay,
    StreamTruth,
    Welcome,
    Writers,
    Written,
)
from tools.journal_generator.participants import StreamTemplate
from tools.journal_generator.payloads import POOL, PayloadPool, PayloadType, spoil_content

_ENDS: Final = frozenset({"stream/close", "stream/complete", "stream/error"})
_OWNERSHIP: Final = frozenset({"stream/write-granted", "stream/write-revoked", "stream/ownership-transferred"})
_ENVELOPE_EVENTS: Final = frozenset({"envelope", "consumed"})


class WriterProgress:
    """What one writer has sent to a stream, and the next payload."""

    __slots__ = ("cursor", "data_due", "frames_due", "sequence", "written")

    def __init__(self, written: Written, cursor: int) -> None:
        self.written = written
        self.cursor = cursor
        self.frames_due = 0.0
        self.data_due = 0.0
        self.sequence = -1
        """Sequence number of the last `stream/data`."""


class OpenStream:
    """An open stream: its ground truth so far and its payloads."""

    def __init__(
        self, truth: StreamTruth, template: StreamTemplate, payload_type: PayloadType, pool: PayloadPool
    ) -> None:
        self.truth = truth
        self.template = template
        self.payload_type = payload_type
        self.stream_id = truth.stream_id
        self.number = 0
        """Number of the last frame or `stream/data`."""
        self.header = frame_header(truth.stream_id)
        self.flows: dict[str, WriterProgress] = {}
        self.delivered_up_to: dict[str, int] = {}
        """By reader: frames up to this number cannot be lost any more."""
        self._pool = pool
        self._messages = pool.messages(self.header) if template.hertz else []

    @property
    def live(self) -> bool:
        """Whether the stream accepts data."""
        return self.truth.started is not None

    @property
    def owner(self) -> str:
        """The current owner."""
        return self.truth.owners[-1].owner

    @property
    def writers(self) -> tuple[str, ...]:
        """The current writers, the owner first."""
        return self.truth.writers[-1].writers

    def flow(self, writer: str, rng: Random) -> WriterProgress:
        """Return the progress of a writer."""
        flow = self.flows.get(writer)
        if flow is None:
            written = self.truth.by_writer[writer] = Written()
            flow = self.flows[writer] = WriterProgress(written, rng.randrange(POOL))
        return flow

    def take(self, flow: WriterProgress, count: int) -> list[bytes]:
        """Return the writer's next frames, up to `POOL`, and count them as accepted."""
        start = flow.cursor
        flow.cursor = (start + count) % POOL
        flow.written.frames += count
        flow.written.bytes += self._pool.size(start, count)
        return self._messages[start : start + count]

    def payload(self, rng: Random) -> bytes:
        """Return the payload of one frame."""
        return rng.choice(self._pool.payloads)

    def content(self, rng: Random, *, fits: bool = True) -> bytes:
        """Return the JSON content of one `stream/data`."""
        payload = self.payload(rng)
        return payload if fits else spoil_content(rng, payload)


class TruthObserver:
    """Derives the ground truth of a space from its records."""

    def __init__(self, truth: SpaceTruth) -> None:
        """Start without any record."""
        self.truth = truth
        self.streams: dict[str, OpenStream] = {}
        """Open streams, in order of creation."""
        self._stays: dict[str, Stay] = {}
        self._conversations: dict[str, Conversation] = {}

    def add_stream(self, stream: OpenStream) -> None:
        """Add a stream that was just opened; only its creator may write."""
        truth = stream.truth
        truth.owners.append(Owner(truth.position, truth.time, truth.creator))
        truth.writers.append(Writers(truth.position, truth.time, (truth.creator,)))
        self.streams[truth.stream_id] = stream
        self.truth.streams[truth.stream_id] = truth

    def add_conversation(self, conversation: Conversation) -> None:
        """Add a conversation that was just started."""
        self.truth.conversations.append(conversation)
        self._conversations[conversation.root] = conversation

    def observe(self, records: Sequence[Record], state: SpaceState) -> None:
        """Add the records of one command; `state` is the state after them."""
        why = "rejoin"
        for record in records:
            self._count(record)
            match record.event:
                case "start":
                    self._start(record)
                case "join":
                    why = self._join(record, state)
                case "leave":
                    self._end_stay(record, record.participant, record.reason)
                case "welcome":
                    self._welcome(record, why)
                case "gap":
                    self._gap(record)
                case "checkpoint":
                    self.truth.checkpoints.append(record.position)
                case "envelope":
                    self._envelope(record)
                    if str(record.kind).startswith("capability/"):
                        why = "capabilities"
        self.truth.invited += [name for name in state.invited if name not in self.truth.invited]

    def _count(self, record: Record) -> None:
        _add(self.truth.events, record.event)
        if record.event in _ENVELOPE_EVENTS:
            _add(self.truth.kinds, str(record.kind))
        elif record.event == "rejected":
            _add(self.truth.refused, str(record.reason))
        elif record.event == "frame_rejected":
            _add(self.truth.refused_frames, str(record.reason))
            if record.stream_id is not None:
                self.truth.streams[record.stream_id].refused += 1

    # Presence

    def _start(self, record: Record) -> None:
        self.truth.starts[_json(record)["epoch"]] = record.position
        for participant in list(self._stays):
            self._end_stay(record, participant, "restart")

    def _join(self, record: Record, state: SpaceState) -> str:
        """Begin or continue a stay, and return why a welcome follows."""
        for stream in self.streams.values():
            stream.delivered_up_to[record.participant] = stream.number
        if record.reason is not None:
            self._stays[record.participant].takeovers.append(record.position)
            return record.reason
        presence = state.present[record.participant]
        stay = self._stays[record.participant] = Stay(
            participant=record.participant,
            transport=presence.transport,
            anonymous=presence.anonymous,
            position=record.position,
            time=record.time,
        )
        self.truth.stays.append(stay)
        return "join"

    def _end_stay(self, record: Record, participant: str, reason: str | None) -> None:
        stay = self._stays.pop(participant)
        stay.left, stay.left_time, stay.reason = record.position, record.time, reason

    def _welcome(self, record: Record, why: str) -> None:
        payload = _json(record)["payload"]
        self.truth.welcomes.append(
            Welcome(
                position=record.position,
                participant=record.participant,
                why=record.reason or why,
                others=[participant["id"] for participant in payload["participants"]],
                streams=[stream["stream_id"] for stream in payload["active_streams"]],
            )
        )

    # Streams and conversations

    def _envelope(self, record: Record) -> None:
        stream = self.streams.get(record.stream_id or "")
        if record.kind == "mcp/proposal-closed":
            self._end_proposal(record)
        elif stream is None:
            return
        elif record.kind == "stream/start":
            stream.truth.started = record.position
        elif record.kind in _OWNERSHIP:
            self._change_ownership(record, stream)
        elif record.kind in _ENDS:
            ended = Ended(record.position, record.time, str(record.kind), record.participant, record.reason)
            stream.truth.ended = ended
            del self.streams[stream.stream_id]

    def _change_ownership(self, record: Record, stream: OpenStream) -> None:
        payload = _json(record)["payload"]
        owner, writers = payload.get("new_owner", stream.owner), tuple(payload["authorized_writers"])
        if owner != stream.owner:
            stream.truth.owners.append(Owner(record.position, record.time, owner))
        if writers != stream.writers:
            stream.truth.writers.append(Writers(record.position, record.time, writers))

    def _end_proposal(self, record: Record) -> None:
        conversation = self._conversations[_json(record)["correlation_id"][0]]
        conversation.positions.append(record.position)
        conversation.kinds.append(str(record.kind))
        conversation.times.append(record.time)
        conversation.outcome = str(record.reason)

    def _gap(self, record: Record) -> None:
        payload = _json(record)
        if record.kind == "stream/data":
            skipped = Skipped(record.position, record.participant, payload["from"], payload["to"])
            self.truth.streams[str(record.stream_id)].skipped.append(skipped)
            return
        payload = payload["payload"]
        lost = (payload["from"], payload["to"], payload["dropped"])
        self.truth.reader_gaps.append(
            ReaderGap(record.position, record.participant, str(record.stream_id), *lost, record.reason)
        )


def _json(record: Record) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(record.payload)
    return decoded


def _add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
