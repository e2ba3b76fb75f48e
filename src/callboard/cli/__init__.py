"""The command line: `callboard`.

Owns the joining of rooms and what a person sees. Every command raises CallboardError for what its user did
wrong; here it becomes one line and the exit code 1.
"""

from __future__ import annotations

import sys

import typer

from callboard.cli import explain, models, parse, run, tools
from callboard.errors import CallboardError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    help="Validated, executed tool calls from whatever a language model writes.",
)
app.command("run")(run.run)
app.command("explain")(explain.explain)
app.command("parse")(parse.parse_text)
app.add_typer(tools.app, name="tools")
app.add_typer(models.app, name="models")


def _version(wanted: bool) -> None:
    if wanted:
        from callboard import __version__  # noqa: PLC0415  # for this option only

        typer.echo(f"callboard {__version__}")
        raise typer.Exit


@app.callback()
def _callboard(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """The console script."""
    try:
        app()
    except CallboardError as error:
        sys.exit(f"callboard: {error}")
    except BrokenPipeError:
        # Whoever read our output has gone.
        sys.stderr.close()
        sys.exit(1)
