"""`callboard chat`: a coding agent that you talk with, in your own files; `--acp` serves it to an editor.

Rule: ctrl-C ends the turn, never the conversation. When the process ends, everything that it started ends.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from callboard.cli import complete, interrupt
from callboard.cli.approvals import Approvals
from callboard.cli.chat_commands import COMMANDS, QUIT, parse_command, run_command
from callboard.cli.display import JobDisplay
from callboard.cli.durable_store import find_job, open_store
from callboard.cli.line_editor import Editor, Interrupted, open_editor
from callboard.cli.models import CODING_FACTS, check_reachable, open_model
from callboard.cli.options import (
    BaseUrl,
    Budget,
    CodingModel,
    Context,
    Dialect,
    Directory,
    Effort,
    Mode,
    NoSandbox,
    Verbose,
    option,
)
from callboard.cli.settings import load_telemetry_settings, settings_in, start_telemetry
from callboard.coding.agents.job_request import JobRequest, parse_access
from callboard.coding.chat.session import ChatSession
from callboard.core import Model as CoreModel
from callboard.errors import CallboardError, CallerError
from callboard.extras import require_extra
from callboard.jobs.chat import open_chat
from callboard.jobs.job import DurableJob
from callboard.jobs.store import DurableStore
from callboard.providers.local.model_files import Place, known_models
from callboard.servers.stdio import claim_stdio
from callboard.storage.directories import data_directory

if TYPE_CHECKING:
    from callboard.servers.acp.session import PreparedChat

_MAX_ANSWER: Final = 200_000
"""Maximum characters of a command's output."""


class _Collector:
    """Collects the lines of a command's output."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, line: str, color: str = "") -> None:  # an editor chooses its own colors
        self.lines.append(line)


class EditorChats:
    """Prepares an editor's chats with the options of the command line; see `callboard.servers.acp.session.Chats`.

    Args:
        store: The store that records chats.
        options: Fields of JobRequest.
        without_sandbox: True to run commands without a sandbox.
    """

    def __init__(self, store: DurableStore, options: Mapping[str, Any], *, without_sandbox: bool) -> None:
        self.store = store
        self.commands = {name: (each.arguments, each.summary) for name, each in COMMANDS.items() if name != QUIT}
        self._options = dict(options)
        self._without_sandbox = without_sandbox

    async def prepare(self, directory: Path, *, earlier: DurableJob | None = None, model: str = "") -> PreparedChat:
        """Prepare a chat; see `Chats`."""
        from callboard.servers.acp.session import PreparedChat  # noqa: PLC0415  # acp takes 0.4 s, and belongs to an extra

        options = {**self._options, "model": model or self._options["model"]}
        request = make_request(options, directory, earlier, without_sandbox=self._without_sandbox)
        settings = request.settings
        # In a thread, because downloading a local model runs its own event loop.
        opened = await asyncio.to_thread(open_model, settings, _tell, CODING_FACTS)
        try:
            await check_reachable(opened, _tell)
        except BaseException:
            await opened.aclose()
            raise
        return PreparedChat(request, opened, _list_models(settings.model, has_url=bool(settings.base_url)))

    async def run_command(self, chat: ChatSession, line: str) -> str | None:
        """Run a command; see `Chats`."""
        command = parse_command(line)
        if command is None:
            return None
        collector = _Collector()
        await run_command(chat, *command, collector)
        return "\n".join(collector.lines)[:_MAX_ANSWER]


def serve_editor(options: Mapping[str, Any], *, root: Path | None, without_sandbox: bool) -> None:
    """Serve one editor on standard input and output until it disconnects. Raises CallerError."""
    require_extra("acp")
    from callboard.servers.acp.serve import serve_client  # noqa: PLC0415  # the extra's

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    start_telemetry(load_telemetry_settings())
    if sys.stdin.isatty():
        _tell("this command is for editors: see docs/acp.md for their settings; ctrl-C ends it")
    with open_store() as store, claim_stdio() as wire, redirect_stdout(sys.stderr):
        chats = EditorChats(store, options, without_sandbox=without_sandbox)
        interrupt.run(serve_client(wire, chats, root=root))


def _list_models(own: str, *, has_url: bool) -> tuple[str, ...]:
    """Return the model of the settings and the downloaded local models. Prompts go to no other model."""
    names = [] if has_url else [each.name for each in known_models().models if Place(each).file.exists()]
    return tuple(dict.fromkeys([own, *(f"local:{name}" for name in names)]))


def _tell(line: str, _color: str = "") -> None:
    typer.echo(line, err=True)


T = TypeVar("T")

HISTORY: Final = "chat-history"
"""Name of the input history file in the data directory."""


def chat(
    command: typer.Context,
    prompt: Annotated[str, typer.Argument(help="The first prompt.", show_default=False)] = "",
    model: CodingModel = "",
    base_url: BaseUrl = "",
    mode: Mode = "",
    dialect: Dialect = "",
    context: Context = 0,
    effort: Effort = "",
    directory: Directory = Path(),
    access: Annotated[
        str, option(help="read-only, edit (asks before each change), or full (asks nothing).", show_default="edit")
    ] = "",
    budget: Budget = None,
    no_sandbox: NoSandbox = False,
    resume: Annotated[str, option(help="Continue an earlier chat, by its job.", autocompletion=complete.chats)] = "",
    acp: Annotated[
        bool, option("--acp", help="Serve an editor over standard input and output, with the Agent Client Protocol.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Chat with a model that works in this directory and asks before it changes anything.

    /help lists the commands. Ctrl-C stops the model, ctrl-D ends the chat. Shell commands run in the sandbox, without
    network. Without a terminal, each line of standard input is a prompt, and nothing is approved.
    """
    options: dict[str, Any] = {"model": model, "base_url": base_url, "mode": mode, "dialect": dialect, "effort": effort}
    options |= {"context": context, "access": access, "budget": budget}
    if acp:
        source = command.get_parameter_source("directory")
        root = None if source is not None and source.name == "DEFAULT" else directory.resolve()
        _serve_editor(options, root, prompt or resume, without_sandbox=no_sandbox)
        return
    earlier = _load_chat(resume) if resume else None
    request = make_request(options, directory, earlier, without_sandbox=no_sandbox)
    settings = request.settings
    start_telemetry(settings.telemetry)
    display = JobDisplay(sys.stdout, sys.stderr, verbose=verbose or settings.coding.debug.enabled, as_json=False)
    accessed = open_model(settings, display.tell, CODING_FACTS)
    display.await_model(accessed.name, accessed)
    if settings.model.startswith("local:"):
        display.tell(f"{settings.model.partition(',')[0].strip()}: loads at the first prompt", "2")

    async def run(store: DurableStore) -> None:
        try:
            await check_reachable(accessed, display.tell)
            console = ChatConsole(display, open_editor(data_directory() / HISTORY))
            await console.run(request, accessed, store, prompt, resume=earlier.id if earlier else "")
        finally:
            await accessed.aclose()

    try:
        with open_store() as store:
            interrupt.run(run(store))
    except asyncio.CancelledError:
        raise typer.Exit(interrupt.EXIT_CODE) from None


class ChatConsole:
    """A chat with a person at the terminal."""

    def __init__(self, display: JobDisplay, editor: Editor) -> None:
        self._display = display
        self._editor = editor
        self._task: asyncio.Task[Any] | None = None

    async def run(
        self, request: JobRequest, model: CoreModel, store: DurableStore, prompt: str = "", *, resume: str = ""
    ) -> None:
        """Run a chat to its end. SIGTERM and SIGHUP (a closed terminal) raise CancelledError."""
        display = self._display
        approvals = Approvals(request.directory, data_directory(), display, self._ask)
        with self._signals():
            async with open_chat(request, model, store, display.step, approvals, resume=resume) as chat:
                self._greet(chat, model.name, request.directory, resume)
                is_open = True
                while is_open and (line := prompt or await self._read(chat)):
                    prompt = ""
                    is_open = await self._handle(chat, line)
                job = chat.job
        if job.description:  # there was a turn
            display.tell(
                f"continue: callboard chat --resume {job.id}    undo its changes: callboard undo {job.id}", "2"
            )

    def _greet(self, chat: ChatSession, model: str, directory: Path, resume: str) -> None:
        if chat.workspace.notice:
            self._display.tell(chat.workspace.notice, "33")
        what = f"continues {resume}" if resume else "/help lists the commands"
        self._display.tell(f"{model} in {directory}, access: {chat.access}; {what}", "2")

    async def _read(self, chat: ChatSession) -> str:
        cleared = False
        while True:
            try:
                line = await self._run(self._editor.prompt(f"{chat.access}> "))
            except EOFError:
                return ""
            except Interrupted:
                if cleared:
                    return ""
                cleared = True
                self._display.tell("press ctrl-C again or ctrl-D to leave", "2")
                continue
            cleared = False
            if line.strip():
                return line.strip()

    async def _handle(self, chat: ChatSession, line: str) -> bool:
        """Run a command or a turn. Return False to end the chat."""
        command = parse_command(line)
        if command and command[0] == QUIT:
            return False
        try:
            await self._run(run_command(chat, *command, self._display) if command else self._turn(chat, line))
        except Interrupted:
            self._display.tell("stopped", "33")
        except (CallboardError, OSError) as error:
            self._display.tell(str(error), "31")
        return True

    async def _turn(self, chat: ChatSession, prompt: str) -> None:
        async with self._display.report_silence():
            result = await chat.turn(prompt)
        if result.state == "incomplete":
            self._display.tell(f"incomplete: {result.why}", "33")

    async def _ask(self, question: str) -> str | None:
        if not self._editor.is_person:
            return None
        try:
            return await self._editor.answer(question)
        except EOFError:
            return None
        except Interrupted:
            self._interrupt()
            return await asyncio.Future()

    # Interruption

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that ctrl-C cancels. Raises Interrupted then."""
        own = asyncio.current_task()
        self._task = task = asyncio.ensure_future(work)
        try:
            return await task
        except asyncio.CancelledError:
            if own is not None and own.cancelling():
                raise
            raise Interrupted from None
        finally:
            self._task = None

    def _interrupt(self) -> None:
        if self._task is not None and not self._task.cancelling():
            self._task.cancel()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        end: Callable[[], object] = task.cancel if task is not None else self._interrupt
        handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: end, signal.SIGHUP: end}
        with suppress(ValueError, RuntimeError):  # not in the main thread
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            with suppress(ValueError, RuntimeError):
                for number in handlers:
                    loop.remove_signal_handler(number)


def make_request(
    options: Mapping[str, Any], directory: Path, earlier: DurableJob | None = None, *, without_sandbox: bool
) -> JobRequest:
    """Make the request of a chat. Raises CallerError.

    Args:
        options: Fields of JobRequest from the command line.
        directory: The chat's directory.
        earlier: The chat to continue, in its directory. Its options apply unless `options` overrides them.
        without_sandbox: True to run commands without a sandbox.
    """
    if earlier is not None:
        options = {name: value or earlier.input.get(name, value) for name, value in options.items()}
        directory = Path(earlier.directory)
    directory = directory.resolve()
    flags = {
        name: options.get(name) for name in ("model", "base_url", "mode", "dialect", "context", "effort", "budget")
    }
    settings = settings_in(directory, flags, for_coding=True)
    return JobRequest(kind="chat", directory=directory, settings=settings, without_sandbox=without_sandbox, **options)


def _serve_editor(options: dict[str, Any], root: Path | None, further: str, *, without_sandbox: bool) -> None:
    if further:
        raise CallerError("the editor chooses the prompt and the chat", path="--acp", hint="omit PROMPT and --resume")
    if options["access"]:
        parse_access(options["access"], "--access")

    serve_editor(options, root=root, without_sandbox=without_sandbox)


def _load_chat(name: str) -> DurableJob:
    job = find_job(name)
    if job.kind != "chat":
        raise CallerError(f"the job is a {job.kind}, not a chat", path=f"--resume {job.id}")
    return job
