"""The `approvals` of space.yaml: which requests need whose votes (docs/security.md).

An unknown key is refused and not only warned about: a rule that is read otherwise than it was meant protects nothing.
"""

from typing import Final

from mew.gateway.yaml_file import Place, Section
from mew.protocol import kinds
from mew.protocol.capability import Capability, read_capability
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.settings import ApprovalRule

KEYS: Final = frozenset(ApprovalRule.__struct_fields__)
_MATCH: Final = frozenset({"payload", "to"})


def read_approvals(top: Section) -> tuple[ApprovalRule, ...]:
    """The rules, in the order of the file."""
    place = top.get("approvals")
    return () if place is None else tuple(_read_rule(each) for each in place.items("a list of rules"))


def _read_rule(place: Place) -> ApprovalRule:
    given = place.section()
    _refuse_others(given, KEYS)
    deciders = given.required("deciders")
    names = tuple(dict.fromkeys(given.texts("deciders", "a list of participants")))
    if not names:
        raise deciders.error("expected at least one participant")
    quorum = given.whole("quorum", 1, least=1, most=len(names))
    not_proposer = given.flag("not_proposer", default=True)
    return ApprovalRule(
        match=_read_match(given.required("match")), deciders=names, quorum=quorum, not_proposer=not_proposer
    )


def _read_match(place: Place) -> Capability:
    """Patterns for payload and recipients, as a capability has them; the kind is always `mcp/request`."""
    _refuse_others(place.section(), _MATCH)
    try:
        return read_capability({"kind": kinds.MCP_REQUEST, **place.node.plain()}, "match")
    except InvalidEnvelope as refusal:
        raise place.error(refusal.message) from None


def _refuse_others(section: Section, known: frozenset[str]) -> None:
    for key, place in section.entries():
        if key not in known:
            raise place.error(f"unknown key; expected {', '.join(sorted(known))}")
