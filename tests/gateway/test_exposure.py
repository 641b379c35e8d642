"""Which web pages may use the gateway, and to which host names it answers: the same for HTTP and WebSocket."""

from collections.abc import Iterator
from typing import Any

import pytest

from mew.config.models import GatewayConfig
from mew.gateway.exposure import Origins
from tests.gateway.http_requests import Clients, ask, connecting
from tests.gateway.raw import PING, Frame, Raw, Running, frame, head, running, upgrade

PAGE = "https://app.example.org"
TRANSPORTS = ["http", "websocket"]
LISTENING: dict[str, dict[str, Any]] = {
    "at home": {},
    "on one loopback address": {"host": "127.0.0.1"},
    "at home, named": {"allowed_hosts": ("mew.example.org", "other.example.org:8443")},
    "at home, by any name": {"allowed_hosts": ("*",)},
    "everywhere": {"host": "0.0.0.0"},
    "everywhere, named": {"host": "0.0.0.0", "allowed_hosts": ("mew.example.org", "other.example.org:8443")},
    "everywhere, by any name": {"host": "0.0.0.0", "allowed_hosts": ("*",)},
    "for a page": {"allowed_origins": (PAGE,)},
    "for a page, carelessly written": {"allowed_origins": ("HTTPS://App.Example.org/",)},
    "for sandboxed pages": {"allowed_origins": ("null",)},
    "for every page": {"allowed_origins": ("*",)},
}


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    started: dict[str, Running] = {}
    contexts = []
    for name, options in LISTENING.items():
        contexts.append(running(tmp_path_factory.mktemp("gateway"), **options))
        started[name] = contexts[-1].__enter__()
    yield started
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


def connect(client: Raw, transport: str, **headers: str | None) -> tuple[int, Any]:
    """The status that a transport answers, and the error, if any."""
    if transport == "http":
        answer = ask(client, "GET", "/health", **headers)
    else:
        client.send(upgrade("/", **headers))
        answer = client.answer()
    if answer.status == 403:
        assert answer.headers["content-type"] == "application/json"
        return 403, answer.json["error"]
    return answer.status, None


WELCOME = {"http": (200, None), "websocket": (101, None)}
REFUSED = (403, "unauthorized")
LOCAL = ["localhost", "localhost:8080", "LOCALHOST", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080"]
FOREIGN = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "192.0.2.1",
    "[2001:db8::1]:80",
    "",
    "localhost:",
]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("listening", "host", "accepted"),
    [
        *[(name, host, True) for name in ("at home", "on one loopback address") for host in LOCAL],
        *[(name, host, False) for name in ("at home", "on one loopback address") for host in FOREIGN],
        *[("at home, named", host, True) for host in ("localhost:1", "mew.example.org", "MEW.example.org:99")],
        ("at home, named", "other.example.org:8443", True),
        ("at home, named", "other.example.org:8444", False),
        ("at home, named", "other.example.org", False),
        ("at home, named", "evil.example", False),
        *[("at home, by any name", host, True) for host in (*LOCAL, *FOREIGN)],
        *[("everywhere", host, True) for host in LOCAL],
        *[("everywhere", host, False) for host in FOREIGN],
        ("everywhere, named", "mew.example.org", True),
        ("everywhere, named", "mew.example.org:80", True),
        ("everywhere, named", "localhost", True),
        ("everywhere, named", "127.0.0.1", True),
        ("everywhere, named", "evil.example", False),
        *[("everywhere, by any name", host, True) for host in (*LOCAL, *FOREIGN)],
    ],
)
def test_a_gateway_answers_only_to_its_own_host_names(
    gateways: dict[str, Running], clients: Clients, transport: str, listening: str, host: str, accepted: bool
) -> None:
    client = clients.raw(gateways[listening])
    assert connect(client, transport, Host=host) == (WELCOME[transport] if accepted else REFUSED)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("listening", "origin", "accepted"),
    [
        *[(name, None, True) for name in ("at home", "everywhere", "for a page", "for every page")],
        ("at home", "http://localhost:8080", True),
        ("at home", "HTTP://LocalHost:8080", True),
        ("at home", "https://localhost:8080", True),
        ("at home", "http://localhost:8081", False),
        ("at home", "http://localhost", False),
        ("at home", "http://127.0.0.1:8080", False),
        ("at home", PAGE, False),
        ("at home", "null", False),
        ("at home", "", False),
        ("at home", "localhost:8080", False),
        ("everywhere", "http://localhost:8080", True),
        ("everywhere", PAGE, False),
        ("for a page", PAGE, True),
        ("for a page", "http://localhost:8080", True),
        ("for a page", "http://app.example.org", False),
        ("for a page", f"{PAGE}:8443", False),
        ("for a page", f"{PAGE}.evil.example", False),
        ("for a page", "null", False),
        ("for a page, carelessly written", PAGE, True),
        ("for sandboxed pages", "null", True),
        ("for sandboxed pages", PAGE, False),
        ("for every page", PAGE, True),
        ("for every page", "null", True),
    ],
)
def test_a_page_of_another_origin_is_accepted_only_if_allowed(
    gateways: dict[str, Running], clients: Clients, transport: str, listening: str, origin: str | None, accepted: bool
) -> None:
    client = clients.raw(gateways[listening])
    assert connect(client, transport, Host="localhost:8080", Origin=origin) == (
        WELCOME[transport] if accepted else REFUSED
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_foreign_host_name_that_resolves_to_this_machine_is_not_the_same_origin(
    gateways: dict[str, Running], clients: Clients, transport: str
) -> None:
    client = clients.raw(gateways["at home"])
    assert connect(client, transport, Host="evil.example:8080", Origin="http://evil.example:8080") == REFUSED


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_without_a_host_header_no_origin_is_the_same(
    gateways: dict[str, Running], clients: Clients, transport: str
) -> None:
    assert connect(clients.raw(gateways["at home"]), transport, Host=None) == WELCOME[transport]
    assert connect(clients.raw(gateways["at home"]), transport, Host=None, Origin="http://localhost") == REFUSED


@pytest.mark.parametrize("twice", ["Host", "Origin"])
def test_each_value_of_a_repeated_header_is_checked(gateways: dict[str, Running], clients: Clients, twice: str) -> None:
    client = clients.raw(gateways["at home"])
    first = {"Host": "localhost", "Origin": "http://localhost"}
    wrong = {"Host": "evil.example", "Origin": "http://evil.example"}[twice]
    client.send(head("/health", first)[:-2], f"{twice}: {wrong}\r\n\r\n".encode())
    assert client.answer().status == 403


def test_a_refusal_names_the_wrong_value_and_the_setting_that_allows_it(
    gateways: dict[str, Running], clients: Clients
) -> None:
    client = clients.raw(gateways["at home"])
    message = ask(client, "GET", "/health", Host="evil.example").json["message"]
    assert "'evil.example'" in message
    assert "gateway.allowed_hosts" in message
    message = ask(client, "GET", "/health", Origin=PAGE).json["message"]
    assert f"'{PAGE}'" in message
    assert "gateway.allowed_origins" in message


def test_a_refused_request_is_answered_in_order_and_the_next_one_too(
    gateways: dict[str, Running], clients: Clients
) -> None:
    client = clients.raw(gateways["at home"])
    good, bad = head("/health", {"Host": "localhost"}), head("/health", {"Host": "evil.example"})
    client.send(good, bad, good, bad)
    assert [client.answer().status for _ in range(4)] == [200, 403, 200, 403]


def test_a_refused_post_has_no_effect(gateways: dict[str, Running], clients: Clients) -> None:
    gateway = gateways["at home"]
    client, mails = clients.raw(gateway), "/participants/bob/messages"
    chat = {"kind": "chat", "payload": {"text": "from a page"}}
    assert ask(client, "POST", mails, gateway.token("bob"), chat, Origin=PAGE).status == 403
    assert ask(client, "GET", "/participants", gateway.token("bob")).json["participants"] == []


def test_a_refused_upgrade_ends_the_connection_and_nothing_after_it_is_read(
    gateways: dict[str, Running], clients: Clients
) -> None:
    gateway = gateways["at home"]
    client = clients.raw(gateway)
    client.send(upgrade(Origin=PAGE, Authorization=f"Bearer {gateway.token('alice')}"), frame(PING, b"hello?"))
    assert client.answer().status == 403
    assert client.rest() == b""
    assert gateway.ask(lambda it: len(it.sockets)) == 0


def test_an_allowed_page_gets_a_working_socket(gateways: dict[str, Running], clients: Clients) -> None:
    client = clients.raw(gateways["for a page"])
    client.send(upgrade(Origin=PAGE), frame(PING, b"hello"))
    assert client.answer().status == 101
    assert client.frame() == Frame(10, b"hello")


# CORS headers


@pytest.mark.parametrize(("listening", "allowed_origin"), [("for a page", PAGE), ("for every page", "*")])
def test_an_allowed_page_may_read_answers_and_refusals(
    gateways: dict[str, Running], clients: Clients, listening: str, allowed_origin: str
) -> None:
    client = clients.raw(gateways[listening])
    for path, status in (("/health", 200), ("/participants", 401), ("/nowhere", 404)):
        answer = ask(client, "GET", path, Origin=PAGE)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, allowed_origin)


def test_an_allowed_page_may_send_a_token_and_json(gateways: dict[str, Running], clients: Clients) -> None:
    gateway = gateways["for a page"]
    client, mails = clients.raw(gateway), "/participants/alice/messages"
    preflight = ask(
        client,
        "OPTIONS",
        mails,
        Origin=PAGE,
        Access_Control_Request_Method="POST",
        Access_Control_Request_Headers="authorization,content-type",
        Access_Control_Request_Private_Network="true",
    )
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
    assert preflight.headers["access-control-allow-private-network"] == "true"
    chat = {"kind": "chat", "payload": {"text": "from a page"}}
    assert ask(client, "POST", mails, gateway.token("alice"), chat, Origin=PAGE).status == 200


@pytest.mark.parametrize("listening", ["at home", "for a page"])
def test_a_page_that_is_not_allowed_gets_no_preflight(
    gateways: dict[str, Running], clients: Clients, listening: str
) -> None:
    client = clients.raw(gateways[listening])
    preflight = {"Origin": "https://evil.example", "Access_Control_Request_Method": "POST"}
    answer = ask(client, "OPTIONS", "/health", **preflight)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_without_allowed_pages_there_are_no_cors_headers(gateways: dict[str, Running], clients: Clients) -> None:
    answer = ask(clients.raw(gateways["at home"]), "GET", "/health", Origin="http://localhost")
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", ["::1", "127.0.0.1", "127.8.8.8", "localhost"])
def test_on_every_loopback_address_foreign_host_names_are_refused(host: str) -> None:
    assert Origins(GatewayConfig(host=host)).refusal([(b"host", b"evil.example")]) is not None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "mew.example.org"])
def test_on_other_addresses_only_listed_host_names_are_accepted(host: str) -> None:
    assert Origins(GatewayConfig(host=host)).refusal([(b"host", b"evil.example")]) is not None
    listed = Origins(GatewayConfig(host=host, allowed_hosts=("mew.example.org",)))
    assert listed.refusal([(b"host", b"evil.example")]) is not None


def test_a_refusal_is_for_one_request_only(gateways: dict[str, Running], clients: Clients) -> None:
    client = clients.raw(gateways["at home"])
    assert connect(client, "http", Origin=PAGE) == REFUSED
    assert connect(client, "http") == WELCOME["http"]
    assert connect(client, "websocket") == WELCOME["websocket"]
