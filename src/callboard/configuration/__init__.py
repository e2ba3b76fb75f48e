"""Settings and ensembles from files, the environment and flags."""

from __future__ import annotations

from callboard.configuration.ensembles import (
    create_ensemble_from_configuration,
    disconnect_ensembles,
    load_configuration,
    load_directory,
    names_a_module,
    prepare_ensembles,
)
from callboard.configuration.mcp import DescribedServer, load_mcp_json, read_servers
from callboard.configuration.settings import Settings, load_coding_settings, load_settings, user_file

__all__ = [
    "DescribedServer",
    "Settings",
    "create_ensemble_from_configuration",
    "disconnect_ensembles",
    "load_coding_settings",
    "load_configuration",
    "load_directory",
    "load_mcp_json",
    "load_settings",
    "names_a_module",
    "prepare_ensembles",
    "read_servers",
    "user_file",
]
