"""The command line: `callboard`.

Owns the joining of rooms and what a person sees. Every command raises CallboardError for what its user did
wrong; here it becomes one line and the exit code: 2 where it names an option, which is wrong usage, else 1.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import NoReturn

import typer

from callboard.cli import chat, dialects, doctor, explain, job_commands, jobs, mcp, models, parse, run, serve, tools
from callboard.cli.clients import commands as clients
from callboard.cli.help import Group, use_our_help
from callboard.errors import CallboardError
from callboard.programs import absolute_path
from callboard.text.display import strip_controls

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    help="Validated, executed tool calls from whatever a language model writes.",
)
app.command("run")(run.run)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("codex")(clients.codex)
app.command("claude")(clients.claude)
app.command("gemini")(clients.gemini)
app.command("qwen")(clients.qwen)
app.command("build")(job_commands.build)
app.command("debug")(job_commands.debug)
app.command("review")(job_commands.review)
app.command("triage")(job_commands.triage)
app.command("chat")(chat.chat)
app.command("replay")(jobs.replay)
app.command("undo")(jobs.undo)
app.add_typer(jobs.app, name="jobs")
app.command("explain")(explain.explain)
app.command("parse")(parse.parse_text)
app.command("dialects")(dialects.dialects)
app.add_typer(tools.app, name="tools")
app.add_typer(models.app, name="models")
app.add_typer(mcp.app, name="mcp")
use_our_help(app)


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
    _prepare_streams()
    # Whatever is started by its name, also by libraries: nothing that lies in the current directory.
    os.environ["PATH"] = absolute_path()
    try:
        try:
            app(prog_name="callboard")
        finally:
            # What cannot be written is to be said here, not by the interpreter at its end.
            sys.stdout.flush()
    except CallboardError as error:
        _end(str(error), 2 if error.path.startswith("--") else 1)
    except ModuleNotFoundError as error:
        if error.name not in sys.stdlib_module_names:
            raise
        _end(f"Python has no module {error.name} on this system; use Linux or macOS, on Windows WSL", 1)
    except BrokenPipeError:
        # Whoever read our output has gone.
        _forget_output()
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        # A disk that is full, a folder that may not be read: nobody's mistake in a program.
        _forget_output()
        place = f"{error.filename}: " if error.filename else ""
        _end(f"{place}{error.strerror or error}", 1)


def _end(why: str, code: int) -> NoReturn:
    typer.echo(strip_controls(f"callboard: {why}"), err=True)
    sys.exit(code)


def _prepare_streams() -> None:
    """Standard streams that are closed lead nowhere, else the next file to be opened would take their number.

    What their encoding has no bytes for is no reason to fail.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # for as long as we live
        elif mode == "w" and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _forget_output() -> None:
    """What could not be written cannot be written at exit either: Python is not to try, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
