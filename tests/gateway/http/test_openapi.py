"""The OpenAPI document describes the HTTP API: schemathesis sends requests from it to a running gateway."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
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
from mew.gateway.http.openapi import codes_by_status, document, response_schema
from mew.gateway.http.responses import EXAMPLE_MESSAGES, EXPLAINED, Example, HealthBody
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
    # Many requests have a wrong token, and each waits for its answer.
    with running(tmp_path_factory.mktemp("space"), SPACE, timeouts=Timeouts(failed_join_seconds=0.01)) as started:
        yield started


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


# The gateway does what the document says


api = schemathesis.openapi.from_dict(document())
api.config.generation.update(modes=list(schemathesis.GenerationMode))
FEW = examples(15, allow=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture])


def address(gateway: Running) -> str:
    return f"http://127.0.0.1:{gateway.port}"


@api.parametrize()
@FEW
def test_answers_without_a_token_match_the_document(case: Case[Any], gateway: Running) -> None:
    case.call_and_validate(base_url=address(gateway), checks=CHECKS)


@api.include(path_regex="^/participants").parametrize()
@FEW
def test_answers_to_a_participant_match_the_document_and_need_its_token(case: Case[Any], gateway: Running) -> None:
    own = {"Authorization": f"Bearer {gateway.token('alice')}"}
    if "participant" in case.operation.path:
        case.path_parameters["participant"] = "alice"
    case.query.pop("space", None)
    case.call_and_validate(base_url=address(gateway), headers=own, checks=[*CHECKS, ignored_auth])


# The document is complete


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, described in document()["paths"].items():
        for method in METHODS & described.keys():
            yield path, method, described[method]


def test_the_document_has_exactly_the_endpoints_of_the_gateway(gateway: Running) -> None:
    routes = HttpApi(gateway.gateway).app().routes
    served = {
        (route.path, method.lower())
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert {(path, method) for path, method, _ in operations()} == served


def test_the_reference_has_exactly_the_endpoints_of_the_document() -> None:
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


def test_every_schema_is_a_valid_json_schema() -> None:
    for schema in document()["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_every_reference_in_the_document_resolves() -> None:
    references: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            references.update([value["$ref"]] if "$ref" in value else [])
            for part in value.values():
                collect(part)
        elif isinstance(value, list):
            for part in value:
                collect(part)

    collect(document())
    assert references
    for reference in references:
        place: Any = document()
        for key in reference.removeprefix("#/").split("/"):
            place = place[key]


def test_operations_that_need_a_token_declare_it() -> None:
    secured = {path for path, _, operation in operations() if operation.get("security") == [{"bearer": []}]}
    assert secured == {path for path, _, operation in operations() if "401" in operation["responses"]}
    assert document()["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


class Part(msgspec.Struct):
    """A struct without a name in the document."""

    count: Annotated[int, msgspec.Meta(ge=1, description="how many")]
    sender: str = msgspec.field(name="from")
    note: str | msgspec.UnsetType = msgspec.UNSET


PART = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "description": "how many"},
        "from": {"type": "string"},
        "note": {"type": "string"},
    },
    "required": ["count", "from"],
}


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        (Part, PART),
        (HealthBody, {"$ref": "#/components/schemas/Health"}),
        (list[Part], {"type": "array", "items": PART}),
        (Part | None, {"oneOf": [PART, {"type": "null"}]}),
        (HealthBody | None, {"oneOf": [{"$ref": "#/components/schemas/Health"}, {"type": "null"}]}),
        (Annotated[int, msgspec.Meta(ge=0)] | None, {"type": ["integer", "null"], "minimum": 0}),
        (str | list[Any] | None, {"type": ["string", "array", "null"]}),
        (list[str] | str, {"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (dict[str, Any], {"type": "object"}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Literal[True], {"const": True}),
        (
            Annotated[msgspec.Raw, msgspec.Meta(extra={"type": list[float]})],
            {"type": "array", "items": {"type": "number"}},
        ),
        (Annotated[str, msgspec.Meta(extra={"schema": {"enum": [1]}})], {"enum": [1]}),
    ],
    ids=str,
)
def test_a_type_becomes_the_schema_of_its_values(form: Any, schema: dict[str, Any]) -> None:
    assert response_schema(form) == schema


# The examples work unchanged


def post(clients: Clients, gateway: Running, path: str, example: Example) -> None:
    answer = ask(clients.raw(gateway), "POST", path, gateway.token("alice"), example.request)
    assert answer.status == example.status, answer.body
    assert list(answer.json) == list(example.answer)
    for name in answer.json.keys() - {"id", "timestamp", "token", "connection_url"}:
        assert answer.json[name] == example.answer[name]


def test_every_example_message_gets_the_documented_answer(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path, SPACE) as gateway:
        clients.joined(gateway, "bob")
        for example in EXAMPLE_MESSAGES:
            post(clients, gateway, "/participants/alice/messages", example)
        clients.close()


def test_every_example_explanation_is_the_real_answer(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path, SPACE) as gateway:
        for example in EXPLAINED:
            post(clients, gateway, "/participants/bob/explain", example)


@pytest.mark.parametrize(("path", "examples"), [("messages", EXAMPLE_MESSAGES), ("explain", EXPLAINED)])
def test_an_example_is_listed_under_its_status_and_matches_the_schema(path: str, examples: tuple[Example, ...]) -> None:
    operation = document()["paths"][f"/participants/{{participant}}/{path}"]["post"]
    request_examples = operation["requestBody"]["content"]["application/json"]["examples"]
    assert list(request_examples) == [example.name for example in examples]
    for example in examples:
        described = operation["responses"][str(example.status)]["content"]["application/json"]
        assert described["examples"][example.name]["value"] == example.answer
        for schema, value in ((described["schema"], example.answer), ({"$ref": ENVELOPE}, example.request)):
            jsonschema_rs.validate({**schema, "components": document()["components"]}, value)


ENVELOPE = "#/components/schemas/Envelope"


def test_the_document_needs_no_token(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path) as gateway:
        answer = ask(clients.raw(gateway), "GET", "/openapi.json")
        assert (answer.status, answer.json) == (200, document())
