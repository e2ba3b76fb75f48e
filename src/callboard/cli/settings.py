"""The settings of a command, and what a person is told of them.

Owns the one way from the command line to `callboard.configuration`. Knows nothing of what they mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from callboard.configuration import Settings, load_settings, user_file
from callboard.configuration.setting_keys import BY_NAME
from callboard.errors import CallerError
from callboard.text.display import collapse

_MAX_NOTICE_CHARS: Final = 2000
"""Characters of a notice: all keys of a project's file, and paths."""


def settings_in(place: Path, flags: Mapping[str, Any]) -> Settings:
    """The settings of a command that works in a directory.

    What of the project's file was not taken is told on standard error, in one line that no escape sequence gets into.
    Raises CallerError.
    """
    settings = load_settings(flags, place, os.environ)
    for notice in settings.notices:
        typer.echo(f"callboard: {collapse(notice, _MAX_NOTICE_CHARS)}", err=True)
    from callboard.modes import mode_named  # noqa: PLC0415  # not for --help
    from callboard.providers.transport import check_url  # noqa: PLC0415  # as above

    check_value(settings.sources["base_url"], settings.base_url, check_url)
    check_value(settings.sources["mode"], settings.mode, mode_named)
    return settings


def check_value(source: str, value: str, parse: Callable[[str], object]) -> None:
    """Raises CallerError, whose path is the flag, variable or file that a value comes from, where `find` does not take it."""
    try:
        if value:
            parse(value)
    except CallerError as error:
        what = f"{error.path} is {error.message}" if error.path else error.message
        raise CallerError(what, path=source, hint=error.hint) from None


def settings_here(**flags: Any) -> Settings:
    """The settings of a command that works in the current directory. Raises CallerError."""
    return settings_in(Path.cwd(), flags)


def module_directory(settings: Settings, key: str) -> Path | None:
    """Where the modules that `tools` or `ensembles` name are looked for besides what is installed, None for nowhere.

    That is the current directory for what is typed, and its own for a project's file. The user's own file holds in
    every directory, also in somebody else's repository, which is not to stand in for a module that is not installed.
    """
    source = settings.sources[key]
    if source == BY_NAME[key].flag:
        return Path.cwd()
    return None if source in {"default", str(user_file(os.environ))} else Path(source).parent
