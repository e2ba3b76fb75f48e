"""`callboard dialects` and `callboard parse`: how models write calls."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from callboard.cli import complete
from callboard.cli.options import Json
from callboard.core import (
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    ResultCanister,
    TextPiece,
    ToolDeclaration,
    contents,
    encode_line,
)
from callboard.dialects import (
    DIALECTS,
    Dialect,
    NotSpellable,
    Parser,
    dialect_of_template,
    get_dialect,
    render_calls,
    render_result,
    render_tools,
)
from callboard.dialects.response_template import read_response_template
from callboard.errors import CallerError
from callboard.plugins import plugins


class Reason(StrEnum):
    """The reason why the text ends."""

    STOP = "stop"
    LENGTH = "length"


def parse_text(
    file: Annotated[str, typer.Argument(help="A file, or `-` for standard input.")] = "-",
    dialect: Annotated[
        str, typer.Option(help="How calls are written (see callboard dialects), or a model's tokenizer_config.json.")
    ] = "auto",
    tools: Annotated[
        str,
        typer.Option(
            help="A JSON file of tools: a list of {name, description?, parameters?, cli?}.", show_default=False
        ),
    ] = "",
    chunk: Annotated[int, typer.Option(min=0, help="Feed the text in pieces of this many characters; 0: whole.")] = 0,
    start_in_reasoning: Annotated[
        bool, typer.Option("--start-in-reasoning", help="The text starts inside reasoning.")
    ] = False,
    reason: Annotated[Reason, typer.Option(help="The reason why the text ends.")] = Reason.STOP,
    stream: Annotated[bool, typer.Option("--stream", help="Print one event per line.")] = False,
) -> None:
    """Find the calls in a text and print them as one JSON object."""
    if file == tools == "-":
        raise CallerError("the text and the tools cannot both come from standard input")
    declared = read_declarations(tools) if tools else None
    parser = Parser(declared, find_dialect(dialect), start_in_reasoning=start_in_reasoning)
    text = read_text(file)
    size = chunk or max(len(text), 1)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    spoken = parser.dialect.name
    events += parser.finish(reason.value)
    if stream:
        for event in events:
            typer.echo(encode_line(event))
        return
    typer.echo(msgspec.json.format(msgspec.json.encode(_summarize(events, spoken))))


def _summarize(events: list[Any], dialect: str) -> dict[str, Any]:
    known = {event.index: event.known for event in events if isinstance(event, InvocationStarted)}
    return {
        "text": "".join([event.text for event in events if isinstance(event, TextPiece)]),
        "reasoning": "".join([event.text for event in events if isinstance(event, ReasoningPiece)]),
        "invocations": [
            {
                "identifier": event.identifier,
                "name": event.name,
                "arguments": event.arguments if isinstance(event, InvocationEnded) else None,
                "known": known.get(event.index, False),
                "complete": isinstance(event, InvocationEnded),
                "raw": event.raw,
            }
            for event in events
            if isinstance(event, (InvocationEnded, InvocationIncomplete))
        ],
        "dialect": dialect,
        "notes": [{"kind": event.kind, "text": event.text} for event in events if isinstance(event, Note)],
    }


_TOOLS = (
    ("get_weather", "Forecast the weather.", {"city": "string", "days": "integer"}),
    ("bash", "Run a command.", {"command": "string"}),
)
_CALLS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"city": "Oslo", "days": 2}, {"city": "Rome", "days": 1}),
    ({"command": "ls -l docs"}, {"command": "cat README.md"}),
)
"""Two calls of each tool. The example uses the first tool whose calls the dialect can spell."""
_RESULTS = ("Two clear days.", "architecture.md  cli.md")


def dialects(
    name: Annotated[
        str, typer.Argument(help="A dialect to show in full.", show_default=False, autocompletion=complete.dialects)
    ] = "",
    template: Annotated[
        str,
        typer.Option(
            help="Name the dialect in this file: a chat template or a tokenizer_config.json.",
            show_default=False,
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Show how models write calls: every dialect, or one dialect in full."""
    if name and template:
        raise typer.BadParameter("name a dialect or give a template, not both")
    if template:
        dialect = _dialect_of_template(template)
        typer.echo(_as_json(_describe(dialect)) if as_json else dialect.name)
    elif name:
        described = _describe_in_full(find_dialect(name))
        typer.echo(_as_json(described) if as_json else _format_page(described))
    else:
        rows = [_describe(dialect) for dialect in list_dialects().values()]
        typer.echo(_as_json(rows) if as_json else "\n\n".join([_format_entry(each) for each in rows]))


def list_dialects() -> dict[str, Dialect]:
    """Return all dialects by name, including dialects of plug-ins. Raises CallerError if a plug-in cannot be loaded."""
    return {**DIALECTS, **{dialect.name: dialect for dialect in plugins("callboard.dialects")}}


def read_text(file: str) -> str:
    """Read a file, or standard input. Raises CallerError."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CallerError(error.strerror or "cannot be read", path=file) from None
    return data.decode("utf-8", "replace")


def read_declarations(file: str) -> list[ToolDeclaration]:
    """Read the tools of a JSON file. Raises CallerError."""

    class Row(msgspec.Struct):
        name: str
        description: str = ""
        parameters: dict[str, Any] = {}
        cli: dict[str, str] = {}

    try:
        rows = msgspec.json.decode(read_text(file), type=list[Row])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(
            f"not a list of tools: {error}", path=file, hint="write [{name, description?, parameters?, cli?}]"
        ) from None
    return [ToolDeclaration(row.name, row.description, row.parameters, row.cli) for row in rows]


def _dialect_of_template(template: str) -> Dialect:
    if template.endswith(".json"):
        return _dialect_of_config(template)
    dialect = dialect_of_template(read_text(template))
    if dialect is None:
        raise CallerError("the template shows no known dialect", path=template, hint="auto reads most of them")
    return dialect


def read_config(file: str) -> dict[str, Any]:
    """Read a model's tokenizer_config.json. Raises CallerError."""
    try:
        return msgspec.json.decode(read_text(file), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise CallerError("not a JSON object", path=file, hint="give a model's tokenizer_config.json") from None


def find_dialect(name: str) -> Dialect:
    """Return the dialect with this name, or the dialect of a tokenizer_config.json. Raises CallerError."""
    return _dialect_of_config(name) if name.endswith(".json") else get_dialect(name)


def read_facts(file: str) -> dict[str, Any]:
    """Return the facts of a tokenizer_config.json as a profile, or {} for another name. Raises CallerError."""
    if not file.endswith(".json"):
        return {}
    row = find_dialect(file)
    if row.name in DIALECTS:
        return {"dialect": row.name, "watch": row.name}
    config = read_config(file)
    return {"response_template": config.get("response_template", config)}


def _dialect_of_config(file: str) -> Dialect:
    config = read_config(file)
    shown = None if "response_template" in config else dialect_of_template(str(config.get("chat_template", "")))
    return shown or read_response_template(config, file)


def _describe(dialect: Dialect) -> dict[str, Any]:
    tool, calls, _ = _find_example(dialect)
    return {"name": dialect.name, "summary": dialect.summary, "example": render_calls(dialect, calls[:1], [tool])}


def _describe_in_full(dialect: Dialect) -> dict[str, Any]:
    tool, calls, result = _find_example(dialect)
    return {
        **_describe(dialect),
        "calls": render_calls(dialect, calls, [tool]),
        "result": render_result(dialect, result),
        "tools": render_tools(dialect, [tool]),
        "reasoning": [[each.opens, each.closes] for each in dialect.reasoning],
    }


def _find_example(dialect: Dialect) -> tuple[ToolDeclaration, list[InvocationCanister], ResultCanister]:
    for (name, description, types), arguments, result in zip(_TOOLS, _CALLS, _RESULTS, strict=True):
        properties = {key: {"type": kind} for key, kind in types.items()}
        schema = {"type": "object", "properties": properties, "required": list(types)}
        tool = ToolDeclaration(name, description, schema)
        calls = [InvocationCanister(f"call_0_{at}", name, each, json.dumps(each)) for at, each in enumerate(arguments)]
        try:
            render_calls(dialect, calls, [tool])
        except NotSpellable:
            continue
        return tool, calls, ResultCanister(contents(result), invocation_id="call_0_0")
    raise CallerError("the dialect can write none of the examples", path=f"dialect {dialect.name}")


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _format_entry(described: dict[str, Any]) -> str:
    example = "\n".join([f"    {line}".rstrip() for line in described["example"].splitlines()])
    return f"{described['name']}: {described['summary']}\n{example}"


_PARTS = {
    "example": "a call",
    "calls": "two calls",
    "result": "the result of the first",
    "tools": "how a model is told",
}


def _format_page(shown: dict[str, Any]) -> str:
    parts = [f"== {title}\n{shown[part]}" for part, title in _PARTS.items()]
    return "\n\n".join([f"{shown['name']}: {shown['summary']}", *parts])
