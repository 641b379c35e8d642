"""Input and output that commands share: values given as options, files or stdin, and progress bars."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from mew.errors import MewError

LARGEST: Final = 64 * 2**20
"""Bytes of a file or of standard input that are taken for one value."""
STDIN: Final = "-"


class BadValue(MewError):
    """Something given is not what it should be."""


def bytes_of(option: str, text: str) -> bytes:
    """What an option gives: its own text, `@file` for a file's, `-` for standard input's."""
    if text == STDIN:
        data = sys.stdin.buffer.read(LARGEST + 1)
    elif text.startswith("@"):
        try:
            with Path(text[1:]).open("rb") as file:
                data = file.read(LARGEST + 1)
        except OSError as error:
            raise BadValue(f"{option}: {text[1:]}: {error.strerror}") from None
    else:
        return text.encode(errors="surrogateescape")
    if len(data) > LARGEST:
        raise BadValue(f"{option}: more than {LARGEST} bytes")
    return data


def text_of(option: str, data: bytes) -> str:
    """The same as text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadValue(f"{option}: not UTF-8") from None


def object_of(option: str, text: str) -> msgspec.Raw:
    """A JSON object as it was written: what need not be read is not changed."""
    data = bytes_of(option, text)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(f'{option}: not JSON ({error}); give an object such as {{"text":"hello"}}, @file or -') from None
    if not isinstance(value, dict):
        raise BadValue(f'{option}: expected a JSON object, such as {{"text":"hello"}}')
    return msgspec.Raw(data)


def value_of(option: str, text: str) -> Any:
    """Any JSON value."""
    try:
        return msgspec.json.decode(bytes_of(option, text))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(f"{option}: not JSON: {error}") from None


def as_json(value: object) -> str:
    """One line of JSON."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def in_colours() -> bool:
    """Whether standard output shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def require_reader() -> None:
    """`BrokenPipeError` where nobody reads standard output any more: noticed even while there is nothing to write."""
    if sys.stdout.isatty():
        return
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError


Progress: TypeAlias = Callable[[int, int], None]
"""Is told how much is done, and how much there is."""


@contextmanager
def bar(what: str) -> Iterator[Progress]:
    """A bar to tell; without a terminal it shows nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
