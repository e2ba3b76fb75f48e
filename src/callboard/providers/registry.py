"""Open a model by its name."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from callboard.core import Event, Request
from callboard.errors import CallerError, NoSuchModel
from callboard.extras import require_extra
from callboard.modes import Plan, make_plan
from callboard.plugins import plugins
from callboard.profiles import ModeName, providers, resolve
from callboard.providers.command import CommandModel
from callboard.providers.deciding_model import DecidingModel, JudgedModel
from callboard.providers.embedded import EmbeddedServer
from callboard.providers.http_model import HttpModel
from callboard.providers.local import locate, shipped_catalogue
from callboard.providers.transport import Transport
from callboard.text.suggest import find_closest

if TYPE_CHECKING:
    from callboard.providers.embedded import EmbeddedServer

# Loaded models, for as long as the process lives.
_servers: dict[Path, EmbeddedServer] = {}


class PlannedModel(Protocol):
    """A Model with its plan."""

    plan: Plan

    @property
    def name(self) -> str: ...

    def batches(self, request: Request, /) -> AsyncGenerator[list[Event]]: ...

    async def aclose(self) -> None: ...


def open_model(
    name: str,
    *,
    base_url: str = "",
    api_key: str = "",
    mode: ModeName | Literal[""] = "",
    profile: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    transport: Transport | None = None,
    tell: Callable[[str], None] | None = None,
) -> PlannedModel:
    """The model of a name such as `local:qwen2.5-coder-0.5b`, `openai:gpt-4o`, `command:ollama run qwen3`, or any with a `base_url`.

    `mode` and `profile` (facts) override what is known of the model; `headers` and `extra_body` are added to
    every request; `api_key` is by default in the environment variable that the endpoint's profile names;
    `tell` is called with a line of text before a request is repeated. A plug-in's provider (entry points `callboard.providers`: an object with a
    `name` and `access(resolution, plan, base_url=, api_key=)`) gives its own model.
    Raises NoSuchModel or CallerError, before anything is sent.
    """
    resolution = resolve(name, profile)
    facts = resolution.profile
    url = base_url or _variable(facts.url_variable) or facts.base_url
    decided = make_plan(resolution, mode, base_url=url)
    open_endpoint = partial(
        model_class(decided),
        resolution,
        decided,
        transport or Transport(),
        headers=headers,
        extra_body=extra_body,
        tell=tell,
    )
    if resolution.provider == "local":
        if base_url:
            hint = f"for an endpoint write {resolution.model}"
            raise CallerError("a local model has no base URL", path=name, hint=hint)
        return open_endpoint(server=_server(resolution.model))
    if resolution.provider == "command":
        # It costs what only such a model needs.
        return _judge(CommandModel(resolution, decided), decided)
    for added in plugins("callboard.providers"):
        if added.name == resolution.provider:
            model: PlannedModel = added.access(resolution, decided, base_url=base_url, api_key=api_key)
            return _judge(model, decided)
    if not url:
        raise CallerError("no provider is named", path=name, hint=_provider_hint(name))
    key = api_key or _variable(facts.key_variable)
    if facts.key_variable and not key and url == facts.base_url:
        raise CallerError("it wants an API key", path=name, hint=f"set {facts.key_variable}")
    return open_endpoint(base_url=url, api_key=key)


def model_class(plan: Plan) -> type[HttpModel]:
    """The class of an endpoint's model: one that judges calls, where the plan has a gate."""
    if not plan.gate.kind:
        return HttpModel
    return DecidingModel


def _judge(model: PlannedModel, plan: Plan) -> PlannedModel:
    """The model, with a gate around it where the plan has one."""
    if not plan.gate.kind:
        return model
    return JudgedModel(model, plan)


_OLLAMA_NAME: Final = re.compile(r"[^:]+:(?:[ex]?\d[\dx.]*[bm](?:-[^:]*)?|latest)", re.IGNORECASE)
"""A model with a tag of Ollama: `llama3.2:3b`, `qwen2.5-coder:7b-instruct-q4_K_M`, `gemma3n:e4b`, `phi4:latest`."""


def _provider_hint(name: str) -> str:
    prefix, colon, model = name.partition(":")
    known = [f"{provider}:" for provider in providers()]
    close = find_closest(f"{prefix}:", known, cutoff=0.6) if colon else []
    full = f"ollama:{name}" if _OLLAMA_NAME.fullmatch(name) else f"{close[0]}{model}" if close else ""
    suggestion = f"did you mean {full}? Else " if full else ""
    return f"{suggestion}begin with its provider ({', '.join(known)}) or give a base URL"


def _variable(name: str) -> str:
    return os.environ.get(name, "") if name else ""


def _server(model: str) -> EmbeddedServer:
    """The server of a catalogue's model, or of a path to a GGUF file."""
    # These cost 10 ms, which only a local model needs.
    require_extra("local")
    if model.endswith(".gguf"):
        path, context = Path(model).expanduser(), 0
        if not path.is_file():
            hint = "name a GGUF file that is here, or a model of `callboard models list`, which is downloaded"
            raise NoSuchModel("no such file", path=model, hint=hint)
    else:
        path, context = locate(model), shipped_catalogue().find(model).context
    return _servers.setdefault(path.resolve(), EmbeddedServer(path, context))
