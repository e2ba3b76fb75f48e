"""A tag with the tool's name, then for each argument a tag and a raw text.

    <function=NAME><parameter=KEY>VALUE</parameter> ... </function>

Theory of operation. Values are not escaped: a value may contain `</parameter>`, or a whole call as text. So a closing
tag alone does not end a value. `_Arguments` reads one call in a loop with two states:

- *between* two values (`read`): white space, then an opening tag (a value follows) or an end of the call. Anything else
  ends the call as well. JSON in braces instead of the first value counts as all arguments.
- *in* a value (`_value`): text goes to `Value.write` up to the next character that may begin a closing tag. Then
  `_ends_at` decides. The value ends
    1. at its closing tag, if the text after it can follow a value (another opening tag, an end of the call, a frame's
       closer): `after_value`;
    2. without its closing tag at an opening tag of an argument of the tool, or at the end of the call if the text after
       it can follow a call (`_missing`);
    3. at the end of the text, by the same rules, with less text after the tag (`match_end`).
  Otherwise the tag's first character belongs to the value, and the search continues after it. With `lasting`, an end
  of the call inside a value is part of the value if the value's own end comes later (`_lasts`).

`Value` turns the raw text into JSON by the tool's schema. A text that may be a string is emitted as it arrives. A text
with another possible type is kept until it is whole, because `12` may become `12 monkeys`.

Law: certain parts of a string are emitted as they arrive; a value of another type when it is whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from callboard.core import InvocationCanister
from callboard.dialects.call_builder import OpenCall, escape_json, parse_object, quote_json
from callboard.dialects.grammar import Grammar, arguments_of, read_arguments, to_json
from callboard.dialects.grammars.typed_values import TEXT, coerce, keys_of, member_of, types_of
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading
from callboard.text.marker_pattern import MarkerPattern, Match, compile_marker

_NULL = "null"
_NONE: Mapping[str, str] = MappingProxyType({})
_STRING = frozenset({"true", "string"})
_OBJECT = frozenset({"object"})
_WRAPPERS = frozenset({"arguments", "args", "input", "parameters", "properties"})
_ANY = frozenset({"object", "array", "number", "boolean", "null"})
_CDATA = compile_marker("<![CDATA[")
_FIELD = re.compile(r"(?<!\{)\{(?!\{)")


class XmlTags(Grammar, frozen=True, eq=False, dict=True):
    """The templates of the tags. The first template of each kind is used for writing.

    `calls` has `{name}`. `arguments` has `{key}` and may have `{string}` (true for a string, false for JSON) or
    `{type}`. `ends` close a call, like the frame's own closers. With `newlines`, one newline at each end of a value is
    not part of it. With `escapes`, attributes are escaped as in XML. With `lasting`, a call's end inside a value is
    part of the value if the value's own end comes later.
    """

    calls: tuple[str, ...]
    arguments: tuple[str, ...]
    argument_end: str
    ends: tuple[str, ...]
    around: tuple[str, ...] = ()
    """Tags that may follow a call."""
    newlines: bool = False
    escapes: bool = False
    lasting: bool = False
    namespaces: bool = False
    """True if the name may have a namespace that no tool was declared with."""
    cdata: bool = False
    """True if a value may be in `<![CDATA[` and `]]>`."""
    empty: tuple[str, ...] = ()
    """A call without arguments that needs no closing tag."""
    valueless: tuple[str, ...] = ()
    """An argument whose value the model left out."""
    after_head: str = ""
    between: str = "\n"

    @cached_property
    def heads(self) -> Sequence[MarkerPattern]:
        follow = _begins((*self.arguments, *self.ends, *self.around, "{{"))
        return [*(compile_marker(each, follow) for each in self.calls), *(compile_marker(each) for each in self.empty)]

    @cached_property
    def openings(self) -> Sequence[MarkerPattern]:
        """Patterns that begin a value."""
        return [compile_marker(each) for each in self.arguments]

    @cached_property
    def inside(self) -> Sequence[MarkerPattern]:
        """Patterns between two arguments: an end of the call, or another argument."""
        ends = [compile_marker(each) for each in (*self.ends, *self.around)]
        calls = [compile_marker(each) for each in self.calls if not each.startswith("{")]
        follow = _begins((*self.arguments, *self.ends, *self.around))
        return [*ends, *self.openings, *calls, *(compile_marker(each, follow) for each in self.valueless)]

    @cached_property
    def after_value(self) -> tuple[str, ...]:
        return _begins((*self.arguments, *self.ends, *self.around, *self.calls))

    @cached_property
    def missing(self) -> Sequence[MarkerPattern]:
        """Patterns that end a value without its closing tag: an end of the call, if the text after it may follow."""
        after = _begins((*self.around, *self.calls))
        return [compile_marker(each, after) for each in (*self.ends, *self.around)]

    @cached_property
    def call_ends(self) -> Sequence[MarkerPattern]:
        return [compile_marker(each) for each in (*self.ends, *self.around)]

    @cached_property
    def next_calls(self) -> Sequence[MarkerPattern]:
        """Patterns that show that a call has ended, although values may contain anything."""
        follow = _begins((*self.arguments, *self.around))
        return [
            compile_marker(around + call, follow) for around in self.around for call in self.calls if "</" not in around
        ]

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        name = self.unescape(head.fields.get("name") or head.fields["attribute"])
        if self.namespaces:
            name = state.calls.without_namespace(name)
        if head.cut and not state.calls.is_declared(name):
            raise EndOfText  # the name may be incomplete
        bare = state.buffer.text.startswith("/>", head.end - 2) and bool(self.empty)
        state.buffer.at = head.end
        call = state.open(name, declared=declared)
        if bare:
            call.write("{}", state.buffer.offset)
            state.close()
            return
        yield from _Arguments(self, state, call).read()

    def unescape(self, attribute: str) -> str:
        if not self.escapes:
            return attribute
        from html import unescape  # noqa: PLC0415  # only one dialect escapes

        return unescape(attribute)

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        values = [self._spell_value(key, value) for key, value in arguments_of(call).items()]
        end = self.ends[0] if self.ends else ""
        name = self.escape(call.name)
        head = self.calls[0].format(name=name, attribute=name, index=index + 1, _="")
        return f"{head}{self.after_head}{''.join(values)}{end}"

    def _spell_value(self, key: str, value: Any) -> str:
        is_string = isinstance(value, str)
        text = value if isinstance(value, str) else to_json(value)
        kind = "string" if is_string else _KINDS.get(type(value), "object")
        begin = self.arguments[0].format(key=self.escape(key), string="true" if is_string else "false", type=kind, _="")
        if self.cdata and "<" in text:
            text = f"<![CDATA[{text}]]>"
        newline = "\n" if self.newlines else ""
        return f"{begin}{newline}{text}{newline}{self.argument_end.format(key=key, _='')}{self.between}"

    def escape(self, text: str) -> str:
        """Return the text as it is written in a tag."""
        return text.replace("&", "&amp;").replace('"', "&quot;") if self.escapes else text


_KINDS = {bool: "boolean", int: "number", float: "number", type(None): "null", list: "array", dict: "object"}


def _begins(templates: Iterable[str]) -> tuple[str, ...]:
    """Return the beginnings of the templates, up to their first fields."""
    begins = (_FIELD.split(each, maxsplit=1)[0].rstrip('"') for each in templates)
    return tuple(dict.fromkeys(f"{{_}}{begin}" for begin in begins if begin))


class _Arguments:
    """A reader of one call's arguments, from the end of its first tag to the end of the call."""

    def __init__(self, tags: XmlTags, state: ParseState, call: OpenCall) -> None:
        self._tags = tags
        self._state = state
        self._buffer = state.buffer
        self._call = call
        self._schema = state.calls.schema(call.name)
        self._seen: set[str] = set()
        self._json = False
        self._in_value = False
        self._own = self._closing = compile_marker(tags.argument_end, tags.after_value)
        """Closing tag of the current value: the tag alone, and the tag with the text that has to follow."""

    def read(self) -> Reading[None]:
        buffer, tags = self._buffer, self._tags
        ahead = 0
        ends = len(tags.ends)
        openings = range(ends + len(tags.around), ends + len(tags.around) + len(tags.arguments))
        try:
            while True:
                yield from buffer.skip_blank()
                if not self._seen and not self._json and buffer.text[buffer.at] == "{":
                    self._json = True
                    yield from read_arguments(self._state, self._call)
                    continue
                match = yield from buffer.match_first(tags.inside)
                if match is not None and match[0] in openings:
                    buffer.at = match[1].end
                    yield from self._value(match[1].fields)
                    continue
                if match is not None and match[0] >= len(tags.inside) - len(tags.valueless):
                    begin, buffer.at = buffer.offset, match[1].end
                    buffer.note("dropped", f"{self._call.name}: no value of {match[1].fields['key']}", begin)
                    self._in_value = True  # if the text ends here, the value was cut
                    continue
                if match is not None and match[0] < ends:
                    buffer.at = match[1].end
                elif match is not None and buffer.text.startswith("</", buffer.at):
                    ahead = match[1].end - buffer.at
                break
        except EndOfText:
            buffer.at = len(buffer.text)
            if self._state.why == "stop" and (self._seen or self._json) and not self._in_value:
                self._close()
            self._state.abandon()
            raise
        self._close(ahead)

    def _close(self, ahead: int = 0) -> None:
        if not self._json:
            self._call.write("}" if self._seen else "{}", self._buffer.offset)
        self._state.close(ahead)

    def _value(self, fields: Mapping[str, str]) -> Reading[None]:
        """Read a value and its closing tag, after its opening tag."""
        buffer, tags = self._buffer, self._tags
        key = tags.unescape(fields["key"])
        self._in_value = True
        value = self._begin_value(key, fields)
        end = tags.argument_end.format(key=key.replace("{", "{{").replace("}", "}}"), _="")
        buffer.drop()
        if tags.cdata and (match := (yield from buffer.match_first([_CDATA]))):
            buffer.at = match[1].end
            end = f"]]>{end}"
        self._closing = compile_marker(end, tags.after_value)
        self._own = compile_marker(end)
        char = end[0]
        plain = re.compile("[^" + re.escape(char) + "\n" * tags.newlines + "]*+")
        if tags.newlines and (yield from buffer.peek()) == "\n":
            buffer.at += 1
        buffer.drop()
        while True:
            at = buffer.at
            tag = buffer.text.find(char, at)
            to = len(buffer.text) if tag < 0 else tag
            if tags.newlines and to > at and buffer.text[to - 1] == "\n":
                to -= 1
            if to > at:
                value.write(buffer.text[at:to], buffer.base + to)
                buffer.at = to
                buffer.drop()
            if tag >= 0:
                # The position is at the tag, or at the newline before it.
                if (yield from self._ends_at(tag - to, value)):
                    break
            elif buffer.at < len(buffer.text):
                yield
            else:
                yield from buffer.write_plain(plain, value.write)
        self._finish_value(key, value)
        self._in_value = False

    def _begin_value(self, key: str, fields: Mapping[str, str]) -> Value:
        types = self._types(key, fields.get("string") or fields.get("type"))
        if key in self._seen or self._json:
            return Value(None, types)
        if not self._seen and key in _WRAPPERS:  # if the tool has no such argument, it may contain all arguments
            properties = self._schema.get("properties")
            if isinstance(properties, Mapping) and properties and key not in properties:
                return _Wrapped(self._call, types)
        self._call.write(f"{',' if self._seen else '{'}{quote_json(key)}:", self._buffer.offset)
        self._seen.add(key)
        return Value(self._call, types)

    def _types(self, key: str, stated: str | None) -> frozenset[str]:
        """Return the types of the schema. If the tag states a type, it decides if the schema allows both or neither."""
        types = types_of(self._schema, key)
        if stated is None:
            return types
        if member_of(self._schema, key, self._schema) is None:
            return TEXT if stated in _STRING else _ANY
        if stated in _STRING:
            return TEXT if "string" in types else types
        return types if types == TEXT else types - TEXT

    def _finish_value(self, key: str, value: Value) -> None:
        buffer = self._buffer
        begin = buffer.offset
        fits = value.close(begin)
        if isinstance(value, _Wrapped):
            self._unwrap(key, value.text, begin)
        self._call.flush(buffer.out)
        if not fits:
            buffer.note("coerced", f"{self._call.name}.{key} is not of its type; it is kept as text", begin)
        elif value.call is None:
            buffer.note("dropped", f"{self._call.name} has another {key}", begin)

    def _unwrap(self, key: str, text: str, end: int) -> None:
        """Unpack an unknown argument that contains all arguments, if the tool has them."""
        json = coerce(text, _OBJECT)
        match = None if json is None else parse_object(json)
        if json is not None and match and any(name in match for name in keys_of(self._schema)):
            self._call.write(json, end)
            self._json = True
            return
        self._call.write(f"{{{quote_json(key)}:{coerce(text, _ANY) or quote_json(text)}", end)
        self._seen.add(key)

    def _ends_at(self, ahead: int, value: Value) -> Reading[bool]:
        """Whether the value ends at the tag `ahead` characters away. If so, read it; if not, its first character is text."""
        buffer, tags = self._buffer, self._tags
        while True:
            at = buffer.at + ahead
            match = self._closing.match(buffer.text, at) or self._missing(at)
            if match is not True:
                break
            try:
                yield
            except EndOfText:
                at = buffer.at + ahead
                match = self._closing.match_end(buffer.text, at)
                if match is None and self._state.why == "stop":
                    match = self._missing_at_end(at)
                if match is None:
                    raise
                break
        if match is not None:
            buffer.at = at
        else:
            if not tags.lasting or not (yield from buffer.match_first(tags.call_ends)):
                buffer.at += ahead + 1
                value.write(buffer.take(), buffer.offset)
                return False
            if not (yield from self._lasts(value)):
                return False
        if own := self._own.match_end(buffer.text, buffer.at):
            buffer.at = own.end
        return True

    def _missing(self, at: int) -> Match | bool | None:
        """Return the end of a value there if its closing tag is missing."""
        tags, text = self._tags, self._buffer.text
        if tags.lasting:
            return None
        for each in tags.openings:
            match = each.match(text, at)
            if match is True or (match and self._may_follow(tags.unescape(match.fields["key"]))):
                return match
        return next((match for each in tags.missing if (match := each.match(text, at))), None)

    def _missing_at_end(self, at: int) -> Match | None:
        if self._tags.lasting:
            return None
        return next((match for each in self._tags.missing if (match := each.match_end(self._buffer.text, at))), None)

    def _may_follow(self, key: str) -> bool:
        properties = self._schema.get("properties")
        return key not in self._seen and (not isinstance(properties, Mapping) or key in properties)

    def _lasts(self, value: Value) -> Reading[bool]:
        """Whether the value ends here, at an apparent end of the call inside the value. Later text decides.

        Without the value's end or another call, the text before counts as the value once there is too much of it.
        """
        buffer, tags = self._buffer, self._tags
        buffer.hold()
        buffer.discards = False
        try:
            while True:
                match = buffer.text.find("<", buffer.at)
                if match < 0:
                    buffer.at = len(buffer.text)
                    yield
                    continue
                buffer.at = match
                if (yield from buffer.match_first([self._closing])):
                    buffer.release()
                    buffer.discards = True
                    value.write(buffer.take(), buffer.offset)
                    return True
                if (yield from buffer.match_first(tags.next_calls)):
                    break
                buffer.at += 1
        except NotACall:
            buffer.release()
            buffer.discards = True
            value.write(buffer.take(), buffer.offset)
            return False
        except EndOfText:
            if self._state.why != "stop":
                raise
            buffer.at = len(buffer.text)
        buffer.release()
        buffer.discards = True
        buffer.unread(buffer.take())
        return True


class Value:
    """The text of a value: a string streams into the call, any other value is kept until it is whole."""

    def __init__(self, call: OpenCall | None, types: frozenset[str]) -> None:
        self.call = call
        self._types = types
        self._held: list[str] | None = None if types == TEXT else []
        self._quoted = False

    def write(self, text: str, end: int) -> None:
        if self.call is None:
            return
        if self._held is not None:
            self._held.append(text)
            if "string" not in self._types or _NULL.startswith(text := "".join(self._held)):
                return
            self._held = None
        self._quote(text, end)

    def _quote(self, text: str, end: int) -> None:
        if self.call is not None:
            self.call.write(escape_json(text) if self._quoted else f'"{escape_json(text)}', end)
            self._quoted = True

    def close(self, end: int, empty: Mapping[str, str] = _NONE) -> bool:
        """End the value. Return False if the text does not fit the schema; it then stays a text.

        `empty` has the values of an empty text, by type.
        """
        if self.call is None:
            return True
        fits = True
        if self._held is not None:
            text = "".join(self._held)
            json = coerce(text, self._types - TEXT)
            if not text and "string" not in self._types:
                json = next((empty[each] for each in self._types if each in empty), json)
            if json is not None:
                self.call.write(json, end)
                return True
            fits = "string" in self._types
            self._quote(text, end)
        elif not self._quoted:
            self._quote("", end)
        self.call.write('"', end)
        return fits


class _Wrapped(Value):
    """The text of a value that may contain all arguments."""

    text = ""

    def write(self, text: str, end: int) -> None:
        self.text += text

    def close(self, end: int, empty: Mapping[str, str] = _NONE) -> bool:
        return True
