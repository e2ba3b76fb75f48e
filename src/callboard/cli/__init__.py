"""The command line: `callboard`.

Every command raises CallboardError for its user's mistakes. `main` prints it in one line, and exits with 2 if its path is
an option (wrong usage), else with 1.
"""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from typing import Any, Final, NoReturn

import typer

from callboard.cli.command_group import CliGroup, LazyCommand, new_app
from callboard.errors import CallboardError
from callboard.programs import absolute_search_path
from callboard.text.display import strip_controls

_COMMANDS: Final = {
    "run": ("run:run", "Ask a model that can call your tools."),
    "serve": (
        "serve:serve",
        "Let any client use any model: Responses, Chat Completions, Messages and Gemini in front of any backend.",
    ),
    "board": (
        "board:board",
        "Serve a web page where you see what every agent does, approve calls, answer questions and cancel jobs.",
    ),
    "doctor": (
        "doctor:doctor",
        "Check whether Codex, Claude Code, Gemini CLI and Qwen Code can work with a backend, and what it supports.",
    ),
    "eval": (
        "eval:app",
        "Measure how well a model calls tools. `callboard eval MODEL` is short for `callboard eval run MODEL`.",
    ),
    "codex": (
        "clients:codex",
        "Print or write the settings that Codex needs for the gateway: a provider and a catalogue of models.",
    ),
    "claude": (
        "clients:claude",
        "Print or write the settings that Claude Code needs for the gateway. They apply to all of Claude Code.",
    ),
    "gemini": (
        "clients:gemini",
        "Print or write the settings that Gemini CLI needs for the gateway, and print the command that starts it.",
    ),
    "qwen": ("clients:qwen", "Print or write the settings that Qwen Code needs for the gateway."),
    "build": ("job_commands:build", "Build something: analyse, plan, implement, validate, deliver."),
    "debug": ("job_commands:debug", "Fix a bug: reproduce, investigate, isolate, fix, verify, commit."),
    "review": ("job_commands:review", "Review a branch: gather, security, quality, compile. Changes no files."),
    "triage": (
        "job_commands:triage",
        "Assess a bug report: likely cause, severity, and what to do first. Changes no files.",
    ),
    "chat": ("chat:chat", "Chat with a model that works in this directory and asks before it changes anything."),
    "trace": (
        "jobs:trace",
        "Show where a job's time, tokens and money went, by round and call.",
    ),
    "trust": ("trust:trust", "Let all settings of a project's callboard.toml take effect."),
    "undo": (
        "jobs:undo",
        "Undo a job: delete its branch and its working tree, or revert a chat's edits to your files.",
    ),
    "explain": (
        "explain:explain",
        "Show how Callboard asks a model for calls: mode, dialects, wire, and the source of each fact.",
    ),
    "parse": (
        "dialects:parse_text",
        "Find the calls in a text and print them as one JSON object.",
    ),
    "dialects": (
        "dialects:dialects",
        "Show how models write calls: every dialect with an example, or one dialect in full.",
    ),
    "jobs": ("job_actions:app", "List, show and manage your jobs: coding jobs, chats and agent runs."),
    "worker": (
        "worker:worker",
        "Run durable jobs: coding jobs, and jobs of the agents that you name.",
    ),
    "schedule": ("schedule:app", "Submit jobs repeatedly, at the times of a cron line."),
    "tools": ("tools:app", "Show and call your tools, as models see them."),
    "models": ("models:app", "Download and manage models that run on this machine."),
    "mcp": ("mcp:app", "Manage MCP servers from callboard.toml and mcp.json files."),
}
"""Commands by name: the path below this package, and the summary line of the command's help."""

_EXTRAS: Final = {"chat": "coding"}
"""Extras that must be installed before a command can be imported."""


class _Commands(CliGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (target, summary) in _COMMANDS.items():
            self.add_command(LazyCommand(name, f"{__name__}.{target}", summary, _EXTRAS.get(name, "")))


app = new_app(cls=_Commands, no_args_is_help=True, help="Tool calling that works with every language model.")


def _print_version(chosen: bool) -> None:
    if chosen:
        from callboard import __version__  # noqa: PLC0415  # for this option only

        typer.echo(f"callboard {__version__}")
        raise typer.Exit


@app.callback()
def _callboard(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """The console script."""
    _prepare_streams()
    # Neither we nor libraries start a program by its name from the current directory.
    os.environ["PATH"] = absolute_search_path()
    try:
        try:
            app(prog_name="callboard")
        finally:
            # A failure to write is reported here, not by the interpreter at its exit.
            sys.stdout.flush()
            sys.stderr.flush()
    except CallboardError as error:
        _end(f"{error}{f'; see {error.page}' if error.page else ''}", 2 if error.path.startswith("--") else 1)
    except ModuleNotFoundError as error:
        if error.name not in sys.stdlib_module_names:
            raise
        _end(f"Python has no module {error.name} on this system; use Linux or macOS, on Windows WSL", 1)
    except BrokenPipeError:
        # The reader of our output is gone.
        _forget_output()
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        # A full disk, a folder without permission: no bug, so no traceback.
        _forget_output()
        if error.errno == errno.EIO and not error.filename:
            sys.exit(130)  # the terminal is gone, which is an end like ctrl-C
        place = f"{error.filename}: " if error.filename else ""
        _end(f"{place}{error.strerror or error}", 1)


def _end(why: str, code: int) -> NoReturn:
    typer.echo(strip_controls(f"callboard: {why}"), err=True)
    sys.exit(code)


def _prepare_streams() -> None:
    """Open closed standard streams to nowhere, else the next file that is opened would get their number.

    Characters that their encoding lacks are replaced.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # for as long as we live
        elif mode == "w" and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _forget_output() -> None:
    """Drop output that could not be written, else Python tries again at exit, and complains."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
