"""Text without its disguises.

The same words come in many coats: with other white space, inside a JSON string (once or twice escaped), as HTML, in
full-width letters, behind `> ` or a line's number. `normal_form` takes them off, so that two texts can be compared by
what they say. It is for comparing only: what a text means to a parser does not survive it.

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
_INVISIBLE: Final = frozenset({"Cf", "Cc", "Cs", "Mn"})
"""Categories of characters that do not show, or only change the one before them."""
_PREFIX: Final = re.compile(r"^(?:[>|+#*-] ?|(?:[\w./-]{1,200}[:-])?\d{1,9} ?[:|\u2192 -] ?)+", re.MULTILINE)
"""What stands before each line of a quotation, a comment, a difference, a listing, or what a search found."""
_SQUEEZED: Final = str.maketrans("", "", " \n")


def normal_form(text: str) -> str:
    """The text with escapes and entities undone, in one case, with single blanks and line breaks."""
    for _ in range(_LAYERS):
        undone = _undo(text)
        if undone == text:
            break
        text = undone
    if "\\" in text:
        text = _BACKSLASHES.sub("", _TAB.sub(" ", _LINE_BREAK.sub("\n", text)))
    if not text.isascii():
        text = _visible(unicodedata.normalize("NFKC", text))
    lines = [" ".join(line.split()) for line in text.casefold().splitlines()]
    return "\n".join([line for line in lines if line])


def without_prefixes(form: str) -> str:
    """A normal form without what stands before its lines; the same where that is not several of them."""
    stripped, count = _PREFIX.subn("", form)
    return stripped if count > 1 else form


def squeeze(form: str) -> str:
    """A normal form without white space."""
    return form.translate(_SQUEEZED)


def may_hide(text: str) -> bool:
    """Whether a text may say something in its normal form that it does not say as it is, but for case and blanks."""
    return "\\" in text or "&" in text or not text.isascii()


def _undo(text: str) -> str:
    if "&" in text:
        text = html.unescape(text)
    if "\\" in text:
        text = _CODE_POINT.sub(_character, _PAIR.sub(_astral, text))
    return text


def _astral(pair: re.Match[str]) -> str:
    high, low = int(pair[1], 16), int(pair[2], 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2] or match[3], 16)
    return chr(code) if code <= 0x10FFFF else ""


def _visible(text: str) -> str:
    if text.isascii():
        return text
    hidden = {ord(each): None for each in set(text) if unicodedata.category(each) in _INVISIBLE and not each.isspace()}
    return text.translate(hidden) if hidden else text
