"""The certificates that Python trusts on this machine, as a file that a Java reads.

A Java brings its own list, and does not know of a company's authority that the machine was given. This adds nothing to
what Python, and so pip, already trusts.
"""

import hashlib
import ssl
import struct
from pathlib import Path
from typing import Final

_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED: Final = 2
PASSWORD: Final = "changeit"
"""A usual default password: it protects no secret, only the integrity of the file."""


def write_trust_store(path: Path) -> Path | None:
    """A key store of Java's own plain kind; nothing where Python lists no authorities."""
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not authorities:
        return None
    store = struct.pack(">III", _MAGIC, _VERSION, len(authorities))
    store += b"".join(_entry(number, authority) for number, authority in enumerate(authorities))
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store, usedforsecurity=False)
    path.write_bytes(store + digest.digest())
    return path


def _entry(number: int, authority: bytes) -> bytes:
    made_at = struct.pack(">Q", 0)
    name = _text(f"authority-{number}")
    return struct.pack(">I", _TRUSTED) + name + made_at + _text("X.509") + struct.pack(">I", len(authority)) + authority


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
