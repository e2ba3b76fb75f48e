"""`callboard tools`: what is in a toolbox, and one call by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callboard.cli import complete, interrupt
from callboard.cli.display import result_text
from callboard.errors import CallerError, NoSuchTool

if TYPE_CHECKING:
    from callboard.cli.load_tools import Toolbox
    from callboard.core import ResultCanister, ToolDeclaration

app = typer.Typer(no_args_is_help=True, help="Your tools, as models see them.")

_Tools = Annotated[
    list[str] | None,
    typer.Option("--tools", help="module:attribute or file.py[:attribute]; repeatable.", show_default=False),
]
_Ensembles = Annotated[
    list[str] | None,
    typer.Option(
        "--ensembles", help="A directory of ensembles, or a built-in one: io; repeatable.", show_default=False
    ),
]


@app.command("list")
def list_tools(
    tools: _Tools = None,
    ensembles: _Ensembles = None,
    as_json: Annotated[bool, typer.Option("--json", help="Names, descriptions and schemas as one JSON array.")] = False,
) -> None:
    """Show the tools with their parameters."""
    from callboard.tools import InvokerRegistry  # noqa: PLC0415  # not for --help

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
    tools: _Tools = None,
    ensembles: _Ensembles = None,
) -> None:
    """Call a tool as a model would: validated, with its timeout. Prints the result; exit code 1 if it is an error."""
    from callboard.execution import run_invoker  # noqa: PLC0415  # not for --help
    from callboard.text.suggest import suggest  # noqa: PLC0415
    from callboard.tools import InvokerRegistry  # noqa: PLC0415

    async def call() -> ResultCanister:
        async with _make_toolbox(tools, ensembles) as prepared:
            registry = InvokerRegistry(prepared)
            if name not in registry:
                raise NoSuchTool(f"no tool {name!r}", hint=suggest(name, registry))
            # Whoever types the call has approved it.
            return await run_invoker(registry[name], parse_arguments(arguments), on_error="feedback")

    result = interrupt.run(call())
    if result.error is not None:
        sys.exit(result.text)
    typer.echo(result_text(result))


def _make_toolbox(tools: list[str] | None, ensembles: list[str] | None) -> Toolbox:
    """What is named here, else what the settings name."""
    from callboard.cli.load_tools import Toolbox, select_servers  # noqa: PLC0415  # as above
    from callboard.cli.settings import module_directory, settings_here  # noqa: PLC0415  # not for --help

    servers: Iterable[Any] = ()
    tools_from: Path | None = Path.cwd()
    ensembles_from = tools_from
    if tools is None and ensembles is None:
        settings = settings_here()
        tools_from, ensembles_from = module_directory(settings, "tools"), module_directory(settings, "ensembles")
        if not (settings.tools or settings.ensembles or settings.mcp):
            raise typer.BadParameter("name some with --tools or --ensembles")
        tools, ensembles, servers = [*settings.tools], [*settings.ensembles], select_servers(settings).values()
    return Toolbox(
        tools or (),
        ensembles or (),
        lambda line: typer.echo(line, err=True),
        servers,
        tools_from=tools_from,
        ensembles_from=ensembles_from,
    )


def parse_arguments(arguments: str) -> dict[str, Any]:
    """The arguments that a person wrote as JSON. Raises CallerError."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"not JSON: {error}", path="arguments") from None
    if not isinstance(read, dict):
        raise CallerError("not a JSON object", path="arguments", hint='write {"name": value}')
    return read
