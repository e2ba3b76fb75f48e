"""A server, or what was found out of a model, added to a file of settings.

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
from callboard.profiles import normalise
from callboard.storage.atomic_file import write_private
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


def write_profile(path: Path, model: str, facts: Mapping[str, Any], remark: str) -> None:
    """Writes facts into `[profiles.MODEL]`, beside those that are there.

    Args:
        path: The file, which need not be there.
        model: The model's name, which is the pattern.
        facts: Facts of a profile.
        remark: A line that says where they come from.

    Raises:
        CallerError: The file is not TOML, or its table of the model is written in a way that cannot be replaced.
    """
    pattern = normalise(model)
    text = path.read_text("utf-8-sig") if path.exists() else ""
    before = dict(read_document(path, CallerError).values) if text else {}
    profiles = before.get("profiles", {})
    merged = {**profiles.get(pattern, {}), **facts}
    header = f"[profiles.{_quoted(pattern)}]"
    lines = text.splitlines()
    if pattern in profiles:
        begin = next((at for at, line in enumerate(lines) if line.strip() == header), len(lines))
        end = next((at for at in range(begin + 1, len(lines)) if lines[at].startswith("[")), len(lines))
        lines[begin:end] = []
    table = [
        header,
        f"# {' '.join(remark.split())}",
        *[f"{fact} = {_written(value)}" for fact, value in merged.items()],
    ]
    new = "\n".join([*lines, *([""] if lines and lines[-1] else []), *table, ""])
    wanted = {**before, "profiles": {**profiles, pattern: merged}}
    try:
        whole = tomllib.loads(new) == wanted
    except tomllib.TOMLDecodeError:
        whole = False
    if not whole:
        raise CallerError("the facts cannot be added", path=str(path), hint=f"write yourself:\n{chr(10).join(table)}")
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
