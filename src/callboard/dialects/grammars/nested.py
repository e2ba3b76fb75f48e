"""One tag per argument, with the argument's name, and more tags inside: MiniMax M3.

Every tag follows the same marker, so a text may contain any other tag. Sources: the model's chat template, and vLLM's
parser for it.

Law: certain parts of a string are emitted as they arrive; a value of another type when it is whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from callboard.core import InvocationCanister
from callboard.dialects.call_builder import OpenCall, quote_json
from callboard.dialects.grammar import Grammar, arguments_of, to_json
from callboard.dialects.grammars.typed_values import TEXT, coerce, item_of, member_of, types_at, types_of
from callboard.dialects.grammars.xml_tags import Value
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, Reading
from callboard.text.marker_pattern import MarkerPattern, Match, compile_marker

_ITEM = "item"
_MAX_DEPTH = 128
_EMPTY = {"array": "[]", "object": "{}"}


class NestedTags(Grammar, frozen=True, eq=False, dict=True):
    """`before` precedes every tag. `call` and `section` are the tags around an argument list and around all calls."""

    before: str
    call: str = "invoke"
    section: str = "tool_call"

    @cached_property
    def heads(self) -> Sequence[MarkerPattern]:
        return [compile_marker(f'{self.before}{{_}}<{self.call} name="{{name}}">')]

    @cached_property
    def tags(self) -> Sequence[MarkerPattern]:
        """Patterns of closing and opening tags."""
        return [
            compile_marker(f"{{_}}{self.before}{{_}}</{{key}}>"),
            compile_marker(f"{{_}}{self.before}{{_}}<{{key}}>"),
        ]

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        name = head.fields["name"]
        if head.cut and not state.calls.is_declared(name):
            raise EndOfText  # the name may be incomplete
        state.buffer.at = head.end
        yield from _Arguments(self, state, state.open(name, declared=declared)).read()

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        values = {key: value if isinstance(value, str) else to_json(value) for key, value in arguments_of(call).items()}
        tags = [f"{self.before}<{key}>{value}{self.before}</{key}>" for key, value in values.items()]
        return f'{self.before}<{self.call} name="{call.name}">{"".join(tags)}{self.before}</{self.call}>'


class _Node:
    """An open tag and its contents."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.text: list[str] = []
        self.children: list[_Node] = []


class _Arguments:
    """A reader of one call's arguments, from the end of its first tag to the end of the call."""

    def __init__(self, nested: NestedTags, state: ParseState, call: OpenCall) -> None:
        self._nested = nested
        self._state = state
        self._buffer = state.buffer
        self._call = call
        self._schema = state.calls.schema(call.name)
        self._seen: set[str] = set()
        self._in_value = False

    def read(self) -> Reading[None]:
        buffer, nested = self._buffer, self._nested
        try:
            while True:
                yield from buffer.skip_blank()
                match = yield from buffer.match_first(nested.tags)
                if match is None:
                    break
                key = match[1].fields["key"]
                if match[0] == 0 and key != nested.section:
                    buffer.at = match[1].end
                if match[0] == 0 and key in {nested.call, nested.section}:
                    break
                if match[0]:
                    buffer.at = match[1].end
                    yield from self._value(key)
        except EndOfText:
            buffer.at = len(buffer.text)
            if self._state.why == "stop" and self._seen and not self._in_value:
                self._close()
            self._state.abandon()
            raise
        self._close()

    def _close(self) -> None:
        self._call.write("}" if self._seen else "{}", self._buffer.offset)
        self._state.close()

    def _value(self, key: str) -> Reading[None]:
        """Read a value and its closing tag, after its opening tag."""
        buffer = self._buffer
        self._in_value = True
        again = key in self._seen
        if not again:
            self._call.write(f"{',' if self._seen else '{'}{quote_json(key)}:", buffer.offset)
            self._seen.add(key)
        begin = buffer.offset
        fits = True
        match = yield from buffer.match_first(self._nested.tags)
        if match is not None and match[0]:
            json = yield from self._tree(key)
            if not again:
                self._call.write(json, buffer.offset)
        else:
            value = Value(None if again else self._call, types_of(self._schema, key))
            yield from self._text(key, value)
            fits = value.call is None or value.close(buffer.offset, _EMPTY)
        self._call.flush(buffer.out)  # before the note, whose position must not depend on how the text is split
        if not fits:
            buffer.note("coerced", f"{self._call.name}.{key} is not of its type; it is kept as text", buffer.offset)
        if again:
            buffer.note("dropped", f"{self._call.name} has another {key}", begin)
        self._in_value = False

    def _text(self, key: str, value: Value) -> Reading[None]:
        """Read the text in a tag and its closing tag, or up to a tag that closes more."""
        buffer, nested = self._buffer, self._nested
        plain = re.compile(f"[^{re.escape(nested.before[0])}]*+")
        while True:
            at = buffer.text.find(nested.before[0], buffer.at)
            end = len(buffer.text) if at < 0 else at
            if end > buffer.at:
                value.write(buffer.text[buffer.at : end], buffer.base + end)
                buffer.at = end
            if at < 0:
                yield from buffer.write_plain(plain, value.write)
                continue
            match = yield from buffer.match_first(nested.tags[:1])
            closed = match[1].fields["key"] if match else ""
            if match:  # the marker is a token that no text contains, so a tag with another name closes the text as well
                if closed not in {nested.call, nested.section} or closed == key:
                    buffer.at = match[1].end
                return
            buffer.at += 1
            value.write(nested.before[0], buffer.offset)

    def _tree(self, key: str) -> Reading[str]:
        """Return the JSON of a value that consists of tags, read with its closing tag."""
        buffer, nested = self._buffer, self._nested
        root = _Node(key)
        path = [root]
        while path:
            at = buffer.text.find(nested.before[0], buffer.at)
            end = len(buffer.text) if at < 0 else at
            path[-1].text.append(buffer.text[buffer.at : end])
            buffer.at = end
            if at < 0:
                yield
                continue
            match = yield from buffer.match_first(nested.tags)
            name = match[1].fields["key"] if match else ""
            if match is None or (match[0] and len(path) == _MAX_DEPTH):
                path[-1].text.append(buffer.text[buffer.at])
                buffer.at += 1
            elif match[0]:
                buffer.at = match[1].end
                node = _Node(name)
                path[-1].children.append(node)
                path.append(node)
            elif any(node.key == name for node in path):
                buffer.at = match[1].end
                while path.pop().key != name:
                    pass
            elif name in {nested.call, nested.section}:
                break
            else:
                buffer.at = match[1].end
        return to_json(self._convert(root, member_of(self._schema, key, self._schema)))

    def _convert(self, node: _Node, schema: Any) -> Any:
        """Convert the contents of a tag to its schema: items and tags with the same name make a list."""
        text = "".join(node.text)
        types = types_at(schema, self._schema)
        if not node.children:
            return _leaf(text, types)
        if "array" in types or (types == TEXT and {child.key for child in node.children} == {_ITEM}):
            each = item_of(schema, self._schema)
            return [self._convert(child, each) for child in node.children]
        members: dict[str, list[Any]] = {}
        for child in node.children:
            members.setdefault(child.key, []).append(self._convert(child, member_of(schema, child.key, self._schema)))
        if text.strip():
            members["$text"] = [text]
        return {key: values if len(values) > 1 else values[0] for key, values in members.items()}


def _leaf(text: str, types: frozenset[str]) -> Any:
    if "string" in types and not ("null" in types and text == "null"):
        return text
    json = coerce(text, types - TEXT) or next((_EMPTY[each] for each in types if not text and each in _EMPTY), None)
    return text if json is None else msgspec.json.decode(json)
