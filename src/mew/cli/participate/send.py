"""`mew send`: sends one envelope over the HTTP API.

It must not open a WebSocket, which would replace the participant's connection. It must start fast.
"""

import re
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter

from mew.cli.common.errors import UsageError, one_line
from mew.cli.common.io import as_json, decode_text, json_object, read_bytes
from mew.cli.common.target import DIRECTORY, TargetOptions, participant_client
from mew.protocol import kinds

_OPTION: Final = re.compile("--?[A-Za-z]")
_Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class Heading:
    """Fields of the envelope.

    Parameters
    ----------
    kind
        The kind of the envelope; by default chat.
    to
        A recipient; repeat for more. By default all participants.
    correlation
        The id of the envelope that this one answers; repeat for more.
    participant
        The sender; by default space.default_participant, else the only person in the space.
    """

    kind: Annotated[str, Parameter(alias="-k")] = kinds.CHAT
    to: Annotated[_Names, Parameter(alias="-t")] = ()
    correlation: Annotated[_Names, Parameter(name=("--correlation", "--correlation-id"))] = ()
    participant: Annotated[str | None, Parameter(name=("--as", "--participant"))] = None


_CHAT_HEADING: Final = Heading()


def send_command(
    *text: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)],
    payload: Annotated[str | None, Parameter(alias="-p", allow_leading_hyphen=True)] = None,
    heading: Heading = _CHAT_HEADING,
    options: TargetOptions = DIRECTORY,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Send one envelope: a chat with a text, or any kind with a payload.

    The connections of participants stay open. A sender that is not connected becomes present for a minute.

    Parameters
    ----------
    text
        The text of the chat; - reads it from standard input.
    payload
        The payload: a JSON object, @file to read it from a file, or - to read it from standard input.
    json
        Print the gateway's answer as JSON.
    """
    parts = {
        "kind": heading.kind,
        "to": heading.to or None,
        "correlation_id": heading.correlation or None,
        "payload": _content(text, heading.kind, payload),
    }
    envelope = {name: part for name, part in parts.items() if part is not None}
    client, name = participant_client(options, heading.participant)
    with client:
        answer = client.post(name, envelope)
    print(as_json(answer) if json else answer_line(answer))
    return 0


def _content(text: tuple[str, ...], kind: str, payload: str | None) -> Any:
    """Return the payload of the envelope."""
    # `-` is standard input, so text may start with a dash. A mistyped option must not be sent as text.
    mistyped = next((word for word in text if _OPTION.match(word)), None)
    if mistyped is not None:
        raise UsageError(f"there is no option {mistyped}; to send this text, use standard input or --payload")
    if payload is not None:
        if text:
            raise UsageError("give a text or --payload, not both")
        return json_object("--payload", payload)
    if not text:
        if kind != kinds.CHAT:
            return None
        if sys.stdin.isatty():
            raise UsageError("there is no text: try `mew send hello`, or `mew send -` to read from standard input")
        text = ("-",)
    if kind != kinds.CHAT:
        raise UsageError(f"a text is only valid for a chat: give the payload of {kind} with --payload")
    content = decode_text("standard input", read_bytes("text", "-")).rstrip("\n") if text == ("-",) else " ".join(text)
    if not content:
        raise UsageError("the text is empty")
    return {"text": content}


def answer_line(answer: dict[str, Any]) -> str:
    """Return the gateway's answer as one line of text."""
    more = [
        f"{name} {_plain_value(value)}" for name, value in answer.items() if name not in {"id", "status", "timestamp"}
    ]
    return one_line(" ".join([str(answer.get("status")), str(answer.get("id")), *more]))


def _plain_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return as_json(value) if isinstance(value, dict) else str(value)
