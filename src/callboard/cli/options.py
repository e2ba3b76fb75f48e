"""The options that commands share, and commands that take their options as one struct.

A dataclass names the options, each annotated as Typer wants it; commands that share options share a base class. Typer
itself knows only functions with a parameter for each option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from callboard.cli import complete
from callboard.configuration.settings import BY_NAME

Options = TypeVar("Options")

Model = Annotated[
    str,
    typer.Option(
        help="local:NAME, openai:NAME, ..., or NAME with --base-url; with commas, the next one where one fails.",
        show_default=BY_NAME["model"].default,
        autocompletion=complete.models,
    ),
]
BaseUrl = Annotated[
    str, typer.Option(help="A Chat Completions endpoint, such as http://127.0.0.1:8080/v1.", show_default=False)
]
Mode = Annotated[
    str,
    typer.Option(
        help="native, structured, validated or parsed; else the profile's.",
        show_default=False,
        autocompletion=complete.modes,
    ),
]
Dialect = Annotated[
    str,
    typer.Option(
        help="How calls are spelled if the tools stand in the prompt (callboard dialects).",
        show_default="the profile's",
        autocompletion=complete.dialects,
    ),
]
MaxRounds = Annotated[
    int | None,
    typer.Option(min=1, help="Replies, the last without tools.", show_default=str(BY_NAME["max_rounds"].default)),
]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tools", help="module:attribute or file.py[:attribute]; repeatable.", show_default=False),
]
Ensembles = Annotated[
    list[str] | None,
    typer.Option(
        "--ensembles",
        help="A directory of ensembles, or a built-in one: io, coding, coding_single; repeatable.",
        show_default=False,
    ),
]
McpFiles = Annotated[
    list[str] | None,
    typer.Option("--mcp", help="An mcp.json file, as other clients have it; repeatable.", show_default=False),
]
Directory = Annotated[Path, typer.Option("--directory", "-C", help="Where the repository is.", show_default="here")]
NoSandbox = Annotated[
    bool,
    typer.Option("--no-sandbox", help="Run commands and tests unconfined: where the machine itself is the sandbox."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show rounds, reasoning, notes and usage; of jobs the prompts too.")
]
Host = Annotated[str, typer.Option(help="Where to listen; wider than this machine only with --key.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
Budget = Annotated[
    float | None,
    typer.Option(
        help="US dollars that it may cost; when they are spent, it ends.",
        show_default=False,
        callback=lambda value: _check_budget(value),  # noqa: PLW0108  # it stands below
    ),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Let a worker run it as with --background, and show it; ctrl-C leaves it running."),
]
Background = Annotated[
    bool,
    typer.Option(
        "--background", help="Print the job's id, and let a worker run it; what needs your approval waits for it."
    ),
]


def _check_budget(value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise typer.BadParameter("a budget is above zero")
    return value


def takes_options(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Turn a function of one struct of this kind into a command with an option for each of its fields."""
    hints = get_type_hints(kind, include_extras=True)

    def decorate(function: Callable[[Options], None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            function(kind(**values))

        command.__doc__ = function.__doc__
        command.__annotations__ = hints
        command.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                Parameter(
                    each.name,
                    Parameter.KEYWORD_ONLY,
                    default=Parameter.empty if each.default is MISSING else each.default,
                    annotation=hints[each.name],
                )
                for each in fields(kind)  # type: ignore[arg-type]
            ]
        )
        return command

    return decorate
