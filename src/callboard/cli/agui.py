"""Serve agents to front-ends that speak AG-UI 1.0: at `/agui` of the gateway and of the board."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import typer
from msgspec.structs import replace

from callboard.agent import Agent
from callboard.cli.models import open_model
from callboard.cli.settings import import_from, settings_here
from callboard.cli.tools import open_settings_agent
from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.jobs.job import normalize_reference
from callboard.jobs.streams import JobStreams
from callboard.servers.gateway.auth import LOOPBACK, Authenticator, digest
from callboard.servers.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from callboard.servers.agui.endpoint import AguiExtension, OwnJobs
    from callboard.servers.gateway.endpoints import Services

HERE: Final = "run"
"""Name of this directory's agent, with the model, tools, instructions and budget of `callboard run`."""
HELP: Final = "An agent for /agui: MODULE:NAME, FILE.py:NAME, or run for the agent of callboard run; repeatable."


def check_agents(references: Sequence[str]) -> None:
    """Check that the agents can be loaded, before serving. Raises CallerError."""
    require_extra("jobs")

    names = [_name(each) for each in references]
    for each in references:
        if names.count(_name(each)) > 1:
            raise CallerError("two agents would have the same address", path=f"--agui {each}", hint="rename one")
        if each == HERE:
            # Checks its key and its extra, and downloads a local model.
            asyncio.run(open_model(settings_here(), _tell).aclose())
        else:
            from callboard.jobs.agent_kind import load_agent  # noqa: PLC0415  # half a second

            import_from(Path.cwd())
            load_agent(each)


def make_key() -> tuple[str, dict[str, str]]:
    """Return a new key for clients of `/agui`, and its digest by its name.

    Clients of `/agui` run agents and allow their calls. Without a key every user of this machine could do so.
    """
    key = secrets.token_urlsafe(24)
    return key, {"printed": digest(key)}


def describe_key(key: str, address: str) -> str:
    """Return the line that shows the new key to the user."""
    return f"clients of {address}/agui send this key: {key}"


def extend_gateway_by_agui(
    references: Sequence[str], keys: Mapping[str, str], services: Services, streams: JobStreams
) -> AguiExtension:
    """Serve these agents at `/agui` of a gateway's worker. The `keys` count if the gateway has none of its own.

    Their jobs are in the gateway's store if it has one, else in the user's database of jobs.
    """
    from callboard.servers.agui.endpoint import (  # noqa: PLC0415
        AguiExtension,
        AguiService,
        OwnJobs,
    )

    gateway = services.gateway
    settings = gateway.settings
    jobs = OwnJobs(settings.store, streams)
    service = AguiService(_references(references), partial(open_agents, references), jobs, gateway.spending)
    authenticator = gateway.authenticator if settings.keys else Authenticator(replace(settings, keys=keys), monotonic)
    return AguiExtension(service, authenticator, settings.limits, gateway.request_budget)


def extend_board_by_agui(
    references: Sequence[str], keys: Mapping[str, str], origins: Sequence[str], hosts: Collection[str], jobs: OwnJobs
) -> AguiExtension:
    """Serve these agents at `/agui` of a board's own server, by the rules of a gateway without backends."""
    from callboard.servers.agui.endpoint import AguiExtension, AguiService  # noqa: PLC0415  # not for --help
    from callboard.servers.gateway.request_body import ByteBudget  # noqa: PLC0415

    rules = GatewaySettings(backends=(), keys=keys, origins=tuple(origins), hosts=(*LOOPBACK, *hosts))
    service = AguiService(_references(references), partial(open_agents, references), jobs)
    budget = ByteBudget(rules.limits.held)
    return AguiExtension(service, Authenticator(rules, monotonic), rules.limits, budget, rules.origins)


@asynccontextmanager
async def open_agents(references: Sequence[str]) -> AsyncIterator[Mapping[str, Agent[Any]]]:
    """Open the agents, by their names in jobs. Raises CallerError."""
    from callboard.jobs.agent_kind import load_agent  # noqa: PLC0415  # as above

    agents: dict[str, Agent[Any]] = {}
    async with AsyncExitStack() as resources:
        for each, reference in zip(references, _references(references).values(), strict=True):
            if each == HERE:
                agents[reference] = await resources.enter_async_context(open_settings_agent(settings_here(), _tell))
            else:
                import_from(Path.cwd())
                agents[reference] = load_agent(each)
        yield agents


def _references(references: Sequence[str]) -> dict[str, str]:
    here = f"{HERE}:{Path.cwd()}"
    return {_name(each): here if each == HERE else normalize_reference(each) for each in references}


def _name(reference: str) -> str:
    return reference.rpartition(":")[2]


_tell = partial(typer.echo, err=True)
