"""OpenAI's harmony: messages with a channel, and a recipient where they are calls.

Owns what a message's header says. Knows nothing of what is around the messages. Source: the harmony
format's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import InvocationCanister, ReasoningPiece, TextPiece
from callboard.dialects.grammars.json_arguments import read_arguments
from callboard.dialects.grammars.named import read_text
from callboard.dialects.grammars.schemas import only_string
from callboard.dialects.grammars.spelling import arguments_json
from callboard.dialects.reader import Over, Reading, Refused
from callboard.dialects.reply import Body, Reply
from callboard.text.marker import MAX_NAME, Marker, Match, marker

_MESSAGE = "<|message|>"
_MAX_HEADER = MAX_NAME + 256
_RECIPIENT = re.compile(r"to=([^\s<|]+)(?=[\s<])")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>")
_HEADS = (marker("<|channel|>"), marker("<|start|>"))
_PROMPTED = (marker("<|channel|>"), marker("to="))


class Channels(Body, frozen=True, eq=False):
    """One message: a call, reasoning, or the header of one whose text follows.

    `prompted` is for one whose header began in the prompt.
    """

    prompted: bool = False

    @property
    def heads(self) -> Sequence[Marker]:
        return _PROMPTED if self.prompted else _HEADS

    def read(self, reply: Reply, head: Match, *, declared: bool) -> Reading[None]:
        reader = reply.reader
        while (end := reader.text.find(_MESSAGE, reader.at)) < 0:
            if len(reader.text) - reader.at > _MAX_HEADER:
                raise Refused
            try:
                yield
            except Over:
                if recipient := _RECIPIENT.search(reader.text, reader.at):
                    reply.open(recipient[1].removeprefix("functions."))
                    reply.abandon()
                raise
        if end - reader.at > _MAX_HEADER:
            raise Refused
        header = reader.text[reader.at : end + 1]
        reader.at = end + len(_MESSAGE)
        recipient = _RECIPIENT.search(header)
        if recipient is not None:
            yield from _call(reply, recipient[1].removeprefix("functions."))
            return
        reader.drop()
        reader.decided()
        channel = _CHANNEL.search(header)
        if channel is not None and channel[1] == "analysis":
            yield from _reason(reply)

    def spell(self, call: InvocationCanister, place: int = 0) -> str:
        return (
            f"<|start|>assistant<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>"
            f"{arguments_json(call)}<|call|>"
        )


def _call(reply: Reply, name: str) -> Reading[None]:
    reader = reply.reader
    call = reply.open(name)
    try:
        yield from reader.blank()
        empty = yield from reader.first([marker(end) for end in _ENDS])
    except Over:
        reply.abandon()
        raise
    if empty:
        call.write("{}", reader.offset)
    elif reader.text[reader.at] == "{":
        yield from read_arguments(reply, call)
    else:
        yield from read_text(reply, only_string(reply.calls.schema(name)) or "input", _ENDS)
    reply.close()


def _reason(reply: Reply) -> Reading[None]:
    reader = reply.reader
    reader.speak = ReasoningPiece
    markers = [marker(end) for end in _ENDS]
    while True:
        at = reader.text.find("<", reader.at)
        reader.at = len(reader.text) if at < 0 else at
        reader.say()
        if at < 0:
            yield
        elif (yield from reader.first(markers)):
            break
        else:
            reader.at += 1
    reader.say()
    reader.speak = TextPiece
