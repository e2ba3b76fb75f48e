"""Refuse jobs with options that only the worker's user may set, and directories in which no job may work.

Others can write to a PostgreSQL database. A worker that trusted their rows would run their code, send its keys to their
address, or show them its user's files. So it refuses such jobs, unless its user trusts the database.

Law: the worker checks a job with its own user's settings before it reads or runs anything of the job. Submission runs
the same check, so you see the error at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from callboard.coding.agents.job_request import ACCESS_LEVELS, JobRequest
from callboard.errors import CallerError
from callboard.jobs.database import Database
from callboard.jobs.services import load_job_settings
from callboard.profiles import is_of_host
from callboard.sandbox.readable_paths import holds_keys

_REFUSED: Final[Mapping[str, str]] = {
    "tools": "--tools",
    "ensembles": "--ensembles",
    "mcp": "--mcp",
    "base_url": "--base-url",
    "push": "--push",
    "open_pull_request": "--pr",
    "without_sandbox": "--no-sandbox",
    "allow_weaker_sandbox": "--allow-weaker-sandbox",
}
"""Fields of a job's input, and the options that set them."""


def check_request(request: JobRequest, database: Database) -> None:
    """Refuse a coding job with a directory or options that only the worker's user may choose.

    Raises:
        CallerError: The directory or an option of the job is refused.
    """
    check_directory(request.directory, database)
    mode = request.settings.coding.modes.get(request.kind)
    most = (mode and mode.access) or "full"
    is_more = ACCESS_LEVELS.index(request.access_level) > ACCESS_LEVELS.index(most)
    check_options({**request.input, "access": request.access if is_more else ""}, database)


def check_directory(directory: str | Path, database: Database) -> None:
    """Refuse a directory in which a job may not work.

    Raises:
        CallerError: Keys are stored in the directory, or others can write to the database and the user's own
            callboard.toml does not list the directory.
    """
    place = Path(os.path.realpath(directory))
    if holds_keys(place):
        hint = "work in a directory of a project"
        raise CallerError("no job may work in a home directory or a directory of keys", path=str(directory), hint=hint)
    if database.is_sqlite:
        return
    settings = load_job_settings()
    listed = [os.path.realpath(os.path.expanduser(each)) for each in settings.directories]  # noqa: PTH111  # never raises
    if not settings.trust_database and not any(place.is_relative_to(each) for each in listed):
        raise CallerError(
            "a job from a database that others can write to may not work in this directory",
            path=str(directory),
            hint="list it in directories = [...] in [jobs] of the callboard.toml of the worker's user",
        )


def check_options(options: Mapping[str, Any], database: Database) -> None:
    """Refuse options of a job that only the worker's user may set.

    Args:
        options: The options of the job, by the names of their fields.
        database: The database of the job. Only its user can write to an SQLite file.

    Raises:
        CallerError: Such an option is set, and the user's own callboard.toml does not trust the database.
    """
    if database.is_sqlite:
        return
    refused = [option for name, option in _REFUSED.items() if options.get(name)]
    model = options.get("model")
    if isinstance(model, str) and is_of_host(model):
        refused.append(f"--model {model}")
    if options.get("access"):
        refused.append(f"--access {options['access']}")
    if refused and not load_job_settings().trust_database:
        raise CallerError(
            "a job from a database that others can write to may not set this",
            path=", ".join(refused),
            hint="trust_database = true in [jobs] of the callboard.toml of the worker's user allows it",
        )
