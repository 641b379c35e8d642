"""Steps that many tests share. They check nothing: the test looks at the result."""

from typing import Any

TEXT = [{"id": "text"}]


def hello(client: Any, text: str = "hello") -> None:
    client.send(kind="chat", payload={"text": text})


def texts(client: Any) -> list[str]:
    """The texts of the chats that a client has not read yet."""
    return [message["payload"]["text"] for message in client.inbox() if message["kind"] == "chat"]


def open_stream(client: Any, **payload: Any) -> str:
    """Open a stream with `stream/request` and return its id."""
    client.inbox()
    client.send(kind="stream/request", payload=payload)
    return str(client.take("stream/open")["payload"]["stream_id"])


def announce(client: Any, **fields: Any) -> str:
    """Announce a stream with `stream/announce` and return its id."""
    client.inbox()
    client.send(kind="stream/announce", payload={"formats": TEXT, **fields})
    return str(client.take("stream/ready")["payload"]["stream"]["stream_id"])


def start(client: Any, stream_id: str) -> None:
    client.send(kind="stream/start", payload={"stream": {"stream_id": stream_id}})


def grant_write(owner: Any, stream_id: str, participant: str) -> None:
    owner.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": participant})


def transfer_ownership(owner: Any, stream_id: str, new_owner: str) -> None:
    owner.send(kind="stream/transfer-ownership", payload={"stream_id": stream_id, "new_owner": new_owner})


def forget_inboxes(*clients: Any) -> None:
    for client in clients:
        client.inbox()
