"""Load the settings of a command, and print their notices."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from callboard.configuration import Settings, load_coding_settings, load_settings, user_file
from callboard.configuration.settings import BY_NAME
from callboard.core import EFFORTS
from callboard.dialects import get_dialect
from callboard.errors import CallerError
from callboard.modes import get_mode
from callboard.providers.transport import check_url
from callboard.telemetry import TelemetrySettings, enable, wants_telemetry
from callboard.text.display import collapse
from callboard.text.suggest import suggest

COMMAND_TIMEOUT: Final = 2.0
"""Seconds to wait for the collector at a command's end."""


def load_telemetry_settings() -> TelemetrySettings:
    """Load the user's `[telemetry]`. Commands outside projects use it. Raises CallerError."""
    return load_settings({}, user_file(os.environ).parent, os.environ).telemetry


def read_log_level(text: str) -> int:
    """Return the level of an option `--log-level`. Raises BadParameter."""
    level = logging.getLevelNamesMapping().get(text.upper())
    if level is None:
        raise typer.BadParameter("debug, info, warning or error", param_hint="--log-level")
    return level


def start_telemetry(settings: TelemetrySettings, *, timeout: float | None = COMMAND_TIMEOUT) -> None:
    """Send telemetry of this command, if it is turned on. The rest is sent when the process ends.

    If only the standard variables turn it on and it fails, warn and continue: they may be meant for other programs.

    Args:
        settings: The settings of `[telemetry]`.
        timeout: Seconds per signal to wait for a collector at the end; None is OpenTelemetry's 10.

    Raises:
        CallerError: `[telemetry]` has an endpoint, but the extra `otel` is not installed or the protocol is unknown.
    """
    if wants_telemetry(settings, os.environ):
        # Hide a warning for each retry. A lost batch is an error, and is shown.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        try:
            enable(settings, timeout=timeout)
        except CallerError as error:
            if settings.endpoint:
                raise
            typer.echo(f"callboard: warning: no telemetry is sent: {error}", err=True)


_MAX_NOTICE_CHARS: Final = 2000
"""Maximum characters of a notice: enough for all keys of a project's file, and paths."""


def settings_in(place: Path, flags: Mapping[str, Any], *, for_coding: bool = False) -> Settings:
    """Load the settings of a command that works in a directory, or of a coding agent. Raises CallerError.

    Prints ignored values of the project's file on standard error, in one line without escape sequences.
    """
    settings = (load_coding_settings if for_coding else load_settings)(flags, place, os.environ)
    for notice in settings.notices:
        typer.echo(f"callboard: {collapse(notice, _MAX_NOTICE_CHARS)}", err=True)

    check_value(settings.sources["base_url"], settings.base_url, check_url)
    check_value(settings.sources["mode"], settings.mode, get_mode)
    check_value(settings.sources["dialect"], settings.dialect, get_dialect)
    check_value(settings.sources["effort"], settings.effort, check_effort)
    return settings


def check_effort(name: str) -> None:
    """Raise CallerError if there is no such effort."""
    if name not in EFFORTS:
        raise CallerError(f"no effort {name!r}", hint=suggest(name, EFFORTS))


def check_value(source: str, value: str, parse: Callable[[str], object]) -> None:
    """Parse a value if it is set. Raises CallerError with the flag, variable or file of the value."""
    try:
        if value:
            parse(value)
    except CallerError as error:
        what = f"{error.path} is {error.message}" if error.path else error.message
        raise CallerError(what, path=source, hint=error.hint) from None


def settings_here(**flags: Any) -> Settings:
    """Load the settings of a command that works in the current directory. Raises CallerError."""
    return settings_in(Path.cwd(), flags)


def import_from(directory: Path | None) -> None:
    """Also import modules from a directory. It comes last, so its files do not replace installed modules."""
    if directory is not None and str(directory) not in sys.path:
        sys.path.append(str(directory))


def module_directory(settings: Settings, key: str) -> Path | None:
    """Return the directory of modules that `tools` or `ensembles` name, or None for installed modules only.

    Names on the command line use the current directory, names in a project's file the directory of that file. The
    user's own file applies in every repository, so its names must not import files of a repository.
    """
    source = settings.sources[key]
    if source == BY_NAME[key].flag:
        return Path.cwd()
    return None if source in {"default", str(user_file(os.environ))} else Path(source).parent
