"""A file for one participant only, in pieces; its size and checksum are announced before.

    python examples/file_transfer.py sender picture.png    sends the file to the receiver
    python examples/file_transfer.py receiver folder       stores it there, if size and checksum are correct

The receiver acknowledges every eight pieces, and the sender waits for it. So no piece is dropped, even if the file is
large and the reader slow. `--corrupt` sends one wrong byte, to show that the receiver notices it.
"""

from argparse import Namespace
from hashlib import sha256
from pathlib import Path

import mew
from roles import Arguments

PIECE = 32 * 1024
WINDOW = 8
"""Number of pieces in flight; the gateway queues many more for a reader."""


async def send(options: Namespace) -> None:
    """The sender announces the file, then sends it no faster than the receiver reads."""
    data = options.path.read_bytes()
    async with mew.connect() as space:
        acknowledgements = space.envelopes("chat/acknowledge", sender="receiver", to=space.participant_id)
        await space.wait_until(lambda view: "receiver" in view.participants)
        metadata = {"filename": options.path.name, "checksum_sha256": sha256(data).hexdigest()}
        stream = await space.open_stream(
            target=["receiver"], expected_size_bytes=len(data), metadata=metadata, on_owner_disconnect="close"
        )
        await anext(acknowledgements)  # the receiver is ready
        print(f"sending {options.path.name}: {len(data)} bytes, sha256 {metadata['checksum_sha256'][:16]}…")
        if options.corrupt:
            data = bytes(byte ^ 1 for byte in data[:1]) + data[1:]
        for number, begin in enumerate(range(0, len(data), PIECE), start=1):
            await stream.send(data[begin : begin + PIECE])
            if number % WINDOW == 0:
                await anext(acknowledgements)
        await stream.complete()
        if not (await anext(acknowledgements)).payload["stored"]:
            raise SystemExit("the receiver rejected the file: its size or checksum is wrong")
        print("the receiver stored the file")


async def receive(options: Namespace) -> None:
    """The receiver stores the file only if it is complete and correct."""
    async with mew.connect() as space:
        opened = await space.wait_for(
            lambda envelope: (
                envelope.kind == "stream/open" and space.participant_id in envelope.payload.get("target", ())
            )
        )
        sender, metadata = opened.payload["owner"], opened.payload["metadata"]
        pieces, data, number = space.frames(opened.payload["stream_id"]), bytearray(), 0
        await space.send("chat/acknowledge", to=sender)
        async for piece in pieces:
            data += piece.data
            number += 1
            if number % WINDOW == 0:
                await space.send("chat/acknowledge", to=sender)
        announced = (opened.payload["expected_size_bytes"], metadata["checksum_sha256"])
        is_correct = (len(data), sha256(data).hexdigest()) == announced
        if is_correct:
            options.path.mkdir(parents=True, exist_ok=True)
            (options.path / Path(metadata["filename"]).name).write_bytes(data)  # `name` has no path to another folder
        await space.send("chat/acknowledge", {"stored": is_correct}, to=sender)
        if not is_correct:
            raise SystemExit(f"{metadata['filename']} of {sender} has another size or checksum than announced")
        print(f"{metadata['filename']} from {sender}: {len(data)} bytes in {number} pieces, the checksum is correct")


ROLES = {"sender": ("sender", send), "receiver": ("receiver", receive)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("path", type=Path, help="the sender's file, or the receiver's folder")
    arguments.add_argument("--corrupt", action="store_true", help="the sender sends one wrong byte")
    arguments.play()
