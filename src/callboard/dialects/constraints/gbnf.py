"""A grammar for llama.cpp (GBNF) of the calls that a dialect writes.

`write_gbnf` gives one of two grammars:

- of *calls alone*, from the first character: for a request in which a call has to come, or where the server arms the
  grammar itself, when its trigger has been written (`grammar_lazy`, llama.cpp's /completion);
- of *text with calls in it* (`lazily`): text is free until a call has begun, which is when the trigger has been
  written; from there to the call's end the grammar holds, then text is free again. This needs no support for triggers:
  llama.cpp's /v1/chat/completions takes `grammar`, and sets `grammar_lazy` and `grammar_triggers` itself.

When has a call begun? In a dialect with a marker of its own (`<tool_call>`): behind the marker, so that the names are
held to the declared tools. In one without (a JSON object in an answer may be anything): when all up to the arguments
has been written, with the name of a declared tool; so only the arguments are held.

Law: what the grammar writes is read by the dialect as calls of declared tools, with valid arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from callboard.core import ToolDeclaration
from callboard.dialects.constraints.call_parts import check_tools, expression_of, parts_of
from callboard.dialects.constraints.parts import Arguments, Blank, Expression, Name, Parts
from callboard.dialects.constraints.rules import GrammarRules, literal, sequence
from callboard.dialects.constraints.text_rules import BLANK, Word, text_until
from callboard.dialects.dialect import CallFrame, Dialect
from callboard.dialects.grammars.json_objects import JsonObjects
from callboard.dialects.thought_form import NAMES, NO_FUNCTION, VALUES

_FENCE = "```"


class Gbnf(msgspec.Struct, frozen=True):
    """A grammar, and the regular expressions of which one has to match before calls are held to it."""

    text: str
    triggers: tuple[str, ...]


def write_gbnf(
    dialect: Dialect, tools: Sequence[ToolDeclaration], *, lazily: bool = False, parallel: bool = True
) -> Gbnf:
    """The grammar of calls of these tools.

    Args:
        dialect: Spells the calls.
        tools: At least one.
        lazily: Text is free until a call has begun, and behind it.
        parallel: One call may follow another.

    Raises:
        NotSpellable: The dialect has no rules, or no spelling for a tool.
    """
    check_tools(dialect, tools)
    rules = GrammarRules()
    calls = _Calls(dialect.render_frame, tools, rules, parallel=parallel)
    triggers = calls.triggers()
    root = text_until(rules, triggers, begins_line=True) if lazily else calls.write(calls.all())
    return Gbnf(rules.text(root), tuple([_pattern(word) for word in triggers]))


def write_thought_gbnf(dialect: Dialect, tools: Sequence[ToolDeclaration], *, characters: int) -> Gbnf:
    """The grammar of a thought (see `thought_form`) and what follows from it: a call of the tool that it names, or text.

    Args:
        dialect: Spells the call.
        tools: At least one.
        characters: As many may the thought's values have.

    Raises:
        NotSpellable: The dialect has no rules, or no spelling for a tool.
    """
    check_tools(dialect, tools)
    rules = GrammarRules()
    calls = _Calls(dialect.render_frame, tools, rules, parallel=False)
    values = rules.add("values", f"[^\\n]{{0,{characters}}}")
    text = text_until(rules, calls.triggers(), begins_line=True)
    named = [
        sequence([literal(f"{NAMES} {tool.name}\n{VALUES} "), values, literal("\n"), call])
        for tool, call in zip(tools, calls.each(), strict=True)
    ]
    none = sequence([literal(f"{NAMES} {NO_FUNCTION}\n"), text])
    return Gbnf(rules.text(rules.add("thought", " | ".join([none, *named]))), ())


class _Calls:
    """The calls of one frame."""

    def __init__(
        self, frame: CallFrame, tools: Sequence[ToolDeclaration], rules: GrammarRules, *, parallel: bool
    ) -> None:
        self._frame = frame
        self._rules = rules
        self._parallel = parallel
        self._before, self._behind = [self._loosen(part) for part in frame.section.split("{calls}")]
        self._opens, self._closes = [self._loosen(part) for part in frame.each.split("{call}")]
        self._calls = [parts_of(frame.grammars[0], tool) for tool in tools]

    def all(self) -> Parts:
        """Calls and nothing else, as the frame has them."""
        return *self._before, *self._one(self._any()), *self._more(), *self._behind

    def each(self) -> list[str]:
        """One call of each tool and nothing else, as the frame has it."""
        return [self.write((*self._before, *self._one(call), *self._behind)) for call in self._calls]

    def triggers(self) -> Mapping[Word, str]:
        """What shows that a call has begun, and the rule of how it goes on."""
        if self._frame.declared_only:
            return dict(self._begin_named(call) for call in self._calls)
        if self._before or self._behind:
            return dict([self._cut(self.all(), len(self._before))])
        one = self._one(self._any())
        if self._opens:
            return dict([self._cut(one, len(self._opens))])
        names = [next(at for at, part in enumerate(call) if isinstance(part, Name)) for call in self._calls]
        rest = " | ".join([self.write(call[at:]) for call, at in zip(self._calls, names, strict=True)])
        named = (*self._calls[0][: names[0]], Expression(lambda rules: rules.add("named", rest)), *self._closes)
        return dict([self._cut(named, names[0])])

    def _begin_named(self, call: Parts) -> tuple[Word, str]:
        if isinstance(self._frame.grammars[0], JsonObjects):
            # The fence around an object may be another one, or none.
            before = _words((*self._before, *self._opens))
            begins_line = before.endswith("\n") or not before
            whole: Parts = (*(("\n", Blank()) if begins_line else ()), *call)
        else:
            whole = *self._before, *self._one(call), *self._more(), *self._behind
        return self._cut(whole, next(at for at, part in enumerate(whole) if isinstance(part, Arguments)))

    def _one(self, call: Parts) -> Parts:
        return *self._opens, *call, *self._closes

    def _any(self) -> Parts:
        """A call of one of the tools."""
        return (Expression(lambda rules: rules.add("call", " | ".join([self.write(call) for call in self._calls]))),)

    def _more(self) -> Parts:
        """Further calls."""
        if not self._parallel:
            return ()
        more = (*self._loosen(self._frame.join), *self._one(self._any()))
        return (Expression(lambda _: f"({self.write(more)})*"),)

    def _cut(self, parts: Parts, at: int) -> tuple[Word, str]:
        """The parts before that place as a word, and the rule of the others."""
        while at and isinstance(parts[at - 1], Blank):
            at -= 1
        word: Word = ()
        for part in parts[:at]:
            word += (BLANK,) if isinstance(part, Blank) else tuple(_words((part,)))
        return word, self.write(parts[at:])

    def _loosen(self, text: str) -> Parts:
        """Text of the frame, whose white space at its ends may be more or less; but a fence begins a line."""
        inner = text.strip()
        if _FENCE in self._frame.section + self._frame.each or not text:
            return (text,) if text else ()
        before, _, behind = text.partition(inner) if inner else (text, "", "")
        return *([Blank(before)] if before else ()), *([inner] if inner else ()), *([Blank(behind)] if behind else ())

    def write(self, parts: Parts) -> str:
        return sequence([expression_of(part, self._rules) for part in parts])


def _words(parts: Parts) -> str:
    """The text of parts that are only text."""
    return "".join([part if isinstance(part, str) else getattr(part, "text", "") for part in parts])


def _pattern(word: Word) -> str:
    return "".join([r"\s*" if char == BLANK else re.escape(char) for char in word])
