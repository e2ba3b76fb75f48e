"""Edit settings files of other programs, and our own `callboard.toml`.

Rules: other values do not change; TOML keeps its comments and its order. New lines use the file's line ending, if it has
only one kind. The edited text is parsed again and refused unless it has exactly the old values plus the new ones: TOML
has more ways to write a table than any editor supports.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from callboard.configuration.mcp import read_servers
from callboard.configuration.toml import read_document
from callboard.errors import CallerError
from callboard.profiles import Examination, normalise
from callboard.profiles.remarks import EVIDENCE, EXAMINED, select_facts
from callboard.storage.atomic_file import write_private
from callboard.text.display import collapse
from callboard.tools.descriptors import below, dotted_path

KeyPath: TypeAlias = tuple[str, ...]

Author: TypeAlias = Literal["doctor", "eval"]
"""The command that writes facts. The evidence of a fact starts with its name and a colon."""
_REPLACEABLE: Final[Mapping[Author, tuple[str, ...]]] = {"doctor": ("doctor: ",), "eval": ("eval: ", "doctor: ")}
"""Prefixes of the evidence of facts that a command may replace. Measured facts override asked ones."""
_MAX_EVIDENCE: Final = 300
"""Maximum characters of an evidence sentence."""


class InlineTable(dict[str, Any]):
    """A table that is written on one line and replaces the old table."""


def set_toml_values(text: str, values: Mapping[str, Any]) -> str:
    """Set values in a TOML text. The value None removes a key.

    Raises:
        CallerError: The text is not valid TOML, or its tables are written in a way that the editor does not support.
    """
    expected = merge(read_toml(text), values)
    import tomlkit  # noqa: PLC0415  # 26 ms, and few commands edit a file

    try:
        document = tomlkit.parse(text if not text or text.endswith("\n") else f"{text}\n")
        _set_values(document, values)
        after = _end_lines_alike(tomlkit.dumps(document), text)
        complete = tomllib.loads(after) == expected
    except (ValueError, TypeError, AttributeError, RecursionError):  # a TOMLKitError is a ValueError
        complete = False
    if not complete:
        raise CallerError("its keys are written in a way that cannot be edited", hint="write them by hand")
    return after


def _set_values(table: MutableMapping[str, Any], values: Mapping[str, Any]) -> None:
    import tomlkit  # noqa: PLC0415  # as above

    for key, value in values.items():
        there = table.get(key)
        if value is None:
            table.pop(key, None)
        elif isinstance(value, InlineTable):
            table[key] = tomlkit.inline_table()
            table[key].update(value)
        elif isinstance(value, Mapping):
            if there is None:
                table[key] = tomlkit.table(is_super_table=all(isinstance(each, Mapping) for each in value.values()))
            elif not isinstance(there, Mapping):
                raise TypeError(f"{key} is not a table")
            _set_values(table[key], value)
        elif there != value:
            table[key] = value


def read_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises CallerError."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CallerError(f"not TOML: {error}", hint="write the keys by hand") from None


def set_json_values(text: str, values: Mapping[str, Any]) -> str:
    """Set values in a JSON text, and format it again. Raises CallerError, for example for comments."""
    after = f"{json.dumps(merge(read_json(text), values), indent=2, ensure_ascii=False)}\n"
    return _end_lines_alike(after, text)


def read_json(text: str) -> dict[str, Any]:
    """Parse a JSON object. An empty text counts as {}. Raises CallerError."""
    try:
        values = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise CallerError(f"not JSON: {error}", hint="write the keys by hand") from None
    if not isinstance(values, dict):
        raise CallerError("not a JSON object")
    return values


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the new values into the old ones. The value None removes a key."""
    merged = dict(old)
    for key, value in new.items():
        inner = merged.pop(key, None)
        if isinstance(value, Mapping) and not isinstance(value, InlineTable):
            merged[key] = merge(inner if isinstance(inner, Mapping) else {}, value)
        elif value is not None:
            merged[key] = value
    return merged


def list_replaced(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the values to be replaced: dotted path, old value, new value."""
    return [
        (".".join(path), there, value)
        for path, value in _leaves(new)
        if (there := _get(old, path)) is not None and there != value
    ]


def _leaves(values: Mapping[str, Any], parent: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*parent, key))
        else:
            yield (*parent, key), value


def _get(values: Any, path: KeyPath) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def add_server(path: Path, name: str, table: Mapping[str, Any]) -> None:
    """Add `[mcp.NAME]` to a `callboard.toml`.

    Raises:
        CallerError: The table is wrong, or the file already has a server with this name.
    """
    read_servers({name: table}, lambda keys: dotted_path(("mcp", *keys)), mistake=CallerError)
    text = ""
    if path.exists():
        document = read_document(path, CallerError)
        servers = document.values.get("mcp", {})
        if not isinstance(servers, Mapping) or name in servers:
            raise CallerError("a server with this name exists", path=below(document.where, "mcp")((name,)))
        text = read_config(path)
    try:
        new = set_toml_values(text, {"mcp": {name: table}})
    except CallerError as error:
        message = f"the table cannot be added: {error.message}"
        raise CallerError(message, path=str(path), hint="write it yourself") from None
    _write(path, new)


def set_trusted(path: Path, directories: Collection[str]) -> None:
    """Write the directories of trusted projects to the user's file. Raises CallerError."""
    _write(path, set_toml_values(read_config(path), {"trusted": list(directories) or None}))


class FactEvidence(NamedTuple):
    """A fact's value, and a sentence about its source."""

    value: Any
    evidence: str


def write_profile(
    path: Path,
    model: str,
    facts: Mapping[str, FactEvidence],
    *,
    examined: Examination | None = None,
    questions: Collection[str] = (),
    author: Author = "doctor",
) -> tuple[str, ...]:
    """Write facts with their evidence to `[profiles.MODEL]`.

    A fact that a person wrote does not change. A fact belongs to the author if its evidence starts with the author's
    name.

    Args:
        path: The file, which need not exist.
        model: The model's name, which is the pattern.
        facts: Facts of a profile.
        examined: The backend that was examined; None keeps the old entry.
        questions: Facts that were asked for. The author's old facts among them are removed unless `facts` has them.
        author: The command that found the facts.

    Returns:
        The facts with other values that stay, because a person or an author of higher rank wrote them.

    Raises:
        CallerError: The model has no name, the file is not TOML, or its table of the model is written in a way that
            cannot be changed.
    """
    pattern = normalise(model)
    if not pattern:  # it would match every model
        raise CallerError("the model has no name", path=model, hint="name it with --model")
    text = read_config(path)
    before = dict(read_document(path, CallerError).values) if text else {}
    patterns = before.get("profiles", {})
    old = patterns.get(pattern, {}) if isinstance(patterns, Mapping) else None
    if not isinstance(old, Mapping):
        raise CallerError("not a table", path=f"{path}: profiles.{pattern}", hint="write [profiles.PATTERN]")
    own = {fact for fact in select_facts(old) if str(old.get(f"{fact}{EVIDENCE}", "")).startswith(_REPLACEABLE[author])}
    personal = tuple([fact for fact in facts if fact in old and fact not in own])
    outdated = [fact for fact in own if fact in questions and fact not in facts]
    row: dict[str, Any] = {}
    for fact, (value, evidence) in facts.items():
        if fact not in personal:
            row |= {fact: value, f"{fact}{EVIDENCE}": f"{author}: {collapse(evidence, _MAX_EVIDENCE)}"}
    if examined is not None:
        row[EXAMINED] = InlineTable(msgspec.to_builtins(examined))
    gone = {key: None for key in old if key.removesuffix(EVIDENCE) in outdated}
    try:
        after = set_toml_values(text, {"profiles": {pattern: {**gone, **row}}})
    except CallerError:
        import tomlkit  # noqa: PLC0415  # as above

        lines = tomlkit.dumps({"profiles": {pattern: merge(old, row)}})
        raise CallerError("the facts cannot be added", path=str(path), hint=f"write yourself:\n{lines}") from None
    _write(path, after)
    return tuple([fact for fact in personal if old[fact] != facts[fact].value])


def read_config(path: Path) -> str:
    """Return the text of a file with its line endings, or "" without a file."""
    return path.read_bytes().decode("utf-8-sig") if path.exists() else ""


def _end_lines_alike(after: str, before: str) -> str:
    """Return the new text, with Windows line endings if the old text has only those."""
    if "\n" not in before or before.count("\n") != before.count("\r\n"):
        return after
    return after.replace("\r\n", "\n").replace("\n", "\r\n")


def _write(path: Path, text: str) -> None:
    write_private(Path(os.path.realpath(path)), text.encode())  # keeps a symbolic link
