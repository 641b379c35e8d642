"""The page: head, a chapter a space, a glossary, and everything it needs within it.

It asks no network for anything, and says so to the browser: only its own two scripts may run.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from mew import __version__
from mew.pipeline.lake.values import Progress
from mew.pipeline.report import sections
from mew.pipeline.report.gathering import ReportData
from mew.pipeline.report.markup import Html, clock, format_duration, inlined, join_html, text, text_whole
from mew.pipeline.report.plots import Plots

_GLOSSARY: Final = {
    "space": "A shared place in which people, agents and tools work together. Everything in it has one order.",
    "participant": "A member of a space: a person, a program, a tool, a game client.",
    "message": "One thing said in a space, such as a chat or a request. The protocol calls it an envelope.",
    "stream": "A channel for data that flows continuously, such as positions, sound or readings.",
    "frame": "One piece of data on a stream.",
    "owner": "The participant that decides about a stream: who else may write to it, and when it ends.",
    "capability": "A permission to send messages of some kind. Without one that fits, a message is refused.",
    "position": "The number of an entry in the record of a space. Positions, not clocks, say what came first.",
    "proposal": "A request that a participant may make only with the approval of another.",
    "gap": "Frames that are known to be missing: left out by their sender, or missed by a reader.",
    "quarantine": "Where frames are listed that are not what their stream declared.",
    "audit": "Checks of the record against itself.",
    "kB, MB": "A thousand and a million bytes; kB/s is a thousand bytes in a second.",
    "p95, 95 %": "Of a hundred, ninety-five took no longer than this.",
    "UTC": "The time of day without time zone or daylight saving; all times here are in it.",
}


def page(figures: Sequence[ReportData], progress: Progress) -> str:
    """The whole report as HTML."""
    plots = Plots()
    chapters = join_html(_chapter(number, each, plots) for number, each in enumerate(figures))
    style = _asset("uplot.css") + _asset("report.css")
    scripts = (_asset("uplot.js"), _asset("report.js"))
    names = ", ".join(each.scope.space for each in figures)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{_policy(scripts)}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="mew {text(__version__)}">\n'
        f"<title>{text(f'What happened in {names}')}</title>\n"
        f"<!-- uPlot, which draws the plots, is under this licence:\n{_asset('uplot.LICENSE')}\n-->\n"
        f"<style>{style}</style>\n</head>\n<body>\n{_header(figures, progress)}\n"
        f'<main id="main">{chapters}{_glossary()}</main>\n{_footer(progress)}\n'
        f'<script type="application/json" id="plots">{inlined(plots.values())}</script>\n'
        f"{''.join(f'<script>{each}</script>' for each in scripts)}\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return files("mew.pipeline.report").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> Html:
    """What the browser may do for this page: run these scripts, and nothing else."""
    digests = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    rules = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return Html(f'<meta http-equiv="Content-Security-Policy" content="{rules}">')


def _header(figures: Sequence[ReportData], progress: Progress) -> Html:
    names = join_html(
        Html(f'<a href="#space-{number}">{text(each.scope.space)}</a>') for number, each in enumerate(figures)
    )
    several = Html(f'<nav aria-label="Spaces">{names}</nav>') if len(figures) > 1 else Html("")
    title = figures[0].scope.space if len(figures) == 1 else f"{len(figures)} spaces"
    choices = join_html(Html(f'<option value="{each}">{each}</option>') for each in ("system", "light", "dark"))
    return Html(
        '<header><a class="skip" href="#main">to the content</a><div class="top"><div>'
        f"<h1>What happened in {text(title)}</h1>"
        f'<p class="note">As recorded up to {text(clock(max(progress.times.values(), default=None)))} UTC. '
        'Words that are new to you are explained <a href="#glossary">at the end</a>.</p></div>'
        f'<label class="theme" hidden>Colours <select id="theme">{choices}</select></label></div>{several}'
        '<noscript><p class="none">The plots need JavaScript; the tables say the same without.</p></noscript></header>'
    )


def _chapter(number: int, figures: ReportData, plots: Plots) -> Html:
    scope = figures.scope
    parts = [
        ("What happened when", sections.happened(figures, plots)),
        ("How much flowed", sections.bandwidth(figures, plots)),
        ("Who owned which stream", sections.ownership(figures)),
        ("What was lost", sections.gaps(figures, plots)),
        ("Who did how much", sections.activity(figures)),
        ("Conversations", sections.conversations(figures, plots)),
        ("Frames that were not as promised", sections.quarantine(figures)),
        ("Can the record be trusted?", sections.audit(figures)),
    ]
    links = join_html(Html(f'<a href="#s{number}-{n}">{text(title)}</a>') for n, (title, _) in enumerate(parts))
    body = join_html(
        Html(f'<h3 id="s{number}-{n}">{text(title)}</h3>{inner}') for n, (title, inner) in enumerate(parts)
    )
    span = f"From {clock(scope.start)} to {clock(scope.end)} UTC, {format_duration(scope.end - scope.start)}."
    return Html(
        f'<section aria-labelledby="space-{number}"><h2 id="space-{number}">The space {text(scope.space)}</h2>'
        f'<p>{text_whole(span)}</p>{sections.brief(figures)}<nav aria-label="Sections">{links}</nav>{body}</section>'
    )


def _glossary() -> Html:
    words = join_html(Html(f"<dt>{text(word)}</dt><dd>{text_whole(told)}</dd>") for word, told in _GLOSSARY.items())
    return Html(f'<section><h2 id="glossary">Words</h2><dl>{words}</dl></section>')


def _footer(progress: Progress) -> Html:
    made = f"Made by mew {__version__} from batch {progress.batch:,} of the tables."
    return Html(
        f"<footer><p>{text_whole(made)} Long lists and fine steps are cut so that this file stays small; where "
        "that is so, it says so. The tables have everything.</p></footer>"
    )
