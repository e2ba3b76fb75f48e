"""Find the values of a call that do not occur in the conversation: a model that lacks a value makes one up.

Required values are checked, and optional values too, but only values that somebody must have said. Flags, choices of an
`enum` and defaults are skipped. A number may occur in words, with separators or as a percentage, a date in parts, a
text as any of its longer words. An empty text does not count as a value. Any value may occur in a picture or a file.

Law: linear in the conversation, which is read once for all calls of a reply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from callboard.schema.subschemas import IN_PLACE
from callboard.text.normal_form import normal_form

_NUMBER: Final = re.compile(r"\d+(?:[.,_]\d+)*(?:e[-+]?\d+)?")
_SEPARATOR: Final = re.compile(r"[.,_]|e[-+]?")
_WORD: Final = re.compile(r"[^\W\d_]+")
_LONG: Final = 4
"""Minimum letters of a word that is enough to find a text."""
_STEM: Final = 5
"""Letters that two forms of a word share: Paris and Parisian, dance and dancing."""
_LENIENT_STEM: Final = 3
"""Shared letters when only a value is removed and no call is stopped: women and woman."""
_NUMBER_WORDS: Final = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty
"""
_TENS: Final = "thirty forty fifty sixty seventy eighty ninety"
_MONTHS: Final = "january february march april may june july august september october november december"
_OTHER_WORDS: Final = "a=1 an=1 once=1 half=0.5 twice=2 double=2 dozen=12 first=1 second=2 third=3 fourth=4 fifth=5"
_WORDS: Final[Mapping[str, float]] = {
    **{word: value for value, word in enumerate(_NUMBER_WORDS.split())},
    **{word: 10.0 * value for value, word in enumerate(_TENS.split(), 3)},
    **{word[:end]: value for value, word in enumerate(_MONTHS.split(), 1) for end in (3, 4, len(word))},
    **{word: float(value) for word, _, value in [each.partition("=") for each in _OTHER_WORDS.split()]},
}
"""Values of words that mean numbers, and of months by their first letters too."""
_SCALES: Final = (1.0, 100.0, 1_000.0, 1_000_000.0, 1_000_000_000.0)
"""Possible factors of a number in a text: percent, thousand, million, billion."""
_DIGITS: Final = 12
"""Digits of a number that are compared: 0.07 times 100 is not 7.0."""
_MAX_VALUES: Final = 64
"""Maximum values of a call that are checked. A longer list is data from a tool or a pasted text."""
_CONDITIONS: Final = IN_PLACE | {"$ref", "dependentRequired", "minProperties"}
"""Keywords with which a schema may require a parameter that its `required` does not name."""


class ConversationText:
    """The text of a conversation, prepared for finding values.

    Args:
        texts: All texts of the conversation.
        is_complete: False if the conversation also has pictures or other contents.
    """

    def __init__(self, texts: Iterable[str], *, is_complete: bool = True) -> None:
        self._texts = tuple(texts)
        self._is_complete = is_complete

    @cached_property
    def _form(self) -> str:
        return normal_form("\n".join(self._texts))

    @cached_property
    def _stems(self) -> frozenset[str]:
        words = _WORD.findall(self._form)
        return frozenset([word[:stem] for word in words for stem in (_STEM, _LENIENT_STEM)])

    @cached_property
    def _numbers(self) -> frozenset[float]:
        digits = [number for each in _NUMBER.findall(self._form) for way in _read_number(each) for number in way]
        return frozenset([*digits, *[_WORDS[word] for word in _WORD.findall(self._form) if word in _WORDS]])

    @cached_property
    def _is_in_latin_letters(self) -> bool:
        letters = [each for each in self._form if each.isalpha()]
        return sum(each.isascii() for each in letters) * 2 >= len(letters)

    def says(self, value: object, *, stem: int = _STEM) -> bool:
        """Whether the conversation contains the value. Words match if their first `stem` letters are equal."""
        match value:
            case bool() | None | 0 | 1:
                return True  # nobody says "one month" for 1
            case int() | float():
                return not self._is_complete or self._says_number(value)
            case str():
                return self._says_text(normal_form(value), stem)
            case _:
                return True

    def _says_number(self, value: float) -> bool:
        try:
            value = abs(float(value))
        except OverflowError:  # an integer of hundreds of digits is infinite, and so is its number in a text
            value = math.inf
        scaled = [value * scale for scale in _SCALES] + [value / scale for scale in _SCALES]
        return any(_round(each) in self._numbers for each in scaled)

    def _says_text(self, form: str, stem: int) -> bool:
        if not form:
            return False
        if not self._is_complete or form in self._form:
            return True
        if form.isascii() and not self._is_in_latin_letters:
            return True  # a name in another alphabet cannot be found
        words = _WORD.findall(form)
        long = [word for word in words if len(word) >= _LONG]
        # If a text has no long word (C#), a short one is enough.
        if any(word[:stem] in self._stems for word in long or words):
            return True
        ways = [list(_read_number(each)) for each in _NUMBER.findall(form)]
        return bool(ways) and all(any(self._numbers.issuperset(way) for way in each) for each in ways)


def _read_number(text: str) -> Iterator[list[float]]:
    """Yield the readings of digits with separators: `1,250` is one number or two, `12,5` a decimal, `3.6.2024` a date."""
    digits, _, exponent = text.replace("_", "").partition("e")
    for number in dict.fromkeys([digits.replace(",", ""), digits.replace(".", "").replace(",", ".")]):
        if number.count(".") < 2:
            yield [_round(float(f"{number}e{exponent or 0}"))]
    if text.count(".") > 1 or not {",", "_", "e"}.isdisjoint(text):
        yield [float(part) for part in _SEPARATOR.split(text)]


def _round(value: float) -> float:
    return value if value.is_integer() else float(f"{value:.{_DIGITS}g}")


def find_ungrounded(
    arguments: Mapping[str, Any], schema: Mapping[str, Any], conversation: ConversationText
) -> list[str]:
    """Return the required parameters of a call whose value is missing or does not occur in the conversation."""
    properties, required = _read_parameters(schema)
    return [name for name in required if not _is_said(name, arguments, properties, conversation)]


def find_made_up_options(
    arguments: Mapping[str, Any], schema: Mapping[str, Any], conversation: ConversationText
) -> list[str]:
    """Return the optional parameters of a call whose value does not occur in the conversation."""
    if not _CONDITIONS.isdisjoint(schema):
        return []
    properties, required = _read_parameters(schema)
    options = [name for name in arguments if name in properties and name not in required]
    return [name for name in options if not _is_said(name, arguments, properties, conversation, _LENIENT_STEM)]


def _read_parameters(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[str]]:
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return {}, []
    return properties, [name for name in required if isinstance(name, str)]


def _is_said(
    name: str,
    arguments: Mapping[str, Any],
    properties: Mapping[str, Any],
    conversation: ConversationText,
    stem: int = _STEM,
) -> bool:
    """Whether the parameter's value occurs in the conversation, or does not have to."""
    if name not in arguments:
        return False
    described = properties.get(name)
    if isinstance(described, Mapping):
        is_default = "default" in described and described["default"] == arguments[name]
        if is_default or "enum" in described or "const" in described:  # the schema itself names the value
            return True
    values = [value for value, _ in zip(_leaves(arguments[name]), range(_MAX_VALUES), strict=False)]
    return all(conversation.says(value, stem=stem) for value in values)


def _leaves(value: object) -> Iterator[object]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        else:
            yield each
