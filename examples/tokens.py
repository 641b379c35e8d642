"""An answer of a language model: token by token as it is made, and in the end as one message.

    python examples/tokens.py assistant    answers one question: a stream of tokens, then a chat that is all of them
    python examples/tokens.py reader       asks, shows the tokens as they come, and compares

Who is there sees the answer grow; who comes later, and whoever reads the history, finds one message in place of a
hundred frames. The model here is a plain generator of words, the same ones every time: put yours in its place.
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
    "A stream is a pipe that everybody may look into. Somebody has to say who may pour into it, or two would pour at "
    "once and nobody could tell whose it is. That one is the owner: it opens the stream, lends it, takes it back, "
    "gives it away, and ends it. When the owner goes, the next who may write becomes the owner, and it flows on."
)


async def model(question: str, rate: float) -> AsyncIterator[str]:
    """What a language model would say, so many tokens a second."""
    for token in re.findall(r"\S+\s*", ANSWER):
        yield token
        await asyncio.sleep(1 / rate)


async def assist(options: Namespace) -> None:
    """The assistant: a frame for each token, then one message for all of them."""
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
        # Compaction: from here on this message stands for the stream, and says so.
        answer = {"text": "".join(tokens), "compacts": {"stream_id": stream.stream_id, "frames": len(tokens)}}
        await space.send("chat", answer, to=question.sender, correlation_id=question.id)
        print(f"{len(tokens)} tokens on {stream.stream_id} became one message of {len(answer['text'])} characters")


async def ask(options: Namespace) -> None:
    """Whoever asks: frames and envelopes come in one order, so everything before the message is what it is made of."""
    async with mew.connect() as space:
        await space.wait_until(lambda view: "assistant" in view.participants)
        messages = space.messages()
        question = await space.chat(QUESTION, to="assistant")
        stream_id, tokens, answer = "", [], {}
        async for each in messages:
            if isinstance(each, Frame):
                if each.stream_id == stream_id:
                    tokens.append(each.data.decode())
                    print(tokens[-1], end="", flush=True)
            elif each.kind == "stream/open" and each.payload.get("answers") == question.id:
                stream_id = each.payload["stream_id"]
            elif each.kind == "chat" and question.id in each.correlation_id:
                answer = each.payload
                break
        print()
        if answer.get("text") != "".join(tokens):
            raise SystemExit(f"the message is not what the tokens said: {answer.get('text')}")
        print(f"{len(tokens)} tokens came on {stream_id}; the message that stands for it says the same")


ROLES = {"assistant": ("assistant", assist), "reader": ("reader", ask)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--rate", type=float, default=40.0, help="so many tokens a second the assistant makes")
    arguments.play()
