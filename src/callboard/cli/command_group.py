"""Commands that are imported when they are called, and the layout of `--help`.

The root group has a table of names and summaries, so `callboard --help` and the completion of command names import no
command. A command's module is imported when its arguments are parsed.

`--help` differs from Typer's in four points. It is plain text, because importing rich takes longer than everything
else. The lines of a docstring's paragraph are joined. An option shows a type only if it takes a value. Options and
commands have the headings of their `rich_help_panel`, which Typer shows only with rich.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_group

from callboard.extras import require_extra

if TYPE_CHECKING:
    _Base = TyperCommand
else:
    _Base = object

_MAX_WIDTH: Final = 120
_MAX_NAME: Final = 30
"""Maximum characters of an option that has its help beside it."""
_DEFAULT: Final = re.compile(r"(?<=default: )\((.*?)\)(?=[;\]])")
"""A default that Typer puts in parentheses, because it is not a value of the option."""

ADVANCED: Final = "Advanced"
"""The heading of options that few people need."""
_ORDER: Final = {"Arguments": 0, "Options": 1, ADVANCED: 3}
"""Ranks of headings. Others are between the options and the advanced options."""


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
        self.help = join_lines(self.help or "")
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by heading."""
        records = [(_heading(each), each.get_help_record(ctx)) for each in self.get_params(ctx)]
        rows = [(heading, row[0].replace(" range>", ">"), row[1]) for heading, row in records if row]
        _write_sections(formatter, [(heading, name, _DEFAULT.sub(r"\1", text)) for heading, name, text in rows])


class CliCommand(_Help, TyperCommand):
    """A command with our help. It also accepts `-name` for its option `--name`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace `-name` by `--name`, up to a lone `--`."""
        names = {name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)}
        end = args.index("--") if "--" in args else len(args)
        own = [f"-{each}" if each[:1] == "-" and f"-{each.partition('=')[0]}" in names else each for each in args[:end]]
        return super().parse_args(ctx, [*own, *args[end:]])


class CliGroup(_Help, TyperGroup):
    """A group of commands with our help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the commands."""
        super().format_options(ctx, formatter)
        commands: dict[str, Any] = {**self.commands}
        rows = [(each.rich_help_panel or "Commands", name, summary(each.help)) for name, each in commands.items()]
        _write_sections(formatter, rows)


class DefaultGroup(CliGroup):
    """A group that runs its command `run` if the first argument is not a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the command's name to arguments without one."""
        if args and args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx):
            args = ["run", *args]
        return super().parse_args(ctx, args)


class LazyCommand(TyperCommand):
    """A placeholder for a command whose module is not imported yet.

    Args:
        name: The command's name.
        target: The command as `module:attribute`: a function, or a `typer.Typer` with commands.
        help: The exact summary line of the command's own help.
        group: The heading of the command in the help of its parent.
        extra: The extra that must be installed before the module can be imported.
    """

    def __init__(self, name: str, target: str, help: str, group: str = "", extra: str = "") -> None:  # noqa: A002  # Typer's name
        super().__init__(name, help=help, rich_help_panel=group)
        self._target = target
        self._extra = extra

    def load(self) -> TyperCommand | TyperGroup:
        """Import the command. Raises CallerError if its extra is not installed."""
        if self._extra:
            require_extra(self._extra)
        module, _, attribute = self._target.partition(":")
        target = getattr(import_module(module), attribute)
        parent = new_app()
        if isinstance(target, typer.Typer):
            parent.add_typer(target, name=self.name)
        else:
            parent.command(self.name)(target)
        _set_classes(parent)
        command: TyperCommand | TyperGroup = get_group(parent).commands[self.name or ""]  # type: ignore[assignment]
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Let the real command parse its arguments and own the context."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


def new_app(**settings: Any) -> typer.Typer:
    """Make a Typer with plain-text help whose exceptions reach `main`."""
    context = {"max_content_width": _MAX_WIDTH}
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=context, **settings)


def join_lines(text: str) -> str:
    """Return the text with one line per paragraph."""
    return "\n\n".join([" ".join(paragraph.split()) for paragraph in text.split("\n\n")])


def summary(text: str | None) -> str:
    """Return the first paragraph in one line."""
    return join_lines(text or "").partition("\n\n")[0]


def _heading(param: Any) -> str:
    default = "Arguments" if param.param_type_name == "argument" else "Options"
    return getattr(param, "rich_help_panel", None) or default


def _write_sections(formatter: Any, rows: Sequence[tuple[str, str, str]]) -> None:
    """Write names and texts under their headings, in columns of one width."""
    width = max(len(name) for _, name, _ in rows if len(name) <= _MAX_NAME)
    sections: dict[str, list[tuple[str, str]]] = {}
    for heading, name, text in rows:
        sections.setdefault(heading, []).append((name.ljust(width), text))
    for heading in sorted(sections, key=lambda each: _ORDER.get(each, 2)):
        with formatter.section(heading):
            formatter.write_dl(sections[heading], col_max=width)


def _set_classes(app: typer.Typer) -> None:
    for command in app.registered_commands:
        command.cls = CliCommand
    for group in app.registered_groups:
        own = group.typer_instance.info.cls if group.typer_instance is not None else None
        group.cls = DefaultGroup if own is DefaultGroup else CliGroup
        if group.typer_instance is not None:
            _set_classes(group.typer_instance)
