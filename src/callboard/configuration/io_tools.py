"""The tools of the ensemble `io`: files beneath one directory. `ConfinedDirectory` keeps paths within it."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Annotated

from callboard.storage.confined_directory import ConfinedDirectory, set_path_guard
from callboard.tools import Context, Subject, tool

MAX_BYTES = 10 * 1024 * 1024
"""Bytes of a file that is read or written."""
MAX_NAMES = 10_000
"""Names of a directory that is listed."""

_FilePath = Annotated[str, "Path to file"]
_Encoding = Annotated[str, "File encoding"]

_SUBJECTS: Mapping[str, Subject] = {"path": "path"}

# Their decoders take quadratic time.
_SLOW = frozenset({"idna", "punycode"})


def connection(root: str = ".") -> ConfinedDirectory:
    """The connection of the ensemble; `root` is the directory, by default the current one."""
    return ConfinedDirectory(root)


@tool(idempotent=True, subjects=_SUBJECTS)
def read_file(context: Context, path: _FilePath, encoding: _Encoding = "utf-8") -> str:
    """Reads contents of a file."""
    return _root(context).read(path, MAX_BYTES).decode(_check_encoding(encoding))


@tool(approval=True, subjects=_SUBJECTS)
def write_file(
    context: Context, path: _FilePath, content: Annotated[str, "The whole content"], encoding: _Encoding = "utf-8"
) -> str:
    """Writes content to a file, in place of what was in it."""
    data = content.encode(_check_encoding(encoding))
    if len(data) > MAX_BYTES:
        raise ValueError(f"the content has more than {MAX_BYTES} bytes")
    _root(context).write(path, data)
    return f"{len(data)} bytes were written to {path}"


@tool(idempotent=True, subjects=_SUBJECTS)
def list_directory(context: Context, path: Annotated[str, "Path to directory"] = ".") -> list[str]:
    """Lists the names in a directory; those of directories end with /."""
    return _root(context).names(path, MAX_NAMES)


def _check_encoding(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        name = ""
    if not name or name in _SLOW:
        raise ValueError(f"no encoding {encoding[:64]!r}")
    return name


def _root(context: Context) -> ConfinedDirectory:
    ensemble = context.invoker.ensemble if context.invoker else None
    root = ensemble.connection if ensemble else None
    if not isinstance(root, ConfinedDirectory):
        raise TypeError("this tool belongs to an ensemble with a root")
    set_path_guard(context.permits)
    return root
