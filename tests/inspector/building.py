"""The sources of the page, and what npm makes of them. Installs what the lock names, once, beside it."""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.host_requirements import requires

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "inspector"
BUILT: Final = ROOT / "src" / "mew" / "inspector" / "static"
INSTALL_SECONDS: Final = 240
LOCK: Final = SOURCES / "package-lock.json"
_STAMP: Final = SOURCES / "node_modules" / ".lock-installed"


def ran(*command: str, seconds: int = 50, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in the folder of the sources."""
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=SOURCES, env=env, capture_output=True, text=True, check=False, timeout=seconds)


@cache
def installed() -> Path:
    """`node_modules`, exactly as the lock has it: installed again if the lock has changed."""
    requires(shutil.which("node") and shutil.which("npm"), "Node.js and npm are not installed")
    lock = LOCK.read_text(encoding="utf-8")
    with LOCK.open("rb") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)  # tests run side by side, and npm takes the folder apart under one's feet
        if not _STAMP.exists() or _STAMP.read_text(encoding="utf-8") != lock:
            done = ran("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", seconds=INSTALL_SECONDS)
            requires(done.returncode == 0, f"npm ci failed: {done.stderr.strip().splitlines()[-3:]}")
            _STAMP.write_text(lock, encoding="utf-8")
    return SOURCES / "node_modules"
