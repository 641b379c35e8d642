"""A file for one: `MEW_GATEWAY=… MEW_TOKEN=… python examples/file_transfer.py <folder>`, or `… <file> <to>`."""

import asyncio
import sys
from hashlib import sha256
from pathlib import Path

from mew.client import Space, connect
from mew.protocol import GATEWAY


async def send(space: Space, file: Path, to: str) -> None:
    data, reads = file.read_bytes(), space.envelopes("chat/acknowledge", sender=to, to=space.me)
    about = {"filename": file.name, "checksum_sha256": sha256(data).hexdigest()}
    stream = await space.open_stream(target=[to], expected_size_bytes=len(data), metadata=about)
    await anext(reads)  # from the first piece on
    for begin in range(0, len(data), 65_536):
        await stream.send(data[begin : begin + 65_536])
    await stream.complete()


async def receive(space: Space, folder: Path) -> None:
    told = await space.wait_for(lambda each: each.sender == GATEWAY and space.me in each.payload.get("target", ()))
    entry, about, pieces = told.payload, told.payload["metadata"], space.frames(told.payload["stream_id"])
    await space.send("chat/acknowledge", to=entry["owner"])
    data = b"".join([piece.data async for piece in pieces])
    if (len(data), sha256(data).hexdigest()) != (entry["expected_size_bytes"], about["checksum_sha256"]):
        raise SystemExit(f"{about['filename']} is not what was sent; {pieces.missed} pieces are missing")
    (folder / Path(about["filename"]).name).write_bytes(data)
    print(f"{about['filename']}: {len(data)} bytes from {entry['owner']}")


async def main(path: str, to: str | None = None) -> None:
    async with connect() as space:
        await (send(space, Path(path), to) if to else receive(space, Path(path)))


asyncio.run(main(*sys.argv[1:]))
