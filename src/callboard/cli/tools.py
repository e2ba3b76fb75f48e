"""`callboard tools`: list tools, and call one by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from callboard.cli import complete, interrupt
from callboard.cli.display import result_text
from callboard.cli.load_tools import Toolbox, select_servers
from callboard.cli.options import Ensembles, Json, Tools
from callboard.cli.settings import settings_here
from callboard.core import ResultCanister, ToolDeclaration
from callboard.errors import CallerError, NoSuchTool
from callboard.execution import run_invoker
from callboard.text.suggest import suggest
from callboard.tools import InvokerRegistry

app = typer.Typer(no_args_is_help=True, help="Your tools, as models see them.")


@app.command("list")
def list_tools(
    tools: Tools = None,
    ensembles: Ensembles = None,
    as_json: Json = False,
) -> None:
    """Show the tools with their parameters."""

    async def list_declarations() -> tuple[ToolDeclaration, ...]:
        async with _make_toolbox(tools, ensembles) as prepared:
            return InvokerRegistry(prepared).declarations

    declarations = interrupt.run(list_declarations())
    if as_json:
        rows = [
            {"name": each.name, "description": each.description, "parameters": each.schema} for each in declarations
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for each in declarations:
        required = each.schema.get("required", ())
        names = [name if name in required else f"[{name}]" for name in each.schema.get("properties", {})]
        typer.echo(f"{each.name}({', '.join(names)})")
        for line in each.description.splitlines()[:1]:
            typer.echo(f"    {line}")


@app.command("call")
def call_tool(
    name: Annotated[str, typer.Argument(help="The tool's name.", show_default=False, autocompletion=complete.tools)],
    arguments: Annotated[str, typer.Argument(help='A JSON object such as {"a": 1}.')] = "{}",
    tools: Tools = None,
    ensembles: Ensembles = None,
) -> None:
    """Call a tool as a model would: validated, with its timeout. Prints the result; exit code 1 if it is an error."""

    async def call() -> ResultCanister:
        async with _make_toolbox(tools, ensembles) as prepared:
            registry = InvokerRegistry(prepared)
            if name not in registry:
                raise NoSuchTool(f"no tool {name!r}", hint=suggest(name, registry))
            # The person who types the call approves it.
            return await run_invoker(registry[name], parse_arguments(arguments), on_error="feedback")

    result = interrupt.run(call())
    if result.error is not None:
        sys.exit(result.text)
    typer.echo(result_text(result))


def _make_toolbox(tools: list[str] | None, ensembles: list[str] | None) -> Toolbox:
    """The tools that are named on the command line, else those of the settings."""

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    if tools is None and ensembles is None:
        settings = settings_here()
        if not (settings.tools or settings.ensembles or settings.mcp):
            raise typer.BadParameter("name some with --tools or --ensembles")
        return Toolbox.from_settings(settings, tell, select_servers(settings).values())
    return Toolbox(tools or (), ensembles or (), tell, tools_from=Path.cwd(), ensembles_from=Path.cwd())


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Parse the arguments of a call. Raises CallerError."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"not JSON: {error}", path="arguments") from None
    if not isinstance(read, dict):
        raise CallerError("not a JSON object", path="arguments", hint='write {"name": value}')
    return read
