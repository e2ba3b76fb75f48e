"""The methods of version 1 of the Agent Client Protocol, for any number of sessions.

Law: nothing happens before `initialize`, and nothing happens in a directory that the user did not allow.

MCP servers that a client names are converted to entries of our configuration.

Laws: an entry of callboard.toml with the same name overrides the client's description. A server gets none of our
environment variables except those that every server gets.
"""

from __future__ import annotations

import asyncio
import os.path
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateRequest,
    CancelNotification,
    CloseSessionRequest,
    CloseSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionRequest,
    NewSessionResponse,
    PromptCapabilities,
    PromptRequest,
    PromptResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionConfigOptionSelectRequest,
    SetSessionModeRequest,
    SetSessionModeResponse,
    SseMcpServer,
)
from pydantic import BaseModel

from callboard import __version__
from callboard.configuration import DescribedServer, Settings, read_servers
from callboard.errors import CallerError
from callboard.jobs.job import DurableJob, JobSummary
from callboard.servers.acp.content import read_prompt
from callboard.servers.acp.session import MODE, MODEL, Ask, Chats, ClientSession, Send, config_options, mode_state
from callboard.text.display import collapse

ClientServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

RESERVED: Final = ("coding", "results", "local")
"""Names of our own ensembles."""
MAX_SERVERS: Final = 64
_REFERENCE: Final = "env:"
"""Prefix that would read one of our environment variables in a table of callboard.toml."""


def describe_servers(servers: Iterable[ClientServer], settings: Settings) -> list[DescribedServer]:
    """Return the servers of a session. Raises CallerError if a server cannot be reached this way."""
    tables: dict[str, Mapping[str, object]] = {}
    for at, server in enumerate(servers):
        path = f"mcpServers[{at}]"
        if server.name in tables or server.name in RESERVED or at >= MAX_SERVERS:
            what = f"more than {MAX_SERVERS} servers" if at >= MAX_SERVERS else f"another is named {server.name!r}"
            raise CallerError(what, path=path, hint="name fewer servers, or use another name")
        tables[server.name] = _to_table(server, path)
    described = read_servers(tables, lambda keys: f"the client's MCP server {'.'.join(map(str, keys))}")
    return [settings.mcp.get(each.name, each) for each in described]


def _to_table(server: ClientServer, path: str) -> Mapping[str, object]:
    match server:
        case McpServerStdio(command=command, args=arguments, env=environment):
            return {
                "command": [command, *arguments],
                "environment": _literal({each.name: each.value for each in environment}, path),
                # Not the session's directory: `python -m` would run files from an unknown repository.
                "directory": str(Path.home()),
            }
        case HttpMcpServer(url=url, headers=headers):
            return {"url": url, "headers": _literal({each.name: each.value for each in headers}, path)}
        case _:
            hint = "give a program (stdio) or a URL of streamable HTTP (http)"
            raise CallerError("this transport is not supported", path=path, hint=hint)


def _literal(values: Mapping[str, str], path: str) -> Mapping[str, str]:
    if wrong := [name for name, value in values.items() if value.startswith(_REFERENCE)]:
        hint = "describe the server in callboard.toml, where such a value reads a variable"
        raise CallerError(f"the value of {wrong[0]} begins with {_REFERENCE}", path=path, hint=hint)
    return values


MAX_SESSIONS: Final = 32
"""Maximum open sessions."""
_PAGE: Final = 50
"""Sessions in one answer to `session/list`."""
_MAX_TITLE: Final = 80


class Method(NamedTuple):
    """A method: the type of its parameters, and its handler."""

    parameters: type[BaseModel]
    run: Callable[[Any], Awaitable[BaseModel | None]]


class AcpAgent:
    """The sessions of one client.

    Args:
        chats: Makes the chats.
        send: Sends an update of a session.
        ask: Asks the user of a session.
        root: Directory that must contain the sessions' directories; None for any.
    """

    def __init__(self, chats: Chats, send: Send, ask: Ask, *, root: Path | None = None) -> None:
        self._chats = chats
        self._send = send
        self._ask = ask
        self._root = root
        self._is_initialized = False
        self._client = "client"
        self._opened: set[ClientSession] = set()
        self._sessions: dict[str, ClientSession] = {}
        self.requests = {
            "initialize": Method(InitializeRequest, self._initialize),
            "authenticate": Method(AuthenticateRequest, self._authenticate),
            "session/new": Method(NewSessionRequest, self._new),
            "session/load": Method(LoadSessionRequest, self._load),
            "session/resume": Method(ResumeSessionRequest, self._resume),
            "session/list": Method(ListSessionsRequest, self._list),
            "session/close": Method(CloseSessionRequest, self._close),
            "session/prompt": Method(PromptRequest, self._prompt),
            "session/set_mode": Method(SetSessionModeRequest, self._set_mode),
            "session/set_config_option": Method(SetSessionConfigOptionSelectRequest, self._set_option),
        }
        self.notifications = {"session/cancel": Method(CancelNotification, self._cancel)}

    def check_order(self, method: str) -> None:
        """Raise CallerError if a request comes too early."""
        if not self._is_initialized and method != "initialize":
            raise CallerError(f"{method} comes too early", hint="send initialize first")

    async def aclose(self) -> None:
        await asyncio.gather(*[each.close() for each in self._opened], return_exceptions=True)

    # The connection

    async def _initialize(self, request: InitializeRequest) -> InitializeResponse:
        self._is_initialized = True
        self._client = request.client_info.name if request.client_info else "client"
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="callboard", title="Callboard", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(), resume=SessionResumeCapabilities(), close=SessionCloseCapabilities()
                ),
            ),
            auth_methods=[],
        )

    async def _authenticate(self, request: AuthenticateRequest) -> None:
        hint = "set API keys in the environment, as for callboard chat"
        raise CallerError(f"no login {request.method_id!r}: no login is needed", path="methodId", hint=hint)

    # Start and end of sessions

    async def _new(self, request: NewSessionRequest) -> NewSessionResponse:
        directory = self._check_directory(request.cwd, request.additional_directories)
        session = await self._open(directory, request.mcp_servers)
        return NewSessionResponse(
            session_id=session.identifier, modes=mode_state(session.chat.access), config_options=self._options(session)
        )

    async def _load(self, request: LoadSessionRequest) -> LoadSessionResponse:
        session = await self._reopen(request)
        await session.replay()
        return LoadSessionResponse(modes=mode_state(session.chat.access), config_options=self._options(session))

    async def _resume(self, request: ResumeSessionRequest) -> ResumeSessionResponse:
        session = await self._reopen(request)
        return ResumeSessionResponse(modes=mode_state(session.chat.access), config_options=self._options(session))

    async def _list(self, request: ListSessionsRequest) -> ListSessionsResponse:
        directory = None if request.cwd is None else self._check_directory(request.cwd)
        jobs = await self._chats.store.list(limit=sys.maxsize)
        chats = [each for each in jobs if self._is_listed(each, directory)]
        if request.cursor:
            chats = [each for each in chats if each.id < request.cursor]
        page, further = chats[:_PAGE], chats[_PAGE:]
        sessions = [
            SessionInfo(
                session_id=each.id,
                cwd=each.directory,
                title=collapse(each.title, _MAX_TITLE),
                updated_at=(each.completed_at or each.created_at).isoformat(),
            )
            for each in page
        ]
        return ListSessionsResponse(sessions=sessions, next_cursor=page[-1].id if further else None)

    async def _close(self, request: CloseSessionRequest) -> CloseSessionResponse:
        session = self._find(request.session_id)
        del self._sessions[request.session_id]
        self._opened.discard(session)
        await session.close()
        return CloseSessionResponse()

    # Within a session

    async def _prompt(self, request: PromptRequest) -> PromptResponse:
        session = self._find(request.session_id)
        prompt = read_prompt(request.prompt, session.directory)
        return PromptResponse(stop_reason=await session.prompt(prompt))

    async def _cancel(self, notification: CancelNotification) -> None:
        if (session := self._sessions.get(notification.session_id)) is not None:
            session.cancel()

    async def _set_mode(self, request: SetSessionModeRequest) -> SetSessionModeResponse:
        self._find(request.session_id).set_access(request.mode_id)
        return SetSessionModeResponse()

    async def _set_option(self, request: SetSessionConfigOptionSelectRequest) -> SetSessionConfigOptionResponse:
        session = self._find(request.session_id)
        if request.config_id == MODE:
            session.set_access(request.value)
        elif request.config_id == MODEL:
            await session.set_model(request.value)
        else:
            hint = f"there are {MODE} and {MODEL}"
            raise CallerError(f"no option {collapse(request.config_id)!r}", path="configId", hint=hint)
        return SetSessionConfigOptionResponse(config_options=self._options(session))

    # Helpers

    def _check_directory(self, text: str, further: Sequence[str] | None = None) -> Path:
        """Return the directory of a session. Raises CallerError."""
        directory = Path(text)
        if further:
            hint = "open one session for each directory"
            raise CallerError("a session works in one directory", path="additionalDirectories", hint=hint)
        if not directory.is_absolute() or "\0" in text or not os.path.isdir(text):  # noqa: PTH112  # it never raises
            hint = "give the absolute path of an existing directory"
            raise CallerError(f"{collapse(text, 200)!r} is not a directory", path="cwd", hint=hint)
        directory = directory.resolve()
        if self._root is not None and not directory.is_relative_to(self._root):
            hint = "start callboard chat --acp without --directory, or with another directory"
            raise CallerError(f"{text!r} is not inside {self._root}", path="cwd", hint=hint)
        return directory

    def _check_room(self) -> None:
        """Raise CallerError at the limit of sessions. Await nothing between this check and the new session."""
        if len(self._opened) >= MAX_SESSIONS:
            raise CallerError(f"{MAX_SESSIONS} sessions are open", hint="close one with session/close")

    def _find(self, identifier: str) -> ClientSession:
        session = self._sessions.get(identifier)
        if session is None:
            hint = "session/new opens a session, session/load an earlier one"
            raise CallerError(f"no session {collapse(identifier)!r} is open", path="sessionId", hint=hint)
        return session

    def _is_listed(self, job: JobSummary, directory: Path | None) -> bool:
        if job.kind != "chat" or not job.title:
            return False
        if directory is not None:
            return Path(job.directory) == directory
        return self._root is None or Path(job.directory).is_relative_to(self._root)

    async def _reopen(self, request: LoadSessionRequest | ResumeSessionRequest) -> ClientSession:
        directory = self._check_directory(request.cwd, request.additional_directories)
        earlier = await self._chats.store.get(request.session_id)
        if earlier.kind != "chat" or earlier.id != request.session_id:
            raise CallerError("no chat has this id", path="sessionId", hint="session/list shows the chats")
        if Path(earlier.directory) != directory:
            raise CallerError(f"this chat is in {earlier.directory}", path="cwd", hint="load it there")
        return await self._open(directory, request.mcp_servers, earlier)

    async def _open(
        self, directory: Path, servers: Sequence[ClientServer] | None, earlier: DurableJob | None = None
    ) -> ClientSession:
        prepared = await self._chats.prepare(directory, earlier=earlier)
        try:
            self._check_room()
            described = describe_servers(servers or (), prepared.request.settings)
            session = ClientSession(
                self._chats,
                prepared,
                self._send,
                self._ask,
                servers=described,
                earlier=earlier,
                client=self._client,
            )
        except BaseException:
            await prepared.model.aclose()
            raise
        self._opened.add(session)
        try:
            await session.open()
        except BaseException:
            self._opened.discard(session)
            raise
        self._sessions[session.identifier] = session
        # After the response: the client does not know the session before it.
        asyncio.get_running_loop().call_soon(session.announce)
        return session

    @staticmethod
    def _options(session: ClientSession) -> list[Any]:
        return [*config_options(session.chat.access, session.model, session.models)]
