"""Attacks on readers of proposals: the SDK, and a person at the terminal. The inspector's are in `tests/e2e/browser`.

A real gateway decides; what is tried is that a reader shows one thing and sends another, or shows nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest
from textual.widgets import Button

from mew.cli.terminal.widgets import ApprovalDialog
from mew.client import IncomingProposal, Space
from mew.client.errors import AlreadyExists, MewError, ProposalClosed, ProposalExpired, ProtocolError, Withdrawn
from tests.cli.terminal.harness import Seated, seated
from tests.client.harness import joining, played, until
from tests.gateway.raw import Running, running

ALL: Final = [{"kind": "*"}]
MAY_PROPOSE: Final = [{"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}, {"kind": "chat"}, {"kind": "stream/*"}]
PEOPLE: Final[dict[str, Any]] = {"alice": ALL, "agent": MAY_PROPOSE, "mallory": MAY_PROPOSE, "files": ALL}
HIDDEN: Final = "notes/\u202ehsab.txt\u200b\u3164\ufe0f\u00ad"
FRAMES: Final = 60_000


@pytest.fixture
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("space"), {"participants": PEOPLE}) as started:
        yield started


def call(tool: Any, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


READ: Final = call("read_file", path="a")
EXEC: Final = call("exec_file", path="a")


async def propose(space: Space, payload: Any = READ, to: Any = "files") -> str:
    return (await space.send("mcp/proposal", payload, to=to)).id


@asynccontextmanager
async def all_in(gateway: Running) -> AsyncIterator[tuple[Space, Space, Space]]:
    """The agent, Mallory, and who is asked in the end."""
    async with (
        joining(gateway, "agent") as agent,
        joining(gateway, "mallory") as mallory,
        joining(gateway, "files") as files,
    ):
        yield agent, mallory, files


async def noise(mallory: Space, count: int = 520) -> None:
    for _ in range(count):
        await propose(mallory, EXEC)


def later(gateway: Running, seconds: int) -> None:
    """The clock of the gateway only."""
    hub = gateway.gateway.first_hub
    clock = hub.clock
    hub.clock = lambda: clock() + seconds * 1_000_000


async def asked_at(alice: Seated, what: str) -> ApprovalDialog:
    await until(lambda: isinstance(alice.terminal.screen, ApprovalDialog) and what in alice.asked())
    screen = alice.terminal.screen
    assert isinstance(screen, ApprovalDialog)
    return screen


# The SDK


@played
async def test_what_was_open_before_we_came_is_there_with_all_of_it(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files):
        asked = files.envelopes("mcp/request")
        exact = {"method": "tools/call", "params": {"name": "pay", "arguments": {"sum": 1.0, "to": 2**63 + 1}}}
        first = await propose(agent, exact)
        await noise(mallory)
        stream = await mallory.open_stream()
        for _ in range(FRAMES):
            await stream.send(b"x")
        async with joining(gateway, "alice") as alice:
            proposals = alice.proposals()
            assert len(alice.view.proposals or {}) == 65
            proposed = await anext(proposals)
            assert (proposed.id, proposed.by, proposed.to) == (first, "agent", ("files",))
            assert repr(proposed.envelope.payload) == repr(exact)
            await proposed.approve()
            assert repr((await anext(asked)).payload) == repr(exact)
            assert [(await anext(proposals)).tool for _ in range(64)] == ["exec_file"] * 64
            proposals.close()


@played
async def test_what_opened_while_we_were_away_comes_once_and_what_ended_is_closed(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), joining(gateway, "alice") as alice:
        proposals = alice.proposals()
        ended = await propose(agent)
        kept = await propose(agent)
        handed = [await anext(proposals) for _ in range(2)]
        assert alice.connection is not None
        alice.connection.abort("a test")
        await until(lambda: alice.connection is None)
        await agent.send("mcp/withdraw", correlation_id=ended)
        new = await propose(agent, EXEC)
        await alice.connected()
        assert (await anext(proposals)).id == new
        assert [(each.id, each.state) for each in handed] == [(ended, "closed"), (kept, "open")]
        with pytest.raises(ProposalClosed):
            await handed[0].approve()
        proposals.close()


@played
async def test_what_ended_before_it_was_read_is_not_handed_out(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _):
        first, second = await propose(agent), await propose(agent, EXEC)
        async with joining(gateway, "alice") as alice:
            proposals = alice.proposals()
            await agent.send("mcp/withdraw", correlation_id=first)
            assert (await anext(proposals)).id == second
            proposals.close()


@played
async def test_reading_that_is_cancelled_loses_no_proposal(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _):
        first = await propose(agent)
        async with joining(gateway, "alice") as alice:
            proposals = alice.proposals()
            reading = asyncio.create_task(anext(proposals))
            for _ in range(3):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            assert (await anext(proposals)).id == first
            proposals.close()


@played
async def test_a_click_that_comes_14_seconds_late_does_nothing(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        asked = files.envelopes("mcp/request")
        proposals = alice.proposals()
        made = await agent.propose("files", "tools/call", READ["params"], expires_in=10)
        proposed = await anext(proposals)
        later(gateway, 24)
        with pytest.raises((ProposalClosed, ProposalExpired)):
            await proposed.approve()
        with pytest.raises(ProposalExpired):
            await made.result()
        assert proposed.state == "expired"
        await alice.send("mcp/request", EXEC, to="files")
        assert (await anext(asked)).payload == EXEC
        proposals.close()


@played
async def test_the_sdk_takes_no_second_proposal_of_an_id_and_no_forged_end(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files), joining(gateway, "alice") as alice:
        asked, proposals = files.envelopes("mcp/request"), alice.proposals()
        first = await propose(agent)
        proposed = await anext(proposals)
        refused = mallory.wait_for(lambda envelope: envelope.kind == "system/error")
        stamp = proposed.envelope.fields["proposal"]
        mallory.session.require().send_raw(
            b'{"id":"%b","kind":"mcp/proposal","to":["files"],"payload":{"method":"tools/call"},"proposal":%b}'
            % (first.encode(), stamp)
        )
        assert (await refused).payload["error"] == AlreadyExists.code
        assert list(alice.view.proposals or {}) == [proposed.position]
        closed = {"position": proposed.position, "proposal": first, "outcome": "expired"}
        for kind in ("mcp/proposal-closed", "mcp/withdraw", "mcp/reject", "mcp/request"):
            with pytest.raises(ProtocolError):
                await mallory.send(kind, closed if "closed" in kind else READ, correlation_id=first)
        assert (proposed.state, proposed.tool) == ("open", "read_file")
        await proposed.approve()
        assert (await anext(asked)).payload == READ
        proposals.close()


@pytest.mark.parametrize("to", ["mallory", ["mallory"], ["files", "mallory"]], ids=repr)
@played
async def test_the_sdk_asks_nobody_but_those_whom_it_names(gateway: Running, to: Any) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        asked, proposals = files.envelopes("mcp/request"), alice.proposals()
        await propose(agent)
        proposed = await anext(proposals)
        for decide in (proposed.approve, proposed.fulfil, proposed.grant):
            with pytest.raises(ValueError, match="already names its recipients, 'files'"):
                await decide(to=to)
        await proposed.approve(to=["files"])
        assert (await anext(asked)).payload == READ
        proposals.close()


@played
async def test_the_sdk_says_what_it_saw_also_where_it_chooses_whom_to_ask(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        asked, proposals = files.envelopes("mcp/request"), alice.proposals()
        await propose(agent, to=())
        proposed = await anext(proposals)
        with pytest.raises(ValueError, match="names no recipient"):
            await proposed.approve()
        sent = await proposed.approve(to="files")
        claim = msgspec.json.decode(sent.fields["proposal"])
        assert claim == msgspec.json.decode((await anext(asked)).fields["proposal"])
        assert claim["position"] == proposed.position
        proposals.close()


@pytest.mark.parametrize("tool", ["*", "!nothing", "read*", "a!", 7, None, ["read_file"], {"x": 1}], ids=repr)
@played
async def test_the_sdk_grants_no_pattern(gateway: Running, tool: Any) -> None:
    async with all_in(gateway) as (agent, _, _), joining(gateway, "alice") as alice:
        proposals = alice.proposals()
        await propose(agent, call(tool))
        proposed = await anext(proposals)
        with pytest.raises(ValueError, match="granted"):
            await proposed.grant()
        with pytest.raises(ValueError, match="pattern"):
            await IncomingProposal(alice, (await alice.send("mcp/proposal", READ, to="*"))).grant()
        proposals.close()


@played
async def test_a_grant_of_the_sdk_is_for_this_tool_these_recipients_and_one_hour(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), joining(gateway, "alice") as alice:
        proposals = alice.proposals()
        await propose(agent)
        proposed = await anext(proposals)
        await proposed.approve()
        granted = await proposed.grant()
        assert granted.payload["timeout_seconds"] == 3600
        await agent.wait_until(lambda view: any(each.get("to") == ["files"] for each in view.you.capabilities))
        assert agent.can({"kind": "mcp/request", "to": ["files"], "payload": call("read_file", path="b")})
        for to, payload in (("mallory", READ), ("files", EXEC), ("files", {"method": "tools/list"})):
            assert not agent.can({"kind": "mcp/request", "to": [to], "payload": payload})
        later(gateway, 3601)
        with pytest.raises(ProtocolError):
            await agent.send("mcp/request", READ, to="files")
        proposals.close()


@played
async def test_the_sdk_gives_what_was_proposed_as_it_is_and_ascii_shows_it(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        asked, proposals = files.envelopes("mcp/request"), alice.proposals()
        await propose(agent, call(HIDDEN, path=HIDDEN))
        proposed = await anext(proposals)
        assert proposed.tool == proposed.params["arguments"]["path"] == HIDDEN
        assert repr(HIDDEN) != ascii(proposed.tool) == r"'notes/\u202ehsab.txt\u200b\u3164\ufe0f\xad'"
        await proposed.approve()
        assert (await anext(asked)).payload == call(HIDDEN, path=HIDDEN)
        proposals.close()


BESIDE: Final[dict[str, Any]] = {"cwd": "/root", "_meta": {"as": "root"}, "jsonrpc": {"a": 1}, "id": ["x"] * 99}


@pytest.mark.parametrize(
    ("beside", "kept"),
    [
        (BESIDE, {}),
        ({"id": True}, {}),
        ({"id": "x" * 257}, {}),
        ({**BESIDE, "jsonrpc": "2.0", "id": 7}, {"jsonrpc": "2.0", "id": 7}),
        ({"id": "x" * 256}, {"id": "x" * 256}),
    ],
    ids=lambda each: str(each)[:20],
)
@played
async def test_the_sdk_sends_nothing_that_no_digest_covers(
    gateway: Running, beside: dict[str, Any], kept: dict[str, Any]
) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        asked, proposals = files.envelopes("mcp/request"), alice.proposals()
        await propose(agent, {**READ, **beside})
        await (await anext(proposals)).approve()
        assert (await anext(asked)).payload == {**READ, **kept}
        proposals.close()


# A person at the terminal


@played
async def test_the_terminal_asks_what_was_open_before_first(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files):
        asked = files.envelopes("mcp/request")
        await propose(agent)
        await noise(mallory)
        stream = await mallory.open_stream()
        for _ in range(FRAMES):
            await stream.send(b"x")
        async with seated(gateway) as alice:
            await asked_at(alice, "agent wants to call the tool 'read_file' of files")
            await alice.may_answer()
            await alice.pilot.press("y")
            assert (await anext(asked)).payload == READ


@played
async def test_the_terminal_decides_nothing_after_the_end_or_shortly_before(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), seated(gateway, (160, 30)) as alice:
        made = await agent.propose("files", "tools/call", READ["params"], expires_in=10)
        screen = await asked_at(alice, "read_file")
        await alice.may_answer()
        screen._seconds_left = lambda: 1.9
        screen._heed_time()
        assert all(each.disabled for each in screen.query(Button))
        await alice.pilot.press("y")
        assert alice.terminal.screen is screen
        screen._seconds_left = lambda: 3.0
        later(gateway, 24)
        screen.action_answer("yes")
        await alice.sees("closed: expired")
        with pytest.raises(ProposalExpired):
            await made.result()


@played
async def test_a_question_of_the_terminal_is_replaced_by_no_second_proposal(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files), seated(gateway) as alice:
        asked = files.envelopes("mcp/request")
        first = await propose(agent)
        screen = await asked_at(alice, "read_file")
        await alice.may_answer()
        refused = mallory.wait_for(lambda envelope: envelope.kind == "system/error")
        mallory.session.require().send_raw(
            b'{"id":"%b","kind":"mcp/proposal","to":["files"],"payload":{"method":"tools/call"}}' % first.encode()
        )
        assert (await refused).payload["error"] == AlreadyExists.code
        assert alice.terminal.screen is screen
        await alice.pilot.press("y")
        assert (await anext(asked)).payload == READ


@played
async def test_the_next_question_takes_no_key_that_was_meant_for_the_last(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files), seated(gateway) as alice:
        asked = files.envelopes("mcp/request")
        first = await propose(agent)
        await propose(mallory, EXEC)
        await asked_at(alice, "read_file")
        await alice.may_answer()
        await agent.send("mcp/withdraw", correlation_id=first)
        screen = await asked_at(alice, "exec_file")
        screen.action_answer("yes")
        screen.action_answer("grant")
        assert alice.terminal.screen is screen
        await alice.pilot.press("escape")
        await files.send("mcp/request", {"method": "tools/list"}, to="files")
        assert (await anext(asked)).payload == {"method": "tools/list"}
        await until(lambda: not isinstance(alice.terminal.screen, ApprovalDialog))
        await alice.pilot.press("f3")  # put off, and not forgotten
        await asked_at(alice, "exec_file")


@pytest.mark.parametrize("tool", ["*", "!nothing", "read*"])
@played
async def test_the_terminal_grants_no_pattern(gateway: Running, tool: str) -> None:
    async with all_in(gateway) as (agent, _, files), seated(gateway) as alice:
        asked = files.envelopes("mcp/request")
        await propose(agent, call(tool))
        screen = await asked_at(alice, "No grant: ")
        await alice.may_answer()
        assert screen.query_one("#grant", Button).disabled
        await alice.pilot.press("g")
        assert alice.terminal.screen is screen
        await alice.pilot.press("y")
        assert (await anext(asked)).payload == call(tool)
        assert not any(each["kind"] == "mcp/request" for each in agent.view.you.capabilities)


@played
async def test_the_terminal_says_what_it_grants_and_to_whom(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, files), seated(gateway, (100, 30)) as alice:
        grants = files.envelopes("capability/grant")
        await propose(agent, READ, to=())
        await asked_at(alice, "It names no recipient")
        assert alice.terminal.screen.query_one("#yes", Button).disabled
        await until_chosen(alice, "files")
        await asked_at(
            alice, "agent may call the tool 'read_file' of files by itself, with any arguments, for one hour"
        )
        await alice.pilot.press("h")
        await asked_at(alice, "for 8 hours")
        await alice.may_answer("grant")
        await alice.pilot.press("g")
        granted = (await anext(grants)).payload
        capability = {"kind": "mcp/request", "to": ["files"], "payload": {**READ, "params": {"name": "read_file"}}}
        assert (granted["capabilities"], granted["timeout_seconds"]) == ([capability], 8 * 3600)


async def until_chosen(alice: Seated, who: str) -> None:
    screen = alice.terminal.screen
    assert isinstance(screen, ApprovalDialog)
    while screen.to != (who,):
        await alice.pilot.press("t")


@played
async def test_the_terminal_shows_hidden_characters_as_numbers(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), seated(gateway, (120, 30)) as alice:
        await propose(agent, call(HIDDEN, path=HIDDEN, **{HIDDEN: 1}))
        await asked_at(alice, r"\u202ehsab.txt\u200b\u3164\ufe0f\xad")
        assert not any(each in alice.asked() for each in HIDDEN if ord(each) > 0x7F)


@played
async def test_the_terminal_shows_all_arguments_by_one_key(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), seated(gateway) as alice:
        await propose(agent, call("write_file", text="x" * 6000, then="rm -rf"))
        await asked_at(alice, "(a: all ")
        assert "rm -rf" not in alice.asked()
        await alice.pilot.press("a")
        await asked_at(alice, "rm -rf")


@played
async def test_what_a_tool_is_given_besides_arguments_is_shown(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), seated(gateway) as alice:
        await propose(agent, {"method": "tools/call", "params": {**READ["params"], "_meta": {"as": "root"}}})
        await asked_at(alice, '"as": "root"')


@played
async def test_the_terminal_says_that_a_proposer_is_not_here_any_more(gateway: Running) -> None:
    async with joining(gateway, "files"), seated(gateway) as alice:
        async with joining(gateway, "agent") as agent:
            await propose(agent)
            await asked_at(alice, "agent wants to call the tool 'read_file'")
        await asked_at(alice, "agent (not here) wants to call the tool 'read_file'")
        async with joining(gateway, "agent"):
            await asked_at(alice, "agent wants to call the tool 'read_file'")


@pytest.mark.parametrize("params", [["rm -rf"], "rm -rf", {"name": ["t"], "arguments": "rm -rf"}], ids=repr)
@played
async def test_params_of_any_form_are_shown(gateway: Running, params: Any) -> None:
    async with all_in(gateway) as (agent, _, files), seated(gateway) as alice:
        asked = files.envelopes("mcp/request")
        await propose(agent, {"method": "tools/call", "params": params, **BESIDE})
        await asked_at(alice, "rm -rf")
        await alice.may_answer()
        await alice.pilot.press("y")
        assert (await anext(asked)).payload == {"method": "tools/call", "params": params}


@played
async def test_a_method_is_not_shown_as_the_tool_that_it_names(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), seated(gateway) as alice:
        await propose(agent, {"method": "resources/delete", "params": {"name": "read_file"}})
        await asked_at(alice, "agent wants to call resources/delete of files")


@played
async def test_withdrawing_what_is_asked_takes_the_question_away(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), joining(gateway, "alice") as alice:
        proposals = alice.proposals()
        first = await propose(agent)
        proposed = await anext(proposals)
        await agent.send("mcp/withdraw", correlation_id=first)
        await until(lambda: proposed.state == "withdrawn")
        with pytest.raises(Withdrawn):
            await proposed.approve()
        assert issubclass(Withdrawn, MewError)
        proposals.close()
