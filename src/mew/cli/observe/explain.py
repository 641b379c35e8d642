"""`mew explain`: shows what a participant may send, and why.

It queries the gateway. If no gateway runs, it uses the protocol core with the configuration. It decides nothing itself.
"""

import time
from contextlib import ExitStack
from typing import Annotated, Any, Final, Protocol
from urllib.parse import quote

import msgspec
from cyclopts import Parameter

from mew.cli.common.errors import REFUSED, RequestRefused, Unreachable, UsageError
from mew.cli.common.http_client import GatewayClient
from mew.cli.common.io import as_json, read_bytes, use_color
from mew.cli.common.render import printable
from mew.cli.common.target import DIRECTORY, TargetOptions, observer_target

_VIOLATION: Final = "capability_violation"
_CONTENT: Final = {"chat": {"text": "…"}, "mcp/request": {"method": "…"}}
"""Required payload fields of a kind, for a query that names only the kind."""
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def explain_command(
    participant: str,
    envelope: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    *,
    offline: _Flag = False,
    check: _Flag = False,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Check whether a participant may send a message, and why.

    Nothing is sent. The answer names the capability that allows the message, or the nearest one and what differs.
    Without a running gateway, the configuration is used.

    Parameters
    ----------
    participant
        The participant to check.
    envelope
        A kind; or an envelope as JSON, @file to read it from a file, or - to read it from standard input. Without it,
        the command lists everything that the participant may send.
    offline
        Use the configuration, even if a gateway runs.
    check
        Exit with code 4 if the message is not allowed.
    json
        Print the answer as JSON.
    """
    question = None if envelope is None else _parse_question(envelope)
    with ExitStack() as stack:
        knowing = _knowing(options, stack, offline=offline)
        return _explain(knowing, participant, question, check=check, json=json)


def _explain(knowing: "_Knowing", participant: str, question: str | bytes | None, *, check: bool, json: bool) -> int:
    if question is None:
        answer = knowing.actions(participant)
        print(as_json(answer) if json else "\n".join(_permission_lines(answer)))
        return 0
    answer = _answer(knowing, participant, question)
    if json:
        print(as_json(answer))
    else:
        note = "" if isinstance(knowing, _Gateway) else " (according to the configuration)"
        print("\n".join(_explanation_lines(participant, answer, note)))
    return REFUSED if check and not answer["allowed"] else 0


def _parse_question(text: str) -> str | bytes:
    """Return the kind, or the bytes of the envelope."""
    if text.lstrip().startswith("{") or text == "-" or text.startswith("@"):
        return read_bytes("envelope", text)
    if not text:
        raise UsageError("the kind is empty: give a kind, such as chat, or an envelope as JSON")
    return text


class _Knowing(Protocol):
    """Answers what a participant may send."""

    def actions(self, participant: str) -> dict[str, Any]:
        """Return everything that the participant may send."""
        ...

    def explain(self, participant: str, message: bytes) -> dict[str, Any]:
        """Return whether a message would be accepted, and why."""
        ...


class _Gateway:
    def __init__(self, client: GatewayClient) -> None:
        self._client = client

    def actions(self, participant: str) -> dict[str, Any]:
        return dict(self._client.ask("GET", _path(participant), space=self._client.space))

    def explain(self, participant: str, message: bytes) -> dict[str, Any]:
        return dict(self._client.ask("POST", _path(participant), message, space=self._client.space))


def _path(participant: str) -> str:
    return f"/participants/{quote(participant, safe=':@')}/explain"


class _Configuration:
    """Answers for a new space with this configuration."""

    def __init__(self, options: TargetOptions) -> None:
        from mew.cli.common.target import configured, find_space
        from mew.protocol import SpaceCore, Start

        place = find_space(options.space_dir)
        _, config = configured(place.directory, place.config_file)
        self._now = int(time.time() * 1_000_000)
        self._space = SpaceCore(config.spaces[0].settings, _NoTokens())
        self._space.handle(Start("offline"), self._now)

    def actions(self, participant: str) -> dict[str, Any]:
        from mew.protocol.explain import list_actions

        return self._answer_of(lambda: list_actions(self._space, participant, self._now).answer())

    def explain(self, participant: str, message: bytes) -> dict[str, Any]:
        from mew.protocol.explain import explain_message

        return self._answer_of(lambda: explain_message(self._space, participant, message, self._now).answer())

    def _answer_of(self, ask: Any) -> dict[str, Any]:
        from mew.protocol import ProtocolError

        try:
            answer: dict[str, Any] = ask()
        except ProtocolError as refusal:
            raise RequestRefused(f"{refusal.message} ({refusal.code})") from None
        return answer


class _NoTokens:
    """No tokens: no participant joins."""

    def identify(self, _token: str) -> None:
        """Return None: no token is known."""

    def issue(self, _space_id: str, _participant: str) -> str:
        """Never called: an explanation sends no invitation."""
        raise AssertionError


def _knowing(options: TargetOptions, stack: ExitStack, *, offline: bool) -> _Knowing:
    if offline:
        return _Configuration(options)
    try:
        client = stack.enter_context(observer_target(options).client())
        client.ask("GET", "/health")
    except Unreachable:
        if options.address is not None:
            raise
        return _Configuration(options)
    return _Gateway(client)


def _answer(knowing: _Knowing, participant: str, question: str | bytes) -> dict[str, Any]:
    """Return the answer for an envelope; for a kind, whether any envelope of this kind could be accepted."""
    if isinstance(question, bytes):
        return knowing.explain(participant, question)
    listed = knowing.actions(participant)
    kind = next((entry for entry in listed["kinds"] if entry["kind"] == question), None)
    if kind is not None:
        how = "if the envelope matches" if kind["conditional"] else "by"
        return {**kind, "allowed": True, "reason": f"allowed {how} {as_json(kind['capability'])}"}
    streams = [stream["stream_id"] for stream in listed["streams"] if question in stream["kinds"]]
    if streams:
        return {"kind": question, "allowed": True, "streams": streams, "reason": f"on {', '.join(streams)}"}
    from mew.protocol.explain import BY_OWNERSHIP

    if question in BY_OWNERSHIP and listed["error"] is None:
        why = "there is no open stream for which it may send this now"
        return {"kind": question, "allowed": False, "streams": [], "reason": why}
    return knowing.explain(participant, msgspec.json.encode({"kind": question, "payload": _CONTENT.get(question, {})}))


def _explanation_lines(participant: str, answer: dict[str, Any], note: str) -> list[str]:
    """Return the answer as lines of text: yes or no, and why."""
    kind = printable(str(answer.get("kind") or "an invalid envelope"))
    word = "may send" if answer["allowed"] else "may not send"
    source = answer.get("source")
    where = f" [{printable(str(source))}]" if source else ""
    lines = [_colored(f"{printable(participant)} {word} {kind}", yes=bool(answer["allowed"])) + note]
    near = answer.get("nearest")
    if near is None or answer.get("error") != _VIOLATION:
        lines.append(f"  {printable(str(answer['reason']))}{where}")
    else:
        pattern = printable(as_json(near["capability"]))
        lines.append(f"  the nearest capability is {pattern} [{printable(str(near['source']))}]")
        lines.append(f"  but {printable(str(near['why']))}")
    if answer.get("error"):
        lines.append(f"  the error would be {printable(str(answer['error']))}")
    return lines


def _colored(text: str, *, yes: bool) -> str:
    return f"\x1b[{32 if yes else 31}m{text}\x1b[0m" if use_color() else text


def _permission_lines(answer: dict[str, Any]) -> list[str]:
    """Return everything that may be sent as text: one line per kind, one line per stream."""
    if answer["error"] is not None:
        return [f"{printable(answer['participant'])} may send nothing: {printable(answer['reason'])}"]
    width = max((len(kind["kind"]) for kind in answer["kinds"]), default=0)
    lines = [
        f"{kind['kind']:<{width}}  {'if it matches' if kind['conditional'] else 'by'} "
        f"{printable(as_json(kind['capability']))} [{printable(kind['source'])}]"
        for kind in answer["kinds"]
    ]
    lines += [f"on {printable(stream['stream_id'])}: {', '.join(stream['kinds'])}" for stream in answer["streams"]]
    return lines or [f"{printable(answer['participant'])} may send nothing"]
