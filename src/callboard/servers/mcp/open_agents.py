"""Open the coding agents of a repository for an MCP server: the database of their jobs, and how a job is made in it.

The jobs run in a worker, a process of its own that is started where there is none. So they go on when the server's client,
and the server with it, have gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from callboard.coding.agents.job_request import MAX_LOGS, JobRequest
from callboard.configuration import Settings
from callboard.jobs.coding_kind import KINDS, submit_request
from callboard.jobs.database import Database
from callboard.jobs.engine import Engine
from callboard.jobs.job import DurableJob
from callboard.jobs.store import DurableStore
from callboard.servers.mcp.agent_jobs import AgentJobs

_FIELDS: Final[Mapping[str, str]] = {"symptoms": "description"}
"""Of a request, where an argument of a tool is called otherwise."""


@asynccontextmanager
async def open_agents(
    directory: Path,
    read_settings: Callable[[], Settings],
    start_worker: Callable[[Database], object],
    *,
    url: str = "",
) -> AsyncIterator[AgentJobs]:
    """The jobs of the agents in a directory.

    Args:
        directory: The operator's repository, or a folder without git.
        read_settings: The settings of the directory; they are read for each job.
        start_worker: Starts a worker of the database unless one runs; it is called in a thread.
        url: The database; see `Database.open`.

    Raises:
        CallerError: The database is another program's or of a newer version.
        DatabaseUnavailable: It cannot be opened.
    """
    database = await asyncio.to_thread(Database.open, url)
    try:
        store = DurableStore(database, Engine(database).enqueue)

        async def submit(kind: str, arguments: Mapping[str, Any]) -> DurableJob:
            request = make_request(kind, arguments, directory, await asyncio.to_thread(read_settings))
            return await submit_request(store, request, request.settings.model)

        yield AgentJobs(store, str(directory), KINDS, submit, lambda: start_worker(database))
    finally:
        await asyncio.to_thread(database.close)


def make_request(kind: str, arguments: Mapping[str, Any], directory: Path, settings: Settings) -> JobRequest:
    """What a client asks of an agent, within what the operator's settings let it do. Raises CallerError."""
    fields = {_FIELDS.get(name, name): value for name, value in arguments.items()}
    if "logs" in fields:
        fields["logs"] = fields["logs"][-MAX_LOGS:]
    return JobRequest(kind=kind, directory=directory, settings=settings, **fields)  # type: ignore[arg-type]  # it is one
