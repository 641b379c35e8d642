"""Asking others by MCP: a request where our capabilities allow it, a proposal where they allow that.

The functions here are methods of `Space`. What we may send is asked of `space.can`, with the very envelope.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.client import mcp
from mew.client.dispatcher import Watcher
from mew.client.errors import McpFailure, NotAllowed, ParticipantNotFound, RequestTimeout
from mew.client.sender import Draft
from mew.protocol import kinds
from mew.protocol.envelope import Envelope
from mew.protocol.handlers.proposals import LONGEST_SECONDS, SHORTEST_SECONDS
from mew.view import SpaceView

if TYPE_CHECKING:
    from mew.client.space import Space


Args = Mapping[str, Any] | msgspec.Struct
"""Arguments of a tool: a mapping, or a struct."""
PROPOSAL: Final = "mcp/proposal"
ANSWER_SECONDS: Final = 60.0
"""How long a call waits for its answer, unless told otherwise."""
UNAWAITED: Final = "nobody waits for it any more"
"""Why a proposal is withdrawn on the way out."""
PAGES: Final = 1000
"""After so many pages a list is taken to have no end."""


class Answer(msgspec.Struct, frozen=True):
    """The result of an MCP request, and who brought it about."""

    result: dict[str, Any]
    """As MCP has it for the method."""
    by: str
    """Who sent the request: we, or whoever fulfilled our proposal."""
    answered_by: str
    """Whose answer it is."""
    envelope: Envelope
    """The `mcp/response` itself."""


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool answered, and who brought it about."""

    content: list[mcp.Content | mcp.OtherContent]
    """The pieces of the answer."""
    structured: dict[str, Any] | None
    """The same as a JSON object, where the tool gives one."""
    is_error: bool
    """Whether the tool failed; then the pieces say why."""
    by: str
    """Who had the tool called: we, or whoever fulfilled our proposal."""
    answered_by: str
    """Whose tool it is."""

    @property
    def text(self) -> str:
        """All the words in it, a line for each piece."""
        return "\n".join(each.text for each in self.content if isinstance(each, mcp.TextContent))


# Methods of a space


async def call(
    space: "Space",
    who: str,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = ANSWER_SECONDS,
    propose: bool | None = None,
) -> Answer:
    """Have somebody answer an MCP request of any method, and wait for the answer.

    By `mcp/request` where we may, else by `mcp/proposal` where we may do that; `propose` insists on one of them. Raises
    `McpFailure` for an error that was answered, `Rejected`, `Withdrawn` or `ProposalExpired` for a proposal that nobody
    fulfils, `NotAllowed` where we may do neither, `ParticipantNotFound` where `who` is not there or leaves before it
    has answered, `RequestTimeout` where nothing comes. A proposal that nobody waits for any more is withdrawn.
    """
    payload = {"method": method, "params": {} if params is None else params}
    if _is_direct(space, who, payload, propose):
        return await ask(space, Draft(kind=kinds.MCP_REQUEST, payload=payload, to=who), timeout)
    return await _by_proposal(space, who, method, params, timeout)


async def _by_proposal(
    space: "Space", who: str, method: str, params: Mapping[str, Any] | None, timeout: float | None
) -> Answer:
    """Propose it and wait for what comes of it; both have to be done within the time."""
    proposal = None
    try:
        async with asyncio.timeout(timeout) as limit:
            lifetime = None if timeout is None else min(max(timeout, SHORTEST_SECONDS), LONGEST_SECONDS)
            proposal = await space.propose(who, method, params, expires_in=lifetime)
            return await proposal.result()
    except (TimeoutError, asyncio.CancelledError) as error:
        if proposal is not None:
            await proposal.abandon(UNAWAITED)
        if isinstance(error, TimeoutError) and limit.expired():
            named = repr(method) if proposal is None else repr(proposal.id)
            raise RequestTimeout(f"nobody fulfilled {named} within {timeout:g} s") from None
        raise


def _is_direct(space: "Space", who: str, payload: Mapping[str, Any], propose: bool | None) -> bool:
    """Whether to send a request; False: a proposal."""
    addressed = {"to": [who], "payload": payload}
    if propose is not True and space.can({"kind": kinds.MCP_REQUEST, **addressed}):
        return True
    if propose is not False and space.can({"kind": PROPOSAL, **addressed}):
        return False
    raise NotAllowed(str(payload["method"]), who)


async def call_tool(
    space: "Space",
    who: str,
    name: str,
    args: Args | None = None,
    *,
    timeout: float | None = ANSWER_SECONDS,
    propose: bool | None = None,
) -> ToolResult:
    """Call a tool of somebody's and wait for what it answers: `await space.call_tool("calculator", "add", {"a": 1})`.

    By request or by proposal, and with the errors of `call`. A tool that fails is no error here: `is_error` says so.
    """
    arguments = msgspec.to_builtins({} if args is None else args)
    params = {"name": name, "arguments": arguments}
    answer = await call(space, who, mcp.TOOLS_CALL, params, timeout=timeout, propose=propose)
    return tool_result(answer)


def tool_result(answer: Answer) -> ToolResult:
    """The answer to a `tools/call`, read."""
    found = mcp.read(answer.result, mcp.CallResult)
    return ToolResult(found.contents, found.structured_content, found.is_error, answer.by, answer.answered_by)


async def list_tools(space: "Space", who: str, *, timeout: float | None = ANSWER_SECONDS) -> list[mcp.Tool]:
    """The tools that somebody offers, all pages of them."""
    return [each async for page in _pages(space, who, mcp.TOOLS_LIST, timeout) for each in page.tools or ()]


async def list_resources(space: "Space", who: str, *, timeout: float | None = ANSWER_SECONDS) -> list[mcp.Resource]:
    """The resources that somebody offers, all pages of them; those of a template are not among them."""
    return [each async for page in _pages(space, who, mcp.RESOURCES_LIST, timeout) for each in page.resources or ()]


async def list_resource_templates(
    space: "Space", who: str, *, timeout: float | None = ANSWER_SECONDS
) -> list[mcp.ResourceTemplate]:
    """The forms of the addresses of resources that somebody offers, all pages of them."""
    pages = _pages(space, who, mcp.RESOURCES_TEMPLATES_LIST, timeout)
    return [each async for page in pages for each in page.resource_templates or ()]


async def read_resource(
    space: "Space", who: str, uri: str, *, timeout: float | None = ANSWER_SECONDS
) -> list[mcp.ResourceContents]:
    """What a resource of somebody's holds: mostly one piece, `.text` or `.bytes`."""
    answer = await call(space, who, mcp.RESOURCES_READ, {"uri": uri}, timeout=timeout)
    return [mcp.read_contents(each) for each in mcp.read(answer.result, mcp.ReadResult).contents]


async def list_prompts(space: "Space", who: str, *, timeout: float | None = ANSWER_SECONDS) -> list[mcp.Prompt]:
    """The prompts that somebody offers, all pages of them."""
    return [each async for page in _pages(space, who, mcp.PROMPTS_LIST, timeout) for each in page.prompts or ()]


async def get_prompt(
    space: "Space",
    who: str,
    name: str,
    args: Mapping[str, str] | None = None,
    *,
    timeout: float | None = ANSWER_SECONDS,
) -> mcp.GetPromptResult:
    """A prompt of somebody's, filled in."""
    params = {"name": name, "arguments": {} if args is None else args}
    answer = await call(space, who, mcp.PROMPTS_GET, params, timeout=timeout)
    return mcp.read(answer.result, mcp.GetPromptResult)


async def _pages(space: "Space", who: str, method: str, timeout: float | None) -> AsyncIterator[mcp.Page]:
    cursor, seen = None, set[str]()
    while True:
        answer = await call(space, who, method, {} if cursor is None else {"cursor": cursor}, timeout=timeout)
        page = mcp.read(answer.result, mcp.Page)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
        if cursor in seen or len(seen) == PAGES:
            raise McpFailure(mcp.INTERNAL_ERROR, f"{who!r} lists {method} without an end")
        seen.add(cursor)


# What they are made of


async def ask(space: "Space", draft: Draft, timeout: float | None) -> Answer:
    """Send an `mcp/request` and wait for the answer of one it is addressed to."""
    asked = [draft.to] if isinstance(draft.to, str) else list(draft.to)

    def is_answer(envelope: Envelope) -> bool:
        return envelope.kind == kinds.MCP_RESPONSE and envelope.sender in asked

    async with present(space, asked, timeout):
        response = await space.post(draft, is_answer)
    return answer_in(response, space.me)


def answer_in(response: Envelope, by: str) -> Answer:
    """What an `mcp/response` says; its error is raised."""
    result = mcp.read(response.payload, mcp.Response).unwrap()
    return Answer(result, by, response.sender, response)


@asynccontextmanager
async def present(space: "Space", asked: list[str], timeout: float | None) -> AsyncIterator[None]:
    """Wait within, but no longer than this, and only while any of those that were asked is there."""

    def are_gone(view: SpaceView) -> bool:
        return not any(each in view.participants or each == space.me for each in asked)

    who = ", ".join(asked)
    if are_gone(space.view):
        raise ParticipantNotFound(f"{who!r} is not here", participants=asked)
    limit = asyncio.timeout(timeout)
    left = _watch(space, are_gone, lambda: limit.reschedule(asyncio.get_running_loop().time()))
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        if left.future.done():
            raise ParticipantNotFound(f"{who!r} left before it answered", participants=asked) from None
        raise RequestTimeout(f"{who!r} did not answer within {timeout:g} s") from None
    finally:
        space.unwatch_view(left)


def _watch(space: "Space", is_so: Callable[[SpaceView], bool], then: Callable[[], None]) -> Watcher:
    """Do something in the moment in which the view is so."""

    def look(view: SpaceView) -> bool:
        found = is_so(view)
        if found:
            then()
        return found

    return space.watch_view(look)
