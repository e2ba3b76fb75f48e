"""Code that is a call: of a tool that runs code, or a command a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from callboard.core import InvocationCanister
from callboard.dialects.call_builder import CallBuilder, escape_json, quote_json
from callboard.dialects.fences import read_fence_text
from callboard.dialects.grammar import Grammar, NotSpellable
from callboard.dialects.grammars.json_arguments import arguments_of, to_json
from callboard.dialects.grammars.name_then_json import read_text
from callboard.dialects.grammars.typed_values import coerce, keys_of, only_string, types_of
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading, TextBuffer
from callboard.text.marker_pattern import MAX_NAME, MarkerPattern, Match, compile_marker

_ANY = (compile_marker(""),)
_WORD = re.compile(rf"\S{{1,{MAX_NAME}}}+")
_FLAG = frozenset({"boolean"})
# What ends a quotation or begins one, by what is open; as shlex has it.
_QUOTES = {
    "": re.compile(r"\\.|['\"]", re.DOTALL),
    "'": re.compile(r"'"),
    '"': re.compile(r'\\.|"', re.DOTALL),
}
# Those of str.splitlines.
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


class CodeCall(Grammar, frozen=True, eq=False):
    """All of the code is the one argument of the first of these tools that is declared and takes one string."""

    tools: tuple[str, ...]
    ends: tuple[str, ...] = ()

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        return _ANY

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        name, key = self.tool(state)
        if state.fence and buffer.text.startswith(state.fence, buffer.at):
            raise NotACall
        call = state.open(name, declared=True)
        if not state.fence:
            yield from read_text(state, key, self.ends)
            state.close()
            return
        call.write(f'{{{quote_json(key)}:"', buffer.offset)
        try:
            yield from read_fence_text(buffer, state.fence, lambda text, end: call.write(escape_json(text), end))
            state.fence = ""
        except EndOfText:
            if state.why == "stop":
                call.write('"}', buffer.offset)
                state.close()
            state.abandon()
            raise
        call.write('"}', buffer.offset)
        state.close()

    def tool(self, state: ParseState) -> tuple[str, str]:
        """The tool and its argument. Raises NotACall if there is none."""
        for name in self.tools:
            if (
                not state.calls.takes_any
                and state.calls.is_declared(name)
                and (key := only_string(state.calls.schema(name)))
            ):
                return name, key
        raise NotACall

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        arguments = arguments_of(call)
        values = list(arguments.values())
        if call.name not in self.tools or len(values) != 1 or not isinstance(values[0], str):
            raise NotSpellable(f"{call.name} is no tool that runs code, or has other arguments")
        return values[0]


class ShellCommands(Grammar, frozen=True, eq=False):
    """Each line is a call if each begins with a declared tool; else all of it is what `shell` makes of it."""

    shell: CodeCall

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        return _ANY

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        word = yield from _word(buffer)
        if not state.calls.is_declared(word) or state.calls.takes_any or word in self.shell.tools:
            yield from self.shell.read(state, head, declared=declared)
            return
        lines: list[str] = []
        over = False
        try:
            yield from read_fence_text(buffer, state.fence, lambda text, _: lines.append(text))
            state.fence = ""
        except EndOfText:
            if state.why != "stop":
                raise
            over = True
        text = "".join(lines)
        commands = [_command(state.calls, each) for each in _commands(text)]
        called = [each for each in commands if each is not None]
        if len(called) < len(commands):
            name, key = self.shell.tool(state)
            called = [(name, {key: text})]
        for name, arguments in called:
            state.open(name).write(to_json(arguments), buffer.offset)
            state.close()
        if over:
            raise EndOfText

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        return self.shell.render(call)


def _word(buffer: TextBuffer) -> Reading[str]:
    """The first word, not read yet."""
    while True:
        match = _WORD.match(buffer.text, buffer.at)
        if match is not None and (match.end() < len(buffer.text) or len(match[0]) == MAX_NAME):
            break
        try:
            yield
        except EndOfText:
            if match is None:
                raise
            break
    return match[0]


def _commands(text: str) -> Iterator[str]:
    """The commands of a text, a line each; one whose quotation is open goes on in the next line."""
    command, quote = "", ""
    for line in text.splitlines(keepends=True):
        if not command and (not line.strip() or line[0] == "#"):
            continue
        command += line
        quote = _quote_behind(line, quote)
        if not quote:
            yield command.rstrip(_LINE_ENDS)
            command = ""
    if command:
        yield command


def _quote_behind(line: str, quote: str) -> str:
    """The quotation that is open behind a line, "" for none; `quote` is what was open before it."""
    at = 0
    while match := _QUOTES[quote].search(line, at):
        at = match.end()
        if match[0] in _QUOTES:
            quote = "" if quote else match[0]
    return quote


def _command(calls: CallBuilder, line: str) -> tuple[str, dict[str, Any]] | None:
    """The call that the line makes by the tool's flags and the order of its arguments; None if it makes none."""
    import shlex  # noqa: PLC0415  # one dialect has commands

    try:
        name, *words = shlex.split(line)
    except ValueError:
        return None
    if not calls.is_declared(name):
        return None
    schema, flags = calls.schema(name), calls.flags(name)
    options: dict[str, str | bool] = {}
    positional: list[str] = []
    while words:
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        key = flags.get(flag) or (_long(flag, schema) if flag.startswith("--") else None)
        if key is None:
            if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
                return None
            positional.append(word)
        elif equals:
            options[key] = value
        elif types_of(schema, key) == _FLAG and (not words or words[0].lower() not in {"true", "false"}):
            options[key] = True
        elif not words:
            return None
        else:
            options[key] = words.pop(0)
    free = [key for key in keys_of(schema) if key not in options]
    if len(positional) > len(free):
        return None
    options |= dict(zip(free, positional, strict=False))
    return name, {key: _parse_type(options[key], types_of(schema, key)) for key in keys_of(schema) if key in options}


def _long(flag: str, schema: Mapping[str, Any]) -> str | None:
    keys = keys_of(schema)
    plain = flag.removeprefix("--")
    return next((key for key in (plain, plain.replace("-", "_")) if key in keys), None)


def _parse_type(text: str | bool, types: frozenset[str]) -> Any:
    json = None if "string" in types or isinstance(text, bool) else coerce(text, types)
    return text if json is None else msgspec.json.decode(json)
