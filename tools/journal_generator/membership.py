"""Scenes about who is here and what they may do: comings and goings, grants, invitations, kicks, pauses, refusals.

A scene does something, yields how many seconds pass before it goes on, and looks again who is still there.
"""

from mew.journal.generator import acts, stream_acts
from mew.journal.generator.cast import (
    GRACE_SECONDS,
    GUESTS,
    HOST,
    PILOTS,
    PLANNERS,
    POSITIONS,
    REGULARS,
    SOURCES,
    TOOLS,
    TROLL,
    VISITORS,
    capabilities,
)
from mew.journal.generator.play import Play
from mew.journal.generator.talk import Scene, about, pick, talk

OTHERS = tuple(name for name in REGULARS if name != HOST)


def absence(play: Play) -> Scene:
    """Somebody's connection breaks; it is back in a while."""
    name = pick(play, OTHERS)
    if name is None:
        return
    acts.leave(play, name, play.rng.choice((None, "connection lost", "ping timeout")))
    yield about(play, GRACE_SECONDS)
    come_back(play, name)


def come_back(play: Play, name: str) -> None:
    """Join again, if that is possible and needed."""
    if not play.world.is_present(name) and play.world.may_return(name):
        acts.join(play, name)


def gathering(play: Play) -> Scene:
    """Whoever has been away comes back, whoever was forgotten in a pause may speak, whoever was kicked is forgiven."""
    world = play.world
    for name in [name for name in OTHERS if not world.is_present(name)][:3]:
        come_back(play, name)
        yield about(play, 0.3)
    for name in [name for name, until in world.paused.items() if until is None and name != TROLL]:
        acts.resume(play, name)
        yield about(play, 0.3)
    for name in sorted(world.kicked - {TROLL}):
        acts.invite(play, name, capabilities(name))
        yield about(play, 0.3)
        come_back(play, name)


def takeover(play: Play) -> Scene:
    """Somebody comes by a second socket; the first is closed. Then it asks for its welcome once more."""
    name = pick(play, OTHERS)
    if name is None:
        return
    acts.join(play, name)
    yield about(play, 0.5)
    if play.world.may_speak(name):
        acts.rejoin(play, name)
        other = {"type": "join", "participantId": HOST, "token": play.token(name)}
        acts.talk_nonsense(play, name, acts.encode(other), "invalid_request")


def visit(play: Play) -> Scene:
    """Somebody whom nobody knows walks in, says hello, and goes."""
    absent = [name for name in VISITORS if not play.world.is_present(name)]
    if not absent:
        return
    name = play.rng.choice(absent)
    acts.join(play, name, anonymous=True)
    yield about(play, 1)
    acts.say(play, name, "chat", talk(play))
    acts.be_refused(play, name, "stream/request", {"description": "mine"}, "capability_violation")
    yield about(play, 1)
    acts.leave(play, name)


def granting(play: Play) -> Scene:
    """The host hands on a capability and takes it back; what it allows is used in between."""
    recipient = pick(play, (*SOURCES, *PLANNERS))
    if recipient is None:
        return
    method = f"tools/{play.rng.getrandbits(48):x}"
    capability = {"kind": "mcp/request", "payload": {"method": method}}
    acts.be_refused(play, recipient, "mcp/request", {"method": method}, "capability_violation")
    granted = acts.grant(play, recipient, capability)
    yield about(play, 0.5)
    if recipient in SOURCES and play.world.may_speak(recipient):
        acts.say(play, recipient, "capability/grant-ack", {"status": "accepted"}, correlation_id=[granted.grant_id])
    still = play.world.grants.get(recipient, set())
    if play.world.may_speak(recipient) and granted.grant_id in still:
        acts.say(play, recipient, "mcp/request", {"method": method}, to=[TOOLS[0]])
    yield about(play, 1)
    acts.revoke(play, granted, capability if play.rng.random() < 0.5 else None)


def invitation(play: Play) -> Scene:
    """A guest is invited, comes late, shows something, and goes."""
    name = play.rng.choice(GUESTS)
    acts.invite(play, name, capabilities(name))
    yield about(play, 0.5)
    if play.world.is_present(name) or not play.world.may_return(name):
        return
    acts.join(play, name)
    yield about(play, 0.5)
    if not play.world.may_speak(name):
        return
    acts.say(play, name, "chat", talk(play))
    channel = stream_acts.open_stream(play, name, POSITIONS)
    stream_acts.write(play, channel, name, 5)
    yield about(play, 3)
    if play.world.is_present(name):
        acts.leave(play, name)


def kicking(play: Play) -> Scene:
    """Somebody is thrown out with all that it owns, knocks in vain, and is forgiven."""
    name = pick(play, (*GUESTS, *SOURCES[3:]))
    if name is None:
        return
    acts.kick(play, name)
    acts.be_turned_away(play, name)
    yield about(play, 1)
    if name in play.world.kicked:
        acts.invite(play, name, capabilities(name))
        yield about(play, 0.5)
        come_back(play, name)


def trolling(play: Play) -> Scene:
    """Somebody is invited, sends more than it may, and is thrown out for good."""
    if TROLL in play.world.kicked or play.world.is_present(TROLL):
        return
    acts.invite(play, TROLL)
    yield about(play, 0.5)
    acts.join(play, TROLL)
    acts.flood(play, TROLL, 10)
    yield about(play, 0.5)
    if play.world.is_present(TROLL):
        acts.kick(play, TROLL)


def pausing(play: Play) -> Scene:
    """Somebody is silenced, tries all the same, and may speak again in time or when the host says so."""
    writing = [(channel, writer) for channel, writer in play.world.writing() if writer not in {HOST, TROLL}]
    if not writing:
        return
    channel, name = play.rng.choice(writing)
    seconds = play.rng.choice((None, 1.5))
    acts.pause(play, name, seconds)
    acts.be_refused(play, name, "chat", {"text": "but"}, "paused")
    stream_acts.be_refused(play, name, channel.header + channel.payload(play.rng), channel, "paused")
    yield about(play, 1.5)
    if seconds is None and name in play.world.paused:
        acts.resume(play, name)


def shutting_down(play: Play) -> Scene:
    """Somebody is asked to go, does, and is back after a while."""
    name = pick(play, (*PILOTS[2:], *TOOLS[1:]))
    if name is None:
        return
    acts.shut_down(play, name)
    yield about(play, 0.5)
    if play.world.is_present(name):
        acts.be_refused(play, name, "chat", {"text": "goodbye"}, "paused")
    yield 6.0
    come_back(play, name)


def refusals(play: Play) -> Scene:
    """What is not accepted, one of each."""
    name, tool = pick(play, PILOTS), pick(play, TOOLS)
    if name is None or tool is None:
        return
    acts.be_refused(play, tool, "mcp/request", {"method": "tools/list"}, "capability_violation")
    acts.be_refused(play, name, "chat", {"text": ""}, "invalid_envelope")
    acts.be_refused(play, name, "system/register", {"capabilities": []}, "invalid_request")
    acts.be_refused(play, name, "stream/gap", {"stream_id": "stream-1"}, "reserved_kind")
    yield about(play, 0.5)
    acts.talk_nonsense(play, HOST, b"hello, is this thing on?")
    acts.talk_nonsense(play, HOST, b'{"payload":{"text":"of no kind"}}')
    acts.be_refused(play, HOST, "space/kick", {"participant_id": "nobody"}, "participant_not_found")
    unwritable = {"recipient": tool, "capabilities": [{"kind": "stream/write:stream-1"}]}
    acts.be_refused(play, HOST, "capability/grant", unwritable, "invalid_operation")
    acts.be_refused(play, HOST, "participant/pause", {"timeout_seconds": -1}, "invalid_envelope", to=[tool])
    stream_acts.be_refused(play, HOST, b"#no end", None, "invalid_envelope")
    stream_acts.be_refused(play, HOST, b"#stream-0#nowhere", None, "unauthorized_stream_write")
