"""Text without its disguises, to compare texts by their words. A parser must not read a normal form.

The same words appear with other white space, in a JSON string (once or twice escaped), as HTML, in full-width letters,
after `> ` or after a line's number. `normal_form` removes these disguises and the case. `spellings` removes one disguise
after another and keeps everything else, so that a parser can read what a disguise hides.

Law: linear in the text.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Final

_LAYERS: Final = 5
"""Escapes inside escapes that are undone: HTML within JSON within JSON."""
_PAIR: Final = re.compile(r"(?<!\\)\\+u(d[89ab][0-9a-f]{2})\\+u(d[c-f][0-9a-f]{2})", re.IGNORECASE)
_CODE_POINT: Final = re.compile(r"(?<!\\)\\+(?:u([0-9a-f]{4})|u\{([0-9a-f]{1,6})\}|x([0-9a-f]{2}))", re.IGNORECASE)
_LINE_BREAK: Final = re.compile(r"(?<!\\)\\+[nr]")
_TAB: Final = re.compile(r"(?<!\\)\\+t")
_BACKSLASHES: Final = re.compile(r"\\+")
_ESCAPE: Final = re.compile(
    r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-f]{4})|u\{([0-9a-f]{1,6})\}|x([0-9a-f]{2})|(.))",
    re.IGNORECASE | re.DOTALL,
)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_INVISIBLE: Final = frozenset({"Cf", "Cc", "Cs", "Mn"})
"""Categories of characters that do not show, or only change the one before them."""
_PREFIX: Final = re.compile(r"^(?:[>|+#*-] ?|[ \t]*(?:[\w./-]{1,200}[:-])?\d{1,9} ?[:|\u2192\t -] ?)+", re.MULTILINE)
"""The beginning of each line of a quotation, a comment, a difference, a listing, or a search result."""
_TAG: Final = re.compile(r"<[^<>]{0,200}>")
_NOT_BARE: Final = re.compile(r"\\+(?:u[0-9a-fA-F]{4}|[nrtbf])?|[^A-Za-z0-9\\]+")
_CODE: Final = re.compile(
    r"(?<![`~])(`{3,9}|~{3,9})(?![`~])[^\n`]{0,200}\n(?P<fenced>.*?)(?:\1(?!\w)|\Z)"
    r"|<pre\b[^>]{0,200}>(?P<pre>.*?)(?:</pre>|\Z)|^(?P<line>[$%>] .+?)$",
    re.DOTALL | re.MULTILINE,
)
_PROMPT: Final = re.compile(r"^[$%>] ?", re.MULTILINE)


def normal_form(text: str) -> str:
    """Return the text with escapes and entities undone, in one case, with single blanks and line breaks."""
    for _ in range(_LAYERS):
        undone = _undo(text)
        if undone == text:
            break
        text = undone
    if "\\" in text:
        text = _BACKSLASHES.sub("", _TAB.sub(" ", _LINE_BREAK.sub("\n", text)))
    lines = [" ".join(line.split()) for line in visible(text).casefold().splitlines()]
    return "\n".join([line for line in lines if line])


def spellings(text: str) -> tuple[str, ...]:
    """Return the text, then the text without one, two, three ... of its disguises; each one once."""
    layers = [text]
    for _ in range(_LAYERS):
        undone = html.unescape(layers[-1])
        decoded = _ESCAPE.sub(_unescape, undone) if "\\" in undone else undone
        if decoded == layers[-1]:
            break
        layers += [undone, decoded]
    layers = list(dict.fromkeys(layers))
    layers += [shown for each in layers if (shown := visible(each)) != each]
    bare = [without_prefixes(each) for each in layers] + [_TAG.sub("", each) for each in layers if "</" in each]
    return tuple(dict.fromkeys([*layers, *bare]))


def bare(text: str) -> str:
    """Return the text's letters and digits, which escapes do not change."""
    return _NOT_BARE.sub("", text)


def code_blocks(text: str) -> list[str]:
    """Return the code in the text's fences and `<pre>` elements, and the lines with a prompt, all without prompts."""
    codes = [match["fenced"] or match["line"] or _TAG.sub("", match["pre"] or "") for match in _CODE.finditer(text)]
    return [_PROMPT.sub("", code).strip() for code in codes]


def without_prefixes(text: str) -> str:
    """Return the text without the prefix of its lines, if several lines share one."""
    stripped, count = _PREFIX.subn("", text)
    return stripped if count > 1 else text


def visible(text: str) -> str:
    """Return the text in plain letters, without the characters that do not show."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    hidden = {ord(each): None for each in set(text) if unicodedata.category(each) in _INVISIBLE and not each.isspace()}
    return text.translate(hidden) if hidden else text


def _undo(text: str) -> str:
    if "&" in text:
        text = html.unescape(text)
    if "\\" in text:
        text = _CODE_POINT.sub(_character, _PAIR.sub(_astral, text))
    return text


def _unescape(escape: re.Match[str]) -> str:
    """Decode one escape. The backslashes before it are escapes of their own."""
    if escape[1]:
        return _astral(escape)
    return _ESCAPED.get(escape[6], escape[6]) if escape[6] else _decode(escape[3] or escape[4] or escape[5])


def _astral(pair: re.Match[str]) -> str:
    high, low = int(pair[1], 16), int(pair[2], 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _character(match: re.Match[str]) -> str:
    return _decode(match[1] or match[2] or match[3])


def _decode(hexadecimal: str) -> str:
    code = int(hexadecimal, 16)
    return chr(code) if code <= 0x10FFFF else ""
