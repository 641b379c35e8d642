"""`python -m tools.site`: stage the pages, build the site strictly, say where it is; `--serve` serves it as well."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.site.navigation import WrongNavigation, check
from tools.site.staging import ROOT, BrokenLink, Stage

BUILD: Final = ROOT / "build"
CONFIGURATION: Final = "zensical.toml"
SECONDS: Final = 300.0
FAILED: Final = 1
INTERRUPTED: Final = 130


def build(into: Path) -> Path:
    """Build the site into the folder `site` of this one, else raise; returns its first page."""
    into.mkdir(parents=True, exist_ok=True)
    Stage(into / "docs").fill()
    shutil.copyfile(ROOT / CONFIGURATION, into / CONFIGURATION)
    check(into / CONFIGURATION, into / "docs")
    # A name that is no file any more must not stay in the site.
    shutil.rmtree(into / "site", ignore_errors=True)
    zensical("build", "--strict", "--clean", into=into, seconds=SECONDS)
    return into / "site" / "index.html"


def zensical(*arguments: str, into: Path, seconds: float | None = None) -> None:
    """Run it over what is staged; the reference is made of the source tree, whatever is installed."""
    command = [sys.executable, "-m", "zensical", *arguments, "--config-file", str(into / CONFIGURATION)]
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1"}
    subprocess.run(command, env=environment, check=True, timeout=seconds)


def main(arguments: Sequence[str]) -> int:
    """Build, and serve if that is wanted; 1 if the site is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description="Build the documentation as a site.")
    parser.add_argument("--into", type=Path, default=BUILD, help="the folder to work in (build)")
    parser.add_argument("--serve", action="store_true", help="serve it afterwards, until interrupted")
    options = parser.parse_args(arguments)
    try:
        first = build(options.into.resolve())
        print(f"the site is in {first}", flush=True)
        if options.serve:
            zensical("serve", into=options.into.resolve())
    except (BrokenLink, WrongNavigation) as problem:
        print(f"site: {problem}", file=sys.stderr)
        return FAILED
    except subprocess.SubprocessError as problem:
        print(f"site: Zensical failed: {problem}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
