"""The environment variables of a server's program. Law: no variable of ours is passed on that is not named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from callboard.errors import CallerError
from callboard.mcp.settings import ServerSettings
from callboard.programs import absolute_search_path

PASSED_VARIABLES: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Those that the SDK passes to a server too."""
_PREFIX: Final = "env:"


def build_environment(settings: ServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """All variables of a server's program; of PATH only the absolute directories.

    Raises:
        CallerError: A variable that `env:NAME` refers to is not set.
    """
    passed = {name: environ[name] for name in (*PASSED_VARIABLES, *settings.inherit) if name in environ}
    if "PATH" in passed:
        passed["PATH"] = absolute_search_path(passed["PATH"])
    return passed | resolve_variables(settings.environment, environ, f"mcp.{settings.name}.environment")


def resolve_variables(values: Mapping[str, str], environ: Mapping[str, str], path: str) -> dict[str, str]:
    """Replace each `env:NAME` by the variable's value. Raises CallerError for a variable that is not set."""
    return {name: _resolve_variable(value, environ, f"{path}.{name}") for name, value in values.items()}


def _resolve_variable(value: str, environ: Mapping[str, str], path: str) -> str:
    if not value.startswith(_PREFIX):
        return value
    name = value.removeprefix(_PREFIX)
    if name not in environ:
        raise CallerError(f"{name} is not set in the environment", path=path, hint=f"export {name}=…")
    return environ[name]
