"""The jars that Spark needs and its package does not bring: fetched once, at set-up; later runs need no network.

`python -m mew.pipeline.connectors` fetches them and is quick where they are. A jar is of one version and one content:
whatever a repository serves under its name, only that content is taken.
"""

import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from mew.errors import MewError
from mew.pipeline import ivy, java, share
from mew.pipeline.ivy import Artifact

COMMAND: Final = "python -m mew.pipeline.connectors"


class ConnectorsMissing(MewError):
    """Jars that were to be fetched at set-up are not there."""


class JarList(msgspec.Struct, frozen=True):
    """Jars that belong together, in a folder of their own."""

    name: str
    artifacts: tuple[Artifact, ...]

    @property
    def folder(self) -> str:
        """The name of its folder: another list, another folder."""
        digest = hashlib.sha256(msgspec.json.encode(self.artifacts)).hexdigest()
        return f"{self.name}-{digest[:16]}"


CONNECTORS: Final = JarList(
    "connectors",
    (
        Artifact(
            "org.apache.spark",
            "spark-sql-kafka-0-10_2.13",
            "4.2.0",
            "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
        ),
        # Of another version than the rest, which does not resolve everywhere; they work together.
        Artifact(
            "org.apache.spark",
            "spark-token-provider-kafka-0-10_2.13",
            "4.1.0-preview1",
            "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b",
        ),
        Artifact(
            "org.apache.kafka",
            "kafka-clients",
            "3.9.2",
            "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
        ),
        Artifact(
            "org.apache.commons",
            "commons-pool2",
            "2.12.1",
            "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
        ),
        Artifact(
            "io.delta",
            "delta-spark_4.2_2.13",
            "4.4.0",
            "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
        ),
        Artifact(
            "io.delta",
            "delta-storage",
            "4.4.0",
            "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
        ),
        Artifact(
            "io.delta",
            "delta-kernel-api",
            "4.4.0",
            "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
        ),
        Artifact(
            "io.delta",
            "delta-kernel-defaults",
            "4.4.0",
            "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
        ),
        Artifact(
            "io.delta",
            "delta-kernel-unitycatalog",
            "4.4.0",
            "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
        ),
    ),
)


def jars(wanted: JarList = CONNECTORS) -> tuple[Path, ...]:
    """The jars of a list, in its order."""
    folder = share.find_cached(wanted.folder, lambda place: not missing(wanted, place))
    if folder is None:
        raise ConnectorsMissing(f"the {wanted.name} for Spark are not there: `{COMMAND}` fetches them, once")
    return tuple(folder / artifact.file for artifact in wanted.artifacts)


def missing(wanted: JarList, folder: Path) -> list[str]:
    """The files of a list that a folder lacks, or holds without content."""
    return [
        artifact.file
        for artifact in wanted.artifacts
        if not (folder / artifact.file).is_file() or not (folder / artifact.file).stat().st_size
    ]


def damaged(wanted: JarList, folder: Path) -> list[str]:
    """The files of a list that are not what they should be."""
    return [
        artifact.file
        for artifact in wanted.artifacts
        if hashlib.sha256((folder / artifact.file).read_bytes()).hexdigest() != artifact.sha256
    ]


def fetch(wanted: JarList = CONNECTORS, *, say: Callable[[str], None]) -> tuple[Path, ...]:
    """The jars of a list, fetched if they are not there."""

    def fill(folder: Path) -> None:
        say(f"{wanted.name}: fetching {len(wanted.artifacts)} jars")
        started = time.monotonic()
        ivy.retrieve(wanted.artifacts, folder, java=java.find(), say=say)
        wrong = missing(wanted, folder) or damaged(wanted, folder)
        if wrong:
            raise ivy.CannotFetch(f"what came as {wrong[0]} is not that file")
        size = sum((folder / artifact.file).stat().st_size for artifact in wanted.artifacts)
        say(f"{wanted.name}: {size / 10**6:.0f} MB in {time.monotonic() - started:.1f} s")

    folder = share.build_cached(wanted.folder, fill, lambda place: not missing(wanted, place))
    return tuple(folder / artifact.file for artifact in wanted.artifacts)


def main() -> int:
    """Fetch what is missing; the exit code."""
    try:
        found = fetch(say=lambda line: print(line, flush=True))
    except MewError as error:
        print(f"mew: {error}", file=sys.stderr)
        return 1
    print(f"{CONNECTORS.name}: {len(found)} jars in {found[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
