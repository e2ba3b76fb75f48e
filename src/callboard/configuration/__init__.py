"""What files, the environment and flags say: ensembles and settings."""

from __future__ import annotations

from callboard.configuration.ensembles import (
    disconnect_ensembles,
    load_configuration,
    load_directory,
    prepare_ensembles,
)
from callboard.configuration.settings import Settings, load_settings

__all__ = [
    "Settings",
    "disconnect_ensembles",
    "load_configuration",
    "load_directory",
    "load_settings",
    "prepare_ensembles",
]
