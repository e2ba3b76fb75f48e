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
    "Models and tools": {
        "run": ("run:run", "Ask a model that can call your tools."),
        "tools": ("tools:app", "Show and call your tools, as models see them."),
        "mcp": ("mcp:app", "Manage MCP servers from callboard.toml and mcp.json files."),
        "models": ("models:app", "Download and manage models that run on this machine."),
        "clean": ("clean:clean", "Show what Callboard keeps on disk, or delete the kinds that you name."),
        "eval": ("eval:app", "Measure how well a model calls tools."),
        "explain": ("explain:explain", "Show how Callboard asks a model for calls, and the source of each fact."),
        "parse": ("dialects:parse_text", "Find the calls in a text and print them as one JSON object."),
        "dialects": ("dialects:dialects", "Show how models write calls: every dialect, or one dialect in full."),
        "trust": ("trust:trust", "Let a project's callboard.toml and skills take effect."),
        "skills": ("skills:skills", "List the Agent Skills of a project and of your home, and why some are off."),
    },
    "The gateway": {
        "serve": ("serve:serve", "Let any client use any model, through the API that the client speaks."),
        "launch": (
            "launch:launch",
            "Start a coding agent on your model: a gateway, then the client, until the client ends.",
        ),
        "codex": ("clients:codex", "Print or write the settings that Codex needs for the gateway."),
        "claude": ("clients:claude", "Print or write the settings that Claude Code needs for the gateway."),
        "gemini": ("clients:gemini", "Print or write the settings that Gemini CLI needs for the gateway."),
        "qwen": ("clients:qwen", "Print or write the settings that Qwen Code needs for the gateway."),
        "doctor": ("doctor:doctor", "Check whether Codex, Claude Code, Gemini CLI and Qwen Code work with a backend."),
    },
    "Coding agents": {
        "debug": ("job_commands:debug", "Fix a bug: reproduce, investigate, isolate, fix, verify, commit."),
        "build": ("job_commands:build", "Build something: analyse, plan, implement, validate, deliver."),
        "review": ("job_commands:review", "Review a branch: gather, security, quality, compile. Changes no files."),
        "triage": ("job_commands:triage", "Assess a bug report: likely cause and severity. Changes no files."),
        "chat": ("chat:chat", "Chat with a model that works in this directory and asks before it changes anything."),
        "undo": ("jobs:undo", "Undo a job: delete its branch, or revert a chat's edits to your files."),
    },
    "Jobs": {
        "board": ("board:board", "Serve a web page to watch agents, approve calls, answer questions and cancel jobs."),
        "jobs": ("job_actions:app", "List, show and manage your jobs: coding jobs, chats and agent runs."),
        "trace": ("trace:trace", "Show where a job's time, tokens and money went, by round and call."),
        "worker": ("worker:worker", "Run durable jobs: coding jobs, and jobs of the agents that you name."),
        "migrate": ("migrate:migrate", "Create the tables of the jobs, and of a gateway's store, and exit."),
        "schedule": ("schedule:app", "Submit jobs repeatedly, at the times of a cron line."),
    },
}
"""Commands by group and name: the path below this package, and the summary line of the command's help."""

_EXTRAS: Final = {"chat": "coding"}
"""Extras that must be installed before a command can be imported."""

_FIRST_STEPS: Final = """\
Callboard: tool calling that works with every language model.

Ask a model that calls a tool. The first run downloads a model of 491 MB:
  callboard run "Which files are here?" --ensembles io

Start Codex on your model (or: claude, gemini, qwen, opencode):
  callboard launch codex --local qwen2.5-coder-1.5b

Serve your model to any other program:
  callboard serve --local qwen2.5-coder-1.5b

Fix a bug in this repository, on a new branch:
  callboard debug "test_add fails" --model local:qwen2.5-coder-1.5b

Watch and approve in a browser:
  callboard board

callboard --help lists all commands.
"""


class _Commands(CliGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for group, commands in _COMMANDS.items():
            for name, (target, summary) in commands.items():
                extra = _EXTRAS.get(name, "")
                self.add_command(LazyCommand(name, f"{__name__}.{target}", summary, group, extra))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(_FIRST_STEPS, nl=False)
            ctx.exit()
        return super().parse_args(ctx, args)


app = new_app(cls=_Commands, help="Tool calling that works with every language model.")


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
