"""Commands that take their options as one struct.

A dataclass names the options, each annotated as Typer wants it; commands that share options share a base class. Typer
itself knows only functions with a parameter for each option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

Options = TypeVar("Options")

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
