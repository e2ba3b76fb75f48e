"""`callboard mcp`: MCP servers, their tools, and which of them are trusted."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from callboard.cli import interrupt, mcp_serve, mcp_servers
from callboard.cli.display import result_text
from callboard.cli.options import Json, McpFiles, option
from callboard.cli.tools import parse_arguments
from callboard.configuration import disconnect_ensembles, user_file
from callboard.configuration.edit_config import add_server as write_server
from callboard.core import ResultCanister, encode_line
from callboard.errors import NoSuchTool
from callboard.execution import run_invoker
from callboard.mcp import McpEnsemble, Pins
from callboard.mcp.oauth_login import log_in
from callboard.mcp.sanitize import clean_text
from callboard.mcp.server_report import list_states
from callboard.text.display import collapse, escape, make_visible
from callboard.text.plural import format_count

app = typer.Typer(no_args_is_help=True, help="Manage MCP servers from callboard.toml and mcp.json files.")
pins = typer.Typer(no_args_is_help=True, help="Manage trusted tools. Tools are pinned as they were at their first use.")
app.add_typer(pins, name="pins")
app.command("serve")(mcp_serve.serve)

_WIDTH = 500


@app.command("list")
def list_servers(mcp: McpFiles = None, as_json: Json = False) -> None:
    """Connect to all servers and show their state. The exit code is 1 if a server failed."""
    servers = mcp_servers.find_servers(mcp)
    enabled = [each.settings for each in servers.values() if each.settings.enabled]

    async def connect_all() -> list[dict[str, Any]]:

        # No warnings and no new pins: listing does not count as a first use.
        options: dict[str, Any] = {"warn": lambda _: None, "pins": Pins(read_only=True)}
        ensembles = [McpEnsemble(each, **options) for each in enabled]
        try:
            outcomes = await asyncio.gather(*(each.connect() for each in ensembles), return_exceptions=True)
            return [await _connected_row(each, outcome) for each, outcome in zip(ensembles, outcomes, strict=True)]
        finally:
            await disconnect_ensembles(ensembles)

    rows = {row["name"]: row for row in interrupt.run(connect_all())}
    every = [rows.get(name) or _make_row(each, "disabled") for name, each in servers.items()]
    if as_json:
        mcp_servers.print_json(every)
    elif not every:
        typer.echo("no servers; callboard mcp add NAME -- COMMAND adds one", err=True)
    for row in () if as_json else every:
        facts = [row["name"], row["transport"], row["state"], *_format_counts(row)]
        about = row["server"] or row["why"]
        typer.echo("  ".join([*facts, *([collapse(about, _WIDTH)] if about else [])]))
    if any(row["state"] == "failed" for row in every):
        raise typer.Exit(1)


@app.command("tools")
def list_tools(name: mcp_servers.Name, mcp: McpFiles = None, as_json: Json = False) -> None:
    """Show a server's tools, and which of them you must accept before models see them."""

    async def describe(server: McpEnsemble) -> dict[str, Any]:
        text = server.client.server.instructions if server.client.server else ""
        changed = server.pin_comparison is not None and not server.pin_comparison.instructions
        return {
            "server": name,
            "instructions": {"text": text, "state": "changed" if changed else "used"},
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description or "",
                    "parameters": tool.input_schema,
                    **tool.model_dump(
                        mode="json", by_alias=True, exclude_none=True, include={"output_schema", "annotations"}
                    ),
                    "state": state,
                }
                for tool, state in await list_states(server)
            ],
        }

    described = mcp_servers.with_server(name, mcp, describe)
    if as_json:
        mcp_servers.print_json(described)
        return
    if described["instructions"]["state"] == "changed":
        typer.echo("instructions  (changed: not used)")
        _print_whole(described["instructions"]["text"] or "(none any more)")
    for row in described["tools"]:
        _print_tool(row)


@app.command("call")
def call_tool(
    name: mcp_servers.Name,
    tool: Annotated[str, typer.Argument(help="The tool's name.", show_default=False)],
    arguments: Annotated[str, typer.Argument(help='A JSON object such as {"a": 1}.')] = "{}",
    argument: Annotated[
        list[str] | None, option("--argument", "-a", help="KEY=VALUE; the value is JSON or a string; repeatable.")
    ] = None,
    mcp: McpFiles = None,
    as_json: Json = False,
) -> None:
    """Call a server's tool as a model would, and print the result. The exit code is 1 for an error."""
    values = {**parse_arguments(arguments), **dict(_parse_pair(each) for each in argument or ())}

    async def call(server: McpEnsemble) -> ResultCanister:
        return await run_invoker(server.access_invoker(tool), values, on_error="feedback")

    result = mcp_servers.with_server(name, mcp, call)
    if as_json:
        typer.echo(encode_line(result))
    elif result.error is None:
        typer.echo(escape(result_text(result), keep="\n\t") if _is_terminal() else result_text(result))
    if result.error is not None:
        sys.exit(1 if as_json else escape(result.text, keep="\n\t"))


@app.command("add")
def add_server(
    name: mcp_servers.Name,
    command: Annotated[
        list[str] | None, typer.Argument(help="The program and its arguments, after `--`.", show_default=False)
    ] = None,
    url: Annotated[str, option(help="The server's URL.")] = "",
    environment: Annotated[
        list[str] | None, option("--env", help="KEY=VALUE; the value env:NAME copies your variable; repeatable.")
    ] = None,
    header: Annotated[list[str] | None, option(help="KEY=VALUE, or KEY=env:NAME; repeatable.")] = None,
    protocol: Annotated[str, option(help="The protocol, if it cannot be detected: legacy, or a version.")] = "",
    tools: Annotated[
        list[str] | None, option("--tool", help="A tool to offer, or a pattern of tool names; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, option(help="A tool to exclude, or a pattern of tool names; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Add a server to your own callboard.toml."""
    if bool(command) == bool(url):
        raise typer.BadParameter("give a command after `--`, or --url")
    table: dict[str, Any] = {"transport": "http", "url": url} if url else {"transport": "stdio", "command": command}
    if command:
        # Relative paths in the command refer to the current directory.
        table["directory"] = str(Path.cwd())
    for key, pairs in (("environment", environment), ("headers", header)):
        if pairs:
            table[key] = dict(_split_pair(each) for each in pairs)
    if protocol:
        table["protocol"] = protocol
    table |= {key: names for key, names in (("tools", tools), ("exclude", exclude)) if names}
    path = user_file(os.environ)
    write_server(path, name, table)
    if as_json:
        mcp_servers.print_json({"name": name, "file": str(path), **table})
    else:
        typer.echo(f"{name} is in {_shorten_path(path)}", err=True)


@app.command("login")
def log_in_at(
    name: mcp_servers.Name,
    mcp: McpFiles = None,
    browser: Annotated[bool, option(help="Open the login page in a browser.")] = True,
    as_json: Json = False,
) -> None:
    """Log in to a server. The tokens are stored in a file that only you can read."""
    settings = mcp_servers.find_server(name, mcp).settings

    def show(url: str) -> None:
        typer.echo(f"open this page to log in to {name}:\n{url}", err=True)
        if browser:
            import webbrowser  # noqa: PLC0415  # where one is opened

            webbrowser.open(url)

    asks_for_login = interrupt.run(log_in(settings, show, dict(os.environ)))
    if as_json:
        mcp_servers.print_json({"name": name, "login": asks_for_login})
    else:
        typer.echo(f"logged in to {name}" if asks_for_login else f"{name} does not ask for a login", err=True)


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _print_tool(row: dict[str, Any]) -> None:
    required = row["parameters"].get("required", ())
    names = [each if each in required else f"[{each}]" for each in row["parameters"].get("properties", {})]
    state = "" if row["state"] == "offered" else f"  ({row['state']}: not offered)"
    typer.echo(f"{collapse(row['name'])}({collapse(', '.join(names))}){state}")
    if row["state"] not in ("changed", "new"):
        for line in clean_text(row["description"], _WIDTH).splitlines()[:1]:
            typer.echo(f"    {line}")
        return
    _print_whole(row["description"])
    for key in ("parameters", "outputSchema", "annotations"):
        if row.get(key):
            _print_whole(f"{key}: {json.dumps(row[key], indent=2, ensure_ascii=False)}")


def _print_whole(text: str) -> None:
    for line in make_visible(text).splitlines():
        typer.echo(f"    {line}")


async def _connected_row(ensemble: McpEnsemble, outcome: BaseException | None) -> dict[str, Any]:
    link = ensemble.client
    row = _make_row(ensemble, str(link.state))
    if outcome is not None:
        return {**row, "state": "failed", "why": str(outcome) or type(outcome).__name__}
    server = link.server
    about = f"{server.name} {server.version} ({link.protocol_version})" if server else str(link.protocol_version)
    compared = ensemble.pin_comparison
    waiting = len(compared.changed) + len(compared.new) if compared else 0
    return {**row, "tools": len(await ensemble.list_tools()), "waiting": waiting, "server": about}


def _make_row(each: Any, state: str) -> dict[str, Any]:
    settings = each.settings
    address = settings.url or " ".join(settings.command)
    row = {"name": settings.name, "transport": settings.transport, "address": address, "state": state}
    return {**row, "tools": 0, "waiting": 0, "server": "", "why": ""}


def _format_counts(row: dict[str, Any]) -> list[str]:
    tools, waiting = row["tools"], row["waiting"]
    more = f", {waiting} changed or new (callboard mcp tools {row['name']})" if waiting else ""
    return [format_count(tools, "tool") + more] if tools or waiting else []


def _shorten_path(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def _parse_pair(text: str) -> tuple[str, Any]:
    key, value = _split_pair(text)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _split_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
    return key, value


# Pins


@pins.command("list")
def list_pins(as_json: Json = False) -> None:
    """Show the trusted tools of each server."""
    every = Pins().list_all()
    if as_json:
        mcp_servers.print_json(
            [
                {
                    "server": each.server,
                    "identity": each.identity,
                    "instructions": each.instructions,
                    "tools": each.tools,
                }
                for each in every
            ]
        )
        return
    if not every:
        typer.echo("nothing is trusted yet; a server's tools are trusted from their first use", err=True)
    for each in every:
        typer.echo(f"{collapse(each.server)}  ({each.identity})")
        for name, pin in each.tools.items():
            typer.echo(f"    {collapse(name)}  {pin[:12]}")


@pins.command("accept")
def accept_pins(
    name: mcp_servers.Name,
    tool: Annotated[str, typer.Argument(help="A tool; by default all tools and the server's instructions.")] = "",
    mcp: McpFiles = None,
    as_json: Json = False,
) -> None:
    """Trust the current tools of a server."""

    async def accept(server: McpEnsemble) -> dict[str, Any]:
        states = [(each, state) for each, state in await list_states(server) if tool in ("", each.name)]
        if tool and not states:
            raise NoSuchTool(f"no tool {tool!r}", path=name)
        accepts_instructions = not tool and server.pin_comparison is not None and not server.pin_comparison.instructions
        instructions = server.client.server.instructions if server.client.server else ""
        Pins().accept(server.settings, [each for each, _ in states], None if tool else instructions)
        await server.connect()  # warns about tools that stay excluded for another reason
        names = [each.name for each, state in states if state in ("changed", "new")]
        return {"accepted": names, "instructions": accepts_instructions}

    outcome = mcp_servers.with_server(name, mcp, accept)
    if as_json:
        mcp_servers.print_json({"server": name, **outcome})
        return
    things = [*map(collapse, outcome["accepted"]), *(["its instructions"] if outcome["instructions"] else [])]
    typer.echo(f"accepted: {', '.join(things) or 'nothing, because nothing is changed or new'}", err=True)


@pins.command("forget")
def forget_pins(name: mcp_servers.Name, as_json: Json = False) -> None:
    """Stop trusting a server. Its next use counts as the first."""
    was_known = Pins().forget(name)
    if as_json:
        mcp_servers.print_json({"server": name, "forgotten": was_known})
    else:
        typer.echo(f"{name} is {'forgotten' if was_known else 'not known'}", err=True)
