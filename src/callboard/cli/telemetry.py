"""Telemetry of a command: turned on where the user's settings or the environment say where it goes."""

from __future__ import annotations

import logging
import os
from typing import Final

import typer

from callboard.configuration import load_settings, user_file
from callboard.errors import CallerError
from callboard.telemetry import TelemetrySettings, enable, wants_telemetry

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
