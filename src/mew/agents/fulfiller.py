"""The fulfiller: carries out the proposals of other participants and reports the results.

It approves everything. Do not use it in a space where a participant should decide: its permissions replace that
decision.
"""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from mew.agents.replies import agent_log, log_missed, reply
from mew.client import IncomingProposal, McpAnswer, Participant, Proposals, Space, mcp
from mew.client.errors import McpError, MewError, ParticipantNotFound
from mew.client.mcp.calls import send_request, tool_result
from mew.client.mcp.server import McpService, context_of
from mew.client.sender import OutgoingEnvelope
from mew.client.tasks import TaskSet
from mew.protocol import kinds

MAX_CONCURRENT: Final = 16
LIST_SECONDS: Final = 3.0
"""Timeout for participants to report their tools."""
ANSWER_SECONDS: Final = 60.0


async def fulfiller(space: Space) -> None:
    """Fulfill every proposal of other participants until the space ends or the agent is shut down."""
    participant = Participant(instructions="Propose a request, and it is sent for you.")
    proposals = space.proposals(on_overflow=log_missed)
    service = McpService(space, participant, controls=participant)
    await service.run(_fulfil_all(space, participant, proposals))


async def _fulfil_all(space: Space, participant: Participant, proposals: Proposals) -> None:
    crew, room = TaskSet(f"mew agent: {space.participant_id} fulfils"), asyncio.Semaphore(MAX_CONCURRENT)

    async def work(proposed: IncomingProposal) -> None:
        try:
            await _fulfil(space, proposed)
        finally:
            room.release()

    try:
        async for proposed in proposals:
            await room.acquire()
            await participant.wait_until_resumed()
            crew.start(work(proposed))
    finally:
        await crew.cancel_all()


async def _fulfil(space: Space, proposed: IncomingProposal) -> None:
    """Carry out a proposal if it is still open. Reports the result or the error as a chat."""
    agent_log.info("fulfilling proposal %s: %s", proposed.id, proposed.tool or proposed.method)
    try:
        recipients = await _recipients_of(space, proposed)
        if proposed.state != "open":
            agent_log.info("proposal %s is already %s", proposed.id, proposed.state)
            return
        text = _answer_text(proposed, await _ask(space, proposed, recipients))
    except MewError as error:
        agent_log.warning("cannot fulfill proposal %s: %s", proposed.id, error)
        text = f"Error fulfilling proposal: {error}"
    with suppress(MewError):  # if the space has ended, the loop that reads proposals gets the error
        await reply(space, text, proposed.envelope)


async def _ask(space: Space, proposed: IncomingProposal, recipients: list[str]) -> McpAnswer:
    """Send the proposed request and return the answer.

    The request refers to the position and digest of the proposal. If the proposal was addressed to us, the request to
    other participants refers only to its id.
    """
    if space.participant_id not in proposed.to:
        return await proposed.fulfil(recipients, ANSWER_SECONDS)
    context = context_of(proposed.envelope)
    draft = OutgoingEnvelope(
        kind=kinds.MCP_REQUEST, payload=proposed.request, to=recipients, correlation_id=proposed.id, context=context
    )
    return await send_request(space, draft, ANSWER_SECONDS)


def _answer_text(proposed: IncomingProposal, answer: McpAnswer) -> str:
    """Return the text of an answer. Raises `McpError` if the tool failed."""
    if proposed.method != mcp.TOOLS_CALL:
        return msgspec.json.encode(answer.result).decode()
    result = tool_result(answer)
    if result.is_error:
        raise McpError(mcp.INTERNAL_ERROR, result.text or "the tool failed")
    return result.text or msgspec.json.encode(answer.result).decode()


async def _recipients_of(space: Space, proposed: IncomingProposal) -> list[str]:
    """Return the participants to ask: those named if all are present; if none but us is named, one with the tool."""
    recipients = [participant for participant in proposed.to if participant != space.participant_id]
    missing = [participant for participant in recipients if participant not in space.view.participants]
    if missing:
        raise ParticipantNotFound(f"not in the space: {', '.join(missing)}", participants=missing)
    if recipients:
        return recipients
    if proposed.tool is None:
        raise ParticipantNotFound("the proposal names no recipient and no tool", participants=[])
    return [await find_tool_owner(space, proposed.tool)]


async def find_tool_owner(space: Space, tool: str) -> str:
    """Return the first participant that reports the tool. Asks every participant that we may ask."""
    asking = {"kind": kinds.MCP_REQUEST, "payload": {"method": mcp.TOOLS_LIST, "params": {}}}
    others = [participant for participant in space.view.participants if space.can({**asking, "to": [participant]})]
    tasks = [
        asyncio.create_task(_owner_of_tool(space, participant, tool), name=f"mew agent: tools of {participant}")
        for participant in others
    ]
    try:
        for answered in asyncio.as_completed(tasks):
            if (participant := await answered) is not None:
                return participant
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    raise ParticipantNotFound(f"no participant in the space has the tool {tool!r}", tool=tool)


async def _owner_of_tool(space: Space, participant: str, tool: str) -> str | None:
    """Return the participant if it has the tool. Returns None if it does not have it or does not answer."""
    try:
        tools = await space.list_tools(participant, timeout=LIST_SECONDS)
    except MewError:
        return None
    return participant if any(offered.name == tool for offered in tools) else None
