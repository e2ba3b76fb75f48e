"""Messages with a recipient where they are calls: OpenAI's harmony, which has channels as well, and Muse.

Owns what a message's header says. Knows nothing of what is around the messages. Source: the harmony
format's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import InvocationCanister, ReasoningPiece, TextPiece
from callboard.dialects.grammars.json_arguments import read_arguments
from callboard.dialects.grammars.name_then_json import read_text
from callboard.dialects.grammars.spelling import arguments_json
from callboard.dialects.grammars.typed_values import only_string
from callboard.dialects.parse_state import Body, Reply
from callboard.dialects.text_buffer import Over, Reading, Refused
from callboard.text.marker import MAX_NAME, Marker, Match, marker

_MESSAGE = "<|message|>"
_MAX_HEADER = MAX_NAME + 256
_RECIPIENT = re.compile(r"to=([^\s<|]+)(?=[\s<])")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>")
_REASONING_ENDS = (
    marker("<|end|>"),
    marker("<|return|>"),
    marker("<|start|>"),
    marker("<|channel|>", ("analysis", "commentary", "final")),
)
_HEADS = (marker("<|channel|>"), marker("<|start|>assistant"), marker("<|start|>"))
_HEADER_GOES_ON = ("<|channel|>", "<|constrain|>", _MESSAGE)
_PROMPTED = (
    marker("<|channel|>"),
    *(marker("to={name}", (each,)) for each in _HEADER_GOES_ON),
    *(marker("assistant", (each,)) for each in ("<|channel|>", "to=")),
)
_TO = (marker("<|start|>assistant{_}to={name}<|message|>"),)
_TO_PROMPTED = (marker("to={name}<|message|>"), marker("assistant{_}to={name}<|message|>"))
_MESSAGE_ENDS = (marker("<|eom|>"), marker("<|eot|>"))
_PARTIES = frozenset({"all", "assistant", "commentary", "developer", "self", "system", "user"})
"""Recipients that are no tools."""


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
        if recipient is not None and recipient[1] not in _PARTIES:
            yield from _call(reply, recipient[1].removeprefix("functions."))
            return
        reply.begin_message()
        reader.drop()
        reader.decided()
        if _CHANNEL.findall(header)[-1:] == ["analysis"]:
            yield from _say(reply, ReasoningPiece, _REASONING_ENDS)

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


class Recipients(Body, frozen=True, eq=False):
    """The header of one of Muse's messages, with its text where that is for no tool: no call stands in it.

    `prompted` is for one whose header began in the prompt.
    """

    prompted: bool = False

    @property
    def heads(self) -> Sequence[Marker]:
        return _TO_PROMPTED if self.prompted else _TO

    def read(self, reply: Reply, head: Match, *, declared: bool) -> Reading[None]:
        reader = reply.reader
        reader.at = head.end
        recipient = head.fields["name"]
        if recipient in _PARTIES:
            reply.begin_message()
        reader.drop()
        reader.decided()
        if recipient not in _PARTIES:
            return  # the call decides; where the header is quoted, so is the call
        yield from _say(reply, ReasoningPiece if recipient == "self" else TextPiece, _MESSAGE_ENDS)
        if end := (yield from reader.first(_MESSAGE_ENDS)):
            reader.at = end[1].end
            reader.drop()
            reply.begin_message()
        try:
            yield from reader.blank()
        finally:
            reader.drop()

    def spell(self, call: InvocationCanister, place: int = 0) -> str:
        raise AssertionError


def _say(reply: Reply, piece: type[TextPiece | ReasoningPiece], markers: Sequence[Marker]) -> Reading[None]:
    """Says the text up to one of the markers."""
    reader = reply.reader
    reader.speak = piece
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
