"""Who is there and which streams flow, as two short lists beside the messages."""

from rich.text import Text

from mew.cli.journal_text import printable
from mew.cli.rates import Rates, StreamRates
from mew.cli.terminal.lines import colour
from mew.view import SpaceView


def people(view: SpaceView, rates: Rates | None, width: int) -> Text:
    """Everybody who is present, ourselves first."""
    busy = {} if rates is None else {each.id: each.envelopes + each.frames for each in rates.participants}
    lines = [_person(view.you.id, "you", width)]
    lines += [_person(name, _per_second(busy.get(name, 0)), width) for name in view.participants]
    return Text("\n").join(lines)


def streams(view: SpaceView, rates: Rates | None, width: int) -> Text:
    """Every open stream: what flows, and whose it is."""
    if not view.streams:
        return Text("none", style="dim")
    flowing = {} if rates is None else {each.stream_id: each for each in rates.streams}
    lines: list[Text] = []
    for name, stream in view.streams.items():
        others = len(stream.writers) - 1
        away = "" if stream.owner_connected else " (away)"
        lines.append(_two(printable(name), "cyan", _flow(stream.status, flowing.get(name)), width))
        owner = Text("  ", no_wrap=True, overflow="ellipsis")
        owner.append(printable(stream.owner), style=colour(stream.owner))
        owner.append(f"{away} +{others}" if others > 0 else away, style="dim")
        owner.truncate(width, overflow="ellipsis")
        lines.append(owner)
    return Text("\n").join(lines)


def _person(name: str, right: str, width: int) -> Text:
    return _two(printable(name), colour(name), right, width)


def _two(left: str, style: str, right: str, width: int) -> Text:
    """Something at the left edge, something at the right one."""
    room = width - len(right) - (1 if right else 0)
    named = Text(left, style=style)
    named.truncate(room, overflow="ellipsis", pad=True)
    return Text.assemble(named, " " if right else "", Text(right, style="dim"))


def _flow(status: str, rates: StreamRates | None) -> str:
    if status != "live":
        return status
    if rates is None:
        return ""
    return "for others" if rates.frames is None else _per_second(rates.frames)


def _per_second(rate: float) -> str:
    if rate <= 0:
        return ""
    return f"{rate:,.0f}/s" if rate >= 1 else "<1/s"
