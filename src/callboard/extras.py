"""Check that an extra's packages are installed, without importing them.

It takes microseconds, so it is done before anything is downloaded, recorded or served. The hint also works if Callboard
was installed from a clone: pip reads the extras of the installed package.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from callboard.errors import CallerError

_EXTRAS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "board": ("the board", ("itsdangerous", "jinja2", "starlette", "uvicorn")),
    "acp": ("an editor", ("acp",)),
    "coding": ("a coding agent", ("sqlalchemy", "psycopg", "croniter", "prompt_toolkit", "tree_sitter")),
    "gateway": ("the gateway", ("starlette", "uvicorn", "prometheus_client", "websockets")),
    "jobs": ("a durable job", ("sqlalchemy", "psycopg", "croniter")),
    "local": ("a model of this machine", ("xllamacpp",)),
    "mcp": ("MCP", ("mcp",)),
    "otel": ("telemetry", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "prometheus_client")),
    "prices": ("the price of a model", ("genai_prices",)),
    "store": ("a store", ("sqlalchemy",)),
    "temporal": ("the engine Temporal", ("temporalio",)),
}
"""The features of each extra, and the modules that show that it is installed."""


def require_extra(*extras: str) -> None:
    """Check that extras are installed.

    Raises:
        CallerError: A module cannot be found; the hint is the command that installs all extras that are missing.
    """
    missing = [extra for extra in extras if not is_extra_installed(extra)]
    if missing:
        what, modules = _EXTRAS[missing[0]]
        module = next(each for each in modules if not _is_installed(each))
        raise CallerError(f"{what} needs {module}", hint=f"pip install 'callboard[{','.join(missing)}]'")


def is_extra_installed(extra: str) -> bool:
    """Whether all modules by which an extra is known can be found."""
    return all(_is_installed(module) for module in _EXTRAS[extra][1])


def _is_installed(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it would be in
        return False
