"""Serves the built inspector, with exact paths, cache headers and a content security policy.

All files are read at startup. A path from a request never reaches the file system.
"""

import gzip
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

STATIC: Final = "static"
INDEX: Final = "index.html"
FOREVER: Final = "public, max-age=31536000, immutable"
"""For files whose names change with their contents."""
ASK_FIRST: Final = "no-cache"
_CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Forbids external resources, inline code, HTML created from text, and framing."""
PAGE_HEADERS: Final = {
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "md": "text/plain; charset=utf-8",
    "svg": "image/svg+xml",
}
_ALLOWED: Final = ("GET", "HEAD")


class StaticFile(msgspec.Struct, frozen=True):
    """One file, ready to be sent."""

    content: bytes
    packed: bytes
    """The same content, compressed with gzip."""
    tag: str
    media_type: str
    caching: str

    @classmethod
    def of(cls, content: bytes, path: str) -> "StaticFile":
        """Create a file from its content and its path in the page."""
        tag = f'"{sha256(content).hexdigest()[:32]}"'
        media_type = _TYPES[path.rpartition(".")[2]]
        caching = FOREVER if path.startswith("assets/") else ASK_FIRST
        # No time stamp: the same file must be the same bytes at every gateway.
        return cls(content, gzip.compress(content, mtime=0), tag, media_type, caching)


def page_files() -> dict[str, StaticFile]:
    """Return every file of the page by its request path."""
    folder = files("mew.inspector") / STATIC
    by_path = {f"/{path}": StaticFile.of(content, path) for path, content in _read(folder, "")}
    by_path["/"] = by_path.pop(f"/{INDEX}")
    return by_path


def _read(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    contents: list[tuple[str, bytes]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f"{path}{entry.name}"
        contents += _read(entry, f"{name}/") if entry.is_dir() else [(name, entry.read_bytes())]
    return contents


class InspectorPage(BaseRoute):
    """A route that serves only the files of the page."""

    def __init__(self) -> None:
        """Read all files of the page."""
        self.files = page_files()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for a file of the page, by its exact path."""
        mine = scope["type"] == "http" and scope["path"] in self.files
        return (Match.FULL if mine else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or 304 if the client has it already. Raises `HTTPException` 405 for an unsupported method."""
        if scope["method"] not in _ALLOWED:
            raise HTTPException(405, headers={"Allow": ", ".join(_ALLOWED)})
        answer = answered(self.files[scope["path"]], Request(scope))
        await answer(scope, receive, send)


def answered(file: StaticFile, request: Request) -> Response:
    """Return the response to a request for a file."""
    headers = {**PAGE_HEADERS, "cache-control": file.caching, "etag": file.tag, "vary": "Accept-Encoding"}
    if _has(request.headers.get("if-none-match", ""), file.tag):
        return Response(status_code=304, headers=headers)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    if packed:
        headers["content-encoding"] = "gzip"
    content = file.packed if packed else file.content
    headers["content-length"] = str(len(content))
    body = b"" if request.method == "HEAD" else content
    return Response(body, headers=headers, media_type=file.media_type)


def _has(header: str, tag: str) -> bool:
    """Return whether a header contains this tag. The weak form counts too: a proxy may have converted it."""
    return any(value.strip().removeprefix("W/") in {tag, "*"} for value in header.split(","))


__all__ = ["InspectorPage"]
