"""A character changes hands, over a real gateway: the story of the stream-ownership proposal (s2w).

Run it: `python examples/gateway_story.py`. It starts `mew gateway start` on a free port in a folder of its own, lets
clients join over WebSocket and over HTTP, and stops it again.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

SPACE = """
space: {id: seacat, name: Seacat}
participants:
  character-server: {capabilities: [{kind: "stream/*"}, {kind: chat}]}
  player1: {}
  player2: {}
  ai-agent: {}
"""
SHOWN = ("error", "event", "owner", "previous_owner", "new_owner", "authorized_writers", "reason", "text")


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """A gateway in a folder; gives its address."""
    (folder / "space.yaml").write_text(SPACE)
    command = [str(Path(sys.executable).with_name("mew")), "gateway", "start", "--port", "0", "--log-level", "error"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[2].replace("ws://", "")
        finally:
            process.terminate()


class Client(WSListener):
    """One participant's socket."""

    def __init__(self, name: str) -> None:
        """Not connected yet."""
        self.name = name
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Connected."""
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Something was said."""
        if frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY):
            self.messages.put_nowait(frame.get_payload_as_bytes().decode())

    def send(self, kind: str, **payload: Any) -> None:
        """Send an envelope; the gateway adds what is missing."""
        self.transport.send(WSMsgType.TEXT, json.dumps({"kind": kind, "payload": payload}).encode())

    def frame(self, stream_id: str, data: str) -> None:
        """Send a frame, which is no JSON at all."""
        self.transport.send(WSMsgType.TEXT, f"#{stream_id}#{data}".encode())

    async def hear(self, kind: str) -> dict[str, Any]:
        """Print what is said until an envelope of this kind, or a frame, comes; give its payload."""
        while True:
            message = await asyncio.wait_for(self.messages.get(), 10)
            if message.startswith("#"):
                print(f"    {self.name} ◂ {message}")
                if kind == "frame":
                    return {}
                continue
            envelope = json.loads(message)
            payload: dict[str, Any] = envelope["payload"]
            told = {name: payload[name] for name in SHOWN if name in payload}
            print(f"    {self.name} ◂ {envelope['kind']} {told}")
            if envelope["kind"] == kind:
                return payload


async def join(address: str, folder: Path, name: str) -> Client:
    """Connect with the token that the gateway made for this participant."""
    token = (folder / ".mew" / "tokens" / f"{name}.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    _, client = await ws_connect(lambda: Client(name), f"ws://{address}/ws?space=seacat", extra_headers=headers)
    assert isinstance(client, Client)
    return client


def post(address: str, folder: Path, name: str, envelope: dict[str, Any]) -> dict[str, Any]:
    """Send an envelope over HTTP; the same rules, and an answer."""
    token = (folder / ".mew" / "tokens" / f"{name}.token").read_text().strip()
    request = urllib.request.Request(
        f"http://{address}/participants/{name}/messages",
        json.dumps(envelope).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


async def story(address: str, folder: Path) -> None:
    """Play it."""
    print("The character server opens a stream of positions.")
    server = await join(address, folder, "character-server")
    server.send("stream/request", description="positions of the cat", metadata={"hz": 60})
    stream_id = (await server.hear("stream/open"))["stream_id"]
    print("Player 1 joins late, sees the stream, and is given control.")
    player1 = await join(address, folder, "player1")
    await player1.hear("system/welcome")
    server.send("stream/grant-write", stream_id=stream_id, participant_id="player1")
    await player1.hear("stream/write-granted")
    player1.frame(stream_id, "x=1 y=2")
    await player1.hear("frame")
    print("Player 2 joins and tries to move a cat that is not its own.")
    player2 = await join(address, folder, "player2")
    await player2.hear("system/welcome")
    player2.frame(stream_id, "x=99 y=99")
    await player2.hear("system/error")
    print("Player 1 drops; over HTTP the server hands the stream to the AI agent.")
    player1.transport.disconnect()
    agent = await join(address, folder, "ai-agent")
    handed = {"kind": "stream/transfer-ownership", "payload": {"stream_id": stream_id, "new_owner": "ai-agent"}}
    answer = await asyncio.to_thread(post, address, folder, "character-server", handed)
    await agent.hear("stream/ownership-transferred")
    agent.frame(stream_id, "x=2 y=2")
    await agent.hear("frame")
    for client in (server, player2, agent):
        client.transport.disconnect()
    print(f"{stream_id}: {answer['status']} from {answer['previous_owner']} to {answer['new_owner']}")


def main() -> None:
    """Start a gateway, play the story, stop the gateway."""
    with tempfile.TemporaryDirectory() as made, gateway(Path(made)) as address:
        print(f"A gateway listens on ws://{address}.")
        asyncio.run(story(address, Path(made)))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
