"""A space as users of the TypeScript mew have it, and sockets that send the same messages as its clients.

It does not use our own client: these tests check what other clients rely on.
"""

from pathlib import Path
from typing import Any, Final

import msgspec

from tests.gateway.raw import TEXT, Answer, Raw, Running, frame, upgrade

SPACE: Final = "old-space"
CONFIGURATION: Final = """
space:
  id: "old-space"
  name: "A space of the TypeScript mew"

participants:
  human:
    tokens: ["human-token", "human-second-token"]
    capabilities:
      - kind: "*"
  agent:
    type: local
    tokens: ["agent-token"]
    capabilities:
      - kind: "chat"
      - kind: "mcp/proposal"
      - kind: "capability/grant-ack"
      - kind: "participant/status"
  calculator:
    tokens: ["calculator-token"]
    capabilities:
      - kind: "chat"
      - kind: "stream/*"
  newcomer:
    capabilities:
      - kind: "chat"
  script:
    tokens: ["script-token"]
    capabilities:
      - kind: "chat"
      - kind: "mcp/request"
        payload:
          method: "tools/*"
      - kind: "stream/*"
      - kind: "system/*"
    output_log: "./logs/script.log"
    auto_connect: true
  lazy:
    tokens: ["lazy-token"]
    capabilities:
      - kind: "chat"
      - kind: "space/invite"
    output_log: "./logs/lazy.log"

defaults:
  capabilities:
    - kind: "chat"
"""


def write(directory: Path) -> Path:
    """Write the space.yaml where `mew init` of the TypeScript mew creates it."""
    file = directory / ".mew" / "space.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(CONFIGURATION)
    return file


def token(participant: str) -> str:
    """The token in the space.yaml."""
    return f"{participant}-token"


def join(participant: str) -> dict[str, Any]:
    """The first message of `MEWClient`."""
    return {
        "type": "join",
        "space": SPACE,
        "token": token(participant),
        "participantId": participant,
        "capabilities": [],
    }


class Old:
    """A gateway with that space, and its connected clients."""

    def __init__(self, gateway: Running, directory: Path) -> None:
        self.gateway = gateway
        self.directory = directory
        self._clients: list[Raw] = []

    def connect(self, path: str = "/", **headers: str | None) -> Raw:
        """A socket that has been upgraded and has sent nothing yet."""
        client = Raw(self.gateway.port)
        self._clients.append(client)
        client.send(upgrade(path, **headers))
        assert client.answer().status == 101
        return client

    def joining(self, message: dict[str, Any], path: str = "/", **headers: str | None) -> Raw:
        """A socket that has sent its first message."""
        client = self.connect(path, **headers)
        client.say(**message)
        return client

    def join(self, participant: str) -> Raw:
        """A client that has read its welcome and nothing after it."""
        client = self.joining(join(participant))
        client.envelope("system/welcome")
        return client

    def ask(self, method: str, path: str, holder: str | None = None, body: Any = None) -> Answer:
        """The answer to a request of a script with the token of this participant."""
        client = Raw(self.gateway.port)
        answer = client.ask(method, path, None if holder is None else token(holder), body)
        client.close()
        return answer

    def post(self, participant: str, **envelope: Any) -> Answer:
        """The answer to a post of a script with curl."""
        return self.ask("POST", f"/participants/{participant}/messages?space={SPACE}", participant, envelope)

    def output(self, participant: str) -> list[dict[str, Any]]:
        """The lines of an `output_log` so far."""
        return lines(self.directory / "logs" / f"{participant}.log")

    def close(self) -> None:
        """Disconnect all clients."""
        for client in self._clients:
            client.close()


def lines(file: Path) -> list[dict[str, Any]]:
    """A file of JSON lines."""
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]


def exchange(speaker: Raw, *listeners: Raw) -> list[list[dict[str, Any]]]:
    """All envelopes that speaker and listeners have received so far; a chat of the speaker marks the end."""
    speaker.say(kind="chat", payload={"text": "until now"})
    return [client.envelopes("until now") for client in (speaker, *listeners)]


def kinds(envelopes: list[dict[str, Any]]) -> list[str]:
    """The kinds of envelopes."""
    return [envelope["kind"] for envelope in envelopes]


def write_frame(client: Raw, stream_id: str, data: str) -> None:
    """Send a frame as `sendStreamData` does."""
    client.send(frame(TEXT, f"#{stream_id}#{data}".encode()))
