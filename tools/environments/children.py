"""The programs that make an environment, as processes: their lines are read, and kept in a log."""

import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

QUIET_SECONDS = 0.3


def run(command: Sequence[str | Path], folder: Path, log: Path, heard: Callable[[str], None]) -> tuple[int, list[str]]:
    """Run a command, its whole output into the log: its exit code, and its lines.

    Each line is heard as it comes, and an empty text whenever the command says nothing for some time.
    """
    printed: list[str] = []
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        print(f"$ {' '.join(map(str, command))}", file=file, flush=True)
        with subprocess.Popen(
            [*map(str, command)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                for line in _lines_of(process):
                    file.write(line)
                    printed.append(line)
                    heard(line)
            except BaseException:
                process.terminate()
                raise
    return process.returncode, printed


def _lines_of(process: "subprocess.Popen[str]") -> Iterator[str]:
    received: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            received.put(line)
        received.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = received.get(timeout=QUIET_SECONDS)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            return
        yield line
