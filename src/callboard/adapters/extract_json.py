"""Find the JSON values in a model's text: alone, between words, in a fence, or behind its thoughts.

Law: what is inside a JSON value is never taken for a tag or a fence; each character is looked at a bounded
number of times.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn, TypeAlias

from callboard.errors import CallerError

Value: TypeAlias = dict[str, Any] | list[Any]

PATIENCE = 8
"""How often a text may be read over, counted in characters, because what began like JSON was none."""

_MARK = re.compile(
    r"(?P<think></?think(?:ing)?>)"
    r"|^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[^\s`{\[]*)"
    r'|(?P<json>\{\s*["}]|\[\s*[\]\[{"\-0-9tfn])',
    re.MULTILINE,
)
_LANGUAGES = ("json", "tool", "function")
"""Beginnings of the fences' languages that hold JSON; other languages are quotations."""


def parse_json_response(text: str | None) -> Value | None:
    """The JSON object or array that a model's text holds, None where it holds none.

    It may stand between words or in a fence of no language or JSON's. What is thought, between `<think>` and
    `</think>` or before a lone `</think>`, and fences of other languages are not looked at; a `<think>` that
    never ends is. Of several the first object that is not empty or array of objects is taken. Raises CallerError for what is no text.
    """
    if text is None:  # as the content of a message that only calls
        return None
    if not isinstance(text, str):
        raise CallerError(f"a {type(text).__name__} is no text", hint="give the content of a message")
    values = json_values(text)
    telling = (each for each in values if each and (isinstance(each, dict) or isinstance(each[0], dict)))
    return next(telling, values[0] if values else None)


def json_values(text: str) -> list[Value]:
    """Every such object and array, in order."""
    values: list[Value] = []
    before: list[Value] = []
    """What stood before a `</think>` that nothing opened: thoughts, unless there is nothing else."""
    thinking: int | None = None
    fence, quoted = "", False
    at = spent = 0
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        if tag := mark["think"]:
            if not tag.startswith("</"):
                thinking = len(values) if thinking is None else thinking
            elif thinking is None:
                before += values
                values = []
            else:
                del values[thinking:]
                thinking = None
        elif run := mark["fence"]:
            if not fence:
                language = mark["language"].lower()
                fence, quoted = run, bool(language) and not language.startswith(_LANGUAGES)
            elif run.startswith(fence) and not mark["language"]:
                fence, quoted = "", False
        elif not quoted:
            try:
                value, at = _decode(text, mark.start())
            except (ValueError, RecursionError) as error:
                end = getattr(error, "pos", len(text))
                spent += end - mark.start() + end // 64  # json counts the lines before its error
                if spent > PATIENCE * len(text):
                    break
                at = mark.start() + 1
            else:
                values.append(value)
    return values or before


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# Models break lines inside strings; that alone is no reason not to understand them.
_decode = json.JSONDecoder(strict=False, parse_constant=_refuse).raw_decode
