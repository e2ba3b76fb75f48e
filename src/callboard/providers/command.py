"""A model that is a program: it reads the prompt from its standard input and prints the reply."""

from __future__ import annotations

import asyncio
import codecs
import os
import shlex
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress

from callboard import core
from callboard.core import identify_in_turn, pipe
from callboard.errors import CallerError
from callboard.modes import Plan, Watcher, lower_request, select_dialect
from callboard.profiles import Resolution
from callboard.profiles.control_tokens import control_tokens
from callboard.programs import absolute_search_path
from callboard.providers.control_tokens import EventUnescaper, escape_request

IDLE_TIMEOUT = 300.0
"""Seconds without output after which the program is stopped."""
_CHUNK = 64 * 1024
_EXCERPT = 500
_MAX_ERRORS = 64 * 1024
_GRACE = 2.0
_SPEAKERS: Mapping[type[core.Canister], str] = {
    core.SupervisorCanister: "System",
    core.UserCanister: "User",
    core.AssistantCanister: "Assistant",
    core.DocumentCanister: "User",
}


class CommandModel:
    """A Model whose name is a command line, split as a shell splits it but run without one.

    The prompt goes to its standard input; a conversation with more than one canister is written with the
    speakers' names. An exit status other than 0 is a ReplyFailed with the end of what it wrote to its standard
    error. Closing the iterator stops it and what it started.
    """

    def __init__(self, resolution: Resolution, plan: Plan, *, idle_timeout: float = IDLE_TIMEOUT) -> None:
        try:
            self._argv = shlex.split(resolution.model)
        except ValueError as error:
            raise CallerError(f"no command line: {error}", path=resolution.name) from None
        if not self._argv:
            hint = "write it behind the colon: command:ollama run qwen3"
            raise CallerError("which command?", path=resolution.name, hint=hint)
        self.resolution = resolution
        self.plan = plan
        self._idle_timeout = idle_timeout

    @property
    def name(self) -> str:
        return self.resolution.name

    async def batches(self, request: core.Request, /) -> AsyncGenerator[list[core.Event]]:
        """The program's reply, as it writes it."""
        stages: list[core.Stage[core.Event, core.Event]] = []
        if self.resolution.profile.parses_special_tokens:
            tokens = control_tokens(self.resolution.profile.control_tokens)
            request = escape_request(request, tokens)
            stages.append(EventUnescaper(tokens))
        lowered = lower_request(request, self.plan)
        if lowered.tools or lowered.constraint is not None:
            yield [core.Note("dropped", "tools and schemas cannot be sent to a command beside the prompt")]
        dialect = select_dialect(request, self.plan)
        if dialect is not None:
            from callboard.modes import Sources  # noqa: PLC0415  # where calls may be found

            identify = identify_in_turn(len(request.canisters), "t")
            inside = self.plan.starts_in_reasoning
            watcher = Watcher(
                dialect,
                request.tools,
                identify,
                starts_in_reasoning=inside,
                sources=Sources(request.conversation or request.canisters),
                quoted_calls=request.quoted_calls,
            )
            stages.insert(0, watcher)
        stage = pipe(*stages)
        async with aclosing(self._run(render_prompt(lowered.canisters))) as output:
            async for event in output:
                if events := stage.feed(event):
                    yield events

    async def aclose(self) -> None:
        """Nothing is kept between replies."""

    async def _run(self, text: str) -> AsyncGenerator[core.Event]:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                env={**os.environ, "PATH": absolute_search_path()},
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
        except OSError as error:
            yield core.ReplyFailed("caller", "command", f"{self._argv[0]} cannot be run: {error.strerror or error}")
            return
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError
        asking = asyncio.create_task(_write(process.stdin, text))
        listening = asyncio.create_task(_read_tail(process.stderr))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            yield core.ReplyStarted(model=self.resolution.model)
            while True:
                try:
                    chunk = await asyncio.wait_for(process.stdout.read(_CHUNK), self._idle_timeout)
                except TimeoutError:
                    yield core.ReplyFailed("provider", "timeout", f"no output for {self._idle_timeout:g} s")
                    return
                if piece := decoder.decode(chunk, final=not chunk):
                    yield core.TextPiece(piece)
                if not chunk:
                    break
            status = await process.wait()
            errors = await listening
            if status:
                message = f"{self._argv[0]} ended with status {status}"
                yield core.ReplyFailed("provider", "command", message, errors[-_EXCERPT:])
            else:
                yield core.ReplyEnded("stop")
        finally:
            asking.cancel()
            listening.cancel()
            await _stop(process)
            await asyncio.gather(asking, listening, return_exceptions=True)


def render_prompt(canisters: Sequence[core.Canister]) -> str:
    """Return the conversation as text. If there are several speakers, each message starts with its speaker."""
    spoken = [
        (_SPEAKERS[type(each)], each.text)
        for each in canisters
        if not isinstance(each, core.InvocationCanister) and type(each) in _SPEAKERS and each.text
    ]
    if len(spoken) == 1:
        return spoken[0][1]
    return "".join([f"{speaker}: {text}\n\n" for speaker, text in spoken]) + "Assistant:"


async def _write(stdin: asyncio.StreamWriter, text: str) -> None:
    with suppress(ConnectionError):  # it may answer without reading all
        stdin.write(text.encode("utf-8", "replace"))
        await stdin.drain()
        stdin.close()


async def _read_tail(stderr: asyncio.StreamReader) -> str:
    """The end of its output."""
    tail = b""
    while chunk := await stderr.read(_CHUNK):
        tail = (tail + chunk)[-_MAX_ERRORS:]
    return tail.decode("utf-8", "replace").strip()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop the program and its child processes. Kill them if they do not exit on their own."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
            if how is signal.SIGKILL:
                return
