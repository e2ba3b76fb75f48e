"""What do the wires cost, a request and a chunk of text, and what the providers' own clients for the same chunk?

A request has 50 canisters and 20 tools. It is written from the values to JSON and read from JSON to the values, each
anew: CPU milliseconds, KB of the body, and what writing grows by when the history is four times as long. Then a text
in pieces of four characters: CPU microseconds to read the data of one frame, and to write the frame of one piece, on
average over a thousand. The best of five.

Beside it, in the same turns, is what the official clients make of the same data: openai and anthropic decode it and
build the event as their streams do, google-genai its response. Last litellm, in a process and an environment of its
own, without network: its transformation of a chat request to Anthropic's body, from JSON to JSON, and of the data of
Anthropic's frames to OpenAI's chunks, each beside ours of the same.

Wanted: 0.3 ms a request each way, growth of at most 4.4; 4 µs a chunk each way. WRONG stands where what was read is
not what was written.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from operator import truediv
from statistics import median
from typing import Any

import anthropic
import msgspec
import openai
from anthropic.types import RawMessageStreamEvent
from bench.contenders import ROOT, row
from bench.contenders.prose import ENGLISH
from bench.dialects import Timed, timed
from google.genai import models, types
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from callboard import Tool
from callboard.core import (
    AssistantCanister,
    Canister,
    Event,
    InvocationCanister,
    ReplyStarted,
    Request,
    ResultCanister,
    SupervisorCanister,
    TextPiece,
    ToolDeclaration,
    UserCanister,
    identify_in_turn,
)
from callboard.text.sse import SSEDecoder, SSEEncoder
from callboard.wires import WIRES, Wire
from callboard.wires.common.reply_stream import DecodeContext

ROUNDS, LONGER = 16, 66
"""Of three canisters, after two: 50 and four times as many."""
TOOLS = 20
PIECES = [ENGLISH[place : place + 4] for place in range(0, len(ENGLISH), 4)] * 5
TEXT = "".join(PIECES)
MODEL = "claude-sonnet-4-5"
"""The name is Anthropic's for litellm; the wires do not mind."""
STARTED = ReplyStarted("reply_1", MODEL)
LITELLM = ROOT / ".venv-litellm"
WRONG = "WRONG"


async def edit(path: str, old: str, new: str, times: int = 1, *, dry: bool = False) -> str:
    """Replace a text in a file. Give as much of the old text as makes it unique."""
    return f"{path}{old}{new}{times}{dry}"


def asking(rounds: int) -> Request:
    """What is asked after so many rounds."""
    said: list[Canister] = [SupervisorCanister(ENGLISH[:500]), UserCanister("Correct what is wrong.")]
    for number in range(rounds):
        arguments = {"path": f"docs/{number}.md", "old": ENGLISH[number : number + 80], "new": "", "times": number}
        said.append(AssistantCanister(ENGLISH[number : number + 60]))
        said.append(InvocationCanister(f"call_{number}", f"edit_{number % TOOLS}", arguments))
        said.append(ResultCanister(ENGLISH[number : number + 300], invocation_id=f"call_{number}"))
    schema = Tool(edit).schema
    tools = tuple(ToolDeclaration(f"edit_{number}", edit.__doc__ or "", schema) for number in range(TOOLS))
    return Request(MODEL, tuple(said), tools)


def body(wire: Wire, request: Request) -> bytes:
    return msgspec.json.encode(wire.encode_request(request).body)


def asked(wire: Wire, data: bytes) -> Request:
    """Gemini's has the model in its URL, or in the body of a batch."""
    return wire.decode_request({"model": MODEL, **msgspec.json.decode(data)})


def written(wire: Wire) -> list[bytes]:
    """What each event of a reply becomes."""
    encoder = wire.stream_encoder(identifier="reply_1", model=MODEL, created=1)
    feed, frame = encoder.feed, SSEEncoder().encode
    return [frame(feed(event)) for event in (STARTED, *map(TextPiece, PIECES))]


def read(wire: Wire, payloads: list[str]) -> list[Event]:
    feed = wire.stream_decoder(DecodeContext(identify=identify_in_turn(1))).feed
    return [event for payload in payloads for event in feed(payload)]


def text_of(events: list[Event]) -> str:
    return "".join([event.text for event in events if isinstance(event, TextPiece)])


def payloads_of(wire: Wire) -> list[str]:
    frames = SSEDecoder()
    return [frame.data for frame in frames.feed(b"".join(written(wire)))]


# As the clients' streams do, which are of no use without a socket.


def stream_of(client: Any, kind: Any) -> Callable[[str], Any]:
    build = client._process_response_data  # noqa: SLF001 - the step of its stream
    return lambda data: build(data=json.loads(data), cast_to=kind, response=None)


def google(data: str) -> Any:
    response = models._GenerateContentResponse_from_mldev(json.loads(data), None, None)  # noqa: SLF001 - as above
    return types.GenerateContentResponse._from_response(response=response, kwargs={})  # noqa: SLF001 - as above


def openai_text(event: Any) -> str:
    return event.choices[0].delta.content


# By a wire: a package, what makes an event of data, and what its text is.
CLIENTS: dict[str, tuple[str, Callable[[str], Any], Callable[[Any], str]]] = {
    "chat": ("openai", stream_of(openai.OpenAI(api_key="-"), ChatCompletionChunk), openai_text),
    "responses": ("openai", stream_of(openai.OpenAI(api_key="-"), ResponseStreamEvent), lambda event: event.delta),
    "messages": (
        "anthropic",
        stream_of(anthropic.Anthropic(api_key="-"), RawMessageStreamEvent),
        lambda event: event.delta.text,
    ),
    "gemini": ("google-genai", google, lambda event: event.text),
}


def least(run: Timed, scale: float, *, right: bool) -> float | str:
    return min(run.seconds) * scale if right else WRONG


def requests(wire: Wire) -> list[float | str]:
    """KB, milliseconds to write and to read, growth."""
    short, long = asking(ROUNDS), asking(LONGER)
    data = body(wire, short)
    write, more, back = timed(lambda: body(wire, short), lambda: body(wire, long), lambda: asked(wire, data))
    growth = median(map(truediv, more.seconds, write.seconds))
    spent = [least(write, 1e3, right=write.given == data), least(back, 1e3, right=body(wire, back.given) == data)]
    return [f"{len(data) / 1024:.0f}", *spent, growth]


def chunks(wire: Wire) -> list[float | str]:
    """Microseconds to read, to write, and of the official client to read."""
    payloads = payloads_of(wire)
    _, build, text = CLIENTS[wire.name]
    deltas = payloads[-len(PIECES) + 1 :]  # the first comes with what opens a text
    reading, writing, theirs = timed(
        lambda: read(wire, payloads), lambda: written(wire), lambda: [build(data) for data in deltas]
    )
    wrote = text_of(read(wire, payloads)) == TEXT and len(writing.given) == len(PIECES) + 1
    return [
        least(reading, 1e6 / len(payloads), right=text_of(reading.given) == TEXT),
        least(writing, 1e6 / len(PIECES), right=wrote),
        least(theirs, 1e6 / len(deltas), right="".join(map(text, theirs.given)) == "".join(PIECES[1:])),
    ]


def across(data: bytes, frames: list[str]) -> tuple[Timed, Timed]:
    """From chat to messages and back, as the gateway does."""
    chat, messages = WIRES["chat"], WIRES["messages"]

    def back() -> list[bytes]:
        decoder = messages.stream_decoder(DecodeContext(identify=identify_in_turn(1)))
        encoder, frame = chat.stream_encoder(identifier="reply_1", model=MODEL, created=1), SSEEncoder().encode
        return [frame(encoder.feed(event)) for data in frames for event in decoder.feed(data)]

    request, reply = timed(lambda: body(messages, asked(chat, data)), back)
    return request, reply


def litellm(data: bytes, frames: list[str]) -> dict[str, Any]:
    """What it prints in a process that is told nothing but that it is to stay offline."""
    ran = subprocess.run(
        [str(LITELLM / "bin/python"), "-W", "ignore", "-m", "bench.contenders.litellm_"],
        input=json.dumps({"body": data.decode(), "frames": frames}),
        cwd=ROOT,
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(LITELLM), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        sys.exit(f"litellm: {ran.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def table_of_requests() -> None:
    print("CPU ms of a request of 50 canisters and 20 tools, best of five; growth for four times the history\n")
    print(row("", "KB", "write", "read", "growth"))
    for wire in WIRES.values():
        print(row(wire.name, *requests(wire), digits=2), flush=True)


def table_of_chunks() -> None:
    print("\nCPU µs of a chunk of text, best of five; the official client reads the same data\n")
    print(row("", "read", "write", "theirs"))
    for wire in WIRES.values():
        package = CLIENTS[wire.name][0]
        print(row(wire.name, *chunks(wire), digits=1) + f"  {package} {version(package)}", flush=True)


def table_across() -> None:
    print(
        "\nCPU of the same across: ms of a chat request to Anthropic's body, µs of one of its chunks to a chat chunk\n"
    )
    data = body(WIRES["chat"], asking(ROUNDS))
    frames = payloads_of(WIRES["messages"])
    request, reply = across(data, frames)
    print(row("", "ms", "µs"))
    print(row("callboard", min(request.seconds) * 1e3, min(reply.seconds) / len(frames) * 1e6, digits=2), flush=True)
    if not (LITELLM / ".installed").exists():
        print("litellm is not there: `make bench-wires` installs it.")
        return
    theirs = litellm(data, frames)
    right = theirs["text"] == TEXT and len(json.loads(theirs["body"])["tools"]) == TOOLS
    name = (ROOT / "bench/litellm.txt").read_text("utf-8").partition("\nlitellm==")[2].splitlines()[0]
    print(row(f"litellm {name}", *([theirs["ms"], theirs["µs"]] if right else [WRONG, WRONG]), digits=2))


if __name__ == "__main__":
    table_of_requests()
    table_of_chunks()
    table_across()
