"""The site's sources: every page of docs/, and as pages of their own the files elsewhere that they point at.

A link works where the file is read and on the site, because here it is bent to where the site has what it points at.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from tools.site.markdown import for_site

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = "docs"
PROJECT: Final = PurePosixPath("project")
"""Where in the site the files are that lie outside docs/."""
ALSO: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples")
"""What the site has whether or not a page points at it."""
SHOWN: Final = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".sh": "bash"}
"""How the files of a folder are coloured that is pointed at as a whole."""
_LINK: Final = re.compile(r"""(?<=\]\()(?P<inline>[^()\s]+)(?=\)|\s+")|^(?P<named>\[[^]]+\]: +)(?P<target>\S+)""")


class BrokenLink(Exception):
    """A page points at a file that is not there."""


class Stage:
    """The sources of the site in a folder, as far as they are laid out."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        """Nothing is laid out yet."""
        self._folder = folder
        self._root = root
        self._waiting: list[PurePosixPath] = []
        self._known: set[PurePosixPath] = set()

    def fill(self) -> None:
        """Lay out docs/, then what its pages point at, and what these point at."""
        shutil.rmtree(self._folder, ignore_errors=True)
        pages = (path for path in sorted((self._root / DOCS).rglob("*")) if path.is_file())
        for path in (*pages, *(self._root / name for name in ALSO)):
            if path.exists():
                self._await(PurePosixPath(path.relative_to(self._root).as_posix()))
        while self._waiting:
            self._put(self._waiting.pop())

    def place(self, path: PurePosixPath) -> PurePosixPath:
        """Where the site has a file of the repository."""
        if path.parts[0] == DOCS and path != PurePosixPath(DOCS):
            return path.relative_to(DOCS)
        if (self._root / path).is_dir():
            return PROJECT / path / "README.md"
        return PROJECT / (path if path.suffix == ".md" else path.with_name(f"{path.name}.md"))

    def _await(self, path: PurePosixPath) -> None:
        if path not in self._known:
            self._known.add(path)
            self._waiting.append(path)

    def _put(self, path: PurePosixPath) -> None:
        source, target = self._root / path, self._folder / self.place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.parts[0] == DOCS and path.suffix != ".md":
            shutil.copyfile(source, target)
        elif source.is_dir():
            target.write_text(self._folder_page(path), encoding="utf-8")
        elif path.suffix == ".md":
            target.write_text(self._page(path), encoding="utf-8")
        else:
            target.write_text(file_page(path, source.read_text(encoding="utf-8")), encoding="utf-8")

    def _page(self, path: PurePosixPath) -> str:
        """A page with its links bent."""

        def bent(match: re.Match[str]) -> str:
            return (match["named"] or "") + self._bent(match["inline"] or match["target"], path)

        lines = for_site((self._root / path).read_text(encoding="utf-8"))
        return "".join(line.text if line.code else _LINK.sub(bent, line.text) for line in lines)

    def _bent(self, link: str, page: PurePosixPath) -> str:
        """The same link from where the page is in the site to where the site has its target."""
        address, _, part = link.partition("#")
        if not address or ":" in address:
            return link
        target = (self._root / page.parent / address).resolve()
        if not target.is_relative_to(self._root) or not target.exists():
            raise BrokenLink(f"{page} points at {link}, which is not there")
        path = PurePosixPath(target.relative_to(self._root).as_posix())
        if path.name == "README.md" and path.parts[0] not in (DOCS, path.name):
            path = path.parent  # a folder's page has it
        self._await(path)
        bent = os.path.relpath(self.place(path), self.place(page).parent)
        return f"{bent}#{part}" if part and target.suffix == ".md" else bent

    def _folder_page(self, path: PurePosixPath) -> str:
        """What a folder says of itself; if nothing, its files."""
        readme = path / "README.md"
        return self._page(readme) if (self._root / readme).is_file() else f"# {path}\n\n{''.join(self._files(path))}"

    def _files(self, folder: PurePosixPath) -> Iterator[str]:
        for source in sorted((self._root / folder).iterdir()):
            if source.is_file() and source.suffix in SHOWN:
                path = folder / source.name
                self._await(path)
                yield f"- [{source.name}]({self.place(path).name})\n"


def file_page(path: PurePosixPath, text: str) -> str:
    """A page that shows one file as it is."""
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", text))])
    return f"# {path.name}\n\n{fence} {SHOWN.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
