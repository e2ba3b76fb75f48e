"""Find the values of a call that stand nowhere in the conversation: a model that lacks a value makes one up.

A required value is looked for, and so is one that might have been left out. Only what somebody must have said: no flags,
no choices of an `enum`, no defaults. A number may be said in words, with separators or as a percentage, a date by its
parts, a text by any of its longer words. An empty text is no value. Where pictures or files were shown, any value may
stand in them.

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
"""Letters of a word that says enough by itself."""
_STEM: Final = 5
"""Letters that two forms of a word share: Paris and Parisian, dance and dancing."""
_LENIENT_STEM: Final = 3
"""The same where a value is left out rather than a call stopped: women and woman."""
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
"""What a word says as a number; months also by their first letters."""
_SCALES: Final = (1.0, 100.0, 1_000.0, 1_000_000.0, 1_000_000_000.0)
"""What a number that was said may have been multiplied by: percent, thousand, million, billion."""
_DIGITS: Final = 12
"""Digits of a number that are compared: 0.07 times 100 is not 7.0."""
_MAX_VALUES: Final = 64
"""Values of a call that are looked for; a longer list is data that a tool gave or a person pasted."""
_CONDITIONS: Final = IN_PLACE | {"$ref", "dependentRequired", "minProperties"}
"""Keywords by which a schema may ask for a parameter that its `required` does not name."""


class ConversationText:
    """What was said, as values are looked for in it.

    Args:
        texts: All that is text.
        is_complete: Nothing was said by other means, such as a picture.
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
        """Whether the conversation says the value; two words are one that begin with the same letters (`stem`)."""
        match value:
            case bool() | None | 0 | 1:
                return True  # nobody says that it is one month
            case int() | float():
                return not self._is_complete or self._says_number(value)
            case str():
                return self._says_text(normal_form(value), stem)
            case _:
                return True

    def _says_number(self, value: float) -> bool:
        try:
            value = abs(float(value))
        except OverflowError:  # an integer of hundreds of digits, which is infinite where a text says it, too
            value = math.inf
        scaled = [value * scale for scale in _SCALES] + [value / scale for scale in _SCALES]
        return any(_round(each) in self._numbers for each in scaled)

    def _says_text(self, form: str, stem: int) -> bool:
        if not form:
            return False
        if not self._is_complete or form in self._form:
            return True
        if form.isascii() and not self._is_in_latin_letters:
            return True  # a name in another alphabet cannot be looked for
        words = _WORD.findall(form)
        long = [word for word in words if len(word) >= _LONG]
        # Of a text without a long word, such as C#, a short one says enough.
        if any(word[:stem] in self._stems for word in long or words):
            return True
        ways = [list(_read_number(each)) for each in _NUMBER.findall(form)]
        return bool(ways) and all(any(self._numbers.issuperset(way) for way in each) for each in ways)


def _read_number(text: str) -> Iterator[list[float]]:
    """The ways to read digits with separators: `1,250` is one number or two, `12,5` a decimal, `3.6.2024` a date."""
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
    """The required parameters of a call without a value, or with one that the conversation does not say."""
    properties, required = _read_parameters(schema)
    return [name for name in required if not _is_said(name, arguments, properties, conversation)]


def find_made_up_options(
    arguments: Mapping[str, Any], schema: Mapping[str, Any], conversation: ConversationText
) -> list[str]:
    """The parameters of a call that may be left out, and have a value that the conversation does not say."""
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
    """Whether the conversation says the parameter's value, or need not."""
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
