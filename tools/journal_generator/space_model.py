"""What a story believes of its space: who is here, who owns and writes what, and what follows when that changes.

The protocol's rules a second time, in the story's own words. Must not ask the core: the core is held against it.
"""

from collections.abc import Iterator
from typing import Final

from mew.journal.generator.cast import GRACE_SECONDS, HTTP_SECONDS
from mew.journal.generator.channel import Channel
from mew.journal.generator.truth import Conversation, Ended, Owner, SpaceTruth, Stay, Welcome, Writers
from mew.protocol import GATEWAY

SECOND: Final = 1_000_000
GRACE: Final = round(GRACE_SECONDS * SECOND)
GOODBYE: Final = 5 * SECOND
"""How long a participant that was shut down stays."""
PROPOSAL: Final = 300 * SECOND
"""The time after which an open proposal expires, because the generator's proposals ask for no other time."""
HTTP_STAY: Final = round(HTTP_SECONDS * SECOND)
DISCONNECTED: Final = "disconnected"
OWNER_DISCONNECTED: Final = "owner_disconnected"

Line = tuple[str, str, str | None, str | None, str | None]
"""Event, participant, kind, stream id and reason of a record."""


class Foretold:
    """The records that must come of one command, in order."""

    def __init__(self, position: int, time: int) -> None:
        """The first of them has this position, all have this time."""
        self.time = time
        self.lines: list[Line] = []
        self._next = position

    def expect(
        self,
        event: str,
        participant: str,
        kind: str | None = None,
        stream_id: str | None = None,
        reason: str | None = None,
    ) -> int:
        """One more record; its position."""
        self.lines.append((event, participant, kind, stream_id, reason))
        self._next += 1
        return self._next - 1

    def say(self, kind: str, stream_id: str | None = None, reason: str | None = None) -> int:
        """An envelope of the gateway's own."""
        return self.expect("envelope", GATEWAY, kind, stream_id, reason)


class World:
    """One space, as the story has it."""

    def __init__(self, truth: SpaceTruth, known: set[str]) -> None:
        """Nobody is here; `known` are configured."""
        self.truth = truth
        self.known = known
        self.kicked: set[str] = set()
        self.stays: dict[str, Stay] = {}
        """Of those who are here, in order of joining."""
        self.connections: dict[str, str] = {}
        self.streams: dict[str, Channel] = {}
        """Those that are open, in order of creation."""
        self.muted: set[str] = set()
        """Who may not speak, as of the last tick or pause."""
        self.paused: dict[str, int | None] = {}
        self.closing: dict[str, int] = {}
        self.posting: dict[str, int] = {}
        """Until when those who have no socket stay."""
        self.grants: dict[str, set[str]] = {}
        """The ids of what each was granted and still has."""
        self.proposals: dict[str, tuple[int, Conversation]] = {}
        """The open proposals by id: when each expires, and its conversation."""
        self._left: dict[str, int] = {}
        self._awaited: set[str] = set()
        self._numbered = 0
        self._names: set[str] = set()

    # Who is who

    def is_present(self, participant: str) -> bool:
        """Whether the participant is here."""
        return participant in self.stays

    def may_speak(self, participant: str) -> bool:
        """Whether what it sends can be accepted."""
        return participant in self.stays and participant not in self.muted

    def may_return(self, participant: str) -> bool:
        """Whether it can come back as itself."""
        return participant in self.known and participant not in self.kicked

    def writing(self) -> Iterator[tuple[Channel, str]]:
        """Who can write where just now."""
        for channel in self.streams.values():
            if channel.live:
                yield from ((channel, writer) for writer in channel.writers if self.may_speak(writer))

    # Coming and going

    def start(self, foretold: Foretold, epoch: str) -> None:
        """The gateway has started: nobody is here, and what waits for owners begins to wait."""
        position = foretold.expect("start", GATEWAY)
        self.truth.starts[epoch] = position
        for participant in list(self.stays):
            self._end_stay(participant, position, foretold.time, "restart")
        self._refresh_mutes(foretold.time)
        writers = {writer for channel in self.streams.values() for writer in channel.writers}
        self._awaited = writers
        self._settle_absent(foretold)

    def enter(self, foretold: Foretold, participant: str, transport: str, *, anonymous: bool = False) -> None:
        """Somebody comes in, or takes its own seat by another connection."""
        stay = self.stays.get(participant)
        position = foretold.expect("join", participant, reason=None if stay is None else "takeover")
        self.posting.pop(participant, None)
        self._left.pop(participant, None)
        if stay is None:
            stay = Stay(
                participant=participant,
                transport=transport,
                anonymous=anonymous,
                position=position,
                time=foretold.time,
            )
            self.stays[participant] = stay
            self.truth.stays.append(stay)
            self.welcome(foretold, participant, "join")
            foretold.say("system/presence")
        else:
            stay.takeovers.append(position)
            self.welcome(foretold, participant, "takeover")
        for channel in self.streams.values():
            channel.told[participant] = channel.number

    def welcome(self, foretold: Foretold, participant: str, why: str) -> None:
        """Somebody is told everything there is to know."""
        observer = why == "observer"
        position = foretold.expect("welcome", participant, "system/welcome", reason="observer" if observer else None)
        others = [name for name in self.stays if observer or name != participant]
        self.truth.welcomes.append(
            Welcome(position=position, participant=participant, why=why, others=others, streams=list(self.streams))
        )

    def depart(self, foretold: Foretold, participant: str, reason: str | None) -> None:
        """Somebody goes: its writing ends, its own streams close or wait."""
        position = foretold.expect("leave", participant, reason=reason)
        self._end_stay(participant, position, foretold.time, reason)
        foretold.say("system/presence", reason=reason)
        for channel in list(self.streams.values()):
            if participant != channel.owner and participant in channel.writers:
                self.revoke(foretold, channel, participant, DISCONNECTED)
        for channel in list(self.streams.values()):
            if participant == channel.owner:
                self._settle(foretold, channel)

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

    def post(self, foretold: Foretold, participant: str) -> None:
        """Somebody without a socket sends something: it is here from now on, for a while."""
        if participant not in self.stays:
            self.enter(foretold, participant, "http")
        self.posting[participant] = foretold.time + HTTP_STAY

    def tick(self, foretold: Foretold) -> None:
        """Time has passed."""
        now = foretold.time
        self._refresh_mutes(now)
        for participant in [name for name, until in self.closing.items() if until <= now]:
            self.depart(foretold, participant, "shutdown")
        for participant in [name for name, until in self.posting.items() if until <= now]:
            self.depart(foretold, participant, "timeout")
        self._settle_absent(foretold)

    # Proposals

    def propose(self, conversation: Conversation) -> None:
        """Open the proposal that begins a conversation."""
        self.proposals[conversation.root] = conversation.times[0] + PROPOSAL, conversation

    def is_open(self, proposal: str, now: int) -> bool:
        """Return whether a proposal is open, and stays open for at least another second."""
        return proposal in self.proposals and now + SECOND < self.proposals[proposal][0]

    def has_expired(self, now: int) -> bool:
        """Return whether an open proposal expires by now."""
        return any(expires <= now for expires, _ in self.proposals.values())

    def expire(self, foretold: Foretold) -> None:
        """Close the proposals that expire by now."""
        for proposal, (expires, conversation) in list(self.proposals.items()):
            if expires <= foretold.time:
                del self.proposals[proposal]
                conversation.positions.append(foretold.say("mcp/proposal-closed", reason="expired"))
                conversation.kinds.append("mcp/proposal-closed")
                conversation.times.append(foretold.time)
                conversation.outcome = "expired"

    # Membership

    def invite(self, foretold: Foretold, inviter: str, participant: str) -> bool:
        """Whether the invitation makes a difference: who is known and not kicked is in already."""
        foretold.expect("consumed", inviter, "space/invite")
        known = participant in self.known or participant in self.stays
        if known and participant not in self.kicked:
            foretold.say("space/invite-ack")
            return False
        foretold.expect("admin", inviter, reason="token_issued")
        foretold.say("space/invite-ack")
        foretold.say("system/presence")
        if participant in self.kicked:
            self.kicked.remove(participant)
            self.paused.pop(participant, None)
            self.grants.pop(participant, None)
        self.known.add(participant)
        if participant not in self.truth.invited:
            self.truth.invited.append(participant)
        return True

    def kick(self, foretold: Foretold, by: str, participant: str) -> None:
        """Somebody is removed, and gets no grace."""
        foretold.expect("consumed", by, "space/kick")
        self.kicked.add(participant)
        if participant in self.stays:
            self.depart(foretold, participant, "kicked")
        self._settle_absent(foretold)

    def pause(self, participant: str, until: int | None) -> None:
        """Somebody is silenced."""
        self.paused[participant] = until
        self.muted.add(participant)

    def resume(self, participant: str, now: int) -> None:
        """And may speak again."""
        self.paused.pop(participant, None)
        self._refresh_mutes(now)

    def shut_down(self, participant: str, now: int) -> None:
        """Somebody has a moment left to say goodbye."""
        self.closing[participant] = now + GOODBYE
        self.muted.add(participant)

    def _refresh_mutes(self, now: int) -> None:
        paused = {name for name, until in self.paused.items() if until is None or now < until}
        self.muted = paused | {name for name, until in self.closing.items() if now < until}

    # Streams

    def new_id(self, desired: str | None) -> str:
        """What the next stream will be called."""
        if desired is None:
            self._numbered += 1
            return f"stream-{self._numbered}"
        name, suffix = desired, 2
        while name in self._names:
            name, suffix = f"{desired}_{suffix}", suffix + 1
        self._names.add(name)
        return name

    def put(self, channel: Channel) -> None:
        """A stream has been opened, its creator's alone."""
        truth, creator = channel.truth, channel.truth.creator
        truth.owners.append(Owner(truth.position, truth.time, creator))
        truth.writers.append(Writers(truth.position, truth.time, (creator,)))
        self.streams[truth.stream_id] = channel
        self.truth.streams[truth.stream_id] = truth

    def grant(self, foretold: Foretold, channel: Channel, participant: str, reason: str | None) -> None:
        """Somebody may write from now on."""
        position = foretold.say("stream/write-granted", channel.stream_id, reason)
        if participant not in channel.writers:
            _set_writers(channel, position, foretold.time, (*channel.writers, participant))

    def revoke(self, foretold: Foretold, channel: Channel, participant: str, reason: str | None) -> None:
        """Somebody may write no longer."""
        position = foretold.say("stream/write-revoked", channel.stream_id, reason)
        if participant in channel.writers:
            left = tuple(writer for writer in channel.writers if writer != participant)
            _set_writers(channel, position, foretold.time, left)

    def transfer(self, foretold: Foretold, channel: Channel, heir: str, reason: str | None) -> None:
        """Another owns the stream; who did writes no more."""
        position = foretold.say("stream/ownership-transferred", channel.stream_id, reason)
        if heir == channel.owner:
            return
        others = tuple(writer for writer in channel.writers if writer not in {channel.owner, heir})
        channel.truth.owners.append(Owner(position, foretold.time, heir))
        _set_writers(channel, position, foretold.time, (heir, *others))

    def end(self, channel: Channel, ended: Ended) -> None:
        """A stream is over."""
        channel.truth.ended = ended
        del self.streams[channel.stream_id]

    def _settle_absent(self, foretold: Foretold) -> None:
        """Whoever was interrupted by a restart and stays away is gone; so are owners whose grace is over."""
        self._awaited = {writer for writer in self._awaited if writer not in self.stays}
        gone = {writer for writer in self._awaited if self._is_grace_over(writer, foretold.time)}
        self._awaited -= gone
        for channel in list(self.streams.values()):
            for writer in channel.writers[1:]:
                if writer in gone:
                    self.revoke(foretold, channel, writer, DISCONNECTED)
            if channel.owner not in self.stays:
                self._settle(foretold, channel)

    def _settle(self, foretold: Foretold, channel: Channel) -> None:
        """A stream's owner is away: it waits, gets another, or ends."""
        waits = {
            "keep": self.may_return(channel.owner),
            "transfer": not self._is_grace_over(channel.owner, foretold.time),
            "close": False,
        }
        if waits[channel.truth.policy]:
            return
        heir = next((writer for writer in channel.writers if writer in self.stays), None)
        if heir is None or channel.truth.policy == "close":
            position = foretold.say("stream/close", channel.stream_id, OWNER_DISCONNECTED)
            self.end(channel, Ended(position, foretold.time, "stream/close", GATEWAY, OWNER_DISCONNECTED))
        else:
            self.transfer(foretold, channel, heir, OWNER_DISCONNECTED)

    def _is_grace_over(self, participant: str, now: int) -> bool:
        return not self.may_return(participant) or now >= self._left[participant] + GRACE


def _set_writers(channel: Channel, position: int, time: int, writers: tuple[str, ...]) -> None:
    channel.truth.writers.append(Writers(position, time, writers))
