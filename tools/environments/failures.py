"""Why a step failed, in a sentence for a person.

Must not run anything: it reads what the step printed.
"""

import re
from collections.abc import Sequence
from typing import Final

HASH: Final = re.compile(r"DO NOT MATCH THE HASHES|Hash mismatch for")
LOGIN: Final = re.compile(
    r"\b(?P<code>401|403) (?:Client Error|Error|Unauthorized|Forbidden)|HTTP error (?P<number>401|403)\b"
)
UNREACHABLE: Final = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|connection broken by"
    r"|connection error:|dns error|error sending request|Request failed after|Network is unreachable"
    r"|Connection refused"
)
NOT_FOUND: Final = re.compile(r"Could not find a version that satisfies the requirement (\S+) \(from versions: none\)")
NO_ENSUREPIP: Final = re.compile(r"ensurepip\s+is\s+not\s+available")


class SetupError(Exception):
    """A step failed. The message says which, why, and where the log is."""


def unexplained(printed: Sequence[str]) -> str:
    """The requirement that pip found no file of, if it did not say whether the index answered; else an empty text."""
    if any(UNREACHABLE.search(line) for line in printed):
        return ""
    return next((match[1] for line in printed if (match := NOT_FOUND.search(line))), "")


def explain(what: str, printed: Sequence[str], log: str) -> str:
    """Why a step failed that printed these lines."""
    lines = [line.rstrip() for line in printed if line.strip()]
    if any(HASH.search(line) for line in lines):
        first = next(number for number, line in enumerate(lines) if HASH.search(line))
        sentence = "a file does not have the hash of its pin. docs/supply-chain.md says what to do."
        return "\n".join([f"{what} failed: {sentence}", *(f"  {line}" for line in lines[first:]), log])
    if login := next((match for line in lines if (match := LOGIN.search(line))), None):
        return (
            f"{what} failed: the package index or repository wants a login, or does not accept yours "
            f"(HTTP {login['code'] or login['number']}). Name it in the address of the index, in ~/.netrc or in a "
            f"keyring, then run the same command again. {log}"
        )
    # A warning tells of one attempt: what counts is how the last one ended.
    final = [line for line in lines if not line.lstrip().startswith("WARNING")]
    not_found = next((match[1] for line in final if (match := NOT_FOUND.search(line))), "")
    if any(UNREACHABLE.search(line) for line in (lines if not_found else final)):
        return (
            f"{what} failed: the package index or repository cannot be reached. Check the network, the proxy and "
            f"your pip settings, then run the same command again. {log}"
        )
    if not_found:
        return (
            f"{what} failed: neither the package index nor your find-links have a file of {not_found} that fits this "
            f"Python and platform. {log}"
        )
    errors = [line.strip() for line in lines if re.match(r"\s*(ERROR|error)\b", line)]
    reasons = errors or [line.strip() for line in lines[-3:]]
    if NO_ENSUREPIP.search("\n".join(lines)):
        reasons = [line.strip() for line in lines]
    return "\n".join([f"{what} failed:", *(f"  {reason}" for reason in reasons), log])
