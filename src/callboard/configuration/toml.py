"""Read a TOML file, with the line of each key for error messages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from callboard.errors import CallerError
from callboard.tools.descriptors import Keys, dotted_path

MAX_BYTES = 1024 * 1024
"""Maximum bytes of a file."""

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(?P<open>\[\[?)\s*(?P<keys>{_DOTTED})\s*\]")
_PAIR = re.compile(rf"\s*(?P<keys>{_DOTTED})\s*=")
_QUOTES = re.compile(r'"""|\'\'\'')
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


class Document(msgspec.Struct, frozen=True):
    """The content of a file. `path` is the path that the caller passed."""

    path: str
    text: str
    values: dict[str, Any]

    def where(self, keys: Keys) -> str:
        """Return the location of a key, such as `io.toml:7: invokers[0].timeout`; without keys, of the file."""
        line = find_line(self.text, keys) if keys else None
        place = f"{self.path}:{line}" if line else self.path
        return f"{place}: {dotted_path(keys)}" if keys else place


def read_document(path: Path, mistake: type[CallerError]) -> Document:
    """Read a file. Raises `mistake` with the path and, if possible, the line."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise mistake(error.strerror or "cannot be read", path=str(path)) from None
    if len(data) > MAX_BYTES:
        raise mistake(f"larger than {MAX_BYTES // 1024} KB", path=str(path))
    try:
        # Editors on Windows write a byte order mark.
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        return Document(str(path), text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise mistake("not UTF-8", path=f"{path}:{line}", hint="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT_LINE.search(message)
        place = f"{path}:{at[1]}" if at else str(path)
        hint = "write text in quotation marks" if message.startswith("Invalid value") else ""
        raise mistake(f"not TOML: {_AT_LINE.sub('', message)}", path=place, hint=hint) from None
    except RecursionError:
        raise mistake("not TOML: nested too deeply", path=str(path)) from None


def find_line(text: str, keys: Keys) -> int | None:
    """Return the line (from 1) of a key in valid TOML, or of the nearest table around it.

    In inline tables and arrays this is the line of the whole value.
    """
    best, length = None, 0
    for number, path in _iterate_keys(text):
        common = 0
        for one, other in zip(path, keys, strict=False):
            if one != other:
                break
            common += 1
        # A table's header counts as near; a path that diverges below the common part does not.
        if common > length and (common == len(path) or common == len(keys)):
            best, length = number, common
    return best


def _iterate_keys(text: str) -> Iterator[tuple[int, Keys]]:
    """Yield the line and path of every header and pair."""
    table: Keys = ()
    counts: dict[Keys, int] = {}
    closing = ""
    for number, line in enumerate(text.split("\n"), 1):
        if closing:
            rest = line.partition(closing)
            closing = "" if rest[1] else closing
            continue
        if header := _HEADER.match(line):
            table = _add_indices(_split_keys(header["keys"]), counts, new=header["open"] == "[[")
            yield number, table
        elif pair := _PAIR.match(line):
            yield number, (*table, *_split_keys(pair["keys"]))
        if len(quotes := _QUOTES.findall(line)) % 2:
            closing = quotes[-1]


def _add_indices(keys: Keys, counts: dict[Keys, int], *, new: bool) -> Keys:
    """Return the keys of a header with the indices in arrays of tables."""
    path: Keys = ()
    for at, key in enumerate(keys, 1):
        path = (*path, key)
        if new and at == len(keys):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _split_keys(keys: str) -> Keys:
    return tuple(
        tomllib.loads(f"k = {part}")["k"] if part[0] == '"' else part.strip("'") for part in re.findall(_PART, keys)
    )
