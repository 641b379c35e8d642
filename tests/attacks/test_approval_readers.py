"""Attacks on readers of proposals: the SDK and the terminal. Attacks on the inspector are in `tests/e2e/browser`.

A real gateway decides. The attacks try to make a reader show one request and send another, or show nothing.
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
from tests.cli.terminal.harness import TerminalUser, at_terminal
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
    """The proposing agent, Mallory, and the recipient of the requests."""
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
    """Advance the clock of the gateway only."""
    hub = gateway.gateway.first_hub
    clock = hub.clock
    hub.clock = lambda: clock() + seconds * 1_000_000


async def question_of(alice: TerminalUser, text: str) -> ApprovalDialog:
    await until(lambda: isinstance(alice.terminal.screen, ApprovalDialog) and text in alice.dialog_text())
    screen = alice.terminal.screen
    assert isinstance(screen, ApprovalDialog)
    return screen


# The SDK


@played
async def test_a_proposal_from_before_the_join_is_complete(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files):
        requests = files.envelopes("mcp/request")
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
            assert repr((await anext(requests)).payload) == repr(exact)
            assert [(await anext(proposals)).tool for _ in range(64)] == ["exec_file"] * 64
            proposals.close()


@played
async def test_proposals_that_opened_or_ended_during_a_disconnect_are_updated_once(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), joining(gateway, "alice") as alice:
        proposals = alice.proposals()
        ended = await propose(agent)
        remaining = await propose(agent)
        handed = [await anext(proposals) for _ in range(2)]
        assert alice.connection is not None
        alice.connection.abort("a test")
        await until(lambda: alice.connection is None)
        await agent.send("mcp/withdraw", correlation_id=ended)
        new = await propose(agent, EXEC)
        await alice.connected()
        assert (await anext(proposals)).id == new
        assert [(proposal.id, proposal.state) for proposal in handed] == [(ended, "closed"), (remaining, "open")]
        with pytest.raises(ProposalClosed):
            await handed[0].approve()
        proposals.close()


@played
async def test_a_proposal_that_ended_before_it_was_read_is_not_returned(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _):
        first, second = await propose(agent), await propose(agent, EXEC)
        async with joining(gateway, "alice") as alice:
            proposals = alice.proposals()
            await agent.send("mcp/withdraw", correlation_id=first)
            assert (await anext(proposals)).id == second
            proposals.close()


@played
async def test_a_cancelled_read_loses_no_proposal(gateway: Running) -> None:
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
async def test_an_approval_14_seconds_after_the_expiry_does_nothing(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        requests = files.envelopes("mcp/request")
        proposals = alice.proposals()
        sent = await agent.propose("files", "tools/call", READ["params"], expires_in=10)
        proposed = await anext(proposals)
        later(gateway, 24)
        with pytest.raises((ProposalClosed, ProposalExpired)):
            await proposed.approve()
        with pytest.raises(ProposalExpired):
            await sent.result()
        assert proposed.state == "expired"
        await alice.send("mcp/request", EXEC, to="files")
        assert (await anext(requests)).payload == EXEC
        proposals.close()


@played
async def test_the_sdk_accepts_no_second_proposal_with_the_same_id_and_no_forged_end(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files), joining(gateway, "alice") as alice:
        requests, proposals = files.envelopes("mcp/request"), alice.proposals()
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
        assert (await anext(requests)).payload == READ
        proposals.close()


@pytest.mark.parametrize("to", ["mallory", ["mallory"], ["files", "mallory"]], ids=repr)
@played
async def test_the_sdk_sends_a_request_only_to_the_recipients_of_the_proposal(gateway: Running, to: Any) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        requests, proposals = files.envelopes("mcp/request"), alice.proposals()
        await propose(agent)
        proposed = await anext(proposals)
        for decide in (proposed.approve, proposed.fulfil, proposed.grant):
            with pytest.raises(ValueError, match="already names its recipients, 'files'"):
                await decide(to=to)
        await proposed.approve(to=["files"])
        assert (await anext(requests)).payload == READ
        proposals.close()


@played
async def test_the_sdk_names_the_proposal_that_it_read_also_with_a_chosen_recipient(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        requests, proposals = files.envelopes("mcp/request"), alice.proposals()
        await propose(agent, to=())
        proposed = await anext(proposals)
        with pytest.raises(ValueError, match="names no recipient"):
            await proposed.approve()
        sent = await proposed.approve(to="files")
        claim = msgspec.json.decode(sent.fields["proposal"])
        assert claim == msgspec.json.decode((await anext(requests)).fields["proposal"])
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
async def test_a_grant_of_the_sdk_is_limited_to_the_tool_the_recipients_and_one_hour(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), joining(gateway, "alice") as alice:
        proposals = alice.proposals()
        await propose(agent)
        proposed = await anext(proposals)
        await proposed.approve()
        granted = await proposed.grant()
        assert granted.payload["timeout_seconds"] == 3600
        await agent.wait_until(
            lambda view: any(capability.get("to") == ["files"] for capability in view.you.capabilities)
        )
        assert agent.can({"kind": "mcp/request", "to": ["files"], "payload": call("read_file", path="b")})
        for to, payload in (("mallory", READ), ("files", EXEC), ("files", {"method": "tools/list"})):
            assert not agent.can({"kind": "mcp/request", "to": [to], "payload": payload})
        later(gateway, 3601)
        with pytest.raises(ProtocolError):
            await agent.send("mcp/request", READ, to="files")
        proposals.close()


@played
async def test_the_sdk_returns_hidden_characters_unchanged_and_ascii_shows_them(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        requests, proposals = files.envelopes("mcp/request"), alice.proposals()
        await propose(agent, call(HIDDEN, path=HIDDEN))
        proposed = await anext(proposals)
        assert proposed.tool == proposed.params["arguments"]["path"] == HIDDEN
        assert repr(HIDDEN) != ascii(proposed.tool) == r"'notes/\u202ehsab.txt\u200b\u3164\ufe0f\xad'"
        await proposed.approve()
        assert (await anext(requests)).payload == call(HIDDEN, path=HIDDEN)
        proposals.close()


BESIDE: Final[dict[str, Any]] = {"cwd": "/root", "_meta": {"as": "root"}, "jsonrpc": {"a": 1}, "id": ["x"] * 99}


@pytest.mark.parametrize(
    ("beside", "forwarded"),
    [
        (BESIDE, {}),
        ({"id": True}, {}),
        ({"id": "x" * 257}, {}),
        ({**BESIDE, "jsonrpc": "2.0", "id": 7}, {"jsonrpc": "2.0", "id": 7}),
        ({"id": "x" * 256}, {"id": "x" * 256}),
    ],
    ids=lambda value: str(value)[:20],
)
@played
async def test_the_sdk_sends_only_what_the_digest_covers(
    gateway: Running, beside: dict[str, Any], forwarded: dict[str, Any]
) -> None:
    async with all_in(gateway) as (agent, _, files), joining(gateway, "alice") as alice:
        requests, proposals = files.envelopes("mcp/request"), alice.proposals()
        await propose(agent, {**READ, **beside})
        await (await anext(proposals)).approve()
        assert (await anext(requests)).payload == {**READ, **forwarded}
        proposals.close()


# The terminal


@played
async def test_the_terminal_asks_about_earlier_proposals_first(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files):
        requests = files.envelopes("mcp/request")
        await propose(agent)
        await noise(mallory)
        stream = await mallory.open_stream()
        for _ in range(FRAMES):
            await stream.send(b"x")
        async with at_terminal(gateway) as alice:
            await question_of(alice, "agent wants to call the tool 'read_file' of files")
            await alice.may_answer()
            await alice.pilot.press("y")
            assert (await anext(requests)).payload == READ


@played
async def test_the_terminal_accepts_no_answer_after_the_expiry_or_shortly_before(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), at_terminal(gateway, (160, 30)) as alice:
        sent = await agent.propose("files", "tools/call", READ["params"], expires_in=10)
        screen = await question_of(alice, "read_file")
        await alice.may_answer()
        screen._seconds_left = lambda: 1.9
        screen._heed_time()
        assert all(button.disabled for button in screen.query(Button))
        await alice.pilot.press("y")
        assert alice.terminal.screen is screen
        screen._seconds_left = lambda: 3.0
        later(gateway, 24)
        screen.action_answer("yes")
        await alice.wait_for_text("closed: expired")
        with pytest.raises(ProposalExpired):
            await sent.result()


@played
async def test_a_second_proposal_does_not_replace_a_question_of_the_terminal(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files), at_terminal(gateway) as alice:
        requests = files.envelopes("mcp/request")
        first = await propose(agent)
        screen = await question_of(alice, "read_file")
        await alice.may_answer()
        refused = mallory.wait_for(lambda envelope: envelope.kind == "system/error")
        mallory.session.require().send_raw(
            b'{"id":"%b","kind":"mcp/proposal","to":["files"],"payload":{"method":"tools/call"}}' % first.encode()
        )
        assert (await refused).payload["error"] == AlreadyExists.code
        assert alice.terminal.screen is screen
        await alice.pilot.press("y")
        assert (await anext(requests)).payload == READ


@played
async def test_the_next_question_ignores_keys_that_were_meant_for_the_previous_one(gateway: Running) -> None:
    async with all_in(gateway) as (agent, mallory, files), at_terminal(gateway) as alice:
        requests = files.envelopes("mcp/request")
        first = await propose(agent)
        await propose(mallory, EXEC)
        await question_of(alice, "read_file")
        await alice.may_answer()
        await agent.send("mcp/withdraw", correlation_id=first)
        screen = await question_of(alice, "exec_file")
        screen.action_answer("yes")
        screen.action_answer("grant")
        assert alice.terminal.screen is screen
        await alice.pilot.press("escape")
        await files.send("mcp/request", {"method": "tools/list"}, to="files")
        assert (await anext(requests)).payload == {"method": "tools/list"}
        await until(lambda: not isinstance(alice.terminal.screen, ApprovalDialog))
        await alice.pilot.press("f3")  # postponed, and still open
        await question_of(alice, "exec_file")


@pytest.mark.parametrize("tool", ["*", "!nothing", "read*"])
@played
async def test_the_terminal_grants_no_pattern(gateway: Running, tool: str) -> None:
    async with all_in(gateway) as (agent, _, files), at_terminal(gateway) as alice:
        requests = files.envelopes("mcp/request")
        await propose(agent, call(tool))
        screen = await question_of(alice, "No grant: ")
        await alice.may_answer()
        assert screen.query_one("#grant", Button).disabled
        await alice.pilot.press("g")
        assert alice.terminal.screen is screen
        await alice.pilot.press("y")
        assert (await anext(requests)).payload == call(tool)
        assert not any(capability["kind"] == "mcp/request" for capability in agent.view.you.capabilities)


@played
async def test_the_terminal_shows_the_tool_the_recipient_and_the_duration_of_a_grant(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, files), at_terminal(gateway, (100, 30)) as alice:
        grants = files.envelopes("capability/grant")
        await propose(agent, READ, to=())
        await question_of(alice, "It names no recipient")
        assert alice.terminal.screen.query_one("#yes", Button).disabled
        await until_chosen(alice, "files")
        await question_of(
            alice, "agent may call the tool 'read_file' of files by itself, with any arguments, for one hour"
        )
        await alice.pilot.press("h")
        await question_of(alice, "for 8 hours")
        await alice.may_answer("grant")
        await alice.pilot.press("g")
        granted = (await anext(grants)).payload
        capability = {"kind": "mcp/request", "to": ["files"], "payload": {**READ, "params": {"name": "read_file"}}}
        assert (granted["capabilities"], granted["timeout_seconds"]) == ([capability], 8 * 3600)


async def until_chosen(alice: TerminalUser, recipient: str) -> None:
    screen = alice.terminal.screen
    assert isinstance(screen, ApprovalDialog)
    while screen.to != (recipient,):
        await alice.pilot.press("t")


@played
async def test_the_terminal_shows_hidden_characters_as_numbers(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), at_terminal(gateway, (120, 30)) as alice:
        await propose(agent, call(HIDDEN, path=HIDDEN, **{HIDDEN: 1}))
        await question_of(alice, r"\u202ehsab.txt\u200b\u3164\ufe0f\xad")
        assert not any(character in alice.dialog_text() for character in HIDDEN if ord(character) > 0x7F)


@played
async def test_the_terminal_shows_all_arguments_after_one_key(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), at_terminal(gateway) as alice:
        await propose(agent, call("write_file", text="x" * 6000, then="rm -rf"))
        await question_of(alice, "(a: all ")
        assert "rm -rf" not in alice.dialog_text()
        await alice.pilot.press("a")
        await question_of(alice, "rm -rf")


@played
async def test_fields_beside_the_arguments_of_a_tool_are_shown(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), at_terminal(gateway) as alice:
        await propose(agent, {"method": "tools/call", "params": {**READ["params"], "_meta": {"as": "root"}}})
        await question_of(alice, '"as": "root"')


@played
async def test_the_terminal_shows_that_a_proposer_has_left(gateway: Running) -> None:
    async with joining(gateway, "files"), at_terminal(gateway) as alice:
        async with joining(gateway, "agent") as agent:
            await propose(agent)
            await question_of(alice, "agent wants to call the tool 'read_file'")
        await question_of(alice, "agent (not here) wants to call the tool 'read_file'")
        async with joining(gateway, "agent"):
            await question_of(alice, "agent wants to call the tool 'read_file'")


@pytest.mark.parametrize("params", [["rm -rf"], "rm -rf", {"name": ["t"], "arguments": "rm -rf"}], ids=repr)
@played
async def test_params_of_any_type_are_shown(gateway: Running, params: Any) -> None:
    async with all_in(gateway) as (agent, _, files), at_terminal(gateway) as alice:
        requests = files.envelopes("mcp/request")
        await propose(agent, {"method": "tools/call", "params": params, **BESIDE})
        await question_of(alice, "rm -rf")
        await alice.may_answer()
        await alice.pilot.press("y")
        assert (await anext(requests)).payload == {"method": "tools/call", "params": params}


@played
async def test_another_method_is_not_shown_as_a_call_of_the_tool_that_it_names(gateway: Running) -> None:
    async with all_in(gateway) as (agent, _, _), at_terminal(gateway) as alice:
        await propose(agent, {"method": "resources/delete", "params": {"name": "read_file"}})
        await question_of(alice, "agent wants to call resources/delete of files")


@played
async def test_a_withdrawn_proposal_cannot_be_approved(gateway: Running) -> None:
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
