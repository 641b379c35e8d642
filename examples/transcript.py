"""A call as text, word by word; the reader knows the format of the stream before the first word.

python examples/transcript.py speaker    announces the call, waits for a reader, and speaks
python examples/transcript.py reader     finds the call, and prints it line by line
"""

import asyncio
from argparse import Namespace

import mew
from mew.view import SpaceView, StreamView
from roles import Arguments

LINES = {"id": "utf8-newline-delimited", "mime_type": "text/plain", "description": "words; each line is a sentence"}
SPOKEN = (
    "Can you hear me?\nThe gate to the garden is open.\n"
    "I think the cat went out, and the dog went after it.\nI am going in.\n"
)


async def speak(options: Namespace) -> None:
    """The speaker announces the stream. It is not live yet, so a reader can subscribe before the first word."""
    async with mew.connect() as space:
        listeners = space.envelopes("chat/acknowledge", to=space.participant_id)
        metadata = {"speaker": space.participant_id, "language": "en-US"}
        call = await space.announce_stream([LINES], desired_id="call", metadata=metadata, on_owner_disconnect="close")
        print(f"{call.stream_id} is announced; waiting for a reader")
        ready = await anext(listeners)
        print(f"{ready.sender} is ready")
        await call.start()
        for word in SPOKEN.split(" "):
            await call.send(f"{word} ")
            await asyncio.sleep(1 / options.rate)
        await call.complete()
        print(f"{len(SPOKEN.split())} words spoken")


def calls_in(view: SpaceView) -> list[StreamView]:
    """Return the streams with this format. The entry of a stream describes it, also for participants that join late."""
    return [stream for stream in view.streams.values() if LINES["id"] in [form["id"] for form in stream.formats]]


async def write_down(options: Namespace) -> None:
    """The reader prints each line when it is complete."""
    async with mew.connect() as space:
        view = await space.wait_until(lambda view: bool(calls_in(view)))
        call, line = calls_in(view)[-1], ""
        words = space.frames(call.stream_id)
        await space.send("chat/acknowledge", to=call.owner)  # subscribed: the speaker may start
        metadata = call.entry["metadata"]
        async for word in words:
            *lines, line = (line + word.data.decode()).split("\n")
            for sentence in lines:
                print(f"{metadata['speaker']} ({metadata['language']}): {sentence.strip()}")
        print("the call has ended" + (f"; {words.missed} words are missing" if words.missed else ""))


ROLES = {"speaker": ("speaker", speak), "reader": ("listener", write_down)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--rate", type=float, default=12.0, help="words per second")
    arguments.play()
