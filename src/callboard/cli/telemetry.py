"""Telemetry of a command: turned on where the user's settings or the environment say where it goes."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from callboard.telemetry import TelemetrySettings


def load_telemetry_settings() -> TelemetrySettings:
    """The user's `[telemetry]`, for a command that belongs to no project. Raises CallerError."""
    from callboard.configuration import load_settings, user_file  # noqa: PLC0415  # not for --help

    return load_settings({}, user_file(os.environ).parent, os.environ).telemetry


def read_log_level(text: str) -> int:
    """The level of an option `--log-level`. Raises BadParameter."""
    level = logging.getLevelNamesMapping().get(text.upper())
    if level is None:
        raise typer.BadParameter("debug, info, warning or error", param_hint="--log-level")
    return level


def start_telemetry(settings: TelemetrySettings) -> None:
    """Tell what this command does, if anybody wants to know. What is left is sent when the process ends.

    Raises:
        CallerError: The extra `otel` is not installed, or OTLP is to be sent in a way that is not there.
    """
    from callboard.telemetry import enable, wants_telemetry  # noqa: PLC0415  # not for --help

    if wants_telemetry(settings, os.environ):
        enable(settings)
