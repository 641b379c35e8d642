"""The page of a report: whole in itself, safe whatever participants wrote, accessible."""

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from mew.pipeline import open_lake
from mew.pipeline.lake import Progress
from mew.pipeline.report import gather, page, scopes
from mew.pipeline.report.gathering import ReportData, Series, TruncatedList
from mew.pipeline.report.rendering import clock, format_duration, inlined, shown, size, templates
from mew.pipeline.report.verdict import Verdict, verdict_of
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import generate

NASTY = "</script><script>boom()</script><img src=x onerror=boom()>--><!--&\"'\u202e\x00"
ASSETS = files("mew.pipeline.report").joinpath("assets")
EMPTY = TruncatedList([], 0)


class Seen(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._in = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag if tag in ("script", "style") else ""
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif not self._in:
            self.words.append(data)

    def values(self, attribute: str) -> list[str | None]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[ReportData], Progress]:
    folder = tmp_path_factory.mktemp("page")
    generate(folder / "journal", records=10_000, spaces=2, seed=5)
    run_all(folder / "journal", folder / "lake")
    lake = open_lake(folder / "lake")
    return [gather(lake, scope, lake.checks(scope.space)) for scope in scopes(lake)], lake.progress


def spoilt(value: Any) -> Any:
    """The same with something nasty in each text, keys too."""
    if isinstance(value, str):
        return NASTY + value
    if isinstance(value, bytes):
        return NASTY.encode() + value
    if isinstance(value, Series):
        return Series(value.step, value.times, {spoilt(name): line for name, line in value.lines.items()})
    if isinstance(value, dict):  # of totals, which are our own
        return value
    if isinstance(value, list | tuple):
        return type(value)(spoilt(each) for each in value)
    if isinstance(value, msgspec.Struct):
        fields = {name: spoilt(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value


def test_nothing_that_participants_wrote_becomes_markup(made: tuple[list[ReportData], Progress]) -> None:
    figures, progress = made
    source = page(spoilt(figures), progress)
    seen, clean = Seen(source), Seen(page(figures, progress))
    assert len(seen.scripts) == len(clean.scripts) == 3
    assert seen.scripts[1:] == clean.scripts[1:]  # ours, to the letter
    assert not {"img", "iframe", "object"} & {tag for tag, _ in seen.tags}
    assert {name for _, attributes in seen.tags for name in attributes} == {
        name for _, attributes in clean.tags for name in attributes
    }
    assert not [name for _, attributes in seen.tags for name in attributes if name.startswith("on")]
    assert "</script><script>boom()" in "".join(seen.words)  # it is there, as words
    assert "\u202e" not in source
    assert "\x00" not in source


def test_what_the_script_reads_is_what_was_found(made: tuple[list[ReportData], Progress]) -> None:
    figures, progress = made
    hurt: list[ReportData] = spoilt(figures)
    data = Seen(page(hurt, progress)).scripts[0]
    assert "<" not in data
    labels = [line["label"] for plot in json.loads(data) for line in plot["lines"]]
    assert set(hurt[0].flow.lines) <= set(labels)
    for plot in json.loads(data):
        assert all(len(line["values"]) == len(plot["x"]) for line in plot["lines"])


def test_it_asks_no_network_for_anything(made: tuple[list[ReportData], Progress]) -> None:
    seen = Seen(page(*made))
    assert not seen.values("src")
    assert all(str(link).startswith("#") for link in seen.values("href"))
    assert not {"link", "img", "iframe", "form"} & {tag for tag, _ in seen.tags}
    (policy,) = (attributes["content"] for _, attributes in seen.tags if "http-equiv" in attributes)
    assert str(policy).startswith("default-src 'none'; script-src 'sha256-")
    styles = "".join(ASSETS.joinpath(name).read_text(encoding="utf-8") for name in ("report.css", "uplot.css"))
    assert "url(" not in styles
    assert "@import" not in styles


def test_every_link_leads_somewhere_and_every_plot_has_its_data(made: tuple[list[ReportData], Progress]) -> None:
    seen = Seen(page(*made))
    ids = seen.values("id")
    assert len(ids) == len(set(ids))
    assert {str(link).removeprefix("#") for link in seen.values("href")} <= set(ids)
    count = len(json.loads(seen.scripts[0]))
    assert seen.values("data-plot") == [str(number) for number in range(count)]


def test_every_plot_over_time_has_a_table_beside_it(made: tuple[list[ReportData], Progress]) -> None:
    seen = Seen(page(*made))
    words = "".join(seen.words)
    over_time = [plot for plot in json.loads(seen.scripts[0]) if plot["kind"] != "dots"]
    ribbons = len(made[0])
    assert words.count("The same as a table") == len(over_time) + ribbons
    assert [tag for tag, _ in seen.tags].count("caption") == [tag for tag, _ in seen.tags].count("table")
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in seen.tags if tag == "th")
    assert all(attributes.get("aria-label") for _, attributes in seen.tags if attributes.get("role") == "img")


def test_without_the_data_it_is_less_than_a_megabyte(made: tuple[list[ReportData], Progress]) -> None:
    figures, progress = made
    assert len(page([_nothing(figures[0])], progress).encode()) < 200_000
    assert len(page(figures, progress).encode()) < 600_000


def _nothing(figures: ReportData) -> ReportData:
    """A space in which nothing happened."""
    lines = {
        name: Series(1, [0], {each: [0.0] for each in getattr(figures, name).lines})
        for name in ("messages", "presence", "flow", "lost", "strips")
    }
    cuts = dict.fromkeys(
        ("events", "streams", "owned", "sequence_gaps", "reader_gaps", "participants", "dots", "quarantine"), EMPTY
    )
    lists: dict[str, Any] = {name: [] for name in ("outcomes", "latencies", "samples", "audit")}
    totals = dict.fromkeys(figures.totals, 0)
    return msgspec.structs.replace(figures, totals=totals, **lines, **cuts, **lists)


def test_where_there_is_nothing_that_is_said_in_words(made: tuple[list[ReportData], Progress]) -> None:
    words = " ".join(Seen(page([_nothing(made[0][0])], made[1])).words)
    for sentence in (
        "In this time no participant joined or left",
        "There was no stream in this time, so nothing flowed.",
        "that anybody could have owned",
        "Nothing is known to be lost",
        "No participant sent anything",
        "There were no requests in this time",
        "was what it declares",
        "Nothing has been checked yet.",
    ):
        assert sentence in words


def test_a_record_that_is_wrong_is_said_to_be_so(made: tuple[list[ReportData], Progress]) -> None:
    figures = msgspec.structs.replace(made[0][0], audit=[("owners", "Each owner was present.", 2, "position 9: x")])
    words = " ".join(Seen(page([figures], made[1])).words)
    assert "2 wrong" in words
    assert "Each owner was present." in words
    assert "position 9: x" in words
    assert "passed" not in words


# Its colours


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_and_lines_can_be_told_from_what_is_behind_them_in_light_and_dark() -> None:
    style = ASSETS.joinpath("report.css").read_text(encoding="utf-8")
    found = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", style)
    colours = {name: both for name, *both in found}
    lines = [name for name in colours if re.fullmatch(r"c\d", name)]
    assert len(lines) == 9
    for theme in (0, 1):
        for name in ("ink", "soft", "link", "good", "bad", *lines):
            for behind in ("paper", "raised"):
                assert contrast(colours[name][theme], colours[behind][theme]) >= 4.5, (name, behind, theme)
        for name in lines:  # names on bars
            assert contrast(colours["on"][theme], colours[name][theme]) >= 4.5, (name, theme)


# What it is drawn with


def test_the_library_is_the_one_that_is_pinned() -> None:
    lock = json.loads(ASSETS.joinpath("package-lock.json").read_text(encoding="utf-8"))
    wanted = json.loads(ASSETS.joinpath("package.json").read_text(encoding="utf-8"))["dependencies"]
    pinned = lock["packages"]["node_modules/uplot"]
    assert wanted == {"uplot": pinned["version"]}
    assert pinned["integrity"].startswith("sha512-")
    assert all("resolved" not in each for each in lock["packages"].values())
    library = ASSETS.joinpath("uplot.js").read_text(encoding="utf-8")
    assert library.startswith(f"/*! https://github.com/leeoniya/uPlot (v{pinned['version']}) */")
    assert "MIT License" in ASSETS.joinpath("uplot.LICENSE").read_text(encoding="utf-8")


# Words and numbers


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (23_030, "23.0 kB"), (999_960, "1.0 MB"), (123_456_789, "123 MB")],
)
def test_bytes_have_the_unit_that_suits(value: int, shown: str) -> None:
    assert size(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0 µs"),
        (999, "999 µs"),
        (395_469, "395 ms"),
        (999_700, "1.00 s"),
        (1_219_811, "1.22 s"),
        (99_990_000, "100 s"),
        (120_000_000, "2.0 min"),
        (7_200_000_000, "2.0 h"),
        (172_800_000_000, "2.0 d"),
    ],
)
def test_spans_have_the_unit_that_suits(value: int | None, shown: str) -> None:
    assert format_duration(value) == shown


def test_values_are_escaped_and_cut() -> None:
    def printed(value: Any) -> str:
        return templates().from_string("{{ value }}").render(value=value)

    assert printed("<b>&\"'") == "&lt;b&gt;&amp;&#34;&#39;"
    assert printed("a\x00\u202eb") == "a\\u{0}\\u{202e}b"
    assert len(printed("x" * 5000)) == 161
    assert (printed(1234567), printed(None)) == ("1,234,567", "–")
    assert json.loads(inlined({"a": NASTY})) == {"a": NASTY}
    assert shown("<i>") == "<i>", "a value becomes text; the template escapes it"
    assert clock(0) == "1970-01-01 00:00:00"


# The first screen


def test_the_first_sentence_says_that_nothing_was_wrong(made: tuple[list[ReportData], Progress]) -> None:
    totals = dict.fromkeys(made[0][0].totals, 0)
    clean = msgspec.structs.replace(
        made[0][0], totals=totals, audit=[("owners", "Each owner was present.", 0, None)] * 3
    )
    sentence = (
        "Nothing was wrong: all 3 checks of the record hold, no loss is known, "
        "and every frame was as its stream promised."
    )
    assert verdict_of(clean) == Verdict(sentence, "good")
    head = page([clean], made[1]).partition("<main")[0]
    assert sentence in head
    unchecked = verdict_of(msgspec.structs.replace(clean, audit=[]))
    assert unchecked.state == "warn"
    assert "the record was not checked yet" in unchecked.sentence


def test_the_first_sentence_says_what_was_wrong(made: tuple[list[ReportData], Progress]) -> None:
    totals = {**dict.fromkeys(made[0][0].totals, 0), "missing": 1, "dropped": 1200, "quarantined": 5}
    lost = msgspec.structs.replace(made[0][0], totals=totals, audit=[("owners", "Each owner was present.", 0, None)])
    what = (
        "1 frame that its sender numbered never arrived; 1,200 deliveries were missed by their readers; "
        "5 frames were not what their stream promised."
    )
    assert verdict_of(lost) == Verdict(f"Something was wrong: {what} All 1 checks of the record hold.", "warn")
    failed = msgspec.structs.replace(
        lost, audit=[*lost.audit, ("writers", "Each writer was allowed.", 4, "position 1")]
    )
    assert verdict_of(failed) == Verdict(f"Something was wrong: 1 of 2 checks of the record failed; {what}", "bad")
    both = page([failed, lost], made[1]).partition("<main")[0]
    assert both.count("Something was wrong") == 2
    assert 'class="verdict bad"' in both
