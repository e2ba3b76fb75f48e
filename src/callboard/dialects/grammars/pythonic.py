"""Calls as expressions: `name(key=value)`, or `call:name{key:value}`.

Owns what may stand around the expression: a list, an assignment, a `print`. Knows nothing of the tokens
around calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from callboard.core import InvocationCanister
from callboard.dialects.grammars.python_literals import PYTHON, Broken, Literals, Transcript
from callboard.dialects.grammars.spelling import arguments_of
from callboard.dialects.grammars.typed_values import keys_of
from callboard.dialects.parse_state import Body, CannotSay, Reply
from callboard.dialects.text_buffer import Over, Reading, Refused
from callboard.text.marker import Marker, Match, marker

_KEY = re.compile(r"[^\W\d]\w*")
_BARE_KEY = re.compile(r"[^\W\d][\w -]*")


class Expressions(Body, frozen=True, eq=False, dict=True):
    """`calls` are what stands before the arguments, up to their bracket; `separators` stand behind a key.

    With `listed`, calls stand in a list. With `statements`, they may be assigned or printed, and other
    statements may follow.
    """

    calls: tuple[str, ...] = ("{name}(",)
    literals: Literals = PYTHON
    separators: str = "="
    listed: bool = False
    statements: bool = False

    @cached_property
    def heads(self) -> Sequence[Marker]:
        before = ("[{_}",) if self.listed else _STATEMENT if self.statements else ("",)
        return [marker(each + call, self._follow) for each in before for call in self.calls]

    @cached_property
    def _next(self) -> Sequence[Marker]:
        return [marker("]"), *(marker(call, self._follow) for call in self.calls)]

    @property
    def _follow(self) -> tuple[str, ...]:
        return () if self.literals.bare else _ARGUMENT

    def read(self, reply: Reply, head: Match, *, declared: bool) -> Reading[None]:
        reader = reply.reader
        name = head.fields["name"]
        if head.cut and not reply.calls.declared(name):
            raise Over  # the name may be cut
        printed = self.statements and reader.text.find("print(", reader.at, head.end - 1) >= 0
        reader.at = head.end
        yield from self._call(reply, name, declared)
        if printed:
            yield from reader.blank()
            reader.at += reader.text[reader.at] == ")"
            reader.drop()
        while self.listed:
            yield from reader.blank()
            if reader.text[reader.at] == ",":
                reader.at += 1
                reader.begin()
                yield from reader.blank()
            found = yield from reader.first(self._next)
            if found is None:
                raise Refused
            reader.at = found[1].end
            if not found[0]:
                reader.drop()
                return
            yield from self._call(reply, found[1].fields["name"], declared)

    def _call(self, reply: Reply, name: str, declared: bool) -> Reading[None]:
        """From behind the bracket that opens the arguments."""
        if not reply.calls.declared(name):
            name = name.removesuffix(".call")  # of Llama's built-in tools
        call = reply.open(name, declared=declared)
        transcript = Transcript(self.literals, reply.reader, call.write, keys_of(reply.calls.schema(name)))
        try:
            yield from transcript.arguments(_CLOSERS[self.calls[0][-1]], self.separators)
        except Broken:
            reply.close()
            raise Refused from None
        except Over:
            reply.abandon()
            raise
        reply.close()

    def spell(self, call: InvocationCanister, place: int = 0) -> str:
        arguments = [
            f"{self._key(key)}{self.separators[0]}{self._value(value)}" for key, value in arguments_of(call).items()
        ]
        head = self.calls[0].format(name=call.name, _="")
        return f"{head}{_COMMA[self.literals.bare].join(arguments)}{_CLOSERS[self.calls[0][-1]]}"

    def _key(self, key: str) -> str:
        if (_BARE_KEY if self.literals.bare else _KEY).fullmatch(key) is None:
            raise CannotSay(f"the argument {key!r} has no spelling")
        return key

    def _value(self, value: Any) -> str:
        match value:
            case str():
                return self._string(value)
            case dict() if self.literals.bare:
                return "{" + ",".join(f"{self._key(key)}:{self._value(each)}" for key, each in value.items()) + "}"
            case dict():
                return "{" + ", ".join(f"{self._string(key)}: {self._value(each)}" for key, each in value.items()) + "}"
            case list() | tuple():
                return "[" + _COMMA[self.literals.bare].join([self._value(each) for each in value]) + "]"
            case True | False | None if self.literals.bare:
                return {True: "true", False: "false", None: "null"}[value]
            case _:
                return repr(value)

    def _string(self, text: str) -> str:
        quote = self.literals.quotes[0]
        return repr(text) if not self.literals.bare else f"{quote}{text}{quote}"


_STATEMENT = ("", "{variable}=", "print(")
_ARGUMENT = (")", "{name}=", *"\"'[-0123456789", "{{", "True", "False", "None", "true", "false", "null")
"""What may begin an argument."""
_CLOSERS = {"(": ")", "{": "}"}
_COMMA = {True: ",", False: ", "}
