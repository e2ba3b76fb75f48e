"""`callboard tools`: list tools and call one by hand. Other commands load their tools with this module.

Commands load the tools that the command line and the settings name, and connect ensembles while they run. Loading
`module:attribute` runs that module: it is the user's own code.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import typer

from callboard.agent import Agent
from callboard.cli import complete, interrupt
from callboard.cli.display import result_text
from callboard.cli.models import open_model
from callboard.cli.options import Ensembles, Json, Tools
from callboard.cli.settings import import_from, module_directory, settings_here
from callboard.configuration import (
    DescribedServer,
    Settings,
    disconnect_ensembles,
    load_configuration,
    load_mcp_json,
    names_a_module,
    prepare_ensembles,
    user_file,
)
from callboard.core import ResultCanister, ToolDeclaration
from callboard.errors import CallboardError, CallerError, NoSuchTool
from callboard.execution import run_invoker
from callboard.loop import Limits
from callboard.text.display import collapse
from callboard.text.suggest import suggest
from callboard.tools import Ensemble, InvokerRegistry, Tool


@asynccontextmanager
async def open_settings_agent(
    settings: Settings, tell: Callable[[str], None], files: Iterable[str] | None = None
) -> AsyncIterator[Agent[Any]]:
    """Open the agent and connect its servers; `files` name more servers. Raises CallboardError."""
    # In a thread, because downloading a local model runs its own event loop.
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


_MAX_LINE_CHARS = 1000
"""Maximum characters of a warning."""


def select_servers(settings: Settings, files: Iterable[str] | None = None) -> dict[str, DescribedServer]:
    """Return the MCP servers by name, of the settings and of `mcp.json` files. The files override the settings."""
    servers = {name: _set_directory(each) for name, each in settings.mcp.items()}
    for file in files or ():
        servers |= {each.name: each for each in load_mcp_json(file)}
    return servers


def _set_directory(server: DescribedServer) -> DescribedServer:
    """Start a server of the user's own file beside that file, unless it names a directory.

    The file applies in every directory. In a repository, `python -m`, npx and others would run the repository's code.
    """
    own = user_file(os.environ)
    server = server._replace(cli_options="")
    if server.settings.directory or not server.path.startswith(f"{own}:"):
        return server
    return server._replace(settings=msgspec.structs.replace(server.settings, directory=str(own.parent)))


def silence_sdk() -> None:
    """Hide the MCP SDK's log from users: important problems also raise errors."""
    logging.getLogger("mcp").addHandler(logging.NullHandler())


class Toolbox:
    """The ensembles of a command, connected while the context is entered.

    A server that fails to connect or disconnect is only reported. Output that ensembles print goes to standard error.

    Args:
        tools: As for `load_ensembles`.
        ensembles: As for `load_configuration`.
        tell: Prints a line.
        servers: MCP servers.
        tools_from: The directory of modules that `tools` names, in addition to installed modules.
        ensembles_from: The same for `ensembles`.
        options: Arguments of McpEnsemble.

    Raises:
        CallerError: A named tool or ensemble cannot be loaded.
    """

    def __init__(
        self,
        tools: Iterable[str],
        ensembles: Iterable[str],
        tell: Callable[[str], None],
        servers: Iterable[DescribedServer] = (),
        *,
        tools_from: Path | None,
        ensembles_from: Path | None,
        **options: Any,
    ) -> None:
        ensembles = [*ensembles]
        self._local = load_ensembles(tools, tools_from)
        self._ensembles_from = ensembles_from if names_a_module(ensembles) else None
        self._configuration = load_configuration(ensembles, servers=servers)
        self._options = options
        self._tell = tell
        self._prepared: list[Ensemble] = []

    @classmethod
    def from_settings(
        cls, settings: Settings, tell: Callable[[str], None], servers: Iterable[DescribedServer] = (), **options: Any
    ) -> Toolbox:
        """The tools and ensembles of the settings."""
        return cls(
            settings.tools,
            settings.ensembles,
            tell,
            servers,
            tools_from=module_directory(settings, "tools"),
            ensembles_from=module_directory(settings, "ensembles"),
            **options,
        )

    async def __aenter__(self) -> list[Ensemble]:
        import_from(self._ensembles_from)
        with redirect_stdout(sys.stderr):
            self._prepared = await prepare_ensembles(self._configuration, warn=self._tell_line, **self._options)
        return [*self._local, *self._prepared]

    async def __aexit__(self, *_: object) -> None:
        try:
            with redirect_stdout(sys.stderr):
                await disconnect_ensembles(self._prepared)
        except CallboardError as error:
            for line in (str(error), *getattr(error, "__notes__", ())):
                self._tell(line)

    def _tell_line(self, text: str) -> None:
        """Print the first line of a warning. The details are those of `callboard mcp list`."""
        # Untrusted: it may quote a server.
        self._tell(collapse(text.partition("\n")[0], _MAX_LINE_CHARS))


def load_ensembles(specifications: Iterable[str], beside: Path | None) -> list[Ensemble]:
    """Load tools and ensembles by specification. All tools form one ensemble.

    A specification is `module:attribute` or `file.py:attribute`. Without an attribute it names all tools of the module.
    The attribute is a tool, a function, an ensemble, or a list of these. Raises CallerError.
    """
    values: list[Any] = []
    for specification in specifications:
        values += load_attribute(specification, beside)
    ensembles = [each for each in values if isinstance(each, Ensemble)]
    tools = [each for each in values if not isinstance(each, Ensemble)]
    return [*([Ensemble("local", tools)] if tools else []), *ensembles]


def load_attribute(specification: str, beside: Path | None) -> list[Any]:
    """Load the objects of a specification. Raises CallerError."""
    drive = 2 if re.match(r"[A-Za-z]:[\\/]", specification) else 0
    path, _, attribute = specification[drive:].partition(":")
    where = specification[:drive] + path
    module = _load_module(where, specification, beside)
    if not attribute:
        tools = [each for each in vars(module).values() if isinstance(each, (Tool, Ensemble))]
        if not tools:
            raise CallerError("the module has no tools", path=specification, hint="decorate a function with @tool")
        return tools
    try:
        value = getattr(module, attribute)
    except AttributeError:
        raise CallerError(f"{where} has no {attribute!r}", path=specification) from None
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _load_module(where: str, specification: str, beside: Path | None) -> ModuleType:
    path = Path(where)
    if path.suffix == ".py":
        # A name that no import uses, so the file cannot replace a module.
        name = f"callboard file {path.resolve()}"
        spec = spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise CallerError("no such file", path=specification)
        module = module_from_spec(spec)
        sys.modules[name] = module
        with _report_import_errors(specification):
            spec.loader.exec_module(module)
        return module
    if not where or where.startswith("."):
        raise CallerError("no module is named", path=specification, hint="write module:attribute or file.py")
    import_from(beside)
    with _report_import_errors(specification):
        return import_module(where)


@contextmanager
def _report_import_errors(specification: str) -> Iterator[None]:
    """Convert a module's errors to CallerError, and redirect its output to standard error."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except CallboardError:
        raise
    except ModuleNotFoundError as error:
        raise CallerError(
            f"no module {error.name!r}", path=specification, hint="write module:attribute or file.py"
        ) from None
    except SyntaxError as error:
        raise CallerError(f"line {error.lineno}: {error.msg}", path=specification) from None
    except Exception as error:
        raise CallerError(f"cannot be imported: {type(error).__name__}: {error}", path=specification) from error


app = typer.Typer(no_args_is_help=True, help="Show and call your tools, as models see them.")


@app.command("list")
def list_tools(
    tools: Tools = None,
    ensembles: Ensembles = None,
    as_json: Json = False,
) -> None:
    """List your tools with their parameters."""

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
    """Call a tool as a model would, with validation and timeout. The exit code is 1 for an error."""

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
