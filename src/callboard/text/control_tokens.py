"""Escape control tokens of chat templates, so that no text can forge a turn.

A token is escaped by one invisible character (U+2060) after its first character, and unescaped by removing one there.
Models that copy an invisible character write others of them at times, so any of them is removed. Look-alikes are
escaped as well: characters that Unicode's NFKC folds to one of ASCII, such as full-width letters, and U+2581 for a low
line.

Laws: `unescape(escape(x))` is x for every x; no control token is in `escape(x)`; any split of a text gives the same;
linear. The first holds because invisible characters after a token's first character do not hide the token: each
escape adds one of them, and each unescape removes one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import is_
from typing import Any, Final

JOINER: Final = "\u2060"
INVISIBLE: Final = "\u200b\u200c\u200d\u2060\ufeff"
NUMBER: Final = "{n}"
"""In a token: any number, as in `<|reserved_special_token_{n}|>`."""

_DIGITS: Final = "0123456789"
_END: Final = ""
_BLOCKS: Final = ((0x80, 0x2500), (0xA69C, 0xA7FA), (0xFB00, 0xFB07), (0xFE10, 0xFFEF), (0x1D400, 0x1D800))
"""Ranges with the characters that NFKC folds to ASCII."""
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|(\\(?:u[0-9a-fA-F]{0,3})?\Z)|\\.", re.DOTALL)
"""An escape of JSON, also one that is cut off."""

_Trie = dict[str, Any]


class ControlTokens:
    """The tokens of one model. `turns` frame turns; `markup` occurs within a turn, as calls do."""

    def __init__(self, turns: Iterable[str], markup: Iterable[str] = ()) -> None:
        framing = [_fold(token) for token in turns]
        every = _trie([*framing, *[_fold(token) for token in markup]])
        self.openers = frozenset(every)
        self._every = re.compile(_pattern(every, f"[{INVISIBLE}]*"))
        self._framing = re.compile(
            f"{_pattern(_trie(framing), f'[{INVISIBLE}]*')}|{_pattern(every, f'[{INVISIBLE}]+')}"
        )
        self.escaped = re.compile(
            f"{_pattern(every, f'[{INVISIBLE}]+')}|(?P<open>{_pattern(every, f'[{INVISIBLE}]+', is_cut=True)})"
        )
        """Matches up to the character to remove, or what may become an escaped token when more of the text comes."""

    def escape(self, text: str, *, everything: bool = True) -> str:
        """Escape the control tokens. Without `everything`, markup stays as it is unless it is escaped already."""
        return self.escape_all([text], everything=everything)[0]

    def escape_all(self, texts: Sequence[str], *, everything: bool = True) -> list[str]:
        """Return the texts, none of them and not their concatenation with control tokens: a template may join them."""
        plain = _fold("".join(texts))
        if not any(opener in plain for opener in self.openers):
            return [*texts]
        places = [match.end() for match in (self._every if everything else self._framing).finditer(plain)]
        if not places:
            return [*texts]
        escaped: list[str] = []
        end = 0
        for text in texts:
            start, end = end, end + len(text)
            inside = [place - start for place in places if start < place <= end]
            pieces = zip([0, *inside], [*inside, len(text)], strict=True)
            escaped.append(JOINER.join([text[first:last] for first, last in pieces]))
        return escaped

    def unescape(self, text: str, *, in_json: bool = False) -> str:
        """Undo the escaping."""
        undoing = Unescaper(self, in_json=in_json)
        plain = undoing.feed(text) + undoing.finish()
        return text if plain == text else plain


class Unescaper:
    """Reverses `escape` in a text that comes in pieces; holds only what may turn out to be an escaped token.

    With `in_json` the text is the source of JSON. Its escapes of printable characters are written out.
    """

    def __init__(self, tokens: ControlTokens, *, in_json: bool = False) -> None:
        self._tokens = tokens
        self._in_json = in_json
        self._begin()

    def _begin(self) -> None:
        self._cut = ""
        self._held = ""
        """A token's first character, which was released already, and what came after it."""

    def feed(self, text: str) -> str:
        """Return the part of the text so far that is certain."""
        if self._in_json and (self._cut or "\\" in text):
            text = self._write_out(self._cut + text)
        if not text:
            return ""
        if not self._held and text.isascii() and text[-1] not in self._tokens.openers:
            return text
        released, text = len(self._held[:1]), self._held + text
        self._held = ""
        pieces = []
        for match in self._tokens.escaped.finditer(_fold(text)):
            if match["open"] is None:
                pieces.append(text[released : match.end() - 1])
                released = match.end()
            else:
                # Only the last of several invisible characters may be removed.
                first = match.start() + 1
                gap = len(match["open"]) - 1 - len(match["open"][1:].lstrip(INVISIBLE))
                keep = first + max(0, gap - 1)
                pieces.append(text[released:keep])
                self._held, released = text[first - 1] + text[keep:], len(text)
        return "".join([*pieces, text[released:]])

    def finish(self) -> str:
        """Return the rest, and get ready for a new text."""
        rest = self._held[1:] + self._cut
        self._begin()
        return rest

    def _write_out(self, text: str) -> str:
        self._cut = ""

        def write(match: re.Match[str]) -> str:
            if match[2]:
                self._cut = match[2]
                return ""
            char = chr(int(match[1], 16)) if match[1] else '"'
            return char if char not in '"\\' and (char.isprintable() or char in INVISIBLE) else match[0]

        return _ESCAPE.sub(write, text)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts and keys changed; the same object if nothing changes.

    `change` is first called with all texts at once, separated by NUL, because most values have nothing to change.
    The function is not recursive, because a model or a client may nest a value as deep as Python's own limit.
    """
    containers: list[Any] = []
    texts: list[str] = []
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, (dict, list, tuple)):
            containers.append(each)
            todo += (*each, *each.values()) if isinstance(each, dict) else each
    if change(joined := "\0".join(texts)) == joined:
        return value
    done: dict[int, Any] = {}

    def map_value(item: Any) -> Any:
        return change(item) if isinstance(item, str) else done.get(id(item), item)

    for each in reversed(containers):  # what is inside comes first
        if isinstance(each, dict):
            changed: Any = {change(key): map_value(item) for key, item in each.items()}
            same = len(changed) == len(each) and all(map(is_, changed, each))
            same = same and all(map(is_, changed.values(), each.values()))
        else:
            changed = [map_value(item) for item in each]
            same = all(map(is_, changed, each))
        done[id(each)] = each if same else changed
    return map_value(value)


@cache
def _folds() -> dict[int, str]:
    """Map each character to the character that it is read as, if they differ."""
    folds = {0x2581: "_"}
    for begin, end in _BLOCKS:
        for code in range(begin, end):
            plain = unicodedata.normalize("NFKC", chr(code))
            if code not in folds and len(plain) == 1 and "!" <= plain <= "~":
                folds[code] = plain
    return folds


def _fold(text: str) -> str:
    return text if text.isascii() else text.translate(_folds())


def _trie(tokens: Iterable[str]) -> _Trie:
    """By characters; every digit is `0`, and a number a `0` that any more may follow."""
    root: _Trie = {}
    for token in tokens:
        node = root
        for at, part in enumerate(token.split(NUMBER)):
            if at:
                node = node.setdefault("0", {})
                node["0"] = node
            for char in part:
                node = node.setdefault("0" if char in _DIGITS else char, {})
        node[_END] = True
    return root


def _pattern(trie: _Trie, gap: str, *, is_cut: bool = False) -> str:
    """Matches the first character of each token with its gap, so that tokens which share characters are all found.

    If `is_cut`, matches a token that the text's end cuts off.
    """
    each = [
        rf"{re.escape(char)}(?:\Z|{gap}{_rest(node, is_cut=True)})"
        if is_cut
        else f"{re.escape(char)}{gap}(?={_rest(node)})"
        for char, node in trie.items()
    ]
    return "|".join(each) or r"(?!)"


def _rest(node: _Trie, *, is_cut: bool = False) -> str:
    if _END in node:
        return "(?!)" if is_cut else ""
    parts = [r"\Z"] if is_cut else []
    for key, after in node.items():
        if after is not node:
            char = "[0-9]" + ("{1,9}" if after.get("0") is after else "") if key == "0" else re.escape(key)
            parts.append(char + _rest(after, is_cut=is_cut))
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
