"""Markdown on a terminal, while it streams: bold, code, headings, lists and tables. Paragraphs wrap at words.

A stage from text to text. Law: the output does not depend on how the input was split. No word is lost.
"""

from __future__ import annotations

import re
from typing import Final

from callboard.cli.terminal import align, measure, pad, paint

_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[22m"
_CODE: Final = "\x1b[36m"
_TEXT: Final = "\x1b[39m"
_FENCE: Final = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})")
"""The beginning of a code block. A line with other backticks has code of its own."""
_HEADING: Final = re.compile(r" {0,3}#{1,6}\s+(.*)")
_ITEM: Final = re.compile(r"(\s*)([-*+]|\d{1,3}[.)])[^\S\n]+(?=\S)")
_WHOLE: Final = re.compile(r"\s*(?:[|#]|```|~~~)")
"""The beginning of a line that may have to be rendered as a whole."""
_UNCLEAR: Final = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)]?|`{1,2}|~{1,2})?\s*")
"""The beginning of a line that may become any kind of line."""
_WIDE: Final = "\u2e80-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\U00020000-\U0003fffd"
"""Chinese and Japanese characters: a line may break before and after each of them, without a blank."""
_NARROW: Final = rf"[^\s{_WIDE}]"
_WORD: Final = re.compile(rf"([^\S\n]*)({_NARROW}{{0,79}}[{_WIDE}]|{_NARROW}{{80}}|{_NARROW}+(?=\s))")
"""A word that has ended, or the first 80 characters of one."""
_UNENDED: Final = re.compile(r"([^\S\n]*)(\S*[^\s*`])[*`]*")
_NARROW_LETTER: Final = re.compile(rf"(?![{_WIDE}])[^\W_]$")
_PIECE: Final = 1000
_MARK: Final = re.compile(r"(\*\*|`+)")
_RULE: Final = re.compile(r"[\s|:-]*-[\s|:-]*")


class MarkdownView:
    """Renders the text of one reply for a terminal of `width` columns."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._pending = ""
        self._in_line = False
        """True after the beginning of a paragraph or an item."""
        self._fence = ""
        """The fence of the open code block."""
        self._last = ""
        """Last character before the pending text, if it is in a line."""
        self._column = 0
        self._indent = 0
        self._is_bold = self._is_code = False
        self._rows: list[str] = []
        """Lines of an open table."""

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        parts: list[str] = []
        for begin in range(0, len(text), _PIECE):  # each word copies the pending text
            self._pending += text[begin : begin + _PIECE]
            while (part := self._take()) is not None:
                parts.append(part)
        return "".join(parts)

    def flush(self) -> str:
        """Return the beginning of a word that has not ended, because no more text comes for now."""
        match = _UNENDED.fullmatch(self._pending) if self._in_line else None
        if match is None:
            return ""
        self._pending = self._pending[match.end(2) :]
        return self._place(match[1], match[2])

    def finish(self) -> str:
        """Return the rest. The next text starts a line."""
        text = self.feed("\n").removesuffix("\n") if self._pending or self._in_line else ""
        table = self._end_table().removesuffix("\n")
        return text + table

    def _take(self) -> str | None:
        """Return the next part of the output, None if it needs more input."""
        if self._in_line:
            if match := _WORD.match(self._pending):
                self._pending = self._pending[match.end() :]
                return self._place(match[1], match[2])
            blanks = len(self._pending) - len(self._pending.lstrip(" \t\r"))
            if self._pending[blanks : blanks + 1] != "\n":
                return None
            self._pending = self._pending[blanks + 1 :]
            self._in_line = False
            return f"{self._end_styles()}\n"
        line, newline, rest = self._pending.partition("\n")
        if newline and (self._fence or not line.strip() or line.lstrip()[0] in "|#" or _FENCE.match(line)):
            self._pending = rest
            return self._render_line(line)
        if newline or not (self._fence or _WHOLE.match(line) or _UNCLEAR.fullmatch(line)):
            return self._begin(line)
        return None

    def _render_line(self, line: str) -> str:
        """Return a line that is not a paragraph: of code or a table, a fence, a heading or an empty line."""
        if self._fence:
            end = line.strip()
            if not end.startswith(self._fence) or end.strip(self._fence[0]):
                return f"{paint(line, '36')}\n"
            self._fence = ""
            return ""
        if fence := _FENCE.match(line):
            self._fence = fence[1]
            return self._end_table()
        if line.lstrip().startswith("|"):
            self._rows.append(line.strip())
            return ""
        heading = _HEADING.match(line)
        return f"{self._end_table()}{paint(heading[1], '1') if heading else line.rstrip()}\n"

    def _begin(self, line: str) -> str:
        """Return the beginning of a paragraph or an item."""
        table, self._in_line = self._end_table(), True
        if item := _ITEM.match(line):
            begin = f"{item[1]}{'•' if len(item[2]) == 1 else item[2]} "
            self._pending = self._pending[item.end() :]
        else:
            begin = line[: len(line) - len(line.lstrip())].replace("\r", "")
            self._pending = self._pending[len(line) - len(line.lstrip()) :]
        self._column = self._indent = measure(begin)
        self._last = ""
        return table + begin

    def _place(self, blanks: str, word: str) -> str:
        before = "" if blanks else self._last
        text = self._add_styles(word, before)
        width = measure(text)
        self._last = word[-1]
        may_break = not before or re.search(f"[{_WIDE}]", before + word[0])
        if may_break and self._column + len(blanks) + width > self._width and self._column > self._indent:
            blanks = "\n" + " " * (self._indent if self._indent <= self._width // 2 else 0)
            self._column = len(blanks) - 1 + width
        else:
            self._column += len(blanks) + width
        return blanks + text

    def _add_styles(self, word: str, previous: str = "") -> str:
        parts = _MARK.split(word)
        for place in range(1, len(parts), 2):
            before, after = parts[place - 1] or previous, parts[place + 1]
            previous = parts[place]
            if parts[place][0] == "`":
                self._is_code = not self._is_code
                parts[place] = _CODE if self._is_code else _TEXT
            elif not self._is_code and (before if self._is_bold else after and not _NARROW_LETTER.search(before)):
                self._is_bold = not self._is_bold
                parts[place] = _BOLD if self._is_bold else _PLAIN
        return "".join(parts)

    def _end_styles(self) -> str:
        ends = f"{_PLAIN if self._is_bold else ''}{_TEXT if self._is_code else ''}"
        self._is_bold = self._is_code = False
        return ends

    def _end_table(self) -> str:
        """Return the open table with aligned columns, or its lines unchanged if it is too wide."""
        lines, self._rows = self._rows, []
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        rows = [[self._add_styles(cell) + self._end_styles() for cell in row] for row in cells]
        most = max(map(len, rows), default=0)
        rows = [row + [""] * (most - len(row)) for row in rows]
        widths = align([row for row, line in zip(rows, lines, strict=True) if not _RULE.fullmatch(line)] or rows)
        if sum(widths) + 2 * (most - 1) > self._width:
            return "".join([f"{line}\n" for line in lines])
        drawn = []
        for row, line in zip(rows, lines, strict=True):
            is_rule = _RULE.fullmatch(line)
            fields = ["─" * width for width in widths] if is_rule else map(pad, row, widths)
            drawn.append("  ".join(fields).rstrip() + "\n")
        return "".join(drawn)
