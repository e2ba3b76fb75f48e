"""`callboard parse`: the calls in a text."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from callboard.cli.dialects import find_dialect, read_declarations, read_text
from callboard.core import (
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    TextPiece,
    encode_line,
)
from callboard.dialects import Parser
from callboard.errors import CallerError


class Reason(StrEnum):
    """Why the text ends."""

    STOP = "stop"
    LENGTH = "length"


def parse_text(
    file: Annotated[str, typer.Argument(help="A file, or `-` for standard input.")] = "-",
    dialect: Annotated[
        str, typer.Option(help="How calls are spelled (callboard dialects), or a model's tokenizer_config.json.")
    ] = "auto",
    tools: Annotated[
        str,
        typer.Option(help="A JSON file: a list of {name, description?, parameters?, cli?}.", show_default=False),
    ] = "",
    chunk: Annotated[int, typer.Option(min=0, help="Feed the text in pieces of so many characters; 0: whole.")] = 0,
    start_in_reasoning: Annotated[
        bool, typer.Option("--start-in-reasoning", help="The text begins inside reasoning.")
    ] = False,
    reason: Annotated[Reason, typer.Option(help="Why the text ends.")] = Reason.STOP,
    stream: Annotated[bool, typer.Option("--stream", help="Print one event a line.")] = False,
) -> None:
    """Find the calls in a text and print one JSON object: text, reasoning, invocations, dialect, notes."""
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
