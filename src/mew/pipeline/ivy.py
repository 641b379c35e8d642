"""Fetches jars with the Ivy that is inside Spark's own package, from the repository that this machine uses for Maven.

That is `MEW_MAVEN_REPOSITORY`, else a mirror of `central` in Maven's settings, else what Ivy knows by itself. Knows no
list of jars and keeps nothing: the caller names the jars and the folder.
"""

import os
import re
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

import msgspec
import pyspark

from mew.errors import MewError
from mew.pipeline.java import Java
from mew.pipeline.trust import PASSWORD, write_trust_store

REPOSITORY: Final = "MEW_MAVEN_REPOSITORY"
FETCH_SECONDS: Final = 900
ANSWER_SECONDS: Final = 60
_FETCHED: Final = re.compile(r"\[SUCCESSFUL \] [^#]+#(?P<name>[^;]+);(?P<version>[^!]+)!\S+ \((?P<ms>\d+)ms\)")
_NOT_FOUND: Final = re.compile(r":: [^#\s]+#(?P<name>[^;]+);(?P<version>\S+): not found")
_REFUSED: Final = re.compile(r"Server access error at url \S+ \((?P<why>.+)\)|(?P<host>Host \S+ not found)")
_UNTRUSTED: Final = re.compile(r"PKIX|SSLHandshakeException|CertificateException")


class CannotFetch(MewError):
    """A jar could not be had, or was not what it should be."""


class Artifact(msgspec.Struct, frozen=True):
    """One jar: its coordinates in a Maven repository, and the only content it may have."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name as a file."""
        return f"{self.name}-{self.version}.jar"


def retrieve(artifacts: Sequence[Artifact], into: Path, *, java: Java, say: Callable[[str], None]) -> None:
    """Put jars into a folder, one line said for each."""
    with tempfile.TemporaryDirectory(prefix="mew-ivy-") as folder:
        scratch = Path(folder)
        _write_xml(_modules(artifacts), scratch / "ivy.xml")
        _write_xml(_settings(repository(), scratch / "cache"), scratch / "settings.xml")
        asked = ["-settings", str(scratch / "settings.xml"), "-ivy", str(scratch / "ivy.xml")]
        asked += ["-retrieve", f"{into}/[artifact]-[revision].[ext]"]
        failed = _run(java, [], asked, _Progress(len(artifacts), say))
        if failed and _UNTRUSTED.search(failed):
            # A separate Java does not know the certificates that this machine is configured to trust.
            store = write_trust_store(scratch / "trusted.jks")
            if store is not None:
                trusting = [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]
                failed = _run(java, trusting, asked, _Progress(len(artifacts), say))
        if failed:
            raise CannotFetch(_reason(failed))


class _Progress:
    """Says a line for each jar that has come."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total = total
        self._say = say
        self._come = 0

    def read(self, line: str) -> None:
        fetched = _FETCHED.search(line)
        if fetched:
            self._come += 1
            name, version, ms = fetched.groups()
            self._say(f"  {self._come}/{self._total} {name} {version} ({int(ms) / 1000:.1f} s)")


def _run(java: Java, options: list[str], arguments: list[str], progress: _Progress) -> str:
    """What Ivy said if it failed, else nothing."""
    command = [str(java.command), *_proxies(), *options, "-jar", str(_ivy_jar()), *arguments]
    said = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        patience = threading.Timer(FETCH_SECONDS, process.kill)
        patience.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                progress.read(line)
        except BaseException:
            process.kill()
            raise
        finally:
            patience.cancel()
    return "".join(said) or f"Ivy ended with {process.returncode}" if process.returncode else ""


def _reason(said: str) -> str:
    """One line of the pages that Ivy writes."""
    refused = _REFUSED.search(said)
    why = re.sub(r"\s+", " ", refused["why"] or refused["host"]) if refused else ""
    absent = [f"{name} {version}" for name, version in dict.fromkeys(_NOT_FOUND.findall(said))]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        return f"cannot fetch {absent[0]}{more}: {why or 'the repository does not have it'} (see {REPOSITORY})"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"cannot fetch the jars: {why or lines[-1]}"


def _ivy_jar() -> Path:
    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise CannotFetch("the package pyspark brings no Ivy")
    return found[-1]


# Where from


def repository(environment: Mapping[str, str] = os.environ) -> str | None:
    """The repository to use instead of the public one, where this machine names one."""
    named = environment.get(REPOSITORY)
    if named:
        return named
    settings = Path(environment.get("HOME", "~")).expanduser() / ".m2" / "settings.xml"
    try:
        mirrors = list(ElementTree.parse(settings).getroot().iterfind("{*}mirrors/{*}mirror"))
    except FileNotFoundError:
        return None
    except (OSError, ElementTree.ParseError) as error:
        raise CannotFetch(f"cannot read {settings}: {error}") from None
    for mirror in mirrors:
        if _mirrors_central(_text(mirror, "mirrorOf")) and _text(mirror, "blocked") != "true":
            return re.sub(r"\$\{env\.(\w+)}", lambda name: environment.get(name[1], ""), _text(mirror, "url"))
    return None


def _mirrors_central(of: str) -> bool:
    """Maven's rule: a list of names and stars, where `!` takes out."""
    names = {name.strip() for name in of.split(",")}
    return "!central" not in names and not names.isdisjoint({"central", "*", "external:*"})


def _text(element: ElementTree.Element, tag: str) -> str:
    return (element.findtext(f"{{*}}{tag}") or "").strip()


def _proxies() -> Iterator[str]:
    """This machine's proxies as Java wants them said: it does not look at the environment itself."""
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            yield f"-D{scheme}.proxyHost={proxy.hostname}"
            yield f"-D{scheme}.proxyPort={proxy.port or 80}"
    direct = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if direct:
        yield "-Dhttp.nonProxyHosts=" + "|".join(f"*{host}" if host.startswith(".") else host for host in direct)


# What Ivy reads


def _settings(root: str | None, cache: Path) -> ElementTree.Element:
    settings = ElementTree.Element("ivysettings")
    ElementTree.SubElement(settings, "settings", defaultResolver="central")
    ElementTree.SubElement(settings, "caches", defaultCacheDir=str(cache))
    milliseconds = str(ANSWER_SECONDS * 1000)
    waiting = {"connectionTimeout": milliseconds, "readTimeout": milliseconds}
    ElementTree.SubElement(settings, "timeout-constraints").append(
        ElementTree.Element("timeout-constraint", {"name": "patience", **waiting})
    )
    # Exact versions and known contents: neither descriptions nor checksums need be asked for.
    resolver = {"m2compatible": "true", "usepoms": "false", "useMavenMetadata": "false", "checksums": ""}
    if root is not None:
        resolver["root"] = root
    ElementTree.SubElement(settings, "resolvers").append(
        ElementTree.Element("ibiblio", {"name": "central", "timeoutConstraint": "patience", **resolver})
    )
    return settings


def _modules(artifacts: Sequence[Artifact]) -> ElementTree.Element:
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="mew", module="jars")
    dependencies = ElementTree.SubElement(module, "dependencies")
    for artifact in artifacts:
        wanted = {"org": artifact.group, "name": artifact.name, "rev": artifact.version, "transitive": "false"}
        ElementTree.SubElement(dependencies, "dependency", wanted)
    return module


def _write_xml(root: ElementTree.Element, path: Path) -> None:
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
