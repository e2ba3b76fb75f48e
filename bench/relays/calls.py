"""What an open call weighs: bytes beyond its arguments, in what reads the backend and in what writes to the client."""

import gc
import json
import tracemalloc
from collections.abc import Callable

from callboard.core import Event, Stage, ToolDeclaration, identify_in_turn, pipe
from callboard.dialects import AUTO
from callboard.modes import Watcher
from callboard.text.sse import Payload
from callboard.wires import WIRES
from callboard.wires.common.reply_stream import DecodeContext

ARGUMENTS = json.dumps({"path": "src/callboard/core/pipe.py", "old": "x" * 60, "new": "y" * 60, "times": 1})
PIECE = 4
_TOOL = ToolDeclaration("edit", "Edit a file.", {"type": "object"})


def _payload(index: int, **call: object) -> str:
    choice = {"index": 0, "delta": {"tool_calls": [{"index": index, **call}]}, "finish_reason": None}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def _begun(index: int) -> str:
    return _payload(index, id=f"call_{index}", type="function", function={"name": "edit", "arguments": ""})


def _open(count: int, feed: Callable[[str], object]) -> int:
    """Bytes by which what is held grew."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for index in range(count):
        feed(_begun(index))
    for place in range(0, len(ARGUMENTS) - 1, PIECE):  # the last one stays away, for all of them are open
        for index in range(count):
            feed(_payload(index, function={"arguments": ARGUMENTS[place : place + PIECE]}))
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def weights(calls: int) -> dict[str, float]:
    """By a front's wire the bytes of one of so many open calls, beyond the characters of its arguments."""
    found = {}
    for name in ("responses", "chat", "messages"):
        reading = WIRES["chat"].stream_decoder(DecodeContext(identify=identify_in_turn(1)))
        watcher = Watcher(AUTO, (_TOOL,), identify_in_turn(1, "t"))
        stages: Stage[str, Event] = pipe(reading, watcher)
        writing = WIRES[name].stream_encoder(identifier="reply_1", model="m", created=1)

        def feed(payload: str, stages: Stage[str, Event] = stages, writing: Stage[Event, Payload] = writing) -> None:
            for event in stages.feed(payload):
                writing.feed(event)

        feed(_payload(0).replace('"tool_calls": [{"index": 0}]', '"content": "I shall edit."'))
        tracemalloc.start()
        found[name] = _open(calls, feed) / calls - len(ARGUMENTS)
        tracemalloc.stop()
    return found
