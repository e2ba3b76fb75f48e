"""Load the settings of a command, and print their notices."""

from __future__ import annotations

import logging
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
from callboard.telemetry import TelemetrySettings, enable, wants_telemetry
from callboard.text.display import collapse

COMMAND_TIMEOUT: Final = 2.0
"""Seconds: a person waits for a command to end."""


def load_telemetry_settings() -> TelemetrySettings:
    """The user's `[telemetry]`, for a command that belongs to no project. Raises CallerError."""
    return load_settings({}, user_file(os.environ).parent, os.environ).telemetry


def read_log_level(text: str) -> int:
    """The level of an option `--log-level`. Raises BadParameter."""
    level = logging.getLevelNamesMapping().get(text.upper())
    if level is None:
        raise typer.BadParameter("debug, info, warning or error", param_hint="--log-level")
    return level


def start_telemetry(settings: TelemetrySettings, *, timeout: float | None = COMMAND_TIMEOUT) -> None:
    """Tell what this command does, if anybody wants to know. What is left is sent when the process ends.

    The standard variables may be there for other programs, so where they alone ask for it and it cannot be had, the
    command says so and goes on.

    Args:
        settings: What `[telemetry]` says.
        timeout: Seconds that the end of the process waits for a collector, for each signal; None is OpenTelemetry's 10.

    Raises:
        CallerError: `[telemetry]` has an endpoint, and the extra `otel` is not installed, or OTLP is to be sent in a
            way that is not there.
    """
    if wants_telemetry(settings, os.environ):
        # Each try is one of its warnings. That a batch is lost is an error, and is shown.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        try:
            enable(settings, timeout=timeout)
        except CallerError as error:
            if settings.endpoint:
                raise
            typer.echo(f"callboard: warning: no telemetry is sent: {error}", err=True)


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
