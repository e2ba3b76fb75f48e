"""`callboard serve`: the gateway, with the board and `/agui` as its extensions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import msgspec
import typer

from callboard.cli import complete
from callboard.cli.agui import HELP, check_agents, describe_key, extend_gateway_by_agui, make_key
from callboard.cli.command_group import ADVANCED
from callboard.cli.dialects import find_dialect, read_facts
from callboard.cli.models import compare_backend, pull_with_progress
from callboard.cli.options import (
    ACCESS,
    Context,
    Effort,
    Host,
    LogLevel,
    Mode,
    Port,
    Store,
    key_option,
    option,
    read_keys,
    takes_options,
)
from callboard.cli.settings import check_effort, check_value, read_log_level, settings_here
from callboard.errors import ProviderError
from callboard.extras import require_extra
from callboard.jobs.streams import JobStreams
from callboard.modes import get_mode
from callboard.profiles import facts_for
from callboard.providers import Transport, open_model
from callboard.providers.transport import check_url
from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.configuration import load_gateway_settings, parse_keys
from callboard.wires import get_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from starlette.routing import BaseRoute

    from callboard.servers.gateway.app import Extend, Extension
    from callboard.servers.gateway.endpoints import Services

    MakePart: TypeAlias = Callable[[Services, JobStreams], Extension]
    """Make one extension of a gateway. The extensions of one process share the streams of its jobs."""


class ExtensionGroup:
    """Extensions that start and stop together, in order."""

    def __init__(self, extensions: Sequence[Extension]) -> None:
        self._extensions = extensions
        self._open = AsyncExitStack()

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes of all extensions."""
        return [route for each in self._extensions for route in each.routes()]

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            for each in self._extensions:
                await each.__aenter__()
                resources.push_async_callback(each.__aexit__, None, None, None)
            self._open = resources.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._open.aclose()


def make_group(makers: Sequence[MakePart], services: Services) -> ExtensionGroup:
    """Return the extensions of one gateway. A module-level function, so that worker processes can import it."""
    streams = JobStreams()
    return ExtensionGroup([make(services, streams) for make in makers])


_CONNECT_SECONDS: Final = 2.0
"""Seconds for each backend to accept a connection at the start."""


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """The options that describe one backend."""

    backend: Annotated[str, option(help="The backend's URL, such as http://127.0.0.1:8080/v1.")] = ""
    backend_wire: Annotated[str, option(help="The API: chat, responses, messages or gemini.", show_default="chat")] = ""
    backend_key: Annotated[str, option(help="Environment variable with its key.")] = ""
    local: Annotated[
        str, option(help="A model on this machine instead, such as qwen2.5-coder-1.5b.", autocompletion=complete.local)
    ] = ""
    mode: Mode = ""
    context: Context = 0
    dialect: Annotated[
        str,
        option(
            help="A name from callboard dialects, or a tokenizer_config.json.",
            autocompletion=complete.dialects,
            panel=ADVANCED,
        ),
    ] = ""
    effort: Effort = ""
    profile: Annotated[
        list[str] | None, option(help="FACT=VALUE, as callboard explain shows it; repeatable.", panel=ADVANCED)
    ] = None

    def settings(self, **more: object) -> BackendSettings | None:
        """Return this backend's settings, or None without a URL and a local model. Raises CallerError."""
        fields: Any = self.fields(**more)
        return BackendSettings(url=self.backend, local=self.local, **fields) if self.backend or self.local else None

    def fields(self, **more: object) -> dict[str, object]:
        """Return the backend fields that the other options set. Raises CallerError."""
        self._check()
        fields = {
            "wire": self.backend_wire,
            "key_variable": self.backend_key,
            "mode": self.mode,
            "dialect": "" if self.dialect.endswith(".json") else self.dialect,
            "profile": {
                **read_facts(self.dialect),
                **({"context_tokens": self.context} if self.context else {}),
                **({"effort": self.effort} if self.effort else {}),
                **parse_facts(self.profile or ()),
            },
            **more,
        }
        return {name: value for name, value in fields.items() if value not in ("", {}, None)}

    def _check(self) -> None:
        check_value("--backend", self.backend, check_url)
        check_value("--backend-wire", self.backend_wire, get_wire)
        check_value("--mode", self.mode, get_mode)
        check_value("--effort", self.effort, check_effort)
        check_value("--dialect", self.dialect, find_dialect)


@dataclass(frozen=True, kw_only=True)
class ServeOptions(BackendOptions):
    """The options of `callboard serve`."""

    forward_client_key: Annotated[
        bool | None,
        option(help="Pass clients' own keys on.", show_default="if there is one backend", panel=ADVANCED),
    ] = None
    model_map: Annotated[
        list[str] | None,
        option(help="FROM=TO: ask for model TO if a client asks for FROM; repeatable.", panel=ADVANCED),
    ] = None
    config: Annotated[str, option(help="A TOML file of settings, for several backends.")] = ""
    host: Host = "127.0.0.1"
    port: Port = 8282
    key: Annotated[list[str] | None, key_option("clients", "CALLBOARD_GATEWAY_KEYS")] = None
    requests_per_minute: Annotated[
        float | None, option(help="Maximum requests per minute for one key.", panel=ACCESS)
    ] = None
    max_concurrent: Annotated[int | None, option(help="Maximum concurrent requests for one key.", panel=ACCESS)] = None
    budget_per_day: Annotated[
        float | None, option(help="Maximum cost of all requests of a day (UTC), in US dollars.", panel=ACCESS)
    ] = None
    store: Store = ""
    ensembles: Annotated[
        list[str] | None,
        option(help="Ensembles that the gateway runs: a directory or name; repeatable.", panel=ADVANCED),
    ] = None
    board: Annotated[bool, option("--board", help="Serve the board at /board, and print a link that logs in.")] = False
    board_url: Annotated[str, option(help="The board's URL for other machines, if --host is not local.")] = ""
    agui: Annotated[list[str] | None, option(help=HELP)] = None
    strict: Annotated[
        bool, option("--strict", help="Refuse requests that cannot be passed on whole.", panel=ADVANCED)
    ] = False
    compat_events: Annotated[
        bool, option("--compat-events", help="Also send events under their older names.", panel=ADVANCED)
    ] = False
    origin: Annotated[
        list[str] | None, option(help="The origin of a web page that may send requests; repeatable.", panel=ACCESS)
    ] = None
    idle_timeout: Annotated[
        float | None, option(help="Seconds to wait for a silent backend.", show_default="600", panel=ADVANCED)
    ] = None
    heartbeat: Annotated[
        float | None, option(help="Seconds between keep-alive events of a stream.", show_default="10", panel=ADVANCED)
    ] = None
    certificate: Annotated[str, option(help="A PEM certificate file, for HTTPS.", panel=ACCESS)] = ""
    private_key: Annotated[str, option(help="The PEM file of the certificate's private key.", panel=ACCESS)] = ""
    workers: Annotated[int, option(min=1, help="Number of server processes.", panel=ADVANCED)] = 1
    log_level: LogLevel = "info"


@takes_options(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Let any client use any model, through the API that the client speaks.

    The gateway has the Responses, Chat Completions, Messages and Gemini APIs. It turns tool calls that a model writes
    as text into real calls. If a backend does not accept tools, they go into the prompt. With one backend, the client's
    key is passed on, unless the backend or the gateway has a key.
    """
    require_extra("gateway", *(["board"] if options.board else []), *(["jobs"] if options.agui else []))
    from callboard.servers.gateway.server import Address  # noqa: PLC0415  # the extra's
    from callboard.servers.gateway.server import serve as serve_gateway  # noqa: PLC0415

    level = read_log_level(options.log_level)
    here = settings_here()
    options = replace(options, context=options.context or here.context)
    more = {
        "model_map": dict([_split_pair(each, "--model-map") for each in options.model_map or ()]),
        "forward_client_key": options.forward_client_key,
    }
    settings = load_gateway_settings(
        options.config,
        {
            "keys": parse_keys(read_keys(options.key)),
            "requests_per_minute": options.requests_per_minute,
            "max_concurrent": options.max_concurrent,
            "budget_per_day": options.budget_per_day,
            "store": options.store,
            "ensembles": tuple(options.ensembles or ()),
            "strict": options.strict or None,
            "compat_events": options.compat_events or None,
            "origins": tuple(options.origin or ()),
            "idle_timeout": options.idle_timeout,
            "heartbeat": options.heartbeat,
            "profiles": here.profiles,
            "prices": here.prices,
        },
        options.settings(**more),
        {} if options.backend or options.local else options.fields(**more),
    )
    if settings.store:
        require_extra("store")
    for each in settings.backends:
        if each.local and not each.local.endswith(".gguf"):
            pull_with_progress(each.local)
        if each.local:
            facts = {**facts_for(each.local, settings.profiles), **each.facts}
            open_model(
                f"local:{each.local}", profile=facts, tell=lambda line: typer.echo(f"callboard: {line}", err=True)
            )
    if settings.has_budgets and not settings.store:
        typer.echo(
            "callboard: the cost of requests is kept in memory and lost at a restart; --store keeps it", err=True
        )

    def ready(url: str) -> None:
        names = [f"local:{each.local}" if each.local else each.name or each.display_url for each in settings.backends]
        typer.echo(f"callboard serves {', '.join(names)} at {url}/v1 (Ctrl-C stops it)", err=True)
        if options.board:
            typer.echo(f"its board: {_board_link(options.board_url or url)}", err=True)
        if agui_key:
            typer.echo(describe_key(agui_key, url), err=True)

    agui_key, agui_keys = make_key() if options.agui and not settings.keys else ("", {})
    address = Address(
        host=options.host,
        port=options.port,
        certificate=options.certificate,
        private_key=options.private_key,
        workers=options.workers,
    )
    extend = _make_extend(options, agui_keys)
    asyncio.run(_warn_of_backends(settings))
    serve_gateway(settings, address, ready, log_level=level, telemetry=here.telemetry, extend=extend)


def _make_extend(options: ServeOptions, agui_keys: Mapping[str, str]) -> Extend | None:
    makers = [_extend_by_board(options)] if options.board else []
    if options.agui:
        check_agents(options.agui)
        makers.append(partial(extend_gateway_by_agui, tuple(options.agui), agui_keys))
    if not makers:
        return None

    return partial(make_group, tuple(makers))


def _extend_by_board(options: ServeOptions) -> MakePart:
    from callboard.cli.board import extend_gateway  # noqa: PLC0415  # not for --help
    from callboard.servers.board.server import board_hosts  # noqa: PLC0415  # as above

    hosts = tuple(board_hosts(options.host, options.board_url, option="--board-url"))
    return partial(extend_gateway, hosts, shows_requests=options.workers == 1)


def _board_link(url: str) -> str:
    from callboard.servers.board.login import Login  # noqa: PLC0415  # not for --help
    from callboard.servers.board.server import login_link  # noqa: PLC0415

    return login_link(Login(), url.rstrip("/"))


async def _warn_of_backends(settings: GatewaySettings) -> None:
    """Warn about backends that accept no connection, and about those that changed since they were examined."""

    def tell(line: str) -> None:
        typer.echo(f"callboard: warning: {line}", err=True)

    transport = Transport(connect_timeout=_CONNECT_SECONDS, retries=0)
    try:
        for backend in settings.backends:
            try:
                if backend.url:
                    await transport.connect(backend.url)
                await compare_backend(backend, settings.profiles, transport, tell)
            except ProviderError as error:
                tell(f"{backend.display_url}: {error.message}{f'; {error.hint}' if error.hint else ''}")
    finally:
        await transport.aclose()


def parse_facts(options: Sequence[str]) -> dict[str, object]:
    """Parse the facts of `--profile`. A value that is not valid JSON is a string."""
    return {name: _parse_value(value) for name, value in [_split_pair(each, "--profile") for each in options]}


def _split_pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} has no =", param_hint=option)
    return name, value


def _parse_value(value: str) -> object:
    try:
        parsed: object = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value
    return parsed
