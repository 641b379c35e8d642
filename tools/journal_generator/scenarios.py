"""Scenes about streams: how they are opened, shared, handed over, lost and ended, and who is refused.

A scene does something, yields how many seconds pass before it goes on, and looks again what is still open.
"""

from collections.abc import Callable, Sequence
from functools import partial

from mew.journal.generator import acts, stream_acts
from mew.journal.generator.cast import (
    GRACE_SECONDS,
    HOST,
    MOVES,
    PILOTS,
    POSITIONS,
    READINGS,
    SORTS,
    SOURCES,
    WHISPER,
    Sort,
)
from mew.journal.generator.channel import Channel
from mew.journal.generator.membership import OTHERS, come_back
from mew.journal.generator.play import Play
from mew.journal.generator.talk import Scene, about, pick

_WRITERS = (*SOURCES, *PILOTS)
"""Who opens streams and is let in on them."""


def _is_open(play: Play, channel: Channel) -> bool:
    return channel.stream_id in play.world.streams


def _any(play: Play, channels: Sequence[Channel] | None = None) -> Channel | None:
    """A live stream whose owner may act on it."""
    found = [
        channel
        for channel in (play.world.streams.values() if channels is None else channels)
        if channel.live and _is_open(play, channel) and play.world.may_speak(channel.owner)
    ]
    return play.rng.choice(found) if found else None


def _outsider(play: Play, channel: Channel) -> str | None:
    return pick(play, [name for name in _WRITERS if name not in channel.writers])


def opening(play: Play, sort: Sort | None = None) -> Scene:
    """Somebody opens a stream; one that is announced has to be started, and takes nothing before."""
    owner = pick(play, _WRITERS)
    if owner is None:
        return
    sort = sort or play.rng.choice(SORTS)
    present = [name for name in OTHERS if play.world.is_present(name) and name != owner]
    targets = tuple(play.rng.sample(present, min(3, len(present)))) if sort.targeted else ()
    if sort.targeted and not targets:
        return
    version = sum(each.way == "announce" for each in play.truth.streams.values())
    channel = stream_acts.open_stream(play, owner, sort, version=version, targets=targets)
    yield from _begin(play, channel)
    if sort.hertz and _any(play, [channel]):
        stream_acts.write(play, channel, channel.owner, 3, spoilt=True)
    if sort.data_hertz and _any(play, [channel]):
        stream_acts.write_data(play, channel, channel.owner)
    if play.rng.random() < 0.6:
        yield about(play, 0.5)
        yield from sharing(play, channel)


def _begin(play: Play, channel: Channel) -> Scene:
    """Start what has been announced."""
    if channel.live:
        return
    yield about(play, 0.3)
    if _is_open(play, channel) and play.world.may_speak(channel.owner):
        early = channel.header + channel.payload(play.rng)
        stream_acts.be_refused(play, channel.owner, early, channel, "stream_not_live")
        stream_acts.start(play, channel)


def sharing(play: Play, channel: Channel | None = None) -> Scene:
    """The owner lets others write, and takes it back from one of them, who goes on for a while."""
    shared = channel if channel is not None and _any(play, [channel]) else _any(play)
    if shared is None or len(shared.writers) > 4:
        return
    for _ in range(play.rng.randrange(1, 4)):
        other = _outsider(play, shared)
        if other is None or not _any(play, [shared]):
            break
        stream_acts.grant_write(play, shared, other, play.rng.choice((None, "takes the controls")))
        yield about(play, 0.5)
    yield about(play, 4)
    if _any(play, [shared]) and len(shared.writers) > 1:
        unwanted = play.rng.choice(shared.writers[1:])
        stream_acts.revoke_write(play, shared, unwanted, play.rng.choice((None, "thank you")))
        if play.world.may_speak(unwanted):
            stream_acts.trespass(play, unwanted, shared, play.rng.randrange(1, 6))


def handover(play: Play) -> Scene:
    """The owner hands a stream over, goes on writing in vain, and is let in again."""
    channel = _any(play)
    if channel is None:
        return
    former, heir = channel.owner, pick(play, [name for name in _WRITERS if name != channel.owner])
    if heir is None:
        return
    stream_acts.transfer(play, channel, heir, play.rng.choice((None, "end of shift")))
    stream_acts.trespass(play, former, channel, play.rng.randrange(1, 4))
    payload = {"stream_id": channel.stream_id, "participant_id": former}
    acts.be_refused(play, former, "stream/grant-write", payload, "unauthorized")
    yield about(play, 1)
    if _any(play, [channel]) and play.world.is_present(former):
        stream_acts.grant_write(play, channel, former)


def desertion(play: Play) -> Scene:
    """Somebody who may write to another's stream goes without a word."""
    channel = _any(play)
    deserter = None if channel is None else _outsider(play, channel)
    if channel is None or deserter is None:
        return
    stream_acts.grant_write(play, channel, deserter)
    yield about(play, 0.5)
    if play.world.is_present(deserter):
        acts.leave(play, deserter, "ping timeout")
    yield about(play, 3)
    come_back(play, deserter)


def ending(play: Play, kind: str | None = None) -> Scene:
    """A stream comes to its end, by its owner or by the host."""
    channel = _any(play)
    if channel is None:
        return
    if kind is None and play.rng.random() < 0.2:
        stream_acts.end(play, channel, HOST, "stream/close", "cleaning up")
        return
    kind = kind or play.rng.choice(("stream/complete", "stream/close", "stream/close", "stream/error"))
    stream_acts.end(play, channel, channel.owner, kind, "done" if kind == "stream/close" else None)
    yield about(play, 0.2)
    if play.world.may_speak(channel.owner):
        stream_acts.be_refused(play, channel.owner, channel.header + b"too late", None, "unauthorized_stream_write")


def renewal(play: Play) -> Scene:
    """A movement ends, and another takes its name with another schema: an id of its own, the same format id."""
    for version in (0, 1):
        owner = pick(play, SOURCES)
        if owner is None:
            return
        channel = stream_acts.open_stream(play, owner, MOVES, version=version)
        stream_acts.start(play, channel)
        for _ in range(4):
            stream_acts.write(play, channel, owner, 4, spoilt=True)
        stream_acts.write_data(play, channel, owner, fits=False)
        yield about(play, 0.4)
        if version == 0 and _any(play, [channel]):
            stream_acts.end(play, channel, channel.owner, "stream/complete")


def orphaning(play: Play, sort: Sort, *, seconds: float, shared: bool) -> Scene:
    """An owner's connection breaks: the stream closes, waits for it, or finds another owner."""
    owner = pick(play, SOURCES)
    if owner is None:
        return
    channel = stream_acts.open_stream(play, owner, sort)
    if not channel.live:
        stream_acts.start(play, channel)
    heirs = [_outsider(play, channel), HOST] if shared else []
    for heir in filter(None, heirs):
        stream_acts.grant_write(play, channel, heir)
    yield 1.0
    if play.world.is_present(owner):
        _lose_all(play, owner)
        acts.leave(play, owner, "connection lost")
    yield seconds
    come_back(play, owner)


def orphanings() -> list[Callable[[Play], Scene]]:
    """Each policy, with an owner that comes back in time and one that does not, with an heir and without."""
    closes = next(sort for sort in SORTS if sort.policy == "close" and not sort.targeted)
    late, soon = GRACE_SECONDS + 2, GRACE_SECONDS / 3
    return [
        partial(orphaning, sort=closes, seconds=soon, shared=True),
        partial(orphaning, sort=READINGS, seconds=late, shared=True),
        partial(orphaning, sort=POSITIONS, seconds=late, shared=True),
        partial(orphaning, sort=MOVES, seconds=late, shared=False),
        partial(orphaning, sort=MOVES, seconds=soon, shared=True),
    ]


def _lose_all(play: Play, reader: str) -> None:
    """What waited for a reader that is about to go, it never gets."""
    for channel in list(play.world.streams.values()):
        waiting = min(stream_acts.losable(channel, reader), play.rng.randrange(1, 60))
        if waiting > 0 and reader != channel.owner:
            stream_acts.lose(play, channel, reader, waiting, gone=True)
            return


def slowness(play: Play) -> Scene:
    """A reader is too slow for some streams, is told what it lost, and keeps up again or goes."""
    reader = pick(play, OTHERS)
    if reader is None:
        return
    slow = [channel for channel in play.world.streams.values() if stream_acts.losable(channel, reader) > 0]
    for channel in slow[: play.rng.randrange(1, 6)]:
        lost = min(stream_acts.losable(channel, reader), play.rng.randrange(1, 400))
        stream_acts.lose(play, channel, reader, lost)
    yield about(play, 1)
    if play.world.is_present(reader) and play.rng.random() < 0.3:
        _lose_all(play, reader)
        acts.leave(play, reader, "connection lost")
        yield about(play, 2)
        come_back(play, reader)


def refused_data(play: Play) -> Scene:
    """Data that is not accepted, for each of the reasons there are."""
    owner = pick(play, _WRITERS)
    if owner is None:
        return
    channel = stream_acts.open_stream(play, owner, READINGS)
    stream_acts.start(play, channel)
    for skip in (3, 0, 4):
        stream_acts.write_data(play, channel, owner, skip=skip)
    payload, sequence = stream_acts.data(play, channel, 0), channel.flows[owner].sequence
    for reason, changes in (
        ("sequence_out_of_order", {}),
        ("unknown_format", {"sequence": sequence + 1, "format_id": "movement/9d"}),
        ("schema_violation", {**stream_acts.data(play, channel, sequence + 1, fits=False)}),
        ("stream_not_found", {"stream": {"stream_id": "gone"}}),
        ("invalid_envelope", {"sequence": True}),
    ):
        acts.be_refused(play, owner, "stream/data", {**payload, **changes}, reason)
    acts.be_refused(play, HOST, "stream/data", payload, "unauthorized_stream_write")
    yield about(play, 0.3)
    if _any(play, [channel]) and channel.owner == owner:
        absent = {"stream_id": channel.stream_id, "participant_id": "nobody"}
        acts.be_refused(play, owner, "stream/grant-write", absent, "participant_not_found")
        acts.be_refused(play, owner, "stream/request", {"target": ["nobody"]}, "target_not_found")
        acts.be_refused(play, owner, "stream/announce", {"formats": []}, "invalid_format")
        own = {"stream_id": channel.stream_id, "participant_id": owner}
        acts.be_refused(play, owner, "stream/revoke-write", own, "invalid_operation")
        stream_acts.end(play, channel, owner, "stream/close", "tried everything")


def pretending(play: Play) -> Scene:
    """Envelopes that look as if they changed a stream, and do not."""
    channel = _any(play)
    if channel is None:
        return
    named = {"stream_id": channel.stream_id}
    acts.say(play, HOST, "stream/open", {**named, "owner": HOST}, stream_id=channel.stream_id)
    acts.say(play, HOST, "stream/quality", {**named, "loss": 0.01}, stream_id=channel.stream_id)
    acts.say(play, HOST, "stream/close", {"stream_id": "stream-0", "reason": "never was"})
    yield about(play, 0.2)
    if _any(play, [channel]):
        stream_acts.transfer(play, channel, channel.owner)
        stream_acts.grant_write(play, channel, channel.owner)


def whisper(play: Play) -> Scene:
    """A stream for a few alone."""
    yield from opening(play, WHISPER)
