"""Escape control tokens of chat templates, so that no text can forge a turn.

A token is escaped by one invisible character (U+2060) behind its first character, and unescaped by removing it.

A token is found in any of its look-alikes: in full-width and other letters that Unicode's NFKC folds, with DeepSeek's
U+2581 for a low line, and with invisible characters in it. All of these fold to the token's plain characters.

Laws: `unescape(escape(x))` is x for every x; no control token is in `escape(x)`; any split of a text gives the same;
linear. The first two hold because a token's places in a text are found without its invisible characters, so that one
more of them changes no place: each place gets one, and loses the one that stands behind its first character. Models
that copy an invisible character write others of them at times, so any of them is taken away.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import is_
from typing import Any, Final

JOINER: Final = "\u2060"
INVISIBLE: Final = "\u200b\u200c\u200d\u2060\ufeff"
NUMBER: Final = "{n}"
"""In a token: any number, as in `<|reserved_special_token_{n}|>`."""

_DIGITS: Final = frozenset("0123456789")
_END: Final = ""
_BLOCKS: Final = ((0x80, 0x2500), (0xA69C, 0xA7FA), (0xFB00, 0xFB07), (0xFE10, 0xFFEF), (0x1D400, 0x1D800))
"""Where the characters are that NFKC folds to ASCII."""
_ANY_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]")
_MAY_UNDO_IN_JSON: Final = re.compile(rf"[{INVISIBLE}]|\\u(?:200[bcd]|2060|feff)", re.IGNORECASE)
_UNIT: Final = re.compile(r"\\u[0-9a-fA-F]{4}|\\[^u]|.", re.DOTALL)
"""One character of a JSON string, escaped or not."""
_OPEN_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
_LONGEST_ESCAPE: Final = 6
_NAMED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

_Trie = dict[str, Any]


class ControlTokens:
    """The tokens of one model. `turns` are those that frame turns, `markup` those that stand within one, as calls do."""

    def __init__(self, turns: Iterable[str], markup: Iterable[str] = ()) -> None:
        framing = [_fold(token) for token in turns]
        every = [*framing, *[_fold(token) for token in markup]]
        self.trie = _trie(every)
        self._stems = tuple(dict.fromkeys([token[:2] for token in every]))
        self._every = re.compile(_pattern(self.trie))
        self._framing = re.compile(_pattern(_trie(framing)))

    def escape(self, text: str, *, everything: bool = True, in_json: bool = False) -> str:
        """The text without control tokens.

        Args:
            text: Any text.
            everything: Markup is escaped too; else it stays, unless an invisible character stands in it already.
            in_json: The text is JSON's source, in which a token may be written with escapes.
        """
        return self.escape_all([text], everything=everything, in_json=in_json)[0]

    def escape_all(self, texts: Sequence[str], *, everything: bool = True, in_json: bool = False) -> list[str]:
        """The texts, none of them and not their concatenation with control tokens: a template may join them."""
        joined = "".join(texts)
        places = self._places(joined, everything=everything, in_json=in_json)
        if not places:
            return [*texts]
        escaped: list[str] = []
        begin = at = 0
        for text in texts:
            pieces, last, end = [], begin, begin + len(text)
            while at < len(places) and places[at] <= end:
                pieces.append(joined[last : places[at]])
                last = places[at]
                at += 1
            escaped.append(JOINER.join([*pieces, joined[last:end]]))
            begin = end
        return escaped

    def unescape(self, text: str, *, in_json: bool = False) -> str:
        """What was escaped, as it was."""
        undoing = Unescaper(self, in_json=in_json)
        return undoing.feed(text) + undoing.finish()

    def _places(self, text: str, *, everything: bool, in_json: bool) -> list[int]:
        """Where a joiner belongs: behind the first characters of tokens."""
        escapes = in_json and "\\" in text
        plain, ends = (text, None) if text.isascii() and not escapes else _fold_with_ends(text, escapes=escapes)
        if not any(stem in plain for stem in self._stems):
            return []
        places: list[int] = []
        for match in self._every.finditer(plain):
            end = match.end() if ends is None else ends[match.start()]
            if everything or self._framing.match(plain, match.start()) or _is_behind(text, end, escapes=escapes):
                places.append(end)
        return places


class Unescaper:
    """Takes escapes back in a text that comes in pieces; holds only what may turn out to be one."""

    def __init__(self, tokens: ControlTokens, *, in_json: bool = False) -> None:
        self._tries = tokens.trie
        self._in_json = in_json
        self._begin()

    def _begin(self) -> None:
        self._cut = ""
        """A JSON escape as far as it came."""
        self._opener = ""
        """The last character, where a token may begin with it; "-" of such in front of an invisible one is forgotten."""
        self._held: list[str] = []
        self._open: list[tuple[int, _Trie]] = []
        """Tokens that may be: where in what is held their invisible character is, and what has to follow."""

    def feed(self, text: str) -> str:
        """What of the text so far is certain."""
        if not text:
            return ""
        if not self._held and not self._cut and self._is_plain(text):
            self._opener = last if (last := _plain(text[-1])[-1:]) in self._tries else ""
            return text
        text = self._cut + text
        self._cut = ""
        units: Iterable[str] = text
        if self._in_json:
            if open_escape := _OPEN_ESCAPE.search(text):
                self._cut = open_escape[1]
                text = text[: open_escape.start(1)]
            units = _UNIT.findall(text)
        for unit in units:
            self._take(unit)
        return self._release()

    def finish(self) -> str:
        """The rest; the next text begins anew."""
        rest = "".join(self._held) + self._cut
        self._begin()
        return rest

    def _is_plain(self, text: str) -> bool:
        if self._in_json:
            return "\\" not in text[-_LONGEST_ESCAPE:] and _MAY_UNDO_IN_JSON.search(text) is None
        return text.isascii() or _ANY_INVISIBLE.search(text) is None

    def _take(self, unit: str) -> None:
        char = _decode(unit)
        self._held.append(unit)
        if char in INVISIBLE:
            if self._opener:
                self._open.append((len(self._held) - 1, self._tries[self._opener]))
            self._opener = ""
            return
        for plain in _plain(char):
            key = "0" if plain in _DIGITS else plain
            going: list[tuple[int, _Trie]] = []
            for place, node in self._open:
                if (after := node.get(key)) is None:
                    continue
                if _END in after:
                    self._held[place] = ""
                else:
                    going.append((place, after))
            self._open = going
            self._opener = plain if plain in self._tries else ""

    def _release(self) -> str:
        count = self._open[0][0] if self._open else len(self._held)
        text = "".join(self._held[:count])
        del self._held[:count]
        self._open = [(place - count, node) for place, node in self._open]
        return text


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with its texts and keys changed; the same object where none changes.

    Without recursion, for a model or a client may nest a value as deep as Python's own limit.
    """
    containers: list[Any] = []
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, (dict, list, tuple)):
            containers.append(each)
            todo += each.values() if isinstance(each, dict) else each
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
    """What each character is read as, where that is not itself."""
    folds = {0x2581: "_", **{ord(char): "" for char in INVISIBLE}}
    for begin, end in _BLOCKS:
        for code in range(begin, end):
            plain = unicodedata.normalize("NFKC", chr(code))
            if code not in folds and plain.isascii() and plain.isprintable() and " " not in plain:
                folds[code] = plain
    return folds


@cache
def _uneven() -> re.Pattern[str]:
    """Characters that fold to none or to several."""
    chars = "".join([chr(code) for code, plain in _folds().items() if len(plain) != 1])
    return re.compile(f"[{re.escape(chars)}]")


def _plain(char: str) -> str:
    return char if char.isascii() else _folds().get(ord(char), char)


def _fold(text: str) -> str:
    return text.translate(_folds())


def _decode(unit: str) -> str:
    """The character that an escape of JSON stands for."""
    if len(unit) == 1:
        return unit
    code = unit.removeprefix("\\u")
    return chr(int(code, 16)) if code != unit else _NAMED.get(unit[1], unit[1])


def _fold_with_ends(text: str, *, escapes: bool) -> tuple[str, Sequence[int] | None]:
    """What the text is read as, and for each character where that which it was read from ends; None for one to one."""
    if not escapes and _uneven().search(text) is None:
        return _fold(text), None
    plain: list[str] = []
    ends: list[int] = []
    for unit, end in _units(text) if escapes else zip(text, range(1, len(text) + 1), strict=True):
        for char in _plain(_decode(unit)):
            plain.append(char)
            ends.append(end)
    return "".join(plain), ends


def _units(text: str) -> Iterator[tuple[str, int]]:
    return ((match[0], match.end()) for match in _UNIT.finditer(text))


def _is_behind(text: str, place: int, *, escapes: bool) -> bool:
    """Whether an invisible character stands there."""
    if escapes:
        match = _UNIT.match(text, place)
        return match is not None and _decode(match[0]) in INVISIBLE
    return text[place : place + 1] in tuple(INVISIBLE)


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


def _pattern(trie: _Trie) -> str:
    """Matches the first character of each token, so that those which share characters are all found."""
    each = [f"{re.escape(char)}(?={_behind(node)})" for char, node in trie.items()]
    return "|".join(each) or r"(?!)"


def _behind(node: _Trie) -> str:
    if _END in node:
        return ""
    parts = []
    for key, after in node.items():
        if after is node:
            continue
        char = "[0-9]" + ("+" if after.get("0") is after else "") if key == "0" else re.escape(key)
        parts.append(char + _behind(after))
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
