"""`callboard launch`: start a gateway and a client of it, and stop the gateway when the client ends.

Rule: the client's own files do not change. Its settings are options, variables and files of a private folder.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, Self

import msgspec
import typer

from callboard.cli.clients import CLIENTS, Client, ClientOptions, find_context, make_text
from callboard.cli.models import pull_with_progress
from callboard.cli.options import option, takes_options
from callboard.cli.serve import BackendOptions
from callboard.errors import CallerError, ProviderError
from callboard.extras import require_extra
from callboard.providers import Transport
from callboard.sandbox.supervised_process import PROGRAM as SUPERVISOR
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import state_directory
from callboard.text.display import display, strip_controls
from callboard.text.suggest import suggest

_POLL_SECONDS: Final = 0.1
_STOP_SECONDS: Final = 5.0
"""Seconds for the gateway to end before it is killed."""
_TAIL: Final = 2000
"""Bytes of the gateway's log to show if it fails."""
_REMARK: Final = "callboard: "
"""Start of the lines of the gateway's log that the user sees."""
_MAX_BODY: Final = 64 * 1024
_MAX_LIST: Final = 8 * 1024 * 1024
_QUESTION: Final = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 16}


@dataclass(frozen=True, kw_only=True)
class LaunchOptions(BackendOptions):
    """The options of `callboard launch`: one backend, and the client."""

    client: Annotated[str, typer.Argument(help=f"{', '.join(CLIENTS)}.", show_default=False)]
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the client, after --.", show_default=False)
    ] = None
    model: Annotated[str, option(help="The model; by default the first of the backend.")] = ""
    no_wait: Annotated[bool, option("--no-wait", help="Start the client before the model answers.")] = False


@takes_options(LaunchOptions)
def launch(options: LaunchOptions) -> None:
    """Start a coding agent on your model: a gateway, then the client, until the client ends.

    Your settings of the client do not change. Everything after -- goes to the client, such as: callboard launch codex
    --local qwen2.5-coder-1.5b -- exec "Which files are here?"
    """
    require_extra("gateway")
    client = CLIENTS.get(options.client)
    if client is None:
        raise CallerError("not a client", path=options.client, hint=suggest(options.client, CLIENTS))
    program = shutil.which(client.command)
    if program is None:
        raise CallerError("not installed", path=client.command, hint=f"npm install -g {client.package}")
    settings = options.settings()
    if settings is None:
        hint = "--backend URL names your model server, --local NAME a model on this machine"
        raise CallerError("no model", path="--backend", hint=hint)
    if options.local and not options.local.endswith(".gguf"):
        pull_with_progress(options.local)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))  # the folder has a key
    key = secrets.token_urlsafe(24)
    place = state_directory() / "launch"  # clients refuse settings below /tmp, which others may write to
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder, _Gateway(options, key, Path(folder)) as gateway:
        urls = [(settings.url, os.environ.get(settings.key_variable, ""))] if settings.url else []
        model, context = asyncio.run(gateway.wait_for_model(options, urls))
        arguments, environment = _prepare(client, gateway.url, model, context, key, folder)
        code = _run_client([program, *arguments, *(options.arguments or ())], environment)
        if gateway.has_ended:
            typer.echo(f"callboard: the gateway ended before {client.command}: {gateway.tail}", err=True)
    raise typer.Exit(code)


def _prepare(
    client: Client, url: str, model: str, context: int, key: str, folder: str
) -> tuple[list[str], dict[str, str]]:
    """Write the client's settings to the folder. Return its arguments and environment."""
    options = ClientOptions(gateway=url, models=(model,), home=folder, key=key, context=context)
    for file in client.files(options):
        write_private(Path(file.path), make_text("", file).encode())
    arguments, environment = client.launch(options)
    return list(arguments), {**os.environ, **client.environment(options), **environment}


class _Gateway:
    """A gateway in a process of its own, which ends with this process."""

    def __init__(self, options: BackendOptions, key: str, folder: Path) -> None:
        self._options = options
        self._key = key
        self._log = folder / "gateway.log"

    def __enter__(self) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        command = [sys.executable, "-m", "callboard", "serve", "--port", str(port), *_arguments(self._options)]
        theirs, self._lifeline = os.pipe()
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603  # our own program
                    [*SUPERVISOR, str(theirs), f"server={command[0]}", "--", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "CALLBOARD_GATEWAY_KEYS": self._key},
                    pass_fds=(theirs,),
                    start_new_session=True,  # ctrl-C is for the client
                )
        finally:
            os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        os.close(self._lifeline)  # the supervisor kills what is left
        self._process.wait()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def tail(self) -> str:
        """The end of the gateway's log."""
        return strip_controls(self._log.read_bytes()[-_TAIL:].decode("utf-8", "replace")).strip()

    async def wait_for_model(self, options: LaunchOptions, backend: Sequence[tuple[str, str]]) -> tuple[str, int]:
        """Return the model, when it answers, and its context window. Raises CallerError.

        Args:
            options: The model, by default the first that the gateway lists, and the window, by default the reported one.
            backend: URL and key of the backend, if it has a URL.
        """
        model, context = options.model, options.context
        async with aclosing(Transport(connect_timeout=1.0, idle_timeout=600.0, retries=0)) as transport:
            await self._wait_for_gateway(transport)
            for line in self.tail.splitlines():
                if line.startswith(_REMARK):
                    typer.echo(line, err=True)
            headers = {"Authorization": f"Bearer {self._key}"}
            if not model:
                async with transport.get(f"{self.url}/models", headers=headers) as answer:
                    listed: Any = msgspec.json.decode(await answer.read(_MAX_LIST))
                names = [each["id"] for each in listed.get("data", ())] if answer.status == 200 else []
                if not names:
                    raise CallerError("the backend lists no model", path="--model", hint="name one")
                model = names[0]
            if not context:
                context = await find_context(transport, [*backend, (self.url, self._key)], model)
            if not options.no_wait:
                with _progress(f"waiting for {display(model)} to answer"):
                    await self._ask(transport, model, headers)
        return model, context

    async def _wait_for_gateway(self, transport: Transport) -> None:
        while True:
            if self.has_ended:
                raise CallerError(f"the gateway did not start: {self.tail}")
            try:
                await transport.connect(self.url)
            except ProviderError:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    async def _ask(self, transport: Transport, model: str, headers: Mapping[str, str]) -> None:
        body = msgspec.json.encode({**_QUESTION, "model": model})
        async with transport.post(f"{self.url}/chat/completions", body=body, headers=headers) as answer:
            if answer.status >= 400:
                text = (await answer.read(_MAX_BODY)).decode("utf-8", "replace")
                with suppress(msgspec.MsgspecError, LookupError, TypeError):
                    text = msgspec.json.decode(text)["error"]["message"]
                raise CallerError(f"it does not answer: {text}", path=model, hint="--no-wait starts the client anyway")


def _arguments(options: BackendOptions) -> Iterator[str]:
    """Yield the options of the backend as `callboard serve` takes them."""
    for each in fields(BackendOptions):
        value = getattr(options, each.name)
        for one in value if isinstance(value, list) else [value] if value else ():
            yield from (f"--{each.name.replace('_', '-')}", str(one))


@contextmanager
def _progress(what: str) -> Iterator[None]:
    """Tell what is waited for, and at the end how long that took."""
    begun = time.monotonic()
    typer.echo(f"callboard: {what}...", err=True)
    yield
    typer.echo(f"callboard: it answered after {time.monotonic() - begun:.0f} s", err=True)


def _run_client(command: list[str], environment: dict[str, str]) -> int:
    """Run the client at this terminal, and return its exit code. Ctrl-C is the client's; other signals are passed on."""
    client = subprocess.Popen(command, env=environment)  # noqa: S603  # the user's own program
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: None if received == signal.SIGINT else client.send_signal(received))
    code = client.wait()
    return code if code >= 0 else 128 - code
