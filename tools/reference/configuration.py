"""docs/reference/configuration.md: every key of space.yaml, generated from the structs of its values.

The type, default and meaning of a key are those of a field and its docstring. This module contains only what differs
between the file and the structs.
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
from mew.journal import JournalSettings
from mew.journal.kafka import TOPIC_URL_FORM
from mew.pipeline.settings import PipelineSettings
from mew.protocol.capabilities import Capability
from mew.protocol.settings import ApprovalRule, Limits, SpaceSettings, StreamSettings
from tools.reference.writing import MADE, code, sentence, table

Struct = type[msgspec.Struct]
NONE: Final = ""


@dataclass(frozen=True)
class Key:
    """One key of a section."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Part:
    """One section of the file: the fields that it sets."""

    path: str
    intro: str
    fields: tuple[tuple[Struct, tuple[str, ...]], ...] = ()
    written: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Types and defaults of keys that have another form in the file than in the field."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Keys of fields that have another name."""
    added: tuple[Key, ...] = ()
    """Keys without a field."""

    def listed(self) -> Iterator[Key]:
        """Yield its keys in the order of the fields."""
        for struct, names in self.fields:
            meanings = field_docs(struct)
            values = {value.name: value for value in msgspec.structs.fields(struct)}
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
        "The id and the name of the space. Only `id` is required.",
        ((SpaceSettings, ("space_id",)), (SpaceConfig, ("name", "description", "default_participant"))),
        renamed={"space_id": "id"},
    ),
    Part(
        "participants.ID",
        "The participants of the space, by id. `bob: {}` is sufficient: bob gets a token and the default capabilities.",
        (_all(ParticipantConfig),),
        written={"type": ("`local`, `mcp-bridge`", "`local`")},
    ),
    Part("participants.ID.mcp_server", "The server of an `mcp-bridge`.", (_all(McpServerConfig),)),
    Part("participants.ID.bridge_config", "How the bridge starts and restarts its server.", (_all(BridgeConfig),)),
    Part(
        "defaults",
        "Defaults for participants.",
        ((SpaceSettings, ("defaults",)),),
        renamed={"defaults": "capabilities"},
        written={"capabilities": ("list of capabilities", "`[{kind: chat}]`")},
    ),
    Part(
        "approvals",
        "A list of rules, empty by default. A rule applies to every `mcp/request` that it matches, with or without a "
        "proposal; [security.md](../security.md) has an example. An unknown key is an error.",
        (_all(ApprovalRule),),
        written={"match": ("mapping of `payload` and `to`, as in a capability", NONE)},
    ),
    Part(
        "gateway",
        "Where the gateway listens and what it allows. If the gateway serves several files, these settings come from "
        "the first one, except `allow_anonymous`, `strict_from` and the `limits` of a space.",
        (
            (GatewayConfig, ("host", "port", "tls", "allowed_origins", "allowed_hosts", "trusted_proxies", "timeouts")),
            (SpaceSettings, ("allow_anonymous", "strict_from", "limits")),
        ),
    ),
    Part("gateway.tls", "Paths, relative to the directory of the space.", (_all(TLS),)),
    Part("gateway.timeouts", "How long the gateway waits for a peer, in seconds.", (_all(Timeouts),)),
    Part(
        "gateway.limits",
        "A sender that exceeds a limit receives an error with its code. Other participants are not affected.",
        (_all(Limits), _all(Queues), _all(UnadmittedLimits)),
    ),
    Part(
        "gateway_logging",
        "Which readable logs are written. The environment (`GATEWAY_LOGGING`, `ENVELOPE_HISTORY`, "
        "`CAPABILITY_DECISIONS`) overrides the file.",
        (_all(LoggingConfig),),
        written={
            "envelope_history": ("`{enabled: true}`, `{enabled: false}`", "`{enabled: true}`"),
            "capability_decisions": ("`{enabled: true}`, `{enabled: false}`", "`{enabled: true}`"),
        },
        added=(Key("enabled", "true or false", "`true`", "Whether any of the logs is written."),),
    ),
    Part("streams", "Defaults for streams.", (_all(StreamSettings),)),
    Part(
        "journal",
        "How the events of the space are recorded; [journal.md](../journal.md) describes the journal.",
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
        "[Shipping](../journal.md#shipping-to-kafka), by a process that the gateway starts, restarts and stops.",
        added=(
            Key("to", "text", NONE, f"The brokers and the topic: `{TOPIC_URL_FORM}`. Required."),
            Key("topic", "text", NONE, "The topic, if `to` does not contain one."),
        ),
    ),
    Part(
        "pipeline",
        "How `mew pipeline` runs Spark. An unknown key is an error.",
        (_all(PipelineSettings),),
        written={
            "driver_memory": ("amount, as in `512m` or `4g`", "half of the machine's, 512m to 8192m"),
            "worker_memory": ("amount, as in `512m` or `4g`", "1024m, or half of a smaller machine's"),
        },
    ),
)


def field_docs(struct: Struct) -> dict[str, str]:
    """Return the docstring below each field of a struct."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for node, below in zip(definition.body, [*definition.body[1:], None], strict=True):
        is_field = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if is_field and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docs[node.target.id] = str(below.value.value)  # type: ignore[attr-defined]
    return docs


_WORDS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    Capability: "capability",
}


def type_words(kind: Any) -> str:
    """Return the type of a field as a reader of the file would call it."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_words(of[0])
    if origin is Literal:
        return ", ".join(map(code, of))
    if origin in (Union, types.UnionType):
        return type_words(next(member for member in of if member is not types.NoneType))
    if origin is tuple:
        inner = type_words(of[0])
        return f"list of {inner.removesuffix('y')}ies" if inner.endswith("y") else f"list of {inner}s"
    return "texts by name" if origin is dict and type_words(of[1]) == "text" else "section"


def default_words(info: msgspec.structs.FieldInfo) -> str:
    """Return the default of a field as in a file; empty if it has none."""
    value = info.default
    if value is msgspec.NODEFAULT or value is None or isinstance(value, msgspec.Struct) or value in ((), "", {}):
        return NONE
    return code(str(value).lower() if isinstance(value, bool) else str(value))


INTRO: Final = """\
# Configuration

A space is a directory with a `space.yaml`, or a `.mew/space.yaml`. This page lists every key of the file. An unknown
key gives a warning with its line. A wrong type is an error with line, key and the expected type. Paths are relative to
the directory of the space. A key without a default here is not set by default.

"""


def page() -> str:
    """Return the page."""
    parts = [f"## `{part.path}`\n\n{part.intro}\n\n{_keys(part)}" for part in PARTS]
    return MADE + INTRO + "\n".join(parts)


def _keys(part: Part) -> str:
    paths = {part.path for part in PARTS}
    rows = []
    for key in part.listed():
        below = f"{part.path}.{key.name}"
        kind = f"[section](#{_anchor(below)})" if below in paths else key.type
        rows.append((code(key.name), kind, key.default, sentence(key.meaning)))
    return table(("key", "type", "default", "meaning"), rows)


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter == "_")
