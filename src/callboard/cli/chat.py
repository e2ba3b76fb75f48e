"""`callboard chat`: a coding agent that talks, in your own tree.

Owns what a person types, what commands there are, and what ctrl-C means. What a chat is, is `callboard.coding.chat.session`'s
business.
Law: ctrl-C ends the turn and never the conversation; whatever ends the process ends all that it started.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from callboard.cli import complete
from callboard.cli.chat_commands import QUIT, command_of, obey
from callboard.cli.job_commands import BaseUrl, Directory, Model, NoSandbox, Verbose
from callboard.cli.line_editor import Interrupted

if TYPE_CHECKING:
    from callboard.cli.jobs import JobDisplay
    from callboard.cli.line_editor import Editor
    from callboard.coding.agents.job_request import Assignment
    from callboard.coding.chat.session import Chat
    from callboard.coding.jobs.store import Job

T = TypeVar("T")

HISTORY: Final = "chat-history"
"""The file of what was typed, in the data directory."""


def chat(
    prompt: Annotated[str, typer.Argument(help="What to begin with.", show_default=False)] = "",
    model: Model = "",
    base_url: BaseUrl = "",
    mode: Annotated[
        str,
        typer.Option(
            help="native, structured, validated or parsed; else the profile's.",
            show_default=False,
            autocompletion=complete.modes,
        ),
    ] = "",
    directory: Directory = Path(),
    rights: Annotated[
        str,
        typer.Option(help="read-only, edit (asks before each change), or full (asks nothing).", show_default="edit"),
    ] = "",
    no_sandbox: NoSandbox = False,
    resume: Annotated[
        str,
        typer.Option(help="Go on with an earlier chat: its job.", show_default=False, autocompletion=complete.chats),
    ] = "",
    verbose: Verbose = False,
) -> None:
    """Talk with a model that works in this directory, and asks before it changes something.

    /help shows what else can be typed; ctrl-C ends what the model is doing, ctrl-D the chat. Commands run in the
    sandbox, without network. Without a terminal the lines of standard input are the prompts, and nothing is approved.
    """
    from callboard.cli import interrupt  # noqa: PLC0415  # not for --help
    from callboard.cli.jobs import JobDisplay  # noqa: PLC0415
    from callboard.cli.line_editor import editor  # noqa: PLC0415
    from callboard.cli.models import accessed_model, check_reachable  # noqa: PLC0415
    from callboard.cli.settings import settings_in  # noqa: PLC0415
    from callboard.coding.jobs.store import Jobs, jobs_directory  # noqa: PLC0415

    jobs = Jobs()
    earlier = _earlier(jobs.load(resume)) if resume else None
    given: dict[str, Any] = {"model": model, "base_url": base_url, "mode": mode, "rights": rights}
    if earlier is not None:
        given = {name: value or earlier.input.get(name, "") for name, value in given.items()}
    place = Path(earlier.directory) if earlier else directory.resolve()
    flags = {name: given[name] for name in ("model", "base_url", "mode")}
    settings = settings_in(place, flags)
    display = JobDisplay(sys.stdout, sys.stderr, verbose=verbose or settings.coding.debug.enabled, as_json=False)
    assignment = _assignment(settings, place, given, no_sandbox=no_sandbox)
    accessed = accessed_model(settings, display.tell)
    if settings.model.startswith("local:"):
        display.tell(f"{settings.model.partition(',')[0].strip()}: loading when it is first asked", "2")

    async def follow() -> None:
        try:
            await check_reachable(accessed)
            talk = Talk(display, editor(jobs_directory().parent / HISTORY))
            await talk.run(assignment, accessed, jobs, prompt, resume=earlier)
        finally:
            await accessed.aclose()

    try:
        interrupt.run(follow())
    except asyncio.CancelledError:
        raise typer.Exit(interrupt.EXIT_CODE) from None


class Talk:
    """The conversation of a person at an editor with a chat."""

    def __init__(self, display: JobDisplay, editor: Editor) -> None:
        self._display = display
        self._editor = editor
        self._doing: asyncio.Task[Any] | None = None

    async def run(
        self, assignment: Assignment, model: Any, jobs: Any, prompt: str = "", *, resume: Job | None = None
    ) -> None:
        """Runs a chat to its end. SIGTERM and SIGHUP, a terminal that goes, end it by a CancelledError."""
        from callboard.cli.approvals import Approvals  # noqa: PLC0415  # not for --help
        from callboard.coding.chat.session import open_chat  # noqa: PLC0415

        display = self._display
        approvals = Approvals(assignment.directory, jobs.directory.parent, display, self._ask)
        with self._signals():
            async with open_chat(assignment, model, jobs, display.step, approvals, resume=resume) as chat:
                self._begin(chat, model.name, assignment.directory, resume)
                goes_on = True
                while goes_on and (typed := prompt or await self._next(chat)):
                    prompt = ""
                    goes_on = await self._take(chat, typed)
                job = chat.job
        if job.description:  # something was said
            display.tell(
                f"go on: callboard chat --resume {job.id}    take its changes back: callboard undo {job.id}", "2"
            )

    def _begin(self, chat: Chat, model: str, directory: Path, resume: Job | None) -> None:
        if chat.workspace.notice:
            self._display.tell(chat.workspace.notice, "33")
        what = f"goes on with {resume.id}" if resume else "/help shows what can be typed"
        self._display.tell(f"{model} in {directory}, rights: {chat.rights}; {what}", "2")

    async def _next(self, chat: Chat) -> str:
        """What is typed next; "" at the end."""
        cleared = False
        while True:
            try:
                typed = await self._do(self._editor.prompt(f"{chat.rights}> "))
            except EOFError:
                return ""
            except Interrupted:
                if cleared:
                    return ""
                cleared = True
                self._display.tell("ctrl-C again or ctrl-D leaves", "2")
                continue
            cleared = False
            if typed.strip():
                return typed.strip()

    async def _take(self, chat: Chat, typed: str) -> bool:
        """Whether the chat goes on."""
        from callboard.errors import CallboardError  # noqa: PLC0415  # not for --help

        command = command_of(typed)
        if command and command[0] == QUIT:
            return False
        try:
            await self._do(obey(chat, *command, self._display) if command else self._turn(chat, typed))
        except Interrupted:
            self._display.tell("stopped", "33")
        except (CallboardError, OSError) as error:
            self._display.tell(str(error), "31")
        return True

    async def _turn(self, chat: Chat, prompt: str) -> None:
        result = await chat.turn(prompt)
        if result.state == "incomplete":
            self._display.tell(f"incomplete: {result.why}", "33")

    async def _ask(self, question: str) -> str | None:
        """An answer for approvals; ctrl-C ends the turn."""
        if not self._editor.is_person:
            return None
        try:
            return await self._editor.answer(question)
        except EOFError:
            return ""
        except Interrupted:
            self._interrupt()
            return await asyncio.Future()

    # What ends what

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Does something that ctrl-C ends; raises Interrupted then."""
        own = asyncio.current_task()
        self._doing = doing = asyncio.ensure_future(work)
        try:
            return await doing
        except asyncio.CancelledError:
            if own is not None and own.cancelling():
                raise
            raise Interrupted from None
        finally:
            self._doing = None

    def _interrupt(self) -> None:
        if self._doing is not None and not self._doing.cancelling():
            self._doing.cancel()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        ends: Callable[[], object] = task.cancel if task is not None else self._interrupt
        handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: ends, signal.SIGHUP: ends}
        with suppress(ValueError, RuntimeError):  # not in the main thread
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            with suppress(ValueError, RuntimeError):
                for number in handlers:
                    loop.remove_signal_handler(number)


def _earlier(job: Job) -> Job:
    if job.type != "chat":
        from callboard.errors import CallerError  # noqa: PLC0415  # not for --help

        raise CallerError(f"the job is no chat but {job.type}", path=f"--resume {job.id}")
    return job


def _assignment(settings: Any, place: Path, given: Mapping[str, Any], *, no_sandbox: bool) -> Assignment:
    from callboard.coding.agents.job_request import Assignment, rights_of  # noqa: PLC0415  # not for --help

    mode = settings.coding.modes.get("chat")
    return Assignment(
        kind="chat",
        directory=place,
        given={name: value for name, value in given.items() if value},
        settings=settings,
        rights=rights_of(given["rights"] or (mode and mode.rights) or "edit", "--rights"),
        without_sandbox=no_sandbox,
    )
