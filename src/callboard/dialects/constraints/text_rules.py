"""Rules for text that is free up to certain words.

Theory of operation. A word is a tuple of characters, with BLANK where there may be white space. From the words a
deterministic automaton is made (subset construction; for words without blanks it is Aho and Corasick's): its states
are sets of places in the words. Each state becomes a rule that names the next character and the next state, and may
end. So a grammar that is held from the first character says what only a lazy one could else: text is free until a
call has begun. Servers that take a grammar beside no trigger (llama.cpp's /v1/chat/completions) are asked that way.

Law: a text of these rules has none of the words, except at the end of it where the word goes on as its rule says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from callboard.dialects.constraints.rules import NOTHING, GrammarRules, characters, sequence

BLANK: Final = ""
"""White space or none, inside a word."""
Word: TypeAlias = tuple[str, ...]
_NEVER_QUOTED = '"\\\\\\x00-\\x1F\\x7F'
_BLANKS = " \t\n\r"
_Place: TypeAlias = tuple[int, int]
_State: TypeAlias = frozenset[_Place]


def word_of(text: str) -> Word:
    return tuple(text)


def pattern_of(words: Iterable[Word]) -> re.Pattern[str]:
    """Finds the words in a text."""
    return re.compile(
        "|".join(["".join([r"\s*" if char == BLANK else re.escape(char) for char in word]) for word in words])
    )


def text_without(
    rules: GrammarRules, words: Sequence[Word], hint: str = "text", *, quoted: str = "", is_empty: bool = True
) -> str:
    """Text that has none of the words.

    Args:
        rules: Take the rules.
        words: What it has not.
        hint: What the rules are called.
        quoted: The text stands in a JSON string, and this is the rule of its escapes.
        is_empty: It may have no characters.
    """
    return _Automaton(words, quoted=quoted).write(rules, hint, (), is_empty=is_empty)


def text_until(rules: GrammarRules, words: Mapping[Word, str], *, begins_line: bool = False, hint: str = "text") -> str:
    """Text in which each of the words is followed by what is said of it, and then by more text.

    Args:
        rules: Take the rules.
        words: For each word the expression of what follows it.
        begins_line: The text begins as if a newline was before it.
        hint: What the rules are called.
    """
    return _Automaton(list(words), begins_line=begins_line).write(rules, hint, list(words.values()))


class _Automaton:
    """Reads text, and knows how much of which word its end is."""

    def __init__(self, words: Sequence[Word], *, begins_line: bool = False, quoted: str = "") -> None:
        self._words = words
        self._quoted = quoted
        self._start = self._close({(at, 0) for at in range(len(words))})
        self._first = self._moves(self._start).get("\n", self._start) if begins_line else self._start

    def write(self, rules: GrammarRules, hint: str, follows: Sequence[str], *, is_empty: bool = True) -> str:
        """The name of the rule of text; what ends a word is left out where nothing follows words."""
        names = {state: rules.reserve(hint) for state in dict.fromkeys([self._first, self._start])}
        again = names[self._start]
        waiting, first = list(names), ""
        while waiting:
            state = waiting.pop()
            steps: dict[str, list[str]] = {}
            moves = self._moves(state)
            for char, target in moves.items():
                end = self._find_end(target)
                if end is not None and not follows:
                    continue
                if end is None and target not in names:
                    names[target] = rules.reserve(hint)
                    waiting.append(target)
                then = names[target] if end is None else sequence([follows[end], again])
                steps.setdefault(then, []).append(char)
            body = [f"{characters(chars)} {then}".rstrip() for then, chars in steps.items()]
            body.append(f"{self._others(moves)} {again}")
            if self._quoted:
                body.append(f"{self._quoted} {again}")
            rules.define(names[state], " | ".join([NOTHING, *body]))
            first = " | ".join(body) if state == self._first else first
        return names[self._first] if is_empty else rules.add(hint, first)

    def _others(self, moves: Mapping[str, _State]) -> str:
        """Any character that leads to no word."""
        others = characters(moves, other=True)
        return others.removesuffix("]") + _NEVER_QUOTED + "]" if self._quoted else others

    def _moves(self, state: _State) -> dict[str, _State]:
        """Where each character leads that is one of a word's next; any other leads to the start."""
        chars: dict[str, set[_Place]] = {}
        blanks: set[_Place] = set()
        for at, place in state:
            word = self._words[at]
            if word[place] == BLANK:
                blanks.add((at, place))
            else:
                chars.setdefault(word[place], set()).add((at, place + 1))
        if blanks:
            for char in _BLANKS:
                chars.setdefault(char, set()).update(blanks)
        return {char: self._close(places) | self._start for char, places in chars.items()}

    def _close(self, places: set[_Place]) -> _State:
        closed = set(places)
        for at, place in places:
            while place < len(self._words[at]) and self._words[at][place] == BLANK:
                place += 1  # noqa: PLW2901  # white space may be left out
                closed.add((at, place))
        return frozenset(closed)

    def _find_end(self, state: _State) -> int | None:
        """The word that ends here: the longest, and of several the first."""
        ended = [at for at, place in state if place == len(self._words[at])]
        return min(ended, key=lambda at: (-len(self._words[at]), at)) if ended else None
