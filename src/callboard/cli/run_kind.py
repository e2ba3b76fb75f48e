"""The kind "run": a job is one prompt of `callboard run --background`, with the model and the tools of a directory.

The worker runs in that directory, so tools find the same files as in a direct run. Each segment reads the model and the
settings again. A call that needs approval waits for an answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.cli.settings import settings_here
from callboard.cli.tools import open_settings_agent
from callboard.core import UserCanister, contents
from callboard.jobs.agent_kind import AgentInput, AgentKind
from callboard.jobs.coding_kind import host_queue
from callboard.jobs.database import Database
from callboard.jobs.job import DurableJob, JobKind, Outcome
from callboard.jobs.segment import JobSegment
from callboard.jobs.shared_database import check_directory, check_options
from callboard.jobs.store import DurableStore

KIND: Final = "run"
_DIGITS: Final = 12
_OPTIONS: Final = "options"
"""Key of the `RunFlags` in a job's input."""


class RunFlags(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of the command line, which override the settings."""

    model: str = ""
    base_url: str = ""
    tools: list[str] | None = None
    ensembles: list[str] | None = None
    mcp: list[str] | None = None
    mode: str = ""
    context: int = 0
    effort: str = ""
    max_rounds: int | None = None
    budget: float | None = None


def run_queue(directory: str) -> str:
    """Return the queue of the runs in a directory of this host."""
    return f"{host_queue()}:{directory}"


def worker_name(directory: str) -> str:
    """Return the name for the files of a directory's worker."""
    return f"run-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:_DIGITS]}"


async def submit_run(store: DurableStore, prompt: str, flags: RunFlags, model: str) -> DurableJob:
    """Queue a run in the current directory. Raises CallerError, DatabaseUnavailable."""
    options = msgspec.to_builtins(flags)
    check_options(options, store.database)
    directory = str(Path.cwd())
    check_directory(directory, store.database)
    job_input = AgentInput(agent="", prompt=UserCanister(contents(prompt)))
    return await store.create(
        KIND,
        description=prompt,
        directory=directory,
        model=model,
        input={**job_input.to_json(), _OPTIONS: options},
        queue=run_queue(directory),
    )


class RunKind(JobKind):
    """Runs these jobs in the current directory; `tell` gets lines for the user."""

    name = KIND

    def __init__(self, database: Database, tell: Callable[[str], None]) -> None:
        self._database = database
        self._tell = tell

    def find_obstacle(self, job: DurableJob) -> str:
        """Return an obstacle if this process runs in another directory."""
        if str(Path.cwd()) == job.directory:
            return ""
        return f"the job's worker runs in another directory; start callboard worker in {job.directory}"

    async def run(self, segment: JobSegment) -> Outcome:
        """Continue the run until it ends, waits, or hands over to the next segment."""
        flags = msgspec.convert(segment.job.input.get(_OPTIONS, {}), RunFlags)
        fields: dict[str, Any] = msgspec.structs.asdict(flags)
        check_options(fields, self._database)
        check_directory(Path.cwd(), self._database)
        files = fields.pop("mcp")
        settings = await asyncio.to_thread(lambda: settings_here(**fields))
        async with open_settings_agent(settings, self._tell, files) as agent:
            return await AgentKind({"": agent}).run(segment)
