"""`mew stream …`: opens, writes, shares, reads and ends streams.

Changes are sent over the HTTP API, and reading uses an observer token. No participant's connection is replaced.
"""

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from mew.cli.common.errors import UsageError, one_line
from mew.cli.common.io import as_json, json_value
from mew.cli.common.target import DIRECTORY, TargetOptions, observer_socket_target, participant_client

app = App(name="stream", help="Open, write, share and read the streams of a space.", help_epilogue="")

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
_As = Annotated[str | None, Parameter(name=("--as", "--participant"))]


def _examples(*lines: str) -> str:
    return "\n".join(["Examples:", "", *(f"  mew stream {line}" for line in lines)])


@app.command(name="ls", help_epilogue=_examples("ls", "ls --json", "ls --interval 0"))
def list_streams_command(*, interval: float = 1.0, options: TargetOptions = DIRECTORY, json: _Flag = False) -> int:
    """List the open streams with their owners, writers and rates.

    Parameters
    ----------
    interval
        Seconds during which frames are counted for the rate; 0 shows no rates.
    json
        Print one line of JSON per stream: its entry as in a welcome, and its `rate`.
    """
    from mew.cli.participate.stream_tail import open_streams, stream_table

    streams = open_streams(observer_socket_target(options), max(interval, 0.0))
    if json:
        for entry in streams:
            print(as_json(entry))
    else:
        print(stream_table(streams))
    return 0


@Parameter(name="*")
@dataclass(frozen=True)
class Described:
    """Properties of the stream.

    Parameters
    ----------
    description
        A description for people.
    content_type
        The media type of its data, such as text/plain.
    formats
        Its formats, as a JSON array such as [{"id":"json"}], or @file.
    target
        A participant that receives the data; repeat for more. By default all participants.
    field
        Another field of the request, as name=JSON; repeat for more.
    """

    description: str | None = None
    content_type: str | None = None
    formats: Annotated[str | None, Parameter(name=("--formats", "--format"))] = None
    target: _Names = ()
    field: _Names = ()

    def payload(self) -> dict[str, Any]:
        """Return the properties as a payload."""
        fields: dict[str, Any] = {
            "description": self.description,
            "content_type": self.content_type,
            "formats": None if self.formats is None else json_value("--formats", self.formats),
            "target": self.target or None,
        }
        for assignment in self.field:
            name, mark, text = assignment.partition("=")
            if not mark or not name:
                raise UsageError(f"--field {assignment}: expected name=JSON, such as rate=60")
            fields[name] = json_value(f"--field {name}", text)
        return {name: value for name, value in fields.items() if value is not None}


_ANY: Final = Described()


@app.command(
    name="open", help_epilogue=_examples("open --description temperatures", "open --announce camera --formats @f.json")
)
def open_stream(
    *,
    described: Described = _ANY,
    announce: str | None = None,
    participant: _As = None,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Open a stream and print its id.

    The owner must stay present. A participant without a connection is present for a minute after each command. When the
    owner leaves, `streams.on_owner_disconnect` in space.yaml decides what happens to the stream.

    Parameters
    ----------
    announce
        Announce the stream with this id, if the id is free, and start it. Requires --formats.
    participant
        The participant that opens the stream and owns it.
    json
        Print the gateway's answer as JSON.
    """
    payload = described.payload()
    client, name = participant_client(options, participant)
    with client:
        if announce is None:
            answer = client.post(name, {"kind": "stream/request", "payload": payload})
        else:
            answer = client.post(name, {"kind": "stream/announce", "payload": {**payload, "desired_id": announce}})
            client.post(name, {"kind": "stream/start", "payload": {"stream_id": answer["stream_id"]}})
    print(as_json(answer) if json else answer["stream_id"])
    return 0


@Parameter(name="*")
@dataclass(frozen=True)
class ChunkOptions:
    """How standard input is split into pieces.

    Parameters
    ----------
    binary
        Send bytes in pieces of --chunk bytes, instead of lines.
    chunk
        The number of bytes per piece.
    length_prefixed
        Read pieces of bytes, each after its length as a four-byte big-endian integer.
    json_lines
        Read each line as a JSON value and send the value.
    format_id
        The format of the data, if the stream has several.
    """

    binary: _Flag = False
    chunk: int = 16 * 2**10
    length_prefixed: _Flag = False
    json_lines: _Flag = False
    format_id: str | None = None


_LINES: Final = ChunkOptions()


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
    cut: ChunkOptions = _LINES,
    complete: _Flag = False,
    participant: _As = None,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Send standard input to a stream, by default one piece per line.

    Each piece is sent immediately, as a stream/data envelope. Bytes are sent in base64; `mew stream tail --raw`
    decodes them.

    Parameters
    ----------
    stream_id
        The id of the stream.
    complete
        Complete the stream when standard input ends.
    participant
        The participant that writes; it must be a writer of the stream.
    json
        Print what was sent as JSON, instead of a line on standard error.
    """
    from mew.cli.participate.stream_feed import Feed, read_pieces

    client, name = participant_client(options, participant)
    feeding = Feed(client, name, stream_id, cut.format_id)
    with client:
        for piece in read_pieces(sys.stdin.buffer, cut, feeding.stay):
            feeding.send(piece)
        if complete:
            client.post(name, {"kind": "stream/complete", "payload": {"stream_id": stream_id}})
    if json:
        print(as_json(feeding.sent()))
    elif sys.stderr.isatty():
        print(f"mew: {feeding.count:,} sent to {one_line(stream_id)}", file=sys.stderr)
    return 0


def _change(kind: str, payload: dict[str, Any], participant: str | None, options: TargetOptions, *, json: bool) -> int:
    """Send one envelope about a stream and print the result."""
    client, name = participant_client(options, participant)
    left = {name: value for name, value in payload.items() if value is not None}
    with client:
        answer = client.post(name, {"kind": kind, "payload": left})
    if json:
        print(as_json(answer))
        return 0
    writers, owner = answer.get("authorized_writers"), answer.get("new_owner")
    parts = [one_line(str(payload["stream_id"])), *([f"owner {owner}"] if owner else [])]
    print(": ".join([" ".join(parts), f"writers {', '.join(writers)}" if writers else "ended"]))
    return 0


@app.command(name="grant", help_epilogue=_examples("grant stream-1 bob"))
def grant_command(
    stream_id: str,
    writer: str,
    *,
    reason: str | None = None,
    participant: _As = None,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Allow a participant to write to a stream. Only the owner can do this.

    Parameters
    ----------
    stream_id
        The id of the stream.
    writer
        The participant that may write.
    reason
        The reason; all participants receive it.
    participant
        The owner of the stream.
    json
        Print the gateway's answer as JSON.
    """
    payload = {"stream_id": stream_id, "participant_id": writer, "reason": reason}
    return _change("stream/grant-write", payload, participant, options, json=json)


@app.command(name="revoke", help_epilogue=_examples("revoke stream-1 bob --reason done"))
def revoke_writer_command(
    stream_id: str,
    writer: str,
    *,
    reason: str | None = None,
    participant: _As = None,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Stop a participant from writing to a stream. Only the owner can do this.

    Parameters
    ----------
    stream_id
        The id of the stream.
    writer
        The participant that may no longer write.
    reason
        The reason; all participants receive it.
    participant
        The owner of the stream.
    json
        Print the gateway's answer as JSON.
    """
    payload = {"stream_id": stream_id, "participant_id": writer, "reason": reason}
    return _change("stream/revoke-write", payload, participant, options, json=json)


@app.command(name="transfer", help_epilogue=_examples("transfer stream-1 bob"))
def transfer_command(
    stream_id: str,
    new_owner: str,
    *,
    reason: str | None = None,
    participant: _As = None,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Transfer a stream to a new owner, who must be present. Only the owner can do this.

    Parameters
    ----------
    stream_id
        The id of the stream.
    new_owner
        The participant that becomes the owner.
    reason
        The reason; all participants receive it.
    participant
        The owner of the stream.
    json
        Print the gateway's answer as JSON.
    """
    payload = {"stream_id": stream_id, "new_owner": new_owner, "reason": reason}
    return _change("stream/transfer-ownership", payload, participant, options, json=json)


@app.command(name="close", help_epilogue=_examples("close stream-1", "close stream-1 --as-complete"))
def close_command(
    stream_id: str,
    *,
    reason: str | None = None,
    as_complete: _Flag = False,
    participant: _As = None,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """End a stream. The owner can do this, and participants with the capability for stream/manage.

    Parameters
    ----------
    stream_id
        The id of the stream.
    reason
        The reason; all participants receive it.
    as_complete
        Mark the stream as complete (stream/complete), instead of closing it.
    participant
        The participant that ends the stream.
    json
        Print the gateway's answer as JSON.
    """
    kind = "stream/complete" if as_complete else "stream/close"
    return _change(kind, {"stream_id": stream_id, "reason": reason}, participant, options, json=json)


@app.command(
    name="tail",
    help_epilogue=_examples("tail stream-1", "tail stream-1 --json | jq .content", "tail stream-1 --raw > bytes"),
)
def stream_tail_command(
    stream_id: str,
    *,
    raw: _Flag = False,
    json: _Flag = False,
    count: Annotated[int | None, Parameter(alias="-n")] = None,
    options: TargetOptions = DIRECTORY,
) -> int:
    """Print the data of a stream until it ends, one line per frame.

    Parameters
    ----------
    stream_id
        The id of the stream.
    raw
        Print the bytes exactly as sent, without separators.
    json
        Print one line of JSON per frame: its sender, its number and its content.
    count
        Stop after this number of frames.
    """
    from mew.cli.participate.stream_tail import print_stream

    form: Literal["raw", "json", "text"] = "raw" if raw else "json" if json else "text"
    return print_stream(observer_socket_target(options), stream_id, form, count)
