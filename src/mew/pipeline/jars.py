"""The jars that Spark needs and its package does not bring: fetched once over HTTPS, checked by SHA-256, and kept.

A jar has one version and one content. The repository is `MEW_MAVEN_REPOSITORY`, else the mirror of `central` in Maven's
settings, else the public repository that Spark's own package names. Proxies and certificates are those of Python.
"""

import base64
import hashlib
import os
import re
import ssl
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import msgspec

from mew.errors import MewError
from mew.pipeline import share

SETUP: Final = "mew pipeline setup"
"""The command that fetches the jars."""
REPOSITORY: Final = "MEW_MAVEN_REPOSITORY"
ANSWER_SECONDS: Final = 60
_PIECE_BYTES: Final = 2**18
_PUBLIC: Final = "org/apache/ivy/core/settings/repository.properties"
"""In Spark's own package: the address of the public repository, which this project does not repeat."""


class JarsMissing(MewError):
    """Jars that `mew pipeline setup` fetches are not here, or are not those of this version."""


class JarUnavailable(MewError):
    """A jar cannot be fetched, or the repository sent another content."""


class Artifact(msgspec.Struct, frozen=True):
    """One jar: its coordinates in a Maven repository, and the only content it may have."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its file name."""
        return f"{self.name}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Its path in a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file}"


class JarList(msgspec.Struct, frozen=True):
    """Jars that belong together, in one folder."""

    name: str
    artifacts: tuple[Artifact, ...]

    @property
    def folder(self) -> str:
        """The name of the folder: another list has another folder."""
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
        # Its version differs from the others, which not every mirror has; they work together.
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
"""What connects Spark to Delta tables and to Kafka."""


def find_jars(jar_list: JarList = CONNECTORS) -> tuple[Path, ...]:
    """The jars of a list, in its order. Raises `JarsMissing`."""
    folder = share.find_cached(jar_list.folder, lambda folder: not missing_jars(jar_list, folder))
    if folder is None:
        raise JarsMissing(f"the jars of Spark's {jar_list.name} are not here: run `{SETUP}` once")
    return tuple(folder / artifact.file for artifact in jar_list.artifacts)


def missing_jars(jar_list: JarList, folder: Path) -> list[str]:
    """The files of a list that a folder lacks, or has without content."""
    return [
        artifact.file
        for artifact in jar_list.artifacts
        if not (folder / artifact.file).is_file() or not (folder / artifact.file).stat().st_size
    ]


def damaged_jars(jar_list: JarList, folder: Path) -> list[str]:
    """The files of a list whose content is not the pinned one."""
    return [
        artifact.file
        for artifact in jar_list.artifacts
        if hashlib.sha256((folder / artifact.file).read_bytes()).hexdigest() != artifact.sha256
    ]


def fetch_jars(jar_list: JarList = CONNECTORS, *, say: Callable[[str], None]) -> tuple[Path, ...]:
    """The jars of a list, fetched if they are not here: all of them or none. Raises `JarUnavailable`."""

    def fill(folder: Path) -> None:
        repository = maven_repository()
        total = len(jar_list.artifacts)
        for number, artifact in enumerate(jar_list.artifacts, start=1):
            started = time.monotonic()
            size = _fetch(repository, artifact, folder / artifact.file)
            seconds = time.monotonic() - started
            say(f"  {number}/{total} {artifact.name} {artifact.version}: {size / 10**6:.1f} MB, {seconds:.1f} s")

    folder = share.build_cached(jar_list.folder, fill, lambda folder: not missing_jars(jar_list, folder))
    return tuple(folder / artifact.file for artifact in jar_list.artifacts)


def _fetch(repository: str, artifact: Artifact, target: Path) -> int:
    """Write one jar to a file and return its size."""
    digest, size = hashlib.sha256(), 0
    try:
        # A new opener: the default one keeps the proxies of its first use.
        opener = urllib.request.build_opener()
        with opener.open(_request(repository, artifact), timeout=ANSWER_SECONDS) as answer, target.open("wb") as file:
            while piece := answer.read(_PIECE_BYTES):
                digest.update(piece)
                size += file.write(piece)
    except urllib.error.HTTPError as error:
        error.close()
        raise JarUnavailable(f"{_failed(repository, artifact)}: {_refusal(error)}") from None
    except (urllib.error.URLError, HTTPException, ssl.SSLError, TimeoutError, ConnectionError, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        reason = getattr(cause, "strerror", None) or cause
        raise JarUnavailable(
            f"{_failed(repository, artifact)}: {reason}. Check the network, the proxy and {REPOSITORY}, "
            f"then run `{SETUP}` again"
        ) from None
    if digest.hexdigest() != artifact.sha256:
        raise JarUnavailable(
            f"{_failed(repository, artifact)}: it sent a file with SHA-256 {digest.hexdigest()}, not the pinned "
            f"{artifact.sha256}. Nothing was kept; use another repository with {REPOSITORY}"
        )
    return size


def _request(repository: str, artifact: Artifact) -> urllib.request.Request:
    """The request for one jar. A name and a password in the address become a header, as in other clients."""
    parts = urlsplit(repository)
    request = urllib.request.Request(f"{_public_part(repository).rstrip('/')}/{artifact.path}")
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    return request


def _public_part(repository: str) -> str:
    """An address without its password."""
    parts = urlsplit(repository)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _failed(repository: str, artifact: Artifact) -> str:
    return f"cannot fetch {artifact.name} {artifact.version} from {_public_part(repository)}"


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code == 404:
        return f"the repository does not have it. Name another repository with {REPOSITORY}"
    if error.code in (401, 403):
        return (
            f"the repository requires a login (HTTP {error.code}). "
            f"Put it into {REPOSITORY}: https://user:password@host/path"
        )
    return f"the repository answered {error.code} {error.reason}. Run `{SETUP}` again later"


# The repository


def maven_repository(environment: Mapping[str, str] = os.environ) -> str:
    """The address of the repository that this machine uses. Raises `JarUnavailable`."""
    return environment.get(REPOSITORY) or _mirror(environment) or _public_repository()


def _mirror(environment: Mapping[str, str]) -> str | None:
    """The mirror of `central` in Maven's settings, if there is one."""
    settings = Path(environment.get("HOME", "~")).expanduser() / ".m2" / "settings.xml"
    try:
        mirrors = list(ElementTree.parse(settings).getroot().iterfind("{*}mirrors/{*}mirror"))
    except FileNotFoundError:
        return None
    except (OSError, ElementTree.ParseError) as error:
        raise JarUnavailable(f"cannot read {settings}: {error}") from None
    for mirror in mirrors:
        if _mirrors_central(_text(mirror, "mirrorOf")) and _text(mirror, "blocked") != "true":
            return re.sub(r"\$\{env\.(\w+)}", lambda name: environment.get(name[1], ""), _text(mirror, "url"))
    return None


def _mirrors_central(mirror_of: str) -> bool:
    """Maven's rule: a list of names and stars; `!` excludes a name."""
    names = {name.strip() for name in mirror_of.split(",")}
    return "!central" not in names and not names.isdisjoint({"central", "*", "external:*"})


def _text(element: ElementTree.Element, tag: str) -> str:
    return (element.findtext(f"{{*}}{tag}") or "").strip()


def _public_repository() -> str:
    spark = find_spec("pyspark")
    folders = spark.submodule_search_locations if spark is not None else None
    for jar in sorted(Path(*folders[:1]).glob("jars/ivy-*.jar")) if folders else []:
        with zipfile.ZipFile(jar) as archive:
            address = re.search(rb"default\.artifact\.root *= *(https://\S+)", archive.read(_PUBLIC))
        if address is not None:
            return address[1].decode()
    raise JarUnavailable(f"no Maven repository is known: set {REPOSITORY} to the address of one")
