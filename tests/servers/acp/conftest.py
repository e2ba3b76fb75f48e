"""An editor: the client side of the package `acp`, over pipes to our connection in this process."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager

import pytest
from acp import connect_to_agent, text_block
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse
from tests.coding.stored import StoredJobs

from callboard.cli.chat import EditorChats
from callboard.coding.agents.job_request import JobRequest
from callboard.configuration import load_settings
from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.servers.acp.serve import MAX_MESSAGE, ClientConnection, LineTransport
from callboard.servers.acp.session import PreparedChat
from callboard.servers.stdio import open_reader, open_writer
from callboard.testing import ScriptedModel


class Model(ScriptedModel):
    """A scripted model that is closed."""

    closed = False

    async def aclose(self):
        self.closed = True


class ScriptedChats(EditorChats):
    """The chats of the command line, with scripted models."""

    def __init__(self, store, models, access=""):
        super().__init__(store, {"access": access}, without_sandbox=True)
        self.models = models
        self.prepared = []

    async def prepare(self, directory, *, earlier=None, model=""):
        settings = load_settings({}, directory, {})
        request = JobRequest(
            kind="chat", directory=directory, settings=settings, without_sandbox=True, access=self._options["access"]
        )
        names = [*self.models]
        answering = self.models[model or names[0]]
        self.prepared.append(answering)
        return PreparedChat(request, answering, tuple(names))


class Editor:
    """Keeps the updates of all sessions, and answers questions with `answers`, by default once."""

    def __init__(self, *answers):
        self.updates = []
        self.questions = []
        self.answers = [*answers]
        self.news = asyncio.Event()

    def on_connect(self, agent):
        pass

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)
        self.news.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.questions.append((tool_call, options))
        self.news.set()
        answer = self.answers.pop(0) if self.answers else "once"
        if answer == "never":
            await asyncio.Future()
        if answer == "dismissed":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=answer))

    async def until(self, condition):
        while not condition():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 60)

    def of(self, kind):
        return [each for each in self.updates if each.session_update == kind]

    @property
    def text(self):
        return "".join([each.content.text for each in self.of("agent_message_chunk")])


class Room:
    """An editor and its agent. `session` is the one that `say` opened in the directory `place`."""

    session = ""

    def __init__(self, place, **parts):
        self.place = place
        self.__dict__.update(parts)

    async def open(self, **options):
        opened = await self.agent.new_session(cwd=str(self.place), **options)
        self.session = opened.session_id
        return opened

    async def say(self, *prompt):
        """The answer to a prompt of texts and other blocks."""
        if not self.session:
            await self.open()
        blocks = [text_block(each) if isinstance(each, str) else each for each in prompt]
        return await self.agent.prompt(session_id=self.session, prompt=blocks)


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return StoredJobs(None, tmp_path / "jobs.db")


@pytest.fixture
def connected(jobs, place):
    """An editor and its agent; `replies` are those of one model, or models by their names."""

    @asynccontextmanager
    async def connected(replies, editor=None, *, access="", root=None, initialize=True):
        editor = editor or Editor()
        models = replies if isinstance(replies, dict) else {"scripted": Model(replies)}
        database = Database.open(jobs.url)
        chats = ScriptedChats(DurableStore(database), models, access)
        (theirs_read, ours_write), (ours_read, theirs_write) = os.pipe(), os.pipe()
        reader, close = await open_reader(ours_read, MAX_MESSAGE)
        connection = ClientConnection(LineTransport(reader, await open_writer(ours_write)), chats, root=root)
        for each in (ours_read, ours_write):
            os.close(each)
        serving = asyncio.create_task(connection.run())
        client_reader, client_close = await open_reader(theirs_read, 2**24)
        loop = asyncio.get_running_loop()
        pipe, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(theirs_write, "wb", 0)
        )
        os.close(theirs_read)
        client_writer = asyncio.StreamWriter(pipe, protocol, None, loop)
        agent = connect_to_agent(editor, client_writer, client_reader, use_unstable_protocol=True)
        if initialize:
            await agent.initialize(protocol_version=1)
        try:
            model = next(iter(models.values()))
            yield Room(place, agent=agent, editor=editor, chats=chats, raw=client_writer, model=model)
        finally:
            client_writer.close()
            await asyncio.wait_for(serving, 60)
            await agent.close()
            client_close()
            database.close()
            close()

    return connected
