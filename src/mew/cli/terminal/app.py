"""The terminal's screen: messages, participants, streams, an input line, and open proposals.

Messages are queued and drawn at most ten times a second, so that a flood cannot freeze the screen.
"""

from collections import deque
from collections.abc import Awaitable
from functools import partial
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Resize
from textual.widgets import RichLog, Static

from mew.cli.observe.rates import RateCounter, Rates
from mew.cli.terminal import widgets
from mew.cli.terminal.prompt import InputHistory, InputPrompt
from mew.cli.terminal.slash_commands import CommandContext, carry_out, completions
from mew.cli.terminal.widgets import (
    Answer,
    ApprovalDialog,
    RenderedLine,
    frame_shown,
    message_text,
    notice_text,
    problem,
    visible_text,
)
from mew.client import Disconnected, IncomingProposal, MessageRefused, Reconnected, Space
from mew.client.errors import ApprovalRequired
from mew.client.frames import Frame
from mew.errors import MewError
from mew.protocol import Envelope
from mew.protocol.handlers.proposals import MAX_LIFETIME_SECONDS
from mew.protocol.timestamps import SECOND, parse_rfc3339

SCROLLBACK: Final = 5_000
PENDING: Final = 1_000
"""Maximum lines queued for drawing. Older ones are dropped and counted."""
MAX_MESSAGES_PER_DRAW: Final = 60
DRAW_SECONDS: Final = 0.1
_POLL_SECONDS: Final = 1.0
NARROW: Final = 60
HINT: Final = "Enter sends · Ctrl+J new line · ↑ earlier · Tab completes · Ctrl+C leaves"


class Terminal(App[int]):
    """The terminal of one participant in a space."""

    TITLE = "mew"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "leave", "leave", priority=True),
        Binding("pageup", "page(-1)", priority=True, show=False),
        Binding("pagedown", "page(1)", priority=True, show=False),
        Binding("f2", "side", "participants", priority=True),
        Binding("f3", "proposals", "open proposals", priority=True),
    ]
    CSS = """
    #head { height: 1; background: $primary; color: $text; padding: 0 1; }
    #messages { width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    #side { width: 26; border-left: solid $primary; padding: 0 1; }
    #side Static { height: auto; }
    .title { text-style: bold; color: $text-muted; }
    #streams-title { margin-top: 1; }
    #prompt { height: auto; max-height: 6; border: none; border-top: solid $primary; padding: 0 1; }
    #hint { height: 1; color: $text-muted; padding: 0 1; }
    """

    def __init__(self, space: Space, memory: InputHistory | None = None) -> None:
        """Create the screen for a space that was joined."""
        super().__init__()
        self.space = space
        self.desk = CommandContext(space, clear=self._clear, leave=self.action_leave)
        self._memory = memory or InputHistory()
        self._pending: deque[RenderedLine] = deque()
        self._left_out = 0
        self._counting = RateCounter(space.view)
        self._rates: Rates | None = None
        self._proposed: deque[IncomingProposal] = deque()
        self._put_off: list[IncomingProposal] = []
        """Open proposals not decided here: postponed, or we have no permission."""
        self._asking: ApprovalDialog | None = None
        self._side_wanted = True
        self._talk = RichLog(id="messages", max_lines=SCROLLBACK, wrap=True, min_width=20)
        self._talk.can_focus = False
        self._head, self._people, self._streams = (Static(id=name) for name in ("head", "people", "streams"))
        self._side = VerticalScroll(id="side", can_focus=False)
        self._hint = Static(HINT, id="hint")
        # Subscribe before anything is drawn, so that no message is missed.
        self._messages = space.messages(on_overflow=self._missed)
        self._events = space.events(on_overflow=self._missed)
        self._proposals = space.proposals()

    def compose(self) -> ComposeResult:
        """Yield the widgets, from top to bottom."""
        yield self._head
        with Horizontal():
            yield self._talk
            with self._side:
                yield Static("Here", classes="title")
                yield self._people
                yield Static("Streams", classes="title", id="streams-title")
                yield self._streams
        yield InputPrompt(self._memory, lambda line: completions(self.desk, line))
        yield self._hint

    def on_mount(self) -> None:
        """Start receiving messages and drawing."""
        self.query_one(InputPrompt).focus()
        self._show(notice_text(f"You are {self.space.participant_id} in {self.space.id}. /help lists the commands."))
        self._listen()
        self._follow()
        self._heed_proposals()
        self.set_interval(DRAW_SECONDS, self._draw)
        self.set_interval(_POLL_SECONDS, self._look)
        self._look()

    def on_resize(self, event: Resize) -> None:
        """Hide the side panel on a narrow screen."""
        self._side.display = self._side_wanted and event.size.width >= NARROW

    @work
    async def _listen(self) -> None:
        try:
            async for message in self._messages:
                self._counting.take(message, self.space.view)
                if isinstance(message, Frame):
                    if message.stream_id in self.desk.watched:
                        self._show(frame_shown(message))
                else:
                    self._take(message)
            self.exit(0, message="The space has ended, or your connection was closed.")
        except MewError as error:
            self.exit(1, message=f"mew: {error}")

    def _take(self, envelope: Envelope) -> None:
        if envelope.kind == "chat":
            if envelope.sender == self.space.participant_id:
                self.desk.sent_chat = envelope
            else:
                self.desk.received_chat = envelope
        line = message_text(envelope, verbose=self.desk.verbose)
        if line is not None:
            self._show(line)

    @work
    async def _follow(self) -> None:
        try:
            async for event in self._events:
                if isinstance(event, Disconnected):
                    self._show(problem(f"The connection is lost ({event.reason}). Reconnecting."))
                    self._look()
                elif isinstance(event, Reconnected):
                    missed = sum(event.gap.streams.values())
                    self._show(
                        notice_text(f"Reconnected; {missed:,} frames were missed." if missed else "Reconnected.")
                    )
                    self._look()
                elif isinstance(event, MessageRefused):
                    self._show(problem(str(event.error)))
        except MewError:
            return  # `_listen` reports it

    @work
    async def _heed_proposals(self) -> None:
        try:
            async for proposed in self._proposals:
                self._proposed.append(proposed)
                self._ask()
        except MewError:
            return  # `_listen` reports it

    def _ask(self) -> None:
        """Show the next proposal, after the previous one is answered."""
        while self._asking is None and self._proposed:
            proposed = self._proposed.popleft()
            if proposed.state != "open":
                continue
            recipients = self._recipients_of(proposed)
            if not recipients:
                self._put_off.append(proposed)
                continue
            self._asking = ApprovalDialog(
                proposed,
                recipients=recipients,
                seconds_left=partial(_seconds_left, self.space, proposed),
                is_proposer_here=partial(_is_proposer_here, self.space, proposed),
            )
            self.push_screen(self._asking, self._dialog_closed)

    def _recipients_of(self, proposed: IncomingProposal) -> tuple[str, ...]:
        """Return the participants that we may send the request to; empty if we may not decide."""
        request = {"kind": "mcp/request", "payload": proposed.request}
        if proposed.to:
            return proposed.to if self.space.can({**request, "to": list(proposed.to)}) else ()
        return tuple(
            participant
            for participant in self.space.view.participants
            if self.space.can({**request, "to": [participant]})
        )

    def _dialog_closed(self, answer: Answer | None) -> None:
        if self._asking is None:
            return
        asking, self._asking = self._asking, None
        if answer in ("yes", "grant"):
            self._attempt(_approve(asking, grant=answer == "grant"))
        elif answer == "no":
            self._attempt(_reject(asking.proposed))
        elif asking.proposed.state == "open":
            self._put_off.append(asking.proposed)
        self._ask()

    def action_proposals(self) -> None:
        """Ask again about postponed proposals."""
        again, self._put_off = self._put_off, []
        self._proposed.extend(proposal for proposal in again if proposal.state == "open")
        self._ask()

    def on_input_prompt_entered(self, entered: InputPrompt.Entered) -> None:
        """Run a slash command, or send a chat."""
        if entered.text.startswith("/"):
            self._attempt(carry_out(self.desk, entered.text))
        else:
            self._attempt(_chat(self.desk, entered.text))

    def on_input_prompt_choices(self, choices: InputPrompt.Choices) -> None:
        """Show the possible completions."""
        words = [line.split()[-1] for line in choices.lines]
        self._hint.update(Text("  ".join(words), no_wrap=True, overflow="ellipsis"))
        self.set_timer(5, lambda: self._hint.update(HINT))

    @work
    async def _attempt(self, doing: Awaitable[str | None]) -> None:
        """Run an action and show its result or its error."""
        try:
            answer = await doing
        except (MewError, ValueError) as error:
            self._show(problem(str(error)))
        else:
            if answer:
                self._show(notice_text(answer))

    def _show(self, line: RenderedLine) -> None:
        self._pending.append(line)
        while len(self._pending) > PENDING:
            self._pending.popleft()
            self._left_out += 1

    def _missed(self, count: int) -> None:
        self._counting.missed += count
        self._left_out += count

    def _draw(self) -> None:
        log = self._talk
        if self._left_out:
            log.write(notice_text(f"… {self._left_out:,} messages not shown: too many at a time", "yellow"))
            self._left_out = 0
        at_end = log.is_vertical_scroll_end
        for _ in range(min(MAX_MESSAGES_PER_DRAW, len(self._pending))):
            log.write(self._pending.popleft(), expand=True, scroll_end=at_end)
        if self._asking is not None and self._asking.proposed.state != "open" and self._asking.is_current:
            self._show(notice_text("Another participant has decided the proposal."))
            self._asking.action_answer("later")

    def _look(self) -> None:
        """Refresh the side panel and the header."""
        view = self.space.view
        self._rates = self._counting.look(view, "")
        width = max(self._people.size.width, 12)
        self._people.update(widgets.people(view, self._rates, width))
        self._streams.update(widgets.streams(view, self._rates, width))
        state = "" if self.space.connection is not None else " · NOT CONNECTED"
        recipients = f" · to {', '.join(self.desk.targets)}" if self.desk.targets else ""
        open_ones = [
            proposal for proposal in (view.proposals or {}).values() if proposal.proposer != self.space.participant_id
        ]
        waiting = f" · {len(open_ones)} to approve (F3)" if open_ones else ""
        head = f"{self.space.id} · {self.space.participant_id}{recipients}{waiting}{state}"
        self._head.update(Text(head, no_wrap=True, overflow="ellipsis"))

    def _clear(self) -> None:
        self._pending.clear()
        self._talk.clear()

    def action_page(self, pages: int) -> None:
        """Scroll the messages by a page, back or forward."""
        if pages < 0:
            self._talk.scroll_page_up(animate=False)
        else:
            self._talk.scroll_page_down(animate=False)

    def action_side(self) -> None:
        """Show or hide the side panel."""
        self._side_wanted = not self._side_wanted
        self._side.display = self._side_wanted and self.size.width >= NARROW

    def action_leave(self) -> None:
        """Leave the space."""
        self.exit(0)


async def _chat(desk: CommandContext, text: str) -> None:
    await desk.space.chat(text, to=desk.targets)


async def _approve(asking: ApprovalDialog, *, grant: bool) -> str | None:
    """Send the request before the grant: otherwise the grant would remain if the request is rejected."""
    proposed = asking.proposed
    try:
        await proposed.approve(asking.to)
    except ApprovalRequired:
        await proposed.vote()
        return "Your vote was counted. The proposal needs more votes."
    if not grant:
        return None
    await proposed.grant(asking.to, asking.seconds)
    return f"{visible_text(proposed.by)} may do this without approval from now on"


async def _reject(proposed: IncomingProposal) -> None:
    await proposed.reject("rejected by a person")


def _is_proposer_here(space: Space, proposed: IncomingProposal) -> bool:
    return proposed.by in {space.participant_id, *space.view.participants}


def _seconds_left(space: Space, proposed: IncomingProposal) -> float:
    """Return the seconds until the proposal expires, by our estimate of the gateway's clock."""
    end = None if proposed.expires_at is None else parse_rfc3339(proposed.expires_at)
    return MAX_LIFETIME_SECONDS if end is None else end / SECOND - space.now()
