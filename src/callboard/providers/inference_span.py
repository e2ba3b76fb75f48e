"""The span of one request to a model's endpoint, where telemetry is on: `chat MODEL`.

The span covers one `HttpExchange` with its retries. It ends with the reply's last event, or when the reader leaves. Its
headers are sent with the request, so that a traced endpoint, such as our gateway, continues the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from callboard.core import Canister, Event, Fold, ReplyEnded, ReplyFailed, ReplyStarted, Usage
from callboard.telemetry import names, open_span, record
from callboard.telemetry.content import encode_definitions, encode_messages, encode_reply
from callboard.text.display import display

if TYPE_CHECKING:
    from callboard.core import Model, Request
    from callboard.profiles import Resolution
    from callboard.providers.http_model import HttpModel

_MAX_NAME: Final = 200
"""Characters of a model's name: a client may have made it up."""
_OBSERVED: Final = frozenset({ReplyEnded, ReplyFailed, ReplyStarted, Usage})
_FINISH_REASONS: Final[Mapping[str, str]] = {
    "invocations": "tool_call",
    "filter": "content_filter",
    "refusal": "content_filter",
}
_PROVIDERS: Final[Mapping[str, str]] = {"responses": "openai", "gemini": "gcp.gemini"}
_CONTROLS: Final = (
    ("temperature", names.REQUEST_TEMPERATURE),
    ("top_p", names.REQUEST_TOP_P),
    ("max_tokens", names.REQUEST_MAX_TOKENS),
    ("seed", names.REQUEST_SEED),
)


def provider_name(resolution: Resolution) -> str:
    """The provider as the conventions name it; of an endpoint without a known one, whose format it speaks."""
    provider = resolution.provider or names.PROVIDERS.get(resolution.profile.wire, resolution.profile.wire)
    return _PROVIDERS.get(provider, provider)


def describe_model(model: Model) -> dict[str, str]:
    """Provider and model, of any kind of model."""
    resolution = getattr(model, "resolution", None)
    if resolution is None:
        return {names.PROVIDER: model.name.partition(":")[0], names.REQUEST_MODEL: model.name}
    return {names.PROVIDER: provider_name(resolution), names.REQUEST_MODEL: resolution.model}


class InferenceSpan:
    """The span of one exchange. `headers` are sent with the request."""

    def __init__(self, model: HttpModel, request: Request) -> None:
        name, self._common = _describe_endpoint(
            model.resolution.model[: _MAX_NAME + 1], provider_name(model.resolution), model.base_url
        )
        self._is_streamed = request.stream
        self._span = open_span(name, "client", {**self._common, **_describe_request(request)})
        self.headers = self._span.headers
        self._first_chunk: float | None = None
        self._usage = Usage()
        self._reply: dict[str, Any] = {}
        """Attributes of the reply."""
        self._fold = Fold() if self._span.max_content else None
        self._canisters: list[Canister] = []
        if self._fold is not None:
            limit = self._span.max_content
            self._span.set_content(names.INPUT_MESSAGES, encode_messages(request.canisters, limit))
            if request.tools:
                self._span.set_content(names.TOOL_DEFINITIONS, encode_definitions(request.tools, limit))

    @property
    def reads_text(self) -> bool:
        """True if the span has the text of the reply."""
        return self._fold is not None

    def receive(self) -> None:
        """Bytes of the reply have arrived."""
        if self._first_chunk is None:
            self._first_chunk = self._span.seconds

    def feed(self, events: Sequence[Event]) -> None:
        """Look at the reply's next events."""
        if self._fold is not None:
            for event in events:
                self._canisters += self._fold.feed(event)
        if _OBSERVED.isdisjoint(map(type, events)):  # most batches are pieces, of which there is nothing to tell
            return
        for event in events:
            if type(event) not in _OBSERVED:
                continue
            match event:
                case Usage():
                    self._usage = event
                case ReplyStarted(identifier=identifier, model=model):
                    reply = {names.RESPONSE_ID: identifier, names.RESPONSE_MODEL: model}
                    self._reply |= {name: display(value, _MAX_NAME) for name, value in reply.items() if value}
                case ReplyEnded(reason=reason):
                    self._reply[names.FINISH_REASONS] = (_FINISH_REASONS.get(reason, reason),)
                case ReplyFailed(code=code):
                    if event.party == "caller":  # who may have made the name up, and it is a label of metrics
                        self._common = {
                            name: value for name, value in self._common.items() if name != names.REQUEST_MODEL
                        }
                    self._span.fail(names.error_word(code))
                case _:
                    pass

    def end(self) -> None:
        """End the span of the exchange."""
        span, usage, common = self._span, self._usage, self._common
        if names.FINISH_REASONS not in self._reply and not span.error_type:
            span.fail("cancelled")  # the reader has left
        about = self._reply
        if self._is_streamed and self._first_chunk is not None:
            about[names.TIME_TO_FIRST_CHUNK] = self._first_chunk
            record(names.FIRST_CHUNK, self._first_chunk, common)
        if usage.input or usage.output:
            about[names.INPUT_TOKENS], about[names.OUTPUT_TOKENS] = usage.input, usage.output
            if usage.cached:
                about[names.CACHED_TOKENS] = usage.cached
            if usage.reasoning:
                about[names.REASONING_TOKENS] = usage.reasoning
            record(names.TOKEN_USAGE, usage.input, {**common, names.TOKEN_TYPE: "input"})
            record(names.TOKEN_USAGE, usage.output, {**common, names.TOKEN_TYPE: "output"})
        failed = {**common, names.ERROR_TYPE: span.error_type} if span.error_type else common
        record(names.OPERATION_DURATION, span.seconds, failed)
        if self._fold is not None:
            reason = about.get(names.FINISH_REASONS, ("error",))[0]
            span.set_content(names.OUTPUT_MESSAGES, encode_reply(self._canisters, reason, span.max_content))
        span.set(about)
        span.end()


def _describe_request(request: Request) -> dict[str, Any]:
    about: dict[str, Any] = {names.REQUEST_STREAM: True} if request.stream else {}
    for field, name in _CONTROLS:
        if (value := getattr(request.controls, field)) is not None:
            about[name] = value
    return about


@lru_cache(64)
def _describe_endpoint(model: str, provider: str, base_url: str) -> tuple[str, Mapping[str, Any]]:
    """The name of its spans, and what each of its spans and measured values has."""
    shown = display(model, _MAX_NAME)
    about = {names.OPERATION: names.CHAT, names.PROVIDER: provider, names.REQUEST_MODEL: shown, **_server(base_url)}
    return f"{names.CHAT} {shown}", MappingProxyType(about)


def _server(base_url: str) -> Mapping[str, str | int]:
    """The address of an endpoint: nothing of its URL but host and port."""
    try:
        parts = urlsplit(base_url)
        port = parts.port or {"http": 80}.get(parts.scheme, 443)
    except ValueError:  # no address: to ask it is what fails
        return {}
    if not parts.hostname:
        return {}
    return {names.SERVER_ADDRESS: parts.hostname, names.SERVER_PORT: port}
