"""A file for one participant and nobody else, in pieces, with its size and checksum told beforehand.

    python examples/file_transfer.py sender picture.png    sends it to the receiver
    python examples/file_transfer.py receiver folder       keeps it there, if it is what was promised

The receiver acknowledges every eight pieces, and the sender waits for that: so nothing is dropped on the way, however
large the file and however slow the reader. `--corrupt` sends one wrong byte, to see what becomes of it.
"""

from argparse import Namespace
from hashlib import sha256
from pathlib import Path

import mew
from roles import Arguments

PIECE = 32 * 1024
WINDOW = 8
"""Pieces on their way; the gateway keeps many more for a reader."""


async def send(options: Namespace) -> None:
    """The sender: says what comes, then sends it, no faster than it is read."""
    data = options.path.read_bytes()
    async with mew.connect() as space:
        read = space.envelopes("chat/acknowledge", sender="receiver", to=space.participant_id)
        await space.wait_until(lambda view: "receiver" in view.participants)
        about = {"filename": options.path.name, "checksum_sha256": sha256(data).hexdigest()}
        stream = await space.open_stream(
            target=["receiver"], expected_size_bytes=len(data), metadata=about, on_owner_disconnect="close"
        )
        await anext(read)  # it is ready
        print(f"sending {options.path.name}: {len(data)} bytes, sha256 {about['checksum_sha256'][:16]}…")
        if options.corrupt:
            data = bytes(byte ^ 1 for byte in data[:1]) + data[1:]
        for number, begin in enumerate(range(0, len(data), PIECE), start=1):
            await stream.send(data[begin : begin + PIECE])
            if number % WINDOW == 0:
                await anext(read)
        await stream.complete()
        if not (await anext(read)).payload["kept"]:
            raise SystemExit("the receiver did not keep it: it is not what was promised")
        print("the receiver has it")


async def receive(options: Namespace) -> None:
    """The receiver: nothing gets the file's name that is not the file."""
    async with mew.connect() as space:
        opened = await space.wait_for(
            lambda each: each.kind == "stream/open" and space.participant_id in each.payload.get("target", ())
        )
        sender, about = opened.payload["owner"], opened.payload["metadata"]
        pieces, data, number = space.frames(opened.payload["stream_id"]), bytearray(), 0
        await space.send("chat/acknowledge", to=sender)
        async for piece in pieces:
            data += piece.data
            number += 1
            if number % WINDOW == 0:
                await space.send("chat/acknowledge", to=sender)
        promised = (opened.payload["expected_size_bytes"], about["checksum_sha256"])
        kept = (len(data), sha256(data).hexdigest()) == promised
        if kept:
            options.path.mkdir(parents=True, exist_ok=True)
            (options.path / Path(about["filename"]).name).write_bytes(data)  # its name, and no way out of the folder
        await space.send("chat/acknowledge", {"kept": kept}, to=sender)
        if not kept:
            raise SystemExit(f"{about['filename']} is not what {sender} promised: nothing is kept")
        print(f"{about['filename']} from {sender}: {len(data)} bytes in {number} pieces, the checksum is right")


ROLES = {"sender": ("sender", send), "receiver": ("receiver", receive)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("path", type=Path, help="the sender's file, or the receiver's folder")
    arguments.add_argument("--corrupt", action="store_true", help="the sender sends one wrong byte")
    arguments.play()
