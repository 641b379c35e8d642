"""Model of a space for predictions: participants, streams, owners and writers, and the effects of each change.

It implements the protocol's rules independently of the core, because the core is tested against it.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from mew.protocol import GATEWAY
from mew.protocol.frames import header
from tools.journal_generator.ground_truth import (
    Conversation,
    Ended,
    Owner,
    SpaceTruth,
    Stay,
    StreamTruth,
    Welcome,
    Writers,
    Written,
)
from tools.journal_generator.participants import GRACE_SECONDS, HTTP_SECONDS, StreamTemplate
from tools.journal_generator.payloads import POOL, PayloadPool, PayloadType, spoil_content


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
        self.live = truth.way == "request"
        self.number = 0
        """Number of the last frame or `stream/data`."""
        self.header = header(truth.stream_id)
        self.flows: dict[str, WriterProgress] = {}
        self.delivered_up_to: dict[str, int] = {}
        """By reader: frames up to this number cannot be lost any more."""
        self._pool = pool
        self._messages = pool.messages(self.header) if template.hertz else []

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


SECOND: Final = 1_000_000
GRACE: Final = round(GRACE_SECONDS * SECOND)
SHUTDOWN_DELAY: Final = 5 * SECOND
"""Delay between a shutdown request and the disconnect."""
PROPOSAL_LIFETIME: Final = 300 * SECOND
"""Lifetime of an open proposal; the generated proposals do not request another one."""
HTTP_PRESENCE: Final = round(HTTP_SECONDS * SECOND)
DISCONNECTED: Final = "disconnected"
OWNER_DISCONNECTED: Final = "owner_disconnected"

RecordLine = tuple[str, str, str | None, str | None, str | None]
"""Event, participant, kind, stream id and reason of a record."""


class Prediction:
    """The records that one command must cause, in order."""

    def __init__(self, position: int, time: int) -> None:
        """The first record has this position; all of them have this time."""
        self.time = time
        self.lines: list[RecordLine] = []
        self._next = position

    def expect(
        self,
        event: str,
        participant: str,
        kind: str | None = None,
        stream_id: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Add a record and return its position."""
        self.lines.append((event, participant, kind, stream_id, reason))
        self._next += 1
        return self._next - 1

    def expect_gateway(self, kind: str, stream_id: str | None = None, reason: str | None = None) -> int:
        """Add an envelope that the gateway sends, and return its position."""
        return self.expect("envelope", GATEWAY, kind, stream_id, reason)


class SpaceModel:
    """The state of one space, according to the simulation."""

    def __init__(self, truth: SpaceTruth, known: set[str]) -> None:
        """Start without any participant; `known` are the configured ones."""
        self.truth = truth
        self.known = known
        self.kicked: set[str] = set()
        self.stays: dict[str, Stay] = {}
        """Presence of the current participants, in order of joining."""
        self.connections: dict[str, str] = {}
        self.streams: dict[str, OpenStream] = {}
        """Open streams, in order of creation."""
        self.muted: set[str] = set()
        """Participants that may not send, as of the last tick or pause."""
        self.paused: dict[str, int | None] = {}
        self.closing: dict[str, int] = {}
        self.posting: dict[str, int] = {}
        """When the presence of a participant without a connection times out."""
        self.grants: dict[str, set[str]] = {}
        """Ids of the grants that each participant holds."""
        self.proposals: dict[str, tuple[int, Conversation]] = {}
        """The open proposals by id: when each expires, and its conversation."""
        self._left: dict[str, int] = {}
        self._awaited: set[str] = set()
        self._numbered = 0
        self._names: set[str] = set()

    # Queries

    def is_present(self, participant: str) -> bool:
        """Return whether the participant is present."""
        return participant in self.stays

    def may_speak(self, participant: str) -> bool:
        """Return whether an envelope of the participant can be accepted."""
        return participant in self.stays and participant not in self.muted

    def may_return(self, participant: str) -> bool:
        """Return whether the participant may join with its token."""
        return participant in self.known and participant not in self.kicked

    def writing(self) -> Iterator[tuple[OpenStream, str]]:
        """Yield each live stream with each writer that may send."""
        for stream in self.streams.values():
            if stream.live:
                yield from ((stream, writer) for writer in stream.writers if self.may_speak(writer))

    # Presence

    def start(self, prediction: Prediction, epoch: str) -> None:
        """Start the gateway: no participant is present, and the grace periods of absent owners begin."""
        position = prediction.expect("start", GATEWAY)
        self.truth.starts[epoch] = position
        for participant in list(self.stays):
            self._end_stay(participant, position, prediction.time, "restart")
        self._refresh_mutes(prediction.time)
        writers = {writer for stream in self.streams.values() for writer in stream.writers}
        self._awaited = writers
        self._settle_absent(prediction)

    def enter(self, prediction: Prediction, participant: str, transport: str, *, anonymous: bool = False) -> None:
        """Let a participant join, or take over its own connection."""
        stay = self.stays.get(participant)
        position = prediction.expect("join", participant, reason=None if stay is None else "takeover")
        self.posting.pop(participant, None)
        self._left.pop(participant, None)
        if stay is None:
            stay = Stay(
                participant=participant,
                transport=transport,
                anonymous=anonymous,
                position=position,
                time=prediction.time,
            )
            self.stays[participant] = stay
            self.truth.stays.append(stay)
            self.welcome(prediction, participant, "join")
            prediction.expect_gateway("system/presence")
        else:
            stay.takeovers.append(position)
            self.welcome(prediction, participant, "takeover")
        for stream in self.streams.values():
            stream.delivered_up_to[participant] = stream.number

    def welcome(self, prediction: Prediction, participant: str, why: str) -> None:
        """Expect a welcome with the full state of the space."""
        observer = why == "observer"
        position = prediction.expect("welcome", participant, "system/welcome", reason="observer" if observer else None)
        others = [name for name in self.stays if observer or name != participant]
        self.truth.welcomes.append(
            Welcome(position=position, participant=participant, why=why, others=others, streams=list(self.streams))
        )

    def depart(self, prediction: Prediction, participant: str, reason: str | None) -> None:
        """Let a participant leave: its write access ends, its own streams close or wait for it."""
        position = prediction.expect("leave", participant, reason=reason)
        self._end_stay(participant, position, prediction.time, reason)
        prediction.expect_gateway("system/presence", reason=reason)
        for stream in list(self.streams.values()):
            if participant != stream.owner and participant in stream.writers:
                self.revoke(prediction, stream, participant, DISCONNECTED)
        for stream in list(self.streams.values()):
            if participant == stream.owner:
                self._settle(prediction, stream)

    def _end_stay(self, participant: str, position: int, time: int, reason: str | None) -> None:
        stay = self.stays.pop(participant)
        stay.left, stay.left_time, stay.reason = position, time, reason
        self.connections.pop(participant, None)
        self.closing.pop(participant, None)
        self.posting.pop(participant, None)
        if stay.anonymous:
            self.paused.pop(participant, None)
        else:
            self._left[participant] = time

    def post(self, prediction: Prediction, participant: str) -> None:
        """Make a participant present that sends over HTTP, until its presence times out."""
        if participant not in self.stays:
            self.enter(prediction, participant, "http")
        self.posting[participant] = prediction.time + HTTP_PRESENCE

    def tick(self, prediction: Prediction) -> None:
        """Apply everything that depends on time."""
        now = prediction.time
        self._refresh_mutes(now)
        for participant in [name for name, until in self.closing.items() if until <= now]:
            self.depart(prediction, participant, "shutdown")
        for participant in [name for name, until in self.posting.items() if until <= now]:
            self.depart(prediction, participant, "timeout")
        self._settle_absent(prediction)

    # Proposals

    def propose(self, conversation: Conversation) -> None:
        """Open the proposal that starts a conversation."""
        self.proposals[conversation.root] = conversation.times[0] + PROPOSAL_LIFETIME, conversation

    def is_open(self, proposal: str, now: int) -> bool:
        """Return whether a proposal is open, and stays open for at least another second."""
        return proposal in self.proposals and now + SECOND < self.proposals[proposal][0]

    def has_expired(self, now: int) -> bool:
        """Return whether an open proposal expires by now."""
        return any(expires <= now for expires, _ in self.proposals.values())

    def expire(self, prediction: Prediction) -> None:
        """Close the proposals that expire by now."""
        for proposal, (expires, conversation) in list(self.proposals.items()):
            if expires <= prediction.time:
                del self.proposals[proposal]
                conversation.positions.append(prediction.expect_gateway("mcp/proposal-closed", reason="expired"))
                conversation.kinds.append("mcp/proposal-closed")
                conversation.times.append(prediction.time)
                conversation.outcome = "expired"

    # Membership

    def invite(self, prediction: Prediction, inviter: str, participant: str) -> bool:
        """Return whether the invitation changes anything: known participants that are not kicked can join already."""
        prediction.expect("consumed", inviter, "space/invite")
        known = participant in self.known or participant in self.stays
        if known and participant not in self.kicked:
            prediction.expect_gateway("space/invite-ack")
            return False
        prediction.expect("admin", inviter, reason="token_issued")
        prediction.expect_gateway("space/invite-ack")
        prediction.expect_gateway("system/presence")
        if participant in self.kicked:
            self.kicked.remove(participant)
            self.paused.pop(participant, None)
            self.grants.pop(participant, None)
        self.known.add(participant)
        if participant not in self.truth.invited:
            self.truth.invited.append(participant)
        return True

    def kick(self, prediction: Prediction, by: str, participant: str) -> None:
        """Remove a participant, without a grace period."""
        prediction.expect("consumed", by, "space/kick")
        self.kicked.add(participant)
        if participant in self.stays:
            self.depart(prediction, participant, "kicked")
        self._settle_absent(prediction)

    def pause(self, participant: str, until: int | None) -> None:
        """Pause a participant, or let its pause end at another time."""
        self.paused[participant] = until
        self.muted.add(participant)

    def resume(self, participant: str, now: int) -> None:
        """End the pause of a participant."""
        self.paused.pop(participant, None)
        self._refresh_mutes(now)

    def shut_down(self, participant: str, now: int) -> None:
        """Mute a participant and schedule its disconnect."""
        self.closing[participant] = now + SHUTDOWN_DELAY
        self.muted.add(participant)

    def _refresh_mutes(self, now: int) -> None:
        paused = {name for name, until in self.paused.items() if until is None or now < until}
        self.muted = paused | {name for name, until in self.closing.items() if now < until}

    # Streams

    def new_id(self, desired: str | None) -> str:
        """Return the id of the next stream."""
        if desired is None:
            self._numbered += 1
            return f"stream-{self._numbered}"
        name, suffix = desired, 2
        while name in self._names:
            name, suffix = f"{desired}_{suffix}", suffix + 1
        self._names.add(name)
        return name

    def put(self, stream: OpenStream) -> None:
        """Add a stream; only its creator may write."""
        truth, creator = stream.truth, stream.truth.creator
        truth.owners.append(Owner(truth.position, truth.time, creator))
        truth.writers.append(Writers(truth.position, truth.time, (creator,)))
        self.streams[truth.stream_id] = stream
        self.truth.streams[truth.stream_id] = truth

    def grant(self, prediction: Prediction, stream: OpenStream, participant: str, reason: str | None) -> None:
        """Give a participant write access."""
        position = prediction.expect_gateway("stream/write-granted", stream.stream_id, reason)
        if participant not in stream.writers:
            _set_writers(stream, position, prediction.time, (*stream.writers, participant))

    def revoke(self, prediction: Prediction, stream: OpenStream, participant: str, reason: str | None) -> None:
        """Revoke write access."""
        position = prediction.expect_gateway("stream/write-revoked", stream.stream_id, reason)
        if participant in stream.writers:
            left = tuple(writer for writer in stream.writers if writer != participant)
            _set_writers(stream, position, prediction.time, left)

    def transfer(self, prediction: Prediction, stream: OpenStream, heir: str, reason: str | None) -> None:
        """Change the owner; the former owner loses write access."""
        position = prediction.expect_gateway("stream/ownership-transferred", stream.stream_id, reason)
        if heir == stream.owner:
            return
        others = tuple(writer for writer in stream.writers if writer not in {stream.owner, heir})
        stream.truth.owners.append(Owner(position, prediction.time, heir))
        _set_writers(stream, position, prediction.time, (heir, *others))

    def end(self, stream: OpenStream, ended: Ended) -> None:
        """Remove a stream that has ended."""
        stream.truth.ended = ended
        del self.streams[stream.stream_id]

    def _settle_absent(self, prediction: Prediction) -> None:
        """Apply the end of grace periods: writers that did not return after a restart, and absent owners."""
        self._awaited = {writer for writer in self._awaited if writer not in self.stays}
        gone = {writer for writer in self._awaited if self._is_grace_over(writer, prediction.time)}
        self._awaited -= gone
        for stream in list(self.streams.values()):
            for writer in stream.writers[1:]:
                if writer in gone:
                    self.revoke(prediction, stream, writer, DISCONNECTED)
            if stream.owner not in self.stays:
                self._settle(prediction, stream)

    def _settle(self, prediction: Prediction, stream: OpenStream) -> None:
        """Decide about a stream whose owner is absent: it waits, is transferred, or closes."""
        waits = {
            "keep": self.may_return(stream.owner),
            "transfer": not self._is_grace_over(stream.owner, prediction.time),
            "close": False,
        }
        if waits[stream.truth.policy]:
            return
        heir = next((writer for writer in stream.writers if writer in self.stays), None)
        if heir is None or stream.truth.policy == "close":
            position = prediction.expect_gateway("stream/close", stream.stream_id, OWNER_DISCONNECTED)
            self.end(stream, Ended(position, prediction.time, "stream/close", GATEWAY, OWNER_DISCONNECTED))
        else:
            self.transfer(prediction, stream, heir, OWNER_DISCONNECTED)

    def _is_grace_over(self, participant: str, now: int) -> bool:
        return not self.may_return(participant) or now >= self._left[participant] + GRACE


def _set_writers(stream: OpenStream, position: int, time: int, writers: tuple[str, ...]) -> None:
    stream.truth.writers.append(Writers(position, time, writers))
