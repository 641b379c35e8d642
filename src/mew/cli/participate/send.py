"""`mew send`: one envelope through the HTTP door.

Must not open a socket in anybody's name, and must be quick: people and scripts call it all day.
"""

import re
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter

from mew.cli.common.http_client import one_line
from mew.cli.common.io import BadValue, as_json, bytes_of, object_of, text_of
from mew.cli.common.target import DIRECTORY, Reach, speak

CHAT: Final = "chat"
_OPTION: Final = re.compile("--?[A-Za-z]")
_Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class Heading:
    """What an envelope says on its outside.

    Parameters
    ----------
    kind
        The kind of the envelope.
    to
        Whom it is meant for; give it again for more.
    correlation
        The id of what it answers; give it again for more.
    participant
        Who says it: the space's default_participant, or the only person in it, unless told.
    """

    kind: Annotated[str, Parameter(alias="-k")] = CHAT
    to: Annotated[_Names, Parameter(alias="-t")] = ()
    correlation: Annotated[_Names, Parameter(name=("--correlation", "--correlation-id"))] = ()
    participant: Annotated[str | None, Parameter(name=("--as", "--participant"))] = None


_CHAT: Final = Heading()


def send(
    *text: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)],
    payload: Annotated[str | None, Parameter(alias="-p", allow_leading_hyphen=True)] = None,
    heading: Heading = _CHAT,
    reach: Reach = DIRECTORY,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Send one envelope: a chat with these words, or any kind with a payload.

    Nobody's connection is touched: whoever is connected stays so. A participant that is not connected is present for a
    minute after it has spoken.

    Parameters
    ----------
    text
        What to say; - reads it from standard input.
    payload
        Its payload: a JSON object, @file for a file's, - for standard input's.
    json
        The gateway's answer as JSON, instead of a line to read.
    """
    parts = {
        "kind": heading.kind,
        "to": heading.to or None,
        "correlation_id": heading.correlation or None,
        "payload": _content(text, heading.kind, payload),
    }
    envelope = {name: part for name, part in parts.items() if part is not None}
    door, name = speak(reach, heading.participant)
    with door:
        answer = door.say(name, envelope)
    print(as_json(answer) if json else told(answer))
    return 0


def _content(text: tuple[str, ...], kind: str, payload: str | None) -> Any:
    """The payload."""
    # A dash alone is standard input, so words may begin with one; but who mistypes an option does not mean to say it.
    mistyped = next((word for word in text if _OPTION.match(word)), None)
    if mistyped is not None:
        raise BadValue(f"there is no option {mistyped}; to say that, pipe it in or use --payload")
    if payload is not None:
        if text:
            raise BadValue("words or --payload, not both")
        return object_of("--payload", payload)
    if not text:
        if kind != CHAT:
            return None
        if sys.stdin.isatty():
            raise BadValue("say something: mew send hello, or mew send - to read it from standard input")
        text = ("-",)
    if kind != CHAT:
        raise BadValue(f"words are a chat; give the payload of {kind} with --payload")
    said = text_of("standard input", bytes_of("text", "-")).rstrip("\n") if text == ("-",) else " ".join(text)
    if not said:
        raise BadValue("nothing to say")
    return {"text": said}


def told(answer: dict[str, Any]) -> str:
    """What became of an envelope, in one line."""
    more = [f"{name} {_shown(value)}" for name, value in answer.items() if name not in {"id", "status", "timestamp"}]
    return one_line(" ".join([str(answer.get("status")), str(answer.get("id")), *more]))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
