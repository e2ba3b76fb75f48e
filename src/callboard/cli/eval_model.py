"""The model that `callboard eval` measures, and how to reach it.

There are three ways: through the Agent, through a gateway in this process, and directly as a plain client of Chat
Completions. A plain client sends tools in the wire's own field and does not look for calls in the text.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, cast

import msgspec
import typer

from callboard.cli.models import pull_with_progress
from callboard.cli.settings import check_value, settings_here
from callboard.configuration import Settings
from callboard.core import Model
from callboard.errors import CallerError, NoSuchModel, ProviderError
from callboard.evaluation.variants import Variant
from callboard.extras import require_extra
from callboard.profiles import ModeName, Resolution, resolve
from callboard.providers import HttpModel, open_model
from callboard.providers.backend_info import embedded_version, read_backend_info
from callboard.providers.local.model_files import known_models, locate
from callboard.providers.registry import PlannedModel
from callboard.providers.transport import Transport, check_url
from callboard.servers.gateway import BackendSettings, GatewaySettings

_LOCAL: Final = "local:"
_CONTEXT: Final = 8192
"""Tokens of a local model's context. The tasks need less."""
_NEVER_REACHED: Final = 1_000_000
"""A number of consecutive failures that no run reaches."""
_PLAIN: Final[Mapping[str, Any]] = {
    "mode": "native",
    "watch": "",
    "uses_tools": True,
    "parses_special_tokens": False,
    "gate": "",
    "result_format": "native",
    "answer_after": "model",
    "on_repeated_call": "run",
}
"""Facts of a client that knows nothing about the model, independent of its profile."""


class MeasuredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to measure.

    Args:
        name: The name from the command line.
        settings: The settings of this directory.
        via: `agent`, `gateway` or `client`.
        url: The endpoint; "" if it follows from the name.
    """

    name: str
    settings: Settings
    via: str
    url: str

    @classmethod
    def from_options(cls, name: str, *, base_url: str, via: str) -> Self:
        """Raises CallerError for options that do not fit."""
        if "," in name:
            raise CallerError("only one model can be measured at a time", path=name)
        if via in {"agent", "gateway"}:
            settings = settings_here(model=name, base_url=base_url)
            url = "" if name.startswith(_LOCAL) else settings.base_url
            return cls(name=name, settings=settings, via=via, url=url)
        if "://" not in via:
            raise CallerError("not a way to ask", path=f"--via {via}", hint="give agent, gateway or a URL")
        check_value("--via", via, check_url)
        if base_url:
            raise CallerError("--via already names the endpoint", path="--base-url", hint="give only one of them")
        return cls(name=name, settings=settings_here(model=name), via="client", url=via)

    @property
    def is_local(self) -> bool:
        return self.name.startswith(_LOCAL) and self.via != "client"

    @property
    def facts(self) -> dict[str, Any]:
        """The user's facts about the model. A plain client does not read them."""
        if self.via == "client":
            return dict(_PLAIN)
        return {**self._profile, **({"mode": self.settings.mode} if self.settings.mode else {})}

    @property
    def _profile(self) -> dict[str, Any]:
        """The user's profile of the model. Without one, a local model has a context that does not depend on memory."""
        return {**({"context_tokens": _CONTEXT} if self.is_local else {}), **self.settings.profile(self.name)}

    async def identify(self) -> str:
        """Return the key of saved answers: the name, and the model file's hash and engine, or the endpoint."""
        if self.is_local:
            source = f"{_hash_file(self.name.removeprefix(_LOCAL))} {embedded_version()}"
        elif self.url:
            headers = {"Authorization": f"Bearer {_api_key()}"} if _api_key() else {}
            version = ""
            async with aclosing(Transport()) as transport:
                with suppress(ProviderError):  # `connect` reports this later, if there are tasks left
                    await transport.connect(self.url)
                    version = (await read_backend_info(transport, self.url, headers, self.name)).version
            source = f"{self.url} {version}"
        else:
            source = ""
        return f"{self.name} {source} {self.via}"

    def plan(self, variant: Variant) -> Resolution:
        """Return how this variant asks the model, with or without a gateway."""
        return resolve(self.name, {**self.facts, **variant.facts})

    def prepare(self) -> None:
        """Download a missing local model, and check the extras before the first request."""
        if self.is_local and not self.name.endswith(".gguf"):
            try:
                locate(self.name.removeprefix(_LOCAL))
            except NoSuchModel:
                pull_with_progress(self.name.removeprefix(_LOCAL))
        if self.via == "gateway":
            require_extra("gateway")

    async def connect(self) -> None:
        """Raise ProviderError if the model's endpoint accepts no connection. Sends no request."""
        async with _closing(self._open(Variant(""))) as model:
            if isinstance(model, HttpModel):
                await model.connect()

    @asynccontextmanager
    async def open(self, variant: Variant) -> AsyncGenerator[Model]:
        """Open the model for a variant."""
        if self.via == "gateway":
            async with self._serve(variant) as url, _closing(self._open_plain(url)) as model:
                yield model
        elif self.via == "client":
            async with _closing(self._open_plain(self.url, variant.facts)) as model:
                yield model
        else:
            async with _closing(self._open(variant)) as model:
                yield model

    def _open(self, variant: Variant) -> PlannedModel:
        mode = "" if "mode" in variant.facts else self.settings.mode
        return open_model(
            self.name,
            base_url=self.url,
            api_key=_api_key() if self.url else "",
            mode=cast("ModeName", mode),  # checked at its use
            profile={**self._profile, **variant.facts},
            tell=lambda line: typer.echo(f"{self.name}: {line}", err=True),
        )

    def _open_plain(self, url: str, facts: Mapping[str, Any] | None = None) -> PlannedModel:
        name = self.name.partition(":")[2] if self.name.startswith(_LOCAL) else self.name
        return open_model(name, base_url=url, api_key=_api_key(), profile={**_PLAIN, **(facts or {})})

    @asynccontextmanager
    async def _serve(self, variant: Variant) -> AsyncGenerator[str]:
        from callboard.servers.gateway.server import serve_on_loopback  # noqa: PLC0415

        if not (self.is_local or self.url):
            hint = "use --via agent, or give --base-url"
            raise CallerError("the gateway needs the model's endpoint", path="--via gateway", hint=hint)
        backend = BackendSettings(
            url=self.url,
            local=self.name.removeprefix(_LOCAL) if self.is_local else "",
            key=_api_key() if self.url else "",
            mode="" if "mode" in variant.facts else self.settings.mode,
            profile={**self._profile, **variant.facts} if self.is_local else {**variant.facts},
        )
        # No breaker: there is only one backend, so it would only delay tasks that the endpoint could answer.
        settings = GatewaySettings(
            backends=(backend,), profiles=self.settings.profiles, failure_threshold=_NEVER_REACHED
        )
        async with serve_on_loopback(settings) as url:
            yield url


@asynccontextmanager
async def _closing(model: PlannedModel) -> AsyncGenerator[PlannedModel]:
    try:
        yield model
    finally:
        await model.aclose()


def _api_key() -> str:
    return os.environ.get("CALLBOARD_API_KEY", "")


def _hash_file(name: str) -> str:
    """Return the hash of a model's file, from the catalogue or by reading it, at 1 s per gigabyte."""
    if not name.endswith(".gguf"):
        return known_models().find(name).sha256
    try:
        with Path(name).expanduser().open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise NoSuchModel(error.strerror or "cannot be read", path=name) from None
