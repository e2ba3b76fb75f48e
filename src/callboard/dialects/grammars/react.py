"""ReAct: lines begin with a label, and the text of a label ends at the next label.

Source: Yao et al., ReAct, 2023, as prompted by LangChain and LlamaIndex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from callboard.core import InvocationCanister, ReasoningPiece, TextPiece
from callboard.dialects.call_builder import OpenCall, escape_json, quote_json
from callboard.dialects.grammar import Grammar, arguments_json
from callboard.dialects.grammars.python_literals import PYTHON, LiteralToJson, NotALiteral
from callboard.dialects.grammars.typed_values import keys_of, only_string
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading, TextBuffer
from callboard.text.marker_pattern import MarkerPattern, Match, compile_marker

LABELS = ("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "<code>", "Code:", "```")
REACT_CALL = "Action: {name}\nAction Input: {arguments}"
_INPUT = "Action:{_}{name}{_}Action{_}Input:"
_FENCES = (compile_marker("```json"), compile_marker("```"))
_FENCE = compile_marker("```")
_LABELS = tuple([compile_marker(label) for label in LABELS])
_AHEAD = 64
"""Maximum characters, including white space, that are needed to recognise a label."""
_NOTHING = ("none", "n/a", "null")


class ReactLabel(Grammar, frozen=True, eq=False):
    """A label whose text is reasoning, reply text, or not the model's own text."""

    labels: tuple[str, ...]
    speaks: Literal["reasoning", "text", "nothing"]

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        return [compile_marker(label) for label in self.labels]

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        begin = buffer.pending_offset
        buffer.at = head.end
        if self.speaks == "nothing":
            buffer.release()
            buffer.take()
            rest: list[str] = []
            try:
                while True:
                    buffer.at = len(buffer.text)
                    rest.append(buffer.take())
                    yield
            except EndOfText:
                buffer.note("dropped", f"behind {self.labels[0]} {''.join(rest).strip()}", begin)
                raise
        buffer.drop()
        buffer.release()
        if self.speaks == "text":
            state.line_continues = True
            return
        buffer.piece_type = ReasoningPiece
        yield from _run(buffer, lambda _: buffer.emit())
        buffer.piece_type = TextPiece

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        raise AssertionError


class ReactNoCall(Grammar, frozen=True, eq=False):
    """`Action: None`, which means no action."""

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        return [compile_marker("Action:{_}{name}")]

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        if head.fields["name"].lower() not in _NOTHING:
            raise NotACall
        state.buffer.at = head.end
        state.buffer.drop()
        yield from ()

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        raise AssertionError


class ReactAction(Grammar, frozen=True, eq=False):
    """`Action: NAME`, then `Action Input:` with an object or with the text of the only argument."""

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        return [compile_marker(_INPUT)]

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        name = head.fields["name"]
        if declared and not state.calls.is_declared(name):
            raise NotACall
        buffer.at = head.end
        call = state.open(name, declared=declared)
        try:
            yield from buffer.skip_blank()
            if fenced := (yield from buffer.match_first(_FENCES)):
                buffer.at = fenced[1].end
                yield from buffer.skip_blank()
            if buffer.text[buffer.at] == "{":
                yield from _value(state, call)
                if fenced:
                    yield from buffer.skip_blank()
                    if closing := (yield from buffer.match_first([_FENCE])):
                        buffer.at = closing[1].end
            else:
                yield from self._text(state, call)
        except EndOfText:
            if state.call is not None and state.why == "stop" and call.is_whole:
                buffer.at = len(buffer.text)
                state.close()
            state.abandon()
            raise
        state.close()

    def _text(self, state: ParseState, call: OpenCall) -> Reading[None]:
        """Read text that is not an object as the only argument, or the first."""
        buffer = state.buffer
        schema = state.calls.schema(call.name)
        key = only_string(schema) or next(iter(keys_of(schema)), "input")
        if (yield from buffer.match_first(_LABELS)):
            call.write("{}", buffer.offset)
            return
        call.write(f"{{{quote_json(key)}:", buffer.offset)
        if buffer.text[buffer.at] in "\"'":
            yield from _value(state, call)
            call.write("}", buffer.offset)
            return
        call.write('"', buffer.offset)
        buffer.drop()
        try:
            yield from _run(buffer, lambda end: call.write(escape_json(buffer.take()), end))
        except EndOfText:
            # The apparent label is the end of the text.
            rest, buffer.at = buffer.text[buffer.at :].rstrip(), len(buffer.text)
            call.write(escape_json(rest) + ('"}' if state.why == "stop" else ""), buffer.offset)
            raise
        call.write('"}', buffer.offset)

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        return REACT_CALL.format(name=call.name, arguments=arguments_json(call))


def _value(state: ParseState, call: OpenCall) -> Reading[None]:
    try:
        yield from LiteralToJson(PYTHON, state.buffer, call.write).value()
    except NotALiteral:
        state.close()
        raise NotACall from None


def _run(buffer: TextBuffer, take: Callable[[int], object]) -> Reading[None]:
    """Read up to the white space before the next label or before the text's end."""
    while True:
        newline = buffer.text.find("\n", buffer.at)
        end = len(buffer.text) if newline < 0 else newline
        buffer.at = end
        take(buffer.offset)
        if newline < 0:
            yield
            continue
        while True:
            ahead = buffer.text[buffer.at : buffer.at + _AHEAD]
            rest = ahead.lstrip()
            if rest.startswith(LABELS):
                return
            if len(ahead) == _AHEAD or (rest and not any(label.startswith(rest) for label in LABELS)):
                break
            yield
        buffer.at += 1
        take(buffer.offset)
