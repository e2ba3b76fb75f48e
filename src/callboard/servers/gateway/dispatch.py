"""Ask the backends that serve a model, until one replies.

This module decides which failures count against a backend, and retries a refused request with the facts that the
refusal suggests.

Laws: another backend is asked only until the first part of a reply is sent; exactly one terminal event, last; arguments
of calls are never logged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from callboard.core import (
    AssistantCanister,
    Canister,
    Event,
    FileContent,
    InvocationCanister,
    InvocationEnded,
    InvocationStarted,
    Note,
    PictureContent,
    ReasoningContent,
    ReplyEnded,
    ReplyFailed,
    Request,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    Usage,
    unsent_note,
)
from callboard.errors import CallboardError, ProviderError
from callboard.profiles import Resolution
from callboard.providers.count_tokens import BYTES_PER_TOKEN, TokenCount
from callboard.providers.fallback import first_reply
from callboard.providers.http_model import HttpModel
from callboard.providers.lessons import MAX_TRIALS, STATUSES, refuses_tools
from callboard.servers.gateway.backend import WITHOUT_TOOLS, Backend, BatchModel
from callboard.servers.gateway.exchange import Batches, ReplyObserver, ReplyRecord
from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.redaction import Redactor
from callboard.servers.gateway.settings import BackendSettings
from callboard.text.display import display
from callboard.wires.field_mapping import mark_signatures, translate_request

log = logging.getLogger("callboard.gateway")

Candidates = Sequence[tuple[Backend, str]]

_CLIENT_STATUSES = frozenset({400, 413, 422})
"""Statuses that another backend would return too."""
_DOWN_STATUSES = frozenset({502, 503, 504, *range(520, 528), 529, 530})
"""Statuses of a backend that is absent or unable to answer, with Cloudflare's equivalents."""
_NO_REPLY_CODES = frozenset({"backend_unavailable", "timeout", "cut", "malformed"})
"""Codes of a connection without a reply. Other failures are answers, perhaps caused by the request."""
_MAX_NAME: Final = 100
"""Maximum characters of a name in a log line."""
_MIN_WINDOW: Final = 256
"""Tokens of the smallest context window that llama.cpp serves."""
_MAX_TOKEN: Final = 128
"""Bytes of the longest token of known vocabularies: 128 spaces, of OpenAI, Llama, Qwen and DeepSeek."""
MAX_WITHOUT_THOUGHTS: Final = 1024
"""Maximum tokens of a reply that leaves no room for thoughts: the smallest budget of Anthropic, and Google's of `low`."""
_THINKING_FIELDS: Final = frozenset({"chat_template_kwargs", "reasoning", "thinking", "enable_thinking"})
"""Fields with which a client itself says something about thinking."""
_NO_THOUGHTS: Final = Note(
    "repaired", f"thinking is off, because the reply has at most {MAX_WITHOUT_THOUGHTS} tokens", code="no_thoughts"
)
_ATTRIBUTION: Final = re.compile(r"\s*x-anthropic-billing-header:[^\r\n]*[\r\n]*")


def stream_reply(candidates: Candidates, request: Request, record: ReplyRecord) -> Batches:
    """Return the batches of one reply, from the first candidate that its breaker allows and that replies."""
    rest = list(candidates)
    wait: float | None = None
    failed: ReplyFailed | None = None

    def attempts() -> Iterator[Batches]:
        nonlocal wait
        while rest:
            backend, name = rest.pop(0)
            if seconds := backend.seconds_to_wait(name, monotonic(), record.owner):
                wait = seconds if wait is None else min(wait, seconds)
                continue
            yield _ask_backend(backend, name, request, record)
        yield _fail(record, failed, wait or 0.0)

    def on_failure(failure: ReplyFailed) -> str:
        nonlocal failed
        if not rest or record.status in _CLIENT_STATUSES:
            return ""
        failed = failure
        record.end, record.retry_after, record.usage = None, None, Usage()
        return f"a backend failed: {failure.message}; another is asked"

    return first_reply(attempts(), on_failure)


async def _fail(record: ReplyRecord, failed: ReplyFailed | None, wait: float) -> Batches:
    """Yield the failure of the last backend, or a failure that says that every breaker is open."""
    if failed is None:
        record.retry_after = wait
        message = f"the backend failed too often and is not asked for another {wait:.0f} s"
        failed = ReplyFailed("provider", "backend_unavailable_circuit_open", message)
    record.set_end([failed])
    yield [failed]


async def _ask_backend(backend: Backend, name: str, request: Request, record: ReplyRecord) -> Batches:
    """Yield one backend's reply. If the backend refuses the form of the request, ask it again with other facts."""
    sent, lost_fields = _translate_request(backend, name, request, record)
    record.begin(backend)
    call_logger = tool_call_logger(request)
    is_over = False
    try:
        if lost_fields:
            yield [unsent_note(field) for field in lost_fields]
        facts: dict[str, Any] = {}  # facts to try in addition to those known of the model
        while True:
            model = backend.model(name, record.owner, facts)
            sent = _fit_model(sent, backend, model, record)
            record.begin(backend, model.plan)
            if not facts:
                await _check_length(backend, name, model, sent, record)
            more: Mapping[str, Any] = {}
            reply = model.batches(
                sent,
                headers=backend.headers(record.token, record.beta),
                observer=ReplyObserver(record, None if call_logger is None else call_logger.log_frame),
            )
            recorder = backend.reasoning_memory.recorder(
                record.owner, sent, unsigned=model.resolution.profile.requires_reasoning_history
            )
            async with aclosing(reply) as batches:
                async for batch in batches:
                    events = backend.redactor.events(_set_failure_code(batch, backend, record))
                    record.add_notes(events)
                    recorder.feed(events)
                    events = mark_signatures(events, record.front, backend.settings.wire)
                    if call_logger is not None:
                        call_logger.log_events(events)
                    end = events[-1]
                    if isinstance(end, ReplyFailed) and (more := _facts_to_try(end, model, sent, record, facts)):
                        break
                    if isinstance(end, (ReplyEnded, ReplyFailed)):
                        is_over = True
                        _update_breaker(backend, name, end, record)
                        record.set_end(events)
                        backend.learn_from(end, name, record.owner, facts)
                    yield events
            if not more:
                return
            facts |= more
    except CallboardError as error:
        is_over = True
        backend.release(name, record.owner)
        party = "caller" if error.party == "caller" else "provider"
        code = error.code if isinstance(error, ProviderError) else "invalid_request"
        failed = ReplyFailed(party, code, backend.redactor.error(str(error)))
        record.set_end([failed])
        yield [failed]
    finally:
        if not is_over:
            backend.release(name, record.owner)
            record.costs.end_reply()


async def count_request(backend: Backend, name: str, request: Request, record: ReplyRecord) -> TokenCount | None:
    """Return the tokens of the request as this backend would get it, if the backend counts them.

    Raises CallerError if no model can have this name, or if the request cannot be sent.
    """
    sent, _ = _translate_request(backend, name, request, record)
    model = backend.model(name, record.owner)
    sent = _fit_model(sent, backend, model, record)
    return await backend.count_tokens(name, model, sent, owner=record.owner, token=record.token, beta=record.beta)


async def _check_length(backend: Backend, name: str, model: BatchModel, request: Request, record: ReplyRecord) -> None:
    """Refuse a request that surely exceeds the context window that the backend reports, before it is sent.

    It is sure if the backend's own tokenizer counts more tokens than the window has, or if no tokenizer could write the
    text in so few. The tokenizer is asked only if the request may come near the window.

    Raises:
        ProviderError: The request cannot fit. The message has both numbers.
    """
    window = backend.serving_model(name, record.owner).context
    texts = sum([_count_characters(each) for each in request.canisters])
    tokens = max(record.size, texts) // BYTES_PER_TOKEN
    if window < _MIN_WINDOW or tokens <= window // 2:
        return
    count = await backend.count_tokens(name, model, request, owner=record.owner, token=record.token, beta=record.beta)
    is_too_long = texts > window * _MAX_TOKEN
    if count is not None and count.is_exact:
        tokens, is_too_long = count.tokens, count.tokens > window
    if is_too_long:
        message = FRONTENDS[record.front].too_long.format(tokens=tokens, window=window)
        raise ProviderError(message, code="context_length_exceeded", party="caller")


def _count_characters(canister: Canister) -> int:
    """Return the characters of the canister's text, which has at least as many bytes."""
    if isinstance(canister, InvocationCanister):
        return len(canister.raw)
    return sum([len(part.text) for part in canister.content if not isinstance(part, PictureContent | FileContent)])


def _translate_request(
    backend: Backend, name: str, request: Request, record: ReplyRecord
) -> tuple[Request, tuple[str, ...]]:
    """Return the request for the backend's wire, with reasoning that the client did not send back, and lost fields."""
    if name != request.model and record.front == "chat":
        # Chat has no field for the reasoning model: the decoder named the requested model, by the client's name.
        request = replace(
            request, canisters=tuple([_rename_origin(each, request.model, name) for each in request.canisters])
        )
    translated, lost_fields = translate_request(replace(request, model=name), record.front, backend.settings.wire)
    record.add_dropped(lost_fields)
    # Nobody is here to approve a quoted call, and the client acts on every call that it gets.
    return backend.reasoning_memory.restore(record.owner, replace(translated, quoted_calls="text")), lost_fields


def _rename_origin(canister: Canister, model: str, name: str) -> Canister:
    content = canister.content if isinstance(canister, AssistantCanister) else ()
    if not any(isinstance(part, ReasoningContent) and part.origin == model for part in content):
        return canister
    thoughts = [
        replace(part, origin=name) if isinstance(part, ReasoningContent) and part.origin == model else part
        for part in content
    ]
    return replace(canister, content=tuple(thoughts))


def _set_failure_code(events: list[Event], backend: Backend, record: ReplyRecord) -> list[Event]:
    """Set the gateway's own code for an unreachable backend, and remove the target of a redirect, which only the log
    gets.
    """
    last = events[-1]
    if not isinstance(last, ReplyFailed):
        return events
    if last.party != "caller":
        # The backend may repeat the client's own key. A log filter masks the secrets of the settings.
        log.warning("%s failed: %r", backend.name, Redactor([record.token]).text(last.message))
    elif record.status == 404:
        log.warning("%s failed: %s: %r", backend.name, last.path, Redactor([record.token]).text(last.message))
    if last.code == "unreachable":
        last = replace(last, code="backend_unavailable")
    elif 300 <= record.status < 400:
        message = f"the provider answered {record.status}; redirects are not followed"
        last = replace(last, message=message, excerpt="")
    return [*events[:-1], last]


def strip_attribution(request: Request, settings: BackendSettings, resolution: Resolution) -> Request:
    """Return the request without the first line of Claude Code's instructions, unless the backend is Anthropic's.

    Since 2.1.29 the line is `x-anthropic-billing-header: …; cch=…;`. It differs in each request, and only Anthropic
    reads it. A prompt that begins differently each time is never cached (claude-code-router#1220, sglang#28522).
    """
    index = next((i for i, each in enumerate(request.canisters) if isinstance(each, SupervisorCanister)), 0)
    first = request.canisters[index] if request.canisters else None
    if not isinstance(first, SupervisorCanister) or not first.content:
        return request
    part = first.content[0]
    if not isinstance(part, TextualContent) or (match := _ATTRIBUTION.match(part.text)) is None:
        return request
    if is_anthropic(settings, resolution):
        return request
    text = part.text[match.end() :]
    content = (*((replace(part, text=text),) if text else ()), *first.content[1:])
    rest = (replace(first, content=content),) if content else ()
    return replace(request, canisters=(*request.canisters[:index], *rest, *request.canisters[index + 1 :]))


def is_anthropic(settings: BackendSettings, resolution: Resolution) -> bool:
    """Return True for Anthropic's own host, and for Claude on Anthropic's wire behind a proxy."""
    host = urlsplit(settings.url).hostname or ""
    ours = host == "anthropic.com" or host.endswith(".anthropic.com")
    is_claude = any(source.startswith("family claude") for source in resolution.sources.values())
    return settings.wire == "messages" and (ours or is_claude)


def _fit_model(request: Request, backend: Backend, model: BatchModel, record: ReplyRecord) -> Request:
    request = strip_attribution(request, backend.settings, model.resolution)
    return _spare_thoughts(_forbid_calls_after_results(request, model), model, record)


def _spare_thoughts(request: Request, model: BatchModel, record: ReplyRecord) -> Request:
    """Turn thinking off for a short reply of a model that thinks, unless the client says something about thinking.

    Clients ask for titles and summaries in a few tokens, without an effort. Such a model would think until the reply
    reaches its limit, and answer nothing.
    """
    controls = request.controls
    is_short = controls.max_tokens is not None and controls.max_tokens <= MAX_WITHOUT_THOUGHTS
    is_silent = controls.effort is None and not _THINKING_FIELDS & request.extra.keys()
    if not (is_short and is_silent and model.resolution.profile.thinks):
        return request
    record.add_notes([_NO_THOUGHTS])
    return replace(request, controls=replace(controls, effort="none"))


def _forbid_calls_after_results(request: Request, model: BatchModel) -> Request:
    """Set `tool_choice` to "none" for models that repeat a call that already has its result."""
    if model.plan.answer_after != "results" or request.tool_choice != "auto":
        return request
    last = request.canisters[-1] if request.canisters else None
    return replace(request, tool_choice="none") if isinstance(last, ResultCanister) and last.error is None else request


def _facts_to_try(
    failed: ReplyFailed, model: BatchModel, request: Request, record: ReplyRecord, tried: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the facts that the refusal suggests and that change the request; empty if there are none."""
    if isinstance(model, HttpModel) and len(tried) < MAX_TRIALS:
        other, known = model.taught_by(failed, record.status, request), model.learned.items()
        if other is not None:
            return {fact: value for fact, value in other.learned.items() if (fact, value) not in known}
    can_refuse = request.tools and model.plan.mode.declares == "wire" and record.status in STATUSES
    if not can_refuse or "mode" in tried:
        return {}
    has_results = any(isinstance(each, ResultCanister) for each in request.canisters)
    return {"mode": WITHOUT_TOOLS} if refuses_tools(failed, has_results=has_results) else {}


def _update_breaker(backend: Backend, name: str, end: ReplyEnded | ReplyFailed, record: ReplyRecord) -> None:
    """Count the backend's own faults against the backend, and a reply that breaks off against its model."""
    if isinstance(end, ReplyEnded):
        backend.record_success(name)
        return
    backend.release(name, record.owner)
    is_theirs = end.party == "provider" and (record.status in (0, 200) or record.status >= 500)
    if is_theirs and end.code not in {"cancelled", "rate_limit_exceeded", "insufficient_quota"}:
        is_down = record.status in _DOWN_STATUSES or (record.status in (0, 200) and end.code in _NO_REPLY_CODES)
        breaker = backend.model_breaker(name) if record.status == 200 else backend.breaker
        breaker.record_failure(monotonic(), record.owner, record.retry_after, doubtful=not is_down)


def tool_call_logger(request: Request) -> ToolCallLogger | None:
    """Log the calls in a request, and return a logger for the calls of its reply. None unless the level is DEBUG."""
    if not log.isEnabledFor(logging.DEBUG):
        return None
    for canister in request.canisters:
        if isinstance(canister, InvocationCanister):
            name = display(canister.name, _MAX_NAME)
            log.debug("INPUT: Found function_call (%s) - will attach to assistant message", name)
        elif isinstance(canister, ResultCanister):
            identifier = display(canister.invocation_id, _MAX_NAME)
            log.debug("INPUT: Added function_call_output (call_id: %s)", identifier)
    return ToolCallLogger()


class ToolCallLogger:
    """Logs the tool calls of one reply at level DEBUG. It logs only the size of arguments."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._held: dict[Any, int] = {}
        """Bytes of arguments that arrived before the name, by the index on the wire."""

    def log_frame(self, data: str) -> None:
        """Log arguments that arrived before their name, which only Chat Completions backends send."""
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return
        for call in [call for choice in chunk.choices for call in choice.delta.tool_calls or ()]:
            name, size = call.function.name or "", len((call.function.arguments or "").encode())
            known = self._names.get(call.index, "")
            if name and not known:
                self._names[call.index] = name
                if held := self._held.pop(call.index, 0):
                    log.debug("Replaying %d buffered argument bytes for %s", held, display(name, _MAX_NAME))
            elif size and not known:
                self._held[call.index] = self._held.get(call.index, 0) + size
                log.debug("Buffering %d argument bytes for tool index %s (name not yet received)", size, call.index)

    def log_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, InvocationStarted):
                log.debug("Tool call started: %s (index %d)", display(event.name, _MAX_NAME), event.index)
            elif isinstance(event, InvocationEnded):
                size = len(event.raw.encode())
                log.debug("Tool call complete: %s - %d bytes of args", display(event.name, _MAX_NAME), size)


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct, frozen=True):
    index: int | str | None = None
    function: _Function = _Function()


class _Delta(msgspec.Struct, frozen=True):
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
