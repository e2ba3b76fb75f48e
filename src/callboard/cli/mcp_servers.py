"""MCP servers in commands: find them, show their events, and ask their questions at the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from callboard.cli import complete, interrupt
from callboard.cli.display import Display
from callboard.cli.line_editor import read_line
from callboard.cli.settings import settings_here
from callboard.cli.tools import select_servers, silence_sdk
from callboard.configuration import DescribedServer, load_configuration
from callboard.core import Model
from callboard.errors import CallerError
from callboard.execution.result_store import KeptResults
from callboard.mcp import McpEnsemble
from callboard.mcp.connection_state import Logged, ServerEvent, StateChanged, ToolsChanged
from callboard.mcp.elicitation import Elicit, ElicitAction, make_sampler
from callboard.text.display import collapse
from callboard.text.suggest import suggest

T = TypeVar("T")

Name = Annotated[str, typer.Argument(help="The server's name.", show_default=False, autocompletion=complete.servers)]
_LOUD = frozenset({"warning", "error", "critical", "alert", "emergency"})
_WIDTH = 1000
_BOOLEANS = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "integer": int,
    "number": float,
    "boolean": lambda text: _BOOLEANS[text.lower()],
}


def server_options(display: Display, folder: Path, model: Model, *, verbose: bool) -> dict[str, Any]:
    """Return the arguments of McpEnsemble for a run. Results that are too long go to the folder."""
    silence_sdk()
    return {
        "result_store": KeptResults(folder / "results"),
        "on_event": make_event_printer(display.tell, verbose=verbose),
        "elicit": make_elicit(display.tell, read_line) if sys.stdin.isatty() else None,
        "sample": make_sampler(model),
    }


def make_event_printer(tell: Callable[[str, str], None], *, verbose: bool) -> Callable[[ServerEvent], None]:
    """Make a callback that prints each event of a server as a line; `verbose` adds its whole log."""
    ready: set[str] = set()

    def show(event: ServerEvent) -> None:
        match event:
            case Logged(server=server, level=level, text=text) if verbose or level in _LOUD:
                tell(f"{server} ({level}): {collapse(text)}", "2")
            case StateChanged(server=server, state="backoff", why=why) if why and server in ready:
                # If the server was never ready, the start of the run reports the failure.
                tell(f"{server} is disconnected: {collapse(why)}; the next call connects it again", "33")
            case StateChanged(server=server, state=state, why=why):
                if state == "ready":
                    ready.add(server)
                if verbose:
                    tell(f"{server} is {state}{f': {collapse(why)}' if why else ''}", "33" if why else "2")
            case ToolsChanged(server=server) if verbose:
                tell(f"{server} changed its tools", "2")
            case _:
                pass

    return show


def make_elicit(tell: Callable[[str, str], None], read_line: Callable[[], Awaitable[str | None]]) -> Elicit:
    """Make a callback that asks at the terminal, field by field. It sends nothing without consent."""

    async def read() -> str:
        return (await read_line()) or ""

    async def ask(text: str, schema: Mapping[str, Any]) -> tuple[ElicitAction, Mapping[str, Any] | None]:
        tell(f"{collapse(text, _WIDTH)}", "33")
        fields = schema.get("properties", {})
        required = schema.get("required", ())
        filled: dict[str, Any] = {}
        for name, field in fields.items() if isinstance(fields, Mapping) else ():
            about = field if isinstance(field, Mapping) else {}
            tell(f"  {collapse(name)}{_describe_field(about)}:", "")
            text_typed = (await read()).strip()
            while text_typed and (why := _find_mistake(text_typed, about)):
                tell(f"  {why}; try again, or press enter to omit it:", "33")
                text_typed = (await read()).strip()
            if text_typed:
                filled[name] = _convert(text_typed, about)
            elif name in required and "default" not in about:
                return "decline", None
        tell("send this? [y/N]" if filled or fields else "agree? [y/N]", "")
        if (await read()).strip().lower() not in ("y", "yes"):
            return "decline", None
        return "accept", filled

    return ask


def _describe_field(field: Mapping[str, Any]) -> str:
    known = [field.get("title"), field.get("description"), field.get("enum") or field.get("type")]
    facts = [collapse(str(each)) for each in known if each]
    default = f" [{collapse(str(field['default']))}]" if "default" in field else ""
    return (f" ({'; '.join(facts)})" if facts else "") + default


def _convert(text: str, field: Mapping[str, Any]) -> Any:
    return _READERS.get(str(field.get("type")), str)(text)


def _find_mistake(text: str, field: Mapping[str, Any]) -> str:
    """Say why the text is not of the field's type, or return "". The server checks the rest."""
    try:
        _convert(text, field)
    except (ValueError, KeyError):
        return f"{collapse(text, 40)!r} is not a valid {field.get('type')}"
    return ""


def find_servers(files: list[str] | None) -> dict[str, DescribedServer]:
    """Return the servers of the settings, of their ensemble directories, and of `mcp.json` files."""
    silence_sdk()
    settings = settings_here()
    beside = load_configuration(settings.ensembles).get("mcp", ())
    return {each.name: each._replace(cli_options="") for each in beside} | select_servers(settings, files)


def find_server(name: str, files: list[str] | None) -> DescribedServer:
    every = find_servers(files)
    if name not in every:
        hint = suggest(name, every) if every else f"callboard mcp add {name} -- COMMAND"
        raise CallerError("no such server", path=name, hint=hint)
    return every[name]


def with_server(name: str, files: list[str] | None, use: Callable[[McpEnsemble], Awaitable[T]]) -> T:
    """Connect a server, use it, and disconnect it."""
    server = find_server(name, files)

    def warn(line: str) -> None:
        typer.echo(collapse(line, _WIDTH), err=True)

    async def connect_and_use() -> T:
        ensemble = McpEnsemble(server.settings, warn=warn, cli_options=server.cli_options)
        try:
            await ensemble.connect()
            return await use(ensemble)
        finally:
            await ensemble.disconnect()

    return interrupt.run(connect_and_use())


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
