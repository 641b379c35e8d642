"""Jars are fetched once, are exactly the ones that were meant, and come from where this machine says."""

import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from mew.pipeline import connectors, ivy
from mew.pipeline.connectors import CONNECTORS, ConnectorsMissing
from mew.pipeline.ivy import CannotFetch
from tests.pipeline.sessions import FOR_CHILDREN
from tests.pipeline.spark.repository import Repository, serving


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is kept where other tests find it, and no settings of this machine apply."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(ivy.REPOSITORY, raising=False)
    for name, value in FOR_CHILDREN.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "environment" / "share" / "mew"


@pytest.fixture
def repository(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    with serving() as served:
        monkeypatch.setenv(ivy.REPOSITORY, served.url)
        yield served


def write_settings(tmp_path: Path, mirrors: str) -> None:
    folder = tmp_path / "home" / ".m2"
    folder.mkdir(parents=True)
    namespace = 'xmlns="http://maven.apache.org/SETTINGS/1.2.0"'
    text = f"<settings {namespace}><mirrors>{mirrors}</mirrors></settings>"
    (folder / "settings.xml").write_text(text, encoding="utf-8")


def kept(place: Path) -> list[str]:
    """What is there but for a Java, which may have been needed."""
    names = (path.name for path in place.iterdir())
    return [name for name in names if not name.startswith("java-") and not name.endswith(".lock")]


def mirror(of: str, url: str, more: str = "") -> str:
    return f"<mirror><id>m</id><mirrorOf>{of}</mirrorOf><url>{url}</url>{more}</mirror>"


def test_jars_are_fetched_once_with_a_line_for_each(repository: Repository, elsewhere: Path) -> None:
    few = repository.publish_list()
    with pytest.raises(ConnectorsMissing, match=r"few .* `python -m mew.pipeline.connectors`"):
        connectors.jars(few)
    said: list[str] = []
    fetched = connectors.fetch(few, say=said.append)
    assert fetched == connectors.jars(few)
    assert [jar.name for jar in fetched] == ["alpha_2.13-1.2.3.jar", "beta-1.2.3.jar", "gamma-0-10-1.2.3.jar"]
    assert [jar.read_bytes()[:4] for jar in fetched] == [b"alph", b"beta", b"gamm"]
    assert {jar.parent for jar in fetched} == {elsewhere / few.folder}
    assert [line.split(" (")[0] for line in said if "/3 " in line] == [
        "  1/3 alpha_2.13 1.2.3",
        "  2/3 beta 1.2.3",
        "  3/3 gamma-0-10 1.2.3",
    ]
    asked = len(repository.asked)
    assert connectors.fetch(few, say=said.append) == fetched
    assert len(repository.asked) == asked


def test_a_jar_with_another_content_is_refused_and_nothing_is_kept(repository: Repository, elsewhere: Path) -> None:
    few = repository.publish_list()
    repository.publish("beta", b"forged")
    with pytest.raises(CannotFetch, match=r"what came as beta-1\.2\.3\.jar is not that file"):
        connectors.fetch(few, say=lambda line: None)
    assert kept(elsewhere) == []


def test_a_jar_that_a_repository_lacks_is_named_in_one_line(repository: Repository, elsewhere: Path) -> None:
    few = repository.publish_list()
    del repository.files["/org/example/one/beta/1.2.3/beta-1.2.3.jar"]
    with pytest.raises(CannotFetch) as refused:
        connectors.fetch(few, say=lambda line: None)
    assert str(refused.value) == ("cannot fetch beta 1.2.3: the repository does not have it (see MEW_MAVEN_REPOSITORY)")
    assert kept(elsewhere) == []


def test_a_repository_that_is_not_there_is_said_in_one_line(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as gone:
        few = gone.publish_list()
    monkeypatch.setenv(ivy.REPOSITORY, gone.url)
    with pytest.raises(CannotFetch) as refused:
        connectors.fetch(few, say=lambda line: None)
    said = str(refused.value)
    assert "\n" not in said
    assert said.startswith("cannot fetch alpha_2.13 1.2.3 and 2 more: ")
    assert "Connection refused" in said


def test_a_jar_that_vanished_or_is_empty_is_fetched_again(repository: Repository) -> None:
    few = repository.publish_list()
    alpha, beta, _ = connectors.fetch(few, say=lambda line: None)
    alpha.unlink()
    beta.write_bytes(b"")
    with pytest.raises(ConnectorsMissing):
        connectors.jars(few)
    connectors.fetch(few, say=lambda line: None)
    assert connectors.jars(few)[0].stat().st_size
    assert connectors.damaged(few, beta.parent) == []


def test_who_is_trusted_on_this_machine_is_trusted(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with authority.cert_pem.tempfile() as trusted, serving(context) as repository:
        few = repository.publish_list()
        monkeypatch.setenv(ivy.REPOSITORY, repository.url)
        with pytest.raises(CannotFetch, match=r"certif|PKIX"):
            connectors.fetch(few, say=lambda line: None)
        monkeypatch.setenv("SSL_CERT_FILE", trusted)
        connectors.fetch(few, say=lambda line: None)
    assert connectors.damaged(few, connectors.jars(few)[0].parent) == []


def test_a_mirror_of_mavens_settings_is_used(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ivy.REPOSITORY)
    monkeypatch.setenv("COMPANY", repository.url)
    write_settings(tmp_path, mirror("central", "${env.COMPANY}"))
    few = repository.publish_list()
    assert connectors.fetch(few, say=lambda line: None)
    assert repository.asked


@pytest.mark.parametrize(
    ("mirrors", "used"),
    [
        (mirror("central", "https://a"), "https://a"),
        (mirror("*", "https://a"), "https://a"),
        (mirror("external:*", "https://a"), "https://a"),
        (mirror("other", "https://a") + mirror("one, central", "https://b"), "https://b"),
        (mirror("*,!central", "https://a"), None),
        (mirror("external:http:*", "http://0.0.0.0/", "<blocked>true</blocked>"), None),
        (mirror("*", "http://0.0.0.0/", "<blocked>true</blocked>"), None),
        ("", None),
    ],
)
def test_a_mirror_is_used_where_maven_would_use_it(
    elsewhere: Path, tmp_path: Path, mirrors: str, used: str | None
) -> None:
    write_settings(tmp_path, mirrors)
    assert ivy.repository() == used


def test_a_named_repository_comes_before_a_mirror(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ivy.repository() is None
    write_settings(tmp_path, mirror("*", "https://a"))
    monkeypatch.setenv(ivy.REPOSITORY, "https://b")
    assert ivy.repository() == "https://b"


def test_settings_that_cannot_be_read_are_named(elsewhere: Path, tmp_path: Path) -> None:
    write_settings(tmp_path, "<mirror>")
    with pytest.raises(CannotFetch, match=r"cannot read .*settings\.xml: mismatched tag"):
        ivy.repository()


def test_a_proxy_of_the_environment_is_used(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as proxy:
        few = proxy.publish_list()
        proxy.files = {f"http://repository.invalid{path}": content for path, content in proxy.files.items()}
        monkeypatch.setenv(ivy.REPOSITORY, "http://repository.invalid/")
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "localhost,.internal")
        assert connectors.fetch(few, say=lambda line: None)


def test_another_list_has_another_folder() -> None:
    few = connectors.JarList("few", CONNECTORS.artifacts[:1])
    assert few.folder != CONNECTORS.folder != connectors.JarList("few", CONNECTORS.artifacts).folder


def test_the_nine_connectors_are_there_and_are_what_they_should_be() -> None:
    found = connectors.jars()
    assert len(found) == 9
    assert connectors.damaged(CONNECTORS, found[0].parent) == []
