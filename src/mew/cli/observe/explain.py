"""`mew explain`: what a participant may send, by which capability, or what came nearest.

Asks the gateway; where none runs, the same core with what the configuration says. Must not decide anything itself.
"""

import time
from contextlib import ExitStack
from typing import Annotated, Any, Final, Protocol
from urllib.parse import quote

import msgspec
from cyclopts import Parameter

from mew.cli.common.errors import Refused, Unreachable
from mew.cli.common.http_client import Door
from mew.cli.common.io import BadValue, as_json, bytes_of, in_colours
from mew.cli.common.render import printable
from mew.cli.common.target import DIRECTORY, Reach, look

REFUSED: Final = 4
_VIOLATION: Final = "capability_violation"
_CONTENT: Final = {"chat": {"text": "…"}, "mcp/request": {"method": "…"}}
"""What a kind cannot be without, where only the kind is asked about."""
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def explain(
    participant: str,
    envelope: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    *,
    offline: _Flag = False,
    check: _Flag = False,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Say whether a participant may send an envelope, by which capability, or which came nearest and what differs.

    Nothing is sent. Where no gateway runs, the configuration is asked.

    Parameters
    ----------
    participant
        Whom it is about.
    envelope
        A kind; or a whole envelope as JSON, @file for a file's, - for standard input's. Without it: everything that the
        participant may send.
    offline
        Ask the configuration, although a gateway runs.
    check
        End with exit code 4 where it is not allowed.
    json
        The answer as JSON.
    """
    asked = None if envelope is None else _asked(envelope)
    with ExitStack() as stack:
        knowing = _knowing(reach, stack, offline=offline)
        return _explain(knowing, participant, asked, check=check, json=json)


def _explain(knowing: "_Knowing", participant: str, asked: str | bytes | None, *, check: bool, json: bool) -> int:
    if asked is None:
        answer = knowing.actions(participant)
        print(as_json(answer) if json else "\n".join(_all_told(answer)))
        return 0
    answer = _answer(knowing, participant, asked)
    if json:
        print(as_json(answer))
    else:
        note = "" if isinstance(knowing, _Gateway) else " (by the configuration alone)"
        print("\n".join(_told(participant, answer, note)))
    return REFUSED if check and not answer["allowed"] else 0


def _asked(text: str) -> str | bytes:
    """A kind, or the text of an envelope."""
    if text.lstrip().startswith("{") or text == "-" or text.startswith("@"):
        return bytes_of("envelope", text)
    if not text:
        raise BadValue("name a kind, such as chat, or give an envelope as JSON")
    return text


class _Knowing(Protocol):
    """Who knows what somebody may send."""

    def actions(self, participant: str) -> dict[str, Any]:
        """All of it."""
        ...

    def explain(self, participant: str, message: bytes) -> dict[str, Any]:
        """What would come of a message."""
        ...


class _Gateway:
    def __init__(self, door: Door) -> None:
        self._door = door

    def actions(self, participant: str) -> dict[str, Any]:
        return dict(self._door.ask("GET", _path(participant), space=self._door.space))

    def explain(self, participant: str, message: bytes) -> dict[str, Any]:
        return dict(self._door.ask("POST", _path(participant), message, space=self._door.space))


def _path(participant: str) -> str:
    return f"/participants/{quote(participant, safe=':@')}/explain"


class _Configuration:
    """A space as it would be when nothing has happened yet."""

    def __init__(self, reach: Reach) -> None:
        from mew.cli.common.target import configured, here
        from mew.protocol import Space, Start

        place = here(reach.space_dir)
        _, config = configured(place.directory, place.config_file)
        self._now = int(time.time() * 1_000_000)
        self._space = Space(config.spaces[0].settings, _NoTokens())
        self._space.handle(Start("offline"), self._now)

    def actions(self, participant: str) -> dict[str, Any]:
        return self._said(lambda: self._space.actions(participant, self._now).answer())

    def explain(self, participant: str, message: bytes) -> dict[str, Any]:
        return self._said(lambda: self._space.explain(participant, message, self._now).answer())

    def _said(self, ask: Any) -> dict[str, Any]:
        from mew.protocol import Refusal

        try:
            answer: dict[str, Any] = ask()
        except Refusal as refusal:
            raise Refused(f"{refusal.message} ({refusal.code})") from None
        return answer


class _NoTokens:
    """Nobody comes in, so nobody needs one."""

    def identify(self, _token: str) -> None:
        """Nobody's."""

    def issue(self, _space_id: str, _participant: str) -> str:
        """None: an explanation invites nobody."""
        raise AssertionError


def _knowing(reach: Reach, stack: ExitStack, *, offline: bool) -> _Knowing:
    if offline:
        return _Configuration(reach)
    try:
        door = stack.enter_context(look(reach).door())
        door.ask("GET", "/health")
    except Unreachable:
        if reach.address is not None:
            raise
        return _Configuration(reach)
    return _Gateway(door)


def _answer(knowing: _Knowing, participant: str, asked: str | bytes) -> dict[str, Any]:
    """Of an envelope, what would come of it; of a kind, whether any envelope of it could pass."""
    if isinstance(asked, bytes):
        return knowing.explain(participant, asked)
    listed = knowing.actions(participant)
    found = next((each for each in listed["kinds"] if each["kind"] == asked), None)
    if found is not None:
        how = "where the envelope fits" if found["conditional"] else "by"
        return {**found, "allowed": True, "reason": f"allowed {how} {as_json(found['capability'])}"}
    streams = [each["stream_id"] for each in listed["streams"] if asked in each["kinds"]]
    if streams:
        return {"kind": asked, "allowed": True, "streams": streams, "reason": f"on {', '.join(streams)}"}
    from mew.protocol.explain import BY_OWNERSHIP

    if asked in BY_OWNERSHIP and listed["error"] is None:
        why = "there is no open stream over which it has that right now"
        return {"kind": asked, "allowed": False, "streams": [], "reason": why}
    return knowing.explain(participant, msgspec.json.encode({"kind": asked, "payload": _CONTENT.get(asked, {})}))


def _told(participant: str, answer: dict[str, Any], note: str) -> list[str]:
    """The answer for people: yes or no, and why."""
    kind = printable(str(answer.get("kind") or "what is no envelope"))
    word = "may send" if answer["allowed"] else "may not send"
    source = answer.get("source")
    where = f" [{printable(str(source))}]" if source else ""
    lines = [_coloured(f"{printable(participant)} {word} {kind}", yes=bool(answer["allowed"])) + note]
    near = answer.get("nearest")
    if near is None or answer.get("error") != _VIOLATION:
        lines.append(f"  {printable(str(answer['reason']))}{where}")
    else:
        lines.append(f"  nearest is {printable(as_json(near['capability']))} [{printable(str(near['source']))}]")
        lines.append(f"  but {printable(str(near['why']))}")
    if answer.get("error"):
        lines.append(f"  refused as {printable(str(answer['error']))}")
    return lines


def _coloured(text: str, *, yes: bool) -> str:
    return f"\x1b[{32 if yes else 31}m{text}\x1b[0m" if in_colours() else text


def _all_told(answer: dict[str, Any]) -> list[str]:
    """All that may be sent, for people: a line each kind, a line each stream."""
    if answer["error"] is not None:
        return [f"{printable(answer['participant'])} may send nothing: {printable(answer['reason'])}"]
    width = max((len(each["kind"]) for each in answer["kinds"]), default=0)
    lines = [
        f"{each['kind']:<{width}}  {'where it fits' if each['conditional'] else 'by'} "
        f"{printable(as_json(each['capability']))} [{printable(each['source'])}]"
        for each in answer["kinds"]
    ]
    lines += [f"on {printable(each['stream_id'])}: {', '.join(each['kinds'])}" for each in answer["streams"]]
    return lines or [f"{printable(answer['participant'])} may send nothing"]
