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
from callboard.configuration.settings import BY_NAME
from callboard.errors import CallerError

KEY_HINT: Final = "env:NAME or file:PATH hides it from ps"
"""For the help of options that take a key."""
_REFERENCE: Final = re.compile(r"((?:[^=:]*=)?)(env|file):(.+)", re.DOTALL)


def key_option(clients: str, variable: str) -> Any:
    """The repeatable option of the keys that these clients have to send; the variable holds them as well."""
    return typer.Option(
        help=f"A key that {clients} have to send: KEY, NAME=KEY or sha256:DIGEST; {KEY_HINT}; repeatable.",
        envvar=variable,
        show_default=False,
    )


def read_key(text: str) -> str:
    """The key of an option, read from the variable or file that it refers to; `NAME=` before it stays.

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
    """The keys of a repeatable option."""
    return [read_key(each) for each in texts or ()]


def _read_file(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise CallerError(reason, path=f"file:{path}", hint="name a file that holds the key alone") from None


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
        help="Format of calls if the tools are in the prompt (callboard dialects).",
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
Directory = Annotated[Path, typer.Option("--directory", "-C", help="The repository's directory.", show_default="here")]
NoSandbox = Annotated[
    bool,
    typer.Option("--no-sandbox", help="Run commands and tests unconfined: where the machine itself is the sandbox."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show rounds, reasoning, notes and usage; of jobs the prompts too.")
]
JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The job, or how its name begins.", show_default=False, autocompletion=complete.jobs
    ),
]
Host = Annotated[str, typer.Option(help="The address to listen on. An address beyond this machine needs --key.")]
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
