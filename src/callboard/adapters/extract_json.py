"""Find the JSON values in a model's text: alone, between words, in a fence, or after its thoughts.

Law: text inside a JSON value never counts as a tag or a fence. Each character is read a limited number of times.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn, TypeAlias

from callboard.errors import CallerError

Value: TypeAlias = dict[str, Any] | list[Any]

PATIENCE = 8
"""Maximum length of failed reads, as a multiple of the text's length, before the search stops."""

_MARK = re.compile(
    r"(?P<think></?think(?:ing)?>)"
    r"|^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[^\s`{\[]*)"
    r'|(?P<json>\{\s*["}]|\[\s*[\]\[{"\-0-9tfn])',
    re.MULTILINE,
)
_LANGUAGES = ("json", "tool", "function")
"""Beginnings of languages of fences with JSON. Fences with other languages are quotations."""


def parse_json_response(text: str | None) -> Value | None:
    """Return the JSON object or array in a model's `text`, or None.

    It may be between words, or in a fence without a language or with JSON's. Fences of other languages and thoughts are
    skipped; thoughts are between `<think>` and `</think>` or before a lone `</think>`, but not after a `<think>`
    without an end. If there are several values, the first array of objects or object that is not empty is used. Raises
    CallerError for anything but a text or None.
    """
    if text is None:  # such as the content of a message with only calls
        return None
    if not isinstance(text, str):
        raise CallerError(f"a {type(text).__name__} is not a text", hint="give the content of a message")
    values = json_values(text)
    telling = (each for each in values if each and (isinstance(each, dict) or isinstance(each[0], dict)))
    return next(telling, values[0] if values else None)


def json_values(text: str) -> list[Value]:
    """Return every such object and array, in order."""
    values: list[Value] = []
    before: list[Value] = []
    """Values before a `</think>` without its opening tag: thoughts, unless there is nothing else."""
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


# Models put line breaks into strings. That alone does not make a string invalid here.
_decode = json.JSONDecoder(strict=False, parse_constant=_refuse).raw_decode
