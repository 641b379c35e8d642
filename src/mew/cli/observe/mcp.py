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

SECONDS: Final = 2.0
PAGES: Final = 100
"""Maximum number of pages that are requested: a list could be endless."""
_LIST: Final = "tools/list"


_EXAMPLES: Final = """\
Examples:

  mew mcp list                          the tools of all participants
  mew mcp list calculator --json        the tools of one participant, as JSON"""


@app.command(name="list", help_epilogue=_EXAMPLES)
def list_tools(
    *who: Annotated[str, Parameter(show_default=False)],
    options: TargetOptions = DIRECTORY,
    participant: Annotated[str | None, Parameter(name=("--as", "--participant"))] = None,
    timeout: Annotated[float, Parameter(alias="-t")] = SECONDS,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """List the MCP tools of the participants in a space. A participant that does not answer has no tools.

    Parameters
    ----------
    who
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
        found, silent = asyncio.run(_ask_all(observer_socket_target(options), _Asking(client, name), who, timeout))
    finally:
        client.close()
    if json:
        print(as_json([_told(each, tool) for each, tools in found.items() for tool in tools]))
    else:
        _print(found)
    if silent and (who or not any(found.values())):
        print(f"mew: no answer within {timeout:g} s from {', '.join(silent)}", file=sys.stderr)
    return 0


class _Asking:
    """Sends requests and stores the id and the recipient of each."""

    def __init__(self, client: "GatewayClient", name: str) -> None:
        self._client = client
        self.name = name
        self.asked: dict[str, str] = {}

    async def ask(self, who: str, cursor: str | None) -> None:
        """Request a page. Runs in a thread, because the HTTP client blocks."""
        params = {} if cursor is None else {"cursor": cursor}
        envelope = {"kind": "mcp/request", "to": [who], "payload": {"method": _LIST, "params": params}}
        answer = await asyncio.to_thread(self._client.say, self.name, envelope)
        self.asked[str(answer["id"])] = who

    def answered(self, envelope: "Envelope") -> str | None:
        """Return the sender if the envelope answers one of our requests."""
        for cause in envelope.correlation_id:
            if self.asked.get(cause) == envelope.sender:
                return self.asked.pop(cause)
        return None


async def _ask_all(
    target: "GatewayTarget", asking: _Asking, who: tuple[str, ...], timeout: float
) -> "tuple[dict[str, list[Tool]], list[str]]":
    """Return the tools of each participant that answered, and the participants that did not answer in time."""
    import mew

    async with mew.connect(target.socket_url, space=target.space, token=target.token) as space:
        answers = space.envelopes("mcp/response")
        present = [each for each in space.view.participants if each != asking.name]
        wanted = list(who) or present
        if missing := [each for each in wanted if each not in space.view.participants]:
            raise CommandFailed(f"not in the space: {', '.join(missing)}; present: {', '.join(present) or 'none'}")
        for each in wanted:
            await asking.ask(each, None)
        found: dict[str, list[Tool]] = {}
        try:
            async with asyncio.timeout(timeout):
                await _hear(answers, asking, found)
        except TimeoutError:
            pass
        return {each: found[each] for each in wanted if each in found}, [each for each in wanted if each not in found]


async def _hear(answers: Any, asking: _Asking, found: "dict[str, list[Tool]]") -> None:
    """Receive answers, and request further pages, until no answer is expected any more."""
    from mew.client import mcp
    from mew.client.errors import McpError

    pages = 0
    while asking.asked:
        envelope = await anext(answers)
        who = asking.answered(envelope)
        if who is None:
            continue
        try:
            page = mcp.decode_value(mcp.decode_value(envelope.payload, mcp.Response).unwrap(), mcp.ListPage)
        except McpError:  # it supports MCP and has no tools
            found.setdefault(who, [])
            continue
        found.setdefault(who, []).extend(page.tools or ())
        pages += 1
        if page.next_cursor is not None and pages < PAGES:
            await asking.ask(who, page.next_cursor)


def _told(who: str, tool: "Tool") -> dict[str, Any]:
    return {
        "participant": who,
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
    }


def _print(found: "dict[str, list[Tool]]") -> None:
    """Print one line per tool. On a terminal, long descriptions are cut."""
    rows = [(who, tool.name, _first_line(tool.description)) for who, tools in found.items() for tool in tools]
    if not rows:
        print("no participant offers tools")
        return
    widths = [max(len(row[column]) for row in (("PARTICIPANT", "TOOL", ""), *rows)) for column in (0, 1)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for who, name, description in (("PARTICIPANT", "TOOL", "WHAT IT DOES"), *rows):
        line = f"{who:<{widths[0]}}  {name:<{widths[1]}}  {description}".rstrip()
        print(line if room is None or len(line) <= room else f"{line[: room - 1]}…")


def _first_line(text: str | None) -> str:
    from mew.cli.common.errors import one_line

    lines = (text or "").strip().splitlines()
    return one_line(lines[0]) if lines else ""
