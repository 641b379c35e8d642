"""The headers of every HTTP answer for browsers and caches, and the time after which a silent peer has left."""

import time
from pathlib import Path

import pytest

from mew.config.models import Timeouts
from mew.gateway.gateway import silence_checks
from tests.gateway.raw import CLOSE, PING, Raw, head, joined, running, tls_of

MAILS = "/participants/alice/messages"


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_every_answer_has_headers_for_caches_and_browsers(tmp_path: Path, *, secure: bool) -> None:
    tls, trust = tls_of(tmp_path) if secure else (None, None)
    with running(tmp_path, tls=tls) as gateway:
        requests = [
            head("/health", {"Host": "localhost"}),
            head("/nowhere", {"Host": "localhost"}),
            head(MAILS, {"Host": "localhost"}),
            head("/health", {"Host": "elsewhere.example"}),
            b"no request\r\n\r\n",
        ]
        answers = []
        for request in requests:
            client = Raw(gateway.port, tls=trust)
            client.send(request)
            answers.append(client.answer())
            client.close()
    assert [response.status for response in answers] == [200, 404, 401, 403, 400]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert ("strict-transport-security" in answer.headers) == secure
        assert answer.headers.get("www-authenticate") == ("Bearer" if answer.status == 401 else None)


def test_the_files_of_the_inspector_set_their_own_cache_header(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        client = Raw(gateway.port)
        answer = client.ask("GET", "/")
        client.close()
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-cache")


def test_a_silent_peer_has_left_after_one_and_a_half_times_its_idle_time(tmp_path: Path) -> None:
    idle = 2.0
    with running(tmp_path, timeouts=Timeouts(idle_seconds=idle, close_seconds=0.2)) as gateway:
        client = joined(gateway)
        since = time.monotonic()
        assert client.echo().opcode == PING
        assert time.monotonic() - since >= idle * 0.95
        assert client.echo().opcode == CLOSE
        gateway.until(lambda gateway: not gateway.first_hub.space.sessions)
        assert time.monotonic() - since <= 1.5 * idle + 0.5
        client.close()


def test_with_the_defaults_a_silent_peer_has_left_after_90_seconds() -> None:
    times = Timeouts()
    period, end = silence_checks(times)
    longest = period + end * period + times.close_seconds  # silent since immediately after a check
    assert times.idle_seconds < longest <= 90
