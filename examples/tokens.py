"""The answer of a language model: token by token while it is generated, and at the end as one message.

    python examples/tokens.py assistant    answers one question: with a stream of tokens, then with one chat message
    python examples/tokens.py reader       asks, prints the tokens as they arrive, and compares them with the message

Present participants see the answer grow. Later readers of the history find one message instead of a hundred frames. The
model is a generator that always yields the same words: replace it by yours.
"""

import asyncio
import re
from argparse import Namespace
from collections.abc import AsyncIterator

import mew
from mew.client import Frame
from roles import Arguments

QUESTION = "Why does a stream need an owner?"
ANSWER = (
    "All participants can read a stream. One of them must decide who may write to it, because otherwise two could "
    "write at the same time, and no reader could tell their data apart. This participant is the owner: it opens the "
    "stream, grants and revokes write access, transfers the stream, and ends it. If the owner leaves, the next "
    "writer becomes the owner, and the stream continues."
)


async def model(question: str, rate: float) -> AsyncIterator[str]:
    """Yield the tokens of the answer at this rate per second."""
    for token in re.findall(r"\S+\s*", ANSWER):
        yield token
        await asyncio.sleep(1 / rate)


async def assist(options: Namespace) -> None:
    """The assistant sends a frame for each token, then one message with all of them."""
    async with mew.connect() as space:
        question = await anext(space.envelopes("chat", to=space.participant_id))
        print(f"{question.sender} asks: {question.payload['text']}")
        about = {"content_type": "text/plain", "description": "an answer, token by token", "answers": question.id}
        stream = await space.open_stream(**about, on_owner_disconnect="close")
        tokens = []
        async for token in model(question.payload["text"], options.rate):
            await stream.send(token)
            tokens.append(token)
        await stream.complete()
        # Compaction: this message replaces the frames, and names the stream.
        answer = {"text": "".join(tokens), "compacts": {"stream_id": stream.stream_id, "frames": len(tokens)}}
        await space.send("chat", answer, to=question.sender, correlation_id=question.id)
        print(f"{len(tokens)} tokens on {stream.stream_id} became one message of {len(answer['text'])} characters")


async def ask(options: Namespace) -> None:
    """The reader asks. Frames and envelopes arrive in one order, so all tokens arrive before the message."""
    async with mew.connect() as space:
        await space.wait_until(lambda view: "assistant" in view.participants)
        messages = space.messages()
        question = await space.chat(QUESTION, to="assistant")
        stream_id, tokens, answer = "", [], {}
        async for message in messages:
            if isinstance(message, Frame):
                if message.stream_id == stream_id:
                    tokens.append(message.data.decode())
                    print(tokens[-1], end="", flush=True)
            elif message.kind == "stream/open" and message.payload.get("answers") == question.id:
                stream_id = message.payload["stream_id"]
            elif message.kind == "chat" and question.id in message.correlation_id:
                answer = message.payload
                break
        print()
        if answer.get("text") != "".join(tokens):
            raise SystemExit(f"the message differs from the tokens: {answer.get('text')}")
        print(f"{len(tokens)} tokens came on {stream_id}; the message has the same text")


ROLES = {"assistant": ("assistant", assist), "reader": ("reader", ask)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--rate", type=float, default=40.0, help="tokens per second")
    arguments.play()
