"""Calls as expressions: `name(key=value)`, or `call:name{key:value}`, also in a list, an assignment or a `print`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from callboard.core import InvocationCanister
from callboard.dialects.grammar import Grammar, NotSpellable, arguments_of
from callboard.dialects.grammars.python_literals import PYTHON, LiteralSyntax, LiteralToJson, NotALiteral
from callboard.dialects.grammars.typed_values import keys_of
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading
from callboard.text.marker_pattern import MarkerPattern, Match, compile_marker

_KEY = re.compile(r"[^\W\d]\w*")
_BARE_KEY = re.compile(r"[^\W\d][\w -]*")


class PythonicCalls(Grammar, frozen=True, eq=False, dict=True):
    """`calls` are the templates up to the bracket of the arguments; `separators` follow a key.

    With `listed`, calls are in a list. With `statements`, they may be assigned or printed, and other statements may
    follow.
    """

    calls: tuple[str, ...] = ("{name}(",)
    literals: LiteralSyntax = PYTHON
    separators: str = "="
    listed: bool = False
    statements: bool = False

    @cached_property
    def heads(self) -> Sequence[MarkerPattern]:
        before = ("[{_}",) if self.listed else _STATEMENT if self.statements else ("",)
        return [compile_marker(each + call, self._follow) for each in before for call in self.calls]

    @property
    def only_if_named(self) -> bool:
        return True

    @cached_property
    def _next(self) -> Sequence[MarkerPattern]:
        return [compile_marker("]"), *(compile_marker(call, self._follow) for call in self.calls)]

    @property
    def _follow(self) -> tuple[str, ...]:
        return () if self.literals.bare else _ARGUMENT

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        name = head.fields["name"]
        if head.cut and not state.calls.is_declared(name):
            raise EndOfText  # the name may be incomplete
        printed = self.statements and buffer.text.find("print(", buffer.at, head.end - 1) >= 0
        buffer.at = head.end
        yield from self._call(state, name, declared)
        if printed:
            yield from buffer.skip_blank()
            buffer.at += buffer.text[buffer.at] == ")"
            buffer.drop()
        while self.listed:
            yield from buffer.skip_blank()
            if buffer.text[buffer.at] == ",":
                buffer.at += 1
                buffer.hold()
                yield from buffer.skip_blank()
            match = yield from buffer.match_first(self._next)
            if match is None:
                raise NotACall
            buffer.at = match[1].end
            if not match[0]:
                buffer.drop()
                return
            yield from self._call(state, match[1].fields["name"], declared)

    def _call(self, state: ParseState, name: str, declared: bool) -> Reading[None]:
        """Read a call after the opening bracket of its arguments."""
        if not state.calls.is_declared(name):
            name = name.removesuffix(".call")  # for Llama's built-in tools
        call = state.open(name, declared=declared)
        transcript = LiteralToJson(self.literals, state.buffer, call.write, keys_of(state.calls.schema(name)))
        try:
            yield from transcript.arguments(CLOSERS[self.calls[0][-1]], self.separators)
        except NotALiteral:
            state.close()
            raise NotACall from None
        except EndOfText:
            state.abandon()
            raise
        state.close()

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        arguments = [
            f"{self._key(key)}{self.separators[0]}{self._value(value)}" for key, value in arguments_of(call).items()
        ]
        head = self.calls[0].format(name=call.name, _="")
        return f"{head}{_COMMA[self.literals.bare].join(arguments)}{CLOSERS[self.calls[0][-1]]}"

    def _key(self, key: str) -> str:
        if (_BARE_KEY if self.literals.bare else _KEY).fullmatch(key) is None:
            raise NotSpellable(f"the argument {key!r} has no spelling")
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
"""Possible beginnings of an argument."""
CLOSERS = {"(": ")", "{": "}"}
_COMMA = {True: ",", False: ", "}
