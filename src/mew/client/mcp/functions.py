"""Functions as MCP resources, each under an address or a form of addresses; and functions as MCP prompts.

They answer; who asked and how the answer travels is not their affair.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from mew.client import mcp
from mew.client.errors import McpFailure
from mew.client.signatures import Signature

_VARIABLE: Final = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)(\*?)\}")
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"


class About(msgspec.Struct, frozen=True):
    """What is said of a resource or a prompt besides what the function says itself."""

    name: str | None = None
    description: str | None = None
    mime_type: str | None = None


class FunctionResource:
    """Resources that a function reads: one, or those whose address fits a template such as `note:///{name}`.

    A variable stands for one segment; `{+path}` and `{path*}` for several.
    """

    def __init__(self, function: Callable[..., Any], template: str, about: About) -> None:
        """The variables of the template are the function's parameters."""
        self._signature = Signature(function)
        self.template = template
        self.about = about
        self._pattern = _pattern(template)
        names = set(self._pattern.groupindex)
        wanted = {each.name for each in self._signature.parameters}
        if names != wanted:
            raise TypeError(f"{self._signature.name}: takes {sorted(wanted)}, {template!r} gives {sorted(names)}")

    @property
    def is_template(self) -> bool:
        """Whether it stands for many."""
        return bool(self._pattern.groupindex)

    def _said(self) -> dict[str, Any]:
        about = self.about
        return {
            "name": about.name or self._signature.name,
            "description": about.description or self._signature.description,
            "mime_type": about.mime_type,
        }

    @property
    def resource(self) -> mcp.Resource:
        """What a list says of one."""
        return mcp.Resource(uri=self.template, **self._said())

    @property
    def resource_template(self) -> mcp.ResourceTemplate:
        """What a list says of many."""
        return mcp.ResourceTemplate(uri_template=self.template, **self._said())

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables in this address; None where it is none of these."""
        found = self._pattern.fullmatch(uri)
        return None if found is None else {name: unquote(value) for name, value in found.groupdict().items()}

    async def read(self, uri: str, variables: dict[str, str]) -> mcp.ReadResult:
        """What is there. What cannot be found the function says by `LookupError` or `FileNotFoundError`."""
        given = self._signature.arguments(variables, strict=False)
        try:
            value = await self._signature.call(given)
        except (LookupError, FileNotFoundError):
            raise not_found(uri) from None
        return mcp.ReadResult(contents=[mcp.written(each) for each in _contents(value, uri, self.about.mime_type)])


def not_found(uri: str) -> McpFailure:
    """There is no such resource."""
    return McpFailure(mcp.RESOURCE_NOT_FOUND, f"there is no resource {uri!r}", {"uri": uri})


def _pattern(template: str) -> re.Pattern[str]:
    """Matches the addresses of a template; made of escaped text and two fixed expressions."""
    parts, end = [], 0
    for found in _VARIABLE.finditer(template):
        plus, name, star = found.groups()
        segment = ".+" if plus or star else "[^/]+"
        parts += [re.escape(template[end : found.start()]), f"(?P<{name}>{segment})"]
        end = found.end()
    rest = template[end:]
    if "{" in rest or "}" in rest or any("{" in each for each in parts[::2]):
        raise ValueError(f"{template!r}: a variable is written {{name}}, {{+name}} or {{name*}}")
    return re.compile("".join([*parts, re.escape(rest)]), re.DOTALL)


def _contents(value: Any, uri: str, mime_type: str | None) -> Iterable[mcp.ResourceContents]:
    if isinstance(value, mcp.TextResource | mcp.BlobResource):
        return [value]
    if (
        isinstance(value, list)
        and value
        and all(isinstance(each, mcp.TextResource | mcp.BlobResource) for each in value)
    ):
        return value
    if isinstance(value, str):
        return [mcp.TextResource(uri=uri, text=value, mime_type=mime_type or _TEXT)]
    if isinstance(value, bytes | bytearray):
        return [mcp.BlobResource.of(uri, bytes(value), mime_type)]
    return [mcp.TextResource(uri=uri, text=msgspec.json.encode(value).decode(), mime_type=mime_type or _JSON)]


class FunctionPrompt:
    """A prompt that a function writes: words, messages, or several of either."""

    def __init__(self, function: Callable[..., Any], about: About) -> None:
        """The function's parameters are the prompt's arguments, which come as text."""
        self._signature = Signature(function)
        properties = self._signature.schema().get("properties", {})
        self.name = about.name or self._signature.name
        self.prompt = mcp.Prompt(
            name=self.name,
            description=about.description or self._signature.description,
            arguments=[
                mcp.PromptArgument(
                    name=each.name,
                    description=properties.get(each.name, {}).get("description"),
                    required=each.default is each.empty,
                )
                for each in self._signature.parameters
            ],
        )

    async def get(self, arguments: dict[str, Any]) -> mcp.GetPromptResult:
        """Fill it in."""
        value = await self._signature.call(self._signature.arguments(arguments, strict=False))
        if isinstance(value, mcp.GetPromptResult):
            return value
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return mcp.GetPromptResult(description=self.prompt.description, messages=[_message(each) for each in several])


def _message(value: Any) -> mcp.PromptMessage:
    return value if isinstance(value, mcp.PromptMessage) else mcp.PromptMessage.of(str(value))
