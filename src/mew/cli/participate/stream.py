"""`mew stream …`: open a stream, feed it, share it, read it, end it.

What is done to a stream goes through the HTTP door; who reads does so as an observer. Nobody's socket is taken over.
"""

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from mew.cli.common.http_client import one_line
from mew.cli.common.io import BadValue, as_json, value_of
from mew.cli.common.target import DIRECTORY, Reach, look_by_socket, speak

app = App(name="stream", help="Open, feed, share and read the streams of a space.", help_epilogue="")

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
_As = Annotated[str | None, Parameter(name=("--as", "--participant"))]


def _examples(*lines: str) -> str:
    return "\n".join(["Examples:", "", *(f"  mew stream {each}" for each in lines)])


@app.command(help_epilogue=_examples("ls", "ls --json", "ls --interval 0"))
def ls(*, interval: float = 1.0, reach: Reach = DIRECTORY, json: _Flag = False) -> int:
    """List the open streams: whose they are, who may write, and how fast they flow.

    Parameters
    ----------
    interval
        Seconds over which frames are counted; 0 counts none.
    json
        A line of JSON for each stream: its entry in a welcome, with `rate` besides.
    """
    from mew.cli.participate.stream_tail import listed, table

    found = listed(look_by_socket(reach), max(interval, 0.0))
    if json:
        for entry in found:
            print(as_json(entry))
    else:
        print(table(found))
    return 0


@Parameter(name="*")
@dataclass(frozen=True)
class Described:
    """What the stream is.

    Parameters
    ----------
    description
        What it is about, in words.
    content_type
        What its data are, such as text/plain.
    formats
        A JSON array of its formats, [{"id":"json"}], or @file.
    target
        The only participants that receive its data; give it again for more.
    field
        Any other field of the request, name=JSON; give it again for more.
    """

    description: str | None = None
    content_type: str | None = None
    formats: Annotated[str | None, Parameter(name=("--formats", "--format"))] = None
    target: _Names = ()
    field: _Names = ()

    def payload(self) -> dict[str, Any]:
        """The same as a payload."""
        given: dict[str, Any] = {
            "description": self.description,
            "content_type": self.content_type,
            "formats": None if self.formats is None else value_of("--formats", self.formats),
            "target": self.target or None,
        }
        for each in self.field:
            name, mark, text = each.partition("=")
            if not mark or not name:
                raise BadValue(f"--field {each}: expected name=JSON, such as rate=60")
            given[name] = value_of(f"--field {name}", text)
        return {name: value for name, value in given.items() if value is not None}


_ANY: Final = Described()


@app.command(
    name="open", help_epilogue=_examples("open --description temperatures", "open --announce camera --formats @f.json")
)
def open_stream(
    *,
    described: Described = _ANY,
    announce: str | None = None,
    participant: _As = None,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Open a stream, and print its id.

    Its owner must stay present: whoever is connected is, others are for a minute after each command. When the owner has
    gone, the space's `streams.on_owner_disconnect` decides.

    Parameters
    ----------
    announce
        Announce it under this id instead, and start it: the id is taken if it is free. Needs --formats.
    participant
        Who opens it, and owns it.
    json
        The gateway's answer as JSON, instead of the id alone.
    """
    payload = described.payload()
    door, name = speak(reach, participant)
    with door:
        if announce is None:
            answer = door.say(name, {"kind": "stream/request", "payload": payload})
        else:
            answer = door.say(name, {"kind": "stream/announce", "payload": {**payload, "desired_id": announce}})
            door.say(name, {"kind": "stream/start", "payload": {"stream_id": answer["stream_id"]}})
    print(as_json(answer) if json else answer["stream_id"])
    return 0


@Parameter(name="*")
@dataclass(frozen=True)
class Cut:
    """How standard input becomes data.

    Parameters
    ----------
    binary
        Bytes, so many at a time, instead of lines.
    chunk
        How many bytes at a time.
    length_prefixed
        Bytes, each piece behind its length: four bytes, the most significant first.
    json_lines
        Each line is a JSON value, and is sent as such.
    format_id
        The format of the stream that the data have, where it has several.
    """

    binary: _Flag = False
    chunk: int = 16 * 2**10
    length_prefixed: _Flag = False
    json_lines: _Flag = False
    format_id: str | None = None


_LINES: Final = Cut()


@app.command(
    name="send",
    help_epilogue=_examples(
        "send stream-1 < lines.txt",
        "send stream-1 --binary --chunk 4096 < file",
        "send stream-1 --json-lines --complete",
    ),
)
def feed(
    stream_id: str,
    *,
    cut: Cut = _LINES,
    complete: _Flag = False,
    participant: _As = None,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Send standard input to a stream, piece by piece as it comes: lines, unless told otherwise.

    Each piece is a stream/data envelope; bytes are carried in base64, and `mew stream tail --raw` gives them back.

    Parameters
    ----------
    stream_id
        The stream.
    complete
        End the stream when standard input ends.
    participant
        Who writes: somebody who may.
    json
        What was sent, as JSON, instead of a line on standard error.
    """
    from mew.cli.participate.stream_feed import Feed, pieces

    door, name = speak(reach, participant)
    feeding = Feed(door, name, stream_id, cut.format_id)
    with door:
        for piece in pieces(sys.stdin.buffer, cut, feeding.stay):
            feeding.send(piece)
        if complete:
            door.say(name, {"kind": "stream/complete", "payload": {"stream_id": stream_id}})
    if json:
        print(as_json(feeding.sent()))
    elif sys.stderr.isatty():
        print(f"mew: {feeding.count:,} sent to {one_line(stream_id)}", file=sys.stderr)
    return 0


def _change(kind: str, payload: dict[str, Any], participant: str | None, reach: Reach, *, json: bool) -> int:
    """Post one envelope about a stream, and say what has become of it."""
    door, name = speak(reach, participant)
    left = {each: value for each, value in payload.items() if value is not None}
    with door:
        answer = door.say(name, {"kind": kind, "payload": left})
    if json:
        print(as_json(answer))
        return 0
    writers, owner = answer.get("authorized_writers"), answer.get("new_owner")
    told = [one_line(str(payload["stream_id"])), *([f"owner {owner}"] if owner else [])]
    print(": ".join([" ".join(told), f"writers {', '.join(writers)}" if writers else "ended"]))
    return 0


@app.command(help_epilogue=_examples("grant stream-1 bob"))
def grant(
    stream_id: str,
    writer: str,
    *,
    reason: str | None = None,
    participant: _As = None,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Let somebody write to a stream; only its owner can.

    Parameters
    ----------
    stream_id
        The stream.
    writer
        Who may write from now on.
    reason
        Why; everybody is told.
    participant
        The owner.
    json
        The gateway's answer as JSON.
    """
    payload = {"stream_id": stream_id, "participant_id": writer, "reason": reason}
    return _change("stream/grant-write", payload, participant, reach, json=json)


@app.command(help_epilogue=_examples("revoke stream-1 bob --reason done"))
def revoke(
    stream_id: str,
    writer: str,
    *,
    reason: str | None = None,
    participant: _As = None,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Let somebody no longer write to a stream; only its owner can.

    Parameters
    ----------
    stream_id
        The stream.
    writer
        Who may write no more.
    reason
        Why; everybody is told.
    participant
        The owner.
    json
        The gateway's answer as JSON.
    """
    payload = {"stream_id": stream_id, "participant_id": writer, "reason": reason}
    return _change("stream/revoke-write", payload, participant, reach, json=json)


@app.command(help_epilogue=_examples("transfer stream-1 bob"))
def transfer(
    stream_id: str,
    new_owner: str,
    *,
    reason: str | None = None,
    participant: _As = None,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Hand a stream over to somebody who is present; only its owner can.

    Parameters
    ----------
    stream_id
        The stream.
    new_owner
        Whose it is from now on.
    reason
        Why; everybody is told.
    participant
        The owner.
    json
        The gateway's answer as JSON.
    """
    payload = {"stream_id": stream_id, "new_owner": new_owner, "reason": reason}
    return _change("stream/transfer-ownership", payload, participant, reach, json=json)


@app.command(help_epilogue=_examples("close stream-1", "close stream-1 --as-complete"))
def close(
    stream_id: str,
    *,
    reason: str | None = None,
    as_complete: _Flag = False,
    participant: _As = None,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """End a stream: its owner can, and who may stream/manage.

    Parameters
    ----------
    stream_id
        The stream.
    reason
        Why; everybody is told.
    as_complete
        Say that all is sent (stream/complete), instead of closing it.
    participant
        Who ends it.
    json
        The gateway's answer as JSON.
    """
    kind = "stream/complete" if as_complete else "stream/close"
    return _change(kind, {"stream_id": stream_id, "reason": reason}, participant, reach, json=json)


@app.command(
    help_epilogue=_examples("tail stream-1", "tail stream-1 --json | jq .content", "tail stream-1 --raw > bytes")
)
def tail(
    stream_id: str,
    *,
    raw: _Flag = False,
    json: _Flag = False,
    count: Annotated[int | None, Parameter(alias="-n")] = None,
    reach: Reach = DIRECTORY,
) -> int:
    """Print the data of a stream as they come, until it ends: a line each.

    Parameters
    ----------
    stream_id
        The stream.
    raw
        The bytes as they were sent and nothing between them.
    json
        A line of JSON for each: who sent it, its number, its content.
    count
        End after so many.
    """
    from mew.cli.participate.stream_tail import read

    form: Literal["raw", "json", "text"] = "raw" if raw else "json" if json else "text"
    return read(look_by_socket(reach), stream_id, form, count)
