"""The page over HTTP: its files and no others, strict headers, caches that are never wrong."""

import gzip
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from mew.inspector import PAGE_HEADERS, page_files
from tests.gateway.http_requests import Clients, ask, connecting
from tests.gateway.raw import Answer, Running, running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("space")) as started:
        yield started


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


def got(clients: Clients, gateway: Running, path: str, method: str = "GET", **headers: str) -> Answer:
    return ask(clients.raw(gateway), method, path, **headers)


def test_the_page_is_at_the_root_with_strict_headers(clients: Clients, gateway: Running) -> None:
    answer = got(clients, gateway, "/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert {name: answer.headers[name] for name in PAGE_HEADERS} == PAGE_HEADERS
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_nothing_in_the_page_is_inline_or_from_elsewhere(clients: Clients, gateway: Running) -> None:
    html = got(clients, gateway, "/").body.decode()
    assert re.findall(r"<script[^>]*>(.+?)</script>", html) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", html) == []
    addresses = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert addresses
    for address in addresses:
        assert address.startswith("./")
        assert got(clients, gateway, address[1:]).status == 200


def test_files_named_by_their_contents_are_kept_forever(clients: Clients, gateway: Running) -> None:
    assets = [path for path in page_files() if path.startswith("/assets/")]
    assert {path.rpartition(".")[2] for path in assets} == {"css", "js"}
    for path in assets:
        answer = got(clients, gateway, path)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_cached_file_is_not_sent_again(clients: Clients, gateway: Running) -> None:
    tag = got(clients, gateway, "/").headers["etag"]
    for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = got(clients, gateway, "/", If_None_Match=condition)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == tag
    assert got(clients, gateway, "/", If_None_Match='"other"').status == 200


def test_files_are_sent_compressed_to_those_who_can_read_that(clients: Clients, gateway: Running) -> None:
    plain = got(clients, gateway, "/")
    packed = got(clients, gateway, "/", Accept_Encoding="br, gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(packed.body) == plain.body
    assert plain.body == (files("mew.inspector") / "static" / "index.html").read_bytes()


@pytest.mark.parametrize(
    "path", ["/index.html", "/assets", "/assets/", "/assets/../page.py", "/../page.py", "/static/"]
)
def test_no_other_file_is_served(clients: Clients, gateway: Running, path: str) -> None:
    answer = got(clients, gateway, path)
    assert (answer.status, answer.json["error"]) == (404, "not_found")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_page_can_only_be_read(clients: Clients, gateway: Running, method: str) -> None:
    answer = ask(clients.raw(gateway), method, "/", body=b"")
    assert (answer.status, answer.json["error"]) == (405, "not_found")
    assert answer.headers["allow"] == "GET, HEAD"


def test_a_page_of_another_origin_cannot_read_it(clients: Clients, gateway: Running) -> None:
    assert got(clients, gateway, "/", Origin="https://elsewhere.example").status == 403
