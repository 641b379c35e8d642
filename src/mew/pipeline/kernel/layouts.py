"""Binary layouts: frames that are numbers of a known width, one vector behind the other, and how a format says so.

A small family. A layout is named `vector2`, `vector3`, `vector4` or `quaternion`, of `f32` (which need not be said) or
`f64`, little-endian always. A format says it by any of these, the first that is there:

- its schema's keyword `x-mew-layout`: `"vector3"`, `"vector3/f64"`
- its MIME type: `application/vnd.mew.vector3`, with `; element=f64` for the wider numbers
- its id, as v0.4 streams do in `format`: `binary-vector3`, `binary-vector3-f64`
"""

import re
from typing import Any, Final

import msgspec

KEYWORD: Final = "x-mew-layout"
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "vector2": ("x", "y"),
    "vector3": ("x", "y", "z"),
    "vector4": ("x", "y", "z", "w"),
    "quaternion": ("x", "y", "z", "w"),
}
_SHAPE: Final = "|".join(_NAMES)
_ID: Final = re.compile(rf"binary-({_SHAPE})(?:-(f32|f64))?")
_SAID: Final = re.compile(rf"({_SHAPE})(?:/(f32|f64))?")
_MIME: Final = re.compile(rf"application/vnd\.mew\.({_SHAPE})(?:\s*;\s*element=(f32|f64))?", re.IGNORECASE)


class Layout(msgspec.Struct, frozen=True):
    """What stands in a frame: vectors of so many numbers of one width."""

    shape: str
    element: str = "f32"

    @property
    def parts(self) -> tuple[str, ...]:
        """What the numbers of one vector are called, in order."""
        return _NAMES[self.shape]

    @property
    def width(self) -> int:
        """Bytes of one vector."""
        return len(self.parts) * self.number_bytes

    @property
    def number_bytes(self) -> int:
        """Bytes of one number."""
        return 4 if self.element == "f32" else 8

    @property
    def name(self) -> str:
        """In one word."""
        return f"{self.shape}/{self.element}"


def layout_of(format_id: str | None, mime_type: str | None, schema: Any) -> Layout | None:
    """The layout that a format says its frames have, None where it says none that is known."""
    said = schema.get(KEYWORD) if isinstance(schema, dict) else None
    for pattern, text in ((_SAID, said), (_MIME, mime_type), (_ID, format_id)):
        found = pattern.fullmatch(text) if isinstance(text, str) else None
        if found is not None:
            return Layout(found[1].lower(), (found[2] or "f32").lower())
    return None
