"""What a server gets of our environment.

Owns the few variables that every program needs, and the values written as `env:NAME`.
Law: nothing passes that is not named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from callboard.errors import CallerError
from callboard.mcp.settings import ServerSettings
from callboard.programs import absolute_path

PASSED: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What the SDK passes to a server."""
_OURS: Final = "env:"


def environment_of(settings: ServerSettings, ours: Mapping[str, str]) -> dict[str, str]:
    """All that a program gets; of PATH what does not depend on the current directory. Raises CallerError that names a variable that is not set here."""
    passed = {name: ours[name] for name in (*PASSED, *settings.inherit) if name in ours}
    if "PATH" in passed:
        passed["PATH"] = absolute_path(passed["PATH"])
    return passed | resolved(settings.environment, ours, f"mcp.{settings.name}.environment")


def resolved(values: Mapping[str, str], ours: Mapping[str, str], path: str) -> dict[str, str]:
    """The values, `env:NAME` replaced by the variable. Raises CallerError that names one that is not set."""
    return {name: _resolved(value, ours, f"{path}.{name}") for name, value in values.items()}


def _resolved(value: str, ours: Mapping[str, str], path: str) -> str:
    if not value.startswith(_OURS):
        return value
    name = value.removeprefix(_OURS)
    if name not in ours:
        raise CallerError(f"{name} is not set in the environment", path=path, hint=f"export {name}=…")
    return ours[name]
