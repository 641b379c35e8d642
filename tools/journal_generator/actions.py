"""What participants do in a story: each act sends one message, and knows what must come of it.

Decides nothing about who does what, or when. Streams have acts of their own (`stream_acts`).
"""

from typing import Any

import msgspec

from mew.journal.generator import cast
from mew.journal.generator.play import Play, Sent
from mew.journal.generator.truth import Granted
from mew.journal.generator.world import Foretold
from mew.protocol import Join, Leave, Receive
from mew.protocol.timestamps import SECOND

encode = msgspec.json.encode

# Coming and going


def join(play: Play, participant: str, *, anonymous: bool = False) -> None:
    """Come in by a new socket; who is here already takes its own place."""
    connection, foretold = play.new_connection(), play.foretell()
    play.world.enter(foretold, participant, "websocket", anonymous=anonymous)
    play.world.connections[participant] = connection
    join = Join(connection=connection, participant=participant, anonymous=anonymous, cause=(f"hello-{connection}",))
    play.run(join, foretold)


def observe(play: Play, name: str) -> str:
    """Look on; the connection."""
    connection, foretold = play.new_connection(), play.foretell()
    play.world.welcome(foretold, name, "observer")
    play.run(Join(connection=connection, participant=name, observer=True), foretold)
    return connection


def speak_unasked(play: Play, name: str, connection: str) -> None:
    """An observer says something."""
    foretold = play.foretell()
    foretold.expect("rejected", name, "chat", reason="capability_violation")
    play.run(Receive(connection, play.compose(name, "chat", {"text": "may I?"})[1]), foretold)


def stop_observing(play: Play, connection: str) -> None:
    """Nobody notices."""
    play.run(Leave(connection), play.foretell())


def leave(play: Play, participant: str, reason: str | None = None) -> None:
    """Close the socket, or lose it."""
    connection, foretold = play.world.connections[participant], play.foretell()
    play.world.depart(foretold, participant, reason)
    play.run(Leave(connection, reason), foretold)


def rejoin(play: Play, participant: str) -> None:
    """Ask for a welcome once more, with a token that must not be recorded."""
    foretold = play.foretell()
    play.world.welcome(foretold, participant, "rejoin")
    payload = {"space": play.name, "token": play.token(participant), "participantId": participant}
    play.receive(participant, play.compose(participant, "system/join", payload)[1], foretold)


# Saying something


def say(play: Play, sender: str, kind: str, payload: Any, **more: Any) -> Sent:
    """Send an envelope that is relayed; `more` are `to`, `correlation_id`, `context`, and the `stream_id` on record."""
    stream_id = more.pop("stream_id", None)
    foretold = play.foretell()
    position = foretold.expect("envelope", sender, kind, stream_id)
    envelope_id, message = play.compose(sender, kind, payload, **more)
    play.receive(sender, message, foretold)
    return Sent(envelope_id, message, position, foretold.time)


def beat(play: Play, sender: str) -> None:
    """Show that one is alive."""
    foretold = play.foretell()
    foretold.expect("consumed", sender, "system/heartbeat")
    play.receive(sender, play.compose(sender, "system/heartbeat", {})[1], foretold)


def post(play: Play, sender: str, kind: str, payload: Any, **more: Any) -> Sent:
    """Say something over HTTP."""
    foretold = play.foretell()
    play.world.post(foretold, sender)
    position = foretold.expect("envelope", sender, kind)
    envelope_id, message = play.compose(sender, kind, payload, **more)
    play.post(sender, message, foretold)
    return Sent(envelope_id, message, position, foretold.time)


def be_refused(play: Play, sender: str, kind: str, payload: Any, reason: str, **more: Any) -> None:
    """Send what is not accepted."""
    foretold = play.foretell()
    foretold.expect("rejected", sender, kind, reason=reason)
    play.receive(sender, play.compose(sender, kind, payload, **more)[1], foretold)


def talk_nonsense(play: Play, sender: str, message: bytes, reason: str = "invalid_envelope") -> None:
    """Send what is no envelope at all."""
    foretold = play.foretell()
    foretold.expect("rejected", sender, reason=reason)
    play.receive(sender, message, foretold)


def flood(play: Play, sender: str, beyond: int) -> None:
    """Send all that may be sent at once, and more; the sender has sent nothing yet."""
    now = play.now
    for number in range(cast.BURST + beyond):
        foretold = play.foretell()
        foretold.time = play.now = now
        if number < cast.BURST:
            foretold.expect("consumed", sender, "system/heartbeat")
        else:
            foretold.expect("rejected", sender, reason="rate_limited")
        play.receive(sender, play.compose(sender, "system/heartbeat", {})[1], foretold)


# Who may what


def grant(play: Play, recipient: str, capability: dict[str, Any]) -> Granted:
    """The host hands on a capability that nobody else has."""
    foretold, world = play.foretell(), play.world
    position = foretold.expect("envelope", cast.HOST, "capability/grant")
    payload = {"recipient": recipient, "capabilities": [capability], "reason": "for this shift"}
    grant_id, message = play.compose(cast.HOST, "capability/grant", payload)
    _foretell_change(play, foretold, recipient, changed=True)
    world.grants.setdefault(recipient, set()).add(grant_id)
    granted = Granted(grant_id, cast.HOST, recipient, position)
    play.truth.grants.append(granted)
    play.receive(cast.HOST, message, foretold)
    return granted


def revoke(play: Play, granted: Granted, capability: dict[str, Any] | None) -> None:
    """And takes it back: by the grant's id, or by what was granted."""
    foretold, world = play.foretell(), play.world
    position = foretold.expect("envelope", cast.HOST, "capability/revoke")
    what = {"grant_id": granted.grant_id} if capability is None else {"capabilities": [capability]}
    message = play.compose(cast.HOST, "capability/revoke", {"recipient": granted.recipient, **what})[1]
    held = world.grants.get(granted.recipient, set())
    _foretell_change(play, foretold, granted.recipient, changed=granted.grant_id in held)
    if granted.grant_id in held:
        held.remove(granted.grant_id)
        granted.revoked = position
    play.receive(cast.HOST, message, foretold)


def _foretell_change(play: Play, foretold: Foretold, recipient: str, *, changed: bool) -> None:
    if play.world.is_present(recipient):
        play.world.welcome(foretold, recipient, "capabilities")
        if changed:
            foretold.say("system/presence")


def invite(play: Play, participant: str, capabilities: list[dict[str, Any]] | None = None) -> bool:
    """The host lets somebody in; whether that changes anything."""
    foretold = play.foretell()
    changes = play.world.invite(foretold, cast.HOST, participant)
    payload: dict[str, Any] = {"participant_id": participant}
    if capabilities is not None:
        payload["initial_capabilities"] = capabilities
    play.receive(cast.HOST, play.compose(cast.HOST, "space/invite", payload)[1], foretold)
    return changes


def kick(play: Play, participant: str) -> None:
    """The host throws somebody out."""
    foretold = play.foretell()
    play.world.kick(foretold, cast.HOST, participant)
    payload = {"participant_id": participant, "reason": "enough"}
    play.receive(cast.HOST, play.compose(cast.HOST, "space/kick", payload)[1], foretold)


def be_turned_away(play: Play, participant: str) -> None:
    """Try to come in although kicked: nothing is recorded."""
    play.run(Join(connection=play.new_connection(), participant=participant), play.foretell())


def pause(play: Play, participant: str, seconds: float | None) -> None:
    """The host silences somebody, for a time or until further notice."""
    payload = {"reason": "listen"} if seconds is None else {"timeout_seconds": seconds}
    sent = say(play, cast.HOST, "participant/pause", payload, to=[participant])
    play.world.pause(participant, None if seconds is None else sent.time + round(seconds * SECOND))


def resume(play: Play, participant: str) -> None:
    """The host lets somebody speak again."""
    sent = say(play, cast.HOST, "participant/resume", {}, to=[participant])
    play.world.resume(participant, sent.time)


def shut_down(play: Play, participant: str) -> None:
    """The host asks somebody to go; it has a moment to say goodbye."""
    sent = say(play, cast.HOST, "participant/shutdown", {"reason": "maintenance"}, to=[participant])
    play.world.shut_down(participant, sent.time)
