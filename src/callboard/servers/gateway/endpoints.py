"""Endpoints that do not ask a model: /health, /metrics, models, stored responses.

Law: a key in a URL, as Google's clients send it, becomes a header before anything else sees the request. So no log line
or error shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from time import gmtime, monotonic, strftime
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from callboard import __version__
from callboard.servers.gateway.auth import read_token
from callboard.servers.gateway.backend import ListedModel
from callboard.servers.gateway.conversation_state import ConversationState, StoredResponse
from callboard.servers.gateway.frontends import ALT, FRONTENDS, Frontend
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.metrics import Metrics
from callboard.servers.gateway.request_log import RequestLog

_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100


class _Status(msgspec.Struct):
    status: str


_decode_status = msgspec.json.Decoder(_Status).decode
_decode_items = msgspec.json.Decoder(list[dict[str, Any]]).decode


async def retrieve_response(request: ApiRequest) -> Response:
    """GET /v1/responses/{id}. Raise an HttpError if the query asks for a stream."""
    response = await _find(request)
    if request.query.get("stream", "false") != "false":
        raise HttpError("stream_not_supported", "a stored response is not streamed again", path="stream")
    return json_response(msgspec.Raw(response.body))


async def delete_response(request: ApiRequest) -> Response:
    identifier = request.path_params["identifier"]
    store = request.services.conversations.store
    if store is None or not await store.delete(identifier, request.owner):
        raise _not_found(identifier)
    return json_response({"id": identifier, "object": "response", "deleted": True})


async def cancel_response(request: ApiRequest) -> Response:
    """POST /v1/responses/{id}/cancel. It cancels background responses, and the gateway never creates any."""
    status = _decode_status((await _find(request)).body).status
    raise HttpError("invalid_request", f"Cannot cancel a {status} response.")


async def input_items(request: ApiRequest) -> Response:
    """GET /v1/responses/{id}/input_items: the items of the response's own turn, newest first by default."""
    query = request.query
    limit = query.get("limit", str(_DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= _MAX_LIMIT):
        raise HttpError("invalid_request", f"not a number from 1 to {_MAX_LIMIT}", path="limit")
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise HttpError("invalid_request", "neither asc nor desc", path="order")
    items = _decode_items((await _find(request)).input)
    if order == "desc":
        items.reverse()
    if after := query.get("after", ""):
        index = next((index for index, item in enumerate(items) if item["id"] == after), None)
        if index is None:
            raise HttpError("invalid_request", "no such item", path="after")
        items = items[index + 1 :]
    page = items[: int(limit)]
    return json_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > len(page),
        }
    )


async def _find(request: ApiRequest) -> StoredResponse:
    identifier = request.path_params["identifier"]
    store = request.services.conversations.store
    response = None if store is None else await store.find(identifier, request.owner)
    if response is None:
        raise _not_found(identifier)
    return response


def _not_found(identifier: str) -> HttpError:
    return HttpError("not_found", f"Response with id {identifier[:_MAX_SHOWN]!r} not found.")


VERSIONS = ("/v1beta", "/v1")
"""Path prefixes of Google's API. `v1` is for clients that avoid beta features."""
_KEY_HEADER = "x-goog-api-key"
_COLLECTION = "models/"
_MAX_SHOWN = 100
"""Maximum characters of a name in a message."""


class Services(msgspec.Struct):
    """Objects that the endpoints of one application share."""

    gateway: Gateway
    conversations: ConversationState
    metrics: Metrics
    request_log: RequestLog | None = None
    """The log of requests. None if nobody can view it."""

    def keep_requests(self) -> RequestLog:
        """Return the log of requests, and create it on the first call. An extension that shows it calls this early."""
        if self.request_log is None:
            self.request_log = RequestLog()
        return self.request_log


class ApiRequest(msgspec.Struct, frozen=True):
    """An accepted request. `token` is the client's key, if it may be forwarded."""

    services: Services
    scope: Scope
    receive: Receive
    headers: Headers
    owner: str = ""
    token: str = ""

    @property
    def path_params(self) -> Mapping[str, str]:
        params: Mapping[str, str] = self.scope["path_params"]
        return params

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. The last value of a repeated parameter counts."""
        return dict(_query(self.scope))


Handler: TypeAlias = Callable[[ApiRequest], Awaitable[Response]]
Access: TypeAlias = Literal["public", "counted", "work"]
"""`public` needs no key, `counted` counts toward a key's requests a minute, `work` also toward its open requests.

`counted` is for endpoints that must answer even if the key has its maximum of open requests, such as /metrics.
"""


class Endpoint:
    """An endpoint whose `handler` makes the whole answer. If `front` is "", each client gets its own format."""

    def __init__(self, services: Services, front: str, handler: Handler, access: Access = "work") -> None:
        self._services = services
        self._front = front
        self._handler = handler
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._front in {"", "gemini"}:
            scope = move_key_to_header(scope)
        try:
            response = await self._respond(scope, receive)
        except HttpError as error:
            response = error_response(FRONTENDS[self._front or client_format(scope)], error)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        services, headers = self._services, Headers(scope=scope)
        authenticator = services.gateway.authenticator
        if self._access == "public":
            authenticator.check_origin(headers)
            return await self._handler(ApiRequest(services, scope, receive, headers))
        token = read_token(headers)
        caller = authenticator.authenticate(headers, token)
        passed = "" if services.gateway.settings.keys else token
        request = ApiRequest(services, scope, receive, headers, authenticator.owner(caller, token), passed)
        with caller if self._access == "work" else nullcontext():
            await caller.count()
            return await self._handler(request)


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


def error_response(front: Frontend, error: HttpError) -> Response:
    return json_response(front.error_body(error), error.status, error.headers)


async def root(_: ApiRequest) -> Response:
    return json_response({"name": "callboard", "version": __version__})


async def metrics(request: ApiRequest) -> Response:
    figures = request.services.metrics
    for backend in request.services.gateway.backends:
        figures.set_breaker(backend.name, is_open=backend.breaker.state(monotonic()) == "open")
    return Response(figures.render(), media_type="text/plain; version=0.0.4")


async def health(request: ApiRequest) -> Response:
    """GET /health: 200, or 503 if the breakers of all backends are open."""
    gateway, now = request.services.gateway, monotonic()
    token = read_token(request.headers)
    is_known = gateway.authenticator.is_key(token)
    try:
        owner = gateway.authenticator.owner(gateway.authenticator.authenticate(request.headers, token), token)
    except HttpError:
        owner = None
    backends: list[dict[str, Any]] = []
    for index, backend in enumerate(gateway.backends):
        # Only clients with one of the gateway's keys see a backend's address. Others see its configured name, or only
        # a number if the gateway has keys.
        configured = "" if gateway.settings.keys else backend.settings.name
        name = backend.name if is_known else configured or f"backend-{index + 1}"
        state = backend.breaker.state(now)
        learned = {} if owner is None else backend.learned_facts(owner)
        backends.append(
            {
                "name": name,
                "state": state,
                "is_open": state == "open",
                "consecutive_failures": backend.breaker.failures,
                **({"learned": learned} if learned else {}),
            }
        )
    is_unhealthy = all(each["is_open"] for each in backends)
    body = {
        "status": "unhealthy" if is_unhealthy else "healthy",
        "circuit_breaker": {
            "enabled": True,
            "is_open": is_unhealthy,
            "consecutive_failures": max([each["consecutive_failures"] for each in backends]),
        },
        "backends": backends,
    }
    return json_response(body, 503 if is_unhealthy else 200)


def client_format(scope: Scope) -> str:
    """Return the front whose format a client reads on shared paths. Google's and Anthropic's clients are recognized."""
    headers = Headers(scope=scope)
    if scope["path"].startswith("/v1beta") or _KEY_HEADER in headers:
        return "gemini"
    return "messages" if "anthropic-version" in headers else "chat"


_METHODS: Final = ("generateContent", "streamGenerateContent", "countTokens")
_MODEL_FORMS: Mapping[str, tuple[Callable[[str, ListedModel], Any], Callable[[Sequence[Any]], Any]]] = MappingProxyType(
    {
        "chat": (
            lambda name, model: {
                "id": name,
                "object": "model",
                "created": model.created,
                "owned_by": "callboard",
                **({"context_length": model.context} if model.context else {}),
            },
            lambda models: {"object": "list", "data": models},
        ),
        "messages": (
            lambda name, model: {
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(model.created)),
            },
            lambda models: {
                "data": models,
                "has_more": False,
                "first_id": models[0]["id"] if models else None,
                "last_id": models[-1]["id"] if models else None,
            },
        ),
        "gemini": (
            lambda name, model: {
                "name": f"models/{name}",
                "displayName": name,
                **({"inputTokenLimit": model.context} if model.context else {}),
                "supportedGenerationMethods": _METHODS,
            },
            lambda models: {"models": models},
        ),
    }
)
"""Encoders of a model and of a list of models, by front."""


async def list_models(request: ApiRequest) -> Response:
    gateway = request.services.gateway
    make_model, make_list = _MODEL_FORMS[client_format(request.scope)]
    names = await gateway.models(request.owner, request.token)
    return json_response(make_list([make_model(name, gateway.listed_model(name, request.owner)) for name in names]))


async def get_model(request: ApiRequest) -> Response:
    name = request.path_params["name"]
    gateway = request.services.gateway
    if not await gateway.has_model(name, request.owner, request.token):
        raise HttpError("model_not_found", f"there is no model {name[:_MAX_SHOWN]!r} here", path="model")
    return json_response(_MODEL_FORMS[client_format(request.scope)][0](name, gateway.listed_model(name, request.owner)))


def move_key_to_header(scope: Scope) -> Scope:
    """Move the `key` of the query to a header."""
    query = _query(scope)
    keys = [value for name, value in query if name == "key"]
    if not keys:
        return scope
    rest = urlencode([(name, value) for name, value in query if name != "key"]).encode()
    header = (_KEY_HEADER.encode(), keys[-1].encode("latin-1", "replace"))
    return {**scope, "query_string": rest, "headers": [*scope["headers"], header]}


def url_fields(scope: Scope, *, stream: bool) -> dict[str, Any]:
    """Return the fields of a body that the URL sets: the model, whether to stream, and in which format."""
    form = next((value for name, value in reversed(_query(scope)) if name in {ALT, "$alt"}), "json")
    return {"model": model_in_path(scope), "stream": stream, ALT: form}


def model_in_path(scope: Scope) -> str:
    """Return the model's name: `NAME` of `models/NAME`, or the full name in another collection."""
    return str(scope["path_params"]["resource"]).removeprefix(_COLLECTION)


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
