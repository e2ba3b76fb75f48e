"""Another program's settings, with ours among them.

Owns the change of a text in TOML or JSON. Knows nothing of files or of what the keys mean.
Laws: what is not set stays as it is, in TOML with its comments; a text that cannot be changed so is refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, TypeAlias

from callboard.configuration.toml import line_of
from callboard.errors import CallerError

Path: TypeAlias = tuple[str, ...]


def with_toml(text: str, values: Mapping[str, Any]) -> str:
    """The text with the values in it. Raises CallerError for one that is no TOML, or that spells them in a way that is not followed."""
    before = read_toml(text)
    try:
        after = _changed(text, before, values)
        followed = read_toml(after) == merged(before, values)
    except CallerError:
        followed = False
    if not followed:
        raise CallerError("its keys are spelled in a way that is not followed", hint="write them by hand")
    return after


def _changed(text: str, before: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    for table, pairs in groupby(leaves(values), lambda leaf: leaf[0][:-1]):
        wanted = [(path, value) for path, value in pairs if _at(before, path) != value]
        if table and _at(before, table) is None:
            text = _with_table(text, table, wanted)
            continue
        for path, value in wanted:
            text = _with_pair(text, path, value)
    return text


def read_toml(text: str) -> dict[str, Any]:
    """Raises CallerError."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CallerError(f"not TOML: {error}", hint="write the keys by hand") from None


def with_json(text: str, values: Mapping[str, Any]) -> str:
    """The text with the values in it, written anew. Raises CallerError for one that is no JSON, such as one with comments."""
    return f"{json.dumps(merged(read_json(text), values), indent=2, ensure_ascii=False)}\n"


def read_json(text: str) -> dict[str, Any]:
    """An empty text has no values. Raises CallerError."""
    try:
        read = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise CallerError(f"not JSON: {error}", hint="write the keys by hand") from None
    if not isinstance(read, dict):
        raise CallerError("not a JSON object")
    return read


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The old values, with the new ones above them."""
    found = dict(old)
    for key, value in new.items():
        inner = found.get(key)
        found[key] = merged(inner if isinstance(inner, Mapping) else {}, value) if isinstance(value, Mapping) else value
    return found


def replaced(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What is there and would be another: the dotted path, the old value and the new one."""
    return [
        (".".join(path), there, value)
        for path, value in leaves(new)
        if (there := _at(old, path)) is not None and there != value
    ]


def leaves(values: Mapping[str, Any], within: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The values that are no tables, by their paths."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*within, key))
        else:
            yield (*within, key), value


def _at(values: Any, path: Path) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def _with_table(text: str, table: Path, pairs: Iterable[tuple[Path, Any]]) -> str:
    lines = [f"[{'.'.join(table)}]", *[_pair(path[-1], value) for path, value in pairs], ""]
    return "\n".join([text.rstrip("\n"), "", *lines] if text.strip() else lines)


def _with_pair(text: str, path: Path, value: Any) -> str:
    """The text with one value, on the line of the old one or at the beginning of its table."""
    *table, key = path
    lines = text.split("\n")
    if _at(read_toml(text), path) is not None:
        place = (line_of(text, path) or 1) - 1
        lines[place] = _pair(lines[place].partition("=")[0].rstrip(), value)
    else:
        place = (line_of(text, tuple(table)) or 0) if table else _after_pairs(text, lines)
        lines.insert(place, _pair(key, value))
    return "\n".join(lines)


def _pair(key: str, value: Any) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"  # TOML spells strings, numbers and booleans as JSON does


def _after_pairs(text: str, lines: list[str]) -> int:
    """Behind the last line that begins with a key of no table; before all others where there is none."""
    places = [line_of(text, (key,)) or 0 for key, value in read_toml(text).items() if not isinstance(value, Mapping)]
    last = max(places, default=0)
    # A value may go on over several lines: then the beginning is the place.
    return last if last and _is_whole(lines[last - 1]) else 0


def _is_whole(line: str) -> bool:
    try:
        tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return False
    return True
