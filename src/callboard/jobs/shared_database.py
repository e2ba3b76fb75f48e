"""What a job may not say in a database that others write to.

The worker of such a job would run somebody else's code, without a sandbox, or send its keys to an address of theirs. So
it refuses what only its own user may decide, unless the user trusts whoever writes to the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callboard.errors import CallerError
from callboard.jobs.database import Database
from callboard.jobs.user_settings import load_job_settings
from callboard.profiles import model_names, providers, split_provider

_REFUSED: Final[Mapping[str, str]] = {
    "tools": "--tools",
    "ensembles": "--ensembles",
    "mcp": "--mcp",
    "base_url": "--base-url",
    "without_sandbox": "--no-sandbox",
    "allow_weaker_sandbox": "--allow-weaker-sandbox",
}
"""Fields of what a job was asked with, and the options that set them."""
_PROGRAM: Final = "command"
"""The provider whose models are programs."""


def check_options(options: Mapping[str, Any], database: Database) -> None:
    """Refuse the options of a job that its worker's user has to decide.

    Args:
        options: Of the job, by the names of their fields.
        database: Where it is; in a file of SQLite its user alone writes.

    Raises:
        CallerError: One is set, and the user's own callboard.toml does not trust the database.
    """
    if database.is_sqlite:
        return
    refused = [option for name, option in _REFUSED.items() if options.get(name)]
    model = options.get("model")
    names = model_names(model) if isinstance(model, str) and model else []
    if any(split_provider(each, providers())[0] == _PROGRAM for each in names):
        refused.append(f"--model {model}")
    if refused and not load_job_settings().trust_database:
        raise CallerError(
            "a job in a database that others write to cannot say so",
            path=", ".join(refused),
            hint="trust_database = true in [jobs] of the callboard.toml of the worker's user allows it",
        )
