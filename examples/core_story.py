"""A character changes hands: the story of the stream-ownership proposal (s2w), told by the core alone.

Run it: `python examples/core_story.py`. No gateway, no network; everything happens in memory.
"""

from mew.testing import Client, Frame, MemorySpace

ANY_STREAM = [{"kind": "stream/*"}, {"kind": "chat"}]


def tell(client: Client) -> None:
    """Print what has newly reached a client."""
    for each in client.inbox():
        if isinstance(each, Frame):
            print(f"    {client.participant} ◂ frame on {each.stream_id}: {each.data.decode()}")
        else:
            payload = each["payload"]
            seen = ("error", "event", "owner", "previous_owner", "new_owner", "authorized_writers", "reason", "text")
            told = {name: payload[name] for name in seen if name in payload}
            print(f"    {client.participant} ◂ {each['kind']} {told}")


def main() -> None:
    """Play the story."""
    lab = MemorySpace(
        space_id="seacat",
        participants={"character-server": ANY_STREAM, "player1": None, "player2": None, "ai-agent": None},
    )
    server = lab.join("character-server")
    print("The character server opens a stream of positions.")
    server.send(kind="stream/request", payload={"description": "positions of the cat", "metadata": {"hz": 60}})
    stream_id = server.take("stream/open")["payload"]["stream_id"]
    tell(server)

    print("Player 1 joins late, sees the stream, and is given control.")
    player1 = lab.join("player1")
    server.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "player1"})
    player1.frame(stream_id, "x=1 y=2")
    tell(player1)

    print("Player 2 joins and tries to move a cat that is not its own.")
    player2 = lab.join("player2")
    writers = player2.take("system/welcome")["payload"]["active_streams"][0]["authorized_writers"]
    print(f"    player2 ◂ system/welcome says that {writers} may write")
    player2.frame(stream_id, "x=99 y=99")
    tell(player2)

    print("Player 1 drops; the server hands the stream to the AI agent.")
    player1.leave()
    agent = lab.join("ai-agent")
    server.send(kind="stream/transfer-ownership", payload={"stream_id": stream_id, "new_owner": "ai-agent"})
    agent.frame(stream_id, "x=2 y=2")
    tell(agent)
    print("The server is no longer a writer.")
    server.inbox()
    server.frame(stream_id, "x=0 y=0")
    tell(server)

    print(f"The journal has {len(lab.records)} records; folded, they give the state that lived:")
    for stream in lab.folded().streams.values():
        frames = lab.folded().frames[stream.stream_id]
        print(f"    {stream.namespace}: owner {stream.owner}, writers {list(stream.writers)}, {frames} frames")


if __name__ == "__main__":
    main()
