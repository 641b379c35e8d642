"""Why a step failed, in a sentence for a person."""

import re
from collections.abc import Sequence
from typing import Final

UNREACHABLE: Final = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|connection broken by"
    r"|\(from versions: none\)|dns error|error sending request|Request failed after|Network is unreachable"
    r"|Connection refused"
)


class SetupError(Exception):
    """A step failed. The message says which, why, and where the log is."""


def explain(what: str, printed: Sequence[str], log: str) -> str:
    """Why a step failed that printed these lines."""
    if any(UNREACHABLE.search(line) for line in printed):
        return (
            f"{what} failed: the package index or repository cannot be reached. Check the network, the proxy and "
            f"your pip settings, then run the same command again. {log}"
        )
    errors = [line.strip() for line in printed if re.match(r"\s*(ERROR|error)\b", line)]
    reasons = errors or [line.strip() for line in printed if line.strip()][-3:]
    return "\n".join([f"{what} failed:", *(f"  {reason}" for reason in reasons), log])
