"""docs/reference/configuration.md: every key of space.yaml, of the types that hold its values.

A key's type, default and meaning are those of a field and its docstring. This module has only what is written in a file
differently from the value.
"""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from mew.config.loader import IGNORED_KEYS
from mew.config.models import (
    TLS,
    BridgeConfig,
    GatewayConfig,
    LoggingConfig,
    McpServerConfig,
    ParticipantConfig,
    Queues,
    SpaceConfig,
    Timeouts,
    UnadmittedLimits,
)
from mew.journal.kafka.address import TOPIC_URL_FORM
from mew.journal.settings import JournalSettings
from mew.pipeline.settings import PipelineSettings
from mew.protocol.capabilities import Capability
from mew.protocol.settings import ApprovalRule, Limits, SpaceSettings, StreamSettings
from tools.reference.writing import MADE, code, sentence, table

Struct = type[msgspec.Struct]
NONE: Final = ""


@dataclass(frozen=True)
class Key:
    """One key of a section, as a reader of the file needs it."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Part:
    """One section of the file: the fields that it sets, and keys with a separate text."""

    path: str
    intro: str
    fields: tuple[tuple[Struct, tuple[str, ...]], ...] = ()
    written: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Key to type and default, where the file has another form than the field."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Field to key, where they are called differently."""
    added: tuple[Key, ...] = ()
    """Keys that no field holds."""

    def listed(self) -> Iterator[Key]:
        """Its keys, in the order of the fields."""
        for struct, names in self.fields:
            meanings = field_docs(struct)
            values = {each.name: each for each in msgspec.structs.fields(struct)}
            for name in names:
                key = self.renamed.get(name, values[name].encode_name)
                kind, default = self.written.get(key) or (type_words(values[name].type), default_words(values[name]))
                yield Key(key, kind, default, meanings[name])
        yield from self.added
        for name in IGNORED_KEYS.get(self.path.removesuffix(".ID"), ()):
            yield Key(
                name, "any value", NONE, "A key of the TypeScript gateway, without effect here. It gives a warning."
            )


def _all(struct: Struct) -> tuple[Struct, tuple[str, ...]]:
    return struct, struct.__struct_fields__


PARTS: Final = (
    Part(
        "space",
        "What the space is called. Only `id` is needed.",
        ((SpaceSettings, ("space_id",)), (SpaceConfig, ("name", "description", "default_participant"))),
        renamed={"space_id": "id"},
    ),
    Part(
        "participants.ID",
        "Who has a place in the space, by id. `bob: {}` is enough: he has a token and the default capabilities.",
        (_all(ParticipantConfig),),
        written={"type": ("`local`, `mcp-bridge`", "`local`")},
    ),
    Part("participants.ID.mcp_server", "The server of an `mcp-bridge`.", (_all(McpServerConfig),)),
    Part("participants.ID.bridge_config", "How the bridge treats its server.", (_all(BridgeConfig),)),
    Part(
        "defaults",
        "What holds for participants of whom nothing else is said.",
        ((SpaceSettings, ("defaults",)),),
        renamed={"defaults": "capabilities"},
        written={"capabilities": ("list of capabilities", "`[{kind: chat}]`")},
    ),
    Part(
        "approvals",
        "A list of rules, none by default. Each binds every `mcp/request` that it matches, with a proposal or without; "
        "[security.md](../security.md) shows one. A key that it does not know is refused.",
        (_all(ApprovalRule),),
        written={"match": ("mapping of `payload` and `to`, as in a capability", NONE)},
    ),
    Part(
        "gateway",
        "Where the gateway listens and what it allows. Where it serves several files, the first one says all of this "
        "but `allow_anonymous`, `strict_from` and the `limits` that concern a space.",
        (
            (GatewayConfig, ("host", "port", "tls", "allowed_origins", "allowed_hosts", "trusted_proxies", "timeouts")),
            (SpaceSettings, ("allow_anonymous", "strict_from", "limits")),
        ),
    ),
    Part("gateway.tls", "Paths from the space's directory.", (_all(TLS),)),
    Part("gateway.timeouts", "How long the gateway waits for a peer, in seconds.", (_all(Timeouts),)),
    Part(
        "gateway.limits",
        "Over a limit, only the sender gets an error, with its code.",
        (_all(Limits), _all(Queues), _all(UnadmittedLimits)),
    ),
    Part(
        "gateway_logging",
        "Which logs people can read are written. The environment (`GATEWAY_LOGGING`, `ENVELOPE_HISTORY`, "
        "`CAPABILITY_DECISIONS`) overrides the file.",
        (_all(LoggingConfig),),
        written={
            "envelope_history": ("`{enabled: true}`, `{enabled: false}`", "`{enabled: true}`"),
            "capability_decisions": ("`{enabled: true}`, `{enabled: false}`", "`{enabled: true}`"),
        },
        added=(Key("enabled", "true or false", "`true`", "Whether any of them is written."),),
    ),
    Part("streams", "What holds for streams that say nothing else.", (_all(StreamSettings),)),
    Part(
        "journal",
        "How the record of the space is kept; [journal.md](../journal.md) tells what it is.",
        (
            (JournalSettings, ("enabled", "sync", "segment_bytes", "segment_seconds")),
            (JournalSettings, ("retention_seconds", "on_error", "kafka")),
        ),
        renamed={"retention_seconds": "retention"},
        written={
            "sync": ("`always`, `interval:<ms>`, `os`", f"`interval:{JournalSettings().interval_ms}`"),
            "retention": ("time, or `all`", "`all`"),
            "kafka": ("section", NONE),
        },
    ),
    Part(
        "journal.kafka",
        "[Shipping](../journal.md#shipping-to-kafka), by a process that the gateway starts, starts again and ends.",
        added=(
            Key("to", "text", NONE, f"The brokers and the topic: `{TOPIC_URL_FORM}`. Needed."),
            Key("topic", "text", NONE, "The topic, where `to` names none."),
        ),
    ),
    Part(
        "pipeline",
        "How `mew pipeline` runs Spark; a key that it does not know is refused.",
        (_all(PipelineSettings),),
        written={
            "driver_memory": ("amount, as in `512m` or `4g`", "half of the machine's, 512m to 8192m"),
            "worker_memory": ("amount, as in `512m` or `4g`", "1024m, or half of a smaller machine's"),
        },
    ),
)


def field_docs(struct: Struct) -> dict[str, str]:
    """What the docstring below each field of a struct says."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for node, below in zip(made.body, [*made.body[1:], None], strict=True):
        named = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[node.target.id] = str(below.value.value)  # type: ignore[attr-defined]
    return found


_WORDS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    Capability: "capability",
}


def type_words(kind: Any) -> str:
    """A field's type, for authors of a file."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_words(of[0])
    if origin is Literal:
        return ", ".join(map(code, of))
    if origin in (Union, types.UnionType):
        return type_words(next(each for each in of if each is not types.NoneType))
    if origin is tuple:
        inner = type_words(of[0])
        return f"list of {inner.removesuffix('y')}ies" if inner.endswith("y") else f"list of {inner}s"
    return "texts by name" if origin is dict and type_words(of[1]) == "text" else "section"


def default_words(found: msgspec.structs.FieldInfo) -> str:
    """A field's default as a file would have it; empty where there is none."""
    value = found.default
    if value is msgspec.NODEFAULT or value is None or isinstance(value, msgspec.Struct) or value in ((), "", {}):
        return NONE
    return code(str(value).lower() if isinstance(value, bool) else str(value))


INTRO: Final = """\
# Configuration

A space is a directory with a `space.yaml`, or a `.mew/space.yaml`. This page lists all of its keys. An unknown key
causes a warning with its line. A wrong type is an error with the key and the expected type. Paths are relative to the
space's directory. A key without a default is not set.

"""


def page() -> str:
    """The page."""
    parts = [f"## `{part.path}`\n\n{part.intro}\n\n{_keys(part)}" for part in PARTS]
    return MADE + INTRO + "\n".join(parts)


def _keys(part: Part) -> str:
    paths = {each.path for each in PARTS}
    rows = []
    for key in part.listed():
        below = f"{part.path}.{key.name}"
        kind = f"[section](#{_anchor(below)})" if below in paths else key.type
        rows.append((code(key.name), kind, key.default, sentence(key.meaning)))
    return table(("key", "type", "default", "meaning"), rows)


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter == "_")
