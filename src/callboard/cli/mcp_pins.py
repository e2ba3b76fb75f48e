"""`callboard mcp pins`: which tools of servers are trusted."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from callboard.cli import mcp_servers
from callboard.cli.options import Json, McpFiles
from callboard.errors import NoSuchTool
from callboard.mcp import McpEnsemble, Pins
from callboard.mcp.server_report import list_states
from callboard.text.display import collapse

app = typer.Typer(no_args_is_help=True, help="The tools that are trusted, as they were at their first use.")


@app.command("list")
def list_pins(as_json: Json = False) -> None:
    """Show the tools that are trusted, by server."""
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
        typer.echo("nothing is trusted yet; a server's tools are from its first use on", err=True)
    for each in every:
        typer.echo(f"{collapse(each.server)}  ({each.identity})")
        for name, pin in each.tools.items():
            typer.echo(f"    {collapse(name)}  {pin[:12]}")


@app.command("accept")
def accept_pins(
    name: mcp_servers.Name,
    tool: Annotated[str, typer.Argument(help="One tool; else all, and the server's instructions.")] = "",
    mcp: McpFiles = None,
    as_json: Json = False,
) -> None:
    """Trust a server's tools as they are now."""

    async def accept(server: McpEnsemble) -> dict[str, Any]:
        states = [(each, state) for each, state in await list_states(server) if tool in ("", each.name)]
        if tool and not states:
            raise NoSuchTool(f"no tool {tool!r}", path=name)
        accepts_instructions = not tool and server.pin_comparison is not None and not server.pin_comparison.instructions
        instructions = server.client.server.instructions if server.client.server else ""
        Pins().accept(server.settings, [each for each, _ in states], None if tool else instructions)
        await server.connect()  # which tells why a tool is left out for another reason
        names = [each.name for each, state in states if state in ("changed", "new")]
        return {"accepted": names, "instructions": accepts_instructions}

    outcome = mcp_servers.with_server(name, mcp, accept)
    if as_json:
        mcp_servers.print_json({"server": name, **outcome})
        return
    things = [*map(collapse, outcome["accepted"]), *(["its instructions"] if outcome["instructions"] else [])]
    typer.echo(f"accepted: {', '.join(things) or 'nothing, for nothing changed and nothing is new'}", err=True)


@app.command("forget")
def forget_pins(name: mcp_servers.Name, as_json: Json = False) -> None:
    """Trust nothing of a server any more: its next use is its first."""
    was_known = Pins().forget(name)
    if as_json:
        mcp_servers.print_json({"server": name, "forgotten": was_known})
    else:
        typer.echo(f"{name} is {'forgotten' if was_known else 'not known'}", err=True)
