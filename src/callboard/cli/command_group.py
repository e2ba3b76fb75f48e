"""Commands that are imported when they are called, and the layout of `--help`.

The root group has a table of names and summaries, so `callboard --help` and the completion of command names import no
command. A command's module is imported when its arguments are parsed.

`--help` differs from Typer's in three points. It is plain text, because importing rich takes longer than everything
else. The lines of a docstring's paragraph are joined. An option shows a type only if it takes a value.
"""

from __future__ import annotations

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

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(each.help)) for name, each in self.commands.items()])


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
        extra: The extra that must be installed before the module can be imported.
    """

    def __init__(self, name: str, target: str, help: str, extra: str = "") -> None:  # noqa: A002  # Typer's name
        super().__init__(name, help=help)
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


def _set_classes(app: typer.Typer) -> None:
    for command in app.registered_commands:
        command.cls = CliCommand
    for group in app.registered_groups:
        own = group.typer_instance.info.cls if group.typer_instance is not None else None
        group.cls = DefaultGroup if own is DefaultGroup else CliGroup
        if group.typer_instance is not None:
            _set_classes(group.typer_instance)
