"""The options that commands share, and commands that take their options as one struct.

A dataclass names the options, each annotated as Typer wants it; commands that share options share a base class. Typer
itself knows only functions with a parameter for each option.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from callboard.cli import complete
from callboard.cli.command_group import ADVANCED
from callboard.configuration.settings import BY_NAME
from callboard.errors import CallerError

KEY_HINT: Final = "env:NAME or file:PATH hides it from ps"
"""Text for the help of options that take a key."""
ACCESS: Final = "Access and limits"
"""The heading of options for clients of a server."""
WORKER: Final = "In a worker"
"""The heading of options for jobs that another process runs."""
_REFERENCE: Final = re.compile(r"((?:[^=:]*=)?)(env|file):(.+)", re.DOTALL)


def option(*names: str, panel: str | None = None, **settings: Any) -> Any:
    """Return a `typer.Option` under a heading of the help, by default "Options"."""
    return typer.Option(*names, rich_help_panel=panel, **settings)


def key_option(clients: str, variable: str) -> Any:
    """Return the repeatable option for keys that these clients must send, also read from the variable."""
    return option(
        help=f"A key that {clients} must send: KEY, NAME=KEY or sha256:DIGEST; {KEY_HINT}; repeatable.",
        envvar=variable,
        panel=ACCESS,
    )


def read_key(text: str) -> str:
    """Return an option's key, read from the variable or file that it refers to. A `NAME=` prefix stays.

    Raises:
        CallerError: The variable is not set, or the file cannot be read or is empty.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return text
    owner, kind, place = match.groups()
    key = os.environ.get(place, "") if kind == "env" else _read_file(place)
    if not key:
        hint = f"export {place}=..." if kind == "env" else "write the key into it"
        raise CallerError("holds no key", path=f"{kind}:{place}", hint=hint)
    return owner + key


def read_keys(texts: Iterable[str] | None) -> list[str]:
    """Return the keys of a repeatable option."""
    return [read_key(each) for each in texts or ()]


def _read_file(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise CallerError(reason, path=f"file:{path}", hint="name a file that holds the key alone") from None


Options = TypeVar("Options")


def _model_option(default: str) -> Any:
    return option(
        help="local:NAME, openai:NAME, ..., or NAME with --base-url; commas separate fallbacks.",
        show_default=default,
        autocompletion=complete.models,
    )


Model = Annotated[str, _model_option(BY_NAME["model"].default)]
CodingModel = Annotated[str, _model_option("the best installed, else qwen2.5-coder-1.5b")]
BaseUrl = Annotated[str, option(help="A Chat Completions endpoint, such as http://127.0.0.1:8080/v1.")]
Mode = Annotated[
    str,
    option(
        help="native, structured, validated, parsed.",
        show_default="the profile's",
        autocompletion=complete.modes,
        panel=ADVANCED,
    ),
]
Dialect = Annotated[
    str,
    option(
        help="Format of calls in text; see callboard dialects.",
        show_default="the profile's",
        autocompletion=complete.dialects,
        panel=ADVANCED,
    ),
]
Context = Annotated[
    int,
    option(
        min=0,
        help="Context window in tokens.",
        show_default="what fits in memory",
        panel=ADVANCED,
    ),
]
Effort = Annotated[
    str,
    option(
        help="Thinking: none, minimal, low, medium, high, xhigh or max.",
        show_default=False,
        autocompletion=complete.efforts,
        panel=ADVANCED,
    ),
]
MaxRounds = Annotated[
    int | None,
    option(
        min=1,
        help="Maximum replies; the last has no tools.",
        show_default=str(BY_NAME["max_rounds"].default),
        panel=ADVANCED,
    ),
]
Tools = Annotated[list[str] | None, option("--tools", help="module:attribute or file.py[:attribute]; repeatable.")]
Ensembles = Annotated[
    list[str] | None, option("--ensembles", help="io, coding, coding_single, a plug-in or a directory; repeatable.")
]
McpFiles = Annotated[list[str] | None, option("--mcp", help="An mcp.json file, as other clients use; repeatable.")]
Directory = Annotated[
    Path, option("--directory", "-C", exists=True, file_okay=False, help="The repository.", show_default="here")
]
NoSandbox = Annotated[
    bool,
    option("--no-sandbox", help="Run commands without a sandbox, on a machine that is itself one.", panel=ADVANCED),
]
Json = Annotated[bool, option("--json", help="Print JSON.")]
Verbose = Annotated[
    bool, option("--verbose", "-v", help="Show rounds, reasoning, notes and usage, and the prompts of jobs.")
]
JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's name, the start of it, or @last.",
        show_default=False,
        autocompletion=complete.jobs,
    ),
]
Host = Annotated[str, option(help="The address to listen on. Other machines require --key.", panel=ACCESS)]
Port = Annotated[int, option(min=0, max=65535, help="The port; 0 selects a free one.")]
Store = Annotated[
    str,
    option(help="URL of a database for replies.", envvar="CALLBOARD_STORE_URL", panel=ADVANCED),
]
LogLevel = Annotated[str, option(help="debug, info, warning or error.", panel=ADVANCED)]
Budget = Annotated[
    float | None,
    option(
        help="Maximum cost in US dollars; the run stops when they are spent.",
        callback=lambda value: _check_budget(value),  # noqa: PLW0108  # defined below
    ),
]
Wait = Annotated[
    bool, option("--wait", help="Run it in a worker and show its output. Ctrl-C stops only the output.", panel=WORKER)
]
Background = Annotated[
    bool,
    option("--background", help="Run it in a worker and print the job's id. Approvals wait for you.", panel=WORKER),
]


def _check_budget(value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise typer.BadParameter("a budget must be above zero")
    return value


def takes_options(kind: type[Options], *without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function of one struct of this kind, and of options of its own, into a command that takes all of them.

    Args:
        kind: A dataclass with a field for each option.
        without: Fields that keep their defaults.
    """
    hints = get_type_hints(kind, include_extras=True)
    shared = [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(kind)  # type: ignore[arg-type]
        if each.name not in without
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = signature(function, eval_str=True).parameters.values()

        def command(**values: Any) -> None:
            function(kind(**{each.name: values.pop(each.name) for each in shared}), **values)

        parameters = [*own, *shared]
        command.__doc__ = function.__doc__
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate
