"""A call as text, word by word as it is spoken; who reads it is told what it is before the first word.

python examples/transcript.py speaker    announces the call, waits for somebody to listen, and speaks
python examples/transcript.py reader     finds the call, whenever it comes, and writes it down line by line
"""

import asyncio
from argparse import Namespace

import mew
from mew.view import SpaceView, StreamView
from roles import Arguments

LINES = {"id": "utf8-newline-delimited", "mime_type": "text/plain", "description": "words; a line is a sentence"}
SPOKEN = (
    "Can you hear me?\nThe door to the garden is open.\n"
    "I think the cat went out, and the dog went after it.\nI am going in.\n"
)


async def speak(options: Namespace) -> None:
    """The speaker. A stream that is announced is not live yet: whoever wants every word has time to come."""
    async with mew.connect() as space:
        listeners = space.envelopes("chat/acknowledge", to=space.participant_id)
        about = {"speaker": space.participant_id, "language": "en-US"}
        call = await space.announce_stream([LINES], desired_id="call", metadata=about, on_owner_disconnect="close")
        print(f"{call.stream_id} is announced; waiting for somebody who listens")
        listener = await anext(listeners)
        print(f"{listener.sender} listens")
        await call.start()
        for word in SPOKEN.split(" "):
            await call.send(f"{word} ")
            await asyncio.sleep(1 / options.rate)
        await call.complete()
        print(f"{len(SPOKEN.split())} words spoken")


def calls_in(view: SpaceView) -> list[StreamView]:
    """Streams of words; how to read one stands in its entry, for those who come late as well."""
    return [each for each in view.streams.values() if LINES["id"] in [form["id"] for form in each.formats]]


async def write_down(options: Namespace) -> None:
    """The reader: words come as they are spoken; a line is printed when it is whole."""
    async with mew.connect() as space:
        view = await space.wait_until(lambda view: bool(calls_in(view)))
        call, line = calls_in(view)[-1], ""
        words = space.frames(call.stream_id)
        await space.send("chat/acknowledge", to=call.owner)  # we read from here on: it may begin
        about = call.entry["metadata"]
        async for word in words:
            *lines, line = (line + word.data.decode()).split("\n")
            for each in lines:
                print(f"{about['speaker']} ({about['language']}): {each.strip()}")
        print("the call is over" + (f"; {words.missed} words are missing" if words.missed else ""))


ROLES = {"speaker": ("speaker", speak), "reader": ("listener", write_down)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--rate", type=float, default=12.0, help="so many words a second the speaker speaks")
    arguments.play()
