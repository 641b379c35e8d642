"""The page: everything that a browser needs for it is in it. It loads nothing, and only its two scripts may run."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from markupsafe import Markup

from mew import __version__
from mew.pipeline.lake.values import Progress
from mew.pipeline.report.chapter import OWNERS, TITLES, chapter
from mew.pipeline.report.gathering import LINES, ReportData
from mew.pipeline.report.plots import Plots
from mew.pipeline.report.rendering import templates
from mew.pipeline.report.verdict import verdict_of

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
    scripts = [_asset("uplot.js"), _asset("report.js")]
    return (
        templates()
        .get_template("page.html")
        .render(
            version=__version__,
            script_digests=_digests(scripts),
            licence=_asset("uplot.LICENSE"),
            style=_asset("uplot.css") + _asset("report.css"),
            scripts=scripts,
            spaces=[item.scope.space for item in figures],
            verdicts=[verdict_of(item) for item in figures],
            recorded=max(progress.times.values(), default=None),
            chapters=[chapter(number, item, plots) for number, item in enumerate(figures)],
            titles=TITLES,
            most_lines=LINES,
            most_owners=OWNERS,
            glossary=_GLOSSARY,
            batch=progress.batch,
            plots=plots.values(),
        )
    )


def _asset(name: str) -> Markup:
    return Markup(files("mew.pipeline.report").joinpath("assets", name).read_text(encoding="utf-8"))


def _digests(scripts: Sequence[str]) -> Markup:
    """The only scripts that a browser may run in this page."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return Markup(" ".join(f"'sha256-{digest}'" for digest in digests))
