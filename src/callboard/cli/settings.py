"""Load the settings of a command, and print their notices."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from callboard.configuration import Settings, load_settings, user_file
from callboard.configuration.settings import BY_NAME
from callboard.dialects import get_dialect
from callboard.errors import CallerError
from callboard.modes import get_mode
from callboard.providers.transport import check_url
from callboard.text.display import collapse

_MAX_NOTICE_CHARS: Final = 2000
"""Room for all keys of a project's file, and paths."""


def settings_in(place: Path, flags: Mapping[str, Any]) -> Settings:
    """The settings of a command that works in a directory. Raises CallerError.

    Which values of the project's file were ignored is printed on standard error, in a line without escape sequences.
    """
    settings = load_settings(flags, place, os.environ)
    for notice in settings.notices:
        typer.echo(f"callboard: {collapse(notice, _MAX_NOTICE_CHARS)}", err=True)

    check_value(settings.sources["base_url"], settings.base_url, check_url)
    check_value(settings.sources["mode"], settings.mode, get_mode)
    check_value(settings.sources["dialect"], settings.dialect, get_dialect)
    return settings


def check_value(source: str, value: str, parse: Callable[[str], object]) -> None:
    """Parse a value, if it is set. Raises CallerError with the flag, variable or file that the value comes from."""
    try:
        if value:
            parse(value)
    except CallerError as error:
        what = f"{error.path} is {error.message}" if error.path else error.message
        raise CallerError(what, path=source, hint=error.hint) from None


def settings_here(**flags: Any) -> Settings:
    """The settings of a command that works in the current directory. Raises CallerError."""
    return settings_in(Path.cwd(), flags)


def import_from(directory: Path | None) -> None:
    """Import modules from a directory too: as the last one, so that its files replace no installed module."""
    if directory is not None and str(directory) not in sys.path:
        sys.path.append(str(directory))


def module_directory(settings: Settings, key: str) -> Path | None:
    """The directory of the modules that `tools` or `ensembles` name, besides what is installed; None for none.

    That is the current directory for names on the command line, and the file's own for a project's file. The user's own file
    holds in every directory, also in somebody else's repository, whose files must not be imported in place of a module that
    is not installed.
    """
    source = settings.sources[key]
    if source == BY_NAME[key].flag:
        return Path.cwd()
    return None if source in {"default", str(user_file(os.environ))} else Path(source).parent
