"""Where the demo plays: a folder of its own, a real gateway in it, and a token to look on with.

Must not know what is played.
"""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.demo.children import Child, Children, Failed, Surroundings

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"
DEMOS: Final = ROOT / ".mew" / "demo"
MEW: Final = (sys.executable, "-m", "mew")
ONLOOKER: Final = "onlooker"
LISTENING: Final = re.compile(r"listening on wss?://\S*:(\d+) for (\S+)")
START_SECONDS: Final = 60.0
SEALING_SECONDS: Final = 75.0
"""For the gateway to end: up to a minute for its journal."""
COMMAND_SECONDS: Final = 90.0
"""For a command to end: it may have a gateway or a Spark to end first."""


class Stage(msgspec.Struct, frozen=True):
    """A folder with a gateway in it."""

    folder: Path
    port: int
    space: str
    token: str
    """An observer's: it may look at everything, and say nothing."""
    gateway: Child

    @property
    def url(self) -> str:
        """Where the inspector is."""
        return f"http://localhost:{self.port}/"

    def environment(self, participant: str) -> dict[str, str]:
        """What a participant is started with."""
        token = self.folder / ".mew" / "tokens" / f"{participant}.token"
        return {
            **surroundings(),
            "MEW_GATEWAY": f"ws://localhost:{self.port}",
            "MEW_SPACE": self.space,
            "MEW_TOKEN": token.read_text(encoding="utf-8").strip(),
        }


def new_folder(below: Path = DEMOS) -> Path:
    """A new folder, named by the time."""
    name = f"{datetime.now(UTC):%Y-%m-%d-%H%M%S}"
    for number in range(1, 100):
        folder = below / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as problem:
            raise Failed(f"{folder} cannot be made: {problem.strerror}") from None
        return folder
    raise Failed(f"{below} has too many folders of this second")


def surroundings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of every process: this checkout's code, and no other space."""
    variables = {name: value for name, value in environ.items() if not name.startswith("MEW_")}
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), environ.get("PYTHONPATH"))))
    return {**variables, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


async def command(folder: Path, *words: str, shows_progress: bool = False) -> list[str]:
    """Run a `mew` command in the folder to its end; what it printed."""
    name = f"mew {' '.join(words[:2])}"
    log = folder / "logs" / "commands.log"
    place = Surroundings(folder, surroundings(), log, shows_progress, COMMAND_SECONDS)
    lines: list[str] = []
    async with Children() as children:
        child = await children.start(name, [*MEW, *words], place, lines.append)
        await child.succeeded()
    return lines


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    """A gateway on a free port, until the end of the block; there it is stopped gracefully."""
    shutil.copy(EXAMPLES / "space.yaml", folder / "space.yaml")
    (token,) = await command(folder, "token", "create", ONLOOKER, "--observer")
    async with Children() as children:
        listening: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        log = folder / "logs" / "gateway.log"
        place = Surroundings(folder, surroundings(), log, patience=SEALING_SECONDS)
        words = ("gateway", "start", "--port", "0", "--log-level", "warn")
        gateway = await children.start("the gateway", [*MEW, *words], place, _listens(listening))
        port, space = await _ready(gateway, listening)
        yield Stage(folder, port, space, token, gateway)
        if not await gateway.end():
            raise gateway.failure(f"had not sealed its journal after {SEALING_SECONDS:g} s")


def _listens(listening: "asyncio.Future[tuple[int, str]]") -> Callable[[str], None]:
    def hears(line: str) -> None:
        if not listening.done() and (match := LISTENING.match(line)):
            listening.set_result((int(match[1]), match[2].rstrip(",")))

    return hears


async def _ready(gateway: Child, listening: "asyncio.Future[tuple[int, str]]") -> tuple[int, str]:
    """Its port and its space, as soon as it listens; `Failed` where it ends or takes too long."""
    ended = asyncio.create_task(gateway.code(), name="the gateway's end")
    either: set[asyncio.Future[Any]] = {listening, ended}
    try:
        await asyncio.wait(either, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
    if not listening.done():
        raise gateway.failure("did not start")
    return listening.result()
