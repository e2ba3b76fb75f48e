"""Show and change one text file, and describe the change to the model.

Laws: lines that are shown count as seen, and lines that moved do not. No line is changed that the model has not seen as
it is. A file that is decoded and encoded is the same, byte for byte; an edit changes only the bytes of its lines.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

import msgspec

from callboard.coding.edits.text_edits import Change, EditRefused, format_line_range, number_lines, split_lines
from callboard.coding.outlines import find_syntax_error
from callboard.coding.workspace.workspace import Workspace
from callboard.text.display import escape
from callboard.text.suggest import suggest

MAX_BYTES: Final = 10 * 1024 * 1024
"""Bytes of a file that is read as text."""

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_NO_TEXT: Final = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f]")
"""Characters that never occur in a text of unknown encoding: controls except white space, backspace and escape."""


class NotText(ValueError):
    """A binary file, or a text that the file's encoding cannot express."""


class TextFile(msgspec.Struct, frozen=True):
    """A text, and what the bytes of its file need besides."""

    text: str
    """With LF alone."""
    encoding: str = "utf-8"
    bom: bytes = b""
    endings: tuple[str, ...] = ()
    """The line endings in the file, in order; empty if all are LF."""

    def encode(self) -> bytes:
        """Encode the file. Raises NotText for a character that the encoding does not have."""
        text = self.text
        if self.endings:
            lines = text.split("\n")
            text = "".join([part for pair in zip(lines, self.endings, strict=False) for part in pair] + lines[-1:])
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise NotText(
                f"the file is in {self.encoding}, which has no {character!r} (U+{ord(character):04X}); write it another way"
            ) from None

    def apply(self, change: Change) -> TextFile:
        """Apply a change: unchanged lines keep their endings, new ones get the file's usual one."""
        if not self.endings:
            return msgspec.structs.replace(self, text=change.text)
        usual = max(("\n", "\r\n"), key=self.endings.count)
        endings: list[str] = []
        done = 0
        for start, removed, added in change.spans:
            endings += self.endings[done : start - 1]
            own = self.endings[start - 1 : start - 1 + removed][:added]
            endings += [*own, *[usual] * (added - len(own))]
            done = start - 1 + removed
        endings += self.endings[done:]
        count = change.text.count("\n")
        # A last line without an end can have got one.
        endings += [usual] * (count - len(endings))
        return msgspec.structs.replace(self, text=change.text, endings=tuple(endings[:count]))


def decode(data: bytes) -> TextFile:
    """Decode a file: UTF-8, UTF-16 with a byte order mark, else Latin-1. Raises NotText for a binary one."""
    if len(data) > MAX_BYTES:
        raise NotText(f"the file has more than {MAX_BYTES} bytes")
    bom, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    try:
        text = data[len(bom) :].decode(encoding)
    except UnicodeDecodeError:
        text, encoding, bom = data.decode("latin-1"), "latin-1", b""
        if _NO_TEXT.search(text):
            raise NotText("it is a binary file, not text") from None
    if "\0" in text:
        raise NotText("it is a binary file, not text")
    if "\r\n" not in text:
        return TextFile(text, encoding, bom)
    parts = text.split("\n")
    endings = tuple(["\r\n" if part.endswith("\r") else "\n" for part in parts[:-1]])
    return TextFile(normalize_newlines(text), encoding, bom, endings)


def normalize_newlines(text: str) -> str:
    """Replace CRLF by LF."""
    return text.replace("\r\n", "\n")


MAX_SHOWN: Final = 20_000
"""Characters of a file that one result shows."""
_AROUND: Final = 2
"""Lines shown before and after a change."""
_LONGEST: Final = 40
"""Lines of one change that are shown."""
_SPANS: Final = 4
"""Changes that are shown."""
_NAMES: Final = 10_000


class OpenedFile(msgspec.Struct, frozen=True):
    """A text file: the path that the call used, the canonical one (`key`), the bytes and the text."""

    path: str
    canonical_path: str
    data: bytes
    file: TextFile

    @property
    def lines(self) -> list[str]:
        return split_lines(self.file.text)


def open_text(workspace: Workspace, path: str) -> OpenedFile:
    """Read a text file. Raises OSError, and NotText for a binary file."""
    try:
        data = workspace.files.read(path, MAX_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {escape(path)}{_suggest_name(workspace, path)}") from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{escape(path)} is a directory; list it with list_directory") from None
    try:
        file = decode(data)
    except NotText as error:
        raise NotText(f"{escape(path)}: {error}") from None
    return OpenedFile(path, workspace.files.canonical(path), data, file)


def show_lines(workspace: Workspace, opened: OpenedFile, start: int, end: int) -> tuple[str, int]:
    """Format these lines as far as they fit, and mark them as seen; return also the number of the last one."""
    lines = opened.lines[start - 1 : end]
    room = MAX_SHOWN
    fitting = 0
    for line in lines:
        room -= len(line) + 8
        if room < 0 and fitting:
            break
        fitting += 1
    workspace.seen.record(opened.canonical_path, start, lines[:fitting])
    return number_lines(lines[:fitting], start), start + fitting - 1


def check_seen(workspace: Workspace, opened: OpenedFile, start: int, end: int) -> None:
    """Raise EditRefused, which shows the lines, if the model has not seen them as they are."""
    lines = opened.lines[start - 1 : end]
    sight = workspace.seen.compare(opened.canonical_path, start, lines)
    if sight == "seen":
        return
    shown, last = show_lines(workspace, opened, start, end)
    why = (
        f"the file changed since you read it; here {_format_verb(start, last)} now:"
        if sight == "changed"
        else f"you have not seen these lines under these numbers; here {_format_verb(start, last)}:"
    )
    fix = "If these are the lines you mean, make the same call again." if last == end else "Read on with get_lines."
    raise EditRefused(f"{why}\n{shown}\n{fix}")


def save(workspace: Workspace, opened: OpenedFile, change: Change) -> str:
    """Write the changed text and describe the change. Raises EditRefused if nothing changes, NotText and OSError."""
    if change.text == opened.file.text:
        raise EditRefused("nothing would change: the file has that already")
    data = encode_file(opened.file.apply(change))
    workspace.files.write(opened.path, data)
    return describe_change(workspace, opened, change)


def encode_file(file: TextFile) -> bytes:
    """Encode a file. Raises NotText for a character that the encoding lacks, and for more than 10 MB."""
    data = file.encode()
    if len(data) > MAX_BYTES:
        raise NotText(f"the content has more than {MAX_BYTES} bytes")
    return data


def describe_change(workspace: Workspace, opened: OpenedFile, change: Change) -> str:
    """Describe a change: the lines around it, and whether the text still parses."""
    lines = split_lines(change.text)
    shift = 0
    shown: list[str] = []
    moved = False
    for count, (start, removed, added) in enumerate(change.spans):
        first = start + shift
        shift += added - removed
        if added != removed and not moved:
            workspace.seen.forget(opened.canonical_path, first)
            moved = True
        # A model has seen what it wrote.
        workspace.seen.record(opened.canonical_path, first, lines[first - 1 : first - 1 + added])
        if count < _SPANS:
            begin = max(1, first - _AROUND)
            part = lines[begin - 1 : first - 1 + min(added, _LONGEST) + _AROUND]
            workspace.seen.record(opened.canonical_path, begin, part)
            shown.append(number_lines(part, begin))
    more = len(change.spans) - _SPANS
    told_more = [f"... and {more} more changes"] if more > 0 else []
    # True if lines follow the last change, counted in the old lines.
    behind = any(span.start - 1 + span.removed < len(opened.lines) for span in change.spans[-1:])
    many = "line" if abs(shift) == 1 else "lines"
    moves = [f"What is behind that is {abs(shift)} {many} further {'down' if shift > 0 else 'up'} now."]
    around = "\n...\n".join(each for each in shown if each) or "The file is empty now."
    return "\n".join([around, *told_more, *(moves if shift and behind else []), *_syntax_warning(opened, change)])


def _syntax_warning(opened: OpenedFile, change: Change) -> list[str]:
    line = find_syntax_error(change.text, opened.canonical_path)
    if line is None or find_syntax_error(opened.file.text, opened.canonical_path) is not None:
        return []
    return [f"Warning: the file does not parse any more; the first syntax error is at line {line}."]


def _format_verb(start: int, end: int) -> str:
    return f"{'is' if start == end else 'are'} {format_line_range(start, end - start + 1)}"


def _suggest_name(workspace: Workspace, path: str) -> str:
    """Names like it in its directory."""
    directory, _, name = path.rstrip("/").rpartition("/")
    try:
        names = workspace.files.names(directory or ("/" if path.startswith("/") else "."), _NAMES)
    except OSError:
        return ""
    return f"; {suggest(name, [escape(each) for each in names])}" if names else ""
