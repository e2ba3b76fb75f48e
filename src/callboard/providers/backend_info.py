"""Read what a server reports about itself: its version, context length and chat template.

Servers have no common path for this, so several paths are requested at once: the list of models, `/props` (llama.cpp),
`/version` (vLLM), `/api/version` (Ollama) and `/get_server_info` (SGLang). Missing facts stay empty. No answer is an
error.

Laws: the version is one printable line. It ignores fields that change with every answer, such as `created`. If a server
is too slow or too busy for one of the paths, the version is empty, not shorter.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from callboard.errors import CallboardError, ProviderError
from callboard.profiles import Examination, normalise
from callboard.providers.transport import HttpResponse, Transport
from callboard.text.display import display

_SECONDS: Final = 3.0
"""For each answer: a command waits for all of them before it begins."""
_BUSY: Final = frozenset({429, 503})
"""Statuses of a server that would answer later; llama.cpp says 503 while it loads a model."""
_NO_ANSWER: Final = frozenset({"timeout", "unreachable", "cut"})
"""The same as codes of errors."""
_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_NAME: Final = 80
_PATHS: Final = ("/props", "/version", "/api/version", "/get_server_info")
_VERSIONS: Final = ("build_info", "version")
_CONTEXTS: Final = ("max_model_len", "context_length", "context_window", "max_context_length")
_IDENTITY: Final = ("root", "owned_by", "quantization", "digest", *_CONTEXTS)
"""Fields of a model's entry that say which model it is."""
_META: Final = ("n_params", "size", "n_ctx_train", "n_vocab")
"""The same of llama.cpp's `meta`."""


class BackendInfo(msgspec.Struct, frozen=True):
    """Facts that a server reports about itself and one model. Facts that it does not report are empty."""

    version: str = ""
    context_tokens: int = 0
    context_source: str = ""
    """The field that reported the length of the context."""
    chat_template: str = ""


class _Page(msgspec.Struct, frozen=True):
    """The Server header and the JSON object of an answer, as far as there are any; `is_late`: it would come later."""

    server: str = ""
    body: Mapping[str, Any] = {}
    is_late: bool = False


class ServerPages(msgspec.Struct, frozen=True):
    """A server's answers: first its list of models, then one for each of `_PATHS`."""

    models: _Page
    others: tuple[_Page, ...]

    def describe(self, model: str) -> BackendInfo:
        """Return the facts about the server and this model. "" means the first listed model."""
        info = _describe(self.models.server, self.models.body, [page.body for page in self.others], model)
        is_late = any(page.is_late for page in (self.models, *self.others))
        return msgspec.structs.replace(info, version="") if is_late else info


async def read_backend_info(
    transport: Transport, base_url: str, headers: Mapping[str, str], model: str = ""
) -> BackendInfo:
    """Ask a server of the Chat Completions wire for its version; `model` "" is the first that it lists."""
    return (await read_server_pages(transport, base_url, headers)).describe(model)


async def read_server_pages(transport: Transport, base_url: str, headers: Mapping[str, str]) -> ServerPages:
    """Ask a server of the Chat Completions wire for what it says of itself, at all paths at once."""
    base = base_url.rstrip("/")
    root = base.removesuffix("/v1")
    urls = [f"{base}/models", *(root + path for path in _PATHS)]
    models, *others = await asyncio.gather(*[_get(transport, url, headers) for url in urls])
    return ServerPages(models, tuple(others))


def embedded_version() -> str:
    """The version of the engine that runs models of this machine, "" without one."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # for such models only

    try:
        return f"xllamacpp {version('xllamacpp')}"
    except PackageNotFoundError:
        return ""


def describe_change(examined: Examination, url: str, version: str) -> str:
    """Return why facts of an examined backend may not hold for the current one, or "" if they hold."""
    if examined.url and examined.url.rstrip("/") != url.rstrip("/"):
        return f"they were found out of {examined.url}, and {url} is asked"
    if examined.version and version and examined.version != version:
        return f"the backend has changed since {examined.date}: it was {examined.version}, and is {version}"
    return ""


async def _get(transport: Transport, url: str, headers: Mapping[str, str]) -> _Page:
    server = ""
    try:
        async with asyncio.timeout(_SECONDS), transport.get(url, headers=headers) as answer:
            server = answer.headers.get("Server", "")
            return _Page(server, await _read_object(answer), is_late=answer.status in _BUSY)
    except TimeoutError:
        return _Page(server, is_late=True)
    except CallboardError as error:
        return _Page(server, is_late=isinstance(error, ProviderError) and error.code in _NO_ANSWER)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return _Page(server)


async def _read_object(answer: HttpResponse) -> Mapping[str, Any]:
    if answer.status != 200:
        return {}
    body = msgspec.json.decode(await answer.read(_MAX_BYTES))
    return body if isinstance(body, dict) else {}


def _describe(server: str, models: Mapping[str, Any], others: list[Mapping[str, Any]], model: str) -> BackendInfo:
    entry = _find_entry(models, model)
    props = others[0]
    settings = props.get("default_generation_settings")
    served = _count(settings.get("n_ctx")) if isinstance(settings, dict) else 0
    listed = next((tokens for key in _CONTEXTS if (tokens := _count(entry.get(key)))), 0)
    template = props.get("chat_template")
    template = template if isinstance(template, str) else ""
    names = [each[key] for each in others for key in _VERSIONS if isinstance(each.get(key), str)]
    context = served or listed
    parts = [
        " ".join([display(name, _MAX_NAME) for name in (server, *names[:1]) if name]),
        f"context {context}" if context else "",
        f"template {_digest(template)}" if template else "",
        f"model {_digest(_identity(entry))}" if _identity(entry) else "",
    ]
    source = "/props" if served else "the list of models" if listed else ""
    return BackendInfo(", ".join(filter(None, parts)), context, source, template)


def _find_entry(models: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    data = models.get("data")
    entries = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    first: Mapping[str, Any] = entries[0] if entries and not model else {}
    plain = normalise(model)
    return next((each for each in entries if model and normalise(str(each.get("id"))) == plain), first)


def _identity(entry: Mapping[str, Any]) -> str:
    meta = entry.get("meta")
    values = {key: entry[key] for key in _IDENTITY if isinstance(entry.get(key), str | int)}
    if isinstance(meta, dict):
        values |= {key: meta[key] for key in _META if isinstance(meta.get(key), int)}
    return msgspec.json.encode(values, order="sorted").decode() if values else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 32 else 0


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
