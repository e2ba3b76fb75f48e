"""Shell completion of the values of options and arguments.

Completion sends no network requests and runs no code of a project. It offers only values that can be read at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

Complete: TypeAlias = Callable[[str], list[str]]
"""Return the completions of an incomplete word."""


def _make_completion(values: Callable[[], Iterable[str]]) -> Complete:
    def complete(incomplete: str) -> list[str]:
        try:
            return [value for value in values() if value.startswith(incomplete)]
        except Exception:  # noqa: BLE001  # a traceback would appear in the command line
            return []

    return complete


def _list_local() -> list[str]:
    from callboard.providers.local.model_files import known_models  # noqa: PLC0415  # when something is completed

    return [entry.name for entry in known_models().models]


def _list_models() -> list[str]:
    from callboard.profiles import providers  # noqa: PLC0415  # as above

    return [*(f"local:{name}" for name in _list_local()), *(f"{name}:" for name in providers() if name != "local")]


def _list_jobs() -> list[str]:
    from callboard.cli.durable_store import list_jobs  # noqa: PLC0415  # as above

    return [job.id for job in list_jobs()]


def _list_chats() -> list[str]:
    from callboard.cli.durable_store import list_jobs  # noqa: PLC0415  # as above

    return [job.id for job in list_jobs() if job.kind == "chat"]


def _list_dialects() -> list[str]:
    from callboard.cli.dialects import list_dialects  # noqa: PLC0415  # as above

    return [*list_dialects()]


def _list_modes() -> list[str]:
    from callboard.modes import MODES  # noqa: PLC0415  # as above

    return [*MODES]


def _list_efforts() -> list[str]:
    from callboard.core import EFFORTS  # noqa: PLC0415  # as above

    return [*EFFORTS]


def _list_servers() -> list[str]:
    from callboard.configuration import load_settings  # noqa: PLC0415  # as above

    return [*load_settings({}, Path.cwd(), os.environ).mcp]


def _list_tools() -> list[str]:
    """Return the tools of our own ensembles: finding others would run code."""
    from callboard.configuration import load_configuration  # noqa: PLC0415  # as above

    described = load_configuration(("io",))["ensembles"]
    return [invoker.name for ensemble in described for invoker in ensemble.invokers]


local, models, jobs, chats = map(_make_completion, (_list_local, _list_models, _list_jobs, _list_chats))
dialects, modes, efforts = map(_make_completion, (_list_dialects, _list_modes, _list_efforts))
servers, tools = map(_make_completion, (_list_servers, _list_tools))
