"""MCP servers that behave oddly, each named by its first argument. Only the standard library: they start quickly.

Every mode answers `initialize`, with its process as its version, and `tools/list` with the tool `odd`, unless that is
what makes the mode odd.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
MODERN = "2026-07-28"


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(request: dict[str, Any]) -> dict[str, Any]:
    if request["method"] == "initialize":
        version = "2099-01-01" if MODE == "future" else "2025-06-18"
        capabilities: dict[str, Any] = {} if MODE == "toolless" else {"tools": {"listChanged": True}}
        odd = {"name": "odd", "version": str(os.getpid())}
        about = {"serverInfo": odd, "instructions": "Ask me anything."}
        return {"protocolVersion": version, "capabilities": capabilities, **about}
    tool = {"name": "odd", "inputSchema": {"type": "object"}, "x-unknown": {"kept": None}}
    return {"tools": "many" if MODE == "nonsense" else [tool], "x-also": 1}


def modern(request: dict[str, Any]) -> None:
    """One that knows nothing from before 2026-07-28."""
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    if request["method"] == "initialize":
        data = {"supported": [MODERN], "requested": request["params"]["protocolVersion"]}
        say(id=request["id"], error={"code": -32022, "message": "too old", "data": data})
    elif request["method"] == "server/discover":
        discovered = {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}, **cached}
        say(id=request["id"], result=discovered)
    elif request["method"] == "subscriptions/listen":
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": request["id"]}}
        granted = {"notifications": {"toolsListChanged": True}, **meta}
        say(method="notifications/subscriptions/acknowledged", params=granted)
        say(method="notifications/tools/list_changed", params=meta)
    else:
        say(id=request["id"], result={**result(request), **cached})


def answer(request: dict[str, Any]) -> None:
    if MODE == "silent" or "id" not in request:
        return
    if MODE == "modern":
        modern(request)
    elif MODE in {"once", "mortal"} and request["method"] != "initialize":
        sys.exit(7)
    elif MODE == "deaf" and request["method"] != "initialize":
        os.close(0)
        signal.pause()
    else:
        if MODE == "changing" and request["method"] != "initialize":
            say(method="notifications/tools/list_changed")
        say(id=request["id"], result=result(request))


def main() -> None:
    if MODE == "mortal":
        Path(sys.argv[2]).touch(exist_ok=False)  # it lives once
    if MODE == "stillborn":
        print("I cannot continue", file=sys.stderr)
        sys.exit(5)
    if MODE in {"stubborn", "parent"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "parent":
        child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        print(f"child {child.pid}", file=sys.stderr, flush=True)
    if MODE == "talkative":
        print("Welcome to my server!", flush=True)
        sys.stderr.buffer.write(b"x" * 200_000 + b"\n\xff\xfe\x1b[31m red\n")
        sys.stderr.flush()
    print(f"process {os.getpid()}", file=sys.stderr, flush=True)
    for line in sys.stdin:
        answer(json.loads(line))
    while MODE in {"stubborn", "parent"}:
        signal.pause()


main()
