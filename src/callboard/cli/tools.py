"""`callboard tools`: what is in a toolbox, and one call by hand."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer

from callboard.errors import CallerError, NoSuchTool

app = typer.Typer(no_args_is_help=True, help="Your tools, as models see them.")

_Tools = Annotated[
    list[str], typer.Option("--tools", help="module:attribute or file.py[:attribute]; repeatable.", show_default=False)
]


@app.command("list")
def list_tools(
    tools: _Tools,
    as_json: Annotated[bool, typer.Option("--json", help="Names, descriptions and schemas as one JSON array.")] = False,
) -> None:
    """Show the tools with their parameters."""
    from callboard.cli.toolbox import load_roster  # noqa: PLC0415  # not for --help

    declarations = load_roster(tools).declarations
    if as_json:
        described = [
            {"name": each.name, "description": each.description, "parameters": each.schema} for each in declarations
        ]
        typer.echo(json.dumps(described, indent=2, ensure_ascii=False))
        return
    for each in declarations:
        required = each.schema.get("required", ())
        names = [name if name in required else f"[{name}]" for name in each.schema.get("properties", {})]
        typer.echo(f"{each.name}({', '.join(names)})")
        for line in each.description.splitlines()[:1]:
            typer.echo(f"    {line}")


@app.command("call")
def call_tool(
    name: Annotated[str, typer.Argument(help="The tool's name.", show_default=False)],
    tools: _Tools,
    arguments: Annotated[str, typer.Argument(help='A JSON object such as {"a": 1}.')] = "{}",
) -> None:
    """Call a tool as a model would: validated, with its timeout. Prints the result; exit code 1 if it is an error."""
    from callboard.cli.toolbox import load_roster  # noqa: PLC0415  # not for --help
    from callboard.execution import execute_invoker  # noqa: PLC0415
    from callboard.tools import near  # noqa: PLC0415

    roster = load_roster(tools)
    if name not in roster:
        raise NoSuchTool(f"no tool {name!r}", hint=near(name, roster))
    try:
        given = json.loads(arguments)
    except ValueError as error:
        raise CallerError(f"not JSON: {error}", path="arguments") from None
    if not isinstance(given, dict):
        raise CallerError("not a JSON object", path="arguments", hint='write {"name": value}')
    result = asyncio.run(execute_invoker(roster[name], given, on_error="feedback"))
    if result.error is not None:
        sys.exit(result.text)
    typer.echo(result.text)
