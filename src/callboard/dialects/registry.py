"""Find dialects by name, or by the chat template of a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from callboard.dialects.dialect import Dialect
from callboard.dialects.table import AUTO, DIALECTS
from callboard.errors import CallerError
from callboard.plugins import plugins
from callboard.text.suggest import suggest


def get_dialect(name: str) -> Dialect:
    """Return the dialect `name`, ours or a plug-in's. Case does not matter, and `-` and `_` are the same.

    Raises CallerError.
    """
    key = name.lower().replace("-", "_")
    rows = DIALECTS.get(key)
    if rows is not None:
        return rows
    added: dict[str, Dialect] = {dialect.name: dialect for dialect in plugins("callboard.dialects")}
    if key not in added:
        hint = suggest(key, [*DIALECTS, *added]) or "`callboard dialects` lists them"
        raise CallerError(f"no dialect {name!r}", hint=hint)
    return added[key]


def dialect_of(names: Sequence[str]) -> Dialect:
    """Return the dialect of `names`. If there are several, the first call decides which of them reads it.

    Raises CallerError.
    """
    rows = tuple([get_dialect(name) for name in names])
    return rows[0] if len(rows) == 1 else either(rows)


@lru_cache(maxsize=256)
def either(dialects: tuple[Dialect, ...]) -> Dialect:
    """Return a dialect that reads the one of `dialects` that makes the first call."""
    spoken = tuple(dict.fromkeys([each for dialect in dialects for each in (dialect.alternatives or (dialect,))]))
    names = ", ".join([dialect.name for dialect in dialects])
    reasoning = tuple(dict.fromkeys([each for dialect in spoken for each in dialect.reasoning]))
    return replace(
        AUTO,
        name=names,
        summary=f"the first of {names} to make a call",
        alternatives=spoken,
        reasoning=reasoning,
        is_only_format=dialects[0].is_only_format,
    )


def dialect_of_template(template: str) -> Dialect | None:
    """Return the dialect that the chat template `template` teaches, or None.

    If several rows match, the row with the longest matching set of words is used.
    """
    best: tuple[int, Dialect] | None = None
    for dialect in DIALECTS.values():
        for words in dialect.template_words:
            size = sum(map(len, words))
            if all(word in template for word in words) and (best is None or size > best[0]):
                best = size, dialect
    return best[1] if best else None
