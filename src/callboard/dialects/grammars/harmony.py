"""Messages that are calls if their header names a recipient: OpenAI's harmony, which also has channels, and Muse.

Source: the harmony format's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import InvocationCanister, ReasoningPiece, TextPiece
from callboard.dialects.grammar import Grammar, arguments_json, read_arguments
from callboard.dialects.grammars.name_then_json import read_text
from callboard.dialects.grammars.typed_values import only_string
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading
from callboard.text.marker_pattern import MAX_NAME, MarkerPattern, Match, compile_marker

HARMONY_CALL = (
    "<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"
)
_MESSAGE = "<|message|>"
_MAX_HEADER = MAX_NAME + 256
_RECIPIENT = re.compile(r"to=([^\s<|]+)(?=[\s<])")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>")
_REASONING_ENDS = (
    compile_marker("<|end|>"),
    compile_marker("<|return|>"),
    compile_marker("<|start|>"),
    compile_marker("<|channel|>", ("analysis", "commentary", "final")),
)
_HEADS = (compile_marker("<|channel|>"), compile_marker("<|start|>assistant"), compile_marker("<|start|>"))
_HEADER_GOES_ON = ("<|channel|>", "<|constrain|>", _MESSAGE)
_PROMPTED = (
    compile_marker("<|channel|>"),
    *(compile_marker("to={name}", (each,)) for each in _HEADER_GOES_ON),
    *(compile_marker("assistant", (each,)) for each in ("<|channel|>", "to=")),
)
_TO = (compile_marker("<|start|>assistant{_}to={name}<|message|>"),)
_TO_PROMPTED = (compile_marker("to={name}<|message|>"), compile_marker("assistant{_}to={name}<|message|>"))
_MESSAGE_ENDS = (compile_marker("<|eom|>"), compile_marker("<|eot|>"))
_PARTIES = frozenset({"all", "assistant", "commentary", "developer", "self", "system", "user"})
"""Recipients that are not tools."""


class HarmonyChannels(Grammar, frozen=True, eq=False):
    """One message: a call, reasoning, or a header that text follows.

    `prefilled` is for a message whose header began in the prompt.
    """

    prefilled: bool = False

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        return _PROMPTED if self.prefilled else _HEADS

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        while (end := buffer.text.find(_MESSAGE, buffer.at)) < 0:
            if len(buffer.text) - buffer.at > _MAX_HEADER:
                raise NotACall
            try:
                yield
            except EndOfText:
                if recipient := _RECIPIENT.search(buffer.text, buffer.at):
                    state.open(recipient[1].removeprefix("functions."))
                    state.abandon()
                raise
        if end - buffer.at > _MAX_HEADER:
            raise NotACall
        header = buffer.text[buffer.at : end + 1]
        buffer.at = end + len(_MESSAGE)
        recipient = _RECIPIENT.search(header)
        if recipient is not None and recipient[1] not in _PARTIES:
            yield from _call(state, recipient[1].removeprefix("functions."))
            return
        state.begin_message()
        buffer.drop()
        buffer.release()
        if _CHANNEL.findall(header)[-1:] == ["analysis"]:
            yield from _say(state, ReasoningPiece, _REASONING_ENDS)

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        return HARMONY_CALL.format(name=call.name, arguments=arguments_json(call))


def _call(state: ParseState, name: str) -> Reading[None]:
    buffer = state.buffer
    call = state.open(name)
    try:
        yield from buffer.skip_blank()
        empty = yield from buffer.match_first([compile_marker(end) for end in _ENDS])
    except EndOfText:
        state.abandon()
        raise
    if empty:
        call.write("{}", buffer.offset)
    elif buffer.text[buffer.at] == "{":
        yield from read_arguments(state, call)
    else:
        yield from read_text(state, only_string(state.calls.schema(name)) or "input", _ENDS)
    state.close()


class HarmonyRecipients(Grammar, frozen=True, eq=False):
    """The header of a Muse message. If the message is not for a tool, its text follows, and no call is searched in it.

    `prefilled` is for a message whose header began in the prompt.
    """

    prefilled: bool = False

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        return _TO_PROMPTED if self.prefilled else _TO

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        buffer.at = head.end
        recipient = head.fields["name"]
        if recipient in _PARTIES:
            state.begin_message()
        buffer.drop()
        buffer.release()
        if recipient not in _PARTIES:
            return  # the call decides; if the header is quoted, the call is quoted too
        yield from _say(state, ReasoningPiece if recipient == "self" else TextPiece, _MESSAGE_ENDS)
        if end := (yield from buffer.match_first(_MESSAGE_ENDS)):
            buffer.at = end[1].end
            buffer.drop()
            state.begin_message()
        try:
            yield from buffer.skip_blank()
        finally:
            buffer.drop()

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        raise AssertionError


def _say(state: ParseState, piece: type[TextPiece | ReasoningPiece], markers: Sequence[MarkerPattern]) -> Reading[None]:
    """Emit the text up to one of the markers."""
    buffer = state.buffer
    buffer.piece_type = piece
    while True:
        at = buffer.text.find("<", buffer.at)
        buffer.at = len(buffer.text) if at < 0 else at
        buffer.emit()
        if at < 0:
            yield
        elif (yield from buffer.match_first(markers)):
            break
        else:
            buffer.at += 1
    buffer.emit()
    buffer.piece_type = TextPiece
