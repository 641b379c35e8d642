"""The sentences of the gateway's own errors: over HTTP, at the start, and its warnings about risks.

The errors of the protocol are in `test_protocol.py`. Review a change here like a translation.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mew.config import ConfigError
from mew.config.loader import load_config
from mew.config.models import GatewayConfig, SpaceConfig
from mew.config.tokens import TokenStore
from mew.gateway.exposure import require_safe, warnings_of
from mew.gateway.gateway import Gateway
from mew.gateway.journaling import JournalLocked
from mew.gateway.server import GatewayServer, PortInUse
from mew.journal import JournalSettings
from mew.protocol import Limits
from mew.testing import MemoryTokens, settings
from tests.gateway.http_requests import ask
from tests.gateway.raw import Raw, Running, closing, head, joined, running, upgrade

ALL: Final = [{"kind": "*"}]
SPACE: Final = {"participants": {"alice": ALL}, "limits": Limits(message_bytes=4096, live_readers_per_participant=1)}
LIVE: Final = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("gateway"), SPACE, journal=JournalSettings()) as started:
        yield started


def refused(gateway: Running, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, str, str]:
    """Status, code and sentence of a refused request of alice."""
    client = Raw(gateway.port)
    answer = ask(client, method, path, gateway.token("alice"), body, **headers)
    client.close()
    return answer.status, answer.json["error"], answer.json["message"]


MESSAGES: Final = "/participants/alice/messages"
REQUESTS: Final[dict[str, tuple[tuple[str, str, dict[str, Any]], tuple[int, str, str]]]] = {
    "an unknown path": (("GET", "/nowhere", {}), (404, "not_found", "there is no GET /nowhere here")),
    "an unknown method": (("DELETE", MESSAGES, {}), (405, "not_found", f"there is no DELETE {MESSAGES} here")),
    "an invalid number": (
        ("GET", f"{MESSAGES}?since=x", {}),
        (400, "invalid_request", "`since` must be a whole number"),
    ),
    "an invalid position": (
        ("GET", "/spaces/lab/proposals/one", {}),
        (400, "invalid_request", "the position of a proposal is a whole number"),
    ),
    "an unknown proposal": (
        ("GET", "/spaces/lab/proposals/7", {}),
        (404, "not_found", "there is no open proposal at position 7, and none was closed within the last hour"),
    ),
    "a body that is too large": (
        ("POST", MESSAGES, {"body": b"*" * 5000}),
        (413, "message_too_large", "a message may have 4096 bytes here"),
    ),
    "an invalid start of the journal": (
        ("GET", "/spaces/lab/journal?from=x", {}),
        (400, "invalid_request", "`from` must be a whole number"),
    ),
    "an empty page of the journal": (
        ("GET", "/spaces/lab/journal?limit=0", {}),
        (400, "invalid_request", "`limit` must be at least 1"),
    ),
    "a page of the journal that is too large": (
        ("GET", "/spaces/lab/journal?limit=10001", {}),
        (400, "invalid_request", "`limit` may be 10000 at most"),
    ),
    "another host": (
        ("GET", "/health", {"Host": "evil.example"}),
        (403, "unauthorized", "nothing is served here as 'evil.example': see `gateway.allowed_hosts`"),
    ),
    "another origin": (
        ("GET", "/health", {"Origin": "https://evil.example"}),
        (403, "unauthorized", "pages of 'https://evil.example' are not served here: see `gateway.allowed_origins`"),
    ),
    "a head that is too large": (
        ("GET", "/health", {"Cookie": "*" * 40_000}),
        (
            431,
            "invalid_request",
            "the head of a request may have 32768 bytes: see `gateway.limits.http_head_bytes`",
        ),
    ),
}


@pytest.mark.parametrize(("request_parts", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_a_refused_request_says_what_is_wrong(
    gateway: Running, request_parts: tuple[str, str, dict[str, Any]], expected: tuple[int, str, str]
) -> None:
    method, path, more = request_parts
    assert refused(gateway, method, path, **more) == expected


def test_bytes_that_are_not_http_are_named(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(b"nonsense\r\n\r\n")
    assert client.answer().json["message"] == "this is no HTTP request that can be read"
    client.close()


def test_another_version_of_websocket_is_named(gateway: Running) -> None:
    client = Raw(gateway.port)
    client.send(upgrade(Sec_WebSocket_Version="12"))
    assert client.answer().json["message"] == "the version of WebSocket spoken here is 13"
    client.close()


def test_the_error_of_a_second_live_reader_says_what_to_do(gateway: Running) -> None:
    first = Raw(gateway.port)
    token = gateway.token("alice")
    first.send(head("/spaces/lab/journal", {"Host": "localhost", "Authorization": f"Bearer {token}", **LIVE}))
    assert first.answer().status == 200
    assert refused(gateway, "GET", "/spaces/lab/journal", **LIVE)[2] == (
        "'alice' follows 1 live journals, which is the limit: end one first"
    )
    first.close()


def test_a_space_without_a_journal_says_so(tmp_path: Path) -> None:
    with running(tmp_path, SPACE) as gateway:
        assert refused(gateway, "GET", "/spaces/lab/journal") == (404, "not_found", "the space 'lab' keeps no journal")


def test_a_gateway_that_stops_says_so(tmp_path: Path) -> None:
    with running(tmp_path, SPACE) as gateway:
        silent, asking = joined(gateway), Raw(gateway.port)
        assert ask(asking, "GET", "/health").status == 200
        stopping = gateway.stopping()
        assert silent.echo().code == 1001
        answer = ask(asking, "GET", MESSAGES, gateway.token("alice"))
        assert answer.json["message"] == "the gateway is stopping"
        silent.send(closing(1001))
        stopping.result(5)
        for client in (silent, asking):
            client.close()


# At the start


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    space = SpaceConfig(settings=settings(), directory=tmp_path, file=tmp_path / "space.yaml", name="lab")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = GatewayConfig(spaces=(space,), host="127.0.0.1", port=port)
        with pytest.raises(PortInUse) as caught:
            GatewayServer(Gateway(config, MemoryTokens())).bind()
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_journal_of_another_process_is_named(tmp_path: Path) -> None:
    with running(tmp_path, journal=JournalSettings()) as first, pytest.raises(JournalLocked) as caught:
        Gateway(first.config, first.tokens).journals.open(first.config.spaces[0])
    assert str(caught.value).startswith(f"{tmp_path}/.mew/journal: process ")
    assert str(caught.value).endswith(" writes the journal of 'lab'")


def configured(directory: Path, gateway: str) -> GatewayConfig:
    file = directory / "space.yaml"
    file.write_text(f"space: {{id: lab}}\nparticipants: {{alice: {{tokens: [word]}}}}\ngateway: {gateway}\n")
    file.chmod(0o644)
    return load_config([file], environ={})


UNSAFE: Final = {
    "{host: 0.0.0.0}": (
        "gateway.allowed_hosts: required, because the gateway listens on '0.0.0.0', which other machines reach: list "
        'the names by which it is addressed, such as [lab.example.org], or ["*"] for any'
    ),
    '{allow_anonymous: true, allowed_hosts: ["*"]}': (
        "gateway.allowed_hosts: \"*\" cannot be combined with gateway.allow_anonymous (space 'lab'): any website could "
        "let its own name point to this machine and join without a token; list the names instead"
    ),
    '{allow_anonymous: true, allowed_origins: ["*"]}': (
        "gateway.allowed_origins: \"*\" cannot be combined with gateway.allow_anonymous (space 'lab'): a page of any "
        "website could join without a token, from the browser of anyone who reaches the gateway; list the pages instead"
    ),
}


@pytest.mark.parametrize(("gateway_section", "sentence"), UNSAFE.items(), ids=UNSAFE)
def test_an_unsafe_configuration_says_why(tmp_path: Path, gateway_section: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_safe(configured(tmp_path, gateway_section))
    assert str(caught.value) == f"{tmp_path}/space.yaml: {sentence}"


def test_a_warning_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir(mode=0o755)
    config = configured(tmp_path, '{host: 0.0.0.0, allowed_hosts: ["*"], allowed_origins: ["*"]}')
    assert list(warnings_of(config, TokenStore(config.spaces, environ={}))) == [
        f"{tmp_path}/.mew: other users of this machine, or its group, can look into it: chmod 700 it",
        'gateway.allowed_origins has "*", so a page of any website can use the gateway with a token that it gets: list '
        "the pages that you trust",
        "gateway.host '0.0.0.0' is reached by other machines without TLS, so tokens can be read on the network: set "
        "gateway.tls, or listen on localhost behind a proxy that has a certificate",
        'gateway.allowed_hosts has "*", so a page of any website can let its own name point to the gateway: list the '
        "names by which it is addressed",
        f"{tmp_path}/space.yaml: other users of this machine can read it, and tokens in it: chmod 600 it",
        f"{tmp_path}/space.yaml: participants.alice.tokens: the token can be guessed: use `mew token create`, or 22 "
        "random characters",
    ]
