"""What the runner of pages does with a page that is right, and with one that is wrong in each way there is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Example

from tests.docs.blocks.languages import fits, run_block
from tests.docs.blocks.reading import Block, count_fences, examples_of, idle_directives
from tests.docs.blocks.running import BlockFailed, Page, answers, marked


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    page = Page("page.md", tmp_path / "run")
    yield page
    page.close()


def blocks_of(text: str, folder: Path) -> list[Block]:
    """The blocks of a page that is written here."""
    (folder / "page.md").write_text(text, encoding="utf-8")

    def nothing(_: Example) -> None:
        return None

    return [example.parsed for example in examples_of(folder / "page.md", nothing)]


def follow(page: Page, text: str, folder: Path) -> None:
    """Run a page that is written here, from top to bottom."""
    before = None
    for block in blocks_of(text, folder):
        run_block(page, block, before)
        before = block


def fenced(language: str, *lines: str, comment: str = "") -> str:
    return "\n".join([*([comment] if comment else []), f"```{language}", *lines, "```", "", ""])


def test_a_block_has_a_line_a_language_a_text_and_what_is_said_of_it(tmp_path: Path) -> None:
    text = "# A page\n\n<!-- fails: 3 -->\n<!-- set-up: talk -->\n```bash title\nexit 3\n```\n\n"
    text += "- x\n\n  ```yaml\n  a: 1\n  ```\n"
    first, second = blocks_of(text, tmp_path)
    assert (first.line, first.language, first.source) == (5, "bash", "exit 3\n")
    assert first.directives == {"fails": "3", "set-up": "talk"}
    assert (second.line, second.language, second.source) == (11, "yaml", "a: 1\n")
    assert count_fences(text) == 4


def test_a_comment_that_stands_before_no_block_is_found() -> None:
    assert idle_directives("<!-- output -->\n\n```text\nx\n```\n") == ["line 1: <!-- output -->"]
    assert idle_directives("<!-- fails: 1 -->\n<!-- background -->\n```bash\nx\n```\n<!-- a word -->\n") == []


@pytest.mark.parametrize(
    "text",
    [
        fenced("bash", "echo one; echo two >&2") + fenced("text", "one", "two", comment="<!-- output -->"),
        fenced("bash", "mkdir a", "echo hello > a/b") + fenced("python", "assert open('a/b').read() == 'hello\\n'"),
        fenced("python", "import asyncio", "x = await asyncio.sleep(0, 7)") + fenced("python", "assert x == 7"),
        fenced("python", "import asyncio", "async def f(): print(1)", "asyncio.run(f())")
        + fenced("text", "1", comment="<!-- output -->"),
        fenced("python", "try:", "    1 / 0", "except ZeroDivisionError:", "    pass"),
        fenced("bash", "exit 4", comment="<!-- fails: 4 -->"),
        fenced("sh", "rm -r /", comment="<!-- no-run: it would hurt -->"),
        fenced("python", "y = 2", comment="<!-- file: b/y.py -->") + fenced("bash", "grep 'y = 2' b/y.py"),
        fenced("yaml", "space: {id: lab}", "gateway: {port: 8080}") + fenced("yaml", "apiVersion: v1"),
        fenced("json", '{"kind": "chat"}') + fenced("toml", "x = 1") + fenced("text", "a ─▶ b"),
        fenced("sql", "select text from read_parquet('*.parquet')", comment="<!-- no-run: there is none -->"),
    ],
    ids=range(11),
)
def test_a_page_that_is_right_goes_well(page: Page, tmp_path: Path, text: str) -> None:
    follow(page, text, tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (fenced("bash", "echo one") + fenced("text", "two", comment="<!-- output -->"), "printed something else:\none"),
        (fenced("text", "two", comment="<!-- output -->"), "right after the block that printed it"),
        (fenced("bash", "false", "echo not here"), "ended with 1, not with 0"),
        (fenced("bash", "false | cat"), "ended with 1, not with 0"),
        (fenced("bash", "echo $missing"), "missing: unbound variable"),
        (fenced("bash", "true", comment="<!-- fails: 2 -->"), "ended with 0, not with 2"),
        (fenced("bash", "$ ls"), "no prompts"),
        (fenced("ruby", "puts 1"), "cannot run 'ruby': use one of bash, python"),
        (fenced("", "ls"), "has no language: write ```bash"),
        (fenced("bash", "ls", comment="<!-- no-run -->"), "`no-run` needs a reason"),
        (fenced("bash", "ls", comment="<!-- norun: x -->"), "unknown comment 'norun'"),
        (fenced("python", "1 / 0"), 'page.md", line 2, in <module>\nZeroDivisionError'),
        (fenced("python", "try:", "    pass", "except OSError:", "    pass"), "nothing was raised here"),
        (fenced("python", "import sys", "print('oh', file=sys.stderr)"), "complained on standard error:\noh"),
        (fenced("python", "import os", "os._exit(3)"), "Python ended with 3"),
        (fenced("yaml", "space: {id: lab}", "participant: {}"), "a gateway would warn of this"),
        (fenced("yaml", "streams: {validate: 3}"), "a gateway would refuse this"),
        (fenced("yaml", "a: [1"), "no YAML"),
        (fenced("json", "{"), "no JSON"),
        (fenced("json", '{"protocol": "mew/v0.4", "kind": 3}'), "no envelope"),
        (fenced("toml", "x"), "no TOML"),
        (fenced("text", "mew up"), "is a command"),
        (fenced("text", "x", comment="<!-- file: ../x -->"), "not in the folder of the page"),
        (
            fenced(
                "sql",
                "select 1 from read_parquet('.mew/journal/**/*.parquet') where false",
                comment="<!-- set-up: talk -->",
            ),
            "finds nothing",
        ),
        (fenced("bash", "echo no", comment="<!-- background -->"), "ended with 0 instead of running on"),
    ],
)
def test_a_page_that_is_wrong_fails_and_says_why(page: Page, tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BlockFailed) as failed:
        follow(page, text, tmp_path)
    assert why in str(failed.value)


SERVER = "from http.server import *; HTTPServer(('127.0.0.1', 8080), SimpleHTTPRequestHandler).serve_forever()"


def test_what_runs_in_the_background_listens_on_a_free_port_until_the_page_ends(page: Page, tmp_path: Path) -> None:
    served = fenced("bash", "echo hello > greeting", f'python -c "{SERVER}"', comment="<!-- background -->")
    request = fenced(
        "bash",
        "python -c \"from urllib.request import urlopen; print(urlopen('http://127.0.0.1:8080/greeting').read())\"",
    )
    follow(page, served + request, tmp_path)
    assert page.printed is not None
    assert "b'hello\\n'" in page.printed
    port = page.ports["8080"]
    assert answers(port)
    with pytest.raises(BlockFailed, match="something listens already"):
        follow(page, served, tmp_path)
    page.close()
    assert not answers(port)


def test_nothing_that_a_page_has_started_outlives_it(page: Page, tmp_path: Path) -> None:
    lasting = fenced("bash", "setsid sleep 1000 &", "sleep 1001 &")
    waiting = fenced("bash", "echo ready; sleep 1002", comment="<!-- background: ready -->")
    follow(
        page,
        lasting + waiting + fenced("python", "import subprocess", "p = subprocess.Popen(['sleep', '1003'])"),
        tmp_path,
    )
    path = str(tmp_path / "run")
    assert len(marked(path)) >= 4
    page.close()
    assert marked(path) == []


def test_a_block_that_does_not_end_is_ended(page: Page) -> None:
    with pytest.raises(BlockFailed, match=r"did not end within 2 s; it printed:\nbegun"):
        page.run("echo begun; sleep 1000", seconds=2)
    with pytest.raises(BlockFailed, match=r"waited 2 s for 'done' in its output; it printed:\nbegun"):
        page.start("echo begun; sleep 1000", until="done", seconds=2)


def test_a_page_has_an_empty_home_and_none_of_our_variables(
    page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEW_TOKEN", "secret")
    other = Page("other.md", tmp_path / "other")
    assert "MEW_TOKEN" not in other.environment
    other.close()
    assert page.run("ls -A; ls -A ~; command -v mew").strip() == str(tmp_path / "run" / "bin" / "mew")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a  \nb\n\n", True),
        ("a …\nd", "a b\nc\nd", True),
        ("…", "", True),
        ("a", "a b", False),
        ("a …", "b a c", False),
        ("a.c", "abc", False),
    ],
)
def test_an_ellipsis_stands_for_anything_and_everything_else_for_itself(
    shown: str, printed: str, *, same: bool
) -> None:
    assert fits(shown, printed) is same


def test_ports_are_replaced_where_they_are_ports_and_nowhere_else(page: Page) -> None:
    port, second = page.ports["8080"], page.ports["8090"]
    assert page.with_free_ports("localhost:8080 18080 8080.5 8090/x") == f"localhost:{port} 18080 8080.5 {second}/x"
