"""The control tokens of model families, by the names that profiles use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from callboard.errors import CallerError
from callboard.plugins import plugins
from callboard.text.control_tokens import ControlTokens

ALL = "all"


@cache
def control_tokens(names: str | tuple[str, ...]) -> ControlTokens:
    """Return the tokens of these rows, or of `all`. Raises CallerError for an unknown row."""
    table = token_table()
    chosen = (names,) if isinstance(names, str) else names
    if ALL in chosen:
        chosen = tuple(table)
    for name in chosen:
        if name not in table:
            raise CallerError(f"no control tokens {name!r}", hint=f"there are {', '.join((ALL, *table))}")
    rows = [table[name] for name in chosen]
    return ControlTokens(
        [token for row in rows for token in row["turns"]], [token for row in rows for token in row.get("markup", ())]
    )


@cache
def token_table() -> Mapping[str, Any]:
    """Return our rows and the rows of plug-ins (`control_tokens` of an entry point `callboard.profiles`)."""
    import tomllib  # noqa: PLC0415
    from importlib.resources import files  # noqa: PLC0415 - they cost 15 ms, on first use

    table: dict[str, Any] = tomllib.loads(
        files("callboard.profiles").joinpath("control_tokens.toml").read_text("utf-8")
    )
    for plugin in plugins("callboard.profiles"):
        table.update(plugin.get("control_tokens", {}))
    return table
