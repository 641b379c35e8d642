"""Input and output that commands share: values given as options, files or stdin, and progress bars."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from mew.cli.common.errors import UsageError

MAX_VALUE_BYTES: Final = 64 * 2**20
"""Maximum bytes that are read from a file or standard input for one value."""
_STDIN: Final = "-"


def read_bytes(option: str, text: str) -> bytes:
    """Return the bytes of an option: its own text, the contents of a file for `@file`, standard input for `-`."""
    if text == _STDIN:
        data = sys.stdin.buffer.read(MAX_VALUE_BYTES + 1)
    elif text.startswith("@"):
        try:
            with Path(text[1:]).open("rb") as file:
                data = file.read(MAX_VALUE_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{option}: {text[1:]}: {error.strerror}") from None
    else:
        return text.encode(errors="surrogateescape")
    if len(data) > MAX_VALUE_BYTES:
        raise UsageError(f"{option}: the value is longer than {MAX_VALUE_BYTES} bytes")
    return data


def decode_text(option: str, data: bytes) -> str:
    """Decode the bytes of an option as UTF-8. Raises `UsageError`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{option}: the value is not UTF-8") from None


def json_object(option: str, text: str) -> msgspec.Raw:
    """Return a JSON object verbatim, after checking that it is valid."""
    data = read_bytes(option, text)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f'{option}: not JSON ({error}); give an object like {{"text":"hello"}}, @file or -') from None
    if not isinstance(value, dict):
        raise UsageError(f'{option}: expected a JSON object, such as {{"text":"hello"}}')
    return msgspec.Raw(data)


def json_value(option: str, text: str) -> Any:
    """Return any JSON value. Raises `UsageError` for invalid JSON."""
    try:
        return msgspec.json.decode(read_bytes(option, text))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{option}: not JSON: {error}") from None


def as_json(value: object) -> str:
    """Return one line of JSON."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def use_color() -> bool:
    """Return whether standard output shows colors."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def require_reader() -> None:
    """Raise `BrokenPipeError` if standard output has no reader any more, even if there is nothing to write."""
    if sys.stdout.isatty():
        return
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError


Progress: TypeAlias = Callable[[int, int], None]
"""Called with the amount done and the total amount."""


@contextmanager
def bar(what: str) -> Iterator[Progress]:
    """Show a progress bar and yield the function that updates it. Without a terminal it shows nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
