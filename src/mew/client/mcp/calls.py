"""MCP requests to other participants: sent directly if the capabilities allow it, otherwise as a proposal.

The functions here are methods of `Space`. `space.can` checks the envelope that is to be sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.client import mcp
from mew.client.dispatcher import Waiter
from mew.client.errors import McpError, NotPermitted, ParticipantNotFound, RequestTimeout
from mew.client.sender import OutgoingEnvelope
from mew.protocol import kinds
from mew.protocol.envelope import Envelope
from mew.protocol.handlers.proposals import MAX_LIFETIME_SECONDS, MIN_LIFETIME_SECONDS
from mew.view import SpaceView

if TYPE_CHECKING:
    from mew.client.space import Space


Args = Mapping[str, Any] | msgspec.Struct
"""Arguments of a tool: a mapping or a struct."""
ANSWER_TIMEOUT: Final = 60.0
"""Default timeout of a call, in seconds."""
UNAWAITED: Final = "the caller no longer waits for it"
"""The reason given when a proposal is withdrawn during cleanup."""
MAX_PAGES: Final = 1000
"""Limit on the pages of a list; a list with more pages is treated as endless."""


class McpAnswer(msgspec.Struct, frozen=True):
    """The result of an MCP request, with its requester and its sender."""

    result: dict[str, Any]
    """The result, in the form that MCP defines for the method."""
    by: str
    """The participant that sent the request: this one, or the one that fulfilled the proposal."""
    answered_by: str
    """The participant that answered."""
    envelope: Envelope
    """The `mcp/response` itself."""


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool call, with its requester and its sender."""

    content: list[mcp.Content | mcp.OtherContent]
    """The content items of the result."""
    structured: dict[str, Any] | None
    """The result as a JSON object, if the tool returns one."""
    is_error: bool
    """Whether the tool failed; `content` then describes the error."""
    by: str
    """The participant that sent the request: this one, or the one that fulfilled the proposal."""
    answered_by: str
    """The participant that offers the tool."""

    @property
    def text(self) -> str:
        """The text of all text items, joined with newlines."""
        return "\n".join(item.text for item in self.content if isinstance(item, mcp.TextContent))


# Methods of a space


async def call(
    space: "Space",
    who: str,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = ANSWER_TIMEOUT,
    propose: bool | None = None,
) -> McpAnswer:
    """Send an MCP request of any method to a participant and wait for the answer.

    It is sent as `mcp/request` if your capabilities allow that, otherwise as `mcp/proposal`. `propose=True` requires a
    proposal, `propose=False` a request. If the call is cancelled or times out, its proposal is withdrawn.

    Raises `McpError` if the answer is an error; `Rejected`, `Withdrawn` or `ProposalExpired` if the proposal is not
    fulfilled; `NotPermitted` if you may send neither; `ParticipantNotFound` if `who` is not present, or leaves before
    it answers a request; `RequestTimeout` after `timeout` seconds.
    """
    payload = {"method": method, "params": {} if params is None else params}
    if _is_direct(space, who, payload, propose):
        return await send_request(space, OutgoingEnvelope(kind=kinds.MCP_REQUEST, payload=payload, to=who), timeout)
    return await _by_proposal(space, who, method, params, timeout)


async def _by_proposal(
    space: "Space", who: str, method: str, params: Mapping[str, Any] | None, timeout: float | None
) -> McpAnswer:
    """Send a proposal and wait for its result; the timeout covers both."""
    proposal = None
    try:
        async with asyncio.timeout(timeout) as limit:
            lifetime = None if timeout is None else min(max(timeout, MIN_LIFETIME_SECONDS), MAX_LIFETIME_SECONDS)
            proposal = await space.propose(who, method, params, expires_in=lifetime)
            return await proposal.result()
    except (TimeoutError, asyncio.CancelledError) as error:
        if proposal is not None:
            await proposal.abandon(UNAWAITED)
        if isinstance(error, TimeoutError) and limit.expired():
            label = repr(method) if proposal is None else repr(proposal.id)
            raise RequestTimeout(f"no participant fulfilled {label} within {timeout:g} s") from None
        raise


def _is_direct(space: "Space", who: str, payload: Mapping[str, Any], propose: bool | None) -> bool:
    """Return True to send a request, False to send a proposal. Raises `NotPermitted` if neither is allowed."""
    addressed = {"to": [who], "payload": payload}
    if propose is not True and space.can({"kind": kinds.MCP_REQUEST, **addressed}):
        return True
    if propose is not False and space.can({"kind": kinds.MCP_PROPOSAL, **addressed}):
        return False
    raise NotPermitted(str(payload["method"]), who)


async def call_tool(
    space: "Space",
    who: str,
    name: str,
    args: Args | None = None,
    *,
    timeout: float | None = ANSWER_TIMEOUT,
    propose: bool | None = None,
) -> ToolResult:
    """Call a tool of a participant and wait for its result: `await space.call_tool("calculator", "add", {"a": 1})`.

    It uses a request or a proposal, and raises the same errors as `call`. A tool that fails does not raise: its result
    has `is_error` set.
    """
    arguments = msgspec.to_builtins({} if args is None else args)
    params = {"name": name, "arguments": arguments}
    answer = await call(space, who, mcp.TOOLS_CALL, params, timeout=timeout, propose=propose)
    return tool_result(answer)


def tool_result(answer: McpAnswer) -> ToolResult:
    """Decode the answer to a `tools/call`."""
    result = mcp.decode_value(answer.result, mcp.CallResult)
    return ToolResult(result.contents, result.structured_content, result.is_error, answer.by, answer.answered_by)


async def fetch_tools(space: "Space", who: str, *, timeout: float | None = ANSWER_TIMEOUT) -> list[mcp.Tool]:
    """Return all tools that a participant offers, from all pages."""
    return [tool async for page in _pages(space, who, mcp.TOOLS_LIST, timeout) for tool in page.tools or ()]


async def fetch_resources(space: "Space", who: str, *, timeout: float | None = ANSWER_TIMEOUT) -> list[mcp.Resource]:
    """Return all resources that a participant offers, from all pages; resources of a template are not included."""
    return [
        resource async for page in _pages(space, who, mcp.RESOURCES_LIST, timeout) for resource in page.resources or ()
    ]


async def fetch_resource_templates(
    space: "Space", who: str, *, timeout: float | None = ANSWER_TIMEOUT
) -> list[mcp.ResourceTemplate]:
    """Return all resource URI templates that a participant offers, from all pages."""
    pages = _pages(space, who, mcp.RESOURCES_TEMPLATES_LIST, timeout)
    return [template async for page in pages for template in page.resource_templates or ()]


async def read_resource(
    space: "Space", who: str, uri: str, *, timeout: float | None = ANSWER_TIMEOUT
) -> list[mcp.ResourceContents]:
    """Read a resource of a participant. The list usually has one item, with `.text` or `.bytes`."""
    answer = await call(space, who, mcp.RESOURCES_READ, {"uri": uri}, timeout=timeout)
    return [mcp.read_contents(contents) for contents in mcp.decode_value(answer.result, mcp.ReadResult).contents]


async def fetch_prompts(space: "Space", who: str, *, timeout: float | None = ANSWER_TIMEOUT) -> list[mcp.Prompt]:
    """Return all prompts that a participant offers, from all pages."""
    return [prompt async for page in _pages(space, who, mcp.PROMPTS_LIST, timeout) for prompt in page.prompts or ()]


async def get_prompt(
    space: "Space",
    who: str,
    name: str,
    args: Mapping[str, str] | None = None,
    *,
    timeout: float | None = ANSWER_TIMEOUT,
) -> mcp.GetPromptResult:
    """Return a prompt of a participant with its arguments filled in."""
    params = {"name": name, "arguments": {} if args is None else args}
    answer = await call(space, who, mcp.PROMPTS_GET, params, timeout=timeout)
    return mcp.decode_value(answer.result, mcp.GetPromptResult)


async def _pages(space: "Space", who: str, method: str, timeout: float | None) -> AsyncIterator[mcp.ListPage]:
    cursor, cursors = None, set[str]()
    while True:
        answer = await call(space, who, method, {} if cursor is None else {"cursor": cursor}, timeout=timeout)
        page = mcp.decode_value(answer.result, mcp.ListPage)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
        if cursor in cursors or len(cursors) == MAX_PAGES:
            raise McpError(mcp.INTERNAL_ERROR, f"{who!r} lists {method} without an end")
        cursors.add(cursor)


# Helpers


async def send_request(space: "Space", draft: OutgoingEnvelope, timeout: float | None) -> McpAnswer:
    """Send an `mcp/request` and wait for the answer of one of its recipients."""
    recipients = [draft.to] if isinstance(draft.to, str) else list(draft.to)

    def is_answer(envelope: Envelope) -> bool:
        return envelope.kind == kinds.MCP_RESPONSE and envelope.sender in recipients

    async with wait_until_present(space, recipients, timeout):
        response = await space.post(draft, is_answer)
    return answer_in(response, space.participant_id)


def answer_in(response: Envelope, by: str) -> McpAnswer:
    """Return the answer in an `mcp/response`. Raises `McpError` if it is an error."""
    result = mcp.decode_value(response.payload, mcp.Response).unwrap()
    return McpAnswer(result, by, response.sender, response)


@asynccontextmanager
async def wait_until_present(space: "Space", recipients: list[str], timeout: float | None) -> AsyncIterator[None]:
    """Limit the waiting in this block to `timeout` seconds and to the presence of at least one recipient.

    Raises `ParticipantNotFound` if no recipient is present, or when the last one leaves; `RequestTimeout` on timeout.
    """

    def are_gone(view: SpaceView) -> bool:
        return not any(recipient in view.participants or recipient == space.participant_id for recipient in recipients)

    who = ", ".join(recipients)
    if are_gone(space.view):
        raise ParticipantNotFound(f"{who!r} is not present", participants=recipients)
    limit = asyncio.timeout(timeout)
    left = _watch(space, are_gone, lambda: limit.reschedule(asyncio.get_running_loop().time()))
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        if left.future.done():
            raise ParticipantNotFound(f"{who!r} left before it answered", participants=recipients) from None
        raise RequestTimeout(f"{who!r} did not answer within {timeout:g} s") from None
    finally:
        space.unwatch_view(left)


def _watch(space: "Space", condition: Callable[[SpaceView], bool], then: Callable[[], None]) -> Waiter:
    """Call `then` as soon as `condition` returns true for the view."""

    def look(view: SpaceView) -> bool:
        is_met = condition(view)
        if is_met:
            then()
        return is_met

    return space.watch_view(look)
