"""`callboard board`: a web page to see what runs, to approve it, and to compare runs."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from callboard.cli import mcp_servers
from callboard.cli.agui import HELP, check_agents, describe_key, extend_board_by_agui, make_key
from callboard.cli.background import ensure_worker
from callboard.cli.options import ACCESS, Port, key_option, option, read_keys, takes_options
from callboard.cli.settings import load_telemetry_settings
from callboard.errors import CallerError
from callboard.evaluation.kept_tests import TaskFile
from callboard.extras import is_extra_installed, require_extra
from callboard.jobs.job import DurableJob
from callboard.jobs.streams import JobStreams
from callboard.mcp.settings import ServerSettings
from callboard.servers.gateway.configuration import parse_key_digests
from callboard.servers.hosts import is_loopback

if TYPE_CHECKING:
    from callboard.jobs.client import JobClient
    from callboard.servers.agui.endpoint import AguiExtension
    from callboard.servers.board.app import Board, BoardParts
    from callboard.servers.gateway.endpoints import Services

PORT: Final = 8283


@dataclass(frozen=True, kw_only=True)
class BoardOptions:
    """The options of `callboard board`."""

    port: Port = PORT
    host: Annotated[str, option(help="The address to listen on. Other machines require --url.", panel=ACCESS)] = (
        "127.0.0.1"
    )
    url: Annotated[
        str,
        option(help="The board's URL for other machines, such as https://board.example.org of a proxy.", panel=ACCESS),
    ] = ""
    link: Annotated[
        bool, option("--link", help="Print a new link for a board or gateway that already runs, and exit.")
    ] = False
    agui: Annotated[list[str] | None, option(help=HELP)] = None
    agui_key: Annotated[list[str] | None, key_option("clients of /agui", "CALLBOARD_AGUI_KEYS")] = None
    agui_origin: Annotated[
        list[str] | None, option(help="A web origin that may use /agui; repeatable.", panel=ACCESS)
    ] = None
    as_json: Annotated[bool, option("--json", help="Print the address and the link as one line of JSON.")] = False


@takes_options(BoardOptions)
def board(options: BoardOptions) -> None:
    """Serve a web page to watch agents, approve calls, answer questions and cancel jobs.

    Open the printed link within an hour; it works once. --link prints a new one. Your session ends after 12 hours.
    """
    require_extra("board", *(() if options.link else ("jobs",)))
    from callboard.servers.board.app import PREFIX  # noqa: PLC0415  # the extra's, as below
    from callboard.servers.board.login import Login  # noqa: PLC0415
    from callboard.servers.board.server import board_hosts, local_url, login_link, serve_board  # noqa: PLC0415

    if options.link:
        board_hosts(options.host, options.url)
        address = options.url.rstrip("/") or local_url(options.host, options.port)
        _show(options, f"{address}{PREFIX}/", login_link(Login(), address))
        return

    streams = JobStreams()
    own_keys = read_keys(options.agui_key)
    key, keys = make_key() if options.agui and not own_keys else ("", parse_key_digests(own_keys))
    serve_board(
        make_parts(streams),
        host=options.host,
        port=options.port,
        url=options.url,
        ready=lambda url, link: _show(options, url, link, key),
        extension=_make_agui(options, keys, board_hosts(options.host, options.url), streams) if options.agui else None,
        log_format=load_telemetry_settings().log_format(os.environ),
    )


def _make_agui(
    options: BoardOptions, keys: Mapping[str, str], hosts: Collection[str], streams: JobStreams
) -> AguiExtension:
    from callboard.servers.agui.endpoint import OwnJobs  # noqa: PLC0415

    agents = options.agui or []
    check_agents(agents)
    if (options.url or not is_loopback(options.host)) and not options.agui_key:
        raise CallerError("without a key, other machines could use the agents", path="--agui", hint="give --agui-key")
    return extend_board_by_agui(agents, keys, options.agui_origin or (), hosts, OwnJobs(streams=streams))


def make_parts(streams: JobStreams) -> BoardParts:
    """Return the parts of a board of this machine. `streams` carries the open replies of this process's jobs."""
    from callboard.servers.board.app import BoardParts  # noqa: PLC0415
    from callboard.servers.board.tools_page import ToolsPart  # noqa: PLC0415

    tools = ToolsPart(find_servers) if is_extra_installed("mcp") else None
    if not is_extra_installed("jobs"):
        return BoardParts(tools=tools, tests=TaskFile())
    # Imported before serving: the import would block a gateway's clients for half a second.
    from callboard.jobs.client import JobClient  # noqa: PLC0415
    from callboard.jobs.services import load_job_settings  # noqa: PLC0415

    jobs = partial(JobClient, embedded=False, streams=streams)
    return BoardParts(
        jobs=jobs,
        start_worker=_start_worker,
        read_budget=lambda: load_job_settings().budget_per_day,
        tools=tools,
        tests=TaskFile(),
    )


def find_servers() -> Mapping[str, ServerSettings]:
    """Return the MCP servers of the current settings."""
    return {name: each.settings for name, each in mcp_servers.find_servers(None).items()}


def extend_gateway(hosts: Collection[str], services: Services, streams: JobStreams, *, shows_requests: bool) -> Board:
    """Return the board of a gateway's worker. `shows_requests` is false with several workers: each sees its own."""
    from callboard.servers.board.app import Board  # noqa: PLC0415
    from callboard.servers.board.login import Login  # noqa: PLC0415
    from callboard.servers.board.tools_page import ToolsPart  # noqa: PLC0415
    from callboard.servers.gateway.traffic import Traffic  # noqa: PLC0415

    parts = make_parts(streams)
    traffic = Traffic(services.gateway, services.keep_requests()) if shows_requests else None
    hosted = services.gateway.hosted_tools
    tools = ToolsPart(find_servers if parts.tools else dict, hosted) if parts.tools or hosted else None
    return Board(replace(parts, traffic=traffic, tools=tools), Login(), hosts)


def _show(options: BoardOptions, url: str, link: str, key: str = "") -> None:
    if options.as_json:
        typer.echo(json.dumps({"url": url, "link": link, **({"agui_key": key} if key else {})}))
        return
    typer.echo(link)
    if key:
        typer.echo(describe_key(key, url.removesuffix("/board/")), err=True)
    if not options.link:
        typer.echo(f"the board is at {url}; this link logs in once, within an hour (Ctrl-C stops it)", err=True)


def _start_worker(client: JobClient, job: DurableJob) -> None:
    ensure_worker(client.store.database, job)
