"""How `--help` looks.

Owns what differs from Typer's: paragraphs flow, whatever the lines of a docstring are, and an option shows a type only
where something is to be typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    _Base = TyperCommand
else:
    _Base = object


class _Help(_Base):
    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        for each in params:
            if isinstance(each, TyperOption) and each.metavar is None:
                if each.is_flag:
                    each.metavar = ""
                elif each.multiple:
                    each.metavar = "<str>"
        return params

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.help = flowed(self.help or "")
        super().format_help(ctx, formatter)


class Command(_Help, TyperCommand):
    """A command with our help."""


class Group(_Help, TyperGroup):
    """A group of commands with our help."""


def use_our_help(app: typer.Typer) -> None:
    """Has all commands below show our help."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance is not None:
            use_our_help(group.typer_instance)


def flowed(text: str) -> str:
    """The text with a line for each paragraph."""
    return "\n\n".join([" ".join(paragraph.split()) for paragraph in text.split("\n\n")])
