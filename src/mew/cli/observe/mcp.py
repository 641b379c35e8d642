"""`mew mcp list`: which MCP tools the participants of a space offer.

Asks through the HTTP door and listens as an observer: nobody's connection is touched, ours included. Must not call any
tool.
"""

import asyncio
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from mew.cli.common.errors import Failed
from mew.cli.common.io import BadValue, as_json
from mew.cli.common.target import DIRECTORY, Reach, look_by_socket, speak, taking_part

if TYPE_CHECKING:
    from mew.cli.common.http_client import Door
    from mew.cli.common.target import Way
    from mew.client.mcp import Tool
    from mew.protocol.envelope import Envelope


app = App(name="mcp", help="Look at the MCP tools that a space offers.", help_epilogue="")

SECONDS: Final = 2.0
PAGES: Final = 100
"""After so many pages a list is taken to have no end."""
_LIST: Final = "tools/list"


_EXAMPLES: Final = """\
Examples:

  mew mcp list                          of everybody
  mew mcp list calculator --json        of one, as JSON"""


@app.command(name="list", help_epilogue=_EXAMPLES)
def list_tools(
    *who: Annotated[str, Parameter(show_default=False)],
    reach: Reach = DIRECTORY,
    participant: Annotated[str | None, Parameter(name=("--as", "--participant"))] = None,
    timeout: Annotated[float, Parameter(alias="-t")] = SECONDS,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """List the MCP tools of everybody in a space. Who does not answer, as people do not, offers none.

    Parameters
    ----------
    who
        Whom to ask, instead of everybody.
    participant
        Who asks: the space's default_participant, or the only person in it, unless told.
    timeout
        Seconds to wait for answers.
    json
        A JSON array of participant, name, description and input_schema.
    """
    if not timeout > 0:
        raise BadValue(f"--timeout: {timeout:g} seconds are no time to answer in")
    door, name = speak(reach, participant)
    try:
        found, silent = taking_part(_ask_all(look_by_socket(reach), _Asking(door, name), who, timeout))
    finally:
        door.close()
    if json:
        print(as_json([_told(each, tool) for each, tools in found.items() for tool in tools]))
    else:
        _print(found)
    if silent and (who or not any(found.values())):
        print(f"mew: no answer within {timeout:g} s from {', '.join(silent)}", file=sys.stderr)
    return 0


class _Asking:
    """One who asks, and what has been asked: the id of each question, and of whom."""

    def __init__(self, door: "Door", name: str) -> None:
        self._door = door
        self.name = name
        self.asked: dict[str, str] = {}

    async def ask(self, who: str, cursor: str | None) -> None:
        """Ask for a page; in a thread, for the door waits for its answer."""
        params = {} if cursor is None else {"cursor": cursor}
        envelope = {"kind": "mcp/request", "to": [who], "payload": {"method": _LIST, "params": params}}
        answer = await asyncio.to_thread(self._door.say, self.name, envelope)
        self.asked[str(answer["id"])] = who

    def answered(self, envelope: "Envelope") -> str | None:
        """Who answers with this, if it is an answer to us."""
        for cause in envelope.correlation_id:
            if self.asked.get(cause) == envelope.sender:
                return self.asked.pop(cause)
        return None


async def _ask_all(
    way: "Way", asking: _Asking, who: tuple[str, ...], timeout: float
) -> "tuple[dict[str, list[Tool]], list[str]]":
    """The tools of each who answered, and who did not in time."""
    import mew

    async with mew.connect(way.socket_url, space=way.space, token=way.token) as space:
        answers = space.envelopes("mcp/response")
        present = [each for each in space.view.participants if each != asking.name]
        wanted = list(who) or present
        if missing := [each for each in wanted if each not in space.view.participants]:
            raise Failed(f"not in the space: {', '.join(missing)}; present are: {', '.join(present) or 'none'}")
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
    """Take answers, and ask for the next page of a list, until nobody is waited for."""
    from mew.client import mcp
    from mew.client.errors import McpFailure

    pages = 0
    while asking.asked:
        envelope = await anext(answers)
        who = asking.answered(envelope)
        if who is None:
            continue
        try:
            page = mcp.read(mcp.read(envelope.payload, mcp.Response).unwrap(), mcp.Page)
        except McpFailure:  # it answers MCP, and has no tools
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
    """A line for each tool; on a terminal, of its description as much as fits."""
    rows = [(who, tool.name, _first_line(tool.description)) for who, tools in found.items() for tool in tools]
    if not rows:
        print("nobody offers tools")
        return
    widths = [max(len(row[column]) for row in (("PARTICIPANT", "TOOL", ""), *rows)) for column in (0, 1)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for who, name, description in (("PARTICIPANT", "TOOL", "WHAT IT DOES"), *rows):
        line = f"{who:<{widths[0]}}  {name:<{widths[1]}}  {description}".rstrip()
        print(line if room is None or len(line) <= room else f"{line[: room - 1]}…")


def _first_line(text: str | None) -> str:
    from mew.cli.common.http_client import one_line

    lines = (text or "").strip().splitlines()
    return one_line(lines[0]) if lines else ""
