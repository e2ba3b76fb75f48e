"""Code that is a call of a tool that runs code, or one command per line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from callboard.core import InvocationCanister, Note
from callboard.dialects.call_builder import CallBuilder, escape_json, quote_json
from callboard.dialects.fences import read_fence_text
from callboard.dialects.grammar import Grammar, NotSpellable, arguments_of, to_json
from callboard.dialects.grammars.name_then_json import read_text
from callboard.dialects.grammars.typed_values import coerce, keys_of, only_string, types_of
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading, TextBuffer
from callboard.text.marker_pattern import MAX_NAME, MarkerPattern, Match, compile_marker

_ANY = (compile_marker(""),)
_WORD = re.compile(rf"\S{{1,{MAX_NAME}}}+")
_NAME = re.compile(r"[\w.-]+")
_FLAG = frozenset({"boolean"})
_PART = re.compile(
    r"""\\\r?\n|\\(?P<escaped>.)|'(?P<single>[^']*+)'|"(?P<double>(?:\\.|[^"\\])*+)"|(?P<plain>[^\s'"\\]++)"""
    r"""|(?P<end>\n)|\s|(?P<open>.)""",
    re.DOTALL,
)
"""A part of a command. `open` is an unfinished quotation or escape."""
_IN_WORD = frozenset({"escaped", "single", "double", "plain"})
_ESCAPE = re.compile(r"\\([\"\\$`n])")
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", "<", "<<", ">", ">>"})
_Word: TypeAlias = tuple[str, bool]
"""A word, and whether any of it is quoted or escaped."""


class CodeCall(Grammar, frozen=True, eq=False):
    """Take all of the code as the argument of the first declared tool in `tools` that takes one string."""

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
        """Return the tool and its argument. Raises NotACall if there is none."""
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
    """Take each line as a call if each begins with a declared tool; otherwise take the code as a call of `shell`."""

    shell: CodeCall

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        return _ANY

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer, calls = state.buffer, state.calls
        word = yield from _word(buffer)
        try:
            shell = self.shell.tool(state)
        except NotACall:
            shell = None
        if calls.takes_any:
            raise NotACall
        if shell and (word in self.shell.tools or not (word[0] == "#" or calls.is_declared(word))):
            yield from self.shell.read(state, head, declared=declared)
            return
        begin, fence, over = buffer.offset, state.fence, False
        lines: list[str] = []
        try:
            yield from read_fence_text(buffer, fence, lambda text, _: lines.append(text))
            state.fence = ""
        except EndOfText:
            if state.why != "stop":
                raise
            over = True
        text = "".join(lines)
        commands = _split(text)
        others = [name for name, *_ in commands if not calls.is_declared(name)]
        called = [] if others else [_read_command(calls, *command) for command in commands]
        if shell and not (called and all(fits for *_, fits in called)):
            called = [(shell[0], to_json({shell[1]: text}), True)]
        if not called:
            if len(others) < len(commands):
                why = f"no call was made of a block of commands, because {others[0][:MAX_NAME]!r} is not a tool"
                hint = "begin each line with the name of a tool"
                state.emit(Note("alert", f"{why}: {hint}", (begin, buffer.offset), "format"))
            _unread(buffer, begin)
            state.fence = fence
            raise NotACall
        for name, arguments, _ in called:
            state.open(name).write(arguments, buffer.offset)
            state.close()
        if over:
            raise EndOfText

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        if call.name in self.shell.tools:
            return self.shell.render(call)
        if not _NAME.fullmatch(call.name):
            raise NotSpellable(f"{call.name!r} is not a command's name")
        if call.arguments is None:
            if not call.raw.startswith(call.name):
                raise NotSpellable("its arguments are no command")
            return call.raw
        texts = {key: each if isinstance(each, str) else to_json(each) for key, each in call.arguments.items()}
        return " ".join([call.name, *(f"--{key} {shlex.quote(text)}" for key, text in texts.items())])


def _word(buffer: TextBuffer) -> Reading[str]:
    """Return the first word without reading it."""
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


def _unread(buffer: TextBuffer, begin: int) -> None:
    """Put back all text since the offset `begin`. All of it must be pending."""
    read = buffer.offset - begin
    pending = buffer.take()
    buffer.unread(pending)
    buffer.at = len(pending) - read


_Command: TypeAlias = tuple[str, str, list[_Word], str]


def _split(text: str) -> list[_Command]:
    r"""Split a text into commands, one per line: the name, the line, the words, and an error if it cannot be read.

    Quotes and backslashes work as in a shell. In double quotes `\n` also means a newline if the text is on one line,
    because models write texts with several lines that way.
    """
    commands: list[_Command] = []
    words: list[_Word] = []
    begin, behind_word, fault = 0, False, ""

    def end(at: int) -> None:
        nonlocal begin, words, fault
        if words:
            commands.append((words[0][0], text[begin:at].strip(), words, fault))
        begin, words, fault = at, [], ""

    at = 0
    while match := _PART.match(text, at):
        at = match.end()
        kind = match.lastgroup
        if kind == "end":
            end(at)
        elif kind == "open":
            words = words or [("", True)]
            fault = "a quotation is not closed"
            at = len(text)
        elif kind == "plain" and not behind_word and match["plain"][0] == "#":
            newline = text.find("\n", at)
            at = len(text) if newline < 0 else newline
            begin = begin if words else at
        elif kind is not None:
            value = match[kind]
            if kind == "double":
                line_end = r"\n" if "\n" in value else "\n"
                value = _ESCAPE.sub(lambda escape, end=line_end: end if escape[1] == "n" else escape[1], value)
            words.append((words.pop()[0] + value, True) if behind_word else (value, kind != "plain"))
        behind_word = kind in _IN_WORD
    end(at)
    return commands


def _read_command(
    calls: CallBuilder, name: str, line: str, words: Sequence[_Word], fault: str
) -> tuple[str, str, bool]:
    """Return the tool, the arguments in JSON by their flags and order, and whether all names are in its schema.

    Unknown flags and surplus words become arguments too, so that the model reads that they are wrong. If the line
    cannot be read, the arguments are the line itself and the reason.
    """
    operator = next((word for word, quoted in words if not quoted and word in _OPERATORS), "")
    if fault or operator:
        return name, f"{line}  # {fault or f'one command a line: {operator} cannot be used'}", False
    schema, flags = calls.schema(name), calls.flags(name)
    options: dict[str, Any] = {}
    strange: dict[str, Any] = {}
    positional: list[str] = []
    rest = [word for word, _ in words[1:]]
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        key = flags.get(flag)
        if not key and flag.startswith("--"):
            plain = flag.removeprefix("--")
            key = next((each for each in (plain, plain.replace("-", "_")) if each in keys_of(schema)), None)
        if key is None:
            if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
                strange[flag] = value if equals else True
            else:
                positional.append(word)
        elif equals:
            options[key] = value
        elif types_of(schema, key) == _FLAG and (not rest or rest[0].lower() not in {"true", "false"}):
            options[key] = True
        elif not rest:
            strange[flag] = True
        else:
            options[key] = rest.pop(0)
    strange |= dict.fromkeys(_place(positional, options, schema, flags), True)
    arguments = {key: _parse_type(options[key], types_of(schema, key)) for key in keys_of(schema) if key in options}
    return name, to_json({**arguments, **strange}), not strange


def _place(
    values: Sequence[str], options: dict[str, Any], schema: Mapping[str, Any], flags: Mapping[str, str]
) -> list[str]:
    """Assign the values without flags to the arguments in their order. Return the values that are left.

    A row of `cli` such as `action=grep` names the arguments that follow this value. The row `action=` names the
    arguments that follow if `action` is omitted.
    """
    remaining = [*values]
    keys = [key for key in keys_of(schema) if key not in options]
    while remaining and keys:
        key = keys.pop(0)
        if f"{key}=" in flags and f"{key}={remaining[0]}" not in flags:
            row = flags[f"{key}="]
        elif _is_list(types_of(schema, key)):
            options[key], remaining, row = remaining, [], ""
        else:
            options[key] = remaining.pop(0)
            row = flags.get(f"{key}={options[key]}", "")
        if row:
            keys = [each for each in row.split() if each not in options]
    return remaining


def _parse_type(value: Any, types: frozenset[str]) -> Any:
    if "string" in types or not isinstance(value, str):
        return value
    json = coerce(value, types)
    if json is not None:
        return msgspec.json.decode(json)
    return [value] if _is_list(types) else value


def _is_list(types: frozenset[str]) -> bool:
    return "array" in types and "string" not in types
