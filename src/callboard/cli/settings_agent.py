"""The agent of a directory's settings, as a worker and `/agui` run it: its model, tools and instructions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from callboard.agent import Agent
from callboard.cli.load_tools import Toolbox, select_servers
from callboard.cli.mcp_servers import silence_sdk
from callboard.cli.models import open_model
from callboard.configuration import Settings
from callboard.loop import Limits


@asynccontextmanager
async def open_settings_agent(
    settings: Settings, tell: Callable[[str], None], files: Iterable[str] | None = None
) -> AsyncIterator[Agent[Any]]:
    """The agent, connected to its servers; `files` name more of these. Raises CallboardError."""
    # In a thread: a local model that is not here is pulled, with an event loop of its own.
    model = await asyncio.to_thread(open_model, settings, tell)
    try:
        silence_sdk()
        async with Toolbox.from_settings(settings, tell, select_servers(settings, files).values()) as ensembles:
            yield Agent(
                model,
                ensembles=ensembles,
                instructions=settings.instructions,
                limits=Limits(rounds=settings.max_rounds - 1, cost=settings.budget),
                policy=settings.policy,
            )
    finally:
        await model.aclose()
