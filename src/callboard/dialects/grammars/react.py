"""ReAct: lines that begin with a label.

Owns what each label means, and where its text ends: at the next label. Knows nothing of what comes before.
Source: Yao et al., ReAct, 2023, as LangChain and LlamaIndex prompt for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from callboard.core import InvocationCanister, ReasoningPiece, TextPiece
from callboard.dialects.call_builder import OpenCall, escaped, quoted
from callboard.dialects.grammars.python_literals import PYTHON, Broken, Transcript
from callboard.dialects.grammars.spelling import arguments_json
from callboard.dialects.grammars.typed_values import keys_of, only_string
from callboard.dialects.parse_state import Body, Reply
from callboard.dialects.text_buffer import Over, Reader, Reading, Refused
from callboard.text.marker import Marker, Match, marker

LABELS = ("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "<code>", "Code:", "```")
_INPUT = "Action:{_}{name}{_}Action{_}Input:"
_FENCES = (marker("```json"), marker("```"))
_FENCE = marker("```")
_LABELS = tuple([marker(label) for label in LABELS])
_AHEAD = 64
"""Characters, white space with them, in which a label shows."""
_NOTHING = ("none", "n/a", "null")


class Label(Body, frozen=True, eq=False):
    """A label whose text is reasoning, is the text, or is nothing of the model's to say."""

    labels: tuple[str, ...]
    speaks: Literal["reasoning", "text", "nothing"]

    @property
    def heads(self) -> Sequence[Marker]:
        return [marker(label) for label in self.labels]

    def read(self, reply: Reply, head: Match, *, declared: bool) -> Reading[None]:
        reader = reply.reader
        begin = reader.pending
        reader.at = head.end
        if self.speaks == "nothing":
            reader.decided()
            reader.take()
            rest: list[str] = []
            try:
                while True:
                    reader.at = len(reader.text)
                    rest.append(reader.take())
                    yield
            except Over:
                reader.note("dropped", f"behind {self.labels[0]} {''.join(rest).strip()}", begin)
                raise
        reader.drop()
        reader.decided()
        if self.speaks == "text":
            reply.goes_on = True
            return
        reader.speak = ReasoningPiece
        yield from _run(reader, lambda _: reader.say())
        reader.speak = TextPiece

    def spell(self, call: InvocationCanister, place: int = 0) -> str:
        raise AssertionError


class Nothing(Body, frozen=True, eq=False):
    """`Action: None`, which is no action."""

    @property
    def heads(self) -> Sequence[Marker]:
        return [marker("Action:{_}{name}")]

    def read(self, reply: Reply, head: Match, *, declared: bool) -> Reading[None]:
        if head.fields["name"].lower() not in _NOTHING:
            raise Refused
        reply.reader.at = head.end
        reply.reader.drop()
        yield from ()

    def spell(self, call: InvocationCanister, place: int = 0) -> str:
        raise AssertionError


class Action(Body, frozen=True, eq=False):
    """`Action: NAME`, then `Action Input:` with an object, or with the text of the one argument."""

    @property
    def heads(self) -> Sequence[Marker]:
        return [marker(_INPUT)]

    def read(self, reply: Reply, head: Match, *, declared: bool) -> Reading[None]:
        reader = reply.reader
        name = head.fields["name"]
        if declared and not reply.calls.declared(name):
            raise Refused
        reader.at = head.end
        call = reply.open(name, declared=declared)
        try:
            yield from reader.blank()
            if fenced := (yield from reader.first(_FENCES)):
                reader.at = fenced[1].end
                yield from reader.blank()
            if reader.text[reader.at] == "{":
                yield from _value(reply, call)
                if fenced:
                    yield from reader.blank()
                    if closing := (yield from reader.first([_FENCE])):
                        reader.at = closing[1].end
            else:
                yield from self._text(reply, call)
        except Over:
            if reply.call is not None and reply.why == "stop" and call.whole:
                reader.at = len(reader.text)
                reply.close()
            reply.abandon()
            raise
        reply.close()

    def _text(self, reply: Reply, call: OpenCall) -> Reading[None]:
        """What is no object is the one argument, or the first."""
        reader = reply.reader
        schema = reply.calls.schema(call.name)
        key = only_string(schema) or next(iter(keys_of(schema)), "input")
        if (yield from reader.first(_LABELS)):
            call.write("{}", reader.offset)
            return
        call.write(f"{{{quoted(key)}:", reader.offset)
        if reader.text[reader.at] in "\"'":
            yield from _value(reply, call)
            call.write("}", reader.offset)
            return
        call.write('"', reader.offset)
        reader.drop()
        try:
            yield from _run(reader, lambda end: call.write(escaped(reader.take()), end))
        except Over:
            # What seemed to begin a label is the end of the text.
            rest, reader.at = reader.text[reader.at :].rstrip(), len(reader.text)
            call.write(escaped(rest) + ('"}' if reply.why == "stop" else ""), reader.offset)
            raise
        call.write('"}', reader.offset)

    def spell(self, call: InvocationCanister, place: int = 0) -> str:
        return f"Action: {call.name}\nAction Input: {arguments_json(call)}"


def _value(reply: Reply, call: OpenCall) -> Reading[None]:
    try:
        yield from Transcript(PYTHON, reply.reader, call.write).value()
    except Broken:
        reply.close()
        raise Refused from None


def _run(reader: Reader, take: Callable[[int], object]) -> Reading[None]:
    """Reads up to the white space before the next label, or before the text's end."""
    while True:
        newline = reader.text.find("\n", reader.at)
        end = len(reader.text) if newline < 0 else newline
        reader.at = end
        take(reader.offset)
        if newline < 0:
            yield
            continue
        while True:
            ahead = reader.text[reader.at : reader.at + _AHEAD]
            rest = ahead.lstrip()
            if rest.startswith(LABELS):
                return
            if len(ahead) == _AHEAD or (rest and not any(label.startswith(rest) for label in LABELS)):
                break
            yield
        reader.at += 1
        take(reader.offset)
