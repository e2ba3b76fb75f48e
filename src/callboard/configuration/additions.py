"""A server added to a file of settings.

Owns the writing of one table. Knows nothing of what else is in the file.
Law: what stands there stays as it is, byte for byte; a file that could not be read afterwards is not written.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callboard.configuration.mcp import read_servers
from callboard.configuration.toml import read_document
from callboard.errors import CallerError
from callboard.mcp.state import write_private
from callboard.tools.descriptors import below, dotted


def add_server(path: Path, name: str, table: Mapping[str, Any]) -> None:
    """Adds `[mcp.NAME]` at the end of the file. Raises CallerError for a table that is wrong, or a name that is there."""
    read_servers({name: table}, lambda keys: dotted(("mcp", *keys)), mistake=CallerError)
    text = ""
    if path.exists():
        document = read_document(path, CallerError)
        there = document.values.get("mcp", {})
        if not isinstance(there, Mapping) or name in there:
            raise CallerError("a server of this name is there", path=below(document.where, "mcp")((name,)))
        text = path.read_text("utf-8-sig")
    lines = [f"[mcp.{_quoted(name)}]", *(f"{key} = {_written(value)}" for key, value in table.items())]
    new = "".join([text, "" if not text or text.endswith("\n") else "\n", "\n" if text else "", "\n".join(lines), "\n"])
    try:
        tomllib.loads(new)
    except tomllib.TOMLDecodeError as error:
        raise CallerError(f"the table cannot be added: {error}", path=str(path), hint="write it yourself") from None
    # A file that is a link stays one.
    write_private(Path(os.path.realpath(path)), new.encode())


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join([f'{_quoted(key)} = {_written(each)}' for key, each in value.items()])} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join([_written(each) for each in value])}]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    """A basic string, which TOML escapes as JSON does but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
