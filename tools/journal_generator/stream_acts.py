"""What participants do with streams in a story: open, write, hand over, end; and what readers lose.

Each act is one message, or one run of frames, and knows what must come of it. Decides nothing.
"""

from typing import Any

import msgspec

from mew.journal.generator import acts, material
from mew.journal.generator.cast import Sort
from mew.journal.generator.channel import Channel
from mew.journal.generator.play import Play
from mew.journal.generator.truth import Ended, Malformed, ReaderGap, Skipped, StreamTruth
from mew.journal.generator.world import DISCONNECTED
from mew.protocol import ReportLoss

# The life of a stream


def open_stream(play: Play, owner: str, sort: Sort, *, version: int = 0, targets: tuple[str, ...] = ()) -> Channel:
    """Request a stream, or announce one; `version` tells which movement is meant."""
    matter = sort.matter or material.movement(play.index, version)
    payload: dict[str, Any] = dict(sort.request)
    if matter.formats:
        payload["formats"] = list(matter.formats)
    if targets:
        payload["target"] = list(targets)
    foretold = play.foretell()
    foretold.expect("envelope", owner, f"stream/{sort.way}")
    stream_id = play.world.new_id(sort.request.get("desired_id"))
    kind = "stream/open" if sort.way == "request" else "stream/ready"
    truth = StreamTruth(
        stream_id=stream_id,
        creator=owner,
        way=sort.way,
        position=foretold.say(kind, stream_id),
        time=foretold.time,
        policy=sort.policy,
        formats=list(matter.formats),
        targets=targets or None,
    )
    truth.started = truth.position if sort.way == "request" else None
    channel = Channel(truth, sort, matter, play.pool(matter))
    play.world.put(channel)
    play.receive(owner, play.compose(owner, f"stream/{sort.way}", payload)[1], foretold)
    return channel


def start(play: Play, channel: Channel) -> None:
    """The owner says that data follow."""
    sent = acts.say(
        play,
        channel.owner,
        "stream/start",
        _named(play, channel),
        stream_id=channel.stream_id,
        **_context(play, channel),
    )
    channel.truth.started, channel.live = sent.position, True


def end(play: Play, channel: Channel, by: str, kind: str, reason: str | None = None) -> None:
    """The owner, or who may end any stream, ends it."""
    payload: dict[str, Any] = _named(play, channel)
    if kind == "stream/error":
        payload |= {"code": "sensor_lost", "message": "the sensor does not answer"}
    if reason is not None:
        payload["reason"] = reason
    foretold = play.foretell()
    position = foretold.expect("envelope", by, kind, channel.stream_id, reason)
    play.world.end(channel, Ended(position, foretold.time, kind, by, reason))
    play.receive(by, play.compose(by, kind, payload, **_context(play, channel))[1], foretold)


def _named(play: Play, channel: Channel) -> dict[str, Any]:
    return {"stream": {"stream_id": channel.stream_id, "namespace": f"{play.name}/{channel.stream_id}"}}


def _context(play: Play, channel: Channel) -> dict[str, str]:
    return {"context": f"{play.name}/{channel.stream_id}"}


# Ownership


def grant_write(play: Play, channel: Channel, participant: str, reason: str | None = None) -> None:
    """The owner lets another write."""
    foretold = play.foretell()
    foretold.expect("consumed", channel.owner, "stream/grant-write", channel.stream_id)
    message = _ask(play, channel, "stream/grant-write", reason, participant_id=participant)
    owner = channel.owner
    play.world.grant(foretold, channel, participant, reason)
    play.receive(owner, message, foretold)


def revoke_write(play: Play, channel: Channel, participant: str, reason: str | None = None) -> None:
    """The owner lets another write no more."""
    foretold = play.foretell()
    foretold.expect("consumed", channel.owner, "stream/revoke-write", channel.stream_id)
    message = _ask(play, channel, "stream/revoke-write", reason, participant_id=participant)
    play.world.revoke(foretold, channel, participant, reason)
    play.receive(channel.owner, message, foretold)


def transfer(play: Play, channel: Channel, heir: str, reason: str | None = None) -> None:
    """The owner hands the stream over."""
    foretold, owner = play.foretell(), channel.owner
    foretold.expect("consumed", owner, "stream/transfer-ownership", channel.stream_id)
    message = _ask(play, channel, "stream/transfer-ownership", reason, new_owner=heir)
    play.world.transfer(foretold, channel, heir, reason)
    play.receive(owner, message, foretold)


def _ask(play: Play, channel: Channel, kind: str, reason: str | None, **what: str) -> bytes:
    payload = {"stream_id": channel.stream_id, **what} | ({} if reason is None else {"reason": reason})
    return play.compose(channel.owner, kind, payload)[1]


# Data


def write(play: Play, channel: Channel, writer: str, count: int, *, spoilt: bool = False) -> None:
    """So many frames in a row; one of them may not be what was announced."""
    flow, rng = channel.flow(writer, play.rng), play.rng
    spoil = channel.matter.spoil if spoilt else None
    if spoil is None:
        play.frames(channel, writer, channel.take(flow, count))
        return
    ahead = rng.randrange(count)
    payload, why = spoil(rng, channel.payload(rng), len(channel.truth.malformed))
    channel.truth.malformed.append(Malformed(channel.number + ahead + 1, play.written + ahead, why))
    flow.written.frames += 1
    flow.written.bytes += len(payload)
    messages = [*channel.take(flow, ahead), channel.header + payload, *channel.take(flow, count - ahead - 1)]
    play.frames(channel, writer, messages)


def write_data(play: Play, channel: Channel, writer: str, *, skip: int = 0, fits: bool = True) -> None:
    """One `stream/data`; its number may leave some out, its content may not be what was announced."""
    flow = channel.flow(writer, play.rng)
    last, sequence = flow.sequence, flow.sequence + 1 + skip
    foretold = play.foretell()
    if skip and last >= 0:
        position = foretold.expect("gap", writer, "stream/data", channel.stream_id, "skipped")
        channel.truth.skipped.append(Skipped(position, writer, last + 1, sequence - 1))
    position = foretold.expect("envelope", writer, "stream/data", channel.stream_id)
    if not fits:
        channel.truth.malformed.append(Malformed(channel.number + 1, position, material.SCHEMA))
    payload = data(play, channel, sequence, fits=fits)
    message = play.compose(writer, "stream/data", payload, **_context(play, channel))[1]
    flow.sequence = sequence
    channel.number += 1
    flow.written.data += 1
    flow.written.bytes += len(message)
    play.receive(writer, message, foretold)


def data(play: Play, channel: Channel, sequence: int, *, fits: bool = True) -> dict[str, Any]:
    """The payload of a `stream/data`."""
    format_ids = channel.truth.format_ids[:1]
    content = msgspec.Raw(channel.content(play.rng, fits=fits))
    named: dict[str, Any] = {"format_id": format_ids[0]} if format_ids else {}
    return {**_named(play, channel), "sequence": sequence, **named, "content": content}


def be_refused(play: Play, writer: str, message: bytes, channel: Channel | None, reason: str) -> None:
    """A frame that is not accepted."""
    foretold = play.foretell()
    foretold.expect("frame_rejected", writer, None, None if channel is None else channel.stream_id, reason)
    play.receive(writer, message, foretold, text=False)


def trespass(play: Play, writer: str, channel: Channel, count: int) -> None:
    """Frames of somebody who may not write there."""
    for _ in range(count):
        message = channel.header + channel.payload(play.rng)
        be_refused(play, writer, message, channel, "unauthorized_stream_write")


# Readers


def losable(channel: Channel, reader: str) -> int:
    """How many of the latest frames a reader may not have got yet."""
    if channel.truth.targets is not None and reader not in channel.truth.targets:
        return 0
    return channel.number - channel.told.get(reader, 0)


def lose(play: Play, channel: Channel, reader: str, lost: int, *, gone: bool = False) -> None:
    """A reader was too slow for the latest frames, or is about to go without them."""
    rng, reason = play.rng, DISCONNECTED if gone else None
    last = channel.number - (0 if gone else rng.randrange(min(4, losable(channel, reader) - lost + 1)))
    first = last - lost + 1
    dropped = lost if lost < 8 or rng.random() < 0.7 else lost - rng.randrange(1, lost // 2)
    channel.told[reader] = last
    foretold = play.foretell()
    position = foretold.expect("gap", reader, "stream/gap", channel.stream_id, reason)
    play.truth.reader_gaps.append(ReaderGap(position, reader, channel.stream_id, first, last, dropped, reason))
    lose = ReportLoss(
        participant=reader, stream_id=channel.stream_id, first=first, last=last, dropped=dropped, reason=reason
    )
    play.run(lose, foretold)
