"""`mew mcp list`: lists the MCP tools that the participants of a space offer.

It sends requests over the HTTP API and receives the answers as an observer, so that no connection is replaced. It must
not call a tool.
"""

import asyncio
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from mew.cli.common.errors import CommandFailed, UsageError
from mew.cli.common.io import as_json
from mew.cli.common.target import DIRECTORY, TargetOptions, observer_socket_target, participant_client

if TYPE_CHECKING:
    from mew.cli.common.http_client import GatewayClient
    from mew.cli.common.target import GatewayTarget
    from mew.client.mcp import Tool
    from mew.protocol.envelope import Envelope


app = App(name="mcp", help="List the MCP tools that the participants of a space offer.", help_epilogue="")

_ANSWER_SECONDS: Final = 2.0
PAGES: Final = 100
"""Maximum number of pages that are requested: a list could be endless."""
_LIST: Final = "tools/list"


_EXAMPLES: Final = """\
Examples:

  mew mcp list                          the tools of all participants
  mew mcp list calculator --json        the tools of one participant, as JSON"""


@app.command(name="list", help_epilogue=_EXAMPLES)
def list_tools_command(
    *participants: Annotated[str, Parameter(show_default=False)],
    options: TargetOptions = DIRECTORY,
    participant: Annotated[str | None, Parameter(name=("--as", "--participant"))] = None,
    timeout: Annotated[float, Parameter(alias="-t")] = _ANSWER_SECONDS,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """List the MCP tools of the participants in a space. A participant that does not answer has no tools.

    Parameters
    ----------
    participants
        The participants to ask; by default all.
    participant
        The participant that asks; by default space.default_participant, else the only person in the space.
    timeout
        Seconds to wait for the answers.
    json
        Print a JSON array of objects with participant, name, description and input_schema.
    """
    if not timeout > 0:
        raise UsageError(f"--timeout: expected more than 0 seconds, not {timeout:g}")
    client, name = participant_client(options, participant)
    try:
        tools_by_participant, silent = asyncio.run(
            _ask_all(observer_socket_target(options), _Asking(client, name), participants, timeout)
        )
    finally:
        client.close()
    if json:
        print(as_json([_tool_fields(owner, tool) for owner, tools in tools_by_participant.items() for tool in tools]))
    else:
        _print(tools_by_participant)
    if silent and (participants or not any(tools_by_participant.values())):
        print(f"mew: no answer within {timeout:g} s from {', '.join(silent)}", file=sys.stderr)
    return 0


class _Asking:
    """Sends requests and stores the id and the recipient of each."""

    def __init__(self, client: "GatewayClient", name: str) -> None:
        self._client = client
        self.name = name
        self.pending: dict[str, str] = {}

    async def ask(self, participant_id: str, cursor: str | None) -> None:
        """Request a page. Runs in a thread, because the HTTP client blocks."""
        params = {} if cursor is None else {"cursor": cursor}
        envelope = {"kind": "mcp/request", "to": [participant_id], "payload": {"method": _LIST, "params": params}}
        answer = await asyncio.to_thread(self._client.post, self.name, envelope)
        self.pending[str(answer["id"])] = participant_id

    def answered(self, envelope: "Envelope") -> str | None:
        """Return the sender if the envelope answers one of our requests."""
        for cause in envelope.correlation_id:
            if self.pending.get(cause) == envelope.sender:
                return self.pending.pop(cause)
        return None


async def _ask_all(
    target: "GatewayTarget", asking: _Asking, participants: tuple[str, ...], timeout: float
) -> "tuple[dict[str, list[Tool]], list[str]]":
    """Return the tools of each participant that answered, and the participants that did not answer in time."""
    import mew

    async with mew.connect(target.socket_url, space=target.space, token=target.token) as space:
        answers = space.envelopes("mcp/response")
        present = [participant_id for participant_id in space.view.participants if participant_id != asking.name]
        targets = list(participants) or present
        if missing := [participant_id for participant_id in targets if participant_id not in space.view.participants]:
            raise CommandFailed(f"not in the space: {', '.join(missing)}; present: {', '.join(present) or 'none'}")
        for participant_id in targets:
            await asking.ask(participant_id, None)
        tools: dict[str, list[Tool]] = {}
        try:
            async with asyncio.timeout(timeout):
                await _collect_tools(answers, asking, tools)
        except TimeoutError:
            pass
        return {name: tools[name] for name in targets if name in tools}, [name for name in targets if name not in tools]


async def _collect_tools(answers: Any, asking: _Asking, tools: "dict[str, list[Tool]]") -> None:
    """Receive answers, and request further pages, until no answer is expected any more."""
    from mew.client import mcp
    from mew.client.errors import McpError

    pages = 0
    while asking.pending:
        envelope = await anext(answers)
        sender = asking.answered(envelope)
        if sender is None:
            continue
        try:
            page = mcp.decode_value(mcp.decode_value(envelope.payload, mcp.Response).unwrap(), mcp.ListPage)
        except McpError:  # it supports MCP and has no tools
            tools.setdefault(sender, [])
            continue
        tools.setdefault(sender, []).extend(page.tools or ())
        pages += 1
        if page.next_cursor is not None and pages < PAGES:
            await asking.ask(sender, page.next_cursor)


def _tool_fields(participant_id: str, tool: "Tool") -> dict[str, Any]:
    return {
        "participant": participant_id,
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
    }


def _print(tools_by_participant: "dict[str, list[Tool]]") -> None:
    """Print one line per tool. On a terminal, long descriptions are cut."""
    rows = [
        (owner, tool.name, _first_line(tool.description))
        for owner, tools in tools_by_participant.items()
        for tool in tools
    ]
    if not rows:
        print("no participant offers tools")
        return
    widths = [max(len(row[column]) for row in (("PARTICIPANT", "TOOL", ""), *rows)) for column in (0, 1)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for owner, name, description in (("PARTICIPANT", "TOOL", "WHAT IT DOES"), *rows):
        line = f"{owner:<{widths[0]}}  {name:<{widths[1]}}  {description}".rstrip()
        print(line if room is None or len(line) <= room else f"{line[: room - 1]}…")


def _first_line(text: str | None) -> str:
    from mew.cli.common.errors import one_line

    lines = (text or "").strip().splitlines()
    return one_line(lines[0]) if lines else ""
