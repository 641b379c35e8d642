"""The OpenAPI document says what the HTTP door does: schemathesis asks a running gateway all that stands in it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from starlette.routing import Route

from mew.config.models import Timeouts
from mew.gateway.http.app import HttpApi
from mew.gateway.http.openapi import codes_by_status, document
from mew.gateway.http.openapi_examples import EXPLAINED, MESSAGES, Example
from mew.protocol import ERROR_CODES
from tests.gateway.http_requests import Clients, ask, connecting
from tests.gateway.raw import ANYTHING, Running, running
from tests.support.hypothesis_settings import examples

PARTICIPANTS = {
    "alice": ANYTHING,
    "bob": [{"kind": "chat"}, {"kind": "mcp/*", "payload": {"method": "tools/list"}}],
}
SPACE = {"space_id": "demo", "participants": PARTICIPANTS}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
METHODS = {"get", "post"}
REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "protocol.md"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    # Wrong tokens are tried all the time, and each waits for its answer.
    with running(tmp_path_factory.mktemp("space"), SPACE, timeouts=Timeouts(failed_join_seconds=0.01)) as started:
        yield started


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


# Everything that stands in it is so


api = schemathesis.openapi.from_dict(document())
api.config.generation.update(modes=list(schemathesis.GenerationMode))
few = examples(15, allow=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture])


def address(gateway: Running) -> str:
    return f"http://127.0.0.1:{gateway.port}"


@api.parametrize()
@few
def test_a_stranger_is_answered_as_described(case: Case[Any], gateway: Running) -> None:
    case.call_and_validate(base_url=address(gateway), checks=CHECKS)


@api.include(path_regex="^/participants").parametrize()
@few
def test_a_participant_is_answered_as_described_and_by_its_token_alone(case: Case[Any], gateway: Running) -> None:
    own = {"Authorization": f"Bearer {gateway.token('alice')}"}
    if "participant" in case.operation.path:
        case.path_parameters["participant"] = "alice"
    case.query.pop("space", None)
    case.call_and_validate(base_url=address(gateway), headers=own, checks=[*CHECKS, ignored_auth])


# What it says, and whether it says everything


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, described in document()["paths"].items():
        for method in METHODS & described.keys():
            yield path, method, described[method]


def test_every_endpoint_stands_in_it_and_no_other(gateway: Running) -> None:
    routes = HttpApi(gateway.gateway).app().routes
    served = {
        (route.path, method.lower())
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert {(path, method) for path, method, _ in operations()} == served


def test_every_endpoint_stands_in_the_reference_too() -> None:
    _, _, section = REFERENCE.read_text(encoding="utf-8").partition("\n## HTTP\n")
    listed = re.findall(r"^\| `(GET|POST) (/[^\[?` ]*)", section.partition("\n## ")[0], re.MULTILINE)
    described = {(method.upper(), path.replace("{participant}", "{id}")) for path, method, _ in operations()}
    assert set(listed) == described


def test_the_list_of_codes_is_complete_and_each_has_its_status() -> None:
    assert document()["components"]["schemas"]["ProtocolError"]["properties"]["error"]["enum"] == sorted(ERROR_CODES)
    by_status = codes_by_status()
    assert {code for codes in by_status.values() for code in codes} == ERROR_CODES
    assert by_status[401] == ["unauthorized"]
    assert by_status[413] == ["message_too_large"]


def test_every_schema_is_one() -> None:
    for schema in document()["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_whatever_is_referred_to_is_there() -> None:
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            found.update([value["$ref"]] if "$ref" in value else [])
            for each in value.values():
                collect(each)
        elif isinstance(value, list):
            for each in value:
                collect(each)

    collect(document())
    assert found
    for reference in found:
        place: Any = document()
        for key in reference.removeprefix("#/").split("/"):
            place = place[key]


def test_who_needs_a_token_is_told_so() -> None:
    secured = {path for path, _, operation in operations() if operation.get("security") == [{"bearer": []}]}
    assert secured == {path for path, _, operation in operations() if "401" in operation["responses"]}
    assert document()["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


# Its examples work as they stand


def post(clients: Clients, gateway: Running, path: str, example: Example) -> None:
    answer = ask(clients.raw(gateway), "POST", path, gateway.token("alice"), example.request)
    assert answer.status == example.status, answer.body
    assert list(answer.json) == list(example.answer)
    for name in answer.json.keys() - {"id", "timestamp", "token", "connection_url"}:
        assert answer.json[name] == example.answer[name]


def test_every_message_of_the_examples_is_answered_as_described(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path, SPACE) as gateway:
        clients.joined(gateway, "bob")
        for example in MESSAGES:
            post(clients, gateway, "/participants/alice/messages", example)
        clients.close()


def test_every_explanation_of_the_examples_is_given(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path, SPACE) as gateway:
        for example in EXPLAINED:
            post(clients, gateway, "/participants/bob/explain", example)


@pytest.mark.parametrize(("path", "examples"), [("messages", MESSAGES), ("explain", EXPLAINED)])
def test_an_example_stands_under_its_status_and_fits_the_schema(path: str, examples: tuple[Example, ...]) -> None:
    operation = document()["paths"][f"/participants/{{participant}}/{path}"]["post"]
    asked = operation["requestBody"]["content"]["application/json"]["examples"]
    assert list(asked) == [example.name for example in examples]
    for example in examples:
        described = operation["responses"][str(example.status)]["content"]["application/json"]
        assert described["examples"][example.name]["value"] == example.answer
        for schema, value in ((described["schema"], example.answer), ({"$ref": ENVELOPE}, example.request)):
            jsonschema_rs.validate({**schema, "components": document()["components"]}, value)


ENVELOPE = "#/components/schemas/Envelope"


def test_the_document_is_the_same_for_everybody(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path) as gateway:
        answer = ask(clients.raw(gateway), "GET", "/openapi.json")
        assert (answer.status, answer.json) == (200, document())
