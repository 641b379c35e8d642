"""The site: it is built strictly, has every page, asks no other host for anything, and its links lead somewhere."""

import functools
import os
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from subprocess import CalledProcessError
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Request, sync_playwright

from tests.e2e.browser.harness import INSTALL_SECONDS, browser_path, launched
from tests.support.host_requirements import requires
from tools.reference.sdk import SECTIONS
from tools.site.__main__ import CONFIGURATION, build, zensical
from tools.site.markdown import for_site
from tools.site.navigation import WrongNavigation, check, listed
from tools.site.staging import ROOT, BrokenLink, Stage, file_page

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 120)
LOADED: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
FETCHING: Final = frozenset(
    {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch"}
)
SWITCHES: Final = ('class="mermaid"', "glightbox", "pyodide", 'data-md-component="source"')
"""What makes the theme's script fetch something from elsewhere."""


class Document(HTMLParser):
    """What a page has: ids, links, and what a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])
        if tag == "link" and FETCHING & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built once."""
    return build(tmp_path_factory.mktemp("site")).parent


@pytest.fixture(scope="module")
def documents(site: Path) -> dict[PurePosixPath, Document]:
    paths = sorted(site.rglob("*.html"))
    return {PurePosixPath(path.relative_to(site).as_posix()): Document(path.read_text("utf-8")) for path in paths}


# What it has


def test_every_page_of_docs_is_in_the_site_and_in_its_contents(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= set(listed(ROOT / CONFIGURATION))
    for page in pages:
        assert (site / page.replace("README.md", "index.md")).with_suffix(".html").is_file()


def test_a_newcomer_begins_at_the_beginning() -> None:
    assert listed(ROOT / CONFIGURATION)[:4] == ["index.md", "quick-start.md", "concepts.md", "primitives.md"]


def test_every_public_name_is_documented(documents: dict[PurePosixPath, Document]) -> None:
    ids = documents[PurePosixPath("reference/sdk.html")].ids
    assert [name for _, names in SECTIONS.values() for name in names if name not in ids] == []


def test_a_borrowed_method_is_documented_with_its_class(documents: dict[PurePosixPath, Document]) -> None:
    ids = documents[PurePosixPath("reference/sdk.html")].ids
    assert {"mew.client.Space.call_tool", "mew.client.Space.propose", "mew.client.Space.reasoning"} <= ids


def test_no_private_name_is_documented(documents: dict[PurePosixPath, Document]) -> None:
    ids = documents[PurePosixPath("reference/sdk.html")].ids
    assert [name for name in ids if re.match(r"mew\..*\._", name)] == []


def test_it_can_be_searched(site: Path) -> None:
    assert "stream_access" in (site / "search.json").read_text(encoding="utf-8")


# Where it leads


def target(page: PurePosixPath, link: str) -> tuple[PurePosixPath, str]:
    """The file that a link leads to, and the place in it."""
    parts = urlsplit(link)
    path = os.path.normpath(page.parent / unquote(parts.path)) if parts.path else str(page)
    return PurePosixPath(path), unquote(parts.fragment)


def test_every_link_leads_to_a_page_and_a_place_in_it(site: Path, documents: dict[PurePosixPath, Document]) -> None:
    broken = []
    for page, document in documents.items():
        for link in document.links:
            if urlsplit(link).scheme or page.name == "404.html":
                continue
            path, place = target(page, link)
            if not (site / path).is_file() or (place and path.suffix == ".html" and place not in documents[path].ids):
                broken.append(f"{page}: {link}")
    assert broken == []


# What it asks others for


def test_no_page_loads_anything_from_elsewhere(documents: dict[PurePosixPath, Document]) -> None:
    foreign = {
        str(page): [url for url in document.loaded if urlsplit(url).netloc] for page, document in documents.items()
    }
    assert {page: urls for page, urls in foreign.items() if urls} == {}
    assert sum(len(document.loaded) for document in documents.values()) > len(documents)


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        text = style.read_text(encoding="utf-8")
        assert re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*\)|@import[^;]*;", text) == [], style.name


def test_nothing_on_a_page_makes_the_script_fetch_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        head, _, body = text.partition("<body")
        assert [switch for switch in SWITCHES if switch in re.sub(r"<(code|pre)\b.*?</\1>", "", body, flags=re.S)] == []
        assert "fonts.g" not in head


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing about it."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, name="site")
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_a_browser_loads_nothing_from_elsewhere_and_the_search_works(address: str) -> None:
    path = browser_path()
    requires(path, "there is no Chromium, and none could be installed")
    urls: list[str] = []

    def note(request: Request) -> None:
        urls.append(request.url)

    with sync_playwright() as playwright:
        browser = launched(playwright, str(path))
        page = browser.new_page()
        page.on("request", note)
        for name in ("index.html", "reference/sdk.html", "pipeline.html"):
            page.goto(address + name, wait_until="load", timeout=30_000)
        page.get_by_role("button", name="Search").first.click(timeout=30_000)
        page.get_by_role("combobox", name="Search").or_(page.get_by_placeholder("Search")).first.fill("quarantine")
        page.get_by_role("option", name="quarantine").first.wait_for(timeout=30_000)
        browser.close()
    assert any(url.endswith("search.json") for url in urls)
    assert [url for url in urls if not url.startswith((address, "data:", f"blob:{address}"))] == []


# How it is staged


def staged(text: str) -> str:
    return "".join(line.text for line in for_site(text))


def test_what_belongs_to_an_item_is_put_four_spaces_in() -> None:
    assert staged("- a\n  b\n\n  c\n  - d\n    e\n\nf\n") == "- a\n    b\n\n    c\n    - d\n        e\n\nf\n"


def test_code_below_an_item_keeps_its_own_indentation() -> None:
    assert (
        staged("1. a\n\n   ```py\n   if x:\n       y\n   ```\n") == "1. a\n\n    ```py\n    if x:\n        y\n    ```\n"
    )


def test_code_elsewhere_stays_as_it_is() -> None:
    text = "```text\n- a\n  b\n<!-- c -->\n```\n"
    assert staged(text) == text


def test_a_list_gets_an_empty_line_before_it() -> None:
    assert staged("a:\n- b\n- c\nrest of c\n") == "a:\n\n- b\n- c\n    rest of c\n"


def test_directives_to_the_tests_of_a_page_are_left_out() -> None:
    assert staged("<!-- file: x -->\n```yaml\na: 1\n```\n") == "```yaml\na: 1\n```\n"


def test_links_lead_to_where_the_site_has_what_they_point_at(tmp_path: Path) -> None:
    root, into = tmp_path / "root", tmp_path / "into"
    for name, text in {
        "docs/a.md": "[b](b.md#x) [e](../examples/e.py) [d](../examples) [r](../README.md#y) [w](https://w/) [h](#h)\n",
        "docs/b.md": "```text\n[no](link.md)\n```\n",
        "examples/e.py": "print('```')\n",
        "README.md": "[a](docs/a.md)\n\n[n]: docs/b.md\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    Stage(into, root).fill()
    assert (into / "a.md").read_text(encoding="utf-8") == (
        "[b](b.md#x) [e](project/examples/e.py.md) [d](project/examples/README.md) [r](project/README.md#y)"
        " [w](https://w/) [h](#h)\n"
    )
    assert (into / "b.md").read_text(encoding="utf-8") == "```text\n[no](link.md)\n```\n"
    assert (into / "project" / "README.md").read_text(encoding="utf-8") == "[a](../a.md)\n\n[n]: ../b.md\n"
    assert "- [e.py](e.py.md)\n" in (into / "project" / "examples" / "README.md").read_text(encoding="utf-8")
    assert "````" in (into / "project" / "examples" / "e.py.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("link", ["gone.md", "../gone.py", "../../elsewhere.md"])
def test_a_link_to_what_is_not_there_is_refused(tmp_path: Path, link: str) -> None:
    (tmp_path / "elsewhere.md").write_text("", encoding="utf-8")
    (tmp_path / "root" / "docs").mkdir(parents=True)
    (tmp_path / "root" / "docs" / "a.md").write_text(f"[x]({link})\n", encoding="utf-8")
    with pytest.raises(BrokenLink, match=re.escape(f"docs/a.md points at {link}")):
        Stage(tmp_path / "into", tmp_path / "root").fill()


def test_a_file_is_shown_in_the_colours_of_its_language() -> None:
    assert file_page(PurePosixPath("x/y.py"), "a = 1\n") == "# y.py\n\n``` python\na = 1\n```\n"


@pytest.mark.parametrize(
    ("nav", "message"),
    [('["a.md", "b.md"]', "not there: b.md"), ("[]", "not: a.md"), ('["a.md", "a.md"]', "twice: a.md")],
)
def test_contents_that_are_not_those_of_docs_are_refused(tmp_path: Path, nav: str, message: str) -> None:
    (tmp_path / "docs" / "project").mkdir(parents=True)
    (tmp_path / "docs" / "a.md").write_text("# a\n", encoding="utf-8")
    (tmp_path / "docs" / "project" / "README.md").write_text("# may be left out\n", encoding="utf-8")
    (tmp_path / CONFIGURATION).write_text(f"[project]\nnav = {nav}\n", encoding="utf-8")
    with pytest.raises(WrongNavigation, match=message):
        check(tmp_path / CONFIGURATION, tmp_path / "docs")


def test_a_link_to_no_place_in_a_page_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / CONFIGURATION).write_text('[project]\nsite_name = "x"\n', encoding="utf-8")
    page = tmp_path / "docs" / "index.md"
    page.write_text("# A place\n\n[x](#a-place)\n", encoding="utf-8")
    zensical("build", "--strict", into=tmp_path, seconds=60)
    page.write_text("# A place\n\n[x](#no-place)\n", encoding="utf-8")
    with pytest.raises(CalledProcessError):
        zensical("build", "--strict", into=tmp_path, seconds=60)
