"""What a template leaves open, filled in: from what was said, the environment, defaults, or by asking.

Pure, but for whoever is asked. A sensitive value is never part of what comes out: only where it will be found is.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from mew.cli.init_templates import Variable
from mew.protocol.names import is_space_id

NAME: Final = "SPACE_NAME"
SPACE_ID: Final = "SPACE_ID"
DESCRIPTION: Final = "SPACE_DESCRIPTION"
MODEL: Final = "AGENT_MODEL"
PORT: Final = "GATEWAY_PORT"
THEME: Final = "UI_THEME"
_ALWAYS: Final = {NAME: "${dirname}", DESCRIPTION: "", PORT: "8080", THEME: "default"}
"""Defined whether a template declares them or not."""
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_KNOWN: Final = re.compile(r"\$\{(dirname|username|date)\}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@+-]+")
_WHOLE_BEFORE: Final = re.compile(r"(?:^|.*[:\-]\s+)$")
_WHOLE_AFTER: Final = re.compile(r"\s*(?:#.*)?$")
_AS_JSON: Final = "_JSON"
_NAME_AS_ID: Final = re.compile(r"""\bid["']?:\s*["']?\{\{\s*SPACE_NAME(_JSON)?\s*\}\}""")
"""The name of a space in the place of its id."""

Ask = Callable[[Variable, str], str]
"""Asks somebody, who may leave it at what is suggested."""


class Values(msgspec.Struct, frozen=True):
    """What stands for each `{{NAME}}`."""

    texts: dict[str, str]
    secrets: dict[str, str]
    """Of each sensitive one, the variable of the environment that has it, or is to have it."""


def resolve(
    variables: tuple[Variable, ...],
    said: Mapping[str, str],
    environ: Mapping[str, str],
    known: Mapping[str, str],
    ask: Ask | None,
) -> Values:
    """Of every variable its value: as said, else as answered, else from the environment, else its default.

    `known` has `dirname`, `username` and `date`, which defaults may name as `${dirname}`.
    """
    texts: dict[str, str] = {}
    secrets: dict[str, str] = {}
    declared = {each.name for each in variables}
    usual = [Variable(name, default=default) for name, default in _ALWAYS.items() if name not in declared]
    for each in (*variables, *usual):
        source = next((name for name in each.env_sources if environ.get(name)), None)
        if each.sensitive:
            secrets[each.name] = source or next(iter(each.env_sources), each.name)
        elif each.name in said:
            texts[each.name] = said[each.name]
        else:
            suggested = environ[source] if source is not None else _default(each.default, known)
            texts[each.name] = ask(each, suggested) if ask is not None and each.prompt else suggested
    return Values({**said, **texts, SPACE_ID: space_id(texts[NAME])}, secrets)


def _default(value: Any, known: Mapping[str, str]) -> str:
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    return _KNOWN.sub(lambda found: known[found[1]], text)


def space_id(name: str) -> str:
    """A name as an id: what an id may not hold becomes a dash."""
    if is_space_id(name):
        return name
    made = re.sub(r"[^A-Za-z0-9._@-]+", "-", name).strip("-._@")[:128]
    return made if is_space_id(made) else "space"


def render(text: str, values: Values) -> tuple[str, tuple[str, ...]]:
    """A space.yaml with everything filled in, and the names of what stays open, since nobody defines it."""
    texts, unknown = dict(values.texts), []
    if _NAME_AS_ID.search(text):
        texts[NAME] = texts[SPACE_ID]  # such a template has the one for both, also where something refers to the id

    def fill(found: re.Match[str]) -> str:
        value = _value(found[1], texts, values.secrets)
        if value is None:
            unknown.append(found[1])
            return found[0]
        before = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        after = text[found.end() :].partition("\n")[0]
        return value if found[1].endswith(_AS_JSON) and found[1] not in texts else quoted(value, before, after)

    return _PLACEHOLDER.sub(fill, text), tuple(dict.fromkeys(unknown))


def _value(name: str, texts: Mapping[str, str], secrets: Mapping[str, str]) -> str | None:
    """What stands for a name: its text, for a secret the variable that has it; `X_JSON` is `X` as JSON."""
    if name in secrets:
        return f"${{{secrets[name]}}}"
    if name not in texts and name.endswith(_AS_JSON) and name.removesuffix(_AS_JSON) in texts:
        return msgspec.json.encode(texts[name.removesuffix(_AS_JSON)]).decode()
    return texts.get(name)


def quoted(value: str, before: str, after: str) -> str:
    """A value so that YAML reads it as it is, between what stands before and after it on its line."""
    quote = _open_quote(before)
    if quote == '"':
        escaped = re.sub(r'\\(?![nrt"\\])', r"\\\\", value)
        return re.sub(r'(?<!\\)"', r"\"", escaped).replace("\n", "\\n")
    if quote == "'":
        return value.replace("'", "''").replace("\n", " ")
    whole = _WHOLE_BEFORE.match(before) and _WHOLE_AFTER.match(after)
    return value if not whole or _PLAIN.fullmatch(value) else msgspec.json.encode(value).decode()


def _open_quote(before: str) -> str:
    """The quote that is open at the end of this text, if any."""
    quote = ""
    escaped = False
    for each in before:
        if escaped:
            escaped = False
        elif quote == '"' and each == "\\":
            escaped = True
        elif each == quote:
            quote = ""
        elif not quote and each in "\"'":
            quote = each
    return quote
