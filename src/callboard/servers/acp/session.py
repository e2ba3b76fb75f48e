"""One session of an ACP client: a chat, and its current turn.

The chat is entered and left in its own task, independent of the request that opened it. Laws: one turn runs at a time.
A cancelled turn ends its model call and its commands before it is answered.

`Chats` is what the sessions need from the command line, which also makes the chats of the terminal.

Options of a session in an editor: access mode, model, and slash commands.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from acp.helpers import update_agent_message_text, update_available_commands
from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PermissionOption,
    RequestPermissionResponse,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionInfoUpdate,
    SessionMode,
    SessionModeState,
    StopReason,
    ToolCallUpdate,
    UnstructuredCommandInput,
)

from callboard.agent.run import RunResult
from callboard.coding.agents.job_request import JobRequest, parse_access
from callboard.coding.chat.approver import FILE, SavedApprovals
from callboard.coding.chat.session import PICTURES_ALONE, ChatSession
from callboard.coding.job import Step
from callboard.configuration import DescribedServer
from callboard.configuration.coding import CHAT_ROUNDS, Access
from callboard.core import ReplyEnded, ReplyFailed, SupervisorCanister
from callboard.errors import CallerError, ProviderError
from callboard.jobs.chat import open_chat
from callboard.jobs.job import DurableJob
from callboard.jobs.steps import read_steps
from callboard.jobs.store import DurableStore
from callboard.modes import get_plan
from callboard.providers.registry import PlannedModel
from callboard.servers.acp.content import Prompt, fence
from callboard.servers.acp.updates import ClientApprover, Update, UpdateEncoder
from callboard.storage.directories import data_directory
from callboard.text.display import collapse

MODE: Final = "mode"
MODEL: Final = "model"

_MODES: Final[Mapping[Access, tuple[str, str]]] = {
    "read-only": ("Read only", "The model can only read."),
    "edit": ("Ask", "The model reads freely, and asks before it changes or runs something."),
    "full": ("Full access", "Nothing is asked."),
}


def mode_state(access: Access) -> SessionModeState:
    """Return the modes of a session, and the current mode."""
    modes = [SessionMode(id=key, name=name, description=text) for key, (name, text) in _MODES.items()]
    return SessionModeState(current_mode_id=access, available_modes=modes)


def config_options(
    access: Access, model: str, models: Sequence[str]
) -> list[SessionConfigOptionSelect | SessionConfigOptionBoolean]:
    """Return the modes and the models as options: clients that support options ignore modes."""
    modes = [SessionConfigSelectOption(value=key, name=name, description=text) for key, (name, text) in _MODES.items()]
    named = [SessionConfigSelectOption(value=each, name=each) for each in models]
    return [
        SessionConfigOptionSelect(
            type="select", id=MODE, name="Access", category="mode", current_value=access, options=modes
        ),
        SessionConfigOptionSelect(
            type="select", id=MODEL, name="Model", category="model", current_value=model, options=named
        ),
    ]


def available_commands(commands: Mapping[str, tuple[str, str]]) -> AvailableCommandsUpdate:
    """Return the commands by name, with their arguments and a summary."""
    return update_available_commands(
        AvailableCommand(
            name=name,
            description=summary,
            input=AvailableCommandInput(UnstructuredCommandInput(hint=hint)) if hint else None,
        )
        for name, (hint, summary) in commands.items()
    )


class PreparedChat(NamedTuple):
    """A chat before it is opened. `models` are the available models; the first is the chat's own."""

    request: JobRequest
    model: PlannedModel
    models: tuple[str, ...]


class Chats(Protocol):
    """Prepares chats, and runs their commands."""

    @property
    def store(self) -> DurableStore:
        """The store that records chats."""
        ...

    @property
    def commands(self) -> Mapping[str, tuple[str, str]]:
        """The commands that a person may type: arguments and a summary, by name."""
        ...

    async def prepare(self, directory: Path, *, earlier: DurableJob | None = None, model: str = "") -> PreparedChat:
        """Prepare a new or continued chat in a directory. `model` overrides the model of the settings.

        The caller closes the model. Raises CallboardError.
        """
        ...

    async def run_command(self, chat: ChatSession, line: str) -> str | None:
        """Run a command and return its output, or None if the line is not a command. Raises CallboardError, OSError."""
        ...


AnyUpdate: TypeAlias = Update | AvailableCommandsUpdate | ConfigOptionUpdate | CurrentModeUpdate | SessionInfoUpdate
Send: TypeAlias = Callable[[str, AnyUpdate], None]
"""Sends an update of a session."""
Ask: TypeAlias = Callable[[str, ToolCallUpdate, list[PermissionOption]], Awaitable[RequestPermissionResponse]]
"""Asks the user of a session."""

_STOP_REASONS: Final[dict[str, StopReason]] = {"length": "max_tokens", "refusal": "refusal", "filter": "refusal"}
"""Why a turn ended, by the reason of its last reply."""
_MAX_TITLE: Final = 80


class ClientSession:
    """A session. `open` opens it, and `announce` sends messages that the client could not receive before.

    Args:
        chats: Makes the chat.
        prepared: The chat.
        send: Sends an update.
        ask: Asks the user.
        servers: The MCP servers of the client.
        earlier: The chat to continue.
        client: Name of the client.
    """

    def __init__(
        self,
        chats: Chats,
        prepared: PreparedChat,
        send: Send,
        ask: Ask,
        *,
        servers: Iterable[DescribedServer] = (),
        earlier: DurableJob | None = None,
        client: str = "",
    ) -> None:
        self.chat: ChatSession
        self.models = prepared.models
        self.model = prepared.models[0]
        """Name of the current model."""
        self._chats = chats
        self._prepared = prepared
        self._opened_models: dict[str, PlannedModel] = {self.model: prepared.model}
        """Models that were selected at least once, by name. They are closed with the session."""
        self._send = send
        self._ask = ask
        self._servers = servers
        self._earlier = earlier
        root = prepared.request.directory
        self._encoder = UpdateEncoder(
            root,
            self._action_of,
            prefix=f"{secrets.token_hex(3)}-",
            context_tokens=get_plan(prepared.model).context_tokens,
        )
        saved = SavedApprovals(root, data_directory() / FILE)
        self._approver = ClientApprover(saved, self._encoder, root, self._ask_client, self._show, client=client)
        self._withheld: list[AnyUpdate] | None = []
        self._turn: asyncio.Task[StopReason] | None = None
        self._closing = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._last_reply: ReplyEnded | ReplyFailed | None = None

    @property
    def identifier(self) -> str:
        return self.chat.job.id

    @property
    def directory(self) -> Path:
        return self._prepared.request.directory

    # Lifecycle

    async def open(self) -> None:
        """Open the chat. Raises CallboardError, OSError."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(opened))
        await opened

    async def _live(self, opened: asyncio.Future[None]) -> None:
        prepared = self._prepared
        try:
            async with open_chat(
                prepared.request,
                prepared.model,
                self._chats.store,
                self._show_step,
                self._approver,
                resume=self._earlier.id if self._earlier else "",
                servers=self._servers,
                on_change=self._encoder.add_change,
            ) as self.chat:
                opened.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            for each in self._opened_models.values():
                await each.aclose()

    async def replay(self) -> None:
        """Show the conversation so far. Raises CallerError."""
        self._withheld = None  # the log contains it too
        self._encoder.replays = True
        entries = await self._chats.store.read_entries(self.identifier)
        for step in read_steps([each for each in entries if not isinstance(each.item, SupervisorCanister)]):
            self._show_step(step)
        self._encoder.replays = False
        for update in self._encoder.finish():
            self._show(update)

    def announce(self) -> None:
        """Send the commands, and the messages that were withheld."""
        withheld, self._withheld = self._withheld or [], None
        for update in (available_commands(self._chats.commands), *withheld):
            self._show(update)

    async def close(self) -> None:
        self.cancel()
        if self._turn is not None:
            await asyncio.wait([self._turn])
        self._closing.set()
        if self._life is not None:
            with suppress(asyncio.CancelledError):
                await self._life

    # Actions of the user

    async def prompt(self, prompt: Prompt) -> StopReason:
        """Run one turn or one command. Raises CallboardError, OSError."""
        if self._turn is not None:
            hint = "wait for its end, or send session/cancel"
            raise CallerError("a turn is already running", path=self.identifier, hint=hint)
        self._turn = task = asyncio.create_task(self._run(prompt))
        try:
            await asyncio.wait([task])
            return "cancelled" if task.cancelled() else task.result()
        finally:
            self._turn = None
            if not task.done():  # the connection has ended
                task.cancel()
                await asyncio.wait([task])

    def cancel(self) -> None:
        if self._turn is not None:
            self._turn.cancel()

    def set_access(self, name: str) -> None:
        """Set the access of the model from the next turn on. Raises CallerError."""
        self.chat.access = parse_access(name, "modeId")
        self._show_options()

    async def set_model(self, name: str) -> None:
        """Set the model from the next turn on. Raises CallboardError."""
        if name not in self.models:
            raise CallerError(f"no model {name!r} is offered", path=MODEL, hint=f"there are {', '.join(self.models)}")
        model = self._opened_models.get(name) or await self._open_model(name)
        self.chat.use_model(model)
        self.model = name
        self._encoder.context_tokens = get_plan(model).context_tokens
        self._show_options()

    async def _open_model(self, name: str) -> PlannedModel:
        directory = self._prepared.request.directory
        model = (await self._chats.prepare(directory, earlier=self._earlier, model=name)).model
        if name in self._opened_models or self._closing.is_set():  # changed in the meantime
            await model.aclose()
        return self._opened_models.setdefault(name, model)

    # A turn

    async def _run(self, prompt: Prompt) -> StopReason:
        try:
            access = self.chat.access
            answer = None if prompt.pictures else await self._chats.run_command(self.chat, prompt.text.strip())
            if answer is not None:
                self._show(update_agent_message_text(f"{fence(answer)}\n"))
                if self.chat.access != access:
                    self._show_options()
                return "end_turn"
            if not self.chat.job.description:
                title = collapse(prompt.text, _MAX_TITLE) or PICTURES_ALONE
                self._show(SessionInfoUpdate(session_update="session_info_update", title=title))
            self._last_reply = None
            return self._stop_reason(await self.chat.turn(prompt.text, prompt.pictures))
        finally:
            for update in self._encoder.finish():
                self._show(update)

    def _stop_reason(self, result: RunResult) -> StopReason:
        """Return the stop reason. Raises ProviderError if the turn failed."""
        last = self._last_reply
        if isinstance(last, ReplyFailed) and result.state == "failed":
            raise ProviderError(last.message, code=last.code, path=last.path, hint=last.hint)
        if result.state == "failed":
            raise ProviderError(result.why or "the turn failed", hint="for details: callboard jobs logs")
        if result.state == "cancelled":
            return "cancelled"
        if result.state == "completed" or (isinstance(last, ReplyEnded) and last.reason in _STOP_REASONS):
            return _STOP_REASONS.get(last.reason, "end_turn") if isinstance(last, ReplyEnded) else "end_turn"
        self.chat.notify(f"incomplete: {result.why}")
        limit = self._prepared.request.max_rounds or CHAT_ROUNDS
        return "max_turn_requests" if result.rounds >= limit else "end_turn"

    # To the client

    def _show_step(self, step: Step) -> None:
        if isinstance(step, (ReplyEnded, ReplyFailed)):
            self._last_reply = step
        for update in self._encoder.feed(step):
            self._show(update)

    def _show(self, update: AnyUpdate) -> None:
        if self._withheld is None:
            self._send(self.identifier, update)
        else:
            self._withheld.append(update)

    def _show_options(self) -> None:
        mode = CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.chat.access)
        options = config_options(self.chat.access, self.model, self.models)
        self._show(mode)
        self._show(ConfigOptionUpdate(session_update="config_option_update", config_options=options))

    async def _ask_client(self, call: ToolCallUpdate, options: list[PermissionOption]) -> RequestPermissionResponse:
        return await self._ask(self.identifier, call, options)

    def _action_of(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        return self.chat.action_of(name, arguments)
