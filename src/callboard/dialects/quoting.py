"""Decide whether the text before a call says that the call is shown, not made.

A complete call runs, whatever words surround it. Losing a call is the worst outcome, while permissions and approvals
still protect from a quoted call. So only the text right before the call decides, by two kinds of signs:

- The line belongs to somebody else: a block quote, a table cell, a line of a diff, of a log or of a comment, or an open
  quotation in marks before a call on one line.
- The call comes first inside something that displays text: an HTML element such as `<pre>`, an environment of LaTeX, a
  here-document, a string over several lines.

The scanner handles inline code and fences of another language.
"""

# ruff: noqa: RUF001  # similar quotation marks differ
from __future__ import annotations

import re

_LINE = re.compile(
    r"""
    \s*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?>(?!>)                                 # a block quote
    | \s*[|│┃║] | .*\s[|│┃║]\s*\Z                                              # a table cell
    | -\Z | \+[ \t]?\Z                                                        # a line of a diff
    | \s*(?:\#|//!?|--|;|%|\$|>>>|/?\*+)[ \t]*\Z(?<!\*\*)(?<!\*[ \t])             # a comment, a prompt
    | \W?(?:\w?\d[\d-]{1,10}[ T]|\w{3}\s+\d+[ ])?\d\d:\d\d:\d\d                 # a time of a log
    | \[(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL)\]                # a level of a log
    | .*\S:\d+:(?:\d+:)?\s?\Z | \s*\d+(?:\t|\s*│)                              # a place in a file
    """,
    re.VERBOSE | re.ASCII,
)
_DISPLAY = re.compile(
    r"""
    <(?:blockquote|code|example|kbd|pre|q|samp|script|style|td|template|textarea|th|tool_re(?:sult|sponse))
        (?:\s[^<>]{0,200})?>\s*\Z
    | <!--\s*\Z | /\*[\s*]*\Z
    | \\begin\{[^{}\n]{1,40}\}(?:\[[^\]\n]{0,100}\])?(?:\{[^{}\n]{0,40}\})?\s*\Z | \\(?:[a-z]{2,20}\{\s*|verb\W)\Z
    | (?:\"{3}|'{3})\s*\Z | [\s=(]\"\s*\n\s*\Z
    | ^@@\ -\d[^\n]*\n(?:[ +\\-][^\n]*\n)*[ +-]?\s*\Z
    | <<[-~]?\s?["']?\w+["']?[^\n]*\n\s*\Z
    """,
    re.VERBOSE | re.MULTILINE,
)
_MARK = re.compile("[\"'“”„‟«»‘’‚‹›「」『』]")
_CLOSERS = {
    '"': '"',
    "'": "'",
    "“": "”",
    "„": "“”",
    "‟": "”",
    "«": "»",
    "»": "«",
    "‘": "’",
    "‚": "‘’",
    "‹": "›",
    "›": "‹",
    "「": "」",
    "『": "』",
}
"""Closing marks for each opening mark. German opens with » and closes with «."""
_STRAIGHT = "\"'"
_BEFORE_OPENING = "([{<=:,;>-—–/\\~|"


def is_quoted(before: str, *, lines: int) -> bool:
    """Whether a call is shown rather than made.

    Args:
        before: The text before the call, at least its line.
        lines: Newlines between the beginning of the call and its arguments.
    """
    line = before[before.rfind("\n") + 1 :]
    if line.strip() and (_LINE.match(line) or (not lines and _leaves_quotation_open(line))):
        return True
    return _DISPLAY.search(before) is not None


def _leaves_quotation_open(line: str) -> bool:
    closers = ""
    for mark in _MARK.finditer(line):
        if closers:
            is_apostrophe = mark[0] in "'’" and line[mark.end() : mark.end() + 1].isalnum()  # both marks can be one
            closers = "" if mark[0] in closers and not is_apostrophe else closers
        elif mark[0] in _CLOSERS and (mark[0] not in _STRAIGHT or _opens(line, mark.start())):
            closers = _CLOSERS[mark[0]]
    return bool(closers)


def _opens(line: str, at: int) -> bool:
    """Whether a straight mark may open a quotation, instead of being an apostrophe or a sign for inches."""
    before, after = line[:at][-1:], line[at + 1 : at + 2]
    return not after or (not after.isspace() and (not before or before.isspace() or before in _BEFORE_OPENING))
