"""A payload is parsed for its kind, and an invalid field is named."""

from typing import Any

import msgspec
import pytest

from mew.protocol import payloads
from mew.protocol.envelope import Envelope, Stamp, read_object, stamp_envelope
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.payloads import read_payload

VIEWS = [value for value in vars(payloads).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)]
VIEWS.remove(Envelope)
EXAMPLES: dict[type, dict[str, Any]] = {
    payloads.GrantWrite: {"participant_id": "bob", "reason": "help"},
    payloads.RevokeWrite: {"participant_id": "bob", "reason": "done"},
    payloads.TransferOwnership: {"new_owner": "bob", "reason": "yours"},
    payloads.StreamRequest: {
        "direction": "upload",
        "encoding": "utf-8",
        "target": ["bob"],
        "formats": [{"id": "text"}],
        "desired_id": "slug",
        "scope": ["bob"],
        "validate": True,
        "on_owner_disconnect": "keep",
    },
    payloads.StreamFailure: {"code": "broken", "message": "it broke"},
    payloads.CapabilityGrant: {"recipient": "bob", "capabilities": [{"kind": "chat"}], "timeout_seconds": 1.5},
    payloads.CapabilityRevoke: {"recipient": "bob", "grant_id": "g-1", "capabilities": [{"kind": "chat"}]},
    payloads.Invite: {"participant_id": "bob", "initial_capabilities": [], "reason": "welcome"},
    payloads.Kick: {"participant_id": "bob", "reason": "enough"},
    payloads.Pause: {"timeout_seconds": 1.5},
}
OPEN = {"formats", "desired_id"}
"""Fields that are checked elsewhere."""
FIELDS = [(view, field.name) for view in VIEWS for field in msgspec.structs.fields(view) if field.name not in OPEN]


def read_example(view: type, payload: dict[str, Any]) -> Any:
    message = msgspec.json.encode({"kind": "some/kind", "payload": payload})
    return read_payload(stamp_envelope(*read_object(message), Stamp("alice", "e-1", 0)), view)


def test_every_view_has_an_example_of_all_its_fields() -> None:
    assert {view: set(example) for view, example in EXAMPLES.items()} == {
        view: {field.name for field in msgspec.structs.fields(view)} for view in VIEWS
    }


@pytest.mark.parametrize("view", VIEWS)
def test_a_payload_is_parsed_and_unknown_fields_are_ignored(view: type) -> None:
    read_as = read_example(view, {**EXAMPLES[view], "unknown": {"nested": 1}})
    assert msgspec.structs.asdict(read_as) == EXAMPLES[view]


@pytest.mark.parametrize("view", VIEWS)
def test_optional_fields_may_be_missing_or_null(view: type) -> None:
    required = {field.name for field in msgspec.structs.fields(view) if field.required}
    payload = {name: value if name in required else None for name, value in EXAMPLES[view].items()}
    bare = {name: value for name, value in payload.items() if value is not None}
    assert read_example(view, payload) == read_example(view, bare)
    assert set(bare) == required


@pytest.mark.parametrize(("view", "field"), FIELDS)
def test_a_field_of_the_wrong_type_is_named_with_its_kind(view: type, field: str) -> None:
    example = EXAMPLES[view][field]
    for wrong in ({"a": 1}, 5 if isinstance(example, str | list) else "5", [] if isinstance(example, str) else "[]"):
        with pytest.raises(InvalidEnvelope, match=rf"^some/kind: .*`payload\.{field}`"):
            read_example(view, {**EXAMPLES[view], field: wrong})


@pytest.mark.parametrize("field", ["target", "scope"])
def test_an_element_of_the_wrong_type_is_named_by_its_index(field: str) -> None:
    with pytest.raises(InvalidEnvelope, match=rf"`payload\.{field}\[1\]`"):
        read_example(payloads.StreamRequest, {field: ["bob", 5]})


def test_a_value_that_is_not_one_of_the_choices_is_named() -> None:
    with pytest.raises(InvalidEnvelope, match=r"'vanish' - at `payload\.on_owner_disconnect`"):
        read_example(payloads.StreamRequest, {"on_owner_disconnect": "vanish"})


@pytest.mark.parametrize(
    ("view", "field"),
    [(view, field.name) for view in VIEWS for field in msgspec.structs.fields(view) if field.required],
)
def test_a_required_field_that_is_missing_is_named(view: type, field: str) -> None:
    payload = {name: value for name, value in EXAMPLES[view].items() if name != field}
    with pytest.raises(InvalidEnvelope, match=rf"^some/kind: .*`{field}`"):
        read_example(view, payload)


@pytest.mark.parametrize("value", [True, "1", 10**400, [], {}])
def test_a_timeout_is_a_finite_float(value: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="timeout_seconds"):
        read_example(payloads.Pause, {"timeout_seconds": value})


def test_a_timeout_may_be_an_integer() -> None:
    assert read_example(payloads.Pause, {"timeout_seconds": 5}) == payloads.Pause(5.0)
