"""Jars are fetched once, have exactly the pinned content, and come from the repository that this machine names."""

import base64
import errno
import resource
import signal
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from mew.pipeline import share
from mew.pipeline.jars import (
    CONNECTORS,
    REPOSITORY,
    JarList,
    JarsMissing,
    JarUnavailable,
    damaged_jars,
    fetch_jars,
    find_jars,
    maven_repository,
)
from tests.pipeline.spark.repository import Repository, serving

PUBLIC = maven_repository({})


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is kept where other tests find it, and no settings of this machine apply."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(REPOSITORY, raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "environment" / "share" / "mew"


@pytest.fixture
def repository(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    with serving() as served:
        monkeypatch.setenv(REPOSITORY, served.url)
        yield served


def write_settings(tmp_path: Path, mirrors: str) -> None:
    folder = tmp_path / "home" / ".m2"
    folder.mkdir(parents=True)
    namespace = 'xmlns="http://maven.apache.org/SETTINGS/1.2.0"'
    text = f"<settings {namespace}><mirrors>{mirrors}</mirrors></settings>"
    (folder / "settings.xml").write_text(text, encoding="utf-8")


def kept(place: Path) -> list[str]:
    return [path.name for path in place.iterdir() if not path.name.endswith(".lock")]


def mirror(of: str, url: str, more: str = "") -> str:
    return f"<mirror><id>m</id><mirrorOf>{of}</mirrorOf><url>{url}</url>{more}</mirror>"


def test_jars_are_fetched_once_with_a_line_for_each(repository: Repository, elsewhere: Path) -> None:
    few = repository.publish_list()
    with pytest.raises(JarsMissing, match=r"^the jars of Spark's few are not here: run `mew pipeline setup` once$"):
        find_jars(few)
    lines: list[str] = []
    fetched = fetch_jars(few, say=lines.append)
    assert fetched == find_jars(few)
    assert [jar.name for jar in fetched] == ["alpha_2.13-1.2.3.jar", "beta-1.2.3.jar", "gamma-0-10-1.2.3.jar"]
    assert [jar.read_bytes()[:4] for jar in fetched] == [b"alph", b"beta", b"gamm"]
    assert {jar.parent for jar in fetched} == {elsewhere / few.folder}
    assert [line.split(":")[0] for line in lines] == [
        "  1/3 alpha_2.13 1.2.3",
        "  2/3 beta 1.2.3",
        "  3/3 gamma-0-10 1.2.3",
    ]
    asked = len(repository.asked)
    assert fetch_jars(few, say=lines.append) == fetched
    assert len(repository.asked) == asked


def test_a_jar_with_another_content_is_rejected_and_nothing_is_kept(repository: Repository, elsewhere: Path) -> None:
    few = repository.publish_list()
    forged = repository.publish("beta", b"forged")
    with pytest.raises(JarUnavailable) as rejected:
        fetch_jars(few, say=lambda line: None)
    assert str(rejected.value) == (
        f"cannot fetch beta 1.2.3 from {repository.url}: it sent a file with SHA-256 {forged.sha256}, not the pinned "
        f"{few.artifacts[1].sha256}. Nothing was kept; use another repository with MEW_MAVEN_REPOSITORY"
    )
    assert kept(elsewhere) == []


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (404, "the repository does not have it. Name another repository with MEW_MAVEN_REPOSITORY"),
        (
            401,
            "the repository requires a login (HTTP 401). Put it into MEW_MAVEN_REPOSITORY: https://user:password@host/path",
        ),
        (503, "the repository answered 503 Service Unavailable. Run `mew pipeline setup` again later"),
    ],
)
def test_a_jar_that_a_repository_refuses_is_named_in_one_line(
    repository: Repository, elsewhere: Path, status: int, sentence: str
) -> None:
    few = repository.publish_list()
    repository.refuse("beta", status)
    with pytest.raises(JarUnavailable) as refused:
        fetch_jars(few, say=lambda line: None)
    assert str(refused.value) == f"cannot fetch beta 1.2.3 from {repository.url}: {sentence}"
    assert kept(elsewhere) == []


def test_without_a_network_one_line_says_what_to_check(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as gone:
        few = gone.publish_list()
    monkeypatch.setenv(REPOSITORY, gone.url)
    with pytest.raises(JarUnavailable) as refused:
        fetch_jars(few, say=lambda line: None)
    message = str(refused.value)
    assert message.startswith(f"cannot fetch alpha_2.13 1.2.3 from {gone.url}: ")
    assert "Connection refused. Check the network, the proxy and MEW_MAVEN_REPOSITORY" in message
    assert "\n" not in message


def test_an_answer_that_breaks_off_is_rejected(repository: Repository, elsewhere: Path) -> None:
    few = repository.publish_list()
    repository.cut_short("gamma-0-10")
    with pytest.raises(JarUnavailable, match=r"^cannot fetch gamma-0-10 1\.2\.3 "):
        fetch_jars(few, say=lambda line: None)
    assert kept(elsewhere) == []


def test_a_login_in_the_address_is_sent_and_never_printed(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = repository.publish_list()
    monkeypatch.setenv(REPOSITORY, repository.url.replace("//", "//ann:s%40cret@"))
    assert fetch_jars(few, say=lambda line: None)
    assert set(repository.logins) == {"Basic " + base64.b64encode(b"ann:s@cret").decode()}
    repository.refuse("beta", 403)
    find_jars(few)[1].unlink()
    with pytest.raises(JarUnavailable) as refused:
        fetch_jars(few, say=lambda line: None)
    assert "cret" not in str(refused.value)


def test_a_full_disk_is_reported_with_the_folder(
    repository: Repository, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = repository.publish_list()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def say(_line: str) -> None:
        # From the second jar on the system refuses every byte, as a full disk does, with another errno.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))

    monkeypatch.setattr(share, "DISK_ERRORS", (*share.DISK_ERRORS, errno.EFBIG))
    try:
        with pytest.raises(share.NowhereToKeep, match=f"^{elsewhere / few.folder}: cannot be written: File too large"):
            fetch_jars(few, say=say)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert kept(elsewhere) == []


def test_a_jar_that_vanished_or_is_empty_is_fetched_again(repository: Repository) -> None:
    few = repository.publish_list()
    alpha, beta, _ = fetch_jars(few, say=lambda line: None)
    alpha.unlink()
    beta.write_bytes(b"")
    with pytest.raises(JarsMissing):
        find_jars(few)
    fetch_jars(few, say=lambda line: None)
    assert find_jars(few)[0].stat().st_size
    assert damaged_jars(few, beta.parent) == []


def test_who_is_trusted_on_this_machine_is_trusted(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with authority.cert_pem.tempfile() as trusted, serving(context) as repository:
        few = repository.publish_list()
        monkeypatch.setenv(REPOSITORY, repository.url)
        with pytest.raises(JarUnavailable, match="certificate verify failed"):
            fetch_jars(few, say=lambda line: None)
        monkeypatch.setenv("SSL_CERT_FILE", trusted)
        fetch_jars(few, say=lambda line: None)
    assert damaged_jars(few, find_jars(few)[0].parent) == []


def test_a_mirror_of_mavens_settings_is_used(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REPOSITORY)
    monkeypatch.setenv("COMPANY", repository.url)
    write_settings(tmp_path, mirror("central", "${env.COMPANY}"))
    few = repository.publish_list()
    assert fetch_jars(few, say=lambda line: None)
    assert repository.asked


@pytest.mark.parametrize(
    ("mirrors", "used"),
    [
        (mirror("central", "https://a"), "https://a"),
        (mirror("*", "https://a"), "https://a"),
        (mirror("external:*", "https://a"), "https://a"),
        (mirror("other", "https://a") + mirror("one, central", "https://b"), "https://b"),
        (mirror("*,!central", "https://a"), PUBLIC),
        (mirror("external:http:*", "http://0.0.0.0/", "<blocked>true</blocked>"), PUBLIC),
        (mirror("*", "http://0.0.0.0/", "<blocked>true</blocked>"), PUBLIC),
        ("", PUBLIC),
    ],
)
def test_a_mirror_is_used_where_maven_would_use_it(elsewhere: Path, tmp_path: Path, mirrors: str, used: str) -> None:
    write_settings(tmp_path, mirrors)
    assert maven_repository() == used


def test_the_public_repository_is_the_one_of_spark_itself(elsewhere: Path) -> None:
    address = urlsplit(maven_repository())
    assert (address.scheme, address.path) == ("https", "/maven2/")


def test_a_named_repository_comes_before_a_mirror(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(tmp_path, mirror("*", "https://a"))
    monkeypatch.setenv(REPOSITORY, "https://b")
    assert maven_repository() == "https://b"


def test_settings_that_cannot_be_read_are_named(elsewhere: Path, tmp_path: Path) -> None:
    write_settings(tmp_path, "<mirror>")
    with pytest.raises(JarUnavailable, match=r"cannot read .*settings\.xml: mismatched tag"):
        maven_repository()


def test_a_proxy_of_the_environment_is_used(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as proxy:
        few = proxy.publish_list()
        proxy.files = {f"http://repository.invalid{path}": content for path, content in proxy.files.items()}
        monkeypatch.setenv(REPOSITORY, "http://repository.invalid/")
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "localhost,.internal")
        assert fetch_jars(few, say=lambda line: None)


def test_another_list_has_another_folder() -> None:
    few = JarList("few", CONNECTORS.artifacts[:1])
    assert few.folder != CONNECTORS.folder != JarList("few", CONNECTORS.artifacts).folder


def test_the_nine_connectors_are_there_and_are_what_they_should_be() -> None:
    jars = find_jars()
    assert len(jars) == 9
    assert damaged_jars(CONNECTORS, jars[0].parent) == []
