"""`callboard mcp serve`: serve tools to any MCP client. Over stdio the standard output belongs to the protocol.

`callboard mcp serve --agents`: the coding agents of one repository, whose calls are durable jobs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from callboard.agent import Agent
from callboard.cli import interrupt
from callboard.cli.options import ACCESS, KEY_HINT, Ensembles, Host, McpFiles, Port, Tools, option, read_keys
from callboard.cli.settings import module_directory, settings_here, settings_in, start_telemetry
from callboard.cli.tools import Toolbox, load_attribute
from callboard.configuration import Settings, load_mcp_json
from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.mcp.connection_state import ToolsChanged
from callboard.servers.stdio import claim_stdio
from callboard.tools import Ensemble

if TYPE_CHECKING:
    from callboard.jobs.database import Database
    from callboard.servers.mcp.server import ToolServer


def find_repository(agents: bool, directory: Path | None) -> Path | None:
    """Return the directory of the agents, or None without agents. Raises CallerError.

    It must be named, because clients start servers in arbitrary directories.
    """
    if not agents:
        if directory is not None:
            raise CallerError("there are no agents", path="--directory", hint="give --agents too")
        return None
    require_extra("jobs")
    if directory is None:
        raise CallerError("the agents have no directory", path="--agents", hint="give --directory")
    if not directory.is_dir():
        raise CallerError("no such directory", path=f"--directory {directory}")
    return directory.resolve()


@asynccontextmanager
async def open_served_agents(repository: Path | None, tell: Callable[[str], None]) -> AsyncIterator[list[Ensemble]]:
    """Open the agents' tools; none without a repository. Raises CallerError and DatabaseUnavailable."""
    if repository is None:
        yield []
        return
    from callboard.jobs.coding_kind import host_queue  # noqa: PLC0415
    from callboard.jobs.direct import start_worker  # noqa: PLC0415
    from callboard.servers.mcp.agent_job_tools import job_ensemble  # noqa: PLC0415
    from callboard.servers.mcp.agent_jobs import open_agents  # noqa: PLC0415

    def read_settings() -> Settings:
        return settings_in(repository, {}, for_coding=True)

    def start(database: Database) -> None:
        if start_worker(database, host_queue()) is None and not database.is_sqlite:
            tell(f"a worker of this host runs the jobs: callboard worker --queue {host_queue()}")

    await asyncio.to_thread(read_settings)  # reports mistakes now, not at the first job
    async with open_agents(repository, read_settings, start) as jobs:
        yield [job_ensemble(jobs)]


MIN_KEY_CHARS = 8
"""Minimum characters of a key."""


def serve(
    ensembles: Ensembles = None,
    tools: Tools = None,
    mcp: McpFiles = None,
    agent: Annotated[str, option(help="An Agent to serve as a tool: module:attribute or file.py:attribute.")] = "",
    agents: Annotated[
        bool, option("--agents", help="Also serve the coding agents; their calls are jobs. Requires --directory.")
    ] = False,
    directory: Annotated[Path | None, option("--directory", "-C", help="The repository for the agents.")] = None,
    transport: Annotated[Literal["stdio", "http"], option(help="The transport for clients.")] = "stdio",
    host: Host = "127.0.0.1",
    port: Port = 8284,  # not the board's
    key: Annotated[
        list[str] | None,
        option(
            help=f"A key that clients must send as Authorization: Bearer KEY; {KEY_HINT}; repeatable.",
            envvar="CALLBOARD_MCP_KEYS",
            panel=ACCESS,
        ),
    ] = None,
) -> None:
    """Serve your tools or agents to any MCP client, over stdio or at http://HOST:PORT/mcp.

    A tool that needs approval asks the client's user. If the client cannot ask, the tool does not run.
    Options that you omit come from the environment and from callboard.toml.
    """
    require_extra("mcp")
    from callboard.servers.mcp.client_proxy import Upstream  # noqa: PLC0415
    from callboard.servers.mcp.server import ToolServer  # noqa: PLC0415
    from callboard.servers.mcp.transports import serve_http, serve_stdio  # noqa: PLC0415  # the extra's

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    keys = read_keys(key)
    for each in keys:
        if len(each) < MIN_KEY_CHARS:
            raise CallerError("too short for a key", path="--key", hint=f"at least {MIN_KEY_CHARS} characters")

    repository = find_repository(agents, directory)
    changes: asyncio.Queue[ToolsChanged] = asyncio.Queue()
    upstream = Upstream()

    def tell(text: str) -> None:
        typer.echo(text, err=True)

    def ready(url: str) -> None:
        tell(f"callboard serves tools at {url} (Ctrl-C stops it)")

    with claim_stdio() if transport == "stdio" else nullcontext() as wire:
        settings = settings_here(tools=tools, ensembles=ensembles)
        start_telemetry(settings.telemetry)
        # Agents alone are served alone, with tools of their own. Servers of the settings are not: one may be this one.
        own = not (agent or agents) or tools or ensembles
        servers = [each for file in mcp or () for each in load_mcp_json(file)]
        toolbox = Toolbox(
            settings.tools if own else (),
            settings.ensembles if own else (),
            tell,
            servers,
            tools_from=module_directory(settings, "tools"),
            ensembles_from=module_directory(settings, "ensembles"),
            on_event=lambda event: changes.put_nowait(event) if isinstance(event, ToolsChanged) else None,
            elicit=upstream.elicit,
            sample=upstream.sample,
        )
        agent_tools = [_load_agent(agent)] if agent else []

        async def serve_tools() -> None:
            async with toolbox as prepared, open_served_agents(repository, tell) as coding_agents:
                served = [*prepared, *agent_tools, *coding_agents]
                if not served:
                    raise CallerError("nothing to serve", hint="give --ensembles, --tools, --agent or --agents")
                server = ToolServer(served, policy=settings.policy, upstream=upstream)
                forwarding = asyncio.create_task(_forward_changes(changes, server))
                try:
                    if wire is None:
                        await serve_http(server, host=host, port=port, keys=keys, ready=ready)
                    else:
                        await serve_stdio(server, wire)
                finally:
                    forwarding.cancel()

        with redirect_stdout(sys.stderr):  # where `claim_stdio` sends it anyway, but unbuffered
            interrupt.run(serve_tools())


async def _forward_changes(changes: asyncio.Queue[ToolsChanged], server: ToolServer) -> None:
    while True:
        await changes.get()
        await server.notify_changes()


def _load_agent(specification: str) -> Ensemble:
    from callboard.servers.mcp.server import agent_ensemble  # noqa: PLC0415

    agent: Any = load_attribute(specification, Path.cwd())[0]
    if not isinstance(agent, Agent):
        raise CallerError("not an Agent", path=specification, hint="name an Agent: file.py:attribute")
    return agent_ensemble(agent)
