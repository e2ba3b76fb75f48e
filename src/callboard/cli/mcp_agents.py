"""`callboard mcp serve --agents`: the coding agents of one repository, whose calls are durable jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from callboard.cli.background import COMMAND
from callboard.cli.settings import settings_in
from callboard.configuration import Settings
from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.tools import Ensemble

if TYPE_CHECKING:
    from callboard.jobs.database import Database
    from callboard.servers.mcp.tasks import TaskHandlers


def find_repository(agents: bool, directory: Path | None) -> Path | None:
    """The directory that the agents work on; None where none are served. Raises CallerError.

    It has to be named: a server is often started by its client, in whatever directory that is.
    """
    if not agents:
        if directory is not None:
            raise CallerError("nothing works there", path="--directory", hint="it is where --agents work")
        return None
    require_extra("jobs")
    if directory is None:
        raise CallerError("where do the agents work?", path="--agents", hint="give --directory")
    if not directory.is_dir():
        raise CallerError("no such directory", path=f"--directory {directory}")
    return directory.resolve()


@asynccontextmanager
async def open_served_agents(
    repository: Path | None, tell: Callable[[str], None]
) -> AsyncIterator[tuple[list[Ensemble], TaskHandlers | None]]:
    """The agents' tools and tasks; nothing without a repository. Raises CallerError and DatabaseUnavailable."""
    if repository is None:
        yield [], None
        return
    from callboard.jobs.coding_kind import host_queue  # noqa: PLC0415
    from callboard.jobs.local_worker import start_worker  # noqa: PLC0415
    from callboard.servers.mcp.agent_job_tools import job_ensemble  # noqa: PLC0415
    from callboard.servers.mcp.open_agents import open_agents  # noqa: PLC0415
    from callboard.servers.mcp.tasks import TaskHandlers  # noqa: PLC0415

    def read_settings() -> Settings:
        return settings_in(repository, {})

    def start(database: Database) -> None:
        if start_worker(database, COMMAND) is None and not database.is_sqlite:
            tell(f"a worker of this host runs the jobs: callboard worker --queue {host_queue()}")

    await asyncio.to_thread(read_settings)  # what is wrong with them is said now, not at the first job
    async with open_agents(repository, read_settings, start) as jobs:
        yield [job_ensemble(jobs)], TaskHandlers(jobs)
