"""The reference model: the protocol's rules a second time, on plain dicts and lists.

The core is compared with it, so it must not use `mew.protocol`. Time is in whole seconds.
"""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

GRACE = 60
HTTP_PRESENCE = 60
GOODBYE = 5
BASELINE = "mcp/response"
MANAGES = {"stream/manage", "*", "**"}
"""Kinds of capabilities that permit ending the streams of others."""
VALUES_IN_A_CAPABILITY = 2
"""`{"kind": …}`: the object and its one value."""
PASS_WHILE_PAUSED = {"stream/close", "stream/complete", "stream/error", "participant/resume", "participant/shutdown"}
EVERY_SORT_OF_KIND = [
    *("chat", "mcp/response", "mcp/request", "space/invite", "space/kick", "capability/grant", "capability/revoke"),
    *("stream/request", "stream/announce", "stream/manage", "stream/close", "stream/data", "stream/of/another/kind"),
    *("participant/pause", "participant/resume", "participant/shutdown", "of/another/kind", "other"),
]


class Rejected(Exception):
    """The request is rejected with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def fits(pattern: str, kind: str) -> bool:
    """Whether the kind of a capability allows a kind (protocol §3)."""
    if pattern.startswith("!"):
        return not fits(pattern[1:], kind)
    if pattern in {"*", "**"}:
        return True
    if pattern.endswith("/*"):
        return kind.startswith(pattern[:-1])
    return pattern == kind


def covers(wider: str, narrower: str) -> bool:
    """Whether the first kind pattern allows every kind that the second allows: by trying each kind."""
    return all(fits(wider, kind) for kind in EVERY_SORT_OF_KIND if fits(narrower, kind))


class Model:
    """The participants, streams and permissions of a space, as the protocol defines them."""

    def __init__(self, configured: dict[str, list[str] | None], logs: set[str], limits: dict[str, int]) -> None:
        self.now = 0
        self.configured = configured
        self.logs = logs
        self.limits = limits
        self.seats: dict[str, str] = {}
        """`socket`, `http` or `log` of each participant present, in order of joining."""
        self.anonymous: set[str] = set()
        self.invited: dict[str, list[str] | None] = {}
        self.kicked: set[str] = set()
        self.grants: dict[str, list[tuple[str, str]]] = {}
        self.revoked: dict[str, set[str]] = {}
        self.paused: dict[str, int | None] = {}
        self.closing: dict[str, int] = {}
        self.http_until: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.streams: dict[str, dict[str, Any]] = {}
        self.ended: list[str] = []
        self.numbered = 0
        self.names_used: set[str] = set()
        self.announced: list[tuple[Any, ...]] = []
        """The gateway's messages to more than one participant, in order."""

    # Participants

    def knows(self, who: str) -> bool:
        return who in self.configured or who in self.invited or who in self.seats

    def has_token(self, who: str) -> bool:
        return who in self.configured or who in self.invited

    def may_return(self, who: str) -> bool:
        return self.has_token(who) and who not in self.kicked

    def is_muted(self, who: str) -> bool:
        if who in self.paused:
            until = self.paused[who]
            if until is None or self.now < until:
                return True
        return who in self.closing and self.now < self.closing[who]

    def base(self, who: str) -> list[str]:
        kinds = self.invited[who] if who in self.invited else self.configured.get(who)
        return ["chat"] if kinds is None else kinds

    def holds(self, who: str) -> list[str]:
        """The kinds of the effective capabilities, in order."""
        base = [kind for kind in self.base(who) if kind not in self.revoked.get(who, set())]
        granted = [kind for _, kind in self.grants.get(who, [])]
        listed: list[str] = []
        for kind in [*base, BASELINE, *granted]:
            listed += [kind, "**"] if kind == "*" else [kind]
        return list(dict.fromkeys(listed))

    def require(self, who: str, kind: str, *also: str) -> None:
        """Check the pause, then the capability: the order of protocol §1."""
        self.require_voice(who, kind)
        if not any(fits(pattern, allowed) for pattern in self.holds(who) for allowed in (kind, *also)):
            raise Rejected("capability_violation")

    def require_voice(self, who: str, kind: str) -> None:
        if self.is_muted(who) and kind not in PASS_WHILE_PAUSED:
            raise Rejected("paused")

    # Joining and leaving

    def join(self, who: str, *, anonymous: bool = False) -> None:
        if who in self.kicked:
            raise Rejected("unauthorized")
        self._sit(who, "socket", anonymous=anonymous)

    def appear(self, who: str) -> None:
        """Become present by a post or a poll."""
        if who in self.kicked:
            raise Rejected("unauthorized")
        if who not in self.seats:
            self._sit(who, "log" if who in self.logs else "http")
        if self.seats[who] == "http":
            self.http_until[who] = self.now + HTTP_PRESENCE

    def over_http(self, who: str, rule: Callable[[], T]) -> T:
        """A post makes its sender present, even if it is rejected."""
        self.appear(who)
        return rule()

    def attach(self, who: str) -> None:
        if who not in self.seats and who not in self.kicked:
            self._sit(who, "log")

    def _sit(self, who: str, seat: str, *, anonymous: bool = False) -> None:
        if who not in self.seats:
            self.announced.append(("join", who))
        if anonymous:
            self.anonymous.add(who)
        if who in self.closing and self.closing[who] <= self.now:
            del self.closing[who]
        self.seats[who] = seat
        self.http_until.pop(who, None)
        self.left.pop(who, None)

    def leave(self, who: str) -> None:
        if who in self.logs and self.seats[who] != "log" and who not in self.kicked:
            self.seats[who] = "log"
            return
        self._vanish(who)
        self.announced.append(("leave", who))
        for stream_id, stream in self.streams.items():
            if who in stream["writers"] and who != stream["owner"]:
                self._unwrite(stream_id, who)
        for stream_id in [stream_id for stream_id, stream in self.streams.items() if stream["owner"] == who]:
            self._settle(stream_id)

    def _vanish(self, who: str) -> None:
        del self.seats[who]
        self.http_until.pop(who, None)
        self.closing.pop(who, None)
        if who in self.anonymous:
            self.anonymous.remove(who)
            for table in (self.grants, self.revoked, self.paused):
                table.pop(who, None)
        else:
            self.left[who] = self.now

    def restart(self) -> None:
        for who in list(self.seats):
            self._vanish(who)
        self._settle_all()

    def tick(self) -> None:
        for who in [name for name, until in self.closing.items() if until <= self.now]:
            if self.seats[who] != "log":
                self.leave(who)
        for who in [name for name, until in self.http_until.items() if until <= self.now]:
            self.leave(who)
        self._settle_all()

    def _grace_is_over(self, who: str) -> bool:
        return not self.may_return(who) or self.now >= self.left[who] + GRACE

    def _settle_all(self) -> None:
        for stream_id, stream in list(self.streams.items()):
            for writer in stream["writers"][1:]:
                if writer not in self.seats and self._grace_is_over(writer):
                    self._unwrite(stream_id, writer)
            if stream["owner"] not in self.seats:
                self._settle(stream_id)

    def _settle(self, stream_id: str) -> None:
        """The owner is absent: wait, transfer or close (protocol §4, Owner leaves)."""
        stream = self.streams[stream_id]
        policy, owner = stream["policy"] or "transfer", stream["owner"]
        if self.may_return(owner) and (policy == "keep" or (policy == "transfer" and not self._grace_is_over(owner))):
            return
        heirs = [writer for writer in stream["writers"] if writer in self.seats]
        if policy == "close" or not heirs:
            self._end(stream_id)
            self.announced.append(("close", stream_id))
        else:
            self._hand_over(stream_id, heirs[0])

    # Streams

    def open(self, who: str, kind: str, requested: dict[str, Any]) -> str:
        """Open a stream by a request or an announce, and return its id."""
        self.require(who, "stream/manage" if kind == "stream/announce" else kind, "stream/manage")
        if requested.get("target") is not None and not (
            requested["target"] and all(name in self.seats for name in requested["target"])
        ):
            raise Rejected("target_not_found")
        if len(self.streams) >= self.limits["streams"]:
            raise Rejected("quota_exceeded")
        announced = kind == "stream/announce"
        if announced and "formats" not in requested:
            raise Rejected("invalid_format")
        stream_id = self._name(requested.get("desired_id") if announced else None)
        self.streams[stream_id] = {
            "owner": who,
            "creator": who,
            "writers": [who],
            "status": "ready" if announced else "live",
            "frames": 0,
            "sequences": {},
            "target": requested.get("target"),
            "policy": requested.get("on_owner_disconnect"),
            "formats": [format_["id"] for format_ in requested.get("formats", [])],
        }
        self.announced.append(("ready" if announced else "open", stream_id))
        return stream_id

    def _name(self, desired: str | None) -> str:
        if desired is None:
            self.numbered += 1
            return f"stream-{self.numbered}"
        candidates = [desired, *(f"{desired}_{number}" for number in range(2, 100))]
        name = next(candidate for candidate in candidates if candidate not in self.names_used)
        self.names_used.add(name)
        return name

    def _find(self, stream_id: str) -> dict[str, Any]:
        if stream_id not in self.streams:
            raise Rejected("stream_not_found")
        return self.streams[stream_id]

    def _owned(self, who: str, kind: str, stream_id: str) -> dict[str, Any]:
        self.require_voice(who, kind)
        stream = self._find(stream_id)
        if stream["owner"] != who:
            raise Rejected("unauthorized")
        return stream

    def start(self, who: str, stream_id: str) -> None:
        stream = self._owned(who, "stream/start", stream_id)
        if stream["status"] != "ready":
            raise Rejected("invalid_operation")
        stream["status"] = "live"

    def frame(self, who: str, stream_id: str) -> list[str] | None:
        """The participants that receive it. None means all, observers too."""
        self.require_voice(who, "#")
        stream = self.streams.get(stream_id)
        if stream is None:
            raise Rejected("unauthorized_stream_write")
        if stream["status"] != "live":
            raise Rejected("stream_not_live")
        if who not in stream["writers"]:
            raise Rejected("unauthorized_stream_write")
        stream["frames"] += 1
        return stream["target"]  # type: ignore[no-any-return]

    def data(self, who: str, stream_id: str, sequence: Any, format_id: str | None) -> list[str] | None:
        """The same for `stream/data`."""
        self.require_voice(who, "stream/data")
        stream = self._find(stream_id)
        if stream["status"] != "live":
            raise Rejected("stream_not_live")
        if who not in stream["writers"]:
            raise Rejected("unauthorized_stream_write")
        if type(sequence) is not int or not 0 <= sequence < 2**53:
            raise Rejected("invalid_envelope")
        if sequence <= stream["sequences"].get(who, -1):
            raise Rejected("sequence_out_of_order")
        if (
            stream["formats"]
            and (format_id is not None or len(stream["formats"]) > 1)
            and format_id not in stream["formats"]
        ):
            raise Rejected("unknown_format")
        stream["sequences"][who] = sequence
        stream["frames"] += 1
        return stream["target"]  # type: ignore[no-any-return]

    def grant_write(self, who: str, stream_id: str, writer: str) -> None:
        stream = self._owned(who, "stream/grant-write", stream_id)
        if writer not in self.seats:
            raise Rejected("participant_not_found")
        if writer not in stream["writers"]:
            if len(stream["writers"]) >= self.limits["writers"]:
                raise Rejected("quota_exceeded")
            stream["writers"].append(writer)
        self.announced.append(("granted", stream_id, writer))

    def revoke_write(self, who: str, stream_id: str, writer: str) -> None:
        self._owned(who, "stream/revoke-write", stream_id)
        if writer == who:
            raise Rejected("invalid_operation")
        self._unwrite(stream_id, writer)

    def _unwrite(self, stream_id: str, writer: str) -> None:
        stream = self.streams[stream_id]
        stream["writers"] = [name for name in stream["writers"] if name != writer]
        self.announced.append(("revoked", stream_id, writer))

    def transfer(self, who: str, stream_id: str, heir: str) -> None:
        self._owned(who, "stream/transfer-ownership", stream_id)
        if heir not in self.seats:
            raise Rejected("participant_not_found")
        self._hand_over(stream_id, heir)

    def _hand_over(self, stream_id: str, heir: str) -> None:
        stream = self.streams[stream_id]
        others = [name for name in stream["writers"] if name not in {stream["owner"], heir}]
        stream["owner"], stream["writers"] = heir, [heir, *others]
        self.announced.append(("transferred", stream_id, heir))

    def end(self, who: str, kind: str, stream_id: str) -> None:
        """`stream/close` of an unknown stream is an ordinary message."""
        if kind == "stream/close" and stream_id not in self.streams:
            self.require(who, kind, "stream/request", "stream/manage")
            return
        if who != self._find(stream_id)["owner"] and not MANAGES & set(self.holds(who)):
            raise Rejected("unauthorized")
        self._end(stream_id)

    def _end(self, stream_id: str) -> None:
        del self.streams[stream_id]
        self.ended.append(stream_id)

    # Capabilities and membership

    def grant(self, who: str, grant_id: str, recipient: str, kind: str) -> None:
        self.require(who, "capability/grant")
        if kind.startswith("stream/write:"):
            raise Rejected("invalid_operation")
        if not self.knows(recipient):
            raise Rejected("participant_not_found")
        if VALUES_IN_A_CAPABILITY * (len(self.grants.get(recipient, [])) + 1) > self.limits["grants"]:
            raise Rejected("quota_exceeded")
        if not any(covers(own, kind) and (own in MANAGES or kind not in MANAGES) for own in self.holds(who)):
            raise Rejected("capability_violation")
        before = self.holds(recipient)
        self.grants.setdefault(recipient, []).append((grant_id, kind))
        self._announce_change(recipient, before)

    def revoke(self, who: str, recipient: str, *, grant_id: str | None = None, kind: str | None = None) -> None:
        self.require(who, "capability/revoke")
        if not self.knows(recipient):
            raise Rejected("participant_not_found")
        before = self.holds(recipient)
        grants = self.grants.get(recipient, [])
        self.grants[recipient] = [
            (known_id, granted)
            for known_id, granted in grants
            if known_id != grant_id and not (kind is not None and covers(kind, granted))
        ]
        if kind is not None:
            revoked = {own for own in self.base(recipient) if covers(kind, own)}
            self.revoked.setdefault(recipient, set()).update(revoked)
        self._announce_change(recipient, before)

    def _announce_change(self, who: str, before: list[str]) -> None:
        if who in self.seats and self.holds(who) != before:
            self.announced.append(("capabilities", who))

    def invite(self, who: str, invited: str, initial: list[str] | None) -> str:
        """Invite, and return the status for the inviter."""
        self.require(who, "space/invite")
        if self.knows(invited) and invited not in self.kicked:
            return "already_exists"
        if invited in self.kicked:
            self.kicked.remove(invited)
            for table in (self.grants, self.revoked, self.paused):
                table.pop(invited, None)
        self.invited[invited] = initial
        self.announced.append(("invited", invited))
        return "created"

    def kick(self, who: str, kicked: str) -> None:
        self.require(who, "space/kick")
        if not self.knows(kicked):
            raise Rejected("participant_not_found")
        self.kicked.add(kicked)
        if kicked in self.seats:
            self.leave(kicked)
        self._settle_all()

    def pause(self, who: str, targets: list[str], seconds: int | None) -> None:
        self.require(who, "participant/pause")
        for target in filter(self.knows, targets):
            self.paused[target] = None if seconds is None else self.now + seconds

    def resume(self, who: str, targets: list[str]) -> None:
        self.require(who, "participant/resume")
        for target in targets:
            if target != who:
                self.paused.pop(target, None)

    def shut_down(self, who: str, targets: list[str]) -> None:
        self.require(who, "participant/shutdown")
        for target in targets:
            if target in self.seats and self.closing.get(target, 0) <= self.now:
                self.closing.pop(target, None)
                self.closing[target] = self.now + GOODBYE
