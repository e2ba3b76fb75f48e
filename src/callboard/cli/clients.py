"""`callboard codex`, `claude`, `gemini` and `qwen`: set up a client for the gateway.

Rule: ask about every value that would be lost before writing the first file, and keep a copy beside each file.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
import typer

from callboard.cli.options import KEY_HINT, option, read_key, takes_options
from callboard.cli.settings import check_value
from callboard.configuration.edit_config import (
    list_replaced,
    read_config,
    read_json,
    read_toml,
    set_json_values,
    set_toml_values,
)
from callboard.errors import CallerError, ProviderError
from callboard.providers.backend_info import read_backend_info
from callboard.providers.transport import Transport, check_url
from callboard.servers.gateway.backend import Backend
from callboard.servers.gateway.circuit_breaker import SharedCircuitBreaker
from callboard.servers.gateway.settings import BackendSettings
from callboard.text.display import display

_CLAUDE_REPLY = 32_000
"""Tokens of a reply that Claude Code asks for by default."""
_GEMINI_WINDOW = 1_048_576
_PATIENCE = 3_600_000
"""Milliseconds that a client waits for a reply, while the gateway sends signs of life: a backend may read a long prompt
for many minutes. A client that gives up sends the prompt again, and the backend begins at its start.
"""
_MAX_WATCHDOG = 1_800_000
"""The most milliseconds that Claude Code accepts for its watchdog of streams, which ignores pings."""
NO_KEY = "callboard"
"""Key for a client that requires one, if the gateway needs none."""


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The values for a client's settings."""

    gateway: str
    """The gateway's URL with `/v1`."""
    models: tuple[str, ...]
    """Names of the models; the first is the default."""
    home: str
    """The client's directory."""
    key: str = ""
    """The gateway's key, or ""."""
    context: int = 0
    """The model's context window in tokens; 0 if unknown."""


class ClientFile(msgspec.Struct, frozen=True):
    """Settings in a file of the client. If the file is `ours`, its other settings are removed."""

    path: str
    form: Literal["toml", "json"]
    values: Mapping[str, Any]
    ours: bool = False


class Client(msgspec.Struct, frozen=True):
    """`home` is the client's directory in the user's home, and `home_variable` the environment variable that overrides
    it. `environment` returns variables that cannot be set in the client's files. `launch` returns the arguments and
    variables that add the files in `ClientOptions.home` to the user's own settings.
    """

    command: str
    package: str
    """Its name at npm."""
    home: str
    home_variable: str
    files: Callable[[ClientOptions], tuple[ClientFile, ...]]
    launch: Callable[[ClientOptions], tuple[Sequence[str], Mapping[str, str]]]
    environment: Callable[[ClientOptions], Mapping[str, str]] = lambda _: {}


_INSTRUCTIONS = """\
You are a coding agent in a terminal, on the user's own machine. Work until what was asked for is done, then say in a \
few sentences what you did.

- Act with your tools. To find out what is there, to run programs and tests, call the shell tool; never ask the user \
to run a command for you, and never only describe a change that you could make.
- Read a file before you change it. Change no more than the task needs, in the style of what is around it.
- To change files call apply_patch, with a patch in this form and nothing else:

*** Begin Patch
*** Update File: path/of/file.py
@@ def the_function_around_it():
 a line that stays
-a line that goes
+a line that comes
*** Add File: path/of/new_file.py
+each of its lines
*** Delete File: path/of/old_file.py
*** End Patch

  Paths are relative to the working directory. Three lines that stay, before and after, say where a change is.
- Check what you did: run the tests or the program, and read what they say.
- Follow the instructions of AGENTS.md files for what is below them. Do not commit unless you are asked to.
"""


def _codex(options: ClientOptions) -> tuple[ClientFile, ...]:
    catalogue = f"{options.home}/callboard-models.json"
    provider: dict[str, Any] = {"name": "Callboard", "base_url": options.gateway, "wire_api": "responses"}
    provider["stream_idle_timeout_ms"] = _PATIENCE
    if options.key:
        provider["experimental_bearer_token"] = options.key
    values: dict[str, Any] = {
        "model": options.models[0],
        "model_provider": "callboard",
        "model_catalog_json": catalogue,
        "web_search": "disabled",  # OpenAI runs it
        "model_providers": {"callboard": provider},
    }
    models = [_catalogue_entry(name, place, options.context) for place, name in enumerate(options.models, 1)]
    return (
        ClientFile(f"{options.home}/config.toml", "toml", values),
        ClientFile(catalogue, "json", {"models": models}, ours=True),
    )


def _catalogue_entry(name: str, place: int, context: int) -> dict[str, Any]:
    """Return Codex's catalogue entry of a model. Without `apply_patch_tool_type` the model does not get the tool."""
    return {
        "slug": name,
        "display_name": name,
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": place,
        "base_instructions": _INSTRUCTIONS,
        "apply_patch_tool_type": "freeform",
        "support_verbosity": False,
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "input_modalities": ["text", "image"],
        "experimental_supported_tools": [],
        **({"context_window": context} if context else {}),
    }


def _claude(options: ClientOptions) -> tuple[ClientFile, ...]:
    model = options.models[0]
    variables = {
        "ANTHROPIC_BASE_URL": options.gateway.removesuffix("/v1"),
        "ANTHROPIC_AUTH_TOKEN": options.key or NO_KEY,
        "ANTHROPIC_API_KEY": "",  # else the user's own would be sent to the backend
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "API_TIMEOUT_MS": str(_PATIENCE),
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": str(_MAX_WATCHDOG),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # changes with each request, ahead of the cached prefix
    }
    if options.context:  # else it assumes 200,000 tokens or more, asks for replies of 32,000, and compacts too late
        reply = min(options.context // 4, _CLAUDE_REPLY)
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(reply)
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(options.context - reply)
    return (ClientFile(f"{options.home}/settings.json", "json", {"env": variables}),)


def _qwen(options: ClientOptions) -> tuple[ClientFile, ...]:
    window = {"contextWindowSize": options.context} if options.context else {}
    generation = {"timeout": _PATIENCE, "streamIdleTimeoutMs": _PATIENCE, "streamMaxLifetimeMs": _PATIENCE, **window}
    entry = {"baseUrl": options.gateway, "envKey": "CALLBOARD_API_KEY", "generationConfig": generation}
    values: dict[str, Any] = {
        # Before 0.24, Qwen Code knows providers only by the names of their protocols.
        "modelProviders": {"openai": [{"id": name, "name": name, **entry} for name in options.models]},
        "env": {"CALLBOARD_API_KEY": options.key or NO_KEY},
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": options.models[0]},
    }
    return (ClientFile(f"{options.home}/settings.json", "json", values),)


def _gemini(options: ClientOptions) -> tuple[ClientFile, ...]:
    values: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "model": {"name": options.models[0]},
    }
    if options.context:
        # It assumes a window of a million tokens, and compresses at a part of that.
        values["model"]["compressionThreshold"] = round(options.context / 2 / _GEMINI_WINDOW, 6)
    return (ClientFile(f"{options.home}/settings.json", "json", values),)


def _gemini_environment(options: ClientOptions) -> Mapping[str, str]:
    """Return the variables. A `.env` file does not do: the project's own wins, and untrusted folders have none."""
    return {
        "GOOGLE_GEMINI_BASE_URL": options.gateway.removesuffix("/v1"),
        "GEMINI_API_KEY": options.key or NO_KEY,
    }


def _opencode(options: ClientOptions) -> tuple[ClientFile, ...]:
    limit = {"limit": {"context": options.context, "output": options.context // 4}} if options.context else {}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Callboard",
        "options": {"baseURL": options.gateway, "apiKey": options.key or NO_KEY},
        "models": {name: {"name": name, **limit} for name in options.models},
    }
    model = f"callboard/{options.models[0]}"
    values: dict[str, Any] = {"model": model, "small_model": model, "provider": {"callboard": provider}}
    return (ClientFile(f"{options.home}/settings.json", "json", values),)


def _launch_codex(options: ClientOptions) -> tuple[Sequence[str], Mapping[str, str]]:
    """The key is a variable, because other users can read a command's arguments."""
    values = dict(_codex(options)[0].values)
    provider = {**values.pop("model_providers")["callboard"], "env_key": "CALLBOARD_API_KEY"}
    del provider["experimental_bearer_token"]
    values |= {f"model_providers.callboard.{name}": value for name, value in provider.items()}
    arguments = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    return [word for each in arguments for word in ("-c", each)], {"CALLBOARD_API_KEY": options.key}


def _launch_with(variable: str) -> Callable[[ClientOptions], tuple[Sequence[str], Mapping[str, str]]]:
    """Return the launch of a client that reads the variable's file after the user's settings."""
    return lambda options: ((), {variable: f"{options.home}/settings.json"})


CLIENTS: Mapping[str, Client] = MappingProxyType(
    {
        "codex": Client("codex", "@openai/codex", ".codex", "CODEX_HOME", _codex, _launch_codex),
        "claude": Client(
            "claude",
            "@anthropic-ai/claude-code",
            ".claude",
            "CLAUDE_CONFIG_DIR",
            _claude,
            lambda options: (("--settings", f"{options.home}/settings.json"), {}),
        ),
        "gemini": Client(
            "gemini",
            "@google/gemini-cli",
            ".gemini",
            "",
            _gemini,
            _launch_with("GEMINI_CLI_SYSTEM_SETTINGS_PATH"),
            _gemini_environment,
        ),
        "qwen": Client(
            "qwen", "@qwen-code/qwen-code", ".qwen", "QWEN_HOME", _qwen, _launch_with("QWEN_CODE_SYSTEM_SETTINGS_PATH")
        ),
        "opencode": Client("opencode", "opencode-ai", "", "", _opencode, _launch_with("OPENCODE_CONFIG")),
    }
)


GATEWAY = "http://127.0.0.1:8282/v1"
_PORT = 8282
_MOST_MODELS = 100
_SECRETS = ("key", "token")
"""Endings of the names of values that are not shown."""


@dataclass(frozen=True, kw_only=True)
class SetupOptions:
    """The options that all clients' commands share."""

    backend: Annotated[str, option(help="The URL of the gateway's backend.")] = ""
    gateway: Annotated[str, option(help="The gateway's URL.")] = GATEWAY
    model: Annotated[str, option(help="The model; by default the first of the gateway or the backend.")] = ""
    key: Annotated[
        str,
        option(help=f"The gateway's key, if it needs one; {KEY_HINT}. It is written to the file.", callback=read_key),
    ] = ""
    write: Annotated[bool, option("--write", help="Write the settings to the client's files. Other settings stay.")] = (
        False
    )
    yes: Annotated[bool, option("--yes", help="Overwrite settings without asking.")] = False
    context: Annotated[
        int, option(min=0, help="Context window in tokens, so the client can compact early.", show_default=False)
    ] = 0


@takes_options(SetupOptions)
def codex(options: SetupOptions) -> None:
    """Print or write the settings that Codex needs for the gateway.

    The settings are a provider and a catalogue of models.
    """
    _configure("codex", options)


@takes_options(SetupOptions)
def claude(options: SetupOptions) -> None:
    """Print or write the settings that Claude Code needs for the gateway.

    The settings apply to all of Claude Code.
    """
    _configure("claude", options)


@takes_options(SetupOptions)
def gemini(options: SetupOptions) -> None:
    """Print or write the settings that Gemini CLI needs for the gateway.

    The command that starts Gemini CLI is printed too. It sets the gateway's address, which Gemini CLI reads only from
    environment variables.
    """
    _configure("gemini", options)


@takes_options(SetupOptions)
def qwen(options: SetupOptions) -> None:
    """Print or write the settings that Qwen Code needs for the gateway."""
    _configure("qwen", options)


def _configure(name: str, options: SetupOptions) -> None:
    client = CLIENTS[name]
    gateway = _normalize_url(options.gateway, "--gateway")
    backend = _normalize_url(options.backend, "--backend") if options.backend else ""
    models, is_running, context = _ask_servers([gateway, backend] if backend else [gateway], options)
    client_options = ClientOptions(
        gateway=gateway,
        models=models,
        home=str(_home(client)),
        key=options.key,
        context=context,
    )
    files = client.files(client_options)
    if options.write:
        _write(files, options.yes)
    if not is_running:
        typer.echo(f"# the gateway\n{_serve_command(gateway, backend)}\n")
    if not options.write:
        for file in files:
            typer.echo(f"# {file.path}\n{make_text('', file)}")
    environment = client.environment(client_options).items()
    start = " ".join([*[f"{variable}={shlex.quote(value)}" for variable, value in environment], name])
    typer.echo(f"# the client\n{start}")


def _normalize_url(url: str, option: str) -> str:
    check_value(option, url, check_url)
    return url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else "/v1")


def _home(client: Client) -> Path:
    named = os.environ.get(client.home_variable, "")
    return (Path(named) if named else Path.home() / client.home).absolute()


def _serve_command(gateway: str, backend: str) -> str:
    port = urlsplit(gateway).port
    return f"callboard serve --backend {backend or 'URL'}{'' if port in (None, _PORT) else f' --port {port}'}"


def _ask_servers(urls: list[str], options: SetupOptions) -> tuple[tuple[str, ...], bool, int]:
    """Return the named model, or the models of the first URL that lists any; whether the gateway is running; the window.

    Raises CallerError without a model. The first URL is the gateway's.
    """

    async def ask() -> tuple[tuple[str, ...], bool, int]:
        models: tuple[str, ...] = (options.model,) if options.model else ()
        is_running = False
        context = options.context
        async with aclosing(Transport(connect_timeout=3.0, idle_timeout=10.0, retries=0)) as transport:
            with suppress(ProviderError):
                await transport.connect(urls[0])
                is_running = True
            for url in () if models else urls:
                backend = Backend(BackendSettings(url=url), transport, SharedCircuitBreaker())
                await backend.refresh_models(options.key, 0.0)
                if models := tuple(backend.model_names()[:_MOST_MODELS]):
                    break
            if models and not context:
                context = await find_context(transport, [(url, options.key) for url in reversed(urls)], models[0])
        return models, is_running, context

    models, is_running, context = asyncio.run(ask())
    if not models:
        hint = "give --model NAME, or start the gateway first"
        raise CallerError("no model is listed", path=" or ".join(urls), hint=hint)
    return models, is_running, context


async def find_context(transport: Transport, servers: Sequence[tuple[str, str]], model: str) -> int:
    """Return the tokens of a model's context window, as the first server reports it, else 0. Tell the user.

    Args:
        transport: Connections to use.
        servers: URLs and keys.
        model: The model's name.
    """
    for url, key in servers:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        info = await read_backend_info(transport, url, headers, model)
        if info.context_tokens:
            where = f"{info.context_source} of {BackendSettings(url=url).display_url}"
            window = f"has a context window of {info.context_tokens:,} tokens ({where}); --context sets another"
            typer.echo(f"callboard: {display(model)} {window}", err=True)
            return info.context_tokens
    window = f"how large the context window of {display(model)} is; --context TOKENS sets it"
    typer.echo(f"callboard: no server says {window}", err=True)
    return 0


def make_text(text: str, file: ClientFile) -> str:
    """Return the text of a file of settings, with the client's values."""
    set_values = set_toml_values if file.form == "toml" else set_json_values
    return set_values("" if file.ours else text, file.values)


def _write(files: Iterable[ClientFile], yes: bool) -> None:
    """Ask about the changes to all files, then write the files.

    Raises CallerError for a file that cannot be changed, typer.Abort after a no. Then no file is written.
    """
    changes: list[tuple[ClientFile, Path, str, str]] = []
    for file in sorted(files, key=lambda file: not file.ours):  # files that others refer to come first
        path = Path(file.path).resolve()  # keeps a symbolic link
        before = read_config(path)
        try:
            after = make_text(before, file)
            changed = _changed_values(before, file)
        except CallerError as error:
            raise CallerError(error.message, path=file.path, hint=error.hint) from None
        if after == before:
            typer.echo(f"{file.path} already has these settings", err=True)
            continue
        if changed and not yes:
            for line in changed:
                typer.echo(f"  {line}", err=True)
            typer.confirm(f"change {file.path}?", abort=True, err=True)
        changes.append((file, path, before, after))
    for file, path, before, after in changes:
        path.parent.mkdir(parents=True, exist_ok=True)
        backup_note = ""
        if before:
            backup = _new_backup(path)
            _write_atomically(backup, before, path)
            backup_note = f"; the old file is {backup}"
        _write_atomically(path, after, path)
        typer.echo(f"wrote {file.path}{backup_note}", err=True)


def _changed_values(before: str, file: ClientFile) -> list[str]:
    if not before:
        return []
    if file.ours:
        return ["its models are replaced"]
    old: dict[str, Any] = read_toml(before) if file.form == "toml" else read_json(before)
    return [
        f"{path}: {_shorten(path, there)} becomes {_shorten(path, value)}"
        for path, there, value in list_replaced(old, file.values)
    ]


def _shorten(path: str, value: Any) -> str:
    if value and path.lower().endswith(_SECRETS):
        return "***"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _new_backup(path: Path) -> Path:
    number = 1
    while (backup := path.with_name(f"{path.name}.before-callboard-{number}")).exists():
        number += 1
    return backup


def _write_atomically(path: Path, text: str, like: Path) -> None:
    """Replace the file atomically. Only the owner can read a new file, since it may hold a key."""
    mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        new.chmod(mode)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
