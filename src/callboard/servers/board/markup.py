"""Texts of models and tools as HTML: Markdown, and JSON over several lines.

Laws: everything is escaped. Markdown makes no links, pictures or HTML: an address stays visible as text, and nothing is
loaded from it. JSON keeps each of its tokens.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

import msgspec
from markdown_it import MarkdownIt
from markupsafe import Markup

_OFF: Final = ("link", "image", "autolink", "reference", "html_inline", "html_block", "entity")
_NESTING: Final = 10
"""Maximum nesting of quotes and lists. What is deeper is text."""
_GROWTH: Final = 5
"""Maximum growth of a JSON text. A deeply nested one would become a thousand times as long."""
_MARKS: Final = re.compile(r"[*_`#|~\\]|^[ \t]*([-+>]|\d+[.)]|===)", re.MULTILINE)
"""What Markdown gives a meaning to."""


_STYLE: Final = re.compile(r' style="text-align:(\w+)"')
"""Alignment of a column. The policy of our pages forbids styles in attributes."""


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"maxNesting": _NESTING, "html": False}).enable("table").disable(list(_OFF))


@lru_cache(maxsize=1000)
def render_markdown(text: str) -> Markup:
    """Return a text as HTML. A text without marks of Markdown, the usual case, costs nothing."""
    if not _MARKS.search(text):
        return Markup('<p class="text">%s</p>') % text
    return Markup(_STYLE.sub(r' class="\1"', _parser().render(text)))  # noqa: S704  # the parser escapes all text, and makes no links


def format_json_text(text: str) -> str:
    """Return a JSON object or array over several lines, and any other text unchanged."""
    if text[:1] in {"{", "["}:
        try:
            pretty = msgspec.json.format(text, indent=2)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return text
        return pretty if len(pretty) <= _GROWTH * len(text) else text
    return text
