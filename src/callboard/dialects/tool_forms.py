"""Describe tools otherwise than by a JSON object a line: as Python functions, or as a dialect's own models read them.

Law: no description, default or choice of a tool can spell a marker of the dialect, a fence, or the end of the list that
it stands in. A marker's first character is written as an escape of the language that the text is in, so what a reader
of that language gets is what the tool says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Final

from callboard.core import ToolDeclaration
from callboard.dialects.dialect import Dialect, ToolList
from callboard.dialects.python_signatures import render_signature

_TAG: Final = re.compile(r"</?[^<>\s]{1,60}>|\[/?[A-Z_]{2,40}\]")
"""What frames a list of tools in the words around it, such as `</tools>` and `[/AVAILABLE_TOOLS]`."""
_MARKER: Final = re.compile(r"[^\w\s\"'\\].*[^\s]", re.DOTALL)
"""A marker that can be escaped: its first character is none of a word's, and none that an escape begins with."""
_FENCES: Final = ("```", "~~~")
_PYTHON_HEAD: Final = "You can call these tools, which are described as Python functions:"


def render_signatures(dialect: Dialect, tools: Iterable[ToolDeclaration]) -> str:
    """Each tool as a Python function, without how to call."""
    protect = _protector(dialect, "\\x{:02x}", "\\u{:04x}")
    return "\n\n".join([_PYTHON_HEAD, *[render_signature(tool, protect) for tool in tools]])


def render_own_list(dialect: Dialect, form: ToolList, tools: Iterable[ToolDeclaration]) -> str:
    """The tools, and how to call, as the chat template of the dialect's models says both."""
    protect = _protector(dialect, "\\u{:04x}", "\\u{:04x}", form.text)
    described = [
        {"name": tool.name, "description": tool.full_description, "parameters": dict(tool.schema)} for tool in tools
    ]
    lines = [form.each.replace("{tool}", protect(_to_spaced_json(each)), 1) for each in described]
    return form.text.replace("{tools}", form.join.join(lines), 1)


def _to_spaced_json(value: object) -> str:
    """As templates write it: with white space, and other letters than ASCII's as they are."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text) else json.dumps(value)


def _protector(dialect: Dialect, ascii_escape: str, escape: str, around: str = "") -> Callable[[str], str]:
    """What escapes the first character of each marker in a text."""
    markers = {*_FENCES, *_TAG.findall(around), *dialect.ignored}
    for each, frame in dialect.all_frames():
        markers |= {*frame.openers, *frame.closers}
        markers |= {mark for reasoning in each.reasoning for mark in (reasoning.opens, reasoning.closes)}
    spelled = sorted({mark.strip() for mark in markers if _MARKER.fullmatch(mark.strip())}, key=len, reverse=True)
    # Only a first character is consumed: a marker may stand in another one.
    first = re.compile(f"(?={'|'.join(map(re.escape, spelled))}).", re.IGNORECASE)

    def escape_first(match: re.Match[str]) -> str:
        return (ascii_escape if match[0].isascii() else escape).format(ord(match[0]))

    return lambda text: first.sub(escape_first, text)
