"""Ask a gateway whether it is alive: ends with 0 if `GET /health` is answered with 200, else with 1 and the reason.

For health checks of containers, which ask every few seconds: imports nothing of mew. `MEW_HEALTH` names another address
than this machine's port 8080. A certificate is not verified: the question is whether the process answers, and nothing
secret is sent.
"""

import os
import ssl
import sys
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from typing import Final

ADDRESS: Final = "http://127.0.0.1:8080/health"
SECONDS: Final = 4


def main() -> int:
    """Ask once; the exit code."""
    address = os.environ.get("MEW_HEALTH") or ADDRESS
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    # Through no proxy, whatever the environment says: it is this machine that is asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=anybody))
    try:
        with opener.open(address, timeout=SECONDS) as answer:
            if answer.status == HTTPStatus.OK:
                return 0
            problem: object = f"it answers with {answer.status}"
    except (OSError, ValueError, HTTPException) as raised:
        problem = raised
    print(f"{address}: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
