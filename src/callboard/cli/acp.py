"""`callboard chat --acp`: the chats of the terminal, for an editor."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import typer

from callboard.cli import interrupt
from callboard.cli.chat import make_request
from callboard.cli.chat_commands import COMMANDS, QUIT, parse_command, run_command
from callboard.cli.models import CODING_FACTS, check_reachable, open_model
from callboard.cli.telemetry import load_telemetry_settings, start_telemetry
from callboard.coding.chat.session import ChatSession
from callboard.coding.jobs.job import Job
from callboard.coding.jobs.store import JobStore
from callboard.extras import require_extra
from callboard.providers.local import shipped_catalogue
from callboard.providers.local.model_files import Place
from callboard.servers.acp.chats import PreparedChat
from callboard.servers.stdio import claim_stdio

_MAX_ANSWER: Final = 200_000
"""Characters of what a command shows."""


class _Collector:
    """Collects the lines that a command shows."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, line: str, color: str = "") -> None:  # an editor chooses its own
        self.lines.append(line)


class EditorChats:
    """Prepares chats with the options of the command line; see `callboard.servers.acp.chats.Chats`.

    Args:
        options: Those of JobRequest.
        without_sandbox: Whether commands run unconfined.
    """

    def __init__(self, options: Mapping[str, Any], *, without_sandbox: bool) -> None:
        self.jobs = JobStore()
        self.commands = {name: (each.arguments, each.summary) for name, each in COMMANDS.items() if name != QUIT}
        self._options = dict(options)
        self._without_sandbox = without_sandbox

    async def prepare(self, directory: Path, *, earlier: Job | None = None, model: str = "") -> PreparedChat:
        """A chat; see `Chats`."""
        options = {**self._options, "model": model or self._options["model"]}
        request = make_request(options, directory, earlier, without_sandbox=self._without_sandbox)
        settings = request.settings
        # In a thread: a local model that is not here is pulled, with an event loop of its own.
        opened = await asyncio.to_thread(open_model, settings, _tell, CODING_FACTS)
        try:
            await check_reachable(opened, _tell)
        except BaseException:
            await opened.aclose()
            raise
        return PreparedChat(request, opened, _list_models(settings.model, has_url=bool(settings.base_url)))

    async def run_command(self, chat: ChatSession, line: str) -> str | None:
        """A command; see `Chats`."""
        command = parse_command(line)
        if command is None:
            return None
        collector = _Collector()
        await run_command(chat, *command, collector)
        return "\n".join(collector.lines)[:_MAX_ANSWER]


def serve_editor(options: Mapping[str, Any], *, root: Path | None, without_sandbox: bool) -> None:
    """Serves one editor on standard input and output until it is gone. Raises CallerError."""
    require_extra("acp")
    from callboard.servers.acp.serve import serve_client  # noqa: PLC0415  # the extra's

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    start_telemetry(load_telemetry_settings())
    if sys.stdin.isatty():
        _tell("an editor starts this, and talks with it here: docs/acp.md has its settings; ctrl-C ends it")
    chats = EditorChats(options, without_sandbox=without_sandbox)
    with claim_stdio() as wire, redirect_stdout(sys.stderr):
        interrupt.run(serve_client(wire, chats, root=root))


def _list_models(own: str, *, has_url: bool) -> tuple[str, ...]:
    """The model of the settings, and those of this machine that are here: prompts go nowhere else."""
    names = [] if has_url else [each.name for each in shipped_catalogue().models if Place(each).file.exists()]
    return tuple(dict.fromkeys([own, *(f"local:{name}" for name in names)]))


def _tell(line: str, _color: str = "") -> None:
    typer.echo(line, err=True)
