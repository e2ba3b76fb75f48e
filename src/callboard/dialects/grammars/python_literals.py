"""Convert values in Python's literals, or in a dialect's own quotes, to JSON as they arrive.

Law: each character is read once. Written text never changes. Nesting takes no stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache

import msgspec

from callboard.dialects.call_builder import escape_json, quote_json
from callboard.dialects.text_buffer import EndOfText, Reading, TextBuffer, Write

MAX_DEPTH = 500
_LAST = 0x10FFFF
_MAX_QUOTE = 16
_PREFIXES = ("r", "R", "u", "U", "b", "B", "f", "F")
_MAX_WORD = 4096
_HEX = {"x": 2, "u": 4, "U": 8}
_HEX_DIGITS = re.compile(r"[0-9a-fA-F]*")
_OCTAL = re.compile(r"[0-7]{1,3}")
_LOW = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_LOW_BEGUN = re.compile(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?")
_SIMPLE = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
}
_ESCAPE = re.compile(r"(\\.)")
_SAME_ESCAPE = r'|\\[\\"nrtbf]'
"""Matches escapes that JSON spells alike."""
_WORD_ENDS = r"\s,:=\[\]{}()\"'<"
_BARE_ENDS = r",\]})\n"
_WORDS = {
    "True": "true",
    "true": "true",
    "False": "false",
    "false": "false",
    "None": "null",
    "null": "null",
}
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PADDED = re.compile(r"[+-]?0\d+")
_AFTER_STRING = re.compile(r"\s*(?:([,:)\]}])|\S)")
_OPENERS = {"[": "]", "(": ")", "{": "}"}


class LiteralSyntax(msgspec.Struct, frozen=True, eq=False):
    """How values are written. `quotes` open and close strings, longest first. In strings with quotes in `escapes`, a
    backslash escapes. `bare` accepts words without quotes as strings. `separators` follow keys. With `unescaped`, a
    quote belongs to its string if the text after it cannot follow a string.
    """

    quotes: tuple[str, ...] = ('"""', "'''", '"', "'")
    escapes: frozenset[str] = frozenset({'"""', "'''", '"', "'"})
    separators: str = ":"
    bare: bool = False
    unescaped: bool = False


PYTHON = LiteralSyntax()


class NotALiteral(Exception):  # reports to a reader that there is no literal here
    """The text at the buffer's position is not a literal."""


class LiteralToJson:
    """A reader of the text inside a call's parentheses or braces that writes it as a JSON object."""

    def __init__(self, literals: LiteralSyntax, buffer: TextBuffer, write: Write, keys: Sequence[str] = ()) -> None:
        self._literals = literals
        self._buffer = buffer
        self._write = write
        self._keys = iter(keys)
        self._named: set[str] = set()

    def arguments(self, closer: str, separators: str) -> Reading[None]:
        """Read the arguments and the closer. Values without a key take the next of the given keys.

        Raises Broken.
        """
        buffer = self._buffer
        self._write("{", buffer.offset)
        first = True
        while True:
            yield from buffer.skip_blank()
            if buffer.text[buffer.at] == closer:
                buffer.at += 1
                self._write("}", buffer.offset)
                return
            comma = "" if first else ","
            first = False
            word = yield from self._key(separators)
            if word is None:
                key = self._next_key()
                self._name(comma, key)
                yield from self.value()
            elif word[1]:
                self._name(comma, word[0])
                yield from self.value()
            else:
                key = self._next_key()
                self._name(comma, key)
                yield from self._word(word[0])
            yield from self._comma(closer)

    def _name(self, comma: str, key: str) -> None:
        if key in self._named:
            raise NotALiteral
        self._named.add(key)
        self._write(f"{comma}{quote_json(key)}:", self._buffer.offset)

    def _next_key(self) -> str:
        for key in self._keys:
            if key not in self._named:
                return key
        raise NotALiteral

    def value(self) -> Reading[None]:
        """Read one value, with all values inside it. Raises Broken."""
        buffer = self._buffer
        closers: list[str] = []
        while True:
            yield from buffer.skip_blank()
            char = buffer.text[buffer.at]
            if char in _OPENERS:
                if len(closers) == MAX_DEPTH:
                    raise NotALiteral
                buffer.at += 1
                closers.append(_OPENERS[char])
                self._write("{" if char == "{" else "[", buffer.offset)
                yield from buffer.skip_blank()
                if buffer.text[buffer.at] != closers[-1]:
                    if char == "{":
                        yield from self._member()
                    continue
            else:
                yield from self._scalar()
            # After a value, or at the end of an empty container.
            while closers:
                if (yield from self._comma(closers[-1])):
                    yield from buffer.skip_blank()
                    if buffer.text[buffer.at] != closers[-1]:
                        self._write(",", buffer.offset)
                        if closers[-1] == "}":
                            yield from self._member()
                        break
                buffer.at += 1
                self._write("}" if closers.pop() == "}" else "]", buffer.offset)
            else:
                return

    def _comma(self, closer: str) -> Reading[bool]:
        """Read the comma after a value. Return False if the container is closed instead."""
        buffer = self._buffer
        yield from buffer.skip_blank()
        char = buffer.text[buffer.at]
        if char == ",":
            buffer.at += 1
            return True
        if char == closer:
            return False
        raise NotALiteral

    def _member(self) -> Reading[None]:
        """Read the key of an object's member and its separator."""
        buffer, literals = self._buffer, self._literals
        if quote := (yield from self._quote()):
            yield from self._string(quote, self._write)
        else:
            key = yield from self._until(literals.separators if literals.bare else _WORD_ENDS)
            if not key or not (literals.bare or _JSON_NUMBER.fullmatch(key)):
                raise NotALiteral
            self._write(quote_json(key), buffer.offset)
        yield from self._separator(literals.separators)
        self._write(":", buffer.offset)

    def _separator(self, separators: str) -> Reading[None]:
        yield from self._buffer.skip_blank()
        if self._buffer.text[self._buffer.at] not in separators:
            raise NotALiteral
        self._buffer.at += 1

    def _key(self, separators: str) -> Reading[tuple[str, bool] | None]:
        """Return an argument's key and True, another word and False, or None if a value begins that is not a word."""
        buffer = self._buffer
        if self._literals.bare:
            if quote := (yield from self._quote()):
                pieces: list[str] = []
                yield from self._string(quote, lambda piece, _: pieces.append(piece))
                word = str(json.loads("".join(pieces)))
            else:
                word = yield from self._until(separators)
            yield from self._separator(separators)
            return word, True
        char = yield from buffer.peek()
        if not (char.isalpha() or char == "_"):
            return None
        word = yield from self._until(_WORD_ENDS)
        yield from buffer.skip_blank()
        if buffer.text[buffer.at] in separators and word.isidentifier():
            buffer.at += 1
            return word, True
        return word, False

    def _until(self, ends: str) -> Reading[str]:
        """Return the text before one of these characters."""
        buffer = self._buffer
        pattern = _class(ends)
        pieces: list[str] = []
        size = 0
        while True:
            match = pattern.search(buffer.text, buffer.at)
            end = len(buffer.text) if match is None else match.start()
            end = min(end, buffer.at + _MAX_WORD + 1 - size)
            pieces.append(buffer.text[buffer.at : end])
            size += end - buffer.at
            buffer.at = end
            if size > _MAX_WORD:
                raise NotALiteral
            if match is not None:
                return "".join(pieces).strip()
            yield

    def _scalar(self) -> Reading[None]:
        if quote := (yield from self._quote()):
            yield from self._string(quote, self._write)
            return
        word = yield from self._until(_BARE_ENDS if self._literals.bare else _WORD_ENDS)
        yield from self._word(word)

    def _word(self, word: str) -> Reading[None]:
        """Write a constant, a number, a string after its prefix, or a string without quotes."""
        write, offset = self._write, self._buffer.offset
        if word in _WORDS:
            write(_WORDS[word], offset)
        elif (number := _number(word)) is not None:
            write(number, offset)
        elif self._literals.bare and word:
            write(quote_json(word), offset)
        elif word in _PREFIXES and (quote := (yield from self._quote())):
            yield from self._string(quote, write, raw=word in "rR")
        else:
            raise NotALiteral

    def _quote(self) -> Reading[str]:
        """Read the opening quotes of a string and return them, or "" if there are none."""
        buffer = self._buffer
        while True:
            rest = buffer.text[buffer.at : buffer.at + _MAX_QUOTE]
            for quote in self._literals.quotes:
                if rest.startswith(quote):
                    buffer.at += len(quote)
                    return quote
                if quote.startswith(rest):
                    break
            else:
                return ""
            yield

    def _string(self, quote: str, write: Write, *, raw: bool = False) -> Reading[None]:
        """Write the characters of a string, and read its closing quotes."""
        buffer = self._buffer
        escapes = not raw and quote in self._literals.escapes
        stop = _class(re.escape(quote[0]) + (r"\\" if escapes else ""))
        plain = re.compile(f"(?:[^{stop.pattern[1:]}++{_SAME_ESCAPE * escapes})*+")
        spell = _escape_rest if escapes else escape_json
        write('"', buffer.offset)
        while True:
            at = buffer.at
            match = stop.search(buffer.text, at)
            end = len(buffer.text) if match is None else match.start()
            if end > at:
                write(escape_json(buffer.text[at:end]), buffer.base + end)
                buffer.at = end
            if match is None:
                yield from buffer.write_plain(plain, lambda text, end: write(spell(text), end))
            elif match[0] == "\\" and escapes:
                yield from self._escape(write)
            elif buffer.text.startswith(quote, end):
                goes_on = self._literals.unescaped and (yield from self._goes_on(write))
                if not goes_on:
                    buffer.at += len(quote)
                    write('"', buffer.offset)
                    return
                write(escape_json(buffer.text[buffer.at]), buffer.offset)
                buffer.at += 1
            elif quote.startswith(buffer.text[end:]):
                yield
            else:
                buffer.at = end + 1
                write(escape_json(buffer.text[end]), buffer.offset)

    def _goes_on(self, write: Write) -> Reading[bool]:
        """Whether the model forgot to escape this quote: the text after it cannot follow a string."""
        buffer = self._buffer
        while not (match := _AFTER_STRING.match(buffer.text, buffer.at + 1)):
            try:
                yield
            except EndOfText:
                write('"', buffer.offset)
                raise
        return not match[1]

    def _escape(self, write: Write) -> Reading[None]:
        buffer = self._buffer
        while (spelled := _decode_escape(buffer.text, buffer.at)) is None:
            yield
        text, size = spelled
        buffer.at += size
        write(escape_json(text), buffer.offset)


def _escape_rest(text: str) -> str:
    """Escape the text between escapes that JSON spells alike."""
    if "\\" not in text:
        return escape_json(text)
    return "".join([each if each.startswith("\\") else escape_json(each) for each in _ESCAPE.split(text)])


def _decode_escape(text: str, at: int) -> tuple[str, int] | None:
    """Return the character and the length of the escape at that position, or None if the text ends too early."""
    if at + 1 == len(text):
        return None
    kind = text[at + 1]
    if octal := _OCTAL.match(text, at + 1, at + 4):
        digits = octal[0]
        return None if at + 1 + len(digits) == len(text) and len(digits) < 3 else (chr(int(digits, 8)), 1 + len(digits))
    if kind not in _HEX:
        return _SIMPLE.get(kind, text[at : at + 2]), 2
    size = _HEX[kind]
    digits = _HEX_DIGITS.match(text, at + 2, at + 2 + size)[0]  # type: ignore[index]  # it also matches no digits
    if len(digits) < size:
        return None if at + 2 + len(digits) == len(text) else ("\\", 1)
    code = int(digits, 16)
    if kind == "u" and 0xD800 <= code < 0xDC00:
        low = text[at + 6 : at + 12]
        if _LOW.fullmatch(low):
            return chr(0x10000 + ((code & 0x3FF) << 10) + (int(text[at + 8 : at + 12], 16) & 0x3FF)), 12
        if at + 6 + len(low) == len(text) and _LOW_BEGUN.fullmatch(low):
            return None
    return chr(code) if code <= _LAST else "\ufffd", 2 + size


def _number(word: str) -> str | None:
    if _JSON_NUMBER.fullmatch(word):
        return word
    if _PADDED.fullmatch(word):
        return str(int(word))
    plain = word.replace("_", "")
    try:
        return str(int(plain, 0))
    except ValueError:
        pass
    try:
        value = float(plain)
    except ValueError:
        return None
    return repr(value) if value - value == 0 else None


@cache
def _class(chars: str) -> re.Pattern[str]:
    return re.compile(f"[{chars}]")


def json_of(text: str, literals: LiteralSyntax = PYTHON) -> str | None:
    """Return the JSON of a whole literal, or None if the text is not a literal."""
    buffer = TextBuffer()
    buffer.push(text)
    pieces: list[str] = []
    reading = LiteralToJson(literals, buffer, lambda piece, _: pieces.append(piece)).value()
    try:
        next(reading)
        reading.throw(EndOfText())
    except StopIteration:
        return "".join(pieces) if not buffer.text[buffer.at :].strip() else None
    except (EndOfText, NotALiteral):
        return None
    return None
